"""Standstill, page by page: the cases of LLMServingStalled (tests/pack), and what is none. Truth by construction."""

import pytest

from llm_serving_exporter.catalogue import standstill as declared
from llm_serving_exporter.catalogue.health import ASKED_WHETHER_LIVE
from llm_serving_exporter.derive.derive import derive
from llm_serving_exporter.derive.figures import DeriveSettings
from llm_serving_exporter.derive.standstill import Standstill, advance_standstill, measure_standstill, says_it_at_once
from llm_serving_exporter.model.derived import Limiter
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.snapshot import EngineSnapshot, Quality, Snapshot
from llm_serving_exporter.model.window import EngineWindow, Window
from llm_serving_exporter.settings.config import LimiterConfig
from tests.support.builders.windows import engine
from tests.support.paths import ROOT
from tests.support.rows import check_rows
from tests.support.yaml_text import load_yaml

STEP = 5.0
SPAN = declared.SPAN_SECONDS


def follow(pages: list[EngineSnapshot]) -> Standstill:
    """What is known after pages that are five seconds apart."""
    found = None
    for number, last in enumerate(pages):
        tick = EngineWindow((pages[number - 1], last), STEP) if number else None
        found = advance_standstill(found, tick, last, number * STEP)
    assert found is not None
    return found


def page(done: float = 100.0, running: float = 3.0, waiting: float = 0.0, **more: object) -> EngineSnapshot:
    return engine(decoded=done, steps=done, prefill=done, requests_running=running, requests_waiting=waiting, **more)


def still_for(seconds: float, **more: object) -> list[EngineSnapshot]:
    return [page(0.0), page(), *[page(**more) for _ in range(int(seconds / STEP))]]


def test_a_hung_engine_stands_still_once_the_span_is_over() -> None:
    assert measure_standstill(follow(still_for(SPAN - STEP)), SPAN) is None
    assert measure_standstill(follow(still_for(SPAN)), SPAN) == SPAN


def test_a_long_prefill_is_no_standstill() -> None:
    """128 Ki tokens at 2,000 a second: 65 s without a token, a step or a finish."""
    assert measure_standstill(follow(still_for(65.0)), SPAN) is None


def test_an_engine_at_rest_does_not_stand_still() -> None:
    assert measure_standstill(follow(still_for(4 * SPAN, running=0.0)), SPAN) is None


def test_requests_that_only_wait_count() -> None:
    assert measure_standstill(follow(still_for(SPAN, running=0.0, waiting=2.0)), SPAN) == SPAN


@pytest.mark.parametrize("moves", ["engine_steps_total", "prefill_tokens_total", "decode_tokens_total"])
def test_whatever_moves_ends_it(moves: str) -> None:
    pages = still_for(SPAN)
    pages.append(replace(pages[-1], **{moves: getattr(pages[-1], moves) + 1}))
    assert measure_standstill(follow(pages), SPAN) is None


def test_a_finish_is_progress_and_an_abort_is_none() -> None:
    pages = still_for(SPAN, requests_finished_total={"stop": 5.0, "abort": 0.0})
    pages[:2] = [replace(one, requests_finished_total={"stop": 5.0, "abort": 0.0}) for one in pages[:2]]
    gave_up = replace(pages[-1], requests_finished_total={"stop": 5.0, "abort": 1.0})
    finished = replace(pages[-1], requests_finished_total={"stop": 6.0, "abort": 0.0})
    assert measure_standstill(follow([*pages, gave_up]), SPAN) == SPAN + STEP
    assert measure_standstill(follow([*pages, finished]), SPAN) is None


def test_requests_that_come_and_go_count_over_twice_the_span() -> None:
    """Clients give up after a minute and others come: at every third page nobody is there."""
    turns = [page(running=0.0 if number % 3 == 2 else 2.0) for number in range(int(2 * SPAN / STEP))]
    assert measure_standstill(follow([page(0.0), page(), *turns[: len(turns) // 2]]), SPAN) is None
    assert measure_standstill(follow([page(0.0), page(), *turns]), SPAN) == 2 * SPAN
    # seldom there: that is little traffic, not a standstill
    seldom = [page(running=2.0 if number % 3 == 2 else 0.0) for number in range(int(2 * SPAN / STEP))]
    assert measure_standstill(follow([page(0.0), page(), *seldom]), SPAN) is None


def test_clients_that_give_up_without_being_let_in_count() -> None:
    turns = [
        page(running=0.0, requests_finished_total={"abort": float(min(3, number // 20))})
        for number in range(int(2 * SPAN / STEP))
    ]
    begun = [page(0.0), page(requests_finished_total={"abort": 0.0})]
    assert measure_standstill(follow([*begun, *turns]), SPAN) == 2 * SPAN
    fewer = [replace(one, requests_finished_total={"abort": 2.0}) for one in turns]
    assert measure_standstill(follow([*begun, *fewer]), SPAN) is None


def test_a_gap_begins_a_new_count() -> None:
    before = follow(still_for(SPAN))
    assert measure_standstill(advance_standstill(before, None, page(), 10_000.0), SPAN) is None


@check_rows(
    ("quality", "says"),
    [
        ({}, True),
        ({"requests_running": Quality.SLOW}, False),
        ({"decode_tokens_total": Quality.LAGGING}, True),
        ({"decode_tokens_total": Quality.LAGGING, "engine_steps_total": Quality.SLOW}, False),
    ],
)
def test_only_live_signals_tell(quality: dict[str, Quality], says: bool) -> None:
    assert says_it_at_once(page(), quality) is says
    assert not says_it_at_once(replace(page(), requests_running=None), {})


def test_an_engine_that_was_put_to_sleep_does_not_stand_still() -> None:
    assert not says_it_at_once(replace(page(), awake=0.0), {})
    assert says_it_at_once(replace(page(), awake=1.0), {})


def test_the_limiter_calls_it_stalled_after_the_span_and_its_hold() -> None:
    states: list[Limiter] = []
    before = None
    pages = still_for(SPAN + 60)
    for number in range(2, len(pages) + 1):
        recent = pages[max(0, number - 13) : number]
        first = number - len(recent)
        snapshots = tuple(
            Snapshot((one,), "vllm", 1e9 + (first + place) * STEP, (first + place) * STEP)
            for place, one in enumerate(recent)
        )
        before = derive(Window(snapshots), DeriveSettings(), before)
        states.append(before.verdict.state)
    assert Limiter.STALLED not in states[: int(SPAN / STEP)]
    assert states[-1] is Limiter.STALLED
    assert before.verdict.evidence["standstill_seconds"] >= SPAN


def test_rule_and_limiter_rest_on_one_declaration() -> None:
    settings = load_yaml((ROOT / "alerts/llm_serving_alerts/settings.yml").read_text())
    assert settings["alerts"]["Stalled"]["range"] == "5m"
    assert SPAN == 300.0 == LimiterConfig().stalled_after_seconds
    (expr,) = [
        rule["expr"]
        for group in load_yaml((ROOT / "alerts/rendered/alerts.yml").read_text())["groups"]
        for rule in group["rules"]
        if rule.get("alert") == "LLMServingStalled"
    ]
    assert all(name in expr for name in (*declared.MOVES, declared.SAYS_WHAT_RUNS, *declared.SAYS_WHAT_IS_DONE))
    assert f">= {declared.GIVEN_UP_FROM}" in expr
    assert {declared.SAYS_WHAT_RUNS, *declared.SAYS_WHAT_IS_DONE} <= ASKED_WHETHER_LIVE
