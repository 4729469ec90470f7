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
from llm_serving_exporter.catalogue import gpu as names
from llm_serving_exporter.catalogue import health
from llm_serving_exporter.catalogue.roofline import GPU_PEAK_FLOPS
from llm_serving_exporter.expose import serving
from llm_serving_exporter.expose.families import (
    NO_LABELS,
    NO_PLACES,
    Families,
    LabelBook,
    SharedLabels,
    label_place,
    list_own_labels,
)
from llm_serving_exporter.expose.serving import add_cost, add_price_book, add_storage, add_tenants
from llm_serving_exporter.gpus.ownership import Origin
from llm_serving_exporter.model.cost import Attribution, PriceBook, StorageReport
from llm_serving_exporter.model.gpu import DRIVER_SOURCES, GpuReading, GpuReadings, Worker
from llm_serving_exporter.model.hardware import GpuPart, GpuPeaks, ShareSource
from llm_serving_exporter.model.reading import DrillVerdict, OtlpReport, TargetReading, View
from llm_serving_exporter.model.record import Struct, field
from llm_serving_exporter.model.sample import FailureReason
from llm_serving_exporter.model.target import NOWHERE, ExpectedReplicas, Identity, Mode, NodePlace, Role, Shard, Target

# --- GPU readings -> their series.


NVML_REASONS = (
    FailureReason.NO_LIBRARY,
    FailureReason.NO_DRIVER,
    FailureReason.DRIVER_MISMATCH,
    FailureReason.NO_PERMISSION,
    FailureReason.GPU_LOST,
    FailureReason.NVML,
    FailureReason.INTERNAL,
)
_WHOLE = GpuPart(1.0, ShareSource.WHOLE)
KUBELET_REASONS = (
    FailureReason.NO_CLIENT,
    FailureReason.NO_SOCKET,
    FailureReason.NO_PERMISSION,
    FailureReason.REFUSED,
    FailureReason.TIMEOUT,
    FailureReason.TOO_LARGE,
    FailureReason.PROTOCOL,
    FailureReason.UNIMPLEMENTED,
    FailureReason.KUBELET,
    FailureReason.INTERNAL,
)


def add_gpus(families: Families, view: View, node: str, *, oldest_monotonic_seconds: float) -> None:
    """Every GPU of the last pass, and the health of the pass. Nothing where NVML is off.

    A pass older than `oldest_monotonic_seconds` means that the driver hangs: its readings are withdrawn and NVML is not up.
    """
    readings = view.gpus
    if readings is None:
        return
    hangs = readings.monotonic_seconds < oldest_monotonic_seconds
    if readings.source in DRIVER_SOURCES:
        families.add_value(health.NVML_UP, NO_LABELS, readings.attempt.ok and not hangs)
        families.add_value(health.NVML_DURATION, NO_LABELS, readings.attempt.duration_seconds)
        for reason in NVML_REASONS:
            count = view.nvml_failures_total.get(reason, 0)
            families.add_value(health.NVML_FAILURES, NO_LABELS, count, reason=reason.value)
    else:
        families.add_value(health.DEVICE_EXPORTER_UP, NO_LABELS, readings.attempt.ok and not hangs)
    for reading in () if hangs else readings.gpus:
        _gpu(families, reading, readings, node, view.gpu_peaks.get(reading.identity.uuid))


def _gpu(families: Families, reading: GpuReading, readings: GpuReadings, node: str, peaks: GpuPeaks | None) -> None:
    identity = reading.identity
    labels = families.of_gpu(identity.uuid, identity.name, node)
    families.add_value(names.GPU_UP, labels, not reading.lost)
    capability = identity.compute_capability
    families.add_info(
        names.GPU_INFO,
        labels,
        index=str(identity.index),
        pci_bus_id=identity.pci_bus_id or "",
        compute_capability=f"{capability[0]}.{capability[1]}" if capability else "",
        driver_version=readings.driver_version or "",
        mig_profile=identity.mig.profile if identity.mig else "",
        parent=identity.mig.parent_uuid if identity.mig else "",
        source=readings.source,
    )
    total = reading.memory_total_bytes if reading.memory_total_bytes is not None else identity.memory_total_bytes
    families.add_value(names.GPU_MEMORY_TOTAL, labels, total)
    if peaks is not None:
        families.add_by_label(names.GPU_BANDWIDTH_PEAK, labels, "origin", peaks.by_origin)
        families.add_value(names.GPU_BANDWIDTH_PEAK, labels, peaks.bandwidth_bytes_per_second, origin="used")
        rates = {precision.value: rate for precision, rate in peaks.flops.items()}
        families.add_by_label(GPU_PEAK_FLOPS, labels, "precision", rates)
    for domain, hertz in (("sm", identity.sm_clock_max_hertz), ("memory", identity.memory_clock_max_hertz)):
        families.add_value(names.GPU_CLOCK_MAX, labels, hertz, domain=domain)
    for metric, value in (
        (names.GPU_MEMORY_USED, reading.memory_used_bytes),
        (names.GPU_BUSY, reading.busy_ratio),
        (names.GPU_MEMORY_ACTIVE, reading.memory_active_ratio),
        (names.GPU_DRAM_BANDWIDTH, reading.dram_bandwidth_ratio),
        (names.GPU_SM_ACTIVITY, reading.sm_activity_ratio),
        (names.GPU_TENSOR_ACTIVITY, reading.tensor_activity_ratio),
        (names.GPU_POWER, reading.power_watts),
        (names.GPU_POWER_LIMIT, reading.power_limit_watts),
        (names.GPU_ENERGY, reading.energy_joules_total),
        (names.GPU_REMAP_PENDING, reading.remap_pending),
        (names.GPU_REMAP_FAILED, reading.remap_failed),
    ):
        families.add_value(metric, labels, value)
    xid = reading.xid_events_total
    for metric, label, values in (
        (names.GPU_TEMPERATURE, "sensor", reading.temperature_celsius),
        (names.GPU_CLOCK, "domain", reading.clock_hertz),
        (names.GPU_SLOWDOWN, "reason", reading.slowdown),
        (names.GPU_ECC_ERRORS, "kind", reading.ecc_errors_total),
        (names.GPU_REMAPPED_ROWS, "kind", reading.remapped_rows),
        (
            names.GPU_XID_EVENTS,
            "xid",
            {str(number): count for number, count in xid.items()} if xid is not None else None,
        ),
        (names.GPU_PCIE, "direction", reading.pcie_bytes_total),
        (names.GPU_NVLINK, "direction", reading.nvlink_bytes_total),
    ):
        families.add_by_label(metric, labels, label, values)


