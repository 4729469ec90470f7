"""One target's reading -> its serving, derived and health series."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from operator import attrgetter
from typing import Any, NamedTuple

from llm_serving_exporter.catalogue import cost, health, roofline
from llm_serving_exporter.catalogue.cost import TENANTS
from llm_serving_exporter.catalogue.derived import DERIVED
from llm_serving_exporter.catalogue.roofline import ROOFLINE, SUSPECT
from llm_serving_exporter.catalogue.serving import BATCH_LIMIT, COUNTERS, GAUGES, HISTOGRAMS
from llm_serving_exporter.catalogue.spec import SERVING_LABELS, Metric
from llm_serving_exporter.derive.signals import Row, Series
from llm_serving_exporter.expose.families import (
    NO_LABELS,
    NO_PLACES,
    Element,
    Families,
    SharedLabels,
    find_place,
    label_place,
)
from llm_serving_exporter.model.cost import (
    Attribution,
    EngineCost,
    EngineTotals,
    PriceBook,
    Storage,
    StorageReport,
    WindowCost,
)
from llm_serving_exporter.model.derived import Cause, Derived, EngineDerived, Limiter
from llm_serving_exporter.model.hardware import TargetGpus
from llm_serving_exporter.model.numbers import resolution
from llm_serving_exporter.model.reading import State, TargetReading
from llm_serving_exporter.model.sample import FailureReason, Stage
from llm_serving_exporter.model.shape import ModelFacts
from llm_serving_exporter.model.snapshot import (
    COUNTER_FIELDS,
    LABELLED_COUNTER_FIELDS,
    Absence,
    EngineSnapshot,
    LimitSource,
    Quality,
    Snapshot,
)
from llm_serving_exporter.model.target import NodePlace, Target

# --- One engine's derived figures -> series, in the order of METRICS.md.


_PLACES = {metric.name: place for place, metric in enumerate((*DERIVED, *ROOFLINE))}


class _Planned(NamedTuple):
    """The series of one metric that one row's value becomes."""

    metric: Metric
    own: tuple[str, ...]  # its labels beyond those of every serving series
    row: Row[Any]  # where the value comes from
    series: Series
    part: Callable[[Any], Any] | None  # the same
    # what a section has of it where the part is one number; None: one number does not fill its labels
    of_number: tuple[Element, ...] | None


# engines of a fleet have a handful of sets of figures, by role and by what their runtime says
@lru_cache(maxsize=64)
def _plan_series(rows: tuple[Row[Any], ...]) -> tuple[_Planned, ...]:
    found = [_plan_one(row, one) for row in rows for one in row.series if one.metric.name in _PLACES]
    return tuple(sorted(found, key=lambda one: _PLACES[one.metric.name]))


def _plan_one(row: Row[Any], series: Series) -> _Planned:
    metric, labels = series.metric, series.labels
    own = metric.labels[len(SERVING_LABELS) :]
    of_number: tuple[Element, ...] | None = (metric, own, (labels,)) if own else (metric,)
    return _Planned(metric, own, row, series, series.part, of_number if len(labels) == len(own) else None)


@lru_cache(maxsize=512)
def _complete_keys(metric: Metric, labels: tuple[str, ...], keys: tuple[Any, ...]) -> tuple[tuple[str, ...], ...]:
    """The values of all labels that the metric's series have of their own: those of the whole row, and those that are a key of its value.

    Raises ValueError where the metric declares others.
    """
    found = tuple((*labels, *key) if isinstance(key, tuple) else (*labels, key) for key in keys)
    own = metric.labels[len(SERVING_LABELS) :]
    if any(len(one) != len(own) for one in found):
        raise ValueError(f"{metric.name} has the labels {own}, its values those of {found}")
    return found


def add_figures(families: Families, derived: EngineDerived, labels: SharedLabels) -> None:
    """Adds every figure of an engine that there is."""
    figures: Any = derived.figures
    elements, numbers = list[Element](), list[float]()
    for metric, own, row, series, part_of, of_number in _plan_series(tuple(figures)):
        value = figures[row]
        part = value if part_of is None else part_of(value)
        if type(part) is float and of_number is not None:  # the most of them
            elements += of_number
            numbers.append(part)
            continue
        given = series.labels
        if type(part) is not dict:
            part, given = series.samples(value), ()
        if part:
            keys = _complete_keys(metric, given, tuple(part))
            elements += (metric, own, keys) if own else (metric,)
            numbers += part.values()
    families.add_elements(labels, elements, numbers)


