"""What the limiter makes of requests that wait: whether the next would fit, and whether they wait for room at all."""

import pytest

from llm_serving_exporter.derive.limiter import Judged, decide_limiter, gather_evidence
from llm_serving_exporter.engines.registry import RUNTIMES
from llm_serving_exporter.model.derived import Limiter, Roofline
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.window import EngineWindow
from tests.support.builders.snapshots import engine_of
from tests.support.builders.windows import window
from tests.support.rows import check_rows

LLAMACPP = RUNTIMES["llamacpp"]


def of_waiting(one: EngineWindow, **more: object) -> dict[str, float]:
    return gather_evidence([Judged(one, Roofline(), one, **more)])


def test_a_prompt_that_waits_is_held_against_what_is_free() -> None:
    """20 prompts of 8 % of the KV cache each, 7 % free; with half of each prompt in the prefix cache 4 % do."""
    waits = {"requests_waiting": 20.0, "kv_cache_usage_ratio": 0.93, "kv_cache_capacity_tokens": 100_000.0}
    found = of_waiting(window(**waits), prompt_tokens=8000.0)
    assert found["next_prompt_kv"] == pytest.approx(8 / 7)
    assert decide_limiter(found) is Limiter.KV_CAPACITY
    cached = window(**waits, prefix_cache_queries=1000.0, prefix_cache_hits=500.0)
    first = replace(cached.first, prefix_cache_queries=0.0, prefix_cache_hits=0.0)
    found = of_waiting(EngineWindow((first, cached.last), 60.0), prompt_tokens=8000.0)
    assert found["next_prompt_kv"] == pytest.approx(4 / 7)
    assert decide_limiter(found) is Limiter.UNKNOWN
    # nothing free at all is a number, too
    full = of_waiting(window(**{**waits, "kv_cache_usage_ratio": 1.0}), prompt_tokens=8000.0)
    assert decide_limiter(full) is Limiter.KV_CAPACITY


def test_what_is_not_known_of_a_prompt_that_waits_is_no_evidence() -> None:
    waits = {"requests_waiting": 20.0, "kv_cache_usage_ratio": 0.93, "kv_cache_capacity_tokens": 100_000.0}
    assert "next_prompt_kv" not in of_waiting(window(**waits))
    assert "next_prompt_kv" not in of_waiting(window(requests_waiting=9.0, kv_cache_usage_ratio=0.9), prompt_tokens=8e3)
    # where nobody waits there is no next prompt
    assert "next_prompt_kv" not in of_waiting(window(**{**waits, "requests_waiting": 0.0}), prompt_tokens=8000.0)


@check_rows(
    ("connector", "receives", "state"),
    [
        (1.0, False, Limiter.TRANSFER),
        (None, True, Limiter.TRANSFER),
        (None, False, Limiter.BLOCKED),
        (0.0, False, Limiter.BLOCKED),
    ],
)
def test_deferred_requests_wait_for_a_transfer_only_where_there_is_one(
    connector: float | None, receives: bool, state: Limiter
) -> None:
    waits = window(requests_waiting=5.0, requests_deferred=5.0, kv_connector=connector)
    assert decide_limiter(of_waiting(waits, receives_kv=receives)) is state


def test_llamacpps_requests_deferred_only_means_queued() -> None:
    """Its page says no reason: its queue is `requests_waiting`, and nothing is deferred."""
    page = "llamacpp:requests_processing 4\nllamacpp:requests_deferred 9\n"
    one = engine_of(page, runtime=LLAMACPP)
    assert (one.requests_waiting, one.requests_deferred) == (9.0, None)


def test_a_gauge_of_running_requests_that_is_contradicted_is_no_evidence_of_room_in_the_batch() -> None:
    waits = window(requests_running=0.0, requests_waiting=9.0, batch_limit_requests=16.0)
    assert of_waiting(waits)["batch_utilization"] == 0.0
    assert "batch_utilization" not in of_waiting(waits, contradicted=True)
