"""What a drill leaves for the exporter that publishes it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from llm_serving_drill import command
from llm_serving_drill.course import Course
from llm_serving_exporter.model.record import replace
from tests.support.builders.drills import course, reading, seen

pytest.importorskip(
    "llm_serving_exporter.state.drill_results", reason="the results file is written by a module of its own"
)

GONE = [reading(minute, ready=3) for minute in range(1, 15)]
PASSED = course(*GONE, reading(15), sightings=(seen("LLMServingReplicaLost", 11.2),))
FLAGS = ["--prometheus.url", "http://127.0.0.1:9", "--model", "m", "--watch"]


def drilled(found: Course, file: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[int, list[Any]]:
    monkeypatch.setattr(command.Drill, "run", lambda drill: found)
    status = command.run([*FLAGS, "--drill.result-file", str(file)])
    return status, json.loads(file.read_text())["models"] if file.exists() else []


def test_a_verdict_is_recorded_and_a_failure_keeps_the_last_success(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "drills.json"
    status, (first,) = drilled(PASSED, file, monkeypatch)
    assert (status, first["model_name"], first["role"], first["last_verdict"]) == (0, "m", "unified", "passed")
    assert first["last_success_unix_seconds"] == first["last_run_unix_seconds"]
    status, (second,) = drilled(replace(PASSED, sightings=()), file, monkeypatch)
    assert (status, second["last_verdict"]) == (1, "failed")
    assert second["last_success_unix_seconds"] == first["last_run_unix_seconds"]


def test_a_verdict_is_that_of_the_fleet_that_the_selector_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "drills.json"
    monkeypatch.setattr(command.Drill, "run", lambda drill: PASSED)
    selector = 'namespace="prod",team="a",job="vllm"'
    assert command.run([*FLAGS, "--selector", selector, "--drill.result-file", str(file)]) == 0
    (entry,) = json.loads(file.read_text())["models"]
    assert (entry["namespace"], entry["labels"]) == ("prod", {"team": "a"})
    assert "the result of the drill is kept without job" in capsys.readouterr().err


def test_what_was_not_begun_was_no_drill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = replace(PASSED, start_unix_seconds=None, lost_unix_seconds=None, readings=(), broken_off="not begun: x")
    assert drilled(refused, tmp_path / "drills.json", monkeypatch) == (1, [])


def test_a_file_that_cannot_be_used_is_said_before_anything_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "drills.json"
    file.write_text("[]")
    monkeypatch.setattr(command.Drill, "run", lambda drill: pytest.fail("it was begun"))
    assert command.run([*FLAGS, "--drill.result-file", str(file)]) == 2
    assert str(file) in capsys.readouterr().err
    assert file.read_text() == "[]"
