"""Windows of known steps -> efficiencies; what replicas carry with them."""

from __future__ import annotations

import pytest

from llm_serving_exporter.commands.what_if.capacity import (
    Objective,
    Request,
    Server,
    least_replicas,
    measure_step,
    serve,
)
from llm_serving_exporter.commands.what_if.reach import Reach, Window, fit_reach, step_terms
from llm_serving_exporter.commands.what_if.week import find_first_token_seconds, smooth_peak
from llm_serving_exporter.derive.work import Roof
from llm_serving_exporter.facts.loader import model_facts
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.target import ModelSettings
from tests.support.builders.watchedweek import BATCH_LIMIT, KV_TOKENS, REQUEST, truth

ROOF = truth().roof
TTFT = Objective(0.99, {"ttft": 2.0})


def window(batch: float, prompts_per_step: float, factors: tuple[float, ...], clock: float | None = None) -> Window:
    """Steps of sequences of 1,000 tokens beside prompts of as many, that take what `factors` say."""
    terms = step_terms(ROOF, batch, 1000.0, prompts_per_step, 1000.0)
    return Window(sum(terms.scaled(factors)), batch, 1000.0, 1000.0 * prompts_per_step, 1000.0, clock=clock)


@pytest.mark.parametrize(
    "factors", [(1.25, 1.7, 0.0, 0.0008, 1.0), (1.6, 2.2, 0.9, 0.002, 0.0), (1.1, 1.3, 0.5, 0.0, 0.3)]
)
def test_batches_and_mixes_that_differ_tell_all_of_it(factors: tuple[float, ...]) -> None:
    windows = [window(batch, share, factors) for batch in (1, 4, 16, 64, 128, 256) for share in (0.0, 0.1, 1.0)]
    found = fit_reach(ROOF, windows)
    # what each step takes beside is hard to tell from the weights that each step reads
    assert found.factors[:2] == pytest.approx(factors[:2], rel=0.12)
    asked = window(200, 0.3, factors)
    terms = step_terms(ROOF, 200, 1000.0, 0.3, 1000.0)
    assert sum(terms.scaled(found.factors)) == pytest.approx(asked.step_seconds, rel=0.05)
    assert found.decode["batch"] == (1, 256)
    assert found.prefill["prompt"] == (1000, 1000)


@pytest.mark.parametrize("hidden", [0.0, 1.0])
def test_first_tokens_of_a_small_batch_tell_what_prompts_hide(hidden: float) -> None:
    factors, prompts = (1.25, 1.7, 0.5 * (1 - hidden), 0.001, hidden), 0.02
    alone = step_terms(ROOF, 8, 1000.0, 1 + prompts, 1000.0, steps=1.0)
    windows = [replace(window(8, prompts, factors), first_token_seconds=sum(alone.scaled(factors)))] * 20
    found = fit_reach(ROOF, windows).factors
    assert sum(alone.scaled(found)) == pytest.approx(sum(alone.scaled(factors)), rel=0.02)
    assert (found[4] > 0.5) == (hidden > 0.5)
    # on a real server they take longer than their steps, which tells nothing
    later = [replace(one, first_token_seconds=2 * (one.first_token_seconds or 0)) for one in windows]
    unknown = [replace(one, first_token_seconds=None) for one in windows]
    assert fit_reach(ROOF, later) == fit_reach(ROOF, unknown)


def test_what_first_tokens_took_behind_the_queue() -> None:
    assert find_first_token_seconds(3.0, 20.0, 0.5, 10.0) == pytest.approx(0.1)
    assert find_first_token_seconds(3.0, 20.0, 0.9, 10.0) is None
    assert find_first_token_seconds(3.0, 20.0, None, None) is None


def test_without_windows_nothing_is_measured() -> None:
    found = fit_reach(ROOF, [])
    assert (found, found.windows, dict(found.decode), dict(found.prefill)) == (Reach(), 0, {}, {})


def test_one_window_that_is_like_no_other_does_not_count() -> None:
    usual = [window(16, 0.05, (1.3, 1.7, 0.5, 0.001, 0.0))] * 40
    odd = replace(usual[0], step_seconds=10 * usual[0].step_seconds)
    assert fit_reach(ROOF, [*usual, odd]).factors == pytest.approx(fit_reach(ROOF, usual).factors, rel=1e-3)
    other = window(250, 0.0, (9.0, 1.7, 0.5, 0.001, 0.0))
    assert fit_reach(ROOF, [*usual, other]).factors == pytest.approx(fit_reach(ROOF, usual).factors, rel=1e-3)


