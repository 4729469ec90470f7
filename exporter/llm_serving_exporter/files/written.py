"""A file that is replaced whole: who reads it sees the old content or the new, and a crash leaves one of them."""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

# --- What a killed process left behind: temporary files and folders of ours that nobody works with any more.
#
# Whoever makes one holds a lock on it (flock), which the system ends with the process, however it ends. So age and process ids, which mean
# nothing across containers, need not be asked.


# ends the name of every temporary file or folder that is to be swept; no other program's has it
MARK = ".llm-serving-exporter-unfinished"


def hold(descriptor: int) -> bool:
    """Locks a temporary file or folder that was just made and opened, until it is closed here and in programs that were given the
    descriptor. False where it is gone: somebody swept it before it was locked, and the caller makes another.

    On a file system without locks nothing is held, and nothing swept.
    """
    with suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_EX)  # a sweep has it for a moment at most
    return os.fstat(descriptor).st_nlink > 0


def make_held_folder(prefix: str) -> tuple[Path, int]:
    """A new folder among the system's temporary ones, and the descriptor that holds it. Sweeps what earlier ones left. Raises OSError."""
    sweep_leftovers(Path(tempfile.gettempdir()))
    while True:
        folder = Path(tempfile.mkdtemp(prefix=prefix, suffix=MARK))
        with suppress(FileNotFoundError):
            descriptor = os.open(folder, os.O_RDONLY)
            if hold(descriptor):
                return folder, descriptor
            os.close(descriptor)


def sweep_leftovers(folder: Path) -> None:
    """Removes what processes that have ended left unfinished in a folder. Raises nothing: what cannot be removed stays."""
    with suppress(OSError, ValueError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(MARK):
                with suppress(OSError):
                    _remove_unheld(entry.path)


def _remove_unheld(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.isdir(path):
            shutil.rmtree(path, ignore_errors=True)
        else:
            os.unlink(path)
    finally:
        os.close(descriptor)


# --- Writing


def write_atomically(path: Path, content: bytes) -> None:
    """Puts `content` in the place of the file, or makes it. The folder must exist.

    Permissions are those of any new file (the umask). What a process that was killed left unfinished in the folder is removed. Raises
    OSError, and ValueError for a path that no file can have; then the file is as it was, and nothing else is left in the folder.
    """
    sweep_leftovers(path.parent)
    unfinished = path
    try:
        unfinished, file = _open_unfinished(path)
        with file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())  # else a crash of the machine may leave an empty file under the name
            os.replace(unfinished, path)
    except BaseException as error:
        # on a file system that has become read-only this fails as well, and the first error is the one to tell
        if unfinished is not path:
            with suppress(OSError):
                unfinished.unlink(missing_ok=True)
        if isinstance(error, OSError):
            # a message shows the file that the caller knows
            error.filename = str(path)
            del error.filename2  # with None there, the text of the error would end in "-> None"
        raise


@contextmanager
def take_turn(path: Path) -> Iterator[None]:
    """While it lasts no other process is in here for the same file: for who reads one, changes something and writes it back. Waits for the
    others. The folder must exist.

    Raises OSError where the folder takes no file. On a file system without locks nobody waits.
    """
    # a name that is swept, so that one who is killed leaves nothing for good; the folder itself is held by the exporter's cost
    turn = path.with_name(f".{path.name}{MARK}")
    while True:
        with turn.open("ab") as file:
            # False: who was here before has removed it
            if not hold(file.fileno()):
                continue
            try:
                yield
            finally:
                with suppress(OSError):
                    turn.unlink(missing_ok=True)
            return


def sync_folder(descriptor: int) -> None:
    """Returns when what was renamed or removed in an open folder outlives a crash of the machine. Raises OSError.

    A file system that has no such thing for folders has to do without.
    """
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise


def _open_unfinished(path: Path) -> tuple[Path, BinaryIO]:
    while True:
        # two processes may write the same file, and in containers both may have process id 1
        unfinished = path.with_name(f".{path.name}.{secrets.token_hex(4)}{MARK}")
        file = unfinished.open("xb")
        if hold(file.fileno()):
            return unfinished, file
        file.close()
