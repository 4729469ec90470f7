"""What a target has cost, tick by tick, through outages, restarts, other prices and energy counters."""

from __future__ import annotations

import sys
import threading
from dataclasses import replace
from typing import Any

import pytest

from llm_serving_exporter.config.types import Config
from llm_serving_exporter.cost_meter import (
    COST,
    ENERGY,
    LATE_INTERVALS,
    MOST_NAMES,
    PER_MILLION,
    PER_REQUEST,
    PER_TOKEN,
    SAVINGS,
    SECONDS,
    CostMeter,
    Terms,
)
from llm_serving_exporter.costs import Costs, cards_of, claimed_twice, claims_of
from llm_serving_exporter.model.attempt import Attempt, Stage
from llm_serving_exporter.model.cost import Attribution, TargetCost, TickWork
from llm_serving_exporter.model.derived import Derived, EngineDerived
from llm_serving_exporter.model.device import GpuReading, GpuReadings, MigInstance
from llm_serving_exporter.model.hardware import TargetGpus
from llm_serving_exporter.model.prices import Power, PriceBook, PriceStatement, Rate, RateKind, Scope
from llm_serving_exporter.model.snapshot import Absence, EngineSnapshot, Snapshot
from llm_serving_exporter.model.target import Role, Target
from llm_serving_exporter.store import State, TargetReading
from tests.unit.test_golden import GPU

# 3600 USD an hour: a USD a GPU second; twice that from second 1000 on
BOOK = PriceBook(
    (
        PriceStatement(Scope.GPU_MODEL, "H100", 3600.0, "owned"),
        PriceStatement(Scope.GPU_MODEL, "H100", 7200.0, "owned", 1000.0),
    ),
    (Rate("owned", RateKind.OWNED, includes_power=False),),
    Power(0.36, 1.0, 1000.0),
)
TERMS = Terms(BOOK, Attribution(), 60.0)
TARGET = Target("t", "http://h:8000", nodes=("a",), interval_seconds=5.0)
WORKED = TickWork(True, {"prefill": 1.0, "decode": 3.0}, 100.0, 10.0, cached_seconds=0.5)


def page(at: float, tick: TickWork | None, *names: str, **counters: float) -> dict[str, Any]:
    """A good page with one engine of each name, all of which did the same."""
    every = names or ("m",)
    engines = tuple(EngineSnapshot(name, "0", requests_running=1.0, **counters) for name in every)
    derived = Derived(tuple(EngineDerived(name, "0", tick=tick) for name in every), 60.0, {}, {})
    return {"up": True, "state": State.READY, "snapshot": Snapshot(engines, "vllm", at, at), "derived": derived}


class Bench:
    """A meter whose ticks are five seconds apart."""

    def __init__(self, terms: Terms = TERMS, **reading: Any) -> None:
        self.meter, self.terms, self.now = CostMeter(), terms, 0.0
        self.reading = TargetReading(TARGET, target_gpus=TargetGpus(2, "H100"), **reading)

    def tick(self, *, seconds: float = 5.0, gpus: GpuReadings | None = None, **changes: Any) -> TargetCost:
        self.now += seconds
        self.reading = replace(self.reading, **changes)
        return self.meter.advance(self.reading, gpus, self.terms, monotonic=self.now, unix=self.now)

    def work(self, tick: TickWork | None = WORKED, *names: str, **counters: float) -> TargetCost:
        return self.tick(**page(self.now + 5, tick, *names, **counters))


def usd(found: TargetCost, name: str = "m") -> dict[str, float]:
    totals = next(one.totals for one in found.engines if one.model_name == name)
    return {phase: amount for (phase, _, _), amount in totals.usd.items() if amount}


def seconds(found: TargetCost, name: str = "m") -> dict[str, float]:
    totals = next(one.totals for one in found.engines if one.model_name == name)
    return {state: amount for (state, _), amount in totals.gpu_seconds.items() if amount}


def test_time_before_the_first_tick_is_nobodys() -> None:
    assert seconds(Bench().work()) == {}


def test_a_busy_tick_costs_what_its_gpus_do() -> None:
    bench = Bench()
    bench.work()
    found = bench.work()
    assert seconds(found) == {"busy": 10.0}
    assert usd(found) == {"prefill": 2.5, "decode": 7.5}
    assert found.signals[COST] == found.signals[SECONDS] == ""


