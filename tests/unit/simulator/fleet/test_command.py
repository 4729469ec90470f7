"""`llm-serving-exporter simulate`, run as a user runs it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from llm_serving_exporter.cli import main
from llm_serving_simulator.fleet.scenario import names
from tests.support.waiting import PATIENCE_SECONDS


def test_the_scenarios_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--list"]) == 0
    said = capsys.readouterr().out
    assert all(re.search(rf"^{name} +\S+ +\d replicas$", said, re.MULTILINE) for name in names())


@pytest.mark.process
def test_a_reader_that_went_away_is_no_traceback() -> None:
    reads, writes = os.pipe()
    os.close(reads)
    with os.fdopen(writes, "wb") as pipe:
        command = [sys.executable, "-m", "llm_serving_exporter", "simulate", "--list"]
        ended = subprocess.run(
            command, stdout=pipe, stderr=subprocess.PIPE, text=True, timeout=PATIENCE_SECONDS, check=False
        )
    assert (ended.returncode, ended.stderr) == (1, "")


def test_what_is_no_scenario_ends_with_2_and_says_why(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["simulate", "--scenario", "restrat"]) == 2
    assert "Did you mean restart?" in capsys.readouterr().err
    bad = tmp_path / "bad.yml"
    bad.write_text("duration: 1h\n")
    assert main(["simulate", "--scenario", str(bad)]) == 2
    assert "bad.yml: fleet.replicas: is missing" in capsys.readouterr().err


def test_a_config_that_cannot_be_written_ends_with_1(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["simulate", "--scenario", "restart", "--write-config", str(tmp_path / "no" / "x.yml")]) == 1
    assert "No such file" in capsys.readouterr().err


@pytest.mark.process
@pytest.mark.seam("simulator")
def test_it_serves_until_it_is_stopped_and_writes_a_good_configuration(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "exporter.yml"
    command = [sys.executable, "-m", "llm_serving_exporter", "simulate", "--scenario", "restart", "--speed", "60"]
    with subprocess.Popen([*command, "--write-config", str(config)], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            lines = []
            for line in process.stdout:
                lines.append(line)
                if "Ctrl-C ends it" in line:
                    break
            text = "".join(lines)
            control = re.search(r"control +(http://127\.0\.0\.1:\d+)", text)
            assert control is not None
            with urllib.request.urlopen(f"{control[1]}/fleet", timeout=PATIENCE_SECONDS) as answer:
                fleet = json.load(answer)
            for replica in fleet["replicas"]:
                assert f"{replica['url']}/metrics" in text
                with urllib.request.urlopen(f"{replica['url']}/metrics", timeout=PATIENCE_SECONDS) as answer:
                    assert b"vllm:num_requests_running" in answer.read()
            assert main(["check-config", "--config.file", str(config)]) == 0
            assert "good, 3 targets" in capsys.readouterr().out
            said = config.read_text()
            assert "expected_replicas:\n- model_name: meta-llama/Llama-3.1-8B-Instruct\n  replicas: 3\n" in said
            assert "gpu_model: H100 SXM 80GB" in said
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=PATIENCE_SECONDS) == 0
            assert "stopping" in process.stdout.read()
        finally:
            process.kill()
