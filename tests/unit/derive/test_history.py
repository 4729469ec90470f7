"""What is remembered of an engine from page to page."""

import pytest

from llm_serving_exporter.derive.history import (
    PAGES_OF_A_RESTART,
    Advanced,
    Continued,
    History,
    PageOrigin,
    Reset,
    Restarted,
    add_to_window,
    advance,
    begin_life,
    follow_page,
)
from llm_serving_exporter.model.numbers import Histogram
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.snapshot import Absence, EngineSnapshot, Snapshot

INTERVAL, SPAN = 5.0, 30.0
ENGINE = EngineSnapshot(
    "m", "0", decode_tokens_total=100.0, prefill_tokens_total=50.0, preemptions_total=4.0,
    request_prompt_tokens=Histogram((100.0, float("inf")), (3.0, 5.0), 5.0, 900.0),
)  # fmt: skip
SOURCES = {"decode_tokens_total": 0, "prefill_tokens_total": 1}
READER = object()


def page(seconds: float, **engine: object) -> Snapshot:
    return Snapshot((replace(ENGINE, **engine),), "vllm", 1e9 + seconds, seconds, 1000.0, sources=SOURCES)


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
    history = live(page(0), page(5, decode_tokens_total=130.0))
    assert [one.monotonic_seconds for one in history.window.snapshots] == [0, 5]
    assert history.counts["m", "0", "decode_tokens_total"] == 130.0


def test_counters_that_fall_together_are_a_restart_of_which_lengths_alone_remain() -> None:
    before = live(page(0), page(5))
    after, how = follow_page(before, page(10, decode_tokens_total=1.0, prefill_tokens_total=1.0), answered_before=True)
    assert isinstance(how, Restarted)
    assert before.lengths
    assert begin_life(after) == History(lengths=before.lengths, reading=before.reading)


@pytest.mark.parametrize("answered_before", [True, False])
def test_one_counter_that_falls_is_a_restart_only_over_an_outage(answered_before: bool) -> None:
    _, how = follow_page(live(page(0)), page(5, preemptions_total=3.0), answered_before=answered_before)
    assert isinstance(how, Continued if answered_before else Restarted)


def test_a_counter_that_falls_by_itself_is_left_out_and_begins_anew() -> None:
    found = take(live(page(0)), page(5, preemptions_total=3.0))
    assert found.snapshot.engines[0].preemptions_total is None
    assert found.snapshot.absent["preemptions_total"] is Absence.IMPLAUSIBLE
    assert [one.engines[0].preemptions_total for one in found.history.window.snapshots] == [None, None]
    assert ("m", "0", "preemptions_total") not in found.history.counts
    assert take(found.history, page(10, preemptions_total=3.0)).snapshot.engines[0].preemptions_total == 3.0


def test_counters_from_other_samples_are_compared_with_nothing() -> None:
    before = live(page(0), page(5))
    moved = replace(page(10, decode_tokens_total=7.0), sources={**SOURCES, "decode_tokens_total": 3})
    history, how = follow_page(before, moved, answered_before=True)
    assert isinstance(how, Reset)
    found = advance(history, how, moved, PageOrigin(READER, 10), INTERVAL)
    assert found.history.window is None
    assert found.history.counts["m", "0", "decode_tokens_total"] == 7.0


def test_a_page_without_any_work_is_a_gap_and_the_next_one_a_restart() -> None:
    history = live(page(0))
    bare = replace(
        page(0, decode_tokens_total=None, prefill_tokens_total=None, request_prompt_tokens=None), never_worked=True
    )
    for number in range(1, PAGES_OF_A_RESTART + 1):
        history, how = follow_page(history, replace(bare, monotonic_seconds=5.0 * number), answered_before=True)
        assert isinstance(how, Restarted) is (number == PAGES_OF_A_RESTART)
    assert follow_page(history, page(15), answered_before=True)[0].bare_pages == 0


def test_a_counter_that_appears_counts_from_zero_unless_its_series_is_older() -> None:
    first = live(page(0, preemptions_total=None))
    shown = replace(page(5, preemptions_total=2.0), sources={**SOURCES, "preemptions_total": 2})
    young = take(first, shown)
    assert young.late == frozenset()
    assert young.history.window.snapshots[0].still_zero == {"preemptions_total"}
    old = take(first, shown, find_created=lambda fields: dict.fromkeys(fields, 1e9 - 3600.0))
    assert old.late == {"preemptions_total"}


def test_over_a_gap_goes_no_rate() -> None:
    history = live(page(0), page(5), page(500))
    assert len(history.window.snapshots) == 1