@pytest.mark.parametrize(
    ("state", "place", "phase"),
    [
        (State.LOADING, "idle", "idle"),
        (State.SLEEPING, "idle", "idle"),
        (State.DOWN, "down", "down"),
        (State.UNKNOWN, "unknown", "unattributed"),
    ],
)
def test_a_target_that_does_not_answer_goes_on_costing_under_its_last_name(
    state: State, place: str, phase: str
) -> None:
    bench = Bench()
    bench.work()
    found = bench.tick(up=False, state=state)
    assert seconds(found) == {place: 10.0}
    assert usd(found) == {phase: 10.0}


def test_a_target_that_never_answered_costs_under_its_configured_name() -> None:
    bench = Bench(state=State.DOWN, up=False)
    bench.reading = replace(bench.reading, target=replace(TARGET, model_name="meant"))
    bench.tick()
    assert usd(bench.tick(), "meant") == {"down": 10.0}


def test_a_target_that_is_configured_anew_while_it_is_down_goes_on_costing_under_its_names() -> None:
    bench = Bench(page_role=Role.DECODE)
    bench.work(WORKED, "m", "n")
    bench.tick(up=False, state=State.DOWN)
    # a reload begins with an empty reading
    slower = replace(TARGET, interval_seconds=6.0)
    bench.reading = TargetReading(slower, State.DOWN, up=False)
    found = bench.tick()
    assert [(one.model_name, one.role) for one in found.engines] == [("m", "decode"), ("n", "decode")]
    assert usd(found, "m") == usd(found, "n") == {"down": 10.0}
    assert found.price is not None
    # a number of GPUs without their kind: the kind is known
    bench.reading = replace(bench.reading, target_gpus=TargetGpus(2))
    assert usd(bench.tick(), "m") == {"down": 15.0}
    # another number of GPUs, and another server, are not what was known
    bench.reading = TargetReading(replace(slower, tensor_parallel_size=4), State.DOWN, up=False)
    assert bench.tick().signals[COST] is Absence.GPUS_UNKNOWN
    bench.reading = TargetReading(replace(TARGET, url="http://other:8000"), State.DOWN, up=False)
    bench.reading = replace(bench.reading, target_gpus=TargetGpus(1, "H100"))
    assert usd(bench.tick(), "") == {"down": 5.0}


def test_a_page_that_says_nothing_of_work_is_unknown() -> None:
    bench = Bench()
    bench.work()
    silent = page(10, WORKED)
    silent["derived"] = replace(silent["derived"], signals={"decode_tokens_total": Absence.NO_METRICS})
    assert seconds(bench.tick(**silent)) == {"unknown": 10.0}


def test_a_tick_that_comes_far_too_late_is_unknown() -> None:
    bench = Bench()
    bench.work()
    late = LATE_INTERVALS * TARGET.interval_seconds + 1
    found = bench.tick(seconds=late, **page(bench.now + late, WORKED))
    assert seconds(found) == {"unknown": 2 * late}
    assert usd(found) == {"unattributed": 2 * late}


def test_another_price_counts_from_its_moment_on() -> None:
    bench = Bench()
    bench.now = 985.0
    for _ in range(5):
        found = bench.work()
    # ticks end at 990 (the first), 995, 1000, 1005, 1010: 10 USD, then three at twice the price
    assert sum(usd(found).values()) == pytest.approx(10 + 20 + 20 + 20)
    assert found.price is not None
    assert found.price.usd_per_gpu_hour == 7200.0


def test_engines_of_one_target_share_its_gpus() -> None:
    bench = Bench()
    bench.work(WORKED, "m", "n")
    found = bench.work(WORKED, "m", "n")
    assert seconds(found, "m") == seconds(found, "n") == {"busy": 5.0}
    # its pages do not count tokens: that is not rest
    assert found.signals[PER_MILLION] is Absence.INPUT_MISSING


def test_a_share_of_the_gpus_costs_its_share() -> None:
    bench = Bench()
    bench.reading = replace(bench.reading, target=replace(TARGET, gpu_share=0.25))
    bench.work()
    assert sum(usd(bench.work()).values()) == pytest.approx(2.5)


