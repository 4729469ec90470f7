"""The window: what it spans, when it starts anew, counters that fall or are too coarse, and what is remembered from page to page."""

import pytest

from llm_serving_exporter.derive.history import (
    PAGES_OF_A_RESTART,
    Advanced,
    Continued,
    Held,
    History,
    PageOrigin,
    Reset,
    Restarted,
    add_to_window,
    advance,
    begin_life,
    drop_frozen,
    follow_page,
    has_moved,
    hold_counters,
)
from llm_serving_exporter.derive.phases import is_coarse
from llm_serving_exporter.derive.window import (
    LAGGING_SECONDS,
    LONGEST_SECONDS,
    MOST_COUNTS,
    MOST_SNAPSHOTS,
    Counts,
    advance_window,
    are_of_a_restart,
    find_falls,
    find_spans,
    forget_fallen,
    has_restarted,
    leave_out_fallen,
    merge_counts,
    read_counts,
    reads_otherwise,
)
from llm_serving_exporter.model.numbers import Histogram
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.snapshot import Absence, EngineSnapshot, Quality, Snapshot
from llm_serving_exporter.model.window import EngineWindow, Spans, Window
from tests.support.builders.windows import engine
from tests.support.rows import check_rows

# --- The window: what it spans, and when it starts anew


ENGINE = EngineSnapshot("m", "0", decode_tokens_total=100.0, requests_finished_total={"stop": 5.0})


def at(seconds: float, engine: EngineSnapshot = ENGINE, start: float | None = 1000.0, **more: object) -> Snapshot:
    return Snapshot((engine,), "vllm", 1e9 + seconds, seconds, start, **more)


def grow(*snapshots: Snapshot, span: float = 60.0) -> tuple[Window, list[bool]]:
    window: Window | None = None
    restarts = []
    for snapshot in snapshots:
        restarts.append(window is not None and has_restarted(window.later, snapshot))
        window = advance_window(None if restarts[-1] else window, snapshot, Spans(span))
    assert window is not None
    return window, restarts


def test_the_window_starts_at_the_newest_snapshot_that_is_a_span_old() -> None:
    window, _ = grow(*(at(5.0 * tick) for tick in range(40)))
    assert window.snapshots[0].monotonic_seconds == 135.0
    assert window.later.monotonic_seconds == 195.0
    assert window.engines()[0].elapsed_seconds == 60.0
    assert len(window.snapshots) == 13


def test_after_an_outage_the_old_readings_are_dropped() -> None:
    window, restarts = grow(at(0), at(5), at(500))
    assert [snapshot.monotonic_seconds for snapshot in window.snapshots] == [500]
    assert restarts == [False, False, False]
    short, _ = grow(at(0), at(5), at(100))
    assert short.engines()[0].elapsed_seconds == 95.0


@pytest.mark.parametrize(
    "after", [replace(ENGINE, decode_tokens_total=99.0), replace(ENGINE, requests_finished_total={"stop": 4.0})]
)
def test_a_counter_that_falls_is_a_restart(after: EngineSnapshot) -> None:
    window, restarts = grow(at(0), at(5), at(10, after))
    assert restarts == [False, False, True]
    assert len(window.snapshots) == 1


def test_a_histogram_that_falls_is_a_restart() -> None:
    engine = EngineSnapshot("m", "0", decode_tokens_total=0.0)
    before = replace(engine, e2e_request_latency_seconds=Histogram((1.0,), (3.0,), 3.0, 2.0))
    after = replace(engine, e2e_request_latency_seconds=Histogram((1.0,), (1.0,), 1.0, 0.5))
    assert grow(at(0, before), at(5, after))[1] == [False, True]


def test_another_process_start_is_a_restart_even_where_counters_caught_up() -> None:
    assert grow(at(0), at(5, start=1030.0))[1] == [False, True]
    assert grow(at(0), at(5, start=1000.01))[1] == [False, False]
    assert grow(at(0, start=None), at(5, start=1030.0))[1] == [False, False]


def test_a_reason_that_a_page_leaves_out_has_not_fallen() -> None:
    before = replace(ENGINE, requests_finished_total={"stop": 5.0, "abort": 1.0})
    after = replace(ENGINE, requests_finished_total={"stop": 6.0})
    assert grow(at(0, before), at(5, after))[1] == [False, False]


