"""A recording served over HTTP as the server that it was recorded from.

python -m llm_serving_simulator.replay --recording vllm-0.32.tar.xz --listen 127.0.0.1:8000 --speed 1
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tarfile
import time
import zlib
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Context, Decimal
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, TypeVar

from prometheus_client.utils import floatToGoString

from llm_serving_exporter.model.record import Struct
from llm_serving_exporter.terminal import ended_by_signal, print_line
from llm_serving_simulator.web import JSON_CONTENT_TYPE, METRICS_CONTENT_TYPE, NOT_FOUND, Answer, SimServer

# --- A recorded run of a real server: its metrics pages second by second, side endpoints, what its client counted.


K = TypeVar("K")

_PAGE_NAME = re.compile(r"(\d{4,})\.prom")


class _Deflated(Mapping[K, bytes]):
    """Members by name or number, each deflated on its own: a run is 12 MB of text, of which one page is wanted at a time."""

    def __init__(self, blobs: dict[K, bytes]) -> None:
        self._blobs = blobs

    def __getitem__(self, name: K) -> bytes:
        return zlib.decompress(self._blobs[name])

    def __contains__(self, name: object) -> bool:
        return name in self._blobs

    def __iter__(self) -> Iterator[K]:
        return iter(self._blobs)

    def __len__(self) -> int:
        return len(self._blobs)


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
    def _blobs(self) -> dict[str, bytes]:
        prefix = f"{self.folder}/" if self.folder else ""
        blobs: dict[str, bytes] = {}
        with tarfile.open(self.path, "r|xz") as archive:
            for member in archive:
                content = archive.extractfile(member) if member.name.startswith(prefix) else None
                if content is not None:
                    blobs[member.name[len(prefix) :]] = zlib.compress(content.read(), 1)
        return blobs

    @cached_property
    def members(self) -> Mapping[str, bytes]:
        """Every file of the run by its name, unpacked at access."""
        return _Deflated(self._blobs)

    @cached_property
    def folders(self) -> tuple[str, ...]:
        """The runs of an archive that holds several, () where it holds one."""
        return tuple(sorted({name.split("/")[0] for name in self.members if re.search(r"^[^/]+/\d+\.prom$", name)}))

    @cached_property
    def pages(self) -> Mapping[int, bytes]:
        """Metrics pages by number, ascending, bytes as the server sent them (HELP texts cut to a dot); of seconds in which it did not
        answer there is none."""
        named = ((_PAGE_NAME.fullmatch(name), blob) for name, blob in self._blobs.items())
        return _Deflated(dict(sorted((int(match[1]), blob) for match, blob in named if match)))

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


# --- A recorded page as it would look in a later round of the same load: counters go on where the last round ended.
#
# Pure text in, text out. Gauges, `_created` times and the process start time stay as recorded, so that a reader sees one server that never
# restarted.


_COUNTED_TYPES = frozenset({"counter", "histogram", "summary"})

# Floats on a page have up to 17 digits and differ by up to 20 powers of ten: sums at this precision are exact, so that
# the last page of a round and the first of the next one agree to the last digit.
# No traps: infinity minus infinity is NaN, which then counts as no difference.
_EXACT = Context(prec=60, traps=[])


class Line(Struct, frozen=True):
    """One sample as text."""

    series: str  # name and labels as written
    value: str  # as written
    counts: bool  # whether it is a counter's, which goes on from round to round


def sample_lines(page: bytes) -> list[str | Line]:
    """Every line of a page in order: samples as `Line`, comments and empty lines as they are.

    A sample counts when the TYPE line above it says counter, histogram or summary and it is neither a quantile nor a
    `_created` time. Timestamps behind values are not expected.
    """
    lines: list[str | Line] = []
    family = kind = ""
    for text in page.decode().split("\n"):
        if text.startswith("# TYPE "):
            _, _, family, kind = text.split(" ", 3)
        if not text or text.startswith("#"):
            lines.append(text)
            continue
        series, _, value = text.rpartition(" ")
        name = series.partition("{")[0]
        quantile = kind == "summary" and name == family
        counts = kind in _COUNTED_TYPES and name.startswith(family) and not quantile and not name.endswith("_created")
        lines.append(Line(series, value, counts))
    return lines


class Carry:
    """What one round of a recording adds to each counter, and any page of it in any round.

    Built from the first and the last page. Raises ValueError where a counter of the first page is missing from the
    last or higher than there: the server restarted in between, so its rounds cannot be joined.
    """

    def __init__(self, first: bytes, last: bytes) -> None:
        before = _samples(first)
        self._template = sample_lines(last)
        self._added: dict[str, Decimal] = {}
        for line in self._template:
            if isinstance(line, Line) and line.counts:
                start = before.pop(line.series, None)
                self._added[line.series] = _difference(line.value, start.value if start else "0.0")
        fallen = [series for series, added in self._added.items() if added < 0]
        fallen += [series for series, line in before.items() if line.counts]
        if fallen:
            raise ValueError(f"{len(fallen)} counters fall or vanish between first and last page, {fallen[0]} is one")

    @property
    def added(self) -> Mapping[str, Decimal]:
        """What one round adds, by series as written on the page."""
        return self._added

    def page(self, recorded: bytes, round_number: int) -> bytes:
        """The page `recorded` as it looks in round 0, 1, 2 …; round 0 is the recording itself.

        From round 1 on the page has the series of the recording's last page: a counter that was born in an earlier
        round is still there. A gauge that the recorded page lacks is left out, save `_created` times.
        """
        if round_number == 0:
            return recorded
        now = _samples(recorded)
        lines = []
        for line in self._template:
            if isinstance(line, str):
                lines.append(line)
                continue
            seen = now.get(line.series)
            if line.counts:
                recorded_value = seen.value if seen else "0.0"
                lines.append(f"{line.series} {self._carried(line.series, recorded_value, round_number)}")
            elif seen is not None or line.series.partition("{")[0].endswith("_created"):
                lines.append(f"{line.series} {(seen or line).value}")
        return "\n".join(lines).encode()

    def _carried(self, series: str, value: str, round_number: int) -> str:
        added = self._added[series]
        if added.is_zero():
            return value
        total = _EXACT.add(Decimal(value), _EXACT.multiply(added, Decimal(round_number)))
        return str(floatToGoString(float(total)))  # type: ignore[no-untyped-call]  # the library leaves it untyped


def _samples(page: bytes) -> dict[str, Line]:
    return {line.series: line for line in sample_lines(page) if isinstance(line, Line)}


def _difference(later: str, earlier: str) -> Decimal:
    difference = _EXACT.subtract(Decimal(later), Decimal(earlier))
    return difference if difference.is_finite() else Decimal(0)


# --- Which page of a recording is shown now: at its own pace for ever.


class Position(Struct, frozen=True):
    """Where a replay is."""

    round_number: int  # 0, 1, 2 …
    page_number: int  # of the page shown
    seconds_into_page: float  # how long that page has been shown, in recorded seconds


class Pages(Protocol):
    """What a replay server shows."""

    def body(self) -> bytes:
        """The page for one GET of now."""
        ...


class Timeline:
    """A recording played at its own pace, or `speed` times it, for ever. Starts when it is made.

    Shows the last page recorded at or before the moment; after the last page's second the next round begins, with
    counters going on where they were. Raises ValueError where the recording's server restarted within it
    or the recording does not say when its pages were fetched.
    """

    def __init__(self, recording: Recording, clock: Callable[[], float] = time.monotonic, speed: float = 1.0) -> None:
        numbers = tuple(recording.pages)
        times = recording.timestamps
        if len(numbers) < 2 or not times.keys() >= set(numbers):
            raise ValueError(f"{recording.path}: a timeline needs two pages and when each was recorded")
        first = numbers[0]
        self._recording = recording
        self._numbers = numbers
        self._offsets = tuple(times[number] - times[first] for number in numbers)
        # the last page is shown as long as a page is on average
        self._round_seconds = self._offsets[-1] * len(numbers) / (len(numbers) - 1)
        self._carry = Carry(recording.pages[first], recording.pages[numbers[-1]])
        self._clock = clock
        self._speed = speed
        self._started = clock()
        self._rendered: tuple[tuple[int, int], bytes] | None = None

    @property
    def recording(self) -> Recording:
        """What is played."""
        return self._recording

    @property
    def round_seconds(self) -> float:
        """How long one round takes, in recorded seconds."""
        return self._round_seconds

    def page_seconds(self) -> tuple[tuple[int, float], ...]:
        """Every page's number and for how many recorded seconds it is shown."""
        ends = (*self._offsets[1:], self._round_seconds)
        return tuple(
            (number, end - start) for number, start, end in zip(self._numbers, self._offsets, ends, strict=True)
        )

    def position(self) -> Position:
        """Where the replay is now."""
        elapsed = max(0.0, self._clock() - self._started) * self._speed
        round_number, within = divmod(elapsed, self._round_seconds)
        index = bisect_right(self._offsets, within) - 1
        return Position(int(round_number), self._numbers[index], within - self._offsets[index])

    def body(self) -> bytes:
        """The page of now."""
        at = self.position()
        key = (at.round_number, at.page_number)
        rendered = self._rendered  # one attribute read: another thread may replace it meanwhile, both are right
        if rendered is None or rendered[0] != key:
            page = self._carry.page(self._recording.pages[at.page_number], at.round_number)
            self._rendered = rendered = (key, page)
        return rendered[1]


