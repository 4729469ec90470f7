"""The last hour or the last 1,000 finished requests, whichever is longer: over years, restarts and gaps, in bounded memory."""

from collections.abc import Iterable

import pytest

from llm_serving_exporter.derive.lengths import (
    APART_REQUESTS,
    APART_SECONDS,
    MOST_ENGINES,
    SPAN_REQUESTS,
    LengthHistories,
    follow_lengths,
)
from llm_serving_exporter.model.derived import Tail
from llm_serving_exporter.model.numbers import Histogram
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.snapshot import EngineSnapshot, Snapshot

SHORT, LONG = 50.0, 5000.0
EDGES = (100.0, 10_000.0)
HOUR, DAY = 3600.0, 86_400.0
STARTED = 1_795_000_000.0
KEY = ("m", "0")
# the engine ran for long before the exporter saw it, unless a test says otherwise
OLD = STARTED - 30 * DAY


class Engine:
    """Counts what it finished: requests of SHORT and LONG prompts, outputs of 10 tokens."""

    def __init__(self, start: float | None = OLD, short: float = 0.0, long: float = 0.0) -> None:
        self.start, self.short, self.long = start, short, long

    def page(self, at: float, edges: tuple[float, float] = EDGES, **changes: object) -> Snapshot:
        count = self.short + self.long
        prompts = Histogram(edges, (self.short, count), count, self.short * SHORT + self.long * LONG)
        outputs = Histogram((10.0,), (count,), count, 10 * count)
        engine = EngineSnapshot("m", "0", request_prompt_tokens=prompts, request_generation_tokens=outputs)
        return Snapshot((replace(engine, **changes),), "vllm", STARTED + at, at, self.start)


def tail_of(histories: LengthHistories) -> Tail:
    return histories[KEY].tail


def walked(histories: LengthHistories, pages: Iterable[Snapshot]) -> LengthHistories:
    for page in pages:
        histories = follow_lengths(histories, page)
    return histories


def test_a_young_engine_is_seen_from_its_start() -> None:
    engine = Engine(start=STARTED - HOUR / 2, short=4000.0)
    assert tail_of(follow_lengths({}, engine.page(0.0))).observed == 4000.0


def test_an_engine_that_has_finished_no_more_than_a_thousand_is_seen_from_its_start() -> None:
    assert tail_of(follow_lengths({}, Engine(short=1000.0).page(0.0))).observed == 1000.0
    assert tail_of(follow_lengths({}, Engine(start=None, short=1000.0).page(0.0))).observed == 1000.0


@pytest.mark.parametrize("start", [OLD, None])
def test_what_an_old_engine_counted_before_may_be_of_any_age_and_is_left_out(start: float | None) -> None:
    engine = Engine(start, short=50_000.0)
    histories = follow_lengths({}, engine.page(0.0))
    assert tail_of(histories).observed == 0.0
    engine.long += 150
    # the figures appear as soon as there are enough requests for any, within the minute
    histories = follow_lengths(histories, engine.page(5.0))
    assert tail_of(histories).observed == 150.0
    assert tail_of(histories).amplification_ratio == pytest.approx((100 + 9900 * 0.99) / LONG)


def test_of_a_busy_engine_it_is_the_last_hour() -> None:
    """A request a second, long ones in the first hour only."""
    engine, histories = Engine(), {}
    for minute in range(180):
        engine.long += 60 * (minute < 60)
        engine.short += 60 * (minute >= 60)
        histories = follow_lengths(histories, engine.page(60.0 * minute))
        if minute == 59:
            assert tail_of(histories).observed == pytest.approx(3600, abs=60)
    found = tail_of(histories)
    # no shorter than the hour, and longer by no more than the points are apart
    assert 3600 <= found.observed <= 3600 + APART_SECONDS + 60
    assert histories[KEY].points[0].lengths.prompts.cumulative[0] > 0  # begins after the last long one


def test_of_a_quiet_engine_it_is_the_last_thousand() -> None:
    """A request in ten minutes: a week has 1,008."""
    engine, histories = Engine(), {}
    for ten_minutes in range(3000):
        engine.long += ten_minutes < 1000
        engine.short += ten_minutes >= 1000
        histories = follow_lengths(histories, engine.page(600.0 * ten_minutes))
        if ten_minutes == 999:
            assert tail_of(histories).observed == 1000.0
        if ten_minutes == 1999:
            assert 1000 <= tail_of(histories).observed <= 1000 + 2 * APART_REQUESTS
    assert histories[KEY].points[0].lengths.prompts.cumulative[0] > 0


def test_an_idle_hour_makes_the_window_longer_again() -> None:
    engine, histories = Engine(), {}
    for minute in range(90):
        engine.short += 100
        histories = follow_lengths(histories, engine.page(60.0 * minute))
    assert tail_of(histories).observed >= 6000
    for minute in range(90, 180):
        histories = follow_lengths(histories, engine.page(60.0 * minute))
    assert 1000 <= tail_of(histories).observed <= 1000 + 100 * (APART_SECONDS / 60 + 1)


