"""One window -> Derived: calls the parts and keeps the reason of everything that is not there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from llm_serving_exporter.derive import batch, kv, latency, limiter, phases, resolution, slo
from llm_serving_exporter.derive import tail as tails
from llm_serving_exporter.derive.lengths import Histories
from llm_serving_exporter.derive.live import live
from llm_serving_exporter.derive.notes import PASSED_THROUGH, Notes
from llm_serving_exporter.derive.roles import SILENT, of_role
from llm_serving_exporter.derive.roofline import Hardware
from llm_serving_exporter.model.derived import Derived, EngineDerived, Latency, SloCount, Tail
from llm_serving_exporter.model.devices import DeviceSample
from llm_serving_exporter.model.roofline import Cause, Limiter, Roofline, Verdict
from llm_serving_exporter.model.snapshot import Absence, EngineSnapshot, Quality
from llm_serving_exporter.model.target import Role
from llm_serving_exporter.model.weights import ModelFacts
from llm_serving_exporter.model.window import EngineWindow, Window

__all__ = ["PASSED_THROUGH", "Settings", "derive"]


FINISHED = "requests_finished_total"
# counters of one page are booked at slightly different moments
BATCH_TOLERANCE = 0.05
# in the engine's unit too, where that is not known to be tokens
_LOOKUPS = (
    "prefix_cache_query_tokens_total",
    "prefix_cache_hit_tokens_total",
    "prefix_cache_queries",
    "prefix_cache_hits",
)


@dataclass(frozen=True, slots=True)
class Settings:
    """What derive needs beside the window. `slo_seconds` by SLO name; `models` by model name, a name that is not there is unknown.

    `device`: the newest pass over the target's GPUs, for the window. `significant_digits`: as `Snapshot` has them.
    `errors_counted`: whether the runtime tells requests that ended in an error from others. `role`: the target's. `lengths`: of the
    last finished requests, this page's included. `default_edges`: of the runtime's latency histograms by SLO
    name, unless it is configured otherwise.
    """

    slo_seconds: Mapping[str, float] = field(default_factory=dict)
    slo_errors: bool = True
    hardware: Hardware = field(default_factory=Hardware)
    models: Mapping[str, ModelFacts | Absence] = field(default_factory=dict)
    device: DeviceSample | None = None
    significant_digits: int | None = None
    errors_counted: bool = True
    role: Role = Role.UNIFIED
    lengths: Histories = field(default_factory=dict)
    default_edges: Mapping[str, tuple[float, ...]] = field(default_factory=dict)


def derive(window: Window, settings: Settings, previous: Derived | None) -> Derived:
    """Everything derived from a window. `previous` is the last result of the same engine life, None after a restart."""
    later = window.later
    notes = Notes(later, SILENT[settings.role])
    notes.passed_through()
    before = {(engine.model_name, engine.engine): engine for engine in previous.engines} if previous else {}
    engines: list[EngineDerived] = []
    causes: dict[str, Cause] = {}
    judged: list[tuple[EngineWindow, Roofline]] = []
    for engine_window in window.engines():
        last = engine_window.last
        # of several engines nobody knows whose a counter will be that has yet to come
        alone = len(later.engines) == 1
        awaited = later.awaited if alone else frozenset()
        counts = _slo(last, settings, notes, awaited)
        figures = _engine(engine_window, settings, counts, notes)
        first = "http_responses_total" in awaited
        if settings.slo_errors and settings.errors_counted and (last.http_responses_total is not None or first):
            earlier = before.get((last.model_name, last.engine))
            # HTTP answers that name no model are those of all of them
            of_model = [engine for engine in later.engines if last.model_name in (engine.model_name, "")]
            counted = slo.server_errors(of_model, earlier.server_errors if earlier else None, awaited=first)
            figures = replace(figures, server_errors=counted)
        if settings.role is Role.FRONTEND:
            for signal in sorted(SILENT[Role.FRONTEND]):
                notes.take(signal, Absence.OTHER_ROLE)
        elif last.is_engine or alone:
            model = settings.models.get(last.model_name, Absence.MODEL_UNKNOWN)
            earlier = before.get((last.model_name, last.engine))
            figures = live(engine_window, window, (model, settings.hardware), figures, earlier, notes)
            if settings.role is not Role.UNIFIED:
                figures = replace(figures, roofline=of_role(figures.roofline, settings.role))
            causes.update(
                {signal: cause for signal, cause in figures.roofline.causes.items() if not notes.silent(signal)}
            )
            judged.append((engine_window, figures.roofline))
        engines.append(figures)
    if not judged and settings.role is not Role.FRONTEND:
        for signal in SILENT[Role.FRONTEND]:  # all that is an engine's
            notes.take(signal, Absence.INPUT_MISSING, *phases.COUNTERS.values())
    verdict = None
    if settings.role is not Role.FRONTEND:
        verdict = _verdict(judged, previous, later.monotonic_seconds, notes)
    notes.settle()
    elapsed = later.monotonic_seconds - window.snapshots[0].monotonic_seconds
    return Derived(tuple(engines), elapsed, notes.in_order(), notes.quality, verdict, causes)


def _verdict(
    judged: list[tuple[EngineWindow, Roofline]], previous: Derived | None, now: float, notes: Notes
) -> Verdict:
    evidence = limiter.evidence([one for one, _ in judged], [roof for _, roof in judged])
    verdict = limiter.judge(evidence, previous.verdict if previous else None, now)
    if verdict.state is Limiter.UNKNOWN:
        # what is suspect has not been used, so that it does not make the verdict suspect
        notes.take("limiter", Absence.INPUT_MISSING, *limiter.lacking(evidence))
    else:
        notes.take("limiter", verdict)
    return verdict


def _engine(window: EngineWindow, settings: Settings, counts: dict[str, SloCount], notes: Notes) -> EngineDerived:
    values: dict[str, float] = {}
    rates = phases.tokens_per_second(window)
    for phase, counter in phases.COUNTERS.items():
        missing = Absence.INPUT_MISSING if getattr(window.last, counter) is None else Absence.WARMING_UP
        signal = f"phase_tokens_per_second_{phase}"
        notes.take(signal, rates.get(phase, missing), phases.counter_of(phase, window))
        if resolution.coarse(window, phases.counter_of(phase, window), settings.significant_digits):
            notes.quality[signal] = Quality.APPROXIMATE
    own_gpus = None if settings.role is Role.FRONTEND else settings.hardware.engine_gpus
    shared = phases.per_gpu(rates, own_gpus)
    per_gpu = shared if shared else _why_no_share(settings, rates, window.last)
    notes.take("phase_tokens_per_second_per_gpu", per_gpu, *phases.COUNTERS.values())

    used = kv.used_and_free_tokens(window)
    if notes.take("kv_cache_used_tokens", used, "kv_cache_usage_ratio", "kv_cache_capacity_tokens") and isinstance(
        used, tuple
    ):
        values["kv_cache_used_tokens"], values["kv_cache_free_tokens"] = used
    for signal, outcome, inputs in (
        (
            "batch_size_mean",
            batch.batch_size_mean(window),
            ("inter_token_latency_seconds", "engine_steps_total", "decode_tokens_total"),
        ),
        ("batch_utilization_ratio", batch.batch_utilization_ratio(window), ("requests_running",)),
        ("prefix_cache_hit_ratio", kv.prefix_cache_hit_ratio(window), _LOOKUPS),
        ("context_tokens_mean", kv.context_tokens_mean(window), ("kv_cache_capacity_tokens", "requests_running")),
        ("preemptions_per_second", kv.preemptions_per_second(window), ("preemptions_total",)),
    ):
        if notes.take(signal, outcome, *inputs) and isinstance(outcome, float):
            values[signal] = outcome

    limit, mean = window.last.batch_limit_requests, values.get("batch_size_mean")
    if limit and mean is not None and mean > limit * (1 + BATCH_TOLERANCE):
        # more than run at once: the engine's steps are not what they seem
        notes.quality["batch_size_mean"] = Quality.SUSPECT
    if values.get("prefix_cache_hit_ratio", 0.0) > 1:
        # found before it was looked up: the two are booked at different moments of a request
        notes.quality["prefix_cache_hit_ratio"] = Quality.SUSPECT
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
        tail=_tail(last, settings, notes),
    )


def _tail(last: EngineSnapshot, settings: Settings, notes: Notes) -> Tail | None:
    """The long-context tail, without what the target's role does not have."""
    history = settings.lengths.get((last.model_name, last.engine))
    found = history.tail if history is not None and last.request_prompt_tokens is not None else None
    few = found is not None and found.observed < tails.FEWEST
    p99 = found.prompt_p99 if found is not None else None
    for signal, (name, inputs) in tails.SIGNALS.items():
        value: object = getattr(found, name, None)
        if value is None or value == {}:
            there = all(getattr(last, field) is not None for field in inputs)
            value = Absence.IDLE if few and there else Absence.INPUT_MISSING
        notes.take(signal, value, *inputs)
    if p99 is not None and p99.clipped:
        notes.quality.update(
            {signal: Quality.CLIPPED for signal in tails.OF_P99 if notes.signals[signal] is Absence.AVAILABLE}
        )
    if found is not None and settings.role is Role.FRONTEND:
        return replace(found, kv_share_ratio=None, requests_fit={})
    return found


