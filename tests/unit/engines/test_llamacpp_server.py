"""llama.cpp as a server over HTTP: its states, its router, and numbers of six digits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from llm_serving_exporter.catalogue.spec import PLACE_LABELS
from llm_serving_exporter.daemon.store import Store
from llm_serving_exporter.engines.registry import RUNTIMES
from llm_serving_exporter.expose.collector import Setup, ViewCollector
from llm_serving_exporter.model.reading import State, TargetReading
from llm_serving_exporter.model.sample import FailureReason, Stage
from llm_serving_exporter.model.snapshot import Quality
from tests.support.builders.configuration import load_text
from tests.support.builders.snapshots import engine_of
from tests.support.servers.llamacpp import ANSWERS, BUSY, PROPS, RUN, rate_of, recorded, routes, slots
from tests.support.servers.replica import Answer, Replica, readings

RUNTIME = RUNTIMES["llamacpp"]

# states, with the recorded answers


def last_of(answer: Answer, **target: Any) -> TargetReading:
    return readings([{"/metrics": answer}], **target)[0]


def test_loading_is_not_down() -> None:
    # scrapes 0059 to 0066 of the recorded restart
    body = b'{"error":{"message":"Loading model","type":"unavailable_error","code":503}}'
    every = dict.fromkeys(("/prometheus/metrics", "/metrics", "/v1/metrics"), (503, "application/json", body))
    (reading,) = readings([every])
    assert (reading.up, reading.state) == (False, State.LOADING)
    assert reading.last.reason is FailureReason.LOADING
    assert "Loading model" in reading.problem


def test_a_server_without_metrics_is_unknown_and_says_what_to_do() -> None:
    reading = last_of(recorded("metrics-disabled"))
    assert (reading.up, reading.state) == (False, State.UNKNOWN)
    assert (reading.last.stage, reading.last.reason, reading.last.status) == (
        Stage.SCRAPE,
        FailureReason.STATUS,
        501,
    )
    assert "Start it with `--metrics`" in reading.problem


def test_a_missing_key() -> None:
    reading = last_of(recorded("metrics-apikey-missing"))
    assert reading.state is State.UNKNOWN
    assert reading.last.reason is FailureReason.UNAUTHORIZED
    assert last_of(recorded("metrics-apikey-ok")).up is True


def test_a_sleeping_server_serves_a_copy_and_is_left_asleep() -> None:
    pages = [recorded(name) for name in ("metrics-sleeping-1", "metrics-sleeping-2", "metrics-woken")]
    with Replica() as replica:
        found = readings([routes(page) for page in pages], replica=replica)
    assert [reading.up for reading in found] == [True] * 3
    assert [reading.restarts_total for reading in found] == [0] * 3
    assert set(replica.asked) <= {"/prometheus/metrics", "/metrics", "/props", "/v1/models"}


# router mode


def test_a_router_asked_for_no_model_says_how_to_name_one() -> None:
    reading = last_of(recorded("router-metrics-nomodel"))
    assert (reading.up, reading.state) == (False, State.UNKNOWN)
    assert "model name is missing from the request" in reading.problem
    assert "metrics_path: /metrics?model=NAME" in reading.problem
    unknown = last_of(recorded("router-metrics-unknown"))
    assert "model 'nope' not found" in unknown.problem


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
    assert (last.up, last.model_name, last.facts.weight_bytes) == (True, "tiny-a", 50628608)


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
    assert [reading.restarts_total for reading in found] == [0] * 8
    last = found[-1]
    assert last.derived.quality["phase_tokens_per_second_prefill"] is Quality.APPROXIMATE
    # fast enough, the same counter is as good as any
    fast = readings([routes(grown(12_334_700 + 40_000 * tick)) for tick in range(8)])[-1]
    assert "phase_tokens_per_second_prefill" not in fast.derived.quality
    exact = readings([routes(grown(40 * tick)) for tick in range(8)])[-1]
    assert "phase_tokens_per_second_prefill" not in exact.derived.quality
