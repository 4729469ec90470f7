"""What the meter says of a window: USD per million tokens and per request, energy, and what the prefix cache saved."""

from __future__ import annotations

from typing import Any

import pytest

from llm_serving_exporter.cost.terms import ENERGY, PER_MILLION, PER_REQUEST, PER_TOKEN, SAVINGS
from llm_serving_exporter.model.cost import TargetCost, TickWork
from llm_serving_exporter.model.gpu import GpuReading, GpuReadings
from llm_serving_exporter.model.hardware import GpuPart, ShareSource, TargetGpus
from llm_serving_exporter.model.reading import State
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.sample import Attempt, Stage
from llm_serving_exporter.model.snapshot import Absence
from tests.support.builders.costmeter import TERMS, WORKED, Bench, page, usd
from tests.support.builders.golden_pages import GPU
from tests.support.builders.target_readings import change_reading


def test_figures_of_the_window() -> None:
    bench = Bench()
    counted = {"prefill_tokens_total": 0.0, "decode_tokens_total": 0.0, "prompt_tokens_total": 0.0}
    bench.work(WORKED, "m", **counted)
    found = bench.work(WORKED, "m", prefill_tokens_total=5e6, decode_tokens_total=1e6, prompt_tokens_total=9e6).engines[
        0
    ]
    # 2.5 USD of prefill over 5 million computed tokens, 7.5 of decode over 1 million; 10 over 10 million in all
    assert found.window.usd_per_million_tokens == {
        ("prefill", "busy"): 0.5,
        ("prefill", "allocated"): 0.5,
        ("decode", "busy"): 7.5,
        ("decode", "allocated"): 7.5,
        ("blended", "busy"): 1.0,
        ("blended", "allocated"): 1.0,
    }
    assert found.window.tokens_per_usd == 1e6


def test_the_window_moves_on_and_starts_anew_with_the_engine() -> None:
    bench = Bench()
    for number in range(40):
        found = bench.work(
            WORKED, "m", prefill_tokens_total=number, decode_tokens_total=number, prompt_tokens_total=number
        )
    # 12 ticks of 10 USD over 12 + 12 tokens
    assert found.engines[0].window.tokens_per_usd == pytest.approx(24 / 120)
    reborn = page(bench.now + 5, WORKED, prefill_tokens_total=1, decode_tokens_total=1, prompt_tokens_total=1)
    assert bench.tick(restarts_total=1, **reborn).engines[0].window.tokens_per_usd is None
    down = bench.tick(up=False, state=State.DOWN)
    assert down.signals[PER_MILLION] is Absence.TARGET_DOWN


COUNTED = ("prefill_tokens_total", "decode_tokens_total", "prompt_tokens_total")


def served(bench: Bench, done: float, tick: TickWork = WORKED, **changes: Any) -> TargetCost:
    """A tick after which `done` of each token, and requests, were counted in all."""
    shown = page(bench.now + 5, tick, **dict.fromkeys(COUNTED, done))
    (engine,) = shown["snapshot"].engines
    with_requests = replace(engine, requests_finished_total={"stop": done})
    return bench.tick(**{**shown, "snapshot": replace(shown["snapshot"], engines=(with_requests,)), **changes})


def test_time_that_could_not_be_split_gives_tokens_no_price_and_requests_one() -> None:
    bench = Bench()
    blind = TickWork(True, None, 100.0, 10.0)
    served(bench, 0.0, blind)
    found = served(bench, 1e6, blind)
    assert usd(found) == {"unattributed": 10.0}
    assert found.engines[0].window.usd_per_million_tokens == {}
    assert found.signals[PER_MILLION] is Absence.INPUT_MISSING
    assert found.engines[0].window.usd_per_request == pytest.approx(1e-5)
    assert found.signals[PER_REQUEST] == ""


def test_a_price_that_is_withdrawn_takes_the_windows_figures_with_it() -> None:
    bench = Bench()
    served(bench, 0.0)
    assert served(bench, 1e6).signals[PER_MILLION] == ""
    bench.terms = replace(TERMS, book=None)
    found = served(bench, 2e6)
    assert found.engines[0].window.usd_per_million_tokens == {}
    assert found.engines[0].window.usd_per_request is None
    assert [found.signals[name] for name in (PER_MILLION, PER_REQUEST, SAVINGS)] == [Absence.NOT_CONFIGURED] * 3


def test_a_price_that_begins_within_the_window_is_over_the_tokens_since_only() -> None:
    bench = Bench(replace(TERMS, book=None))
    for number in range(6):
        served(bench, number * 1e6)
    bench.terms = TERMS
    found = served(bench, 6e6).engines[0].window
    # a tick of 10 USD, of a million of each
    assert found.usd_per_million_tokens["blended", "allocated"] == pytest.approx(5.0)
    assert found.usd_per_request == pytest.approx(1e-5)


def test_time_in_which_nothing_was_counted_is_not_in_the_window() -> None:
    bench = Bench()
    served(bench, 0.0)
    served(bench, 1e6)
    bench.terms = replace(TERMS, claimed_twice=True)
    served(bench, 9e6)
    bench.terms = TERMS
    assert served(bench, 10e6).signals[PER_MILLION] is Absence.WARMING_UP
    found = served(bench, 11e6).engines[0].window
    assert found.usd_per_million_tokens["blended", "allocated"] == pytest.approx(5.0)