# --- One target's limiter and model facts -> series.


# free text about where facts come from may hold a path of any length
LONGEST_ORIGIN = 120
# with their codes: `.value` of an enum takes several times as long as a line
_LIMITERS = tuple((state, state.value) for state in Limiter)


def add_limiter(families: Families, reading: TargetReading, derived: Derived) -> None:
    """The limiter with its evidence, and what is suspect."""
    of_target = families.of_target(reading.target)
    model_name = reading.server.model_name or reading.target.model_name or ""
    labels = of_target.with_labels(model_name=model_name, role=reading.role.value)
    verdict = derived.verdict
    if verdict is not None:
        families.add_by_label(
            roofline.LIMITER, labels, "state", {code: state is verdict.state for state, code in _LIMITERS}
        )
        families.add_by_label(roofline.LIMITER_EVIDENCE, labels, "evidence", verdict.evidence)
    for signal, cause in derived.causes.items():
        families.add_value(roofline.SUSPECT, of_target, 1, signal=signal, cause=cause.value)


def add_model_facts(families: Families, target: Target, model_name: str, facts: ModelFacts) -> None:
    """What is known about one served model."""
    labels = families.of_target(target).with_labels(model_name=model_name)
    families.add_unchanged(labels, facts, _add_facts)


def _add_facts(families: Families, labels: SharedLabels, facts: ModelFacts) -> None:
    formats = sorted({group.format.name for group in facts.groups})
    geometry = facts.geometry
    families.add_info(
        roofline.MODEL_INFO,
        labels,
        family=geometry.family,
        weight_format="+".join(formats),
        kv_format=facts.kv_format,
        origin=facts.origin[:LONGEST_ORIGIN],
    )
    counts = {
        "total": geometry.parameters_total,
        "active": geometry.parameters_active,
        "decode_read": geometry.decode_read_parameters,
    }
    families.add_by_label(roofline.MODEL_PARAMETERS, labels, "kind", counts)
    families.add_value(roofline.MODEL_WEIGHT_BYTES, labels, facts.weight_bytes, kind="computed")
    families.add_value(roofline.MODEL_WEIGHT_BYTES, labels, facts.checkpoint_bytes, kind="checkpoint")
    families.add_value(roofline.MODEL_KV_BYTES, labels, facts.kv_bytes_per_token)


# --- What a target costs -> series. Totals are there in every state of the target: a dead engine still costs.


def add_cost(families: Families, reading: TargetReading, *, fresh: bool) -> None:
    """Adds the series of one target's cost. `fresh`: whether figures of the window are shown."""
    found = reading.cost
    if found is None:
        return
    of_target = families.of_target(reading.target)
    if found.busy_source is not None:
        families.add_value(cost.GPU_BUSY_SOURCE, of_target, 1.0, source=found.busy_source.value)
    for one in found.engines:
        labels = of_target.with_labels(model_name=one.model_name, engine=one.engine, role=one.role)
        _totals(families, one.totals, labels)
        if fresh:
            _window(families, one.window, labels, found.method.value)
            _attribution(families, one, labels, found.method.value, found.inputs)
    if found.price is not None and reading.gpus.total is not None:
        rate, gpu_name = found.price.rate.name, reading.gpus.total.name
        families.add_value(cost.PRICE, of_target, found.price.usd_per_gpu_hour, gpu_name=gpu_name, rate=rate)


def _totals(families: Families, totals: EngineTotals, labels: SharedLabels) -> None:
    seconds, usd = totals.gpu_seconds, totals.usd
    families.add_values(cost.GPU_SECONDS, labels, ("state", "rate"), list(seconds), seconds.values())
    families.add_values(cost.COST, labels, ("phase", "rate", "method"), list(usd), usd.values())
    families.add_value(cost.ENERGY, labels, totals.energy_joules)
    families.add_value(cost.ENERGY_COST, labels, totals.energy_usd)
    families.add_value(cost.CARBON, labels, totals.carbon_grams)
    families.add_value(cost.SAVINGS, labels, totals.savings_usd)


def _window(families: Families, window: WindowCost, labels: SharedLabels, method: str) -> None:
    per_million = window.usd_per_million_tokens
    keys = [(*key, method) for key in per_million]
    families.add_values(cost.COST_PER_MILLION, labels, ("phase", "basis", "method"), keys, per_million.values())
    families.add_value(cost.TOKENS_PER_USD, labels, window.tokens_per_usd)
    families.add_value(cost.COST_PER_REQUEST, labels, window.usd_per_request)
    families.add_value(cost.ENERGY_PER_TOKEN, labels, window.joules_per_token)


