"""Whether an engine stands still, page by page: the condition of LLMServingStalled, by what `catalogue.standstill` declares for both.

A silence alone is none: a prefill of 128 Ki tokens takes tens of seconds in which no counter moves.
"""

from __future__ import annotations

from collections.abc import Mapping

from llm_serving_exporter.catalogue.standstill import (
    GIVEN_UP_FROM,
    HELD_SHARE,
    LONGER,
    MOVES,
    SAYS_WHAT_IS_DONE,
    SAYS_WHAT_RUNS,
)
from llm_serving_exporter.derive.figures import figure
from llm_serving_exporter.derive.inputs import EARLIER, TARGET_WINDOW, TICK, WINDOW
from llm_serving_exporter.derive.signals import NOT_ON_A_FRONT_END, Row
from llm_serving_exporter.model.derived import EngineDerived
from llm_serving_exporter.model.record import Struct
from llm_serving_exporter.model.snapshot import EngineSnapshot, Quality
from llm_serving_exporter.model.window import EngineWindow, Window

FINISHED, GIVEN_UP = "requests_finished_total", "abort"


class Standstill(Struct, frozen=True):
    """What is known of an engine since something of its work last moved. Seconds are monotonic."""

    # when something last moved; the first page of a life, or after a gap, starts it again
    moved_seconds: float
    # when nothing last ran or waited; the same for a first page
    idle_seconds: float
    # the last page
    now_seconds: float
    # pages since something moved
    pages: int = 0
    # of these, those with requests
    held: int = 0
    # requests that clients gave up since then
    given_up: float = 0.0


def advance_standstill(
    before: Standstill | None, tick: EngineWindow | None, last: EngineSnapshot, now: float
) -> Standstill:
    """With one more page, `last`, read at `now`. `tick`: since the page before; None where there was none, or a gap."""
    if before is None or tick is None or _has_moved(tick):
        return Standstill(now, now, now)
    there = (last.requests_running or 0.0) + (last.requests_waiting or 0.0) > 0
    return Standstill(
        before.moved_seconds,
        before.idle_seconds if there else now,
        now,
        before.pages + 1,
        before.held + there,
        before.given_up + _count_given_up(tick),
    )


def measure_standstill(found: Standstill, span_seconds: float) -> float | None:
    """Seconds for which the engine has stood still; None where it does not, or not for longer than `span_seconds`."""
    still = found.now_seconds - found.moved_seconds
    held = found.now_seconds - max(found.moved_seconds, found.idle_seconds)
    if held >= span_seconds:
        return held
    come_and_go = found.pages > 0 and found.held >= HELD_SHARE * found.pages
    long_enough = still >= LONGER * span_seconds
    return still if long_enough and (come_and_go or found.given_up >= GIVEN_UP_FROM) else None


def says_it_at_once(last: EngineSnapshot, quality: Mapping[str, Quality]) -> bool:
    """Whether the page says what runs and what is done when it happens: else a silence tells nothing. Of a sleeping engine it is meant."""

    def is_live(name: str) -> bool:
        return getattr(last, name) is not None and quality.get(name, Quality.LIVE) is Quality.LIVE

    return last.awake != 0 and is_live(SAYS_WHAT_RUNS) and any(is_live(name) for name in SAYS_WHAT_IS_DONE)


def _has_moved(tick: EngineWindow) -> bool:
    first, last = tick.first, tick.last
    for name, idle_reasons in MOVES.items():
        before, after = getattr(first, name), getattr(last, name)
        if after is None or before is after:
            continue
        if before is None:
            return True
        if name != FINISHED:
            if after > before:
                return True
        elif any(value > before.get(reason, 0.0) for reason, value in after.items() if reason not in idle_reasons):
            return True
    return False


def _count_given_up(tick: EngineWindow) -> float:
    before, after = tick.first.requests_finished_total or {}, tick.last.requests_finished_total or {}
    return max(0.0, after.get(GIVEN_UP, 0.0) - before.get(GIVEN_UP, 0.0))


def _advance(
    window: EngineWindow, tick: EngineWindow | None, target: Window, earlier: EngineDerived | None
) -> Standstill | None:
    last = window.last
    if not says_it_at_once(last, target.later.quality):
        return None
    before = earlier.figures.get(ROW) if earlier is not None else None
    return advance_standstill(before, tick, last, target.later.monotonic_seconds)


# for the next tick and the limiter; not published
ROW: Row[Standstill] = Row(
    figure(_advance, WINDOW, TICK, TARGET_WINDOW, EARLIER), silent=NOT_ON_A_FRONT_END, of_an_engine=True, kept=True
)
ROWS = (ROW,)
