"""The window: what it spans, and when it starts anew."""

import pytest

from llm_serving_exporter.derive.window import (
    MOST_COUNTS,
    Counts,
    advance_window,
    has_restarted,
    merge_counts,
    read_counts,
    reads_otherwise,
)
from llm_serving_exporter.model.numbers import Histogram
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.snapshot import EngineSnapshot, Snapshot
from llm_serving_exporter.model.window import Spans, Window

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
    "after",
    [
        replace(ENGINE, decode_tokens_total=99.0),
        replace(ENGINE, requests_finished_total={"stop": 4.0}),
    ],
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
