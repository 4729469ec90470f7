"""llama.cpp's table over page text and recorded answers, and as a server over HTTP: each trap of its exposition a test."""

import json
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from llm_serving_exporter.catalogue.spec import PLACE_LABELS
from llm_serving_exporter.daemon.store import Store
from llm_serving_exporter.engines.hooks.llamacpp import (
    CAPACITY,
    CONTEXT,
    DECODED,
    USED,
    read_models,
    read_props,
    read_slots,
    slots_at_rest,
)
from llm_serving_exporter.engines.mapping import parse_version
from llm_serving_exporter.engines.registry import RUNTIMES
from llm_serving_exporter.expose.collector import Setup, ViewCollector
from llm_serving_exporter.model.reading import State, TargetReading
from llm_serving_exporter.model.sample import FailureReason, Stage
from llm_serving_exporter.model.snapshot import Absence, Quality, ServerFacts
from llm_serving_exporter.targets.server import served_model
from tests.support.builders.configuration import load_text
from tests.support.builders.snapshots import engine_of, snapshot_of
from tests.support.rows import check_rows
from tests.support.servers.llamacpp import (
    ANSWERS,
    BUSY,
    IDLE,
    MODELS,
    PROPS,
    RUN,
    rate_of,
    read,
    recorded,
    routes,
    slots,
)
from tests.support.servers.replica import Answer, Replica, readings

RUNTIME = RUNTIMES["llamacpp"]

# the page


def test_a_busy_page() -> None:
    engine = engine_of(BUSY, None, RUNTIME)
    assert (engine.model_name, engine.engine) == ("", "0")
    assert engine.prefill_tokens_total == 11633.0
    assert engine.cached_prompt_tokens_total == 8511.0
    assert engine.prompt_tokens_total == 20144.0
    assert (engine.prefix_cache_query_tokens_total, engine.prefix_cache_hit_tokens_total) == (20144.0, 8511.0)
    assert (engine.prefix_cache_queries, engine.prefix_cache_hits) == (20144.0, 8511.0)
    assert (engine.decode_tokens_total, engine.engine_steps_total) == (6262.0, 1662.0)
    assert (engine.requests_running, engine.requests_waiting) == (4.0, 8.0)
    assert (engine.speculative_draft_tokens_total, engine.speculative_accepted_tokens_total) == (0.0, 0.0)


def test_what_comes_late_is_said_to() -> None:
    snapshot = snapshot_of(BUSY, None, runtime=RUNTIME, polled=read_slots(slots(60)))
    assert snapshot.quality["decode_tokens_total"] is Quality.LAGGING
    assert snapshot.quality["decode_tokens_live"] is Quality.APPROXIMATE
    assert "prefill_tokens_total" not in snapshot.quality
    assert snapshot.may_fall == {"decode_tokens_live"}
    assert snapshot.significant_digits == 6


def test_gauges_that_every_scrape_resets_and_the_false_counter_are_never_used() -> None:
    lines = [
        f"{line.rsplit(' ', 1)[0]} 777777"
        if line.startswith(
            ("llamacpp:prompt_tokens_seconds", "llamacpp:predicted_", "llamacpp:n_busy", "llamacpp:n_tokens_max")
        )
        else line
        for line in BUSY.splitlines()
    ]
    changed = "\n".join(lines) + "\n"
    assert changed.count("777777") == 4
    assert engine_of(changed, None, RUNTIME) == engine_of(BUSY, None, RUNTIME)


def test_a_build_without_the_cached_counter_has_no_prompts_as_sent() -> None:
    older = "".join(line for line in BUSY.splitlines(keepends=True) if "prompt_tokens_cached_total" not in line)
    snapshot = snapshot_of(older, None, runtime=RUNTIME)
    (engine,) = snapshot.engines
    assert engine.prefill_tokens_total == 11633.0
    for field in ("prompt_tokens_total", "cached_prompt_tokens_total", "prefix_cache_hits", "prefix_cache_queries"):
        assert getattr(engine, field) is None
        assert snapshot.absent[field] is Absence.NOT_EXPORTED


