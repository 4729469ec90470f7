"""Commands as processes: their end, their output, their time, and what they leave running."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

import pytest

from llm_serving_drill import runner as commands
from llm_serving_drill.runner import KEPT_OUTPUT_BYTES, Running
from tests.support.waiting import PATIENCE_SECONDS, wait_until

pytestmark = pytest.mark.process


@pytest.fixture(autouse=True)
def _output_is_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "_LAST_WORDS_SECONDS", PATIENCE_SECONDS)


def started(command: str, *, shell: bool = False, timeout_seconds: float = PATIENCE_SECONDS) -> Running:
    return Running("trigger", command, shell=shell, timeout_seconds=timeout_seconds, now=lambda: 5.0)


def python(code: str) -> str:
    return shlex.join([sys.executable, "-c", code])


def gone(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def until_gone(process: int) -> None:
    wait_until(lambda: gone(process), f"the end of process {process}")


def test_both_streams_and_the_status_are_kept() -> None:
    found = started(python("import sys; print('out', flush=True); print('err', file=sys.stderr); sys.exit(3)")).finish()
    assert (found.status, found.problem, found.good) == (3, "", False)
    assert found.output.split() == ["out", "err"]
    assert (found.what, found.began_unix_seconds) == ("trigger", 5.0)


def test_only_the_end_of_much_output_is_kept() -> None:
    found = started(python("print('x' * 1_000_000); print('the end')")).finish()
    assert found.good
    assert len(found.output) == KEPT_OUTPUT_BYTES
    assert found.output.endswith("the end\n")


def test_without_a_shell_nothing_is_expanded_and_with_one_it_is() -> None:
    assert started("echo $HOME ; echo *").finish().output == "$HOME ; echo *\n"
    assert started("echo one; echo two | tr a-z A-Z", shell=True).finish().output == "one\nTWO\n"


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        ("/nonexistent/program --now", "it cannot be started: No such file or directory"),
        ("echo 'no end", "it cannot be started: No closing quotation"),
    ],
)
def test_what_cannot_start_is_a_run_with_a_problem(command: str, problem: str) -> None:
    found = started(command).finish()
    assert (found.status, found.problem, found.good) == (None, problem, False)


def test_one_that_takes_too_long_is_ended_with_its_children() -> None:
    running = started("sleep 3600 & echo $!; wait", shell=True, timeout_seconds=PATIENCE_SECONDS)
    wait_until(lambda: running._output, "its first words")
    running._timeout_seconds = 0.5
    found = running.finish()
    assert (found.status, found.problem) == (None, "it ran longer than 0.5 s")
    until_gone(int(found.output))
    assert running.poll() is found


def test_one_that_does_not_want_to_end_is_ended_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "_END_SECONDS", 0.2)
    running = started(
        python("import signal, time; signal.signal(15, signal.SIG_IGN); print('ready', flush=True); time.sleep(3600)")
    )
    wait_until(lambda: running._output, "its first words")
    found = running.stop("interrupted")
    assert (found.status, found.problem, found.output) == (None, "interrupted", "ready\n")


def test_what_stays_in_the_background_does_not_hold_it_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "_LAST_WORDS_SECONDS", 0.2)
    running = started("sleep 3600 & echo $!", shell=True)
    wait_until(lambda: running._output.endswith(b"\n"), "its words")
    found = running.finish()
    try:
        assert found.status == 0
        assert found.took_seconds < 600
    finally:
        os.kill(int(found.output), 15)


def test_it_is_not_in_the_process_group_that_a_ctrl_c_reaches() -> None:
    found = started(python("import os; print(os.getpgrp())")).finish()
    assert int(found.output) != os.getpgrp()
