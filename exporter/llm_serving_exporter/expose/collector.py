"""The last good readings -> families, made at each scrape: no metric object outlives it."""

from __future__ import annotations

import logging
import platform
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Concatenate, ParamSpec

from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from llm_serving_exporter import __version__
from llm_serving_exporter.catalogue import health
from llm_serving_exporter.expose import serving
from llm_serving_exporter.expose.cost import add_cost, add_price_book, add_storage
from llm_serving_exporter.expose.families import Families
from llm_serving_exporter.expose.gpu import add_assignments, add_gpus, add_kubelet
from llm_serving_exporter.expose.identity import NO_PLACES, LabelBook, list_own_labels
from llm_serving_exporter.expose.labels import NO_LABELS
from llm_serving_exporter.expose.tenants import add_tenants
from llm_serving_exporter.model.cost import Attribution, PriceBook, StorageReport
from llm_serving_exporter.model.reading import DrillVerdict, OtlpReport, TargetReading, View
from llm_serving_exporter.model.record import Struct, field
from llm_serving_exporter.model.target import NOWHERE, ExpectedReplicas, Identity, Mode, NodePlace, Role, Shard

log = logging.getLogger("llm_serving_exporter.expose")

# targets between two looks at how much text there is
_SPOOLED_EVERY = 16


class Setup(Struct, frozen=True):
    """What the collector needs of the configuration and the host; replaced whole when the configuration is reloaded."""

    stale_after_seconds: float  # age from which a target's last good page is no longer shown
    gpu_stale_after_seconds: float  # the same for a pass over the GPUs: a hanging driver must not look alive
    node: str  # name of the host that the exporter's own GPUs are in
    expected_replicas: tuple[ExpectedReplicas, ...] = ()  # (): not configured
    installed_unix_seconds: float | None = None  # first run, from the state file; None: there is no state file
    version: str = __version__  # of the exporter
    python_version: str = field(default_factory=platform.python_version)  # that it runs on
    prices: PriceBook | None = None  # None: no price file
    shard: Shard | None = None  # None: all targets are read here
    attribution: Attribution = field(default_factory=Attribution)  # how busy time is split between prefill and decode
    target_labels: tuple[str, ...] = ()  # identity labels that stand on every series of a target
    mode: Mode | None = None  # None: not known
    storage: StorageReport = field(default_factory=StorageReport)  # where the counters of cost are safe
    web_refusals: Mapping[str, int] = field(default_factory=dict)  # by reason; {}: there is no web server
    web_certificate_expiry: float | None = None  # Unix seconds; None: no TLS, or not known
    otlp: OtlpReport | None = None  # how sending over OTLP goes; None: nothing is sent
    all_buckets: bool = False  # whether histograms of which usually count and sum are enough have their buckets too


