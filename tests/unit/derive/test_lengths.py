"""The last hour or the last 1,000 finished requests, in bounded memory; the long-context tail of their lengths."""

from collections.abc import Iterable, Sequence
from itertools import accumulate, cycle, islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_serving_exporter.derive.lengths import (
    APART_REQUESTS,
    APART_SECONDS,
    MOST_ENGINES,
    SPAN_REQUESTS,
    LengthHistories,
    bound_longest,
    follow_lengths,
    measure_tail,
)
from llm_serving_exporter.model.derived import Range, Tail
from llm_serving_exporter.model.numbers import Histogram, Quantile
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.snapshot import EngineSnapshot, Snapshot

# --- The last hour or the last 1,000 finished requests, whichever is longer: over years, restarts and gaps, in bounded memory


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


# --- The long-context tail from histograms of lengths: worked by hand, and against lists of requests put into buckets


# docs/internals-tail.md works this example by hand
PROMPTS = Histogram((100.0, 1000.0, 10_000.0), (800.0, 980.0, 1000.0), 1000.0, 300_000.0)
OUTPUTS = Histogram((100.0, 1000.0), (900.0, 1000.0), 1000.0, 100_000.0)


def of(prompts: Histogram = PROMPTS, outputs: Histogram | None = OUTPUTS, capacity: float | None = 50_000.0,
       limit: float | None = None) -> Tail:  # fmt: skip
    return measure_tail(prompts, outputs, capacity, limit)


def test_the_longest_1_percent_of_the_prompts_worked_by_hand() -> None:
    """10 requests: the longer half of the 20 between 1,000 and 10,000. Tokens a request, of 1,000."""
    found = bound_longest(PROMPTS, 0.01)
    # the others hold 800 x 100 + 180 x 1000 = 260,000 at most, so the 20 at least 40,000 and the longer half of them half of it
    assert found.lower == pytest.approx(20.0)
    # evenly spread: the upper half of the bucket is 7,750 in the mean; the buckets' middles sum to 249,000 where 300,000 were observed
    assert found.expected == pytest.approx(10 * 7750 * 300 / 249 / 1000)
    # at the upper edge 100,000, less than the 272,000 that the others leave at their lower edges
    assert found.upper == pytest.approx(100.0)


def test_the_sum_bounds_what_the_edges_do_not() -> None:
    """98 of 100 are at most 10, two at most 1000, and all of them together 1300."""
    found = bound_longest(Histogram((10.0, 1000.0), (98.0, 100.0), 100.0, 1300.0), 0.01)
    # the shortest 98 leave the two at least 1300 - 980 = 320, their longer one half of it, and at most 1300 - 10 of the shorter: 1000
    assert found == Range(pytest.approx(1.6), pytest.approx((10 - 2.475) * 1300 / 1500), pytest.approx(10.0))


def test_share_amplification_and_fit_worked_by_hand() -> None:
    found = of()
    assert found.observed == 1000.0
    # the shortest 10 outputs may be empty; the longest 10 have 10 x 1000 at most. All context: 300,000 + 100,000
    assert found.kv_share_ratio == Range(
        pytest.approx(20_000 / 400_000),
        pytest.approx((77_500 * 300 / 249 + 10 * 100) / 400_000),
        pytest.approx((100_000 + 10_000) / 400_000),
    )
    # rank 990 is the tenth of the 20 events between 1,000 and 10,000
    assert found.prompt_p99 == Quantile(5500.0, "")
    assert found.amplification_ratio == pytest.approx(5500 / 300)
    assert found.requests_fit == pytest.approx(
        {"lower": 50_000 / 10_100, "expected": 50_000 / 5600, "upper": 50_000 / 1100}
    )
    assert found.beyond_top_bucket_ratio == 0.0


def test_the_shortest_outputs_count_where_the_sum_says_that_none_is_short() -> None:
    """100 outputs of at most 10 tokens with 991 in all: 99 of them have 990 at most, so that the shortest has one at least."""
    outputs = Histogram((10.0,), (100.0,), 100.0, 991.0)
    prompts = Histogram((10.0,), (100.0,), 100.0, 500.0)
    found = of(prompts, outputs).kv_share_ratio
    # the longest prompt is at least the mean one, 5 tokens
    assert found.lower == pytest.approx((5 + 1) / 1491)
    assert found.upper == pytest.approx((10 + 10) / 1491)


BEYOND = replace(PROMPTS, cumulative=(800.0, 970.0, 985.0))


