"""What a target has cost, tick by tick, through outages, restarts and other prices."""

from __future__ import annotations

from typing import Any

import pytest

from llm_serving_exporter.cost.meter import MOST_NAMES
from llm_serving_exporter.cost.terms import COST, PER_MILLION, SAVINGS, SECONDS, Terms
from llm_serving_exporter.model.cost import TickWork
from llm_serving_exporter.model.hardware import GpuPart, ShareSource, TargetGpus
from llm_serving_exporter.model.reading import State
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.snapshot import Absence
from llm_serving_exporter.model.target import Role
from llm_serving_exporter.model.window import GAP_INTERVALS
from tests.support.builders.costmeter import TARGET, TERMS, WORKED, Bench, page, seconds, usd
from tests.support.builders.target_readings import change_reading, make_reading
from tests.support.rows import check_rows


def test_time_before_the_first_tick_is_nobodys() -> None:
    assert seconds(Bench().work()) == {}


def test_a_busy_tick_costs_what_its_gpus_do() -> None:
    bench = Bench()
    bench.work()
    found = bench.work()
    assert seconds(found) == {"busy": 10.0}
    assert usd(found) == {"prefill": 2.5, "decode": 7.5}
    assert found.signals[COST] == found.signals[SECONDS] == ""


@check_rows(
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
    bench.reading = make_reading(slower, state=State.DOWN, up=False)
    found = bench.tick()
    assert [(one.model_name, one.role) for one in found.engines] == [("m", "decode"), ("n", "decode")]
    assert usd(found, "m") == usd(found, "n") == {"down": 10.0}
    assert found.price is not None
    # a number of GPUs without their kind: the kind is known
    bench.reading = change_reading(bench.reading, total=TargetGpus(2))
    assert usd(bench.tick(), "m") == {"down": 15.0}
    # another number of GPUs, and another server, are not what was known
    bench.reading = make_reading(replace(slower, tensor_parallel_size=4), state=State.DOWN, up=False)
    assert bench.tick().signals[COST] is Absence.GPUS_UNKNOWN
    bench.reading = make_reading(replace(TARGET, url="http://other:8000"), state=State.DOWN, up=False)
    bench.reading = change_reading(bench.reading, total=TargetGpus(1, "H100"))
    assert usd(bench.tick(), "") == {"down": 5.0}


def test_a_page_that_says_nothing_of_work_is_unknown() -> None:
    bench = Bench()
    bench.work()
    silent = page(10, WORKED)
    silent["derivation"] = replace(silent["derivation"], signals={"decode_tokens_total": Absence.NO_METRICS})
    assert seconds(bench.tick(**silent)) == {"unknown": 10.0}


def test_a_tick_that_comes_far_too_late_is_unknown() -> None:
    bench = Bench()
    bench.work()
    late = GAP_INTERVALS * TARGET.interval_seconds + 1
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


def test_a_part_by_memory_holds_as_long_as_the_processes_are_looked_at() -> None:
    """Whom it was divided with has all of the card once nobody knows this one's GPUs any more."""
    bench = Bench(uuids=("a", "b"))
    bench.reading = change_reading(bench.reading, total=TargetGpus(2, "H100", 0.5))
    for source, seconds_more in ((ShareSource.KUBELET, 5.0), (ShareSource.MEMORY, 0.0)):
        parts = {uuid: GpuPart(0.5, source) for uuid in "ab"}
        bench.reading = change_reading(bench.reading, parts=parts, uuids=("a", "b"), total=TargetGpus(2, "H100", 0.5))
        before = sum(seconds(bench.work()).values())
        bench.reading = change_reading(bench.reading, parts={}, uuids=(), total=None)
        assert sum(seconds(bench.work()).values()) - before == seconds_more


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


@pytest.mark.parametrize(
    ("terms", "changes", "why"),
    [
        (replace(TERMS, book=None), {}, Absence.NOT_CONFIGURED),
        (TERMS, {"total": TargetGpus(2, "L4")}, Absence.NO_PRICE),
        (TERMS, {"total": TargetGpus(2, "H100 + L4")}, Absence.PRICE_AMBIGUOUS),
    ],
)
def test_without_a_price_gpu_seconds_go_on_and_the_cost_says_why(
    terms: Terms, changes: dict[str, Any], why: Absence
) -> None:
    bench = Bench(terms)
    bench.reading = change_reading(bench.reading, **changes)
    bench.work()
    found = bench.work()
    assert seconds(found) == {"busy": 10.0}
    assert usd(found) == {}
    assert found.price is None
    assert [found.signals[name] for name in (SECONDS, COST, PER_MILLION, SAVINGS)] == ["", why, why, why]


@check_rows(
    ("terms", "changes", "why"),
    [
        (TERMS, {"total": None}, Absence.GPUS_UNKNOWN),
        (TERMS, {"target": replace(TARGET, gpus=())}, Absence.NOT_CONFIGURED),
        (TERMS, {"target": replace(TARGET, role=Role.FRONTEND)}, Absence.OTHER_ROLE),
        (replace(TERMS, claimed_twice=True), {}, Absence.GPU_CLAIMED_TWICE),
        (TERMS, {"total": TargetGpus(1, "H100", None)}, Absence.GPU_CLAIMED_TWICE),
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
    bench = Bench(uuids=("MIG-1",))
    bench.reading = change_reading(bench.reading, target=replace(TARGET, gpu_share=0.5), total=TargetGpus(1, SLICE))
    bench.work()
    assert sum(usd(bench.work()).values()) == 2.5
