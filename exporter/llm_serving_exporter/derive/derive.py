"""One window -> Derived: asks for rows of the signal table, and keeps the reason of everything that is not there.

At each tick only those rows are worked out that the next tick, the bill or the limiter reads; the rest when somebody asks, at a scrape
or for a page: most ticks nobody looks at. Each figure is worked out once whoever asks, and nobody's asking changes what is counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import cache, partial
from typing import Any

from llm_serving_exporter.derive.bandwidth import MODEL_RANGE, WORK_WINDOW, average_ranks
from llm_serving_exporter.derive.batch import SIZE_MEAN, UTILIZATION
from llm_serving_exporter.derive.busy import BUSY_SECONDS, REFERENCE, TICK_WORK
from llm_serving_exporter.derive.figures import (
    EARLIER,
    RANKS,
    SETTINGS,
    TARGET_WINDOW,
    WINDOW,
    Computed,
    DeriveSettings,
    Figure,
    hand_in_windows,
    order_figures,
)
from llm_serving_exporter.derive.kv import (
    CONTEXT_MEAN,
    HIT_RATIO,
    MEMORY,
    PREEMPTIONS,
    TAIL,
    TOKENS_PER_REQUEST,
    USED_AND_FREE,
    shown_tail,
)
from llm_serving_exporter.derive.limiter import (
    GAUGES,
    JUDGED,
    LACKING,
    LIMITER,
    NOW,
    PREVIOUS,
    REST,
    VERDICT,
    WHOLE_VERDICT,
    Judged,
    gather_roofline,
)
from llm_serving_exporter.derive.phases import COUNTERS, RATES, RATES_PER_GPU
from llm_serving_exporter.derive.signals import Reasons, Row, Shown, explain_field
from llm_serving_exporter.derive.slo import LATENCY_BY_NAME, SERVER_ERRORS, SLO_BY_NAME
from llm_serving_exporter.derive.standstill import CONTRADICTED, EVIDENCE, ROW, RUNNING
from llm_serving_exporter.derive.table import ENGINE_ROWS
from llm_serving_exporter.model.derived import Cause, Derivation, Derived, EngineDerived, Roofline, Verdict
from llm_serving_exporter.model.record import Struct
from llm_serving_exporter.model.snapshot import Absence, LeftOut, Quality
from llm_serving_exporter.model.target import Role
from llm_serving_exporter.model.window import Window

__all__ = ["DeriveSettings", "Tick", "derive"]


def derive(window: Window, settings: DeriveSettings, previous: Derivation | None) -> Derived:
    """Everything derived from a window. `previous` is the last result of the same engine life, None after a restart."""
    return Tick(window, settings, previous).whole()


class _Engine(Struct, frozen=True):
    computed: Computed  # its figures, as far as they have been asked for
    is_one: bool  # whether it is an engine, and not what families of a page of several are kept under that name none
    contradicted: bool  # whether its counters exclude what its gauge of running requests shows


class Tick:
    """What follows from one page: at once what the next tick, the bill and the limiter need, everything else by `whole`.

    `asking` is entered while everything else is worked out: a lock where threads share it, since pages are made side by side.
    """

    __slots__ = (
        "_asking",
        "_derived",
        "_engines",
        "_limits",
        "_settings",
        "_window",
        "tick_engines",
        "tick_left_out",
        "verdict",
    )

    def __init__(
        self,
        window: Window,
        settings: DeriveSettings,
        previous: Derivation | None,
        asking: AbstractContextManager[object] | None = None,
    ) -> None:
        role = settings.role
        before = (
            {(engine.model_name, engine.engine): engine for engine in previous.tick_engines}
            if previous is not None
            else {}
        )
        engines: list[_Engine] = []
        tick_engines: list[EngineDerived] = []
        judged: list[Judged] = []
        left_out: list[LeftOut] = []
        all_windows = window.engine_windows()
        ranks = average_ranks(all_windows, settings)
        for windows in all_windows:
            last = windows.configured.last
            earlier = before.get((last.model_name, last.engine))
            handed_in = {
                **hand_in_windows(windows),
                TARGET_WINDOW: window,
                SETTINGS: settings,
                EARLIER: earlier,
                RANKS: ranks,
            }
            computed = Computed(handed_in)
            is_one = last.is_engine or len(window.later.engines) == 1
            contradicted = role not in EVIDENCE.silent and computed.value(CONTRADICTED)
            engines.append(_Engine(computed, is_one, contradicted))
            shown = _compute_tick_rows(computed, role, left_out, an_engine=is_one)
            tick_engines.append(_gather_tick(last.model_name, last.engine, shown))
            if is_one and role is not Role.FRONTEND:
                gauges, worked = windows.cover(GAUGES), computed.value(WORK_WINDOW)
                rest = partial(_find_rest, computed, role)
                tail = computed.value(TAIL)
                judged.append(
                    Judged(
                        gauges,
                        gather_roofline(shown),
                        worked,
                        contradicted,
                        shown.get(ROW),
                        tail.prompt_mean if tail is not None else None,
                        role is Role.DECODE,
                        partial(computed.value, MODEL_RANGE.figure),
                        rest,
                    )
                )
        self._window, self._settings, self._engines = window, settings, engines
        self._asking = asking if asking is not None else nullcontext()
        self._derived: Derived | None = None
        self.tick_engines: tuple[EngineDerived, ...] = tuple(tick_engines)
        self.tick_left_out: tuple[LeftOut, ...] = tuple(left_out)
        self._limits = None
        if role not in LIMITER.silent:
            previous_verdict = previous.verdict if previous is not None else None
            now = window.later.monotonic_seconds
            self._limits = Computed(
                {JUDGED: judged, PREVIOUS: previous_verdict, NOW: now, SETTINGS: settings, TARGET_WINDOW: window}
            )
        self.verdict: Verdict | None = self._limits.value(VERDICT) if self._limits is not None else None

    @property
    def window_seconds(self) -> float:
        """As of `Derived`."""
        return _measure(self._window)

    @property
    def asked_left_out(self) -> tuple[LeftOut, ...]:
        """As of `Derived`, as far as somebody has asked."""
        return self._derived.left_out if self._derived is not None else self.tick_left_out

    def why_absent(self, field_name: str) -> Absence:
        """As of `Derivation`."""
        return explain_field(self._window.later, self._settings.role, field_name)

    def whole(self) -> Derived:
        """Everything, worked out at the first call."""
        if self._derived is None:
            with self._asking:
                if self._derived is None:
                    self._derived = self._derive_rest()
                    self._engines, self._limits = [], None  # their figures are in it
        return self._derived

    def _derive_rest(self) -> Derived:
        window, role = self._window, self._settings.role
        reasons = Reasons(window.later, role)
        engines: list[EngineDerived] = []
        causes: dict[str, Cause] = {}
        left_out: list[LeftOut] = []
        for one, at_tick in zip(self._engines, self.tick_engines, strict=True):
            if one.contradicted:
                reasons.quality[RUNNING], causes[RUNNING] = Quality.SUSPECT, Cause.COUNTERS
            engine = _derive_engine(one.computed, role, reasons, left_out, at_tick.figures, an_engine=one.is_one)
            causes.update(engine.roofline.causes)
            engines.append(engine)
        if role is Role.FRONTEND or not any(one.is_one for one in self._engines):
            _record_no_engine(reasons)
        _record_verdict(reasons, self._limits)
        live = None
        if window.spans is not None and window.spans.longer:
            live = _measure(window.cut(window.spans.configured_seconds))
        return Derived(
            tuple(engines),
            self.window_seconds,
            reasons.signals,
            reasons.quality,
            self._limits.value(WHOLE_VERDICT) if self._limits is not None else None,
            causes,
            live,
            tuple(left_out),
        )


def _measure(window: Window) -> float:
    return window.later.monotonic_seconds - window.snapshots[0].monotonic_seconds


@cache
def _list_rows(role: Role, *, an_engine: bool) -> tuple[tuple[Row[Any], bool], ...]:
    """The rows that have something to say, each with whether the target's role silences it; without an engine those that need none."""
    rows = [(row, role in row.silent) for row in ENGINE_ROWS]
    return tuple((row, silent) for row, silent in rows if silent or an_engine or not row.of_an_engine)


