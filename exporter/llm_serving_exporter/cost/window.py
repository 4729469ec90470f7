"""What one engine's tokens cost over the exporter's window, from a point each tick, and why that is not known where it is not.

The figures are worked out for whoever asks; a tick adds its point.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from functools import partial

from llm_serving_exporter.cost import attribution as cost
from llm_serving_exporter.model.cost import EngineTotals, WindowCost
from llm_serving_exporter.model.later import Later
from llm_serving_exporter.model.numbers import add_up
from llm_serving_exporter.model.record import Struct, field, replace
from llm_serving_exporter.model.snapshot import Absence, EngineSnapshot

PREFILL, DECODE, PROMPT = "prefill_tokens_total", "decode_tokens_total", "prompt_tokens_total"
FINISHED = "requests_finished_total"
# reasons that are passed on for a counter that is not on the page; for any other it is INPUT_MISSING
_SAID = (Absence.IDLE, Absence.NO_METRICS)


class WindowFigures(Struct, frozen=True):
    """Figures over the window, and why those that are absent are absent."""

    cost: WindowCost = field(default_factory=WindowCost)
    tokens: Absence = Absence.WARMING_UP  # why USD per million tokens is absent
    requests: Absence = Absence.WARMING_UP  # why USD per request is absent
    joules: Absence = Absence.WARMING_UP  # why joules per token is absent


# the counters of a point, in their order
_COUNTERS = (PREFILL, DECODE, PROMPT, FINISHED)


class _Point(Struct, frozen=True):
    at: float  # monotonic seconds
    totals: EngineTotals  # so far
    counters: tuple[float | None, ...]  # of the engine, one for each of `_COUNTERS`; None: not on its page

    def since(self, first: _Point, name: str) -> float | None:
        place = _COUNTERS.index(name)
        before, after = first.counters[place], self.counters[place]
        return after - before if before is not None and after is not None and after >= before else None


class CostWindow:
    """The ticks of one engine within the window.

    Figures of cost cover only the latest ticks that all have a price: tokens that nothing was charged for would make the others look
    cheap.
    """

    def __init__(self) -> None:
        self._points: deque[_Point] = deque()
        self._priced_since = float("-inf")

    def clear(self) -> None:
        """Forgets the ticks: the engine restarted, or GPU time could not be counted for a while."""
        self._points.clear()

    def note_unpriced_tick(self, now: float) -> None:
        """No price was in force in the tick that ends now."""
        self._priced_since = now

    def add_tick(
        self,
        now: float,
        totals: EngineTotals,
        engine: EngineSnapshot,
        why_absent: Callable[[str], Absence],
        span_seconds: float,
    ) -> Later[WindowFigures]:
        """The figures after a tick of which `engine` is on the page. `why_absent`: why a field is not there."""
        finished = engine.requests_finished_total
        last = _Point(
            now,
            totals,
            (
                engine.prefill_tokens_total,
                engine.decode_tokens_total,
                engine.prompt_tokens_total,
                add_up(finished.values()) if finished is not None else None,
            ),
        )
        points = self._points
        points.append(last)
        while now - points[0].at > span_seconds:
            points.popleft()
        whole = points[0]
        since = self._priced_since
        priced = whole if whole.at >= since else next(point for point in points if point.at >= since)
        return Later(partial(_work_out_figures, whole, priced, last, why_absent))


def _work_out_figures(
    whole: _Point, priced: _Point, last: _Point, why_absent: Callable[[str], Absence]
) -> WindowFigures:
    """From the first point of the window, the first from which on all have a price, and the last one."""
    before = cost.usd_by_phase(priced.totals.usd)
    usd = {phase: amount - before.get(phase, 0.0) for phase, amount in cost.usd_by_phase(last.totals.usd).items()}
    figures = _compare_points(priced, last, usd if priced is not last else {})
    # energy needs no price
    used, used_before = last.totals.energy_joules, whole.totals.energy_joules
    joules = None if used is None or used_before is None else used - used_before
    each = _compare_points(whole, last, {}, joules).joules_per_token
    return WindowFigures(
        replace(figures, joules_per_token=each),
        Absence.AVAILABLE if figures.usd_per_million_tokens else _explain_absence(priced, last, why_absent, usd),
        Absence.AVAILABLE
        if figures.usd_per_request is not None
        else _explain_absence(priced, last, why_absent, usd, FINISHED),
        Absence.AVAILABLE if each is not None else _explain_absence(whole, last, why_absent, usd),
    )


def _compare_points(first: _Point, last: _Point, usd: Mapping[str, float], joules: float | None = None) -> WindowCost:
    return cost.window_cost(
        usd,
        prefill_tokens=last.since(first, PREFILL),
        decode_tokens=last.since(first, DECODE),
        prompt_tokens=last.since(first, PROMPT),
        requests=last.since(first, FINISHED),
        joules=joules,
    )


def _explain_absence(
    first: _Point,
    last: _Point,
    why_absent: Callable[[str], Absence],
    usd: Mapping[str, float],
    counter: str | None = None,
) -> Absence:
    """Why there is no figure. `counter`: that it is worked out from; None: a figure per token, from generated and prompt tokens."""
    counted = {name for name, value in zip(_COUNTERS, last.counters, strict=True) if value is not None}
    of_prompts = next((name for name in (PROMPT, PREFILL) if name in counted), PROMPT)
    names = (DECODE, of_prompts) if counter is None else (counter,)
    for name in names:
        if name not in counted:
            reason = why_absent(name)
            return reason if reason in _SAID else Absence.INPUT_MISSING
    moved = [last.since(first, name) for name in names]
    if first is last or None in moved:
        return Absence.WARMING_UP
    if not any(moved):
        return Absence.IDLE
    # tokens moved: their cost is pending, or could not be split because facts are missing
    return Absence.INPUT_MISSING if any(usd.values()) else Absence.WARMING_UP