@pytest.mark.e2e
def test_a_simulated_year_stays_bounded() -> None:
    """Traffic from none to a burst of 100 a second, with gaps, read every half hour, some hours every minute."""
    engine, histories, now = Engine(), {}, 0.0
    most = 0
    per_step = (0, 0, 1, 3, 60, 0, 2000, 1, 0, 60_000)
    step = 0
    while now < 365 * DAY:
        now += 60.0 if step % 500 < 100 else 1800.0
        step += 1
        engine.short += per_step[step // 40 % len(per_step)]
        histories = follow_lengths(histories, engine.page(now))
        most = max(most, len(histories[KEY].points))
        assert tail_of(histories).observed >= min(1000.0, engine.short)
    assert most <= HOUR / APART_SECONDS + SPAN_REQUESTS / APART_REQUESTS + 4


def test_engines_that_come_and_go_are_forgotten_when_they_are_too_many() -> None:
    histories: LengthHistories = {}
    for replica in range(500):
        page = Engine(short=10.0).page(float(replica))
        histories = follow_lengths(histories, replace(page, engines=(replace(page.engines[0], engine=f"r{replica}"),)))
        assert len(histories) <= MOST_ENGINES
    assert ("m", "r499") in histories


def test_what_was_counted_before_a_restart_stays() -> None:
    engine = Engine(short=50_000.0)
    histories = walked({}, [engine.page(0.0)])
    engine.long += 400
    # the last page before the restart need not be one at which figures were worked out
    histories = walked(histories, [engine.page(5.0), engine.page(10.0)])
    engine.long += 50
    histories = follow_lengths(histories, engine.page(15.0))
    fresh = Engine(start=STARTED + 60.0, short=150.0)
    histories = follow_lengths(histories, fresh.page(90.0), new_life=True)
    assert tail_of(histories).observed == 400 + 50 + 150
    # of 600 requests 450 are long
    assert tail_of(histories).kv_share_ratio is not None
    fresh.short += 1000
    assert tail_of(follow_lengths(histories, fresh.page(160.0))).observed == 1600


def test_a_restarted_engine_whose_lengths_come_with_its_first_request() -> None:
    histories = follow_lengths({}, Engine(short=300.0).page(0.0))
    silent = Engine(start=STARTED + 60.0).page(70.0, request_prompt_tokens=None, request_generation_tokens=None)
    histories = follow_lengths(histories, silent, new_life=True)
    histories = follow_lengths(histories, Engine(start=STARTED + 60.0, short=7.0).page(140.0))
    assert tail_of(histories).observed == 307


def test_restarts_one_after_another_lose_nothing_that_a_page_showed() -> None:
    histories = follow_lengths({}, Engine(short=200.0).page(0.0))
    for life in range(1, 30):
        at = life * 100.0
        histories = follow_lengths(histories, Engine(start=STARTED + at - 9, short=10.0).page(at), new_life=True)
    assert tail_of(histories).observed == 200 + 29 * 10


def test_other_edges_start_anew() -> None:
    histories = follow_lengths({}, Engine(short=300.0).page(0.0))
    changed = Engine(start=STARTED + 60.0, short=20.0).page(90.0, edges=(100.0, 50_000.0))
    assert tail_of(follow_lengths(histories, changed, new_life=True)).observed == 20


def test_a_new_life_that_has_counted_for_hours_is_not_taken_for_this_hours() -> None:
    histories = follow_lengths({}, Engine(short=300.0).page(0.0))
    other = Engine(start=STARTED - DAY, short=90_000.0)
    histories = follow_lengths(histories, other.page(10.0), new_life=True)
    assert tail_of(histories).observed == 0


def test_outputs_that_are_missing_for_a_moment_are_as_they_were() -> None:
    engine = Engine(short=300.0)
    histories = follow_lengths({}, engine.page(0.0, kv_cache_capacity_tokens=1e5))
    before = tail_of(histories)
    histories = follow_lengths(
        histories, engine.page(70.0, request_generation_tokens=None, kv_cache_capacity_tokens=1e5)
    )
    assert tail_of(histories) == before


def test_outputs_that_are_born_later_count_from_zero() -> None:
    engine = Engine(short=300.0)
    histories = follow_lengths({}, engine.page(0.0, request_generation_tokens=None))
    assert tail_of(histories).kv_share_ratio is None
    assert tail_of(follow_lengths(histories, engine.page(70.0))).kv_share_ratio is not None


def test_figures_are_worked_out_once_a_minute() -> None:
    engine = Engine(short=300.0)
    histories = follow_lengths({}, engine.page(0.0))
    engine.short += 10
    soon = follow_lengths(histories, engine.page(59.0))
    assert soon[KEY].tail is histories[KEY].tail
    assert tail_of(follow_lengths(soon, engine.page(60.0))).observed == 310


def test_a_capacity_or_a_limit_that_comes_to_be_known_is_used_at_once() -> None:
    engine = Engine(short=300.0)
    histories = follow_lengths({}, engine.page(0.0))
    assert tail_of(histories).requests_fit == {}
    histories = follow_lengths(histories, engine.page(5.0, kv_cache_capacity_tokens=11_000.0))
    assert tail_of(histories).requests_fit["lower"] == pytest.approx(11_000 / 110)
    histories = follow_lengths(
        histories, engine.page(10.0, kv_cache_capacity_tokens=11_000.0, context_limit_tokens=90.0)
    )
    assert tail_of(histories).requests_fit["lower"] == pytest.approx(11_000 / 100)


def test_a_count_that_fell_without_a_restart_being_seen_begins_anew() -> None:
    histories = follow_lengths({}, Engine(short=900.0).page(0.0))
    assert tail_of(follow_lengths(histories, Engine(short=100.0).page(5.0))).observed == 100
