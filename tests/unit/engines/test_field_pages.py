"""Pages that strangers sent: what came out of them was wrong, and the right value stands on the page or with whoever made it."""

from __future__ import annotations

import json
import re

import pytest

from llm_serving_exporter.model.snapshot import Absence
from tests.support.paths import TESTS
from tests.support.servers.replica import readings

FIELD = TESTS / "made/field"


def page(name: str) -> str:
    return (FIELD / f"{name}.prom").read_text()


def test_two_replicas_on_a_page_of_federate_are_two_engines() -> None:
    found = readings([{"/metrics": page("federate-two-replicas")}])[0].snapshot
    assert {
        one.engine: (one.requests_running, one.kv_cache_usage_ratio, one.kv_cache_capacity_tokens)
        for one in found.engines
    } == {"chat-0/0": (8, 0.25, 320_000), "chat-1/0": (3, 0.60, 320_000)}


def test_two_deployments_behind_a_front_end_have_the_limit_that_both_state() -> None:
    text = page("dynamo-two-namespaces")
    found = readings([{"/metrics": text}])[0].snapshot
    assert [one.context_limit_tokens for one in found.engines] == [32_768]
    other = re.sub(r'(context_length\{dynamo_namespace="green".*\}) \S+', r"\1 65536", text)
    assert other != text
    reading = readings([{"/metrics": other}])[0]
    assert reading.snapshot.absent["context_limit_tokens"] is Absence.INCONSISTENT
    assert "dynamo_namespace" in reading.missing["context_limit_tokens"]


def test_the_kv_cache_of_a_hybrid_model_is_not_its_fullest_pool() -> None:
    reading = readings([{"/metrics": page("sglang-hybrid-state-pool")}], runtime="sglang")[0]
    (engine,), (derived,) = reading.snapshot.engines, reading.derived.engines
    assert (engine.kv_cache_usage_ratio, engine.state_cache_usage_ratio) == (0.12, 0.92)
    assert derived.kv_cache_used_tokens == 120_000
    assert derived.context_tokens_mean == derived.kv_cache_tokens_per_request == 2000


PARALLEL = {"tensor_parallel_size": 4, "decode_context_parallel_size": 4, "prefill_context_parallel_size": 2}


@pytest.mark.parametrize(
    ("more", "capacity"),
    [
        ({}, 20_000 * 16 * 4 * 2),
        ({"attention_context_parallel_size": 1}, 20_000 * 16 * 4 * 2),
        ({"attention_context_parallel_size": 2}, None),
    ],
)
def test_a_capacity_has_every_factor_or_is_absent(more: dict[str, int], capacity: int | None) -> None:
    info = json.dumps({"vllm_config": {"parallel_config": {**PARALLEL, **more}}})
    text = page("prefill-context-parallel").replace("process_start_time_seconds @START\n", "")
    routes = {"/metrics": text, "/server_info": info, "/version": json.dumps({"version": "0.21.0"})}
    found = readings([routes, routes])[-1]
    (engine,) = found.snapshot.engines
    assert engine.kv_cache_capacity_tokens == capacity
    if capacity is None:
        assert found.snapshot.absent["kv_cache_capacity_tokens"] is Absence.LAYOUT_UNREAD