@cache
def _list_tick_rows(role: Role, *, an_engine: bool) -> tuple[Row[Any], ...]:
    return tuple(row for row, silent in _list_rows(role, an_engine=an_engine) if row.every_tick and not silent)


@cache
def _order_rows(role: Role, *, an_engine: bool) -> tuple[Figure[Any], ...]:
    """What all rows are computed from, in an order in which it can be computed."""
    return order_figures(row.figure for row, silent in _list_rows(role, an_engine=an_engine) if not silent)


@cache
def _order_tick_rows(role: Role, *, an_engine: bool) -> tuple[Figure[Any], ...]:
    return order_figures(row.figure for row in _list_tick_rows(role, an_engine=an_engine))


def _compute_tick_rows(computed: Computed, role: Role, left_out: list[LeftOut], *, an_engine: bool) -> Shown:
    """The values of the rows that are worked out at every tick; what comes out of its range is in `left_out` instead."""
    values = computed.compute(_order_tick_rows(role, an_engine=an_engine))
    return _show_rows(_list_tick_rows(role, an_engine=an_engine), values, computed, left_out)


def _show_rows(
    rows: Iterable[Row[Any]], values: Mapping[Figure[Any], Any], computed: Computed, left_out: list[LeftOut]
) -> Shown:
    shown = Shown()
    figures = shown.figures
    for row in rows:
        value = values[row.figure]
        if value is None or isinstance(value, Absence):
            continue
        wrong = row.find_implausible(value)
        if wrong is None:
            figures[row] = value
        else:
            left_out.append(_leave_out(computed, wrong))
    return shown


@cache
def _list_rest(role: Role) -> tuple[tuple[Row[Any], ...], tuple[Figure[Any], ...]]:
    rows = tuple(row for row in REST if role not in row.silent)
    return rows, order_figures(row.figure for row in rows)