def test_an_engine_that_comes_or_goes_is_no_restart() -> None:
    two = Snapshot((ENGINE, replace(ENGINE, engine="1", decode_tokens_total=1.0)), "vllm", 1e9, 5.0, 1000.0)
    window, restarts = grow(at(0), two, at(10))
    assert restarts == [False, False, False]
    assert window.engines()[0].elapsed_seconds == 10.0
    joined, _ = grow(at(0), two)
    assert [engine.elapsed_seconds for engine in joined.engines()] == [5.0, 0.0]


def test_a_counter_worked_out_as_a_difference_may_dip_without_a_restart() -> None:
    high, low = replace(ENGINE, prefill_tokens_total=50.0), replace(ENGINE, prefill_tokens_total=42.0)
    may_fall = frozenset({"prefill_tokens_total"})
    assert grow(at(0, high, may_fall=may_fall), at(5, low, may_fall=may_fall))[1] == [False, False]


def test_where_it_is_counted_a_fall_is_a_restart() -> None:
    engine = EngineSnapshot("m", "0", decode_tokens_total=100.0)
    high, low = replace(engine, prefill_tokens_total=50.0), replace(engine, prefill_tokens_total=42.0)
    assert grow(at(0, high), at(5, low))[1] == [False, True]


def test_a_server_that_names_nothing_until_its_first_request_has_restarted_all_the_same() -> None:
    """Dynamo's worker shows its engine's families, and with them the model's name, only from the first request on."""
    known = Snapshot((EngineSnapshot("tiny", "0", decode_tokens_total=900.0),), "any", 0.0, 0.0)
    unnamed = Snapshot((EngineSnapshot("", "0"),), "any", 5.0, 5.0)
    back = Snapshot((EngineSnapshot("tiny", "0", decode_tokens_total=20.0),), "any", 10.0, 10.0)
    counted = merge_counts(read_counts(known), read_counts(unnamed))
    assert not has_restarted(known, unnamed)
    assert has_restarted(unnamed, back, counted)
    grown = replace(back, engines=(replace(back.engines[0], decode_tokens_total=901.0),))
    assert not has_restarted(unnamed, grown, counted)


def test_a_server_whose_counters_are_born_with_their_first_event_has_restarted_all_the_same() -> None:
    """SGLang, TGI and Dynamo's front end show gauges first: the first page of the new life has nothing that fell."""
    finished = at(0, replace(ENGINE, e2e_request_latency_seconds=Histogram((1.0,), (40.0,), 50.0, 60.0)))
    gauges = at(5, EngineSnapshot("m", "0", requests_running=1.0))
    counted = merge_counts(read_counts(finished), read_counts(gauges))
    assert not has_restarted(finished, gauges)
    assert has_restarted(gauges, at(10, replace(ENGINE, decode_tokens_total=99.0)), counted)
    fewer = EngineSnapshot("m", "0", requests_finished_total={"stop": 1.0})
    assert has_restarted(gauges, at(10, fewer), counted)
    again = EngineSnapshot("m", "0", e2e_request_latency_seconds=Histogram((1.0,), (1.0,), 1.0, 0.5))
    assert has_restarted(gauges, at(10, again), counted)
    assert not has_restarted(gauges, at(10, ENGINE), counted)


def test_what_is_remembered_of_engines_that_are_gone_is_bounded() -> None:
    counted: Counts = {}
    for number in range(MOST_COUNTS):
        counted = merge_counts(counted, read_counts(at(number, replace(ENGINE, model_name=f"m{number}"))))
        assert len(counted) <= MOST_COUNTS + 2


@pytest.mark.parametrize("field", ["decode_tokens_total", "requests_finished_total", "inter_token_latency_seconds"])
def test_a_field_that_comes_from_other_samples_cannot_be_subtracted(field: str) -> None:
    one, other = at(0, sources={field: 1}), at(5, sources={field: 2})
    assert reads_otherwise(one, other)
    assert not reads_otherwise(one, at(5, sources={field: 1, "prompt_tokens_total": 0}))
    assert not reads_otherwise(one, at(5, sources={}))