class ViewCollector(Collector):
    """Renders one View a scrape. A part that fails is logged and left out; the others are served."""

    def __init__(self, view: Callable[[], View], setup: Callable[[], Setup], monotonic: Callable[[], float]) -> None:
        self._view = view
        self._setup = setup
        self._monotonic = monotonic
        # by target and metric: what the last gate has left out of pages so far
        self._left_out: Counter[tuple[str, str]] = Counter()
        # by target: when the last page of its server was read (monotonic) whose figures that only pages ask for have been counted
        self._looked_at: dict[str, float] = {}
        self._book = LabelBook()
        # pages are made side by side
        self._counting = threading.Lock()

    def collect(self) -> Iterator[Family]:
        """All families with samples."""
        view, setup, now = self._view(), self._setup(), self._monotonic()
        self._book.forget_others({reading.target.name for reading in view.targets})
        families = Families(setup.target_labels, _own_labels(view, setup), self._book, all_buckets=setup.all_buckets)
        stated = dict(setup.prices.nodes) if setup.prices is not None else NO_PLACES
        for number, reading in enumerate(view.targets, 1):
            _guarded(f"target {reading.target.name}", _target, families, reading, setup, stated, now)
            if not number % _SPOOLED_EVERY:
                families.spool_lines()
        oldest = now - setup.gpu_stale_after_seconds
        _guarded("gpus", add_gpus, families, view, setup.node, oldest_monotonic_seconds=oldest)
        _guarded("gpu assignment", add_assignments, families, view, setup.node, stated.get(setup.node, NOWHERE))
        _guarded("kubelet", add_kubelet, families, view, setup.node)
        _guarded("exporter", _exporter, families, view, setup)
        _guarded("values that were left out", self._add_left_out, families, view)
        return iter(families)

    def _add_left_out(self, families: Families, view: View) -> None:
        """Counts what the last gate left out of this page, and publishes it with what was left out of the targets' own pages."""
        known = {reading.target.name for reading in view.targets}
        with self._counting:
            for (target, name), number in families.left_out.items():
                if (target, name) not in self._left_out:
                    log.warning("target=%s: %s is not published, its value cannot be true", target or "none", name)
                self._left_out[target, name] += number
            self._count_asked(view)
            for key in [key for key in self._left_out if key[0] and key[0] not in known]:
                del self._left_out[key]
            self._looked_at = {name: one for name, one in self._looked_at.items() if name in known}
            counted: dict[str, dict[str, int]] = {}
            for (target, name), number in self._left_out.items():
                counted.setdefault(target, {})[name] = number
        for reading in view.targets:
            of_page = counted.get(reading.target.name)
            if not of_page and not reading.implausible_total:  # as usual
                continue
            found = Counter(reading.implausible_total)
            found.update(of_page or {})
            families.add_by_label(health.IMPLAUSIBLE_VALUES, families.of_target(reading.target), "signal", found)

    def _count_asked(self, view: View) -> None:
        """Counts figures that cannot be true and that only pages ask for, once for each page of a target's server; ticks count others."""
        for reading in view.targets:
            name, found = reading.target.name, reading.derivation
            if found is None or reading.snapshot is None:
                continue
            read_at = reading.snapshot.monotonic_seconds
            if self._looked_at.get(name) != read_at:
                self._looked_at[name] = read_at
                new = [one for one in found.asked_left_out if one not in found.kept_left_out]
                self._left_out.update((name, one.name) for one in new)

    def describe(self) -> Iterator[Family]:
        """Nothing is promised: series come and go with targets."""
        return iter(())


P = ParamSpec("P")


def _guarded(
    part: str,
    render: Callable[Concatenate[Families, P], None],
    families: Families,
    /,
    *args: P.args,
    **kwargs: P.kwargs,
) -> None:
    """One part's fault must not take the page down, and what it added must not be written with the next one's."""
    try:
        try:
            render(families, *args, **kwargs)
        finally:
            families.write_section()
    except Exception:
        log.exception("series of %s could not be rendered; this is a bug, please report it", part)


def _own_labels(view: View, setup: Setup) -> tuple[str, ...]:
    """Labels of targets, of expected replicas and of drills that are nobody else's."""
    stated = [*(one.identity for one in setup.expected_replicas), *(one.identity for one in view.drills)]
    return list_own_labels([*[reading.target.identity for reading in view.targets], *stated])


def _target(
    families: Families,
    reading: TargetReading,
    setup: Setup,
    stated: Mapping[str, NodePlace],
    now_monotonic_seconds: float,
) -> None:
    fresh = reading.fresh(now_monotonic_seconds, setup.stale_after_seconds)
    serving.add_target_health(
        families, reading, fresh=fresh, now_monotonic_seconds=now_monotonic_seconds, stated=stated
    )
    families.write_section()
    if fresh:
        serving.add_serving(families, reading)
        families.write_section()
        add_tenants(families, reading)
    add_cost(families, reading, fresh=fresh)


