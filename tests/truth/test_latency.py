"""The window's quantiles against first-token times that the client measured request by request."""

from __future__ import annotations

import json
import math

import pytest

from llm_serving_exporter.engines.registry import RUNTIMES
from llm_serving_exporter.settings.config import Config
from llm_serving_exporter.sim.replay import SteppedServer
from tests.support.builders.recordings import recording
from tests.support.rows import check_rows
from tests.support.servers.driven_exporter import DrivenExporter
from tests.truth.test_counts import MAIN

VLLM = RUNTIMES["vllm"]

WINDOW_SECONDS = 60.0
EDGES = VLLM.default_edges["ttft"]

# The client's own event loop limits its precision (captures README): the p99 compares in these phases, the median elsewhere.
P99_PHASES = ("saturated", "kv_pressure", "prefill_heavy")


def bucket(seconds: float) -> int:
    return next((place for place, edge in enumerate(EDGES) if seconds <= edge), len(EDGES))


def client_quantile(phase: str, q: float) -> float:
    lines = recording("vllm-0.32-client").members["client/client.jsonl"].decode().splitlines()
    requests = [json.loads(line) for line in lines]
    waits = sorted(r["t_first"] - r["t_send"] for r in requests if r["phase"] == phase and r.get("t_first"))
    return waits[math.ceil(q * len(waits)) - 1]


@pytest.fixture(scope="module")
def window_quantiles() -> dict[str, dict[str, float]]:
    """Each phase's quantiles as the exporter shows them: its window is made to begin at the phase's first page and end at its last."""
    found: dict[str, dict[str, float]] = {}
    with SteppedServer(recording("vllm-0.32")) as server:
        server.show(0)
        with DrivenExporter(server.url, config=Config(targets=(), window_seconds=WINDOW_SECONDS)) as exporter:
            for phase, (first, last) in MAIN.items():
                server.show(first)
                exporter.tick()
                exporter.tick(WINDOW_SECONDS)  # the window now holds the first page only
                server.show(last)
                (reading,) = exporter.tick()
                page = exporter.scrape()
                found[phase] = {q: page.value("window_latency_seconds", latency="ttft", rank=q) for q in ("p50", "p99")}
                found[phase]["events"] = reading.derived.engines[0].latency["ttft"].events
    return found


@pytest.mark.parametrize("phase", P99_PHASES)
def test_p99_time_to_first_token_lies_in_the_clients_bucket(
    window_quantiles: dict[str, dict[str, float]], phase: str
) -> None:
    assert bucket(window_quantiles[phase]["p99"]) == bucket(client_quantile(phase, 0.99))


@pytest.mark.parametrize("phase", [phase for phase in MAIN if phase not in P99_PHASES])
def test_median_time_to_first_token_lies_within_a_bucket_of_the_clients(
    window_quantiles: dict[str, dict[str, float]], phase: str
) -> None:
    assert abs(bucket(window_quantiles[phase]["p50"]) - bucket(client_quantile(phase, 0.5))) <= 1


@check_rows("phase", [phase for phase in MAIN if phase != "errors_aborts"], shared=["window_quantiles"])
def test_the_quantiles_stand_on_every_request_of_the_phase(
    window_quantiles: dict[str, dict[str, float]], phase: str
) -> None:
    client = json.loads(recording("vllm-0.32").members["client/truth.json"])
    assert window_quantiles[phase]["events"] == client[phase]["requests_with_first_token"]