def test_the_kv_gauge_of_early_2025() -> None:
    page = BUSY + "# TYPE llamacpp:kv_cache_usage_ratio gauge\nllamacpp:kv_cache_usage_ratio 0.25\n"
    page += "# TYPE llamacpp:kv_cache_tokens gauge\nllamacpp:kv_cache_tokens 1024\n"
    snapshot = snapshot_of(page, None, runtime=RUNTIME)
    assert snapshot.engines[0].kv_cache_usage_ratio == 0.25
    assert "kv_cache_usage_ratio" not in snapshot.quality
    assert snapshot.unmapped_families == ()
    assert snapshot_of(BUSY, None, runtime=RUNTIME).absent["kv_cache_usage_ratio"] is Absence.NOT_EXPORTED


# /slots


def test_slots_of_one_long_answer() -> None:
    # slot 3: 9 computed + 2 cached + 406 generated; the idle ones still keep 53, 53 and 48 tokens
    assert read(80) == {CAPACITY: 4096.0, USED: 417.0, DECODED: 406.0, CONTEXT: 417.0}
    snapshot = snapshot_of(RUN.pages[80].decode(), None, runtime=RUNTIME, polled=read_slots(slots(80)))
    (engine,) = snapshot.engines
    assert engine.decode_tokens_total == 8229.0
    assert engine.decode_tokens_live == 8229.0 + 406.0
    assert (engine.kv_cache_capacity_tokens, engine.decode_context_tokens) == (4096.0, 417.0)
    assert engine.kv_cache_usage_ratio == 417 / 4096
    assert snapshot.quality["kv_cache_usage_ratio"] is Quality.APPROXIMATE


def test_slots_while_prompts_are_computed_do_not_decode() -> None:
    # two busy slots of 775 and 822 tokens, nothing generated yet; two idle ones
    assert read(30) == {CAPACITY: 4096.0, USED: 1597.0, DECODED: 0.0, CONTEXT: 0.0}


def test_slots_that_have_served_nothing() -> None:
    assert read(0) == {CAPACITY: 4096.0, USED: 0.0, DECODED: 0.0, CONTEXT: 0.0}


def test_every_recorded_busy_slot_holds_its_prompt_and_what_it_generated() -> None:
    checked = 0
    for number in (10, 20, 50, 60, 80):
        for slot in slots(number):
            done = slot["next_token"][0]["n_decoded"]
            if slot["is_processing"] and done:
                prompt = slot["n_prompt_tokens_processed"] + slot["n_prompt_tokens_cache"]
                # the token sampled last may not have been fed back yet
                assert prompt + done - slot["n_prompt_tokens"] in (0, 1)
                checked += 1
    assert checked == 17


def test_fields_of_slots_that_a_build_lacks_are_left_out_alone() -> None:
    object_form = [{**slot, "next_token": slot["next_token"][0]} for slot in slots(80)]
    assert read_slots(object_form) == read_slots(slots(80))
    without_sizes = [{k: v for k, v in slot.items() if k != "n_prompt_tokens"} for slot in slots(80)]
    assert {key.name for key, _ in read_slots(without_sizes)} == {CAPACITY, DECODED}
    without_decoded = [{k: v for k, v in slot.items() if k != "next_token"} for slot in slots(80)]
    assert {key.name for key, _ in read_slots(without_decoded)} == {CAPACITY, USED}
    without_state = [{k: v for k, v in slot.items() if k != "is_processing"} for slot in slots(80)]
    assert read_slots(without_state) == ()


@check_rows("wrong", [-1, True, "9", None, 1e300, float("nan"), [1]])
def test_a_number_that_is_none_voids_its_sum(wrong: object) -> None:
    found = {key.name for key, _ in read_slots([{**slot, "n_prompt_tokens": wrong} for slot in slots(80)])}
    assert found == {CAPACITY, DECODED}


def test_slots_at_rest_keep_the_capacity() -> None:
    assert {key.name: value for key, value in slots_at_rest(read_slots(slots(80)))} == read(0)
    assert {key.name: value for key, value in slots_at_rest(())} == {USED: 0.0, DECODED: 0.0, CONTEXT: 0.0}


