"""A file that changes while the daemon runs: it is read again after each change, and the last good value stays in use.

Prices, drill results, discovered targets, credentials and the web config file with its certificates are all read this way.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from llm_serving_exporter.errors import LLMServingExporterError

# --- A file that holds a secret key and nothing else.


LARGEST_KEY_BYTES = 4096


class KeyFileError(ValueError):
    """A file that holds no key. The message completes a sentence and shows nothing of what is in it."""


def read_key_file(path: str, shortest_bytes: int) -> bytes:
    """The key: all bytes of the file but line breaks at its end. Raises KeyFileError where it cannot be read, is shorter than
    `shortest_bytes`, or so long that it must be another file."""
    try:
        with Path(path).open("rb") as file:
            content = file.read(LARGEST_KEY_BYTES + 1)
    except OSError as error:
        raise KeyFileError(f"cannot be read: {error.strerror or type(error).__name__}") from None
    key = content.rstrip(b"\r\n")
    if len(content) > LARGEST_KEY_BYTES:
        raise KeyFileError(f"is larger than {LARGEST_KEY_BYTES} bytes, which no key is")
    if len(key) < shortest_bytes:
        raise KeyFileError(f"holds {len(key)} bytes, which is short enough to be guessed")
    return key


# --- A file over time


Value = TypeVar("Value")


class Stamp(NamedTuple):
    """What the system says of a file without reading it. Equal stamps mean an unchanged file.

    Links are followed, so the swap of `..data` in a Kubernetes volume shows.
    """

    mode: int  # type and permission bits, as in os.stat_result
    modified_ns: int  # when the content was written last, Unix time in nanoseconds
    size_bytes: int  # of the content
    inode: int  # another file under the same name, as an atomic rename makes it, has another one
    changed_ns: int  # Unix time in nanoseconds; also moves when the owner or the permissions change


def stamp_file(path: str) -> Stamp:
    """The stamp of a file as it is now. Raises OSError, and ValueError for a path that no file can have."""
    found = os.stat(path)
    return Stamp(found.st_mode, found.st_mtime_ns, found.st_size, found.st_ino, found.st_ctime_ns)


class Watched(Generic[Value]):
    """A value that stands in a file, and the last good one while the file cannot be used. Used by one thread at a time.

    `read` returns what the file says now. It raises an LLMServingExporterError for a file that cannot be used. Where the value
    depends on further files, `read` names each to `watch` before it opens it.

    `twice`: a change is believed once two calls of `refresh` in a row have found the same stamp, so that a file that somebody writes in
    place is not read half-written. `quiet_since`: a file whose stamp last moved before this Unix time needs no second look at first.
    """

    def __init__(
        self,
        path: str,
        read: Callable[[], Value],
        value: Value,
        *,
        twice: bool = False,
        quiet_since: float | None = None,
    ) -> None:
        self.path = path
        self._twice, self._quiet_since = twice, quiet_since
        # at the look before, of a change that is not believed yet
        self._seen: Stamp | str | None = None
        # what the file said when it was last good; before the first reading, what the caller gave
        self.value = value
        # why the file cannot be used as it is now; None where `value` is what it says, and before the first reading
        self.problem: LLMServingExporterError | None = None
        self._read = read
        # the files of the last reading, each with its stamp or the reason why it has none; {} before the first
        self._stamps: dict[str, Stamp | str] = {}

    def has_changed(self) -> bool:
        """Whether a file differs from the one that was last read; True before the first reading."""
        return not self._stamps or any(_stamp_or_cause(path) != stamp for path, stamp in self._stamps.items())

    def watch(self, path: str) -> None:
        """Adds a file that the reading under way depends on; called by `read` before it opens that file."""
        self._stamps[path] = _stamp_or_cause(path)

    def refresh(self) -> bool:
        """Reads the file if it changed; whether it did. A file that stays bad is read once, so its problem is reported once."""
        if not self.has_changed():
            self._seen = None
            return False
        if not self._twice:
            self.reread()
            return True
        before, self._seen = self._seen, _stamp_or_cause(self.path)
        if before != self._seen and not self._is_quiet(self._seen):
            return False
        kept = self.value, self.problem, self._stamps
        self.reread()
        if self._stamps[self.path] == self._seen == _stamp_or_cause(self.path):
            self._seen = None
            return True
        # it was written to while it was read
        self.value, self.problem, self._stamps = kept
        self._seen = None
        return False

    def _is_quiet(self, stamp: Stamp | str) -> bool:
        if self._stamps or self._quiet_since is None or isinstance(stamp, str):
            return False
        return max(stamp.modified_ns, stamp.changed_ns) < self._quiet_since * 1e9

    def reread(self) -> None:
        """Reads the file in any case."""
        self._stamps = {}
        # a stamp is taken before its file is read: a change in between shows as a new stamp next time
        self.watch(self.path)
        try:
            self.value = self._read()
            self.problem = None
        except LLMServingExporterError as error:
            self.problem = error


def _stamp_or_cause(path: str) -> Stamp | str:
    try:
        return stamp_file(path)
    except (OSError, ValueError) as error:
        return str(error)
