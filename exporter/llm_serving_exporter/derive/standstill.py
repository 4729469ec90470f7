"""Pages that cannot be: an engine that stands still, a gauge of running requests that says 0 while requests run."""

from __future__ import annotations

import math
from collections.abc import Mapping

from llm_serving_exporter.catalogue.standstill import (
    GIVEN_UP_FROM,
    HELD_SHARE,
    LONGER,
    MOVES,
    SAYS_WHAT_IS_DONE,
    SAYS_WHAT_RUNS,
)
from llm_serving_exporter.derive.figures import EARLIER, TARGET_WINDOW, TICK, WINDOW, figure
from llm_serving_exporter.derive.signals import OF_AN_ENGINE, Row
from llm_serving_exporter.derive.steps import ITL
from llm_serving_exporter.model.derived import EngineDerived
from llm_serving_exporter.model.numbers import add_up
from llm_serving_exporter.model.record import Struct
from llm_serving_exporter.model.snapshot import EngineSnapshot, Quality
from llm_serving_exporter.model.window import EngineWindow, Window

# --- A gauge of running requests that says 0 while the counters say that requests run: how sure that is.
#
# A gauge is a sample: between two requests it is 0 and right. Load may even come in step with our readings, so that each of them meets a
# pause. But where it is right at both ends of a tick, whatever was decoded in the tick was begun and finished in it, and the counters
# agree. A tick where they do not is judged by chance. At a random moment the gauge is 0 with the share of time in which nothing decodes;
# at reading after reading, through ticks that the engine decoded nearly all through, that soon becomes impossible.


RUNNING, STEPS = "requests_running", "engine_steps_total"
DECODED, BOOKED = "decode_tokens_total", "request_generation_tokens"
# of the requests that had their first token, and of those that have ended
BEGUN, ENDED = "time_to_first_token_seconds", "e2e_request_latency_seconds"
# a tick counts as evidence where at least so many sequences decoded in its mean, for so much of its time
SEQUENCES_FROM, BUSY_FROM = 0.9, 0.7
# steps with more sequences take longer, and weigh more in the mean latency: half of the time that it makes of them is certain
CERTAIN_SHARE = 0.5
# the chance that an honest gauge shows as many zeros, from which on it is not one
CHANCE = 1e-6
SURE = -math.log(CHANCE)


def weigh_zero(tick: EngineWindow, live: frozenset[str]) -> float:
    """How much a 0 at both ends of a tick speaks against the gauge, as the negative logarithm of its chance; 0.0: not at all.

    Decoding sequences in the mean are the seconds between tokens, of all requests together, over the tick's (Little's law). The time in
    which any decoded is the engine's steps x the mean of those seconds; where steps are not counted, what that many sequences take if the
    largest batch runs. `live`: the fields that are true at the moment of the page; others tell nothing of one tick.
    """
    gained = tick.grown(ITL) if ITL in live else None
    mean = gained.mean() if gained is not None else None
    if gained is None or not mean or tick.increase("preemptions_total"):
        return 0.0  # what a preempted request waited is no decode
    if _may_have_begun_and_ended(tick, gained.events):
        return 0.0
    sequences = gained.events * mean / tick.elapsed_seconds
    steps = tick.increase(STEPS) if STEPS in live else None
    limit = tick.last.batch_limit_requests
    busy = steps * mean / tick.elapsed_seconds if steps is not None else sequences / limit if limit else 0.0
    if sequences < SEQUENCES_FROM or busy < BUSY_FROM:
        return 0.0
    return -math.log(1 - CERTAIN_SHARE * min(1.0, busy))


def _may_have_begun_and_ended(tick: EngineWindow, events: float) -> bool:
    """Whether all that was decoded in a tick may be of requests that were begun and finished in it. `events`: inter-token ones.

    By their tokens, where the engine books these at a request's end, else by the number of requests. True where it counts neither.
    """
    booked, decoded = tick.grown(BOOKED), tick.increase(DECODED)
    ended, all_ended = tick.events(ENDED), _count_finished(tick)
    if booked is not None and booked.total is not None:
        # of a request that was cancelled no tokens are booked
        cancelled = all_ended is not None and all_ended > booked.events
        return cancelled or (booked.events > 0 and booked.total in (decoded, events + booked.events))
    begun = tick.events(BEGUN)
    return begun is None or (ended is None and all_ended is None) or (begun > 0 and begun in (ended, all_ended))


def _count_finished(tick: EngineWindow) -> float | None:
    before, after = tick.first.requests_finished_total, tick.last.requests_finished_total
    return None if before is None or after is None else add_up(after.values()) - add_up(before.values())


def _weigh(tick: EngineWindow | None, target: Window, earlier: EngineDerived | None) -> float:
    """The evidence of all readings since the gauge last showed a request, this life's."""
    before: float = earlier.figures.get(EVIDENCE, 0.0) if earlier is not None else 0.0
    quality = target.later.quality
    if tick is None or quality.get(RUNNING, Quality.LIVE) is not Quality.LIVE or tick.last.requests_running is None:
        return before
    if tick.last.requests_running > 0:
        return 0.0
    if tick.first.requests_running != 0 or tick.elapsed_seconds <= 0:
        return before
    return before + weigh_zero(tick, frozenset({ITL, STEPS} - quality.keys()))


_EVIDENCE = figure(_weigh, TICK, TARGET_WINDOW, EARLIER)
CONTRADICTED = figure(lambda evidence: evidence >= SURE, _EVIDENCE)
# for the next tick; not published
EVIDENCE: Row[float] = Row(_EVIDENCE, **OF_AN_ENGINE, every_tick=True)
CONTRADICTION_ROWS = (EVIDENCE,)


# --- Whether an engine stands still, page by page: the condition of LLMServingStalled, by what `catalogue.standstill` declares for both.
#
# A silence alone is none: a prefill of 128 Ki tokens takes tens of seconds in which no counter moves.


FINISHED, GIVEN_UP = "requests_finished_total", "abort"


class Standstill(Struct, frozen=True):
    """What is known of an engine since something of its work last moved. Seconds are monotonic."""

    moved_seconds: float  # when something last moved; the first page of a life, or after a gap, starts it again
    idle_seconds: float  # when nothing last ran or waited; the same for a first page
    now_seconds: float  # the last page
    pages: int = 0  # pages since something moved
    held: int = 0  # of these, those with requests
    given_up: float = 0.0  # requests that clients gave up since then


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
ROW: Row[Standstill] = Row(figure(_advance, WINDOW, TICK, TARGET_WINDOW, EARLIER), **OF_AN_ENGINE, every_tick=True)
STANDSTILL_ROWS = (ROW,)