def test_slots_are_asked_only_while_a_request_runs() -> None:
    """Asking wakes a sleeping server and puts its sleep off."""
    with Replica() as replica:
        found = readings(
            [
                routes(IDLE, json.dumps(slots(0))),
                routes(RUN.pages[80], json.dumps(slots(80))),
                routes(RUN.pages[90], json.dumps(slots(90))),
            ],
            replica=replica,
        )
    assert replica.asked.count("/slots") == 1
    first, second, third = (reading.page.snapshot.engines[0] for reading in found if reading.page.snapshot)
    assert first.kv_cache_capacity_tokens is None
    assert second.kv_cache_capacity_tokens == 4096.0
    assert third.kv_cache_capacity_tokens == 4096.0
    assert (first.decode_tokens_live, third.kv_cache_usage_ratio) == (0.0, 0.0)


def test_a_server_without_slots_is_asked_once_and_its_tokens_come_late() -> None:
    off = (501, "application/json", b'{"error":{"code":501,"message":"This server does not support slots endpoint."}}')
    with Replica() as replica:
        *_, last = readings(
            [routes(RUN.pages[number], off) for number in (49, 50, 51, 60)], replica=replica, runtime="llamacpp"
        )
    assert replica.asked.count("/slots") == 1
    engine = last.page.snapshot.engines[0]
    assert (engine.decode_tokens_live, engine.kv_cache_usage_ratio) == (None, None)
    assert last.page.derived.signals["kv_cache_usage_ratio"] is Absence.NOT_EXPORTED
    assert last.page.derived.quality["phase_tokens_per_second_decode"] is Quality.LAGGING


def test_a_tick_without_slots_is_never_subtracted_from_one_with() -> None:
    steps = [routes(RUN.pages[number], json.dumps(slots(number))) for number in (70, 70, 80, 80, 80, 90)]
    steps[3] = routes(RUN.pages[80], (503, "text/plain", b"busy"))
    found = readings(steps, window_seconds=10.0)
    live = [reading.page.snapshot.engines[0].decode_tokens_live for reading in found if reading.page.snapshot]
    # from 7516 + 1 at page 70 to 8229 + 406, as if nothing had happened, and on to 9129
    assert live[2:] == [1118.0, None, 1118.0, 1612.0]
    # without: what is booked, over a window for tokens that are booked late
    rates = [rate_of(reading, "decode") for reading in found[1:]]
    assert rates == [0.0, 1118 / 10, (8229 - 7516) / 20, None, (1612 - 1118) / 10]


# side endpoints


def test_facts_of_the_recorded_server() -> None:
    facts = read_models(json.loads(MODELS), read_props(json.loads(PROPS), ServerFacts()))
    assert facts == ServerFacts(
        version="b11434-pypi",
        batch_limit_requests=4,
        context_limit_tokens={"tiny": 1024},
        model_names=("tiny",),
        model_roots={"tiny": "/models/mid-llama-f16.gguf"},
        dtype="float16",
        quantization="",
        weight_bytes=132185088,
    )
    assert parse_version(facts.version) == (11434,)
    assert parse_version("b4747-c392e50") == (4747,)


def test_the_stated_size_reaches_the_lookup_of_the_model() -> None:
    facts = read_models(json.loads(MODELS), ServerFacts())
    assert served_model("tiny", facts, None).weight_bytes == 132185088


def test_the_facts_reach_the_engine_over_http() -> None:
    *_, last = readings([routes(IDLE)] * 2)
    (engine,) = last.page.snapshot.engines
    assert engine.model_name == last.server.model_name == "tiny"
    assert (engine.batch_limit_requests, engine.context_limit_tokens) == (4.0, 1024.0)
    assert last.server.facts.version == "b11434-pypi"


def test_a_build_whose_props_name_no_alias_is_named_by_its_list() -> None:
    props = {key: value for key, value in json.loads(PROPS).items() if key != "model_alias"}
    alone = read_props(props, ServerFacts())
    assert alone.model_names == ("mid-llama-f16.gguf",)
    facts = read_models(json.loads(MODELS), alone)
    assert facts.model_names == ("tiny",)
    assert facts.model_roots == {"tiny": "/models/mid-llama-f16.gguf"}
    assert facts.context_limit_tokens == {"tiny": 1024}


def test_of_a_routers_list_the_model_that_was_asked_for_counts() -> None:
    listed = json.loads(ANSWERS["router-models.json"])
    assert len(listed["data"]) == 2
    facts = read_models(listed, ServerFacts(model_names=("tiny-a",)))
    assert (facts.model_names, facts.weight_bytes) == (("tiny-a",), 50628608)
    assert read_models(listed, ServerFacts()) == ServerFacts()


