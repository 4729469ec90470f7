"""What grew between two pages of one engine life, and what no two pages can say."""

from __future__ import annotations

from typing import Any

from llm_serving_exporter.model.numbers import Histogram
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.snapshot import EngineSnapshot, Snapshot
from llm_serving_exporter.model.window import EngineWindow, Window
from tests.support.builders.windows import pages

TOKENS, LATENCY = "decode_tokens_total", "inter_token_latency_seconds"
TEN = Histogram((0.05, 0.1), (4.0, 9.0), 10.0, 0.6)


def one(**values: Any) -> EngineSnapshot:
    return EngineSnapshot("m", "0", **values)


def window(*readings: EngineSnapshot, unborn: tuple[str, ...] = ()) -> EngineWindow:
    """`unborn`: on all pages but the last, as a counter's birth has it."""
    whole = pages(*readings)
    earlier = (replace(snapshot, still_zero=frozenset(unborn)) for snapshot in whole.snapshots[:-1])
    (found,) = Window((*earlier, whole.later)).engines()
    return found


def test_a_counter_that_was_born_in_the_window_counts_from_0() -> None:
    born = window(one(), one(), one(**{TOKENS: 7.0}), unborn=(TOKENS,))
    assert (born.increase(TOKENS), born.elapsed_seconds) == (7.0, 10.0)
    # that of another field says nothing of it
    assert window(one(), one(**{TOKENS: 7.0}), unborn=("prefill_tokens_total",)).increase(TOKENS) is None


def test_a_counter_that_appears_for_another_reason_counts_from_nowhere() -> None:
    assert window(one(), one(**{TOKENS: 7.0})).increase(TOKENS) is None


def test_what_the_newest_page_lacks_says_nothing_of_the_first() -> None:
    first, last = Snapshot((one(),), "any", 0.0, 0.0), Snapshot((one(**{TOKENS: 7.0}),), "any", 5.0, 5.0)
    (found,) = Window((first, replace(last, still_zero=frozenset({TOKENS})))).engines()
    assert found.increase(TOKENS) is None


def test_a_histogram_that_was_born_in_the_window_has_all_its_events() -> None:
    born = window(one(), one(**{LATENCY: TEN}), unborn=(LATENCY,))
    assert born.gained(LATENCY) == TEN
    assert born.events(LATENCY) == 10
    otherwise = window(one(), one(**{LATENCY: TEN}))
    assert (otherwise.gained(LATENCY), otherwise.events(LATENCY)) == (None, None)


def test_one_page_says_nothing_of_what_was_born_before_it() -> None:
    (alone,) = Window((Snapshot((one(**{TOKENS: 7.0, LATENCY: TEN}),), "any", 0.0, 0.0),)).engines()
    assert (alone.increase(TOKENS), alone.gained(LATENCY)) == (None, None)


def test_a_counter_that_fell_has_no_increase() -> None:
    """Of a difference that dips; a counter's fall is a restart, and never in a window."""
    assert window(one(**{TOKENS: 9.0}), one(**{TOKENS: 7.0})).increase(TOKENS) is None
    assert window(one(**{TOKENS: 7.0}), one(**{TOKENS: 7.0})).increase(TOKENS) == 0