def test_a_gauge_that_comes_from_other_samples_is_not_subtracted() -> None:
    assert not reads_otherwise(at(0, sources={"requests_running": 1}), at(5, sources={"requests_running": 2}))


def test_a_field_that_is_read_otherwise_is_no_restart() -> None:
    """SGLang's decode tokens before its first decode pass are of another counter."""
    before = at(0, replace(ENGINE, decode_tokens_total=100.0), sources={"decode_tokens_total": 1})
    after = at(5, replace(ENGINE, decode_tokens_total=3.0), sources={"decode_tokens_total": 0})
    assert not has_restarted(before, after)
    assert has_restarted(before, replace(after, sources={"decode_tokens_total": 1}))


# --- How long a window has to be where an engine books late or refreshes slowly


LAGGING = {"decode_tokens_total": Quality.LAGGING}


def snapshot(
    quality: dict[str, Quality] | None = None, at: float = 0.0, refresh: float = 0.0, **engine: object
) -> Snapshot:
    one = EngineSnapshot("m", "0", decode_tokens_total=at, **engine)
    return Snapshot(
        (one,),
        "any",
        at,
        at,
        quality=quality or {},
        refreshed_every={"decode_tokens_total": refresh} if refresh else {},
    )


def took(seconds: float, requests: float = 1000.0) -> Histogram:
    """Every request took between this and half of it."""
    return Histogram((seconds / 2, seconds), (0.0, requests), requests, requests * seconds * 0.75)


def test_live_counters_keep_the_configured_window() -> None:
    assert find_spans(60.0, snapshot()).longest_seconds == 60.0


def test_tokens_booked_at_the_end_need_several_of_the_longest_requests() -> None:
    # p99 of a uniform half to whole: 0.995 x the whole
    assert find_spans(60.0, snapshot(LAGGING, e2e_request_latency_seconds=took(40.0))).longest_seconds == pytest.approx(
        4 * 39.8
    )


def test_of_several_engines_the_one_with_the_longest_requests_counts() -> None:
    one = snapshot(LAGGING, e2e_request_latency_seconds=took(20.0))
    other = replace(one.engines[0], engine="1", e2e_request_latency_seconds=took(40.0))
    assert find_spans(60.0, replace(one, engines=(*one.engines, other))).longest_seconds == pytest.approx(4 * 39.8)


def test_prefill_booked_at_the_end_needs_it_too() -> None:
    late = {"prefill_tokens_total": Quality.LAGGING}
    assert find_spans(60.0, snapshot(late)).longest_seconds == LAGGING_SECONDS
    # what is counted live are the tokens that answers have
    assert find_spans(60.0, snapshot(late, decode_tokens_live=5.0)).longest_seconds == LAGGING_SECONDS


def test_short_requests_do_not_shorten_it_and_long_ones_have_an_end() -> None:
    assert find_spans(60.0, snapshot(LAGGING, e2e_request_latency_seconds=took(1.0))).longest_seconds == 60.0
    assert (
        find_spans(60.0, snapshot(LAGGING, e2e_request_latency_seconds=took(4000.0))).longest_seconds == LONGEST_SECONDS
    )
    assert find_spans(900.0, snapshot(LAGGING, e2e_request_latency_seconds=took(4000.0))).longest_seconds == 900.0


def test_without_request_durations_five_minutes() -> None:
    assert find_spans(60.0, snapshot(LAGGING)).longest_seconds == LAGGING_SECONDS


def test_a_live_count_of_tokens_under_way_makes_it_needless() -> None:
    assert find_spans(60.0, snapshot(LAGGING, decode_tokens_live=5.0)).longest_seconds == 60.0


def test_hits_booked_at_the_end_of_what_was_looked_up_at_its_start_need_both_of_most_requests() -> None:
    took_long = {"e2e_request_latency_seconds": took(40.0)}
    hits = {"prefix_cache_hits": Quality.LAGGING}
    assert find_spans(60.0, snapshot(hits, **took_long)).longest_seconds == pytest.approx(4 * 39.8)
    # both at the end: of the same requests
    both = {**hits, "prefix_cache_queries": Quality.LAGGING}
    assert find_spans(60.0, snapshot(both, **took_long)).longest_seconds == 60.0