@check_rows(
    ("ftype", "dtype", "quantization"),
    [
        ("all F32", "float32", ""), ("F16", "float16", ""), ("BF16", "bfloat16", ""), ("Q8_0", None, "q8_0"),
        ("Q4_K - Medium", None, "q4_k_m"), ("Q4_K - Small (guessed)", None, "q4_k_s"), ("Q3_K - Large", None, "q3_k_l"),
        ("IQ2_XS - 2.3125 bpw", None, "iq2_xs"), ("MXFP4 MoE", None, "mxfp4"), ("unknown, may not work", None, None),
        ("", None, None), (7, None, None), ("…", None, None),
    ],
)  # fmt: skip
def test_file_types(ftype: object, dtype: str | None, quantization: str | None) -> None:
    facts = read_props({"model_ftype": ftype}, ServerFacts())
    assert (facts.dtype, facts.quantization) == (dtype, quantization)


@check_rows("answer", [
    None, [], "x", 1, {}, {"data": 3}, {"data": [None, {"id": 1}]}, {"data": [{"meta": []}]}, {"data": [{"aliases": 3}] * 2},
    {"default_generation_settings": [], "total_slots": -1, "build_info": 3, "model_alias": {}, "model_path": ""},
    {"data": [{"meta": {"size": "large", "ftype": {}}}]},
])  # fmt: skip
def test_other_json_leaves_the_facts_alone(answer: object) -> None:
    for endpoint in RUNTIME.endpoints:
        assert endpoint.read(answer, ServerFacts()) == ServerFacts()


# --- llama.cpp as a server over HTTP: its states, its router, and numbers of six digits ---


# states, with the recorded answers


def last_of(answer: Answer, **target: Any) -> TargetReading:
    return readings([{"/metrics": answer}], **target)[0]


def test_loading_is_not_down() -> None:
    # scrapes 0059 to 0066 of the recorded restart
    body = b'{"error":{"message":"Loading model","type":"unavailable_error","code":503}}'
    every = dict.fromkeys(("/prometheus/metrics", "/metrics", "/v1/metrics"), (503, "application/json", body))
    (reading,) = readings([every])
    assert (reading.page.up, reading.server.state) == (False, State.LOADING)
    assert reading.page.last.reason is FailureReason.LOADING
    assert "Loading model" in reading.page.problem


def test_a_server_without_metrics_is_unknown_and_says_what_to_do() -> None:
    reading = last_of(recorded("metrics-disabled"))
    assert (reading.page.up, reading.server.state) == (False, State.UNKNOWN)
    assert reading.page.last.stage == Stage.SCRAPE
    assert reading.page.last.reason == FailureReason.STATUS
    assert reading.page.last.status == 501
    assert "Start it with `--metrics`" in reading.page.problem


def test_a_missing_key() -> None:
    reading = last_of(recorded("metrics-apikey-missing"))
    assert reading.server.state is State.UNKNOWN
    assert reading.page.last.reason is FailureReason.UNAUTHORIZED
    assert last_of(recorded("metrics-apikey-ok")).page.up is True


def test_a_sleeping_server_serves_a_copy_and_is_left_asleep() -> None:
    pages = [recorded(name) for name in ("metrics-sleeping-1", "metrics-sleeping-2", "metrics-woken")]
    with Replica() as replica:
        found = readings([routes(page) for page in pages], replica=replica)
    assert [reading.page.up for reading in found] == [True] * 3
    assert [reading.server.restarts_total for reading in found] == [0] * 3
    assert set(replica.asked) <= {"/prometheus/metrics", "/metrics", "/props", "/v1/models"}


# router mode


def test_a_router_asked_for_no_model_says_how_to_name_one() -> None:
    reading = last_of(recorded("router-metrics-nomodel"))
    assert (reading.page.up, reading.server.state) == (False, State.UNKNOWN)
    assert "model name is missing from the request" in reading.page.problem
    assert "metrics_path: /metrics?model=NAME" in reading.page.problem
    unknown = last_of(recorded("router-metrics-unknown"))
    assert "model 'nope' not found" in unknown.page.problem


