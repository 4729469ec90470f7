"""One window -> Derived: asks for each row of the signal table, and keeps the reason of everything that is not there."""

from __future__ import annotations

from functools import cache
from typing import Any

from llm_serving_exporter.derive import batch, kv, latency, memory, phases, slo, ticks
from llm_serving_exporter.derive.contradiction import CONTRADICTED, EVIDENCE, RUNNING
from llm_serving_exporter.derive.figures import Computed, Figure, order_figures
from llm_serving_exporter.derive.inputs import EARLIER, SETTINGS, TARGET_WINDOW, WINDOW, Settings, hand_in_windows
from llm_serving_exporter.derive.limiter import GAUGES, JUDGED, LACKING, LIMITER, NOW, PREVIOUS, VERDICT, Judged
from llm_serving_exporter.derive.load import WORK_WINDOW
from llm_serving_exporter.derive.long_context import TAIL, shown_tail
from llm_serving_exporter.derive.reasons import Reasons
from llm_serving_exporter.derive.roofline import gather_roofline
from llm_serving_exporter.derive.signals import Row, Shown
from llm_serving_exporter.derive.table import ENGINE_ROWS
from llm_serving_exporter.model.derived import Derived, EngineDerived
from llm_serving_exporter.model.roofline import Cause, Verdict
from llm_serving_exporter.model.snapshot import Absence, LeftOut, Quality
from llm_serving_exporter.model.target import Role
from llm_serving_exporter.model.window import Window

__all__ = ["Settings", "derive"]


def derive(window: Window, settings: Settings, previous: Derived | None) -> Derived:
    """Everything derived from a window. `previous` is the last result of the same engine life, None after a restart."""
    later, role = window.later, settings.role
    reasons = Reasons(later, role)
    before = {(engine.model_name, engine.engine): engine for engine in previous.engines} if previous else {}
    engines: list[EngineDerived] = []
    causes: dict[str, Cause] = {}
    judged: list[Judged] = []
    left_out: list[LeftOut] = []
    for windows in window.engine_windows():
        last = windows.configured.last
        earlier = before.get((last.model_name, last.engine))
        computed = Computed({**hand_in_windows(windows), TARGET_WINDOW: window, SETTINGS: settings, EARLIER: earlier})
        an_engine = last.is_engine or len(later.engines) == 1
        contradicted = role not in EVIDENCE.silent and computed.value(CONTRADICTED)
        if contradicted:
            reasons.quality[RUNNING], causes[RUNNING] = Quality.SUSPECT, Cause.COUNTERS
        figures = _derive_engine(computed, role, reasons, left_out, an_engine=an_engine)
        causes.update(figures.roofline.causes)
        if an_engine and role is not Role.FRONTEND:
            gauges, worked = windows.cover(GAUGES), computed.value(WORK_WINDOW)
            judged.append(Judged(gauges, figures.roofline, worked, contradicted))
        engines.append(figures)
    if not judged:
        _record_no_engine(reasons)
    verdict = _derive_verdict(judged, previous, later.monotonic_seconds, role, reasons)
    elapsed, live = _measure(window), None
    if window.spans is not None and window.spans.longer:
        live = _measure(window.cut(window.spans.configured_seconds))
    return Derived(tuple(engines), elapsed, reasons.signals, reasons.quality, verdict, causes, live, tuple(left_out))


def _measure(window: Window) -> float:
    return window.later.monotonic_seconds - window.snapshots[0].monotonic_seconds


@cache
def _list_rows(role: Role, *, an_engine: bool) -> tuple[tuple[Row[Any], bool], ...]:
    """The rows that have something to say, each with whether the target's role silences it; without an engine those that need none."""
    rows = [(row, role in row.silent) for row in ENGINE_ROWS]
    return tuple((row, silent) for row, silent in rows if silent or an_engine or not row.of_an_engine)


@cache
def _order_rows(role: Role, *, an_engine: bool) -> tuple[Figure[Any], ...]:
    """What these rows are computed from, in an order in which it can be computed."""
    return order_figures(row.figure for row, silent in _list_rows(role, an_engine=an_engine) if not silent)


