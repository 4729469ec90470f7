"""What a process that was killed left unfinished is removed by the next one; what another one works with stays."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from llm_serving_exporter.files import written
from llm_serving_exporter.files.written import MARK, make_held_folder, sweep_leftovers, write_atomically
from llm_serving_exporter.state.install_time import read_or_write_install_time
from llm_serving_exporter.state.review_runs import NAME, begin_runs
from llm_serving_simulator.programs import Child
from tests.support.waiting import wait_until

# killed between the first byte and the rename
KILLED = """
import os, signal, sys
from pathlib import Path
from llm_serving_exporter.files.written import write_atomically
os.fsync = lambda descriptor: os.kill(os.getpid(), signal.SIGKILL)
write_atomically(Path(sys.argv[1]), b"half")
"""
# stands there until it may go on
STOPPED = """
import os, sys
from pathlib import Path
from llm_serving_exporter.files.written import write_atomically
os.fsync = lambda descriptor: (print("writing", flush=True), sys.stdin.readline())
write_atomically(Path(sys.argv[1]), b"whole")
"""


def unfinished(folder: Path) -> list[str]:
    return [name for name in os.listdir(folder) if name.endswith(MARK)]


def kill_a_writer(path: Path) -> None:
    assert subprocess.run([sys.executable, "-c", KILLED, str(path)]).returncode == -9
    assert len(unfinished(path.parent)) == 1


@pytest.mark.process
def test_the_next_write_removes_what_a_kill_left(tmp_path: Path) -> None:
    kill_a_writer(tmp_path / "cost-2026-W46.html")
    write_atomically(tmp_path / "cost-2026-W47.html", b"")
    assert os.listdir(tmp_path) == ["cost-2026-W47.html"]


@pytest.mark.process
def test_the_start_of_an_exporter_removes_it_where_it_writes_nothing(tmp_path: Path) -> None:
    state = tmp_path / "state.json"
    assert read_or_write_install_time(str(state), 1.8e9) == 1.8e9
    begin_runs(str(tmp_path), 6.0)
    kill_a_writer(state)
    assert read_or_write_install_time(str(state), 1.9e9) == 1.8e9
    assert sorted(os.listdir(tmp_path)) == sorted(["state.json", NAME])
    kill_a_writer(tmp_path / NAME)
    assert begin_runs(str(tmp_path), 8.0).since == 6.0
    assert unfinished(tmp_path) == []


@pytest.mark.process
def test_what_another_process_is_writing_stays(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with subprocess.Popen(
        [sys.executable, "-c", STOPPED, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "writing\n"
        write_atomically(tmp_path / "another", b"")
        assert len(unfinished(tmp_path)) == 1
        other.communicate("go on\n")
    assert path.read_bytes() == b"whole"
    assert unfinished(tmp_path) == []


def test_a_file_that_was_swept_before_it_was_held_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    swept, hold = 0, written.hold

    def hold_late(descriptor: int) -> bool:
        nonlocal swept
        if swept < 2:
            swept += 1
            sweep_leftovers(tmp_path)
        return hold(descriptor)

    monkeypatch.setattr(written, "hold", hold_late)
    write_atomically(tmp_path / "file", b"whole")
    assert swept == 2
    assert (tmp_path / "file").read_bytes() == b"whole"
    assert os.listdir(tmp_path) == ["file"]


def test_nothing_else_is_swept(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "kept").touch()
    (tmp_path / f"link{MARK}").symlink_to(tmp_path / "other")
    os.mkfifo(tmp_path / "pipe.new")
    (tmp_path / ".file.12345678.new").touch()
    sweep_leftovers(tmp_path)
    assert sorted(os.listdir(tmp_path)) == sorted(["other", f"link{MARK}", "pipe.new", ".file.12345678.new"])
    assert os.listdir(tmp_path / "other") == ["kept"]
    sweep_leftovers(tmp_path / "missing")
    sweep_leftovers(Path("/proc/1"))


@pytest.mark.process
def test_the_folder_of_a_killed_demo_is_removed_by_the_next_one_unless_its_program_still_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    first, held = make_held_folder("llm-serving-demo-")
    (first / "data").mkdir()
    program = subprocess.Popen(["sleep", "60"], pass_fds=(held,))
    os.close(held)  # as its parent is killed
    try:
        second, other = make_held_folder("llm-serving-demo-")
        assert first.is_dir()
    finally:
        program.kill()
        program.wait()
    third, last = make_held_folder("llm-serving-demo-")
    assert (first.exists(), second.exists(), third.exists()) == (False, True, True)
    os.close(other)
    os.close(last)


@pytest.mark.process
def test_a_child_program_holds_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    ready = (
        "import http.server as h, sys\n"
        "class R(h.BaseHTTPRequestHandler):\n"
        "    def do_GET(self): self.send_response(200); self.end_headers()\n"
        "h.HTTPServer(('127.0.0.1', int(sys.argv[1])), R).serve_forever()\n"
    )
    child = Child("server", lambda folder, address: [sys.executable, "-c", ready, address.rpartition(":")[2]])
    try:
        assert child.pid is not None
        held = [os.path.realpath(link) for link in Path(f"/proc/{child.pid}/fd").iterdir()]
        assert str(tmp_path / unfinished(tmp_path)[0]) in held
    finally:
        child.close()
    wait_until(lambda: not os.listdir(tmp_path), "the folder to be gone")