def _find_rest(computed: Computed, role: Role) -> Roofline:
    """What of an engine the limiter reads only where compute may be what binds."""
    rows, ordered = _list_rest(role)
    return gather_roofline(_show_rows(rows, computed.compute(ordered), computed, []))


def _leave_out(computed: Computed, wrong: tuple[str, float]) -> LeftOut:
    last = computed.value(WINDOW).last
    return LeftOut(last.model_name, last.engine, wrong[0], f"{wrong[1]:g}")


def _gather_tick(model_name: str, engine: str, shown: Shown) -> EngineDerived:
    """What the cost meter and the next tick read by name."""
    return EngineDerived(
        model_name,
        engine,
        server_errors=shown.get(SERVER_ERRORS),
        busy=shown.get(BUSY_SECONDS),
        tick=shown.get(TICK_WORK),
        phase_reference_seconds_per_token=shown.get(REFERENCE) or {},
        figures=shown.figures,
    )


def _derive_engine(
    computed: Computed,
    role: Role,
    reasons: Reasons,
    left_out: list[LeftOut],
    at_tick: Mapping[Row[Any], Any],
    *,
    an_engine: bool,
) -> EngineDerived:
    """The figures of one engine; what comes out of its range is in `left_out` instead, and in no later figure, limiter or bill.

    `at_tick`: those that were looked at when they were worked out, at the tick, and are within their range.
    """
    shown, causes = Shown(), dict[str, Cause]()
    figures, value_of = shown.figures, computed.value
    values = computed.compute(_order_rows(role, an_engine=an_engine))
    for row, silent in _list_rows(role, an_engine=an_engine):
        name = row.name
        if silent:
            if name:
                reasons.record_silent(name, of_gpus=row.of_gpus)
            continue
        value = values[row.figure]
        if value is None or isinstance(value, Absence):
            if name:
                reasons.record_absent(name, value or Absence.INPUT_MISSING, row.fields, of_gpus=row.of_gpus)
            continue
        wrong = row.find_implausible(value) if row not in at_tick else None
        if wrong is not None:
            left_out.append(_leave_out(computed, wrong))
            if name:
                reasons.record_absent(name, Absence.IMPLAUSIBLE, (), of_gpus=row.of_gpus)
            continue
        figures[row] = value
        if not name:
            continue
        quality = value_of(row.quality) if row.quality is not None else None
        if row.cause is None:
            quality = Quality.SUSPECT if row.is_suspect(value) else quality
        elif (cause := value_of(row.cause)) is not None:
            causes[name], quality = cause, Quality.SUSPECT
        reasons.record_available(name, row.fields if row.fields_read is None else value_of(row.fields_read), quality)
    return _gather_engine(computed, role, shown, causes)


def _gather_engine(computed: Computed, role: Role, shown: Shown, causes: dict[str, Cause]) -> EngineDerived:
    """What the pages, the limiter and the cost meter read by name."""
    last = computed.value(WINDOW).last
    used, free = shown.get(USED_AND_FREE) or (None, None)
    return EngineDerived(
        last.model_name,
        last.engine,
        phase_tokens_per_second=shown.by_key(RATES),
        phase_tokens_per_second_per_gpu=shown.get(RATES_PER_GPU) or {},
        batch_size_mean=shown.get(SIZE_MEAN),
        batch_utilization_ratio=shown.get(UTILIZATION),
        kv_cache_used_tokens=used,
        kv_cache_free_tokens=free,
        prefix_cache_hit_ratio=shown.get(HIT_RATIO),
        context_tokens_mean=shown.get(CONTEXT_MEAN),
        kv_cache_tokens_per_request=shown.get(TOKENS_PER_REQUEST),
        preemptions_per_second=shown.get(PREEMPTIONS),
        latency=shown.by_key(LATENCY_BY_NAME),
        slo=shown.by_key(SLO_BY_NAME),
        server_errors=shown.get(SERVER_ERRORS),
        roofline=gather_roofline(shown, causes),
        busy=shown.get(BUSY_SECONDS),
        tick=shown.get(TICK_WORK),
        phase_reference_seconds_per_token=shown.get(REFERENCE) or {},
        gpu_memory_bytes=shown.get(MEMORY) or {},
        tail=shown_tail(computed.value(TAIL), role),
        figures=shown.figures,
    )


def _record_no_engine(reasons: Reasons) -> None:
    """A page of several models, none of which shows an engine: what is an engine's lacks the counters of its work."""
    for row in ENGINE_ROWS:
        if row.name and row.name not in reasons.signals:
            reasons.record_absent(row.name, Absence.INPUT_MISSING, tuple(COUNTERS.values()), of_gpus=row.of_gpus)


def _record_verdict(reasons: Reasons, limits: Computed | None) -> None:
    if limits is None:
        reasons.record_silent(LIMITER.name)
    elif isinstance(limits.value(LIMITER.figure), Verdict):
        reasons.record_available(LIMITER.name, (), None)
    else:
        reasons.record_absent(LIMITER.name, Absence.INPUT_MISSING, limits.value(LACKING))
