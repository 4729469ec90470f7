"""Infinity and Xinference: told by their model lists, which also have what their pages leave out."""

import json

from llm_serving_exporter.engines.hooks.others import is_infinity, read_infinity_models
from llm_serving_exporter.engines.registry import RUNTIMES
from llm_serving_exporter.model.reading import State
from llm_serving_exporter.model.record import name_fields
from llm_serving_exporter.model.sample import FailureReason
from llm_serving_exporter.model.snapshot import Absence, EngineSnapshot, ServerFacts
from tests.support.builders.recordings import recording
from tests.support.builders.snapshots import engine_of, snapshot_of
from tests.support.paths import TESTS
from tests.support.rows import check_rows
from tests.support.servers.replica import Replica, readings

RUNTIME = RUNTIMES["infinity"]

RUN = recording("infinity-0.0.78")
LATE = RUN.pages[84]
QUEUE = RUN.members["json/models-0084.json"]


def models(**queues: int) -> str:
    stats = {
        name: {"queue_fraction": queue / 32000, "queue_absolute": queue, "results_pending": 0, "batch_size": 32}
        for name, queue in queues.items()
    }
    return json.dumps({"data": [{"id": name, "stats": one, "owned_by": "infinity"} for name, one in stats.items()]})


def test_it_is_recognised_by_its_model_list_and_read() -> None:
    one = readings([{"/metrics": LATE, "/models": QUEUE}])[0]
    assert (one.page.up, one.server.runtime, one.server.model_name) == (True, "infinity", "minilm")
    (engine,) = one.page.snapshot.engines
    assert (engine.requests_waiting, engine.batch_limit_requests) == (3649, 16)
    assert engine.is_engine


def test_a_server_below_v1_is_recognised_too() -> None:
    page = LATE.replace(b'"/embeddings"', b'"/v1/embeddings"')
    for target in ({}, {"runtime": "infinity"}):
        one = readings([{"/metrics": page, "/v1/models": QUEUE}] * 2, **target)[-1]
        assert one.page.snapshot is not None, one.page.problem
        assert one.page.snapshot.engines[0].requests_waiting == 3649
        assert one.page.snapshot.engines[0].http_responses_total == {"2xx": 1646}


@check_rows(
    "listed",
    [
        None,
        '{"object":"list","data":[{"id":"gpt","object":"model","owned_by":"me"}]}',  # any OpenAI-like server
        '{"data":[]}',
        '{"data":[{"id":"m","stats":[1]}]}',
        "[]",
    ],
)
def test_any_other_application_stays_unknown(listed: str | None) -> None:
    routes = {"/metrics": LATE, **({"/models": listed, "/v1/models": listed} if listed is not None else {})}
    one = readings([routes])[0]
    assert (one.page.up, one.server.state, one.server.runtime) == (False, State.UNKNOWN, "")
    assert one.page.last.reason is FailureReason.UNKNOWN_RUNTIME


def test_the_queue_is_asked_for_at_each_tick_and_a_path_that_is_not_there_once() -> None:
    with Replica() as replica:
        readings([{"/metrics": LATE, "/models": models(m=waiting)} for waiting in (1, 2, 3)], replica=replica)
        assert replica.asked.count("/v1/models") <= 3  # to recognise it, by the polls and by the facts
        assert replica.asked.count("/models") >= 4  # to recognise it, and at each of three ticks
    waits = [
        one.page.snapshot.engines[0].requests_waiting
        for one in readings([{"/metrics": LATE, "/models": models(m=waiting)} for waiting in (1, 2, 3)])
        if one.page.snapshot is not None
    ]
    assert waits == [1, 2, 3]


def test_a_tick_without_the_model_list_keeps_the_engine_and_has_no_queue() -> None:
    """The list may come late while the server computes: the counters are still the same model's."""
    with_it, without_it = (
        {"/metrics": LATE, "/models": QUEUE},
        {"/metrics": LATE, "/models": (503, "text/plain", b"busy")},
    )
    before, now, after = readings([with_it, without_it, with_it])
    for one in (before, now, after):
        assert [(engine.model_name, engine.engine) for engine in one.page.snapshot.engines] == [("minilm", "0")]
    assert now.page.snapshot.engines[0].requests_waiting is None
    assert now.page.snapshot.absent["requests_waiting"] is Absence.NOT_EXPORTED
    assert now.page.snapshot.engines[0].http_responses_total == {"2xx": 1646}
    assert after.server.restarts_total == 0


def test_several_models_have_a_queue_each_and_the_http_counters_are_nobodys() -> None:
    one = readings([{"/metrics": LATE, "/models": models(embed=7, rerank=0)}])[0]
    assert [(e.model_name, e.requests_waiting, e.http_responses_total) for e in one.page.snapshot.engines] == [
        ("", None, {"2xx": 1646}),
        ("embed", 7, None),
        ("rerank", 0, None),
    ]


def test_scrapes_health_checks_and_unknown_paths_are_not_counted() -> None:
    """They are on the page: 105 health checks, 208 scrapes, 104 model lists, 3 paths that are not there."""
    last = RUN.pages[208].decode()
    assert 'http_requests_total{handler="/metrics",method="GET",status="2xx"} 208.0' in last
    snapshot = snapshot_of(last, None, runtime=RUNTIME)
    assert snapshot.engines[0].http_responses_total == {"2xx": 1900, "4xx": 6}
    assert snapshot.engines[0].e2e_request_latency_seconds.edges == (0.1, 0.5, 1.0)