def _attribution(families: Families, one: EngineCost, labels: SharedLabels, method: str, inputs: str) -> None:
    if one.totals.usd:
        families.add_info(cost.ATTRIBUTION, labels, method=method, inputs=inputs)


def add_price_book(families: Families, prices: PriceBook | None, how: Attribution) -> None:
    """Adds what the price file says about no target in particular: rates, budget, efficiency."""
    if prices is None:
        return
    eta = {"compute": how.efficiency.compute, "bandwidth": how.efficiency.bandwidth}
    families.add_by_label(cost.EFFICIENCY, NO_LABELS, "ceiling", eta)
    for rate in prices.rates:
        includes = "true" if rate.includes_power else "false"
        families.add_info(cost.RATE_INFO, NO_LABELS, rate=rate.name, kind=rate.kind.value, includes_power=includes)
        families.add_value(cost.COMMITTED_GPUS, NO_LABELS, rate.committed_gpus, rate=rate.name)
    families.add_value(cost.BUDGET, NO_LABELS, prices.budget_usd_per_month)


def add_storage(families: Families, report: StorageReport) -> None:
    """Adds where the counters of cost are safe."""
    by_storage = {one.value: one is report.storage for one in Storage}
    families.add_by_label(health.COST_STORAGE, NO_LABELS, "storage", by_storage)
    families.add_value(health.COST_SNAPSHOT_TIME, NO_LABELS, report.snapshot_unix_seconds)
    families.add_value(health.COST_SNAPSHOT_FAILURES, NO_LABELS, report.failures_total)


# --- One front door's counts by tenant -> series.


def add_tenants(families: Families, reading: TargetReading) -> None:
    """A series for each tenant, model and count; none where tenants are off or the page knows none."""
    if reading.page.tenants is None:
        return
    of_target, kind = families.of_target(reading.target), reading.page.tenants.kind.value
    labels = of_target.with_labels(role=reading.role.value, kind=kind)
    for metric in TENANTS:
        counted = [
            ((row.model_name, row.tenant), row.counts[metric.name])
            for row in reading.page.tenants.rows
            if metric.name in row.counts
        ]
        families.add_values(
            metric, labels, ("model_name", "tenant"), [key for key, _ in counted], [value for _, value in counted]
        )


# --- What a target says and how it is


# those at which the reading of a target can end: their counters exist at 0 from the start, because an increase() over one born at 1 is 0
TARGET_STAGES = (Stage.SCRAPE, Stage.PARSE, Stage.NORMALISE)

_STATES = tuple((state, state.value) for state in State)
# what is passed through, each of all engines by one call
_read_counters = attrgetter(*[metric.name for metric in COUNTERS])
_read_histograms = attrgetter(*[metric.name for metric in HISTOGRAMS])
_read_gauges = attrgetter(*[metric.name for metric in GAUGES])
# the label that a counter's series have of their own; None: it has one series
_OWN_OF_COUNTERS = tuple(
    (LABELLED_COUNTER_FIELDS[metric.name],) if metric.name in LABELLED_COUNTER_FIELDS else None for metric in COUNTERS
)

_SOURCE = ("source",)
# nothing at the target's address takes a connection: a dead process refuses it, a dead host cannot
SILENT = "silent"
# figures of the window among those of cost
OF_WINDOW = (cost.COST_PER_MILLION.name, cost.COST_PER_REQUEST.name, cost.ENERGY_PER_TOKEN.name)


def add_serving(families: Families, reading: TargetReading) -> None:
    """What the last good page says and what follows from it. Nothing where there is none."""
    if reading.page.snapshot is None:
        return
    of_target, role = families.of_target(reading.target), reading.role.value
    derived = reading.page.derived.engines if reading.page.derived is not None else ()
    # what is passed through and what is derived share their labels
    keys = dict.fromkeys((engine.model_name, engine.engine) for engine in reading.page.snapshot.engines)
    keys |= dict.fromkeys((engine.model_name, engine.engine) for engine in derived)
    shared = {key: of_target.with_labels(model_name=key[0], engine=key[1], role=role) for key in keys}
    for engine in reading.page.snapshot.engines:
        _passed_through(families, engine, shared[engine.model_name, engine.engine])
        families.write_section()
    if reading.page.derived is None:
        return
    for one in derived:
        add_figures(families, one, shared[one.model_name, one.engine])
        families.write_section()
    add_limiter(families, reading, reading.page.derived)
    for name, facts in reading.server.models.items():
        if isinstance(facts, ModelFacts):
            add_model_facts(families, reading.target, name, facts)