def test_a_counter_refreshed_every_ten_seconds_needs_two_minutes() -> None:
    assert find_spans(60.0, snapshot(refresh=10.0)).longest_seconds == 120.0


def test_a_long_window_keeps_a_bounded_number_of_snapshots_and_its_ends() -> None:
    window = None
    for tick in range(400):
        window = advance_window(window, snapshot(at=5.0 * tick), Spans(600.0))
        assert len(window.snapshots) <= MOST_SNAPSHOTS + 1
    one = window.engines()[0]
    assert one.elapsed_seconds >= 600.0
    assert one.elapsed_seconds <= 720.0
    # the counter is the time itself: thinning must not change what is read from the ends
    assert one.increase("decode_tokens_total") == one.elapsed_seconds
    assert [snap.monotonic_seconds for snap in window.snapshots[-2:]] == [1990.0, 1995.0]


def test_what_is_late_lengthens_its_own_window_and_no_other() -> None:
    spans = find_spans(60.0, snapshot({**LAGGING, "prefill_tokens_total": Quality.LIVE}, refresh=10.0))
    assert spans.cover(("decode_tokens_total",)) == LAGGING_SECONDS
    assert spans.cover(("prefill_tokens_total", "engine_steps_total")) == 60.0
    assert spans.cover(("prefill_tokens_total", "decode_tokens_total")) == LAGGING_SECONDS


def test_engines_have_a_window_for_each_length() -> None:
    window = None
    for tick in range(200):
        page = snapshot(LAGGING, at=5.0 * tick)
        window = advance_window(window, page, find_spans(60.0, page))
    (windows,) = window.engine_windows()
    live, late = windows.configured, windows.cover(("decode_tokens_total",))
    assert live.elapsed_seconds == 60.0
    assert len(live.readings) == 13  # all of them: only what is older is thinned out
    assert LAGGING_SECONDS <= late.elapsed_seconds <= LAGGING_SECONDS * 1.2
    for one in (live, late):
        assert one.increase("decode_tokens_total") == one.elapsed_seconds
    assert windows.cover(("engine_steps_total",)) is live


def test_after_an_outage_each_window_starts_with_its_own_newest_page() -> None:
    window = None
    for at in (0.0, 5.0, 200.0, 205.0, 210.0):
        page = snapshot(LAGGING, at=at)
        window = advance_window(window, page, find_spans(60.0, page))
    (windows,) = window.engine_windows()
    assert windows.configured.elapsed_seconds == 10.0
    assert windows.cover(("decode_tokens_total",)).elapsed_seconds == 210.0


# --- Counters that fall: with their engine, or by themselves


LATENCY = Histogram((1.0, 2.0), (3.0, 5.0), 6.0, 9.0)
COUNTING = EngineSnapshot(
    "m",
    "0",
    decode_tokens_total=100.0,
    prompt_tokens_total=50.0,
    preemptions_total=0.0,
    prefix_cache_queries=70.0,
    requests_finished_total={"stop": 5.0, "error": 1.0},
    e2e_request_latency_seconds=LATENCY,
)


def page(engine: EngineSnapshot = COUNTING, seconds: float = 0.0) -> Snapshot:
    return Snapshot((engine,), "vllm", 1e9 + seconds, seconds)


def fall(engine: EngineSnapshot) -> set[str]:
    earlier, later = page(), page(engine, 5.0)
    return {field for _, _, field in find_falls(earlier, later, read_counts(earlier), read_counts(later))}


@check_rows(
    ("after", "fallen"),
    [
        ({"decode_tokens_total": 99.0}, "decode_tokens_total"),
        ({"prefix_cache_queries": 1.0}, "prefix_cache_queries"),
        ({"requests_finished_total": {"stop": 6.0, "error": 0.0}}, "requests_finished_total"),
        ({"e2e_request_latency_seconds": replace(LATENCY, sum=8.9)}, "e2e_request_latency_seconds"),
        ({"e2e_request_latency_seconds": replace(LATENCY, count=5.0)}, "e2e_request_latency_seconds"),
        ({"e2e_request_latency_seconds": replace(LATENCY, cumulative=(2.0, 5.0))}, "e2e_request_latency_seconds"),
    ],
)
def test_what_falls_is_found(after: dict[str, object], fallen: str) -> None:
    assert fall(replace(COUNTING, **after)) == {fallen}


