"""A target's GPUs of one pass -> DeviceSample, and means over a window of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from llm_serving_exporter.derive.gpu_lacks import DCGM, find_lacks
from llm_serving_exporter.model.gpu import GpuAbsence, GpuReading, GpuReadings
from llm_serving_exporter.model.hardware import GpuPart
from llm_serving_exporter.model.numbers import add_up
from llm_serving_exporter.model.snapshot import Absence
from llm_serving_exporter.model.window import Clocks, DeviceSample

_WHY = {
    GpuAbsence.NOT_SUPPORTED.value: Absence.NOT_EXPORTED,
    GpuAbsence.NO_PERMISSION.value: Absence.NO_PERMISSION,
    GpuAbsence.DISABLED.value: Absence.NOT_CONFIGURED,
    GpuAbsence.NO_WINDOW.value: Absence.WARMING_UP,
    GpuAbsence.NO_DATA.value: Absence.WARMING_UP,
}

# what the driver's reasons to hold the clocks down come to; hw_slowdown is said beside one of them
REASONS: Mapping[str, tuple[str, ...]] = {
    "power": ("sw_power_cap", "hw_power_brake_slowdown"),
    "thermal": ("thermal", "sw_thermal_slowdown", "hw_thermal_slowdown"),
}


def make_sample(
    uuids: Sequence[str],
    readings: GpuReadings | None,
    dcgm: Mapping[str, float] | Absence = Absence.NOT_CONFIGURED,
) -> DeviceSample | None:
    """The target's GPUs at one pass; None where they are not known or were not read. `dcgm`: bandwidth ratio by UUID, or why not."""
    if readings is None or not readings.attempt.ok or not uuids:
        return None
    by_uuid = {gpu.identity.uuid: gpu for gpu in readings.gpus}
    own = [by_uuid.get(uuid) for uuid in uuids]
    absent: dict[str, Absence] = {}

    def mean(name: str, value: Callable[[GpuReading], float | None], key: str) -> float | None:
        found = []
        for gpu in own:
            one = value(gpu) if gpu is not None else None
            if one is None:
                absent[name] = _why(gpu, key)
                return None
            found.append(one)
        return add_up(found) / len(found)

    used = mean("memory_used_bytes", lambda gpu: gpu.memory_used_bytes, "memory_used_bytes")
    return DeviceSample(
        readings.monotonic_seconds,
        len(own),
        gpm_ratio=mean("gpm_ratio", lambda gpu: gpu.dram_bandwidth_ratio, "dram_bandwidth_ratio"),
        dcgm_ratio=_dcgm(uuids, dcgm, absent, helps=lambda: DCGM not in find_lacks(uuids, readings)),
        memory_used_bytes=None if used is None else used * len(own),
        absent=absent,
        clocks=_read_clocks(own),
    )


def _read_clocks(own: Sequence[GpuReading | None]) -> Clocks | None:
    gpus = [gpu for gpu in own if gpu is not None and gpu.slowdown is not None and "sm" in gpu.clock_hertz]
    most = [gpu.identity.sm_clock_max_hertz for gpu in gpus]
    known = [hertz for hertz in most if hertz]
    if len(known) < len(own):
        return None

    def mean(values: Iterable[float | None]) -> float | None:
        found = [value for value in values if value is not None]
        return add_up(found) / len(own) if len(found) == len(own) else None

    counted = set.intersection(*(set(gpu.held_seconds_total) for gpu in gpus))
    return Clocks(
        add_up(gpu.clock_hertz["sm"] for gpu in gpus) / len(gpus),
        add_up(known) / len(known),
        mean(gpu.power_watts for gpu in gpus),
        mean(gpu.power_limit_watts for gpu in gpus),
        {
            cause: add_up(any(gpu.slowdown.get(one) for one in reasons) for gpu in gpus if gpu.slowdown) / len(gpus)
            for cause, reasons in REASONS.items()
        },
        {reason: add_up(gpu.held_seconds_total[reason] for gpu in gpus) / len(gpus) for reason in sorted(counted)},
    )


def make_shared_sample(uuids: Sequence[str], readings: GpuReadings, parts: Mapping[str, GpuPart]) -> DeviceSample:
    """The same of GPUs that others use too (`parts`): bandwidth is the card's, memory in use that of the target's own processes."""
    absent = dict.fromkeys(("gpm_ratio", "dcgm_ratio"), Absence.GPU_SHARED)
    by_uuid = {gpu.identity.uuid: gpu.memory_used_bytes for gpu in readings.gpus}
    held = [parts[uuid].memory_bytes if uuid in parts else by_uuid.get(uuid) for uuid in uuids]
    known = [number for number in held if number is not None]
    used = float(add_up(known)) if len(known) == len(held) else None
    if used is None:
        absent["memory_used_bytes"] = Absence.GPU_SHARED
    return DeviceSample(readings.monotonic_seconds, len(uuids), memory_used_bytes=used, absent=absent)


def _why(gpu: GpuReading | None, key: str) -> Absence:
    if gpu is None or gpu.lost:
        return Absence.GPUS_UNKNOWN
    return _WHY.get(gpu.absent.get(key, ""), Absence.NOT_EXPORTED)


def _dcgm(
    uuids: Sequence[str], dcgm: Mapping[str, float] | Absence, absent: dict[str, Absence], helps: Callable[[], bool]
) -> float | None:
    """`helps`: whether a dcgm-exporter could profile these GPUs, where none is configured."""
    if isinstance(dcgm, Absence):
        absent["dcgm_ratio"] = Absence.NOT_EXPORTED if dcgm is Absence.NOT_CONFIGURED and not helps() else dcgm
        return None
    if any(uuid not in dcgm for uuid in uuids):
        absent["dcgm_ratio"] = Absence.NOT_EXPORTED
        return None
    return add_up(dcgm[uuid] for uuid in uuids) / len(uuids)


def keep_samples(
    samples: tuple[DeviceSample, ...], new: DeviceSample | None, now: float, span_seconds: float
) -> tuple[DeviceSample, ...]:
    """The samples of the last `span_seconds`, with one more where it is another pass; () where the GPUs are no longer the same."""
    if new is not None and (not samples or new.monotonic_seconds > samples[-1].monotonic_seconds):
        samples = (*samples, new) if not samples or samples[-1].gpus == new.gpus else (new,)
    return tuple(kept for kept in samples if now - kept.monotonic_seconds <= span_seconds)


def average_samples(samples: tuple[DeviceSample, ...], field: str) -> float | Absence:
    """Mean of a field over the samples that have it; the newest sample's reason where none has."""
    values = [value for one in samples if (value := getattr(one, field)) is not None]
    if values:
        return float(add_up(values) / len(values))
    return samples[-1].absent.get(field, Absence.NOT_EXPORTED) if samples else Absence.GPUS_UNKNOWN