def test_an_engine_that_is_renamed_keeps_what_the_old_name_cost() -> None:
    bench = Bench()
    bench.work(WORKED, "m")
    bench.work(WORKED, "m")
    found = bench.work(WORKED, "n")
    assert (sum(usd(found, "m").values()), sum(usd(found, "n").values())) == (10.0, 10.0)
    for number in range(3 * MOST_NAMES):
        found = bench.work(WORKED, f"n{number}")
    assert len(found.engines) == MOST_NAMES


WAITS = TickWork(True, {})


def test_what_waits_under_a_name_that_is_gone_is_unattributed() -> None:
    bench = Bench()
    bench.work(WAITS, "m")
    assert usd(bench.work(WAITS, "m")) == {}
    found = bench.work(WORKED, "n")
    assert (usd(found, "m"), usd(found, "n")) == ({"unattributed": 10.0}, {"prefill": 2.5, "decode": 7.5})
    bench.work(WAITS, "n")
    # and where nothing is counted any more
    found = bench.tick(target=replace(TARGET, gpus=()))
    assert usd(found, "n")["unattributed"] == 10.0


def test_a_name_is_not_forgotten_with_what_waits_under_it() -> None:
    bench = Bench()
    first = [f"a{number}" for number in range(MOST_NAMES)]
    other = [f"b{number}" for number in range(MOST_NAMES)]
    bench.work(WAITS, *first)
    bench.work(WAITS, *first)
    found = bench.work(WAITS, *other)
    assert sum(usd(found, name)["unattributed"] for name in first) == pytest.approx(10.0)
    assert len(bench.work(WAITS, *other).engines) == MOST_NAMES


def test_restarts_of_the_engine_lose_nothing() -> None:
    bench = Bench()
    for tick in (WORKED, TickWork(True, {})):
        bench.work(tick)
    # what the old life had not booked yet is unattributed; the first page of the new one tells that something runs
    found = bench.tick(restarts_total=1, **page(15, TickWork(True, {})))
    assert usd(found) == {"unattributed": 10.0}
    found = bench.work()
    assert usd(found) == {"unattributed": 10.0, "prefill": 5.0, "decode": 15.0}


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
        found = bench.tick(**{**silent, "derived": replace(silent["derived"], signals=signals)})
        assert found.signals[PER_MILLION] is found.signals[PER_REQUEST] is why


def energy(**joules: float | None) -> GpuReadings:
    gpus = tuple(
        GpuReading(replace(GPU.identity, uuid=uuid), energy_joules_total=value) for uuid, value in joules.items()
    )
    return GpuReadings(Attempt(Stage.GPU, None, "", 0.0, 0.0), "nvml", 0.0, gpus)


def test_energy_of_all_gpus_of_the_target() -> None:
    bench = Bench(gpu_uuids=("a", "b"))
    bench.tick(gpus=energy(a=1e6, b=5e6), **page(5, WORKED))
    found = bench.tick(gpus=energy(a=2.8e6, b=6.8e6), **page(10, WORKED)).engines[0].totals
    # 1 kWh: 36 cents, a kilogram
    assert (found.energy_joules, found.energy_usd, found.carbon_grams) == (3.6e6, pytest.approx(0.36), 1000.0)
    # a driver that was loaded anew counts from 0: what it counted before the last look is not known
    found = bench.tick(gpus=energy(a=100.0, b=6.8e6), **page(15, WORKED)).engines[0].totals
    assert found.energy_joules == 3.6e6


def test_energy_while_a_gpu_does_not_answer_is_made_up_for_whole() -> None:
    bench = Bench(gpu_uuids=("a", "b"))
    bench.tick(gpus=energy(a=100.0, b=100.0), **page(5, WORKED))
    bench.tick(gpus=energy(a=150.0, b=None), **page(10, WORKED))
    found = bench.tick(gpus=energy(a=200.0, b=200.0), **page(15, WORKED)).engines[0].totals
    assert found.energy_joules == 200.0


def test_energy_that_others_used_of_a_gpu_is_theirs() -> None:
    bench = Bench(gpu_uuids=("a", "b"))
    bench.tick(gpus=energy(a=0.0, b=0.0, c=0.0), **page(5, WORKED))
    bench.tick(gpus=energy(a=10.0, b=10.0, c=10.0), **page(10, WORKED), gpu_uuids=("a", "c"))
    found = bench.tick(gpus=energy(a=20.0, b=900.0, c=20.0), **page(15, WORKED), gpu_uuids=("a", "b"))
    # ten joules of a in each of two ticks; b was somebody else's meanwhile
    assert found.engines[0].totals.energy_joules == 20.0
    bench.tick(gpus=energy(a=30.0, b=None, c=20.0), **page(20, WORKED), gpu_uuids=("b", "c"))
    found = bench.tick(gpus=energy(a=9000.0, b=901.0, c=900.0), **page(25, WORKED), gpu_uuids=("a", "b"))
    assert found.engines[0].totals.energy_joules == 21.0