def test_the_pending_results_are_not_taken_for_running_requests() -> None:
    """They read 0 in every answer of the run, under full load too."""
    pending = {
        entry["stats"]["results_pending"]
        for name in RUN.members
        if name.startswith("json/models-")
        for entry in RUN.json(name)["data"]
    }
    assert pending == {0}
    assert "requests_running" in RUNTIME.missing


def test_a_list_of_no_models_is_nothing() -> None:
    assert not is_infinity({"data": []})
    assert read_infinity_models({"data": []}, ServerFacts()) == ServerFacts()
    assert read_infinity_models(json.loads(QUEUE), ServerFacts()).model_names == ("minilm",)


# --- Xinference's traps, one by one. Pages are made from the facts (runtimes-others 15) ---


XINFERENCE = RUNTIMES["xinference"]

MADE = TESTS / "made"
PAGE = (MADE / "xinference.prom").read_text()
LATER = (MADE / "xinference-later.prom").read_text()
L = 'engine="vLLM",model_name="qwen2.5-instruct",model_uid="chat",replica_index="0"'


def test_ttft_is_of_streams_because_of_others_it_is_the_whole_duration() -> None:
    name = "xinference:time_to_first_token_seconds"
    page = "".join(
        f"""{name}_bucket{{{L},stream="{stream}",le="1"}} {fast}
{name}_bucket{{{L},stream="{stream}",le="+Inf"}} {count}
{name}_sum{{{L},stream="{stream}"}} {total}
{name}_count{{{L},stream="{stream}"}} {count}
"""
        for stream, fast, count, total in (("true", 4, 5, 3.5), ("false", 0, 7, 70.0))
    )
    found = engine_of(page, runtime=XINFERENCE).time_to_first_token_seconds
    assert (found.edges, found.cumulative, found.count, found.sum) == ((1.0,), (4.0,), 5.0, 3.5)


def _engines(text: str) -> dict[tuple[str, str], EngineSnapshot]:
    return {(one.model_name, one.engine): one for one in snapshot_of(text, runtime=XINFERENCE).engines}


def test_every_model_and_replica_is_an_engine_and_the_label_engine_is_what_runs_inside() -> None:
    engines = _engines(PAGE)
    assert set(engines) == {("chat", "0"), ("chat", "1"), ("embed", "0")}
    assert [engines[key].requests_running for key in sorted(engines)] == [6, 3, 1]


def test_no_limit_is_absent_and_not_minus_one() -> None:
    engines = _engines(PAGE)
    assert "} -1\n" in PAGE
    assert engines["chat", "0"].batch_limit_requests == 16
    assert engines["embed", "0"].batch_limit_requests is None
    assert "batch_limit_requests" not in _exported(PAGE, "embed")
    unlimited = snapshot_of(f"xinference:model_request_limit{{{L}}} -1\n", None, runtime=XINFERENCE)
    assert unlimited.absent["batch_limit_requests"] is Absence.NOT_CONFIGURED


def _exported(text: str, model: str) -> set[str]:
    one = _engines(text)[model, "0"]
    return {name for name in name_fields(one) if getattr(one, name) is not None}


def test_refusals_are_those_of_which_nobody_knows_whether_they_stream() -> None:
    page = f"""xinference:model_serve_count{{{L}}} 2
xinference:model_request_total{{{L},stream="true"}} 50
xinference:model_request_total{{{L},stream="false"}} 20
xinference:model_request_total{{{L},stream="unknown"}} 4
xinference:model_request_errors_total{{{L}}} 5
"""
    engine = engine_of(page, runtime=XINFERENCE)
    assert engine.requests_rejected_total == {"request_limit": 4}
    assert engine.requests_finished_total is None
    assert "requests_finished_total" in XINFERENCE.missing


def test_a_duration_that_ends_when_a_stream_starts_is_no_e2e() -> None:
    assert "xinference:model_request_duration_seconds_count" in PAGE
    assert "e2e_request_latency_seconds" not in _exported(PAGE, "chat")


def test_the_supervisors_page_says_the_memory_of_a_model_over_its_gpus() -> None:
    page = """# TYPE xinference:worker_gpu_utilization_percent gauge
xinference:worker_gpu_utilization_percent{gpu_index="0"} 93
# TYPE xinference:worker_gpu_memory_used_bytes gauge
xinference:worker_gpu_memory_used_bytes{gpu_index="0"} 7e10
# TYPE xinference:model_gpu_memory_used_bytes gauge
xinference:model_gpu_memory_used_bytes{model_uid="chat",replica_index="0",gpu_index="0"} 2e10
xinference:model_gpu_memory_used_bytes{model_uid="chat",replica_index="0",gpu_index="1"} 3e10
xinference:model_gpu_memory_used_bytes{model_uid="embed",replica_index="0",gpu_index="1"} 1e9
"""
    engines = _engines(page)
    assert engines["chat", "0"].model_gpu_memory_bytes == 5e10
    assert engines["embed", "0"].model_gpu_memory_bytes == 1e9
    assert not any(one.is_engine for one in engines.values())


def test_a_worker_is_read_tick_by_tick() -> None:
    *_, after = readings([{"/metrics": PAGE}, {"/metrics": LATER}])
    assert after.server.runtime == "xinference"
    assert after.page.snapshot is not None
    rates = {(one.model_name, one.engine): one.phase_tokens_per_second for one in after.page.derived.engines}
    assert set(rates["chat", "0"]) == {"prefill", "decode"}
    assert rates["chat", "0"]["decode"] > 0
    assert rates["embed", "0"] == {}  # it does not decode