def test_rest_is_what_counters_show_that_are_there() -> None:
    bench = Bench()
    served(bench, 5.0, TickWork(False, {}))
    found = served(bench, 5.0, TickWork(False, {}))
    assert found.signals[PER_MILLION] is found.signals[PER_REQUEST] is Absence.IDLE
    silent = page(bench.now + 5, WORKED)
    for why in (Absence.NO_METRICS, Absence.IDLE):
        signals = dict.fromkeys((*COUNTED, "requests_finished_total"), why)
        found = bench.tick(**{**silent, "derivation": replace(silent["derivation"], signals=signals)})
        assert found.signals[PER_MILLION] is found.signals[PER_REQUEST] is why


def energy(**joules: float | None) -> GpuReadings:
    gpus = tuple(
        GpuReading(replace(GPU.identity, uuid=uuid), energy_joules_total=value) for uuid, value in joules.items()
    )
    return GpuReadings(Attempt(Stage.GPU, None, "", 0.0, 0.0), "nvml", 0.0, gpus)


def test_energy_of_all_gpus_of_the_target() -> None:
    bench = Bench(uuids=("a", "b"))
    bench.tick(gpus=energy(a=1e6, b=5e6), **page(5, WORKED))
    found = bench.tick(gpus=energy(a=2.8e6, b=6.8e6), **page(10, WORKED)).engines[0].totals
    # 1 kWh: 36 cents, a kilogram
    assert (found.energy_joules, found.energy_usd, found.carbon_grams) == (3.6e6, pytest.approx(0.36), 1000.0)
    # a driver that was loaded anew counts from 0: what it counted before the last look is not known
    found = bench.tick(gpus=energy(a=100.0, b=6.8e6), **page(15, WORKED)).engines[0].totals
    assert found.energy_joules == 3.6e6


def test_energy_while_a_gpu_does_not_answer_is_made_up_for_whole() -> None:
    bench = Bench(uuids=("a", "b"))
    bench.tick(gpus=energy(a=100.0, b=100.0), **page(5, WORKED))
    bench.tick(gpus=energy(a=150.0, b=None), **page(10, WORKED))
    found = bench.tick(gpus=energy(a=200.0, b=200.0), **page(15, WORKED)).engines[0].totals
    assert found.energy_joules == 200.0


def test_energy_that_others_used_of_a_gpu_is_theirs() -> None:
    bench = Bench(uuids=("a", "b"))
    bench.tick(gpus=energy(a=0.0, b=0.0, c=0.0), **page(5, WORKED))
    bench.tick(gpus=energy(a=10.0, b=10.0, c=10.0), **page(10, WORKED), uuids=("a", "c"))
    found = bench.tick(gpus=energy(a=20.0, b=900.0, c=20.0), **page(15, WORKED), uuids=("a", "b"))
    # ten joules of a in each of two ticks; b was somebody else's meanwhile
    assert found.engines[0].totals.energy_joules == 20.0
    bench.tick(gpus=energy(a=30.0, b=None, c=20.0), **page(20, WORKED), uuids=("b", "c"))
    found = bench.tick(gpus=energy(a=9000.0, b=901.0, c=900.0), **page(25, WORKED), uuids=("a", "b"))
    assert found.engines[0].totals.energy_joules == 21.0


def test_energy_of_gpus_that_are_shared_unevenly_is_of_each_its_own_share() -> None:
    """A whole card that works beside a quarter of one that others heat: a mean share of the sum would be 0.625 of 1,400 J."""
    bench = Bench(uuids=("a", "b"), parts={"b": GpuPart(0.25, ShareSource.KUBELET)})
    bench.reading = change_reading(bench.reading, total=TargetGpus(2, "H100", 0.625))
    bench.tick(gpus=energy(a=0.0, b=0.0), **page(5, WORKED))
    found = bench.tick(gpus=energy(a=400.0, b=1000.0), **page(10, WORKED)).engines[0].totals
    assert found.energy_joules == pytest.approx(400.0 + 250.0)
    # what is stated is of each card
    stated = replace(bench.reading, target=replace(bench.reading.target, gpu_share=0.5))
    bench.reading = stated
    found = bench.tick(gpus=energy(a=500.0, b=1200.0), **page(15, WORKED)).engines[0].totals
    assert found.energy_joules == pytest.approx(650.0 + 50.0 + 100.0)


def test_energy_of_some_of_the_gpus_is_not_the_targets() -> None:
    bench = Bench(uuids=("a",))
    bench.tick(gpus=energy(a=1.0), **page(5, WORKED))
    found = bench.tick(gpus=energy(a=2.0), **page(10, WORKED))
    assert found.engines[0].totals.energy_joules is None
    assert (found.signals[ENERGY], found.signals[PER_TOKEN]) == (Absence.GPUS_UNKNOWN, Absence.GPUS_UNKNOWN)
    bench = Bench(uuids=("a", "b"))
    bench.work()
    assert bench.tick(gpus=energy(a=1.0, b=None), **page(10, WORKED)).signals[ENERGY] is Absence.NOT_EXPORTED


def test_savings_of_the_prefix_cache() -> None:
    bench = Bench()
    bench.work()
    # half a second of two GPUs at a USD a second, in each of two ticks
    assert bench.work().engines[0].totals.savings_usd == 2.0
    bench = Bench()
    assert bench.work(TickWork(True, {})).signals[SAVINGS] is Absence.INPUT_MISSING