def _why_no_share(settings: Settings, rates: dict[str, float], last: EngineSnapshot) -> Absence:
    if all(getattr(last, counter) is None for counter in phases.COUNTERS.values()):
        return Absence.INPUT_MISSING
    if settings.hardware.engine_gpus is None:
        return Absence.GPUS_UNKNOWN
    return Absence.WARMING_UP if not rates else Absence.INPUT_MISSING


def _slo(last: EngineSnapshot, settings: Settings, notes: Notes, awaited: frozenset[str]) -> dict[str, SloCount]:
    """Counts by objective, at 0 where the first event has yet to come: an increase() over a counter born at 1 is 0."""
    counts: dict[str, SloCount] = {}
    for name, field_name in slo.LATENCY_FIELDS.items():
        threshold = settings.slo_seconds.get(name)
        histogram = getattr(last, field_name)
        outcome: SloCount | Absence = Absence.NOT_CONFIGURED
        if threshold is not None and histogram is None and field_name in awaited:
            outcome = slo.awaited_latency_slo(settings.default_edges.get(name, ()), threshold)
        elif threshold is not None:
            outcome = slo.latency_slo(histogram, threshold)
        if notes.take(f"slo_{name}", outcome, field_name) and isinstance(outcome, SloCount):
            counts[name] = outcome
    errors = slo.error_slo(last, awaited=FINISHED in awaited) if settings.slo_errors else Absence.NOT_CONFIGURED
    if settings.slo_errors and not settings.errors_counted:
        errors = Absence.NOT_EXPORTED
    if notes.take("slo_errors", errors, FINISHED) and isinstance(errors, SloCount):
        counts["errors"] = errors
    return counts