# --- The server


class ReplayServer(SimServer):
    """An HTTP server that answers as the recorded server did: /metrics, /version, /v1/models, /server_info, /health, else 404."""

    def __init__(self, pages: Pages, recording: Recording, host: str = "127.0.0.1", port: int = 0) -> None:
        self._pages = pages
        self._fixed = {path: recording.members[name] for path, name in _ENDPOINTS if name in recording.members}
        super().__init__(self._respond, host, port, "replay-server")

    def _respond(self, method: str, path: str) -> Answer:
        path = path.partition("?")[0]
        if method != "GET":
            return Answer(501, None, b"")
        if path == "/metrics":
            return Answer(200, METRICS_CONTENT_TYPE, self._pages.body())
        if path == "/health":
            return Answer(200, None, b"")
        if path in self._fixed:
            return Answer(200, JSON_CONTENT_TYPE, self._fixed[path])
        return NOT_FOUND


# the recorded servers ran with VLLM_SERVER_DEV_MODE=1, hence /server_info
_ENDPOINTS = (
    ("/version", "endpoints/version.body"),
    ("/v1/models", "endpoints/v1_models.body"),
    ("/server_info", "endpoints/server_info_config_format_json.body"),
)


def split_address(address: str) -> tuple[str, int]:
    """`host:port` or `:port` (loopback) as a pair. Raises ValueError on anything else."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"{address!r} is not host:port")
    return host.strip("[]") or "127.0.0.1", int(port)


def main(argv: Sequence[str] | None = None) -> int:
    """Serve a recording at its own pace until SIGINT or SIGTERM; prints the URL once it listens."""
    parser = argparse.ArgumentParser(prog="python -m llm_serving_simulator.replay", description=main.__doc__)
    parser.add_argument("--recording", type=Path, help="archive (.tar.xz); default: the vLLM 0.32 run of the package")
    parser.add_argument("--listen", default="127.0.0.1:8000", metavar="HOST:PORT", help="default: %(default)s")
    parser.add_argument("--speed", type=float, default=1.0, help="times the recorded pace; default: %(default)s")
    args = parser.parse_args(argv)
    try:
        host, port = split_address(args.listen)
        recording = Recording.load(args.recording) if args.recording else demo_recording()
        timeline = Timeline(recording, speed=args.speed)
    except (ValueError, OSError) as error:
        parser.error(str(error))
    with ended_by_signal() as ended:
        try:
            server = ReplayServer(timeline, recording, host, port)
        except OSError as error:
            parser.error(f"cannot listen on {args.listen}: {error.strerror}; choose another --listen")
        with server:
            print_line(server.url)
            ended.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