def test_above_the_top_edge_the_longest_context_bounds_p99() -> None:
    found = of(BEYOND, limit=32_000.0)
    assert found.prompt_p99 == Quantile(10_000.0, "top")
    assert found.requests_fit == pytest.approx({"lower": 50_000 / 32_100, "upper": 50_000 / 10_100})
    assert found.beyond_top_bucket_ratio == pytest.approx(0.015)
    assert found.amplification_ratio == pytest.approx(10_000 / 300)


def test_without_the_longest_context_that_bound_is_absent_and_the_sum_bounds_the_share() -> None:
    found = of(BEYOND)
    assert found.requests_fit == pytest.approx({"upper": 50_000 / 10_100})
    # 170 at 100, 15 at 1,000 and 5 of the 15 beyond at 10,000 leave the longest 10: 300,000 - 82,000
    assert found.kv_share_ratio.upper == pytest.approx((218_000 + 10_000) / 400_000)
    # ten times the edge, and no more is certain
    assert found.kv_share_ratio.lower == pytest.approx(100_000 / 400_000)


def test_a_prompt_is_no_longer_than_the_longest_context() -> None:
    found = of(limit=8192.0)
    assert found.requests_fit["lower"] == pytest.approx(50_000 / 8292)
    assert found.kv_share_ratio.upper == pytest.approx((81_920 + 10_000) / 400_000)


@pytest.mark.parametrize("limit", [1000.0, 900.0, 1100.0])
def test_a_context_limit_that_the_requests_contradict_is_not_used(limit: float) -> None:
    """20 prompts are longer than 1,000; and the sum is more than 800 x 100 + 180 x 1000 + 20 x 1100 with its hundredth."""
    assert of(limit=limit) == replace(of(), context_limit_tokens=limit)


def test_below_the_first_edge_p99_is_at_most_that_edge() -> None:
    short = Histogram((100.0,), (1000.0,), 1000.0, 50_000.0)
    found = of(short)
    assert found.prompt_p99 == Quantile(100.0, "bottom")
    assert found.requests_fit == pytest.approx({"lower": 50_000 / 200, "upper": 50_000 / 100})


def test_fewer_than_a_hundred_requests_have_no_longest_1_percent() -> None:
    few = Histogram((100.0,), (99.0,), 99.0, 5000.0)
    assert of(few) == Tail(99.0, capacity_tokens=50_000.0, prompt_mean=5000.0 / 99)
    assert of(replace(few, cumulative=(100.0,), count=100.0)).amplification_ratio is not None


def test_what_is_not_known_is_absent_and_the_rest_is_there() -> None:
    no_outputs, no_capacity, no_sum = of(outputs=None), of(capacity=None), of(replace(PROMPTS, sum=None))
    assert (no_outputs.kv_share_ratio, no_outputs.requests_fit) == (None, {})
    assert no_outputs.amplification_ratio == of().amplification_ratio
    assert (no_capacity.kv_share_ratio, no_capacity.requests_fit) == (of().kv_share_ratio, {})
    # an exact mean needs the sum, p99 does not
    assert (no_sum.kv_share_ratio, no_sum.amplification_ratio) == (None, None)
    assert no_sum.requests_fit == of().requests_fit


def test_a_histogram_without_buckets_says_how_many_and_no_more() -> None:
    assert of(Histogram((), (), 1000.0, 300_000.0)) == Tail(1000.0, capacity_tokens=50_000.0, prompt_mean=300.0)


@pytest.mark.parametrize("total", [70_000.0, 470_000.0])
def test_a_sum_that_its_buckets_contradict_is_not_believed(total: float) -> None:
    """The lower edges sum to 180 x 100 + 20 x 1000 = 38,000, the upper ones to 460,000."""
    outside = replace(PROMPTS, sum=total if total > 460_000 else 37_000.0)
    assert (of(outside).kv_share_ratio, of(outside).amplification_ratio) == (None, None)
    # a request that is in the sum and not yet in its bucket is no contradiction
    assert of(replace(PROMPTS, sum=460_500.0)).kv_share_ratio is not None


def test_empty_prompts_and_outputs_divide_nothing_by_zero() -> None:
    nothing = Histogram((1.0,), (100.0,), 100.0, 0.0)
    found = of(nothing, nothing)
    assert (found.kv_share_ratio, found.amplification_ratio) == (None, None)
    assert found.requests_fit == {"lower": 50_000.0}


# --- lists of requests ----------------------------------------------------------------------------------------------------

Requests = list[tuple[int, int]]


def bucketed(lengths: Sequence[int], edges: Sequence[float]) -> Histogram:
    counts = [sum(length <= edge for length in lengths) for edge in edges]
    return Histogram(tuple(edges), tuple(map(float, counts)), float(len(lengths)), float(sum(lengths)))


