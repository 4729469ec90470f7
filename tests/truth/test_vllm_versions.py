"""Older vLLM versions' own metric loggers against what the simulation that drove them counted, over the whole run (client/truth.json)."""

from __future__ import annotations

from collections import Counter

import pytest

from llm_serving_exporter.model.snapshot import EngineSnapshot
from tests.support.builders.recordings import recording
from tests.support.rows import check_rows
from tests.support.servers.replica import readings

RUNS = {name: name.split("-")[2] for name in (
    "vllm-logger-0.8.5-v0", "vllm-logger-0.8.5-v1", "vllm-logger-0.10.2-v1", "vllm-logger-0.17.1-v1",
)}  # fmt: skip
# 0.8.5 V1 counts prefix hits in blocks, and V0 not at all; the simulation fed it tokens (captures README), so that they do not compare
COUNTS_TOKENS = ("0.10.2", "0.17.1")


def last(name: str) -> EngineSnapshot:
    run = recording(name)
    pages = list(run.pages)
    version = f'{{"version":"{RUNS[name]}"}}'
    steps = [{"/metrics": run.pages[number], "/version": version} for number in (pages[0], pages[0], pages[-1])]
    found = readings(steps)
    assert found[-1].restarts_total == 0
    (engine,) = found[-1].snapshot.engines
    return engine


def truth(name: str) -> Counter[str]:
    total: Counter[str] = Counter()
    for phase in recording(name).json("client/truth.json")["truth"].values():
        total.update(phase)
    return total


@check_rows("name", RUNS)
def test_the_whole_run_equals_what_the_simulation_did(name: str) -> None:
    engine, expected = last(name), truth(name)
    assert engine.prompt_tokens_total == expected["prompt_tokens"] > 500_000
    assert engine.decode_tokens_total == expected["gen_tokens"] > 90_000
    assert engine.preemptions_total == expected["retractions"] > 0
    assert sum(engine.requests_finished_total.values()) == expected["finished"]


@pytest.mark.parametrize("name", [name for name, version in RUNS.items() if version in COUNTS_TOKENS])
def test_cached_and_computed_tokens_add_up_to_the_prompts(name: str) -> None:
    engine, expected = last(name), truth(name)
    assert engine.cached_prompt_tokens_total == expected["cached_tokens"]
    assert engine.prefill_tokens_total == expected["prompt_tokens"] - expected["cached_tokens"]
    assert engine.prefix_cache_hit_tokens_total == expected["cached_tokens"]
