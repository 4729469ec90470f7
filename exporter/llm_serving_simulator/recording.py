"""A recorded run of a real server: its metrics pages second by second, side endpoints, what its client counted."""

from __future__ import annotations

import json
import re
import tarfile
import zlib
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from llm_serving_exporter.model.record import Struct

_PAGE_NAME = re.compile(r"(\d{4,})\.prom")


class _Deflated(Mapping[str, bytes]):
    """Members by name, each deflated on its own: a run is 12 MB of text, of which one page is wanted at a time."""

    def __init__(self, blobs: dict[str, bytes]) -> None:
        self._blobs = blobs

    def __getitem__(self, name: str) -> bytes:
        return zlib.decompress(self._blobs[name])

    def __contains__(self, name: object) -> bool:
        return name in self._blobs

    def __iter__(self) -> Iterator[str]:
        return iter(self._blobs)

    def __len__(self) -> int:
        return len(self._blobs)


class _Pages(Mapping[int, bytes]):
    """Pages by the number in their name, in ascending order; seconds in which the server did not answer have none."""

    def __init__(self, members: Mapping[str, bytes]) -> None:
        self._members = members
        numbered = ((int(match[1]), name) for name in members if (match := _PAGE_NAME.fullmatch(name)))
        self._names = dict(sorted(numbered))

    def __getitem__(self, number: int) -> bytes:
        return self._members[self._names[number]]

    def __contains__(self, number: object) -> bool:
        return number in self._names

    def __iter__(self) -> Iterator[int]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


class Recording(Struct, frozen=True, dict=True):
    """One run in a .tar.xz. The archive is opened at the first access of its content and read once, as a stream.

    Errors are those of the file: `FileNotFoundError`, `tarfile.TarError`, `lzma.LZMAError`; a missing page or member is a `KeyError`.
    """

    path: Path  # of the archive
    folder: str = ""  # inside it that holds this run, where it has several; "": the whole archive

    @classmethod
    def load(cls, path: str | Path) -> Recording:
        """The recording in the archive at `path`."""
        return cls(Path(path))

    def open_folder(self, folder: str) -> Recording:
        """The run in one folder of an archive that holds several."""
        return Recording(self.path, folder)

    @cached_property
    def members(self) -> Mapping[str, bytes]:
        """Every file of the run by its name, unpacked at access."""
        prefix = f"{self.folder}/" if self.folder else ""
        blobs: dict[str, bytes] = {}
        with tarfile.open(self.path, "r|xz") as archive:
            for member in archive:
                content = archive.extractfile(member) if member.name.startswith(prefix) else None
                if content is not None:
                    blobs[member.name[len(prefix) :]] = zlib.compress(content.read(), 1)
        return _Deflated(blobs)

    @cached_property
    def folders(self) -> tuple[str, ...]:
        """The runs of an archive that holds several, () where it holds one."""
        return tuple(sorted({name.split("/")[0] for name in self.members if re.search(r"^[^/]+/\d+\.prom$", name)}))

    @cached_property
    def pages(self) -> Mapping[int, bytes]:
        """Metrics pages by number, ascending, bytes as the server sent them (HELP texts cut to a dot)."""
        return _Pages(self.members)

    @cached_property
    def timestamps(self) -> Mapping[int, float]:
        """Unix time in seconds of every attempt to fetch a page, failed ones included; empty where none were kept."""
        return {number: unix_seconds for number, (unix_seconds, _) in self._attempts.items()}

    @cached_property
    def failed(self) -> frozenset[int]:
        """Numbers of the attempts that got no 200."""
        return frozenset(number for number, (_, status) in self._attempts.items() if status != "200")

    @cached_property
    def _attempts(self) -> Mapping[int, tuple[float, str]]:
        # .tsv: index, unix time, seconds, status, … below a header; .txt: index, unix time, status, seconds, …
        for name, status in (("timestamps.tsv", 3), ("timestamps.txt", 2)):
            if name in self.members:
                rows = (line.split() for line in self.members[name].decode().splitlines())
                return {int(row[0]): (float(row[1]), row[status]) for row in rows if row and row[0].isdigit()}
        return {}

    def json(self, name: str) -> Any:
        """The member `name` read as JSON."""
        return json.loads(self.members[name])

    def jsonl(self, name: str) -> tuple[Any, ...]:
        """The member `name` read as one JSON value a line."""
        return tuple(json.loads(line) for line in self.members[name].splitlines() if line.strip())


def demo_recording() -> Recording:
    """The run that ships with the package: vLLM 0.32, 221 seconds, every phase from idle to saturation and errors."""
    return Recording.load(Path(__file__).parent / "recordings" / "vllm-0.32.tar.xz")


def demo_model_config() -> str:
    """Path of the config.json of the model that this run served: a Llama of 38 million parameters."""
    return str(Path(__file__).parent / "recordings" / "vllm-0.32.config.json")