def test_no_request_to_a_router_loads_a_model(tmp_path: Path) -> None:
    """A scrape that names a model loads it, unless it says autoload=false (captures: the scrape of micro-b loaded it)."""
    with Replica() as replica:
        text = f"targets:\n- url: {replica.url}\n  metrics_path: /metrics?model=tiny-a\n"
        (target,) = load_text(tmp_path, text).targets
        props = json.dumps({**json.loads(PROPS), "model_alias": "tiny-a"})
        found = readings(
            [
                {"/metrics": page, "/props": props, "/v1/models": ANSWERS["router-models.json"], "/slots": json.dumps(slots(80))}
                for page in (recorded("router-metrics-tiny-a"), recorded("router-metrics-tiny-a"), RUN.pages[80])
            ],
            replica=replica,
            metrics_path=target.metrics_path,
        )  # fmt: skip
    assert target.metrics_path == "/metrics?model=tiny-a&autoload=false"
    assert {asked.partition("?")[0] for asked in replica.asked} == {"/metrics", "/props", "/v1/models", "/slots"}
    for asked in replica.asked:
        assert asked.partition("?")[2] == "model=tiny-a&autoload=false", asked
    last = found[-1]
    assert (last.page.up, last.server.model_name, last.server.facts.weight_bytes) == (True, "tiny-a", 50628608)


def test_a_router_without_a_model_in_the_path_is_never_asked_for_one() -> None:
    with Replica() as replica:
        readings([{"/metrics": recorded("router-metrics-nomodel")}] * 3, replica=replica)
    assert replica.asked
    assert all("?" not in asked for asked in replica.asked)


# six digits


def grown(tokens: int) -> str:
    """The recorded page with larger counters, printed as C++ streams print them: six significant digits."""
    lines = []
    for line in BUSY.splitlines():
        name, _, value = line.rpartition(" ")
        if name in ("llamacpp:prompt_tokens_total", "llamacpp:tokens_predicted_total"):
            line = f"{name} {int(value) + tokens:.6g}"
        lines.append(line)
    return "\n".join(lines) + "\n"


def test_numbers_beyond_a_million_come_in_steps() -> None:
    assert "llamacpp:prompt_tokens_total 1.23463e+07\n" in grown(12_334_701)
    assert engine_of(grown(12_334_701), None, RUNTIME).prefill_tokens_total == 12_346_300.0


def test_the_step_of_a_coarse_counter_is_published() -> None:
    store, registry = Store(), CollectorRegistry()
    reading = readings([routes(grown(12_334_701))] * 2)[-1]
    store.add_target(reading.target)
    store.put_target(reading)
    registry.register(ViewCollector(store.view, lambda: Setup(15.0, 20.0, "node-a"), lambda: 21.0))

    def step(signal: str) -> float | None:
        labels = {"target": "replica-0", "signal": signal, **dict.fromkeys(PLACE_LABELS, "")}
        return registry.get_sample_value("llm_serving_signal_resolution", labels)

    assert step("prefill_tokens_total") == 100.0
    assert step("engine_steps_total") == 1.0
    assert step("preemptions_total") is None


def test_a_coarse_counter_is_marked_and_never_falls() -> None:
    # 40 tokens a tick at 12 million: steps of 100
    found = readings([routes(grown(12_334_700 + 40 * tick)) for tick in range(8)])
    rates = [rate_of(reading, "prefill") for reading in found]
    assert rates[0] is None
    for tick in range(1, 8):
        # 4 a second, a step of the counter up or down
        assert rates[tick] == pytest.approx(4, abs=100 / (10 * tick)), tick
    assert [reading.server.restarts_total for reading in found] == [0] * 8
    last = found[-1]
    assert last.page.derived.quality["phase_tokens_per_second_prefill"] is Quality.APPROXIMATE
    # fast enough, the same counter is as good as any
    fast = readings([routes(grown(12_334_700 + 40_000 * tick)) for tick in range(8)])[-1]
    assert "phase_tokens_per_second_prefill" not in fast.page.derived.quality
    exact = readings([routes(grown(40 * tick)) for tick in range(8)])[-1]
    assert "phase_tokens_per_second_prefill" not in exact.page.derived.quality