def _derive_engine(
    computed: Computed, role: Role, reasons: Reasons, left_out: list[LeftOut], *, an_engine: bool
) -> EngineDerived:
    """The figures of one engine; what comes out of its range is in `left_out` instead, and in no later figure, limiter or bill."""
    shown, causes = Shown(), dict[str, Cause]()
    figures, value_of = shown.figures, computed.value
    rows = _list_rows(role, an_engine=an_engine)
    values = computed.compute(_order_rows(role, an_engine=an_engine))
    for row, silent in rows:
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
        bounds, suspect = row.bounds, False
        if bounds is not None and type(value) is float:  # the most of them
            wrong = None if bounds.least <= value <= bounds.most else (row.series[0].metric.name, value)
            suspect = bounds.suspect_above is not None and bounds.suspects(value)
        else:
            wrong = row.find_implausible(value) if row.series else None
        if wrong is not None:
            last = value_of(WINDOW).last
            left_out.append(LeftOut(last.model_name, last.engine, wrong[0], f"{wrong[1]:g}"))
            if name:
                reasons.record_absent(name, Absence.IMPLAUSIBLE, (), of_gpus=row.of_gpus)
            continue
        figures[row] = value
        if not name:
            continue
        quality = value_of(row.quality) if row.quality is not None else None
        if suspect:
            quality = Quality.SUSPECT
        if row.cause is not None and (cause := value_of(row.cause)) is not None:
            causes[name], quality = cause, Quality.SUSPECT
        reasons.record_available(name, row.fields if row.fields_read is None else value_of(row.fields_read), quality)
    return _gather_engine(computed, role, shown, causes)


def _gather_engine(computed: Computed, role: Role, shown: Shown, causes: dict[str, Cause]) -> EngineDerived:
    """What the pages, the limiter and the cost meter read by name."""
    last = computed.value(WINDOW).last
    used, free = shown.get(kv.USED_AND_FREE) or (None, None)
    return EngineDerived(
        last.model_name,
        last.engine,
        phase_tokens_per_second=shown.by_key(phases.RATES),
        phase_tokens_per_second_per_gpu=shown.get(phases.RATES_PER_GPU) or {},
        batch_size_mean=shown.get(batch.SIZE_MEAN),
        batch_utilization_ratio=shown.get(batch.UTILIZATION),
        kv_cache_used_tokens=used,
        kv_cache_free_tokens=free,
        prefix_cache_hit_ratio=shown.get(kv.HIT_RATIO),
        context_tokens_mean=shown.get(kv.CONTEXT_MEAN),
        preemptions_per_second=shown.get(kv.PREEMPTIONS),
        latency=shown.by_key(latency.BY_NAME),
        slo=shown.by_key(slo.BY_NAME),
        server_errors=shown.get(slo.SERVER_ERRORS),
        roofline=gather_roofline(shown, causes),
        busy=shown.get(ticks.BUSY_SECONDS),
        tick=shown.get(ticks.TICK_WORK),
        phase_reference_seconds_per_token=shown.get(ticks.REFERENCE) or {},
        gpu_memory_bytes=shown.get(memory.MEMORY) or {},
        tail=shown_tail(computed.value(TAIL), role),
        figures=shown.figures,
    )


def _record_no_engine(reasons: Reasons) -> None:
    """A page of several models, none of which shows an engine: what is an engine's lacks the counters of its work."""
    for row in ENGINE_ROWS:
        if row.name and row.name not in reasons.signals:
            reasons.record_absent(row.name, Absence.INPUT_MISSING, tuple(phases.COUNTERS.values()), of_gpus=row.of_gpus)


def _derive_verdict(
    judged: list[Judged], previous: Derived | None, now: float, role: Role, reasons: Reasons
) -> Verdict | None:
    if role in LIMITER.silent:
        reasons.record_silent(LIMITER.name)
        return None
    computed = Computed({JUDGED: judged, PREVIOUS: previous.verdict if previous else None, NOW: now})
    found = computed.value(LIMITER.figure)
    if isinstance(found, Verdict):
        reasons.record_available(LIMITER.name, (), None)
    else:
        reasons.record_absent(LIMITER.name, Absence.INPUT_MISSING, computed.value(LACKING))
    return computed.value(VERDICT)