def test_energy_of_some_of_the_gpus_is_not_the_targets() -> None:
    bench = Bench(gpu_uuids=("a",))
    bench.tick(gpus=energy(a=1.0), **page(5, WORKED))
    found = bench.tick(gpus=energy(a=2.0), **page(10, WORKED))
    assert found.engines[0].totals.energy_joules is None
    assert (found.signals[ENERGY], found.signals[PER_TOKEN]) == (Absence.GPUS_UNKNOWN, Absence.GPUS_UNKNOWN)
    bench = Bench(gpu_uuids=("a", "b"))
    bench.work()
    assert bench.tick(gpus=energy(a=1.0, b=None), **page(10, WORKED)).signals[ENERGY] is Absence.NOT_EXPORTED


def test_savings_of_the_prefix_cache() -> None:
    bench = Bench()
    bench.work()
    # half a second of two GPUs at a USD a second, in each of two ticks
    assert bench.work().engines[0].totals.savings_usd == 2.0
    bench = Bench()
    assert bench.work(TickWork(True, {})).signals[SAVINGS] is Absence.INPUT_MISSING


@pytest.mark.parametrize(
    ("terms", "changes", "why"),
    [
        (replace(TERMS, book=None), {}, Absence.NOT_CONFIGURED),
        (TERMS, {"target_gpus": TargetGpus(2, "L4")}, Absence.NO_PRICE),
        (TERMS, {"target_gpus": TargetGpus(2, "H100 + L4")}, Absence.PRICE_AMBIGUOUS),
    ],
)
def test_without_a_price_gpu_seconds_go_on_and_the_cost_says_why(
    terms: Terms, changes: dict[str, Any], why: Absence
) -> None:
    bench = Bench(terms)
    bench.reading = replace(bench.reading, **changes)
    bench.work()
    found = bench.work()
    assert seconds(found) == {"busy": 10.0}
    assert usd(found) == {}
    assert found.price is None
    assert [found.signals[name] for name in (SECONDS, COST, PER_MILLION, SAVINGS)] == ["", why, why, why]


@pytest.mark.parametrize(
    ("terms", "changes", "why"),
    [
        (TERMS, {"target_gpus": None}, Absence.GPUS_UNKNOWN),
        (TERMS, {"target": replace(TARGET, gpus=())}, Absence.NOT_CONFIGURED),
        (TERMS, {"target": replace(TARGET, role=Role.FRONTEND)}, Absence.OTHER_ROLE),
        (replace(TERMS, claimed_twice=True), {}, Absence.GPU_CLAIMED_TWICE),
        (TERMS, {"gpu_uuids": ("MIG-1",)}, Absence.GPU_CLAIMED_TWICE),
    ],
)
def test_without_gpus_of_its_own_there_is_nothing(terms: Terms, changes: dict[str, Any], why: Absence) -> None:
    bench = Bench(terms)
    bench.tick(**changes)
    found = bench.work()
    assert found.engines == ()
    assert set(found.signals.values()) == {why}


# as gpu_facts names it, of a card that the price file names
SLICE = "H100 MIG 1g.10gb"


def test_a_slice_of_a_card_costs_the_share_that_is_stated() -> None:
    bench = Bench(gpu_uuids=("MIG-1",))
    bench.reading = replace(bench.reading, target=replace(TARGET, gpu_share=0.5), target_gpus=TargetGpus(1, SLICE))
    bench.work()
    assert sum(usd(bench.work()).values()) == 2.5


def test_slices_claim_their_card() -> None:
    mig = MigInstance(1, 0, "1g.10gb", "GPU-1", 1, 8)
    identities = (replace(GPU.identity, uuid="GPU-1"), replace(GPU.identity, uuid="MIG-1", mig=mig))
    gpus = GpuReadings(
        Attempt(Stage.GPU, None, "", 0.0, 0.0), "nvml", 0.0, tuple(GpuReading(one) for one in identities)
    )
    assert cards_of(("MIG-1", "GPU-2"), gpus) == {"GPU-1", "GPU-2"}
    assert cards_of(("MIG-1",), None) == {"MIG-1"}