def test_what_prompts_reach_under_a_cap_stays_with_its_card() -> None:
    slow = [window(16, 1.0, (1.3, 2.6, 0.5, 0.001, 0.0), clock) for clock in (0.7, 0.8)]
    capped, free = fit_reach(ROOF, slow), fit_reach(ROOF, [replace(one, clock=1.0) for one in slow])
    assert (capped.capped, free.capped) == (True, False)
    assert free.on_another_card() == free
    carried = capped.on_another_card()
    assert carried.factors[0] == capped.factors[0]
    assert carried.factors[1] == Reach().factors[1] < capped.factors[1]
    assert not carried.prefill


def test_the_least_replicas_hold_and_one_less_does_not() -> None:
    for rate in (5.0, 40.0, 300.0):
        found = least_replicas(truth(), REQUEST, TTFT, rate)
        assert found is not None
        count, state = found
        assert state.holds
        less = serve(truth(), REQUEST, TTFT, rate / (count - 1), count - 1) if count > 1 else None
        assert less is None or not less.holds


def test_a_batch_that_hardly_makes_steps_longer_varies_as_arrivals_do() -> None:
    """A mixture of experts reads all of them at any large batch: its rate grows with the batch nearly as a number of servers would."""
    experts = Roof(model_facts(ModelSettings(name="Qwen3-30B-A3B")), ROOF.peaks, ROOF.parallel)
    server, request = (
        replace(truth(), roof=experts, batch_limit=128, kv_tokens=None),
        Request(200.0, 0.0, 800.0, 600.0, 700.0),
    )
    full = measure_step(server, request, 128)
    state = serve(server, request, TTFT, 0.85 * full.requests_per_second, 1)
    assert state is not None
    assert state.holds
    # lengths of what holds the KV cache scatter besides
    limited = replace(server, kv_tokens=128 * request.held)
    less = serve(limited, request, TTFT, 0.85 * full.requests_per_second, 1)
    assert less is not None
    assert (less.holds, less.binds) == (False, "ttft")


def test_replicas_that_share_prompts_wait_less() -> None:
    prompts, held = Request(6000.0, 0.0, 20.0, 6010.0, 6020.0), []
    for replicas in (1, 4):
        rate = 0.8 / measure_step(truth(), prompts, 1).prompt_seconds
        state = serve(truth(), prompts, TTFT, rate, replicas)
        assert state is not None
        held.append(state.holds)
    assert held == [False, True]


def test_a_pool_that_only_prefills_carries_what_its_prompts_take() -> None:
    server = replace(truth(), kv_tokens=None)
    seconds = step_terms(ROOF, 0, 0, 1.0, 2000.0).scaled(server.reach.factors)[1]
    carried = [
        measure_step(server, Request(2000, 0, output, 2000, 2000), 256).requests_per_second
        for output in (1.0, 1.01, 1.9, 2.0)
    ]
    # what steps take beside their prompts is little, and an answer of two tokens takes one step too
    assert carried == pytest.approx([1 / seconds] * 4, rel=0.03)


def test_what_binds() -> None:
    def binds(server: Server, request: Request) -> str:
        found = least_replicas(server, request, TTFT, 40.0)
        assert found is not None
        return found[1].binds

    answers, prompts = Request(50.0, 0.0, 800.0, 450.0, 460.0), Request(6000.0, 0.0, 20.0, 6010.0, 6020.0)
    assert binds(replace(truth(), batch_limit=16), answers) == "batch limit"
    assert binds(replace(truth(), kv_tokens=8000.0), answers) == "KV cache"
    assert binds(truth(), prompts) == "compute"
    assert truth().batch_limit == BATCH_LIMIT
    assert truth().kv_tokens == KV_TOKENS


def test_an_objective_that_one_request_misses_is_held_by_no_number() -> None:
    assert least_replicas(truth(), REQUEST, Objective(0.99, {"ttft": 0.001}), 1.0) is None


def test_a_burst_stays_and_chance_is_smoothed() -> None:
    calm = [10.0 + 0.1 * (-1) ** place for place in range(400)]
    assert smooth_peak(calm, 0.99) == pytest.approx(10.0, abs=0.05)
    assert smooth_peak([*calm[:200], *[30.0] * 20, *calm[220:]], 0.99) == pytest.approx(30.0)
    # what fewer requests than the objective leaves out come in
    assert smooth_peak([*calm[:200], 30.0, *calm[201:]], 0.99) < 11


def test_a_prompt_touches_experts_that_a_small_batch_does_not() -> None:
    experts = Roof(model_facts(ModelSettings(name="Qwen3-30B-A3B")), ROOF.peaks, ROOF.parallel)
    for roof, grows in ((ROOF, False), (experts, True)):
        alone, beside = (step_terms(roof, 4, 1000.0, prompts, 1000.0) for prompts in (0.0, 1.0))
        assert (beside.memory > alone.memory) == grows