@check_rows(
    "after",
    [
        {},
        {"decode_tokens_total": 100.0},
        {"decode_tokens_total": None},
        {"requests_finished_total": {"stop": 5.0}},
        {"e2e_request_latency_seconds": replace(LATENCY, sum=None)},
        {"e2e_request_latency_seconds": Histogram((1.0,), (1.0,), 6.0, 9.0)},  # other edges
    ],
)
def test_what_does_not_fall_is_not(after: dict[str, object]) -> None:
    assert fall(replace(COUNTING, **after)) == set()


def of_a_restart(**after: object) -> bool:
    earlier, later = page(), page(replace(COUNTING, **after), 5.0)
    known, now = read_counts(earlier), read_counts(later)
    return are_of_a_restart(find_falls(earlier, later, known, now), known, now)


def test_a_restart_takes_half_of_what_had_been_counted_with_it() -> None:
    assert not of_a_restart(decode_tokens_total=1.0)
    # two of four; what stood at 0 and what is not published have no say
    assert of_a_restart(decode_tokens_total=1.0, prompt_tokens_total=1.0)
    assert not of_a_restart(decode_tokens_total=1.0, prefix_cache_queries=1.0)


def test_what_falls_is_left_out_and_nothing_is_subtracted_across_it() -> None:
    key = ("m", "0", "decode_tokens_total")
    before, other = page(), page(replace(COUNTING, engine="1"), 0.0)
    window = Window((replace(before, engines=(*before.engines, *other.engines)),), (), Spans(60.0))
    later = page(replace(COUNTING, decode_tokens_total=7.0), 5.0)
    left = leave_out_fallen(later, frozenset({key}), read_counts(before))
    assert left.engines[0].decode_tokens_total is None
    assert left.engines[0].prompt_tokens_total == 50.0
    assert left.absent == {"decode_tokens_total": Absence.IMPLAUSIBLE}
    assert [one[:3] for one in left.left_out] == [key]
    assert "from 100" in left.left_out[0].what
    kept = forget_fallen(window, frozenset({key})).later.engines
    assert [one.decode_tokens_total for one in kept] == [None, 100.0]


def test_what_was_yet_to_be_born_before_the_fall_does_not_count_from_0_after_it() -> None:
    unborn = replace(page(replace(COUNTING, decode_tokens_total=None)), still_zero=frozenset({"decode_tokens_total"}))
    window = forget_fallen(Window((unborn,), (), Spans(60.0)), frozenset({("m", "0", "decode_tokens_total")}))
    assert window.later.still_zero == frozenset()


def test_a_histogram_whose_sum_fell_has_no_gain() -> None:
    grown = Histogram((1.0, 2.0), (4.0, 6.0), 7.0, 10.0)
    assert grown.since(LATENCY) == Histogram((1.0, 2.0), (1.0, 1.0), 1.0, 1.0)
    assert replace(grown, sum=8.0).since(LATENCY) is None


# --- What is remembered of an engine from page to page


INTERVAL, SPAN = 5.0, 30.0
REMEMBERED = EngineSnapshot(
    "m", "0", decode_tokens_total=100.0, prefill_tokens_total=50.0, preemptions_total=4.0,
    request_prompt_tokens=Histogram((100.0, float("inf")), (3.0, 5.0), 5.0, 900.0),
)  # fmt: skip
SOURCES = {"decode_tokens_total": 0, "prefill_tokens_total": 1}
READER = object()


def page_of_life(seconds: float, **engine: object) -> Snapshot:
    return Snapshot((replace(REMEMBERED, **engine),), "vllm", 1e9 + seconds, seconds, 1000.0, sources=SOURCES)


def take(history: History, snapshot: Snapshot, **more: object) -> Advanced:
    history, how = follow_page(history, snapshot, answered_before=True)
    assert not isinstance(how, Restarted)
    found = advance(history, how, snapshot, PageOrigin(READER, snapshot.monotonic_seconds), INTERVAL, **more)
    return replace(found, history=add_to_window(found.history, found.snapshot, SPAN, None, INTERVAL)[0])


def live(*snapshots: Snapshot) -> History:
    history = History()
    for snapshot in snapshots:
        history = take(history, snapshot).history
    return history


