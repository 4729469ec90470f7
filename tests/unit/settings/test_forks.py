"""Tables that are based on a built-in one: what its rows and endpoints excuse."""

from __future__ import annotations

from pathlib import Path

from llm_serving_exporter.engines.mapping import Row
from llm_serving_exporter.engines.registry import RUNTIMES
from tests.support.builders.configuration import load_text, problems_of

TEXT = "targets: ['http://a:1']\nruntimes:\n- name: fork\n  based_on: {}\n  fingerprints: fork_x\n  rows: [{}]\n"
GUARDED = "{field: preemptions_total, samples: fork_preempted, versions: '>=2', guarded: true}"


def test_a_row_may_wait_for_a_version_that_the_bases_endpoints_say(tmp_path: Path) -> None:
    (table,) = load_text(tmp_path, TEXT.format("vllm", GUARDED)).runtimes
    assert table.rows[0] == Row("preemptions_total", ("fork_preempted",), versions=">=2", guarded=True)
    assert RUNTIMES["nim"].endpoints == ()  # nobody would ever say it
    assert [problem.split(":")[0] for problem in problems_of(tmp_path, TEXT.format("nim", GUARDED))] == [
        "runtimes[0].rows[0].guarded"
    ]


def test_a_row_that_the_base_has_too_is_no_fault_of_either(tmp_path: Path) -> None:
    repeated = "{field: requests_waiting, samples: tgi_queue_size}"
    (table,) = load_text(tmp_path, TEXT.format("tgi", repeated)).runtimes
    assert table.rows == (Row("requests_waiting", ("tgi_queue_size",)), *RUNTIMES["tgi"].rows)
    # but one that the file has twice is
    assert [
        problem.split(":")[0] for problem in problems_of(tmp_path, TEXT.format("tgi", f"{repeated}, {repeated}"))
    ] == ["runtimes[0].rows[1]"]
