"""How long a window has to be where an engine books late or refreshes slowly."""

import pytest

from llm_serving_exporter.derive.window import (
    LAGGING_SECONDS,
    LONGEST_SECONDS,
    MOST_SNAPSHOTS,
    advance_window,
    find_spans,
)
from llm_serving_exporter.model.numbers import Histogram
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.snapshot import EngineSnapshot, Quality, Snapshot
from llm_serving_exporter.model.window import Spans

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