def test_pages_of_one_life_fill_a_window() -> None:
    history = live(page_of_life(0), page_of_life(5, decode_tokens_total=130.0))
    assert [one.monotonic_seconds for one in history.window.snapshots] == [0, 5]
    assert history.counts["m", "0", "decode_tokens_total"] == 130.0


def test_counters_that_fall_together_are_a_restart_of_which_lengths_alone_remain() -> None:
    before = live(page_of_life(0), page_of_life(5))
    after, how = follow_page(
        before, page_of_life(10, decode_tokens_total=1.0, prefill_tokens_total=1.0), answered_before=True
    )
    assert isinstance(how, Restarted)
    assert before.lengths
    assert begin_life(after) == History(lengths=before.lengths, reading=before.reading)


@pytest.mark.parametrize("answered_before", [True, False])
def test_one_counter_that_falls_is_a_restart_only_over_an_outage(answered_before: bool) -> None:
    _, how = follow_page(live(page_of_life(0)), page_of_life(5, preemptions_total=3.0), answered_before=answered_before)
    assert isinstance(how, Continued if answered_before else Restarted)


def test_a_counter_that_falls_by_itself_is_left_out_and_begins_anew() -> None:
    found = take(live(page_of_life(0)), page_of_life(5, preemptions_total=3.0))
    assert found.snapshot.engines[0].preemptions_total is None
    assert found.snapshot.absent["preemptions_total"] is Absence.IMPLAUSIBLE
    assert [one.engines[0].preemptions_total for one in found.history.window.snapshots] == [None, None]
    assert ("m", "0", "preemptions_total") not in found.history.counts
    assert take(found.history, page_of_life(10, preemptions_total=3.0)).snapshot.engines[0].preemptions_total == 3.0


def test_counters_from_other_samples_are_compared_with_nothing() -> None:
    before = live(page_of_life(0), page_of_life(5))
    moved = replace(page_of_life(10, decode_tokens_total=7.0), sources={**SOURCES, "decode_tokens_total": 3})
    history, how = follow_page(before, moved, answered_before=True)
    assert isinstance(how, Reset)
    found = advance(history, how, moved, PageOrigin(READER, 10), INTERVAL)
    assert found.history.window is None
    assert found.history.counts["m", "0", "decode_tokens_total"] == 7.0


def test_a_page_without_any_work_is_a_gap_and_the_next_one_a_restart() -> None:
    history = live(page_of_life(0))
    bare = replace(
        page_of_life(0, decode_tokens_total=None, prefill_tokens_total=None, request_prompt_tokens=None),
        never_worked=True,
    )
    for number in range(1, PAGES_OF_A_RESTART + 1):
        history, how = follow_page(history, replace(bare, monotonic_seconds=5.0 * number), answered_before=True)
        assert isinstance(how, Restarted) is (number == PAGES_OF_A_RESTART)
    assert follow_page(history, page_of_life(15), answered_before=True)[0].bare_pages == 0


def test_a_counter_that_appears_counts_from_zero_unless_its_series_is_older() -> None:
    first = live(page_of_life(0, preemptions_total=None))
    shown = replace(page_of_life(5, preemptions_total=2.0), sources={**SOURCES, "preemptions_total": 2})
    young = take(first, shown)
    assert young.late == frozenset()
    assert young.history.window.snapshots[0].still_zero == {"preemptions_total"}
    old = take(first, shown, find_created=lambda fields: dict.fromkeys(fields, 1e9 - 3600.0))
    assert old.late == {"preemptions_total"}


def test_over_a_gap_goes_no_rate() -> None:
    history = live(page_of_life(0), page_of_life(5), page_of_life(500))
    assert len(history.window.snapshots) == 1


# --- Differences of counters, made fit for increase(): from 0, never falling, whatever restarts


MAY_FALL = frozenset({"prefill_tokens_total"})


def exported(*values: float | None, may_fall: frozenset[str] = MAY_FALL) -> list[float | None]:
    held: Held = {}
    shown = []
    for place, value in enumerate(values):
        engine = EngineSnapshot("m", "0", prefill_tokens_total=value, decode_tokens_total=7.0)
        snapshot, held = hold_counters(held, Snapshot((engine,), "vllm", 0.0, float(place), may_fall=may_fall))
        shown.append(snapshot.engines[0].prefill_tokens_total)
        assert snapshot.engines[0].decode_tokens_total == 7.0
    return shown


