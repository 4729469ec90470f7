"""The file in which drills leave their results: its format, what is merged and what is refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from llm_serving_exporter.errors import DrillResultsError, LLMServingExporterError
from llm_serving_exporter.model.reading import DrillResult, DrillVerdict
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.target import Identity, Role
from llm_serving_exporter.state.drill_results import (
    LONGEST_MODEL_NAME,
    MOST_MODELS,
    read_results,
    record_result,
    split_identity,
)
from llm_serving_exporter.state.json_values import LARGEST_FILE_BYTES
from tests.support.rows import check_rows

PASSED = DrillResult("m", Role.UNIFIED, 1000.0, 1000.0, DrillVerdict.PASSED)
ENTRY: dict[str, Any] = {
    "model_name": "m",
    "role": "unified",
    "last_run_unix_seconds": 1000,
    "last_success_unix_seconds": 1000.0,
    "last_verdict": "passed",
}


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "drills.json")


def write(path: str, *entries: object, version: object = 1) -> None:
    Path(path).write_text(json.dumps({"version": version, "models": list(entries)}), encoding="utf-8")


def test_what_is_recorded_is_read_again_and_stands_in_the_file_as_documented(path: str) -> None:
    record_result(path, PASSED)
    assert read_results(path) == (PASSED,)
    assert json.loads(Path(path).read_text()) == {"version": 1, "models": [ENTRY]}
    assert os.listdir(Path(path).parent) == ["drills.json"]


def test_the_file_of_the_format_is_read_whatever_else_is_in_it(path: str) -> None:
    write(
        path,
        {**ENTRY, "seconds": 12},
        {**ENTRY, "role": "decode", "last_success_unix_seconds": None, "last_verdict": "aborted"},
    )
    assert read_results(path) == (PASSED, DrillResult("m", Role.DECODE, 1000.0, None, DrillVerdict.ABORTED))


@pytest.mark.parametrize("verdict", [DrillVerdict.FAILED, DrillVerdict.ABORTED])
def test_a_run_that_did_not_pass_keeps_the_last_success(path: str, verdict: DrillVerdict) -> None:
    record_result(path, PASSED)
    record_result(path, DrillResult("m", Role.UNIFIED, 2000.0, None, verdict))
    assert read_results(path) == (DrillResult("m", Role.UNIFIED, 2000.0, 1000.0, verdict),)
    record_result(path, DrillResult("m", Role.UNIFIED, 3000.0, None, DrillVerdict.PASSED))
    assert read_results(path) == (DrillResult("m", Role.UNIFIED, 3000.0, 3000.0, DrillVerdict.PASSED),)


def test_a_first_run_that_fails_has_no_success(path: str) -> None:
    failed = DrillResult("m", Role.UNIFIED, 2000.0, None, DrillVerdict.FAILED)
    record_result(path, failed)
    assert read_results(path) == (failed,)


def test_models_and_roles_are_kept_apart(path: str) -> None:
    others = [replace(PASSED, model_name="n"), replace(PASSED, role=Role.DECODE)]
    for result in (PASSED, *others):
        record_result(path, result)
    failed = DrillResult("n", Role.UNIFIED, 2000.0, None, DrillVerdict.FAILED)
    record_result(path, failed)
    assert read_results(path) == (PASSED, replace(failed, last_success_unix_seconds=1000.0), others[1])


def test_replicas_of_the_same_model_in_two_places_are_kept_apart(path: str) -> None:
    there = replace(PASSED, identity=Identity("prod", workload="chat", region="eu", labels=(("team", "a"),)))
    for result in (PASSED, there):
        record_result(path, result)
    record_result(path, replace(there, last_run_unix_seconds=2000.0, last_verdict=DrillVerdict.FAILED))
    failed = replace(there, last_run_unix_seconds=2000.0, last_verdict=DrillVerdict.FAILED)
    assert read_results(path) == (PASSED, failed)
    stated = {"namespace": "prod", "workload": "chat", "region": "eu", "labels": {"team": "a"}}
    assert stated.items() <= json.loads(Path(path).read_text())["models"][1].items()


def test_what_a_selector_says_is_kept_as_far_as_a_series_can_carry_it() -> None:
    labels = {"namespace": "prod", "cluster": "c1", "team": "a", "job": "vllm", "pod": "chat-0"}
    expected = Identity("prod", labels=(("cluster", "c1"), ("team", "a")))
    assert split_identity(labels) == (expected, ("job", "pod"))


def test_there_is_nothing_to_read_before_the_first_drill(path: str) -> None:
    assert read_results(path) is None


BAD: dict[str, tuple[object, str]] = {
    "no object": ([ENTRY], "it has no list of models"),
    "no list": ({"version": 1, "models": {}}, "it has no list of models"),
    "newer": ({"version": 2, "models": []}, "its version is 2, this release reads version 1"),
    "boolean version": ({"version": True, "models": []}, "its version is True"),
    "no version": ({"models": []}, "its version is None"),
    "entry": ({"version": 1, "models": [7]}, "models[0]: it is not an object"),
    "twice": ({"version": 1, "models": [ENTRY, ENTRY]}, "models[1]: the model and role are there twice"),
    "no name": ({"version": 1, "models": [{**ENTRY, "model_name": " "}]}, "models[0]: model_name is not"),
    "long name": ({"version": 1, "models": [{**ENTRY, "model_name": "m" * (LONGEST_MODEL_NAME + 1)}]}, "model_name is not"),
    "line break": ({"version": 1, "models": [{**ENTRY, "model_name": "a\nb"}]}, "model_name is not"),
    "half a pair": ({"version": 1, "models": [{**ENTRY, "model_name": "\ud800"}]}, "model_name is not"),
    "role": ({"version": 1, "models": [{**ENTRY, "role": "boss"}]}, "role is not one of unified, prefill, decode, frontend"),
    "role list": ({"version": 1, "models": [{**ENTRY, "role": []}]}, "role is not one of"),
    "verdict": ({"version": 1, "models": [{**ENTRY, "last_verdict": "ok"}]}, "is not one of passed, failed, aborted"),
    "never run": ({"version": 1, "models": [{**ENTRY, "last_run_unix_seconds": None}]}, "last_run_unix_seconds is not a time"),
    "text time": ({"version": 1, "models": [{**ENTRY, "last_run_unix_seconds": "1"}]}, "last_run_unix_seconds is not a time"),
    "negative": ({"version": 1, "models": [{**ENTRY, "last_run_unix_seconds": -1}]}, "last_run_unix_seconds is not a time"),
    "nan": ({"version": 1, "models": [{**ENTRY, "last_success_unix_seconds": float("nan")}]}, "is not a time"),
    "huge": ({"version": 1, "models": [{**ENTRY, "last_success_unix_seconds": 10**400}]}, "is not a time"),
    "namespace": ({"version": 1, "models": [{**ENTRY, "namespace": ""}]}, "namespace is not a text of 1 to 200 characters"),
    "labels list": ({"version": 1, "models": [{**ENTRY, "labels": []}]}, "labels is not an object of at most 32 texts"),
    "label name": ({"version": 1, "models": [{**ENTRY, "labels": {"role": "x"}}]}, "labels has a name that no label can have here: role"),
    "label text": ({"version": 1, "models": [{**ENTRY, "labels": {"team": 7}}]}, "team is not a text"),
    "many": ({"version": 1, "models": [7] * (MOST_MODELS + 1)}, "it has 1001 models, at most 1000 are allowed"),
}  # fmt: skip


@check_rows("fault", BAD, shared=["path"])
def test_what_is_wrong_is_named_with_its_place_and_the_file(path: str, fault: str) -> None:
    document, told = BAD[fault]
    Path(path).write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(DrillResultsError) as found:
        read_results(path)
    assert told in str(found.value)
    assert str(found.value).startswith(f"the file of drill results {path} is not what a drill leaves: ")
    assert "the next drill starts a new one." in str(found.value)


@check_rows("content", [b"", b"{", b"\xff\xfe", b"[" * 50_000, b" " * (LARGEST_FILE_BYTES + 1)], shared=["path"])
def test_any_bytes_are_an_error_of_ours(path: str, content: bytes) -> None:
    Path(path).write_bytes(content)
    with pytest.raises(DrillResultsError, match="the file of drill results"):
        read_results(path)
    with pytest.raises(LLMServingExporterError):
        record_result(path, PASSED)
    assert Path(path).read_bytes() == content


def test_a_folder_is_an_error_of_ours(tmp_path: Path) -> None:
    for use in (
        lambda: read_results(str(tmp_path)),
        lambda: record_result(str(tmp_path / "no" / "drills.json"), PASSED),
    ):
        with pytest.raises(DrillResultsError, match="Check its"):
            use()


def test_a_result_that_could_not_be_read_again_is_not_recorded(path: str) -> None:
    record_result(path, PASSED)
    with pytest.raises(DrillResultsError, match="model_name is not a text"):
        record_result(path, replace(PASSED, model_name=""))
    assert read_results(path) == (PASSED,)


def test_a_full_file_says_so_and_stays(path: str) -> None:
    write(path, *({**ENTRY, "model_name": f"{number:0200}"} for number in range(185)))
    before = read_results(path)
    with pytest.raises(DrillResultsError, match=r"would be larger than 64 KiB\. Remove the models"):
        record_result(path, PASSED)
    assert read_results(path) == before


_RECORD = """
import sys
from llm_serving_exporter.model.reading import DrillResult, DrillVerdict as Verdict
from llm_serving_exporter.model.target import Role
from llm_serving_exporter.state.drill_results import record_result
print(flush=True)
sys.stdin.readline()
record_result(sys.argv[1], DrillResult(sys.argv[2], Role.UNIFIED, 1000.0, None, Verdict.FAILED))
"""


@pytest.mark.process
def test_drills_that_end_at_the_same_moment_lose_nobodys_result(path: str) -> None:
    names = [f"m-{number}" for number in range(4)]
    drills = [
        subprocess.Popen([sys.executable, "-c", _RECORD, path, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for name in names
    ]
    for drill in drills:
        assert drill.stdout is not None
        drill.stdout.readline()
    for drill in drills:
        assert drill.stdin is not None
        drill.stdin.write(b"\n")
        drill.stdin.flush()
    assert [drill.communicate(timeout=30.0) and drill.returncode for drill in drills] == [0] * len(drills)
    assert sorted(one.model_name for one in read_results(path) or ()) == names
    assert os.listdir(Path(path).parent) == ["drills.json"]