def test_who_claims_a_gpu_twice() -> None:
    claims = {"a": ["1", "2"], "b": ["2"], "c": ["3"], "d": ["4"], "e": ["4"], "f": ["5"], "g": ["5"]}
    shares = {"d": 0.5, "e": 0.5, "f": 0.8, "g": 0.4}
    targets = {name: replace(TARGET, name=name, gpu_share=shares.get(name)) for name in claims}
    assert claimed_twice(claims, targets) == {"a", "b", "f", "g"}


def test_targets_that_their_processes_show_on_the_same_gpu_have_no_cost_until_shares_are_stated() -> None:
    costs, config = Costs(), Config(targets=(), prices=BOOK)
    ready = TargetReading(TARGET, target_gpus=TargetGpus(2, "H100"), **page(0, WORKED))

    def found(target: Target) -> dict[str, Absence]:
        return dict(costs.after(replace(ready, target=target), None, config, monotonic=5.0, unix=5.0).cost.signals)

    other = replace(TARGET, name="other")
    costs.keep(["t", "other"])
    uuids = {"t": ("GPU-1", "GPU-2"), "other": ("GPU-2",)}
    costs.claim([TARGET, other], uuids)
    assert found(TARGET)[COST] == found(other)[COST] == Absence.GPU_CLAIMED_TWICE
    # one of the two has stopped, and the other's processes use the GPUs now
    costs.claim([TARGET, other], {"t": (), "other": ("GPU-2",)}, ["t", "gone"])
    assert (found(TARGET)[COST], found(other)[COST]) == (Absence.GPU_CLAIMED_TWICE, "")
    shared = [replace(TARGET, gpu_share=0.5), replace(other, gpu_share=0.5)]
    costs.claim(shared, uuids)
    assert found(shared[0])[COST] == found(shared[1])[COST] == ""


def test_a_tick_under_way_does_not_bring_a_removed_target_back() -> None:
    costs, config = Costs(), Config(targets=(), prices=BOOK)
    ready = TargetReading(TARGET, target_gpus=TargetGpus(2, "H100"), **page(0, WORKED))

    def after(monotonic: float) -> TargetReading:
        return costs.after(ready, None, config, monotonic=monotonic, unix=monotonic)

    assert after(0.0) is ready
    costs.keep(["t"])
    after(5.0)
    assert usd(after(10.0).cost) == {"prefill": 2.5, "decode": 7.5}
    costs.keep(["other"])
    assert after(15.0) is ready
    # an hour later it is there again, under another configuration: the hour was nobody's
    costs.keep(["t", "other"])
    assert seconds(after(3600.0).cost) == {}
    # and two ticks that overtook one another count no second twice
    assert seconds(after(3598.0).cost) == {}
    assert seconds(after(3605.0).cost) == {"busy": 10.0}


def test_targets_come_and_go_while_ticks_are_under_way() -> None:
    costs, config, names = Costs(), Config(targets=(), prices=BOOK), [f"t{number}" for number in range(200)]
    ready = TargetReading(TARGET, target_gpus=TargetGpus(2, "H100"), **page(0, WORKED))
    faults: list[BaseException] = []
    done = threading.Event()

    def tick() -> None:
        try:
            while not done.is_set():
                for name in names:
                    costs.after(
                        replace(ready, target=replace(TARGET, name=name)), None, config, monotonic=1.0, unix=1.0
                    )
        except BaseException as error:
            faults.append(error)

    threads = [threading.Thread(target=tick) for _ in range(2)]
    switched = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for number in range(5000):
            costs.keep(names[number % 100 :])
    finally:
        done.set()
        sys.setswitchinterval(switched)
        for thread in threads:
            thread.join(10)
    assert faults == []


def test_what_a_target_claims() -> None:
    configured = replace(TARGET, gpus=(0, "GPU-12345678"))
    assert claims_of(configured, ()) == {"a 0", "GPU-12345678"}
    assert claims_of(configured, ("GPU-1",)) == {"GPU-1"}
    assert claims_of(TARGET, ()) == set()
