"""The folder that one exporter keeps its snapshots of cost in: held by a lock, read once, written again and again."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import stat
from collections.abc import Callable, Mapping
from contextlib import suppress
from math import isfinite
from pathlib import Path
from typing import Any

from llm_serving_exporter.errors import CostSnapshotError
from llm_serving_exporter.files.written import sync_folder, write_atomically
from llm_serving_exporter.model.cost import CostSnapshot, EngineCost, EngineTotals, KeptCost
from llm_serving_exporter.model.hardware import TargetGpus
from llm_serving_exporter.model.record import name_fields, replace
from llm_serving_exporter.model.target import Identity

# --- Which boot of the host this is: elapsed time (`clock`) of one boot says nothing about another.


_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def read_boot_id(path: Path = _BOOT_ID) -> str:
    """The host's boot, also within containers; "" where the system does not say."""
    try:
        return path.read_text(encoding="ascii").strip()[:64]
    except (OSError, ValueError):
        return ""


# --- How a snapshot of cost stands in its file: a line with version and checksum, then JSON. Nothing in it is believed unseen.


# of 500 targets with 32 names each, 20 MB
LARGEST_SNAPSHOT_BYTES = 32 * 2**20
_VERSION = 1
_TITLE = "llm-serving-exporter-cost"
# what tells a pod from the next one of its name; its labels are the new configuration's
_IDENTITY = ("namespace", "pod", "pod_uid", "container")
_LONGEST_TEXT = 4096
# no counter of a fleet gets there: 10^15 USD, or GPU seconds of a million GPUs in 30 years
_MOST = 1e15


def encode_snapshot(snapshot: CostSnapshot) -> bytes:
    """The content of the file. Raises CostSnapshotError where it would be too large to be read again."""
    document = {
        "boot": snapshot.boot,
        "boot_seconds": snapshot.boot_seconds,
        "unix_seconds": snapshot.unix_seconds,
        "targets": [_describe_target(one) for one in snapshot.targets],
    }
    try:
        body = json.dumps(document, separators=(",", ":"), allow_nan=False).encode() + b"\n"
    except ValueError as error:
        raise CostSnapshotError(f"a counter of cost cannot be written: {error}") from error
    if len(body) > LARGEST_SNAPSHOT_BYTES - 200:
        raise CostSnapshotError(f"the snapshot would have {len(body)} bytes, more than are read again")
    return f"{_TITLE} {_VERSION} {hashlib.sha256(body).hexdigest()}\n".encode() + body


def decode_snapshot(content: bytes) -> CostSnapshot:
    """The snapshot of a file. Raises CostSnapshotError for anything that is not whole, of another version or cannot be true."""
    first, _, body = content.partition(b"\n")
    words = first[:200].decode("ascii", "replace").split(" ")
    if len(words) != 3 or words[0] != _TITLE:
        raise CostSnapshotError("it is no snapshot of cost")
    if words[1] != str(_VERSION):
        raise CostSnapshotError(f"it is of version {words[1][:20]!r}, and this exporter reads {_VERSION}")
    if hashlib.sha256(body).hexdigest() != words[2]:
        raise CostSnapshotError("its checksum is wrong")
    try:
        document = json.loads(body)
        targets = tuple(_read_target(one) for one in _list(document["targets"]))
        return CostSnapshot(
            _text(document["boot"]), _amount(document["boot_seconds"]), _amount(document["unix_seconds"]), targets
        )
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise CostSnapshotError(f"its content cannot be true: {type(error).__name__}: {str(error)[:100]}") from error


def _describe_target(kept: KeptCost) -> dict[str, Any]:
    gpus = kept.gpus
    return {
        "name": kept.name,
        "identity": {name: getattr(kept.identity, name) for name in _IDENTITY},
        "server": list(kept.server),
        "gpu_uuids": list(kept.gpu_uuids),
        "gpus": None if gpus is None else [gpus.count, gpus.name, gpus.share],
        "counted_seconds": kept.counted_seconds,
        "joules": dict(kept.joules),
        "engines": [[one.model_name, one.engine, one.role, _describe_totals(one.totals)] for one in kept.engines],
        "current": kept.current,
    }


def _describe_totals(totals: EngineTotals) -> dict[str, Any]:
    """Every counter by its name; labels and value in a list where there are labels."""
    found: dict[str, Any] = {}
    for name in name_fields(totals):
        value = getattr(totals, name)
        if isinstance(value, Mapping):
            value = [[list(key) if isinstance(key, tuple) else [key], amount] for key, amount in value.items()]
        found[name] = value
    return found


