"""What a killed process left behind: temporary files and folders of ours that nobody works with any more.

Whoever makes one holds a lock on it (flock), which the system ends with the process, however it ends. So age and process ids, which mean
nothing across containers, need not be asked.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

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
