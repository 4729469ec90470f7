"""GPU readings -> their series."""

from __future__ import annotations

from llm_serving_exporter.catalogue import gpu as names
from llm_serving_exporter.catalogue import health
from llm_serving_exporter.catalogue.roofline import GPU_PEAK_FLOPS
from llm_serving_exporter.expose.families import Families
from llm_serving_exporter.expose.identity import label_place
from llm_serving_exporter.expose.labels import NO_LABELS, SharedLabels
from llm_serving_exporter.gpus.ownership import Origin
from llm_serving_exporter.model.gpu import DRIVER_SOURCES, GpuReading, GpuReadings, Worker
from llm_serving_exporter.model.hardware import GpuPart, GpuPeaks, ShareSource
from llm_serving_exporter.model.reading import View
from llm_serving_exporter.model.sample import FailureReason
from llm_serving_exporter.model.target import NOWHERE, Identity, NodePlace, Target

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
    for found in view.workers:
        labels = _label_leader(families, found.worker)
        for uuid in found.uuids:
            families.add_info(names.GPU_TARGET_INFO, labels, gpu=uuid, origin=Origin.KUBELET.value)
            share = found.shares.get(uuid, 1.0)
            source = ShareSource.WHOLE if share == 1.0 else ShareSource.KUBELET
            families.add_value(names.GPU_TARGET_SHARE, labels, share, gpu=uuid, source=source.value)
        # several workers of one engine may be on this node
        key = (found.worker.target, found.worker.model_name, found.worker.role)
        if key not in nodes:
            nodes.add(key)
            own = {
                "model_name": found.worker.model_name,
                "role": found.worker.role,
                "node": node,
                **label_place(place.fill_up(found.worker.place)),
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