def _read_target(document: dict[str, Any]) -> KeptCost:
    gpus, engines = document["gpus"], _list(document["engines"])
    address, server = _list(document["server"])
    return KeptCost(
        name=_text(document["name"]),
        identity=replace(Identity(), **{name: _text(document["identity"][name]) for name in _IDENTITY}),  # type: ignore[arg-type] # texts
        server=(_text(address), _text(server)),
        gpu_uuids=tuple(_text(one) for one in _list(document["gpu_uuids"])),
        gpus=None if gpus is None else TargetGpus(_count(gpus[0]), _text(gpus[1]), _maybe(gpus[2])),
        counted_seconds=_maybe(document["counted_seconds"]),
        joules={_text(uuid): _amount(amount) for uuid, amount in document["joules"].items()},
        engines=tuple(EngineCost(_text(a), _text(b), _text(c), _read_totals(totals)) for a, b, c, totals in engines),
        current=_count(document["current"]),
    )


def _read_totals(document: dict[str, Any]) -> EngineTotals:
    pair: Callable[[list[str]], tuple[str, str]] = lambda key: (key[0], key[1])  # noqa: E731 - what a key becomes, as below
    triple: Callable[[list[str]], tuple[str, str, str]] = lambda key: (key[0], key[1], key[2])  # noqa: E731 - as above
    return EngineTotals(
        gpu_seconds={pair(key): amount for key, amount in _labelled(document["gpu_seconds"], 2)},
        usd={triple(key): amount for key, amount in _labelled(document["usd"], 3)},
        pending_usd={key[0]: amount for key, amount in _labelled(document["pending_usd"], 1)},
        pending_seconds=_amount(document["pending_seconds"]),
        savings_usd=_maybe(document["savings_usd"]),
        energy_joules=_maybe(document["energy_joules"]),
        energy_usd=_maybe(document["energy_usd"]),
        carbon_grams=_maybe(document["carbon_grams"]),
    )


def _labelled(value: Any, labels: int) -> list[tuple[list[str], float]]:
    found = []
    for key, amount in _list(value):
        if len(_list(key)) != labels:
            raise ValueError("a counter has other labels")
        found.append(([_text(one) for one in key], _amount(amount)))
    return found


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError("a list is missing")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str) or len(value) > _LONGEST_TEXT:
        raise ValueError("a text is missing or too long")
    return value


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 10**6:
        raise ValueError("a count cannot be true")
    return value


def _amount(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not (0 <= value <= _MOST and isfinite(value)):
        raise ValueError("an amount cannot be true")
    return float(value)


def _maybe(value: Any) -> float | None:
    return None if value is None else _amount(value)


# --- The folder


NAME = "cost.snapshot"


class FolderTakenError(Exception):
    """Another exporter has the folder."""


class CostFolder:
    """The folder, while this process has it. Raises OSError where it cannot be used, FolderTakenError where another process has it."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        # the lock ends with the process, however it ends; on the folder itself, so that one that is read-only can be held too
        self._descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self.close()
            raise FolderTakenError(f"another exporter has the folder {path}") from error
        except OSError:
            self.close()
            raise

    @property
    def is_current(self) -> bool:
        """Whether the path still leads to the folder that is held: it may have been removed, or something mounted over it."""
        held = os.fstat(self._descriptor)
        try:
            now = os.stat(self._path)
        except OSError:
            return False
        return (held.st_dev, held.st_ino) == (now.st_dev, now.st_ino)

    def read(self) -> CostSnapshot | None:
        """The snapshot; None where there is none. Raises CostSnapshotError where it cannot be used, OSError where it cannot be read."""
        try:
            # neither waits for a pipe nor follows a link to somewhere else
            descriptor = os.open(NAME, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=self._descriptor)
        except FileNotFoundError:
            return None
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise CostSnapshotError("it is no file")
            content = file.read(LARGEST_SNAPSHOT_BYTES + 1)
        if len(content) > LARGEST_SNAPSHOT_BYTES:
            raise CostSnapshotError("it is too large")
        return decode_snapshot(content)

    def write(self, snapshot: CostSnapshot) -> None:
        """Puts a snapshot in the place of the one before. Raises OSError or CostSnapshotError: then the one before is there.

        It may be lost with a crash of the host until `sync` has returned.
        """
        content = encode_snapshot(snapshot)
        if not self.is_current:
            raise OSError(errno.ESTALE, "the folder was removed or replaced")
        write_atomically(self._path / NAME, content)

    def sync(self) -> None:
        """Returns when the snapshot that was written last outlives a crash of the host. Raises OSError."""
        sync_folder(self._descriptor)

    def remove(self) -> None:
        """Removes the snapshot; one that is not there is no fault. Raises OSError where it may come back."""
        with suppress(FileNotFoundError):
            # asked first: a read-only file system refuses to remove what is not there
            os.stat(NAME, dir_fd=self._descriptor, follow_symlinks=False)
            os.unlink(NAME, dir_fd=self._descriptor)
        sync_folder(self._descriptor)

    def close(self) -> None:
        """Gives the folder back."""
        os.close(self._descriptor)
