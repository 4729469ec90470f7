"""One window -> Derived: calls the parts and keeps the reason of everything that is not there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from llm_serving_exporter.derive import batch, kv, latency, phases, slo
from llm_serving_exporter.model.derived import Derived, EngineDerived, Latency, SloCount
from llm_serving_exporter.model.snapshot import (
    COUNTER_FIELDS,
    GAUGE_FIELDS,
    HISTOGRAM_FIELDS,
    LABELLED_COUNTER_FIELDS,
    Absence,
    EngineSnapshot,
    Quality,
    Snapshot,
)
from llm_serving_exporter.model.window import EngineWindow, Window

PASSED_THROUGH = (*COUNTER_FIELDS, *LABELLED_COUNTER_FIELDS, *HISTOGRAM_FIELDS, *GAUGE_FIELDS)
# fields whose absence has a setting as its remedy
_CONFIGURABLE = frozenset({"batch_limit_requests", "context_limit_tokens"})


@dataclass(frozen=True, slots=True)
class Settings:
    """What derive needs of the configuration. `slo_seconds` by SLO name; `gpus_per_engine` None where not known."""

    slo_seconds: Mapping[str, float] = field(default_factory=dict)
    slo_errors: bool = True
    gpus_per_engine: float | None = None


_WORSE = (Quality.LIVE, Quality.SLOW, Quality.LAGGING, Quality.CLIPPED, Quality.APPROXIMATE, Quality.SUSPECT)


class _Notes:
    """Why signals are absent and what is not live, gathered over engines: available anywhere means available."""

    def __init__(self, later: Snapshot) -> None:
        self.signals: dict[str, Absence] = {}
        self.quality: dict[str, Quality] = dict(later.quality)
        self._later = later

    def take(self, signal: str, outcome: object, *inputs: str) -> bool:
        """Records one outcome; True where it is a value. An Absence INPUT_MISSING is explained by the first absent input."""
        if not isinstance(outcome, Absence):
            self.signals[signal] = Absence.AVAILABLE
            # no better than the worst of what it is made from
            worst = max(
                (self.quality.get(name, Quality.LIVE) for name in inputs), key=_WORSE.index, default=Quality.LIVE
            )
            if worst is not Quality.LIVE:
                self.quality.setdefault(signal, worst)
            return True
        if outcome is Absence.INPUT_MISSING:
            for name in inputs:
                if self.signals.get(name, Absence.AVAILABLE):
                    outcome = self.signals[name]
                    break
        if self.signals.get(signal, outcome):
            self.signals[signal] = outcome
        return False

    def passed_through(self) -> None:
        engines = self._later.engines
        for name in PASSED_THROUGH:
            for engine in engines:
                if getattr(engine, name) is not None:
                    self.signals[name] = Absence.AVAILABLE
                    break
            else:
                self.signals[name] = self._why(name)
        if any((engine.kv_cache_usage_ratio or 0.0) > 1.0 for engine in engines):
            self.quality["kv_cache_usage_ratio"] = Quality.SUSPECT  # exported as it is: hiding it would hide the fault

    def _why(self, name: str) -> Absence:
        if name in _CONFIGURABLE:
            return Absence.NOT_CONFIGURED
        return self._later.absent.get(name, Absence.NOT_EXPORTED)


def derive(window: Window, settings: Settings, previous: Derived | None) -> Derived:
    """Everything derived from a window. `previous` is the last result of the same engine life, None after a restart."""
    later = window.later
    notes = _Notes(later)
    notes.passed_through()
    before = {(engine.model_name, engine.engine): engine for engine in previous.engines} if previous else {}
    engines = []
    for engine_window in window.engines():
        last = engine_window.last
        counts = _slo(last, settings, notes)
        figures = _engine(engine_window, settings, counts, notes)
        if settings.slo_errors and last.http_responses_total is not None:
            earlier = before.get((last.model_name, last.engine))
            of_model = [engine for engine in later.engines if engine.model_name == last.model_name]
            figures = replace(
                figures, server_errors=slo.server_errors(of_model, earlier.server_errors if earlier else None)
            )
        engines.append(figures)
    elapsed = later.monotonic_seconds - window.snapshots[0].monotonic_seconds
    return Derived(tuple(engines), elapsed, notes.signals, notes.quality)


def _engine(window: EngineWindow, settings: Settings, counts: dict[str, SloCount], notes: _Notes) -> EngineDerived:
    values: dict[str, float] = {}
    rates = phases.tokens_per_second(window)
    for phase, counter in phases.COUNTERS.items():
        missing = Absence.INPUT_MISSING if getattr(window.last, counter) is None else Absence.WARMING_UP
        notes.take(f"phase_tokens_per_second_{phase}", rates.get(phase, missing), counter)
    shared = phases.per_gpu(rates, settings.gpus_per_engine)
    per_gpu = shared if shared else _why_no_share(settings, rates)
    notes.take("phase_tokens_per_second_per_gpu", per_gpu, *phases.COUNTERS.values())

    used = kv.used_and_free_tokens(window)
    if notes.take("kv_cache_used_tokens", used, "kv_cache_usage_ratio", "kv_cache_capacity_tokens") and isinstance(
        used, tuple
    ):
        values["kv_cache_used_tokens"], values["kv_cache_free_tokens"] = used
    for signal, outcome, inputs in (
        ("batch_size_mean", batch.batch_size_mean(window), ("inter_token_latency_seconds", "engine_steps_total")),
        ("batch_utilization_ratio", batch.batch_utilization_ratio(window), ("requests_running",)),
        ("prefix_cache_hit_ratio", kv.prefix_cache_hit_ratio(window), ("prefix_cache_query_tokens_total",)),
        ("context_tokens_mean", kv.context_tokens_mean(window), ("kv_cache_capacity_tokens", "requests_running")),
        ("preemptions_per_second", kv.preemptions_per_second(window), ("preemptions_total",)),
    ):
        if notes.take(signal, outcome, *inputs) and isinstance(outcome, float):
            values[signal] = outcome

    latencies: dict[str, Latency] = {}
    for name, field_name in latency.LATENCIES.items():
        found = latency.latency(window, field_name)
        if notes.take(f"latency_{name}", found, field_name) and isinstance(found, Latency):
            latencies[name] = found
            clipped = latency.quality(found)
            if clipped is not None:
                notes.quality[f"latency_{name}"] = clipped
    last = window.last
    return EngineDerived(
        last.model_name,
        last.engine,
        phase_tokens_per_second=rates,
        phase_tokens_per_second_per_gpu=shared,
        batch_size_mean=values.get("batch_size_mean"),
        batch_utilization_ratio=values.get("batch_utilization_ratio"),
        kv_cache_used_tokens=values.get("kv_cache_used_tokens"),
        kv_cache_free_tokens=values.get("kv_cache_free_tokens"),
        prefix_cache_hit_ratio=values.get("prefix_cache_hit_ratio"),
        context_tokens_mean=values.get("context_tokens_mean"),
        preemptions_per_second=values.get("preemptions_per_second"),
        latency=latencies,
        slo=counts,
    )


def _why_no_share(settings: Settings, rates: dict[str, float]) -> Absence:
    if settings.gpus_per_engine is None:
        return Absence.GPUS_UNKNOWN
    return Absence.WARMING_UP if not rates else Absence.INPUT_MISSING


def _slo(last: EngineSnapshot, settings: Settings, notes: _Notes) -> dict[str, SloCount]:
    counts: dict[str, SloCount] = {}
    for name, field_name in slo.LATENCY_FIELDS.items():
        threshold = settings.slo_seconds.get(name)
        outcome = Absence.NOT_CONFIGURED if threshold is None else slo.latency_slo(getattr(last, field_name), threshold)
        if notes.take(f"slo_{name}", outcome, field_name) and isinstance(outcome, SloCount):
            counts[name] = outcome
    errors = slo.error_slo(last) if settings.slo_errors else Absence.NOT_CONFIGURED
    if notes.take("slo_errors", errors, "requests_finished_total") and isinstance(errors, SloCount):
        counts["errors"] = errors
    return counts
