"""Dynamo's traps, one by one: the frontend that is no engine, and workers that pass their engine's families on."""

import re
from pathlib import Path

import pytest

from llm_serving_exporter.engines.hooks.passed_on import read_dynamo_models
from llm_serving_exporter.engines.registry import RUNTIMES
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.snapshot import Absence, EngineSnapshot, ServerFacts
from llm_serving_exporter.model.target import Role
from tests.support.builders.configuration import load_text
from tests.support.builders.recordings import page, recording
from tests.support.builders.snapshots import engine_of, snapshot_of
from tests.support.paths import ROOT, TESTS
from tests.support.rows import check_rows
from tests.support.servers.replica import readings

FRONTEND = RUNTIMES["dynamo-frontend"]
WORKER = RUNTIMES["dynamo-worker"]

MADE = TESTS / "made"
M = 'model="m"'


def frontend(text: str) -> EngineSnapshot:
    return engine_of(text, None, runtime=FRONTEND)


def worker(text: str) -> EngineSnapshot:
    return engine_of(text, None, runtime=WORKER)


# --- the frontend ---------------------------------------------------------------------------------------------------


def test_names_that_nobody_serves_are_no_model() -> None:
    snapshot = snapshot_of(page("dynamo-1.6.1-frontend", 144).decode(), None, runtime=FRONTEND)
    assert b'model="unknown_model"' in page("dynamo-1.6.1-frontend", 144)
    assert [(engine.model_name, engine.engine) for engine in snapshot.engines] == [("tiny", "0")]
    # families without a model are the only model's
    assert snapshot.engines[0].http_responses_total == {"2xx": 881, "4xx": 9, "5xx": 105}


def test_a_context_of_0_is_none_set() -> None:
    assert b'dynamo_frontend_model_context_length{model="tiny"} 0\n' in page("dynamo-1.6.1-frontend", 120)
    snapshot = snapshot_of(page("dynamo-1.6.1-frontend", 120).decode(), None, runtime=FRONTEND)
    assert snapshot.engines[0].context_limit_tokens is None
    assert snapshot.absent["context_limit_tokens"] is Absence.NOT_CONFIGURED
    assert frontend(f"dynamo_frontend_model_context_length{{{M}}} 8192\n").context_limit_tokens == 8192


def test_no_batch_is_made_of_what_spans_workers() -> None:
    run = recording("dynamo-1.6.1-frontend")
    assert b'dynamo_frontend_active_requests{model="tiny"} 48\n' in run.pages[52]
    assert b'dynamo_frontend_model_max_num_seqs{model="tiny"} 16\n' in run.pages[52]
    engine = frontend(run.pages[52].decode())
    assert (engine.requests_running, engine.batch_limit_requests, engine.kv_cache_capacity_tokens) == (None, None, None)
    # the worker's 32 waiting requests wait in the worker, not here
    assert engine.requests_waiting == 0


def test_a_counter_that_ends_in_count_is_no_histogram() -> None:
    # dynamo_frontend_detokenize_token_count is TYPE counter; the page is read, and nothing is made of it
    run = recording("dynamo-1.6.1-frontend")
    assert b"# TYPE dynamo_frontend_detokenize_token_count counter" in run.pages[120]
    snapshot = snapshot_of(run.pages[120].decode(), None, runtime=FRONTEND)
    assert snapshot.unmapped_families == ()


def test_other_prefixes_are_the_same_families() -> None:
    renamed = page("dynamo-1.6.1-frontend", 120).decode().replace("dynamo_frontend_", "nv_llm_http_service_")
    plain = page("dynamo-1.6.1-frontend", 120).decode()
    assert engine_of(renamed, None, runtime=FRONTEND) == engine_of(plain, None, runtime=FRONTEND)
    last = readings([{"/metrics": renamed}])[-1]
    assert (last.page.up, last.server.runtime) == (True, "dynamo-frontend")


def test_before_the_first_request_what_is_missing_is_missing_not_zero() -> None:
    snapshot = snapshot_of(page("dynamo-1.6.1-frontend", 0).decode(), None, runtime=FRONTEND)
    (engine,) = snapshot.engines
    assert (engine.model_name, engine.decode_tokens_total, engine.requests_finished_total) == ("tiny", None, None)