def add_assignments(families: Families, view: View, node: str, place: NodePlace = NOWHERE) -> None:
    """Which GPU serves which target, and how much of it; with the workers here of targets that another exporter reads. `place`: where the
    price file says that the node stands."""
    for reading in view.targets:
        for uuid in reading.gpus.uuids:
            labels = families.of_target(reading.target)
            families.add_info(names.GPU_TARGET_INFO, labels, gpu=uuid, origin=reading.gpus.origin)
            part = reading.gpus.parts.get(uuid, _WHOLE)
            families.add_value(names.GPU_TARGET_SHARE, labels, part.share, gpu=uuid, source=part.source.value)
    nodes = set()
    for work in view.workers:
        labels = _label_leader(families, work.worker)
        for uuid in work.uuids:
            families.add_info(names.GPU_TARGET_INFO, labels, gpu=uuid, origin=Origin.KUBELET.value)
            share = work.shares.get(uuid, 1.0)
            source = ShareSource.WHOLE if share == 1.0 else ShareSource.KUBELET
            families.add_value(names.GPU_TARGET_SHARE, labels, share, gpu=uuid, source=source.value)
        # several workers of one engine may be on this node
        key = (work.worker.target, work.worker.model_name, work.worker.role)
        if key not in nodes:
            nodes.add(key)
            own = {
                "model_name": work.worker.model_name,
                "role": work.worker.role,
                "node": node,
                **label_place(place.fill_up(work.worker.place)),
            }
            families.add_info(health.TARGET_NODE_INFO, labels, **own)


def _label_leader(families: Families, worker: Worker) -> SharedLabels:
    """The labels of a series about the worker's target; of its leader's place only the namespace is known here."""
    return families.of_target(Target(worker.target, "", identity=Identity(namespace=worker.namespace)))


def add_kubelet(families: Families, view: View, node: str) -> None:
    """The health of the kubelet's answers, and how many GPUs the node has."""
    families.add_value(names.NODE_GPUS, NO_LABELS, view.node_gpus, node=node)
    if view.kubelet is None:
        return
    families.add_value(health.KUBELET_UP, NO_LABELS, view.kubelet.ok)
    for reason in KUBELET_REASONS:
        count = view.kubelet_failures_total.get(reason, 0)
        families.add_value(health.KUBELET_FAILURES, NO_LABELS, count, reason=reason.value)


# --- The collector


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
        names = {reading.target.name for reading in view.targets}
        with self._counting:
            for (target, name), number in families.left_out.items():
                if (target, name) not in self._left_out:
                    log.warning("target=%s: %s is not published, its value cannot be true", target or "none", name)
                self._left_out[target, name] += number
            self._count_asked(view)
            for key in [key for key in self._left_out if key[0] and key[0] not in names]:
                del self._left_out[key]
            self._looked_at = {name: one for name, one in self._looked_at.items() if name in names}
            counted: dict[str, dict[str, int]] = {}
            for (target, name), number in self._left_out.items():
                counted.setdefault(target, {})[name] = number
        for reading in view.targets:
            of_page = counted.get(reading.target.name)
            if not of_page and not reading.page.implausible_total:  # as usual
                continue
            found = Counter(reading.page.implausible_total)
            found.update(of_page or {})
            families.add_by_label(health.IMPLAUSIBLE_VALUES, families.of_target(reading.target), "signal", found)

    def _count_asked(self, view: View) -> None:
        """Counts figures that cannot be true and that only pages ask for, once for each page of a target's server; ticks count others."""
        for reading in view.targets:
            name, found = reading.target.name, reading.page.derivation
            if found is None or reading.page.snapshot is None:
                continue
            read_at = reading.page.snapshot.monotonic_seconds
            if self._looked_at.get(name) != read_at:
                self._looked_at[name] = read_at
                new = [one for one in found.asked_left_out if one not in found.tick_left_out]
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
    fresh = reading.page.is_fresh(now_monotonic_seconds, setup.stale_after_seconds)
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
        (reading.target.identity.namespace, reading.target.identity.workload, reading.role): reading.server.model_name
        for reading in view.targets
        if reading.server.model_name and reading.target.identity.workload
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
