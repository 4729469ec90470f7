"""How long a window has to be where an engine books late or refreshes slowly."""

from __future__ import annotations

from dataclasses import replace

import pytest

from llm_serving_exporter.derive.ring import MOST_SNAPSHOTS, advance_window
from llm_serving_exporter.derive.span import LAGGING_SECONDS, LONGEST_SECONDS, span_seconds
from llm_serving_exporter.model.histogram import Histogram
from llm_serving_exporter.model.snapshot import EngineSnapshot, Quality, Snapshot

LAGGING = {"decode_tokens_total": Quality.LAGGING}


def snapshot(
    quality: dict[str, Quality] | None = None, at: float = 0.0, refresh: float = 0.0, **engine: object
) -> Snapshot:
    one = EngineSnapshot("m", "0", decode_tokens_total=at, **engine)
    return Snapshot((one,), "any", at, at, quality=quality or {}, refresh_seconds=refresh)


def took(seconds: float, requests: float = 1000.0) -> Histogram:
    """Every request took between this and half of it."""
    return Histogram((seconds / 2, seconds), (0.0, requests), requests, requests * seconds * 0.75)


def test_live_counters_keep_the_configured_window() -> None:
    assert span_seconds(60.0, snapshot()) == 60.0


def test_tokens_booked_at_the_end_need_several_of_the_longest_requests() -> None:
    # p99 of a uniform half to whole: 0.995 x the whole
    assert span_seconds(60.0, snapshot(LAGGING, e2e_request_latency_seconds=took(40.0))) == pytest.approx(4 * 39.8)


def test_of_several_engines_the_one_with_the_longest_requests_counts() -> None:
    one = snapshot(LAGGING, e2e_request_latency_seconds=took(20.0))
    other = replace(one.engines[0], engine="1", e2e_request_latency_seconds=took(40.0))
    assert span_seconds(60.0, replace(one, engines=(*one.engines, other))) == pytest.approx(4 * 39.8)


def test_prefill_booked_at_the_end_needs_it_too() -> None:
    late = {"prefill_tokens_total": Quality.LAGGING}
    assert span_seconds(60.0, snapshot(late)) == LAGGING_SECONDS
    # what is counted live are the tokens that answers have
    assert span_seconds(60.0, snapshot(late, decode_tokens_live=5.0)) == LAGGING_SECONDS


def test_short_requests_do_not_shorten_it_and_long_ones_have_an_end() -> None:
    assert span_seconds(60.0, snapshot(LAGGING, e2e_request_latency_seconds=took(1.0))) == 60.0
    assert span_seconds(60.0, snapshot(LAGGING, e2e_request_latency_seconds=took(4000.0))) == LONGEST_SECONDS
    assert span_seconds(900.0, snapshot(LAGGING, e2e_request_latency_seconds=took(4000.0))) == 900.0


def test_without_request_durations_five_minutes() -> None:
    assert span_seconds(60.0, snapshot(LAGGING)) == LAGGING_SECONDS


def test_a_live_count_of_tokens_under_way_makes_it_needless() -> None:
    assert span_seconds(60.0, snapshot(LAGGING, decode_tokens_live=5.0)) == 60.0


def test_hits_booked_at_the_end_of_what_was_looked_up_at_its_start_need_both_of_most_requests() -> None:
    took_long = {"e2e_request_latency_seconds": took(40.0)}
    hits = {"prefix_cache_hits": Quality.LAGGING}
    assert span_seconds(60.0, snapshot(hits, **took_long)) == pytest.approx(4 * 39.8)
    # both at the end: of the same requests
    both = {**hits, "prefix_cache_queries": Quality.LAGGING}
    assert span_seconds(60.0, snapshot(both, **took_long)) == 60.0


def test_a_counter_refreshed_every_ten_seconds_needs_two_minutes() -> None:
    assert span_seconds(60.0, snapshot(refresh=10.0)) == 120.0


def test_a_long_window_keeps_a_bounded_number_of_snapshots_and_its_ends() -> None:
    window = None
    for tick in range(400):
        window = advance_window(window, snapshot(at=5.0 * tick), 600.0)
        assert len(window.snapshots) <= MOST_SNAPSHOTS + 1
    assert window is not None
    one = window.engines()[0]
    assert one.elapsed_seconds >= 600.0
    assert one.elapsed_seconds <= 720.0
    # the counter is the time itself: thinning must not change what is read from the ends
    assert one.increase("decode_tokens_total") == one.elapsed_seconds
    assert [snap.monotonic_seconds for snap in window.snapshots[-2:]] == [1990.0, 1995.0]