def test_the_frontend_is_a_frontend_and_asks_for_the_context() -> None:
    run = recording("dynamo-1.6.1-frontend")
    models = b'{"object":"list","data":[{"id":"tiny","object":"model","owned_by":"nvidia","context_window":4096}]}'
    step = {"/metrics": run.pages[120], "/v1/models": models}
    last = readings([step, step])[-1]
    assert last.server.page_role is Role.FRONTEND
    assert last.page.snapshot.engines[0].context_limit_tokens == 4096


def test_models_of_any_shape_are_read_or_left() -> None:
    recorded = recording("dynamo-1.6.1-frontend").json("json/models-0060.json")
    assert read_dynamo_models(recorded, ServerFacts()) == ServerFacts(model_names=("tiny",))
    entries = [
        {"id": "a", "context_window": 8}, {"id": "b", "context_window": "8"}, {"id": "c", "context_window": True},
        {"id": 1}, None,
    ]  # fmt: skip
    assert read_dynamo_models({"data": entries}, ServerFacts()).context_limit_tokens == {"a": 8}
    for answer in (None, [], {}, {"data": None}, {"data": {}}, {"data": ["x"]}):
        assert read_dynamo_models(answer, ServerFacts()) == ServerFacts()


# up to 1.1 (facts runtimes-others 10.2): lower case in request families, as it is in the others
LOWERED = """dynamo_frontend_model_context_length{model="Qwen/Qwen3-8B"} 4096
dynamo_frontend_output_tokens_total{model="qwen/qwen3-8b"} 70
dynamo_frontend_input_sequence_tokens_sum{model="qwen/qwen3-8b"} 500
dynamo_frontend_input_sequence_tokens_count{model="qwen/qwen3-8b"} 5
"""


def test_models_that_differ_otherwise_stay_apart() -> None:
    other = LOWERED + 'dynamo_frontend_output_tokens_total{model="qwen/qwen3-8b-fp8"} 9\n'
    found = {one.model_name: one.decode_tokens_total for one in snapshot_of(other, None, runtime=FRONTEND).engines}
    assert found == {"Qwen/Qwen3-8B": 70, "qwen/qwen3-8b-fp8": 9}
    # elsewhere a name is what it is
    text = 'vllm:num_requests_running{engine="0",model_name="A"} 1\nvllm:num_requests_running{engine="0",model_name="a"} 2\n'
    assert [one.model_name for one in snapshot_of(text).engines] == ["A", "a"]


def renamed(number: int, *, router: bool) -> str:
    """A recorded page of a frontend with DYN_METRICS_PREFIX=acme, with and without the KV router."""
    lines = (
        page("dynamo-1.6.1-frontend", number).decode().replace("dynamo_frontend_", "acme_").splitlines(keepends=True)
    )
    return "".join(line for line in lines if router or "dynamo_component_" not in line or "uptime" in line)


@pytest.mark.parametrize(
    ("router", "said"),
    [
        (True, "the page of a Dynamo router, or of a Dynamo frontend under another DYN_METRICS_PREFIX, not of an engine"),
        (False, "a Dynamo process that serves no endpoint (a frontend under another DYN_METRICS_PREFIX?), not of an engine"),
    ],
)  # fmt: skip
def test_a_frontend_under_another_prefix_is_told_what_to_do(router: bool, said: str) -> None:
    (found,) = readings([{"/metrics": renamed(120, router=router)}])
    assert found.page.up is False
    assert said in found.page.problem
    assert (
        "unset DYN_METRICS_PREFIX there, or write a table based_on dynamo-frontend (docs/dynamo.md)"
        in found.page.problem
    )


@check_rows("router", [True, False])
@check_rows("named", [None, "acme-frontend"])
def test_the_documents_own_table_reads_a_frontend_under_another_prefix(
    tmp_path: Path, router: bool, named: str | None
) -> None:
    (config,) = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs/dynamo.md").read_text(), re.DOTALL)
    runtimes = load_text(tmp_path, config).runtimes
    steps = [{"/metrics": renamed(number, router=router)} for number in (0, 60, 120)]
    found = readings(steps, runtimes=runtimes, runtime=named)
    plain = readings([{"/metrics": page("dynamo-1.6.1-frontend", number)} for number in (0, 60, 120)])
    assert [(one.page.up, one.server.runtime) for one in found] == [(True, "acme-frontend")] * 3
    assert found[-1].server.page_role is Role.FRONTEND
    assert [one.page.snapshot.engines for one in found if one.page.snapshot] == [
        one.page.snapshot.engines for one in plain if one.page.snapshot
    ]


