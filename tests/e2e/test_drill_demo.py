"""`make drill` as a user runs it: the whole of it, and interrupted while the node is lost."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.skipif(shutil.which("prometheus") is None, reason="`make test-e2e` installs prometheus")]

COMMAND = [sys.executable, "-m", "llm_serving_simulator.drill_demo"]
PATIENCE_SECONDS = 300.0
MODEL = 'model_name="meta-llama/Llama-3.1-8B-Instruct",role="unified"'


@contextmanager
def demo(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """The process, in a session of its own, so that what it leaves behind can be told from anything else."""
    temporary = folder / "tmp"
    temporary.mkdir()
    environment = {**os.environ, "TMPDIR": str(temporary)}
    command = [*COMMAND, "--output-dir", str(folder / "reports"), *arguments]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment, start_new_session=True
    ) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
                process.wait(60)


def session_members(session: int) -> list[str]:
    """Command lines of the processes of a session (proc(5): field 6 of stat, after the name in parentheses)."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                command = (entry / "cmdline").read_text().replace("\0", " ")
            except OSError:  # it has ended meanwhile
                continue
            if int(fields[3]) == session and fields[0] != "Z":
                found.append(command)
    return found


def report_of(folder: Path) -> dict[str, Any]:
    (document,) = (folder / "reports").glob("drill-*.json")
    assert document.with_suffix(".md").read_text().startswith("# Node-loss drill of meta-llama/Llama-3.1-8B-Instruct")
    found: dict[str, Any] = json.loads(document.read_text())
    return found


@pytest.mark.e2e
def test_the_drill_passes_and_the_exporter_says_so(tmp_path: Path) -> None:
    with demo(tmp_path) as process:
        said, _ = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0, said
    report = report_of(tmp_path)
    assert report["verdict"] == "passed", report
    (told,) = [alert for alert in report["alerts"] if alert["name"] == "LLMServingReplicaLost"]
    assert told["arrival"] == "in time"
    published = re.findall(r"^  (llm_serving_drill_\S+\{.*\}) (\S+)$", said, re.MULTILINE)
    verdicts = {name: value for name, value in published if name.startswith("llm_serving_drill_last_verdict")}
    assert verdicts == {
        f'llm_serving_drill_last_verdict{{{MODEL},verdict="{verdict}"}}': value
        for verdict, value in (("passed", "1.0"), ("failed", "0.0"), ("aborted", "0.0"))
    }
    times = {name: float(value) for name, value in published if name not in verdicts}
    assert set(times) == {f"llm_serving_drill_last_{what}_timestamp_seconds{{{MODEL}}}" for what in ("run", "success")}
    assert all(seconds >= report["window"]["end"] - 1 for seconds in times.values())
    for suffix in (".json", ".md"):
        assert re.search(rf"^report: {re.escape(str(tmp_path))}/reports/drill-\S+\{suffix}$", said, re.MULTILINE), said
    assert session_members(process.pid) == []
    assert list((tmp_path / "tmp").iterdir()) == [], "temporary folders are removed"


@pytest.mark.soak
def test_a_signal_while_the_node_is_lost_restores_it_and_leaves_nothing(tmp_path: Path) -> None:
    with demo(tmp_path) as process:
        assert process.stdout is not None
        said = ""
        while "node lost: 3 of 4 ready" not in said:
            line = process.stdout.readline()
            assert line, said
            said += line
        assert len(session_members(process.pid)) >= 3, "the demo, Prometheus, the drill"
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=60)
    assert process.returncode == 130, said + rest
    report = report_of(tmp_path)
    assert report["verdict"] == "aborted"
    restores = [run for run in report["commands"] if run["what"] == "restore"]
    assert [run["status"] for run in restores] == [0]
    assert session_members(process.pid) == []
    assert list((tmp_path / "tmp").iterdir()) == []
