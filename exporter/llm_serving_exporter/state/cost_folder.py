"""The folder that one exporter keeps its snapshots of cost in: held by a lock, read once, written again and again."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from contextlib import suppress
from pathlib import Path

from llm_serving_exporter.errors import CostSnapshotError
from llm_serving_exporter.files.written import sync_folder, write_atomically
from llm_serving_exporter.model.cost import CostSnapshot
from llm_serving_exporter.state.cost_snapshot import LARGEST_SNAPSHOT_BYTES, decode_snapshot, encode_snapshot

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