def test_a_table_that_a_target_names_is_not_refused_as_a_router() -> None:
    table = replace(
        FRONTEND, name="acme-frontend", title="ACME", fingerprints=(), respelt=(("dynamo_frontend_", "acme_"),)
    )
    nothing = "".join(line for line in renamed(0, router=True).splitlines(keepends=True) if "acme_" not in line)
    (found,) = readings([{"/metrics": nothing}], runtimes=(table,), runtime="acme-frontend")
    assert "has nothing of ACME" in found.page.problem


# --- a worker -------------------------------------------------------------------------------------------------------


def test_a_worker_is_read_by_its_engines_own_families() -> None:
    engine = worker((MADE / "dynamo-worker-vllm.prom").read_text())
    assert (engine.model_name, engine.engine) == ("m", "0")
    assert (engine.decode_tokens_total, engine.prefill_tokens_total) == (40, 3000)
    # vLLM's own count, not Dynamo's cancellations beside it
    assert engine.requests_finished_total == {"length": 40}
    assert engine.requests_running == 2


def test_a_prefill_worker_says_its_role_and_a_backend_leaves_it_open() -> None:
    prefill = readings([{"/metrics": (MADE / "dynamo-worker-vllm.prom").read_bytes()}])[-1]
    assert (prefill.server.runtime, prefill.server.page_role) == ("dynamo-worker", Role.PREFILL)
    backend = readings([{"/metrics": page("dynamo-1.6.1-worker", 120)}])[-1]
    assert (backend.server.runtime, backend.server.page_role) == ("dynamo-worker", None)


def test_the_percent_of_the_cache_is_a_ratio_under_both_names() -> None:
    for name in ("dynamo_component_gpu_cache_usage_percent", "dynamo_component_kvstats_gpu_cache_usage_percent"):
        text = f'{name}{{dp_rank="0",dynamo_component="backend",model="m"}} 0.25\n'
        assert worker(text).kv_cache_usage_ratio == 0.25


def test_a_worker_before_its_first_request_is_up_and_says_nothing() -> None:
    # Dynamo's mocker has none of its families until then; after a restart too
    assert b"vllm:" not in page("dynamo-1.6.1-worker", 0)
    last = readings([{"/metrics": page("dynamo-1.6.1-worker", 0)}])[-1]
    assert (last.page.up, last.server.runtime) == (True, "dynamo-worker")
    assert not any(engine.is_engine for engine in last.page.snapshot.engines)
    # whose families they will be is not known yet, and some come with the first request
    assert last.page.snapshot.absent["requests_running"] is Absence.IDLE


def test_families_that_an_imitation_lacks_are_absent() -> None:
    snapshot = snapshot_of(page("dynamo-1.6.1-worker", 56).decode(), None, runtime=WORKER)
    (engine,) = snapshot.engines
    assert (engine.requests_running, engine.requests_waiting, engine.kv_cache_usage_ratio) == (16, 32, 0.123046875)
    for field in ("decode_tokens_total", "prefill_tokens_total", "kv_cache_capacity_tokens", "engine_steps_total"):
        assert snapshot.absent[field] is Absence.NOT_EXPORTED


# --- labels that Dynamo's pages have: classes of failures, and stages of a worker's engine ---


# http_action_for_class in Dynamo's lib/llm/src/http/service/error.rs (PR 14396); None: no answer is sent
STATUSES = {
    "InvalidRequest": 400, "Unauthenticated": 401, "PermissionDenied": 403, "NotFound": 404, "Conflict": 409, "PayloadTooLarge": 413,
    "UnsupportedMedia": 415, "RateLimited": 429, "Internal": 500, "NotImplemented": 501, "BackendProtocol": 502, "Unavailable": 503,
    "DeadlineExceeded": 504, "CapacityExhausted": 529, "Cancelled": None,
}  # fmt: skip


@check_rows("succeeded", [10, 0])
@check_rows(("kind", "status"), STATUSES.items())
def test_a_failure_is_a_response_by_the_status_that_its_class_gets(
    kind: str, status: int | None, succeeded: int
) -> None:
    text = f'dynamo_frontend_output_tokens_total{{model="m"}} 0\ndynamo_frontend_failures_total{{class="{kind}",reason="r"}} 3\n'
    if succeeded:  # another row, with the requests that went well
        text += f'dynamo_frontend_requests_total{{model="m",status="success",error_type=""}} {succeeded}\n'
    responses = engine_of(text, None, runtime=FRONTEND).http_responses_total
    expected = {"2xx": succeeded} if succeeded else {}
    assert (responses or {}) == ({**expected, f"{status // 100}xx": 3} if status else expected)