def _passed_through(families: Families, engine: EngineSnapshot, labels: SharedLabels) -> None:
    elements, numbers = list[Element](), list[float]()
    for metric, own, value in zip(COUNTERS, _OWN_OF_COUNTERS, _read_counters(engine), strict=True):
        if value is None:
            continue
        if own is None:
            elements.append(metric)
            numbers.append(value)
        elif value:
            elements += (metric, own, tuple(value))
            numbers += value.values()
    families.add_elements(labels, elements, numbers)
    for metric, histogram in zip(HISTOGRAMS, _read_histograms(engine), strict=True):
        families.add_histogram(metric, labels, histogram)
    elements, numbers = [], []
    for metric, value in zip(GAUGES, _read_gauges(engine), strict=True):
        if value is None:
            continue
        elements += (
            (metric,)
            if metric is not BATCH_LIMIT
            else (metric, _SOURCE, ((engine.batch_limit_source or LimitSource.PAGE).value,))
        )
        numbers.append(value)
    families.add_elements(labels, elements, numbers)


def add_target_health(
    families: Families,
    reading: TargetReading,
    *,
    fresh: bool,
    now_monotonic_seconds: float,
    stated: Mapping[str, NodePlace] = NO_PLACES,
) -> None:
    """State, attempts, identity and signals of one target: there in every state. `fresh`: whether its serving series are shown; `stated`:
    where the price file says that nodes stand."""
    target = reading.target
    labels = families.of_target(target)
    role = reading.role.value
    # what the configuration says stands from the start, so that a replica that was never up is still somebody's
    model_name = reading.server.model_name or target.model_name or ""
    families.add_info(
        health.TARGET_INFO,
        families.of_target_info(target),
        runtime=reading.server.runtime or target.runtime or "",
        version=reading.server.facts.version or "",
        model_name=model_name,
        role=role,
        group=target.group,
    )
    for node in target.nodes:
        place = label_place(find_place(target, node, stated))
        families.add_info(health.TARGET_NODE_INFO, labels, model_name=model_name, role=role, node=node, **place)
    if reading.gpus.total is not None:
        cards = _count_cards(reading, reading.gpus.total)
        families.add_value(health.TARGET_GPUS, labels, cards, gpu_name=reading.gpus.total.name)
    if (part := reading.server.replica_part) is not None:
        ranks = {"replica": part.ranks, "target": part.shown, "read": part.read}
        for of, number in ranks.items():
            families.add_value(health.TARGET_REPLICA_RANKS, labels, number, replica_name=part.replica, of=of)
    families.add_value(health.TARGET_START_TIME, labels, reading.server.start_unix_seconds)
    families.add_value(health.TARGET_UP, labels, reading.page.up)
    families.add_by_label(
        health.TARGET_STATE, labels, "state", {code: state is reading.server.state for state, code in _STATES}
    )
    for fault in _list_faults(reading):
        # the first node has the address: a leader's stands before those of its workers
        families.add_info(health.TARGET_FAULT, labels, fault=fault, node=target.nodes[0] if target.nodes else "")
    if reading.page.snapshot is not None:
        age = max(0.0, now_monotonic_seconds - reading.page.snapshot.monotonic_seconds)
        families.add_value(health.TARGET_SAMPLE_AGE, labels, age)
        families.add_value(health.UNMAPPED_FAMILIES, labels, len(reading.page.snapshot.unmapped_families))
    families.add_value(health.TARGET_RESTARTS, labels, reading.server.restarts_total)
    families.add_value(health.SCRAPE_ATTEMPTS, labels, reading.page.attempts_total)
    _failures(families, reading, labels)
    if reading.page.last is not None:
        families.add_value(health.SCRAPE_DURATION, labels, reading.page.last.duration_seconds)
        families.add_value(health.SCRAPE_PAGE, labels, reading.page.last.page_bytes)
    if reading.page.derived is not None:
        families.add_value(health.TARGET_WINDOW, labels, reading.page.derived.window_seconds)
    _signals(families, reading, labels, fresh=fresh)
    for signal in list_mixed_counters(reading):
        families.add_value(SUSPECT, labels, 1, signal=signal, cause=Cause.SEVERAL_SERVERS.value)
    if reading.page.snapshot is not None and fresh:
        _resolution(families, reading.page.snapshot, labels)


