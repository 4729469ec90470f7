"""A file system that is read-only, or becomes so: a drill's verdict is told, and nothing begins that could not be recorded."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from llm_serving_exporter.errors import DrillResultsError
from llm_serving_exporter.model.reading import DrillResult, DrillVerdict
from llm_serving_exporter.model.target import Role
from llm_serving_exporter.state.drill_results import record_result, require_recordable

PASSED = DrillResult("chat", Role.UNIFIED, time.time(), None, DrillVerdict.PASSED)
IN_A_NAMESPACE = ["unshare", "--map-root-user", "--mount"]

# a drill whose folders become read-only while it runs: its course is made up, what is done with it is not
DRILL = """
import subprocess, sys
from llm_serving_drill import command
from llm_serving_drill.course import Phase
from tests.support.builders import drills

folder = sys.argv[1]

class Done:
    def __init__(self, *arguments, **more): pass
    def run(self):
        subprocess.run(["mount", "-o", "remount,ro", folder], check=True)
        return drills.course(drills.reading(0), phase=Phase.DONE, start_unix_seconds=drills.START, end_unix_seconds=drills.START + 600)

command.Drill = Done
sys.exit(command.run([
    "--prometheus.url", "http://127.0.0.1:9", "--model", "chat", "--trigger-command", "true",
    "--output-dir", folder + "/drills", "--drill.result-file", folder + "/drills.json",
]))
"""


def in_a_mount(folder: Path, options: str, *words: str) -> subprocess.CompletedProcess[str]:
    """A command beside a small file system of its own at `folder`, which the test's own process does not see."""
    probe = subprocess.run([*IN_A_NAMESPACE, "true"], capture_output=True, text=True)
    if probe.returncode:
        pytest.skip(f"this machine allows no mount namespace: {probe.stderr.strip()}")
    script = f'mount -t tmpfs -o {options} none "$0" && exec "$@"'
    return subprocess.run(
        [*IN_A_NAMESPACE, "sh", "-c", script, str(folder), *words], capture_output=True, text=True, timeout=60
    )


@pytest.mark.process
def test_a_verdict_is_told_where_the_file_system_became_read_only(tmp_path: Path) -> None:
    done = in_a_mount(tmp_path, "rw", sys.executable, "-c", DRILL, str(tmp_path))
    assert "Traceback" not in done.stderr
    assert done.returncode == 1
    assert "the report cannot be written to" in done.stderr
    assert f"the file of drill results {tmp_path}/drills.json cannot be written: Read-only file system." in done.stderr
    assert done.stdout.startswith("# Node-loss drill of "), done.stdout + done.stderr
    assert any(f": {verdict}" in done.stdout.splitlines()[0] for verdict in DrillVerdict)


@pytest.mark.process
@pytest.mark.parametrize("option", ["--drill.result-file", "--output-dir"])
def test_no_drill_begins_that_could_not_be_recorded(tmp_path: Path, option: str) -> None:
    words = ["drill", "--prometheus.url", "http://127.0.0.1:9", "--model", "m", "--trigger-command", "touch /tmp/never"]
    done = in_a_mount(
        tmp_path, "ro", sys.executable, "-m", "llm_serving_exporter", *words, option, f"{tmp_path}/drills"
    )
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert str(tmp_path) in done.stderr


def test_a_folder_that_is_missing_is_named_before_anything_is_lost(tmp_path: Path) -> None:
    require_recordable(str(tmp_path / "drills.json"))
    assert os.listdir(tmp_path) == []
    with pytest.raises(DrillResultsError, match="there is no such folder"):
        require_recordable(str(tmp_path / "missing" / "drills.json"))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere; a read-only file system is tried above")
def test_a_folder_without_rights_is_named_before_anything_is_lost(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(DrillResultsError, match="cannot be written: Permission denied"):
        require_recordable(str(tmp_path / "drills.json"))


def test_the_first_error_is_told_where_removing_what_is_unfinished_fails_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: object, **more: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(os, "fsync", refuse)
    monkeypatch.setattr(Path, "unlink", refuse)
    with pytest.raises(DrillResultsError, match="cannot be written: Read-only file system"):
        record_result(str(tmp_path / "drills.json"), PASSED)
