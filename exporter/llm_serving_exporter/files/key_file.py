"""A file that holds a secret key and nothing else."""

from __future__ import annotations

from pathlib import Path

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
