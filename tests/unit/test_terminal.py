"""How commands print and end: errors, broken pipes, full disks, signals."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from llm_serving_exporter.errors import ConfigError, GpuError, Problem
from llm_serving_exporter.terminal import ended_by_signal, print_line, print_message, run_command
from tests.support.quick import keep_quick

COMMAND = [sys.executable, "-m", "llm_serving_exporter"]


def test_every_problem_is_a_line_and_the_status_says_whose_fault_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    def bad_usage() -> int:
        raise ConfigError(Problem("flag --a", "", "it is wrong", "Write b."), Problem("c.yml", "d", "it is worse", ""))

    def failed() -> int:
        raise GpuError("no_driver", "there is no driver")

    assert run_command(bad_usage) == 2
    assert capsys.readouterr().err == "error: flag --a: it is wrong. Write b.\nerror: c.yml: d: it is worse.\n"
    assert run_command(failed) == 1
    assert capsys.readouterr().err == "error: there is no driver\n"
    assert run_command(lambda: 7) == 7


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)], ids=lambda one: str(one)
)
def test_a_signal_ends_a_command_after_what_it_has_to_put_back(number: signal.Signals, status: int) -> None:
    before = {one: signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGHUP)}
    put_back = []

    def command() -> int:
        try:
            os.kill(os.getpid(), number)
            threading.Event().wait(10)
            return 0
        finally:
            put_back.append(True)

    assert run_command(command) == status
    assert put_back == [True]
    assert {one: signal.getsignal(one) for one in before} == before


def test_a_program_that_reloads_is_not_ended_by_a_hangup() -> None:
    reload = threading.Event()
    with ended_by_signal(reload) as ended:
        os.kill(os.getpid(), signal.SIGHUP)
        assert reload.wait(5)
        assert not ended.is_set()
        os.kill(os.getpid(), signal.SIGTERM)
        assert ended.wait(5)


def test_outside_the_main_thread_nothing_is_installed() -> None:
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(run_command(lambda: 3)))
    thread.start()
    thread.join()
    assert found == [3]


@pytest.mark.process
@pytest.mark.parametrize(
    "words",
    keep_quick(
        [
            ["ceiling", "--model", "Llama-3.1-8B", "--gpu", "H100 SXM"],
            ["rules"],
            ["rules", "--print-settings"],
            ["simulate", "--list"],
            ["check-config", "--target", "http://a:1"],
            ["--version"],
        ],
        lambda words: words[0] in ("ceiling", "check-config"),
    ),
    ids=lambda words: " ".join(words[:2]),
)
def test_a_reader_that_went_away_gets_no_traceback_and_a_full_disk_one_line(words: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        gone = subprocess.run(
            [*COMMAND, *words], stdout=writer, stderr=subprocess.PIPE, text=True, check=False, timeout=60
        )
    finally:
        os.close(writer)
    assert gone.stderr == ""
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*COMMAND, *words], stdout=full, stderr=subprocess.PIPE, text=True, check=False, timeout=60
        )
    assert done.stderr == "error: the answer cannot be written: No space left on device\n"


def test_a_line_says_whether_it_was_written(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert print_line("a\nb")
    assert capsys.readouterr().out == "a\nb\n"

    closed = io.StringIO()
    closed.close()
    monkeypatch.setattr(sys, "stdout", closed)
    assert not print_line("a")
    monkeypatch.setattr(sys, "stderr", closed)
    print_message("nobody reads this")