def _exporter(families: Families, view: View, setup: Setup) -> None:
    families.add_info(health.BUILD_INFO, NO_LABELS, version=setup.version, python_version=setup.python_version)
    families.add_info(health.WRITTEN_LABELS, families.of_written())
    if setup.mode is not None:
        families.add_info(health.MODE_INFO, NO_LABELS, mode=setup.mode.value, node=setup.node)
    families.add_value(health.DCGM_UP, NO_LABELS, view.dcgm_ok)
    families.add_info(health.CONFIG_INFO, NO_LABELS, sha256=view.config_hash)
    families.add_value(health.RELOAD_SUCCESS, NO_LABELS, view.reload_ok)
    families.add_value(health.RELOAD_TIME, NO_LABELS, view.reload_unix_seconds)
    families.add_value(health.DISCOVERY_FAILURES, NO_LABELS, view.discovery_failures_total)
    families.add_by_label(health.WEB_REFUSALS, NO_LABELS, "reason", setup.web_refusals)
    families.add_value(health.WEB_CERTIFICATE_EXPIRY, NO_LABELS, setup.web_certificate_expiry)
    if setup.otlp is not None:
        families.add_by_label(health.OTLP_EXPORTS, NO_LABELS, "outcome", setup.otlp.exports_total)
        families.add_value(health.OTLP_REJECTED, NO_LABELS, setup.otlp.rejected_points_total)
        families.add_value(health.OTLP_LAST_SUCCESS, NO_LABELS, setup.otlp.last_success_unix_seconds)
    _shard(families, view, setup.shard)
    add_price_book(families, setup.prices, setup.attribution)
    add_storage(families, setup.storage)
    families.add_value(health.INSTALLED_TIME, NO_LABELS, setup.installed_unix_seconds)
    for expected in setup.expected_replicas:
        labels = families.of_fleet(expected.identity, expected.model_name, expected.role)
        families.add_value(health.EXPECTED_REPLICAS, labels, expected.replicas)
    _waiting(families, view)
    if view.review is not None:
        families.add_value(health.REPORT_DUE, NO_LABELS, view.review.due)
        families.add_value(health.REPORT_NEXT_DUE, NO_LABELS, view.review.next_due)
        families.add_value(health.REPORT_LAST_RUN, NO_LABELS, view.review.last_run)
        families.add_value(health.REPORT_LAST_SUCCESS, NO_LABELS, view.review.last_success)
    for drill in view.drills:
        labels = families.of_fleet(drill.identity, drill.model_name, drill.role.value)
        families.add_value(health.DRILL_LAST_RUN, labels, drill.last_run_unix_seconds)
        families.add_value(health.DRILL_LAST_SUCCESS, labels, drill.last_success_unix_seconds)
        verdicts = {verdict.value: verdict is drill.last_verdict for verdict in DrillVerdict}
        families.add_by_label(health.DRILL_LAST_VERDICT, labels, "verdict", verdicts)


def _waiting(families: Families, view: View) -> None:
    """Pods that wait, by workload. One that does not say its model has the model of its workload's targets."""
    served = {
        (reading.target.identity.namespace, reading.target.identity.workload, reading.role): reading.model_name
        for reading in view.targets
        if reading.model_name and reading.target.identity.workload
    }
    counts = Counter(
        (
            Identity(namespace=pod.namespace, workload=pod.workload, workload_kind=pod.workload_kind),
            pod.model_name or served.get((pod.namespace, pod.workload, Role(pod.role)), ""),
            pod.role,
        )
        for pod in view.waiting
    )
    for (identity, model_name, role), number in counts.items():
        families.add_value(health.PODS_WAITING, families.of_fleet(identity, model_name, role), number)


def _shard(families: Families, view: View, shard: Shard | None) -> None:
    counts = {"held": len(view.targets), "other_shard": view.targets_elsewhere, "left_out": view.targets_left_out}
    families.add_by_label(health.TARGETS, NO_LABELS, "state", counts)
    if shard is None:
        return
    families.add_info(health.SHARD_INFO, NO_LABELS, shard=str(shard.number), shards=str(shard.count))
    numbers = range(1, shard.count + 1)
    held = {str(number): number == shard.number for number in numbers}
    families.add_by_label(health.SHARD_HELD, NO_LABELS, "shard", held)