def _failures(families: Families, reading: TargetReading, labels: SharedLabels) -> None:
    counted = dict.fromkeys(TARGET_STAGES, 0)
    for (stage, _), number in reading.page.failures_total.items():
        counted[stage] = counted.get(stage, 0) + number
    families.add_values(
        health.SCRAPE_FAILURES, labels, ("stage",), [(one._value_,) for one in counted], counted.values()
    )
    last = reading.page.recent_failures[-1] if reading.page.recent_failures else None
    if last is not None and last.reason is not None:
        own = {"stage": last.stage.value, "reason": last.reason.value}
        families.add_value(health.TARGET_LAST_FAILURE, labels, last.at_unix_seconds, **own)


def list_mixed_counters(reading: TargetReading) -> tuple[str, ...]:
    """Counters of which the last page's are nobody's, because several servers or workers answer in turn; they are not published."""
    if (
        reading.page.last is None
        or reading.page.last.reason is not FailureReason.SEVERAL_SERVERS
        or reading.page.snapshot is None
    ):
        return ()
    engines = reading.page.snapshot.engines
    return tuple(metric.name for metric in COUNTERS if any(getattr(one, metric.name) is not None for one in engines))


def _list_faults(reading: TargetReading) -> Iterator[str]:
    """What is known of why the target does not serve, its page aside."""
    if reading.page.last is not None and reading.page.last.reason is FailureReason.UNREACHABLE:
        yield SILENT
    if reading.server.pod is not None and reading.server.pod.fault is not None:
        yield reading.server.pod.fault.value


def _count_cards(reading: TargetReading, gpus: TargetGpus) -> float | None:
    """The target's GPUs in whole cards; None where its part of them is not known or another target claims them too."""
    twice = reading.cost is not None and reading.cost.signals.get(cost.GPU_SECONDS.name) is Absence.GPU_CLAIMED_TWICE
    share = reading.gpu_share
    return None if twice or share is None else gpus.count * share


def _resolution(families: Families, snapshot: Snapshot, labels: SharedLabels) -> None:
    if snapshot.significant_digits is None:
        return
    for field in COUNTER_FIELDS:
        values = [value for engine in snapshot.engines if (value := getattr(engine, field)) is not None]
        if values:
            step = max(resolution(value, snapshot.significant_digits) for value in values)
            # whole numbers: what is printed in full moves in steps of one
            families.add_value(health.SIGNAL_RESOLUTION, labels, max(1.0, step), signal=field)


def _signals(families: Families, reading: TargetReading, labels: SharedLabels, *, fresh: bool) -> None:
    """What is absent, and why; how many signals are there and how many are not; how far those that are there can be trusted.

    Those of cost without a good page too: a target that was down all the while costs as well.
    """
    of_page = reading.page.derived.signals if reading.page.derived is not None else {}
    qualities = reading.page.derived.quality if reading.page.derived is not None else {}
    of_cost = reading.cost.signals if reading.cost is not None else {}
    of_tenants = reading.page.tenants.signals if reading.page.tenants is not None else {}
    known = [*of_page.items(), *of_cost.items(), *of_tenants.items()]
    if not fresh:  # what is counted goes on while the target does not answer
        goes_on = of_cost.keys() - OF_WINDOW
        known = [(signal, why if signal in goes_on else Absence.TARGET_DOWN) for signal, why in known]
    # `.value` of an enum takes several times as long, a hundred times a page
    absent = [(signal, why._value_) for signal, why in known if why]
    told = health.ASKED_WHETHER_LIVE | qualities.keys()
    trusted = [
        (signal, qualities.get(signal, Quality.LIVE)._value_) for signal, why in known if not why and signal in told
    ]
    if known:
        counts = {"available": len(known) - len(absent), "absent": len(absent)}
        families.add_by_label(health.SIGNALS, labels, "state", counts)
    families.add_values(health.SIGNAL_AVAILABLE, labels, ("signal", "reason"), absent, [0.0] * len(absent))
    families.add_values(health.SIGNAL_QUALITY, labels, ("signal", "quality"), trusted, [1.0] * len(trusted))