def test_it_counts_from_zero_and_never_falls() -> None:
    assert exported(1000.0, 1010.0, 990.0, 1005.0, 1030.0) == [0.0, 10.0, 10.0, 10.0, 30.0]


def test_a_value_that_is_missing_for_a_moment_is_absent_and_goes_on() -> None:
    assert exported(100.0, 130.0, None, 140.0) == [0.0, 30.0, None, 40.0]


def test_counters_that_cannot_fall_are_left_as_they_are() -> None:
    assert exported(1000.0, 1010.0, may_fall=frozenset()) == [1000.0, 1010.0]


def test_two_exporters_agree_on_the_increase() -> None:
    # one started earlier than the other; the engine's own counter grew from 1010 to 1030 meanwhile
    early, late = exported(1000.0, 1010.0, 1030.0), exported(1010.0, 1030.0)
    assert early[2] - early[1] == late[1] - late[0] == 20.0


def test_what_was_yet_to_be_born_has_counted_from_zero() -> None:
    def page(value: float | None, unborn: frozenset[str] = frozenset()) -> Snapshot:
        engine = EngineSnapshot("m", "0", prefill_tokens_total=value)
        return Snapshot((engine,), "sglang", 0.0, 0.0, may_fall=MAY_FALL, still_zero=unborn)

    rest, work = page(None, MAY_FALL), page(25.0)
    assert hold_counters({}, work, rest)[0].engines[0].prefill_tokens_total == 25.0
    assert hold_counters({}, work, page(None))[0].engines[0].prefill_tokens_total == 0.0


# --- When a counter that is printed with six digits is too coarse for a rate


TOKENS = "prefill_tokens_total"


@check_rows(
    ("value", "grown", "expected"),
    [
        # six digits print whole numbers below a million in full
        (99_999, 5, False),
        (100_010, 10, False),
        (999_999, 1, False),
        # then steps of 10: a twentieth of 200
        (1_000_190, 190, True),
        (1_000_200, 200, False),
        (12_345_700, 1900, True),
        (12_345_700, 2000, False),
        (12_345_700, 0, False),
    ],
)
def test_a_counter_is_coarse_where_its_step_is_more_than_a_twentieth_of_what_it_grew(
    value: float, grown: float, expected: bool
) -> None:
    window = EngineWindow((engine(prefill=value - grown), engine(prefill=value)), 60.0)
    assert is_coarse(window, TOKENS, 6) is expected
    assert is_coarse(window, TOKENS, None) is False


# --- Gauges that keep their last value while nothing ends are not shown as the state of now


def freezing(**engine: object) -> Snapshot:
    one = EngineSnapshot("m", "0", requests_running=5.0, requests_waiting=2.0, **engine)
    return Snapshot((one,), "any", 0.0, 0.0, freezes=frozenset({"requests_running"}))


def test_any_counter_is_a_sign_of_life() -> None:
    quiet = freezing(decode_tokens_total=7.0)
    assert not has_moved(quiet, freezing(decode_tokens_total=7.0))
    assert has_moved(quiet, freezing(decode_tokens_total=8.0))
    assert has_moved(freezing(requests_finished_total={"stop": 1.0}), freezing(requests_finished_total={"stop": 2.0}))
    one, two = Histogram((1.0,), (1.0,), 1.0, 0.5), Histogram((1.0,), (2.0,), 2.0, 1.0)
    assert has_moved(freezing(e2e_request_latency_seconds=one), freezing(e2e_request_latency_seconds=two))


def test_a_first_page_says_nothing_about_when_it_was_true() -> None:
    assert not has_moved(None, freezing(decode_tokens_total=7.0))


def test_only_what_freezes_goes_and_says_why() -> None:
    faded = drop_frozen(freezing(decode_tokens_total=7.0))
    engine = faded.engines[0]
    assert (engine.requests_running, engine.requests_waiting, engine.decode_tokens_total) == (None, 2.0, 7.0)
    assert faded.absent["requests_running"] is Absence.STALE
