"""SGLang's own collector driven by a simulation: what the table reads against what the simulation counted (client/truth.json).

Phases that lie between two quiet pages are compared together: the recording has quiet gaps after the two drains only.
"""

from __future__ import annotations

import pytest

from llm_serving_exporter.engines.registry import RUNTIMES
from llm_serving_exporter.model.snapshot import EngineSnapshot
from tests.support.builders.recordings import page, recording
from tests.support.builders.snapshots import engine_of

SGLANG = RUNTIMES["sglang"]

# the page before and the last page of each stretch (recording's README), and the phases in it
STRETCHES = {
    "saturated": (0, 58, ("light", "saturated", "drain_1")),
    "kv_pressure": (58, 104, ("kv_pressure", "drain_2")),
    "rest": (104, 160, ("prefill_heavy", "decode_heavy", "aborts", "idle_after")),
}


def at(number: int) -> EngineSnapshot:
    return engine_of(page("sglang-0.5.23", number).decode(), "0.5.23", SGLANG)


def truth(phases: tuple[str, ...], what: str) -> float:
    counted = recording("sglang-0.5.23").json("client/truth.json")["truth"]
    return float(sum(counted[phase].get(what, 0) for phase in phases))


def gained(stretch: str, field: str) -> float:
    first, last, _ = STRETCHES[stretch]
    return (getattr(at(last), field) or 0.0) - (getattr(at(first), field) or 0.0)


@pytest.mark.parametrize("stretch", STRETCHES)
def test_hits_and_preemptions_are_exact(stretch: str) -> None:
    phases = STRETCHES[stretch][2]
    assert gained(stretch, "prefix_cache_hit_tokens_total") == truth(phases, "cached_tokens")
    assert gained(stretch, "preemptions_total") == truth(phases, "retractions")


@pytest.mark.parametrize("stretch", ["saturated", "rest"])
def test_computed_prefill_is_exact_without_retractions(stretch: str) -> None:
    phases = STRETCHES[stretch][2]
    computed = truth(phases, "prompt_tokens") - truth(phases, "cached_tokens")
    assert gained(stretch, "prefill_tokens_total") == computed
    assert gained(stretch, "prefix_cache_query_tokens_total") == computed + truth(phases, "cached_tokens")


def test_prefill_after_retractions_is_computed_again() -> None:
    """truth.json does not say how many tokens that is, so it has bounds: nothing was cached in these phases, so that each retracted request
    computed its whole prompt again, and at most also what it had generated; SGLang counts both."""
    phases = STRETCHES["kv_pressure"][2]
    assert truth(phases, "cached_tokens") == 0
    assert total(104, "sglang:num_retracted_requests_total") == truth(phases, "retractions") == 10
    prompts, answers = (total(104, f"sglang:num_retracted_{which}_tokens_total") for which in ("input", "output"))
    again = gained("kv_pressure", "prefill_tokens_total") - truth(phases, "prompt_tokens")
    assert 0 < prompts <= again <= prompts + answers


@pytest.mark.parametrize("stretch", STRETCHES)
def test_live_decode_is_the_simulations_tokens_and_its_first_tokens_once_more(stretch: str) -> None:
    # The simulation books first tokens under mode="decode" (its ITL count + its TTFT count = its decode tokens); SGLang's scheduler
    # books batch_size a decode pass, so that first tokens are missing there and are added from the TTFT count.
    first, last, phases = STRETCHES[stretch]
    begun = first_tokens(last) - first_tokens(first)
    assert begun == truth(phases, "scheduled")
    assert gained(stretch, "decode_tokens_live") == truth(phases, "gen_tokens") + begun


@pytest.mark.parametrize("stretch", ["saturated", "kv_pressure"])
def test_decode_is_exact_where_nothing_was_aborted(stretch: str) -> None:
    assert gained(stretch, "decode_tokens_total") == truth(STRETCHES[stretch][2], "gen_tokens")


def test_decode_lacks_the_tokens_of_aborted_requests() -> None:
    phases = STRETCHES["rest"][2]
    lost = truth(phases, "gen_tokens") - gained("rest", "decode_tokens_total")
    assert 0 < lost <= truth(("aborts",), "gen_tokens")


def test_tokens_between_outputs_and_first_tokens_are_all_tokens() -> None:
    latency = at(160).inter_token_latency_seconds
    phases = tuple(phase for _, _, names in STRETCHES.values() for phase in names)
    assert latency.count + first_tokens(160) == truth(phases, "gen_tokens")


def first_tokens(number: int) -> float:
    """Of all requests, streamed or not, as the page has them."""
    return total(number, "sglang:time_to_first_token_seconds_count")


def total(number: int, sample: str) -> float:
    """All series of a sample on a page, as its lines say it."""
    lines = page("sglang-0.5.23", number).decode().splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith(f"{sample}{{"))


def test_what_is_booked_at_the_end_lacks_aborted_requests() -> None:
    last = at(160)
    phases = tuple(phase for _, _, names in STRETCHES.values() for phase in names)
    assert last.requests_finished_total == {"success": truth(phases, "finished"), "abort": truth(phases, "aborted")}
    # which prompts the aborted requests had, truth.json does not say: no more than was scheduled since decode_heavy began. Of the requests
    # before, all finished: prompts above 3000 tokens are prefill_heavy's, and as many finished as were scheduled
    lengths = last.request_prompt_tokens
    long = lengths.count - lengths.cumulative[lengths.edges.index(3000)]
    assert long == truth(("prefill_heavy",), "scheduled")
    for field, counted in (("prompt_tokens_total", "prompt_tokens"), ("cached_prompt_tokens_total", "cached_tokens")):
        lost = truth(phases, counted) - getattr(last, field)
        assert 0 < lost <= truth(("decode_heavy", "aborts", "idle_after"), counted), field
    assert lengths.sum == last.prompt_tokens_total


def test_steps_are_the_passes_of_all_modes() -> None:
    modes = {
        line.partition('mode="')[2].partition('"')[0]: float(line.split()[-1])
        for line in page("sglang-0.5.23", 160).decode().splitlines()
        if line.startswith("sglang:cuda_graph_passes_total{")
    }
    assert modes.keys() == {"decode_cuda_graph", "prefill_none"}
    assert at(160).engine_steps_total == sum(modes.values())