def share_of_longest(requests: Requests, by_total: bool = False) -> float:
    """Their share of all tokens; of the request that the hundredth falls into, a part."""
    ranked = sorted(requests, key=lambda one: one[0] + one[1] if by_total else one[0], reverse=True)
    whole, part = divmod(len(ranked), 100)
    held = sum(map(sum, ranked[:whole])) + (part / 100 * sum(ranked[whole]) if part else 0.0)
    return held / sum(map(sum, ranked))


# powers, so that most are short and a few very long
lengths = st.builds(lambda base, power: base * 4**power, st.integers(1, 9), st.sampled_from((0, 0, 0, 1, 2, 3, 6)))
pairs = st.tuples(lengths, lengths)
# some come once, the others again and again: to draw every one of 250 takes ten times as long
request_lists = st.builds(
    lambda once, often, count: [*once, *islice(cycle(often), count)],
    st.lists(pairs, max_size=10),
    st.lists(pairs, min_size=1, max_size=20),
    st.integers(100, 240),
)
edge_lists = st.lists(st.integers(1, 5000), min_size=1, max_size=8, unique=True).map(sorted)


@pytest.mark.hypothesis
def test_the_truth_lies_between_the_bounds() -> None:
    slacks = st.none() | st.integers(0, 9999)
    given_any = given(requests=request_lists, prompt_edges=edge_lists, output_edges=edge_lists, slack=slacks)
    given_any(check_bounds)()


def check_bounds(requests: Requests, prompt_edges: list[int], output_edges: list[int], slack: int | None) -> None:
    prompts, outputs = [one[0] for one in requests], [one[1] for one in requests]
    limit = None if slack is None else float(max(prompts) + slack)
    found = measure_tail(bucketed(prompts, prompt_edges), bucketed(outputs, output_edges), 100_000.0, limit)
    share, fit, near = found.kv_share_ratio, found.requests_fit, 1e-9
    assert 0 <= share.lower <= share.expected + near
    assert share.expected <= share.upper + near
    assert share.upper <= 1 + near
    for by_total in (False, True):
        assert share.lower - near <= share_of_longest(requests, by_total) <= share.upper + near

    p99 = sorted(prompts)[-(len(prompts) // 100) - 1]  # at least 99 % are no longer
    truth = 100_000.0 / (p99 + sum(outputs) / len(outputs))
    assert fit.get("lower", 0.0) <= truth * (1 + near)
    assert truth <= fit["upper"] * (1 + near)
    assert fit.get("lower", 0.0) <= fit.get("expected", fit["upper"]) * (1 + near)
    assert fit.get("expected", 0.0) <= fit["upper"] * (1 + near)
    assert ("lower" in fit) is (limit is not None or p99 <= prompt_edges[-1])
    assert found.observed == len(requests)
    beyond = sum(prompt > prompt_edges[-1] for prompt in prompts)
    assert found.beyond_top_bucket_ratio == pytest.approx(beyond / len(prompts))


@given(requests=request_lists)
def test_an_edge_at_every_length_leaves_only_the_pairing_unknown(requests: Requests) -> None:
    prompts = [one[0] for one in requests]
    every = sorted({edge for length in prompts for edge in (length - 0.001, length)})
    found = bound_longest(bucketed(prompts, every), 0.01)
    whole, part = divmod(len(prompts), 100)
    ranked = sorted(prompts, reverse=True)
    truth = (sum(ranked[:whole]) + part / 100 * (ranked[whole] if part else 0)) / len(prompts)
    assert found.lower == pytest.approx(truth, abs=0.001)
    assert found.upper == pytest.approx(truth, abs=0.001)


@given(edges=edge_lists, counts=st.lists(st.integers(0, 50), min_size=9, max_size=9), place=st.floats(0, 1))
def test_bounds_are_in_order_for_any_histogram(edges: list[int], counts: list[int], place: float) -> None:
    counts = counts[: len(edges)]
    if not any(counts):
        return
    least = sum(count * low for count, low in zip(counts, (0, *edges), strict=False))
    most = sum(count * high for count, high in zip(counts, edges, strict=True))
    histogram = Histogram(
        tuple(map(float, edges)),
        tuple(accumulate(map(float, counts))),
        float(sum(counts)),
        least + place * (most - least),
    )
    for part in (0.01, 0.5, 0.99, 1.0):
        found = bound_longest(histogram, part)
        assert found.lower <= found.expected + 1e-9
        assert found.expected <= found.upper + 1e-9
        assert found.upper * histogram.count <= histogram.sum + 1e-6
