"""Files that are replaced whole."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from pathlib import Path

import pytest

from llm_serving_exporter.files.written import take_turn, write_atomically


def test_a_file_is_made_and_replaced(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_atomically(path, b"one\r\n")
    before = path.stat().st_ino
    with path.open("rb") as reader:
        write_atomically(path, b"two")
        assert reader.read() == b"one\r\n"
    assert path.read_bytes() == b"two"
    assert path.stat().st_ino != before
    assert os.listdir(tmp_path) == ["file"]


def test_permissions_are_those_of_any_new_file(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_atomically(tmp_path / "file", b"")
    finally:
        os.umask(before)
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("failing", ["os.fsync", "os.replace"])
def test_what_fails_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def fail(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(failing, fail)
    with pytest.raises(OSError, match="No space left"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]


def test_paths_that_cannot_be_written_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        write_atomically(tmp_path / "missing" / "file", b"")
    with pytest.raises(ValueError, match="null"):
        write_atomically(tmp_path / "a\0b", b"")
    (tmp_path / "folder").mkdir()
    with pytest.raises(IsADirectoryError) as refused:
        write_atomically(tmp_path / "folder", b"")
    assert str(refused.value) == f"[Errno 21] Is a directory: '{tmp_path / 'folder'}'"
    assert os.listdir(tmp_path) == ["folder"]


# in a program of its own: a fork would have its parent's lock
_TAKES = """
import sys
from pathlib import Path
from llm_serving_exporter.files.written import take_turn
with take_turn(Path(sys.argv[1])):
    print("mine", flush=True)
    sys.stdin.read()
"""


def _taker(path: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", _TAKES, str(path)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


@pytest.mark.process
def test_a_turn_is_waited_for_and_ends_with_who_had_it(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with _taker(path) as first, _taker(path) as second:
        assert first.stdout is not None
        assert second.stdout is not None
        readable, _, _ = select.select([first.stdout, second.stdout], [], [], 30.0)
        (holder,) = readable
        winner, waiting = (first, second) if holder is first.stdout else (second, first)
        assert holder.readline() == "mine\n"
        # killed in the middle of it, so that it removes nothing
        assert waiting.stdout is not None
        assert not select.select([waiting.stdout], [], [], 0.3)[0]
        winner.kill()
        assert waiting.stdout.readline() == "mine\n"
        waiting.communicate("", timeout=30.0)
    assert os.listdir(tmp_path) == []


def test_what_fails_in_a_turn_ends_it(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for _ in range(2):
        with pytest.raises(RuntimeError), take_turn(path):
            raise RuntimeError
    assert os.listdir(tmp_path) == []
