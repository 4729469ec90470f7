"""A target's GPUs of one pass, means over a window of them, and what they cannot measure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType

from llm_serving_exporter.catalogue import cost
from llm_serving_exporter.catalogue.roofline import BANDWIDTH_RATIO
from llm_serving_exporter.model.derived import BandwidthSource, Cap
from llm_serving_exporter.model.gpu import DRIVER_SOURCES, GpuAbsence, GpuReading, GpuReadings
from llm_serving_exporter.model.hardware import GpuPart
from llm_serving_exporter.model.numbers import add_up
from llm_serving_exporter.model.record import Struct
from llm_serving_exporter.model.snapshot import Absence
from llm_serving_exporter.model.window import Clocks, DeviceSample

# --- What a target's GPUs cannot measure, by source, architecture, vGPU and MIG -> a sentence for each signal that is absent for it.
#
# Facts: GPM is Hopper's and newer, with driver 525; DCGM takes the same figures from it there, and from perfmon on datacenter cards of
# Volta to Ada; the energy counter is Volta's and newer (nvml.h; NVIDIA/DCGM issues 56 and 62). A guest of vGPU has neither: its host has
# them.


NOTHING: Mapping[str, str] = MappingProxyType({})
GPM, DCGM = (f"{BANDWIDTH_RATIO.name}_{source.value}" for source in (BandwidthSource.GPM, BandwidthSource.DCGM))
ENERGY = (cost.ENERGY.name, cost.ENERGY_PER_TOKEN.name)

_VOLTA, _HOPPER = (7, 0), (9, 0)
# where NVML says the architecture and no compute capability
_FIRST_CAPABILITIES = {
    "kepler": (3, 0), "maxwell": (5, 0), "pascal": (6, 0), "volta": (7, 0), "turing": (7, 5), "ampere": (8, 0), "ada": (8, 9),
    "hopper": (9, 0), "blackwell": (10, 0), "rubin": (10, 7),
}  # fmt: skip
# processor and GPU on one chip with one memory: Jetson TX1 to Orin, Thor, GB10 (developer.nvidia.com/cuda-gpus)
_ONE_CHIP = frozenset({(5, 3), (6, 2), (7, 2), (8, 7), (10, 1), (11, 0), (12, 1)})
# DCGM profiles no consumer card
_CONSUMER = re.compile(r"\b(GeForce|TITAN)\b", re.IGNORECASE)
# the first driver with GPM
_GPM_DRIVER = 525
_NO_SETTING = "no setting helps"


class _Card(Struct, frozen=True):
    gpu: GpuReading  # what it shows, and what it does not
    source: str  # of its readings
    driver: int | None  # the first number of the driver's version; None: not known
    capability: tuple[int, int] | None  # None: not known

    @property
    def why_no_gpm(self) -> str:
        """A value of GpuAbsence; "" where it has GPM, or nobody says why not."""
        return self.gpu.absent.get("dram_bandwidth_ratio", "")

    @property
    def has_no_gpm(self) -> bool:
        """Whether the driver says that there is none."""
        return self.why_no_gpm == GpuAbsence.NOT_SUPPORTED

    def is_between(self, least: tuple[int, int], below: tuple[int, int]) -> bool:
        """Whether its compute capability is known, and within."""
        return self.capability is not None and least <= self.capability < below


class _Cause(Struct, frozen=True):
    is_it: Callable[[_Card], bool]  # whether it is true of a card
    sentences: Mapping[str, str]  # by signal; {name} is the card's


def _bandwidth(is_it: Callable[[_Card], bool], gpm: str, dcgm: str = "") -> _Cause:
    """`dcgm`: why DCGM has no figure either; "": it may have."""
    return _Cause(is_it, {GPM: gpm, DCGM: dcgm} if dcgm else {GPM: gpm})


def _energy(is_it: Callable[[_Card], bool], sentence: str) -> _Cause:
    return _Cause(is_it, dict.fromkeys(ENERGY, sentence))


def _is_foreign(card: _Card) -> bool:
    return card.source not in DRIVER_SOURCES


def _is_virtual(card: _Card) -> bool:
    return card.gpu.identity.is_virtual


def _is_instance(card: _Card) -> bool:
    return card.gpu.identity.mig is not None


_FOREIGN = "{name} is read by a device exporter"
_GUEST = "{name} is a virtual GPU (vGPU)"
# the first that is true of a card decides
_OF_BANDWIDTH = (
    _bandwidth(
        _is_foreign,
        f"{_FOREIGN}, not by NVIDIA's driver: GPM is not there; {_NO_SETTING}.",
        f"{_FOREIGN}: DCGM knows NVIDIA's GPUs alone; {_NO_SETTING}.",
    ),
    _bandwidth(
        _is_virtual,
        f"{_GUEST}: a guest has no GPM of the card; {_NO_SETTING}.",
        f"{_GUEST}: DCGM does not profile the card in a guest; {_NO_SETTING}.",
    ),
    _bandwidth(
        lambda card: card.why_no_gpm == GpuAbsence.ON_INSTANCES,
        "{name} is in MIG mode, where the instances have GPM: set targets[].gpus to the UUID of the target's own.",
    ),
    _bandwidth(
        lambda card: card.why_no_gpm == GpuAbsence.IN_USE,
        "NVML refuses GPM while something else holds {name}; under MIG with driver 535 set gpu.gpm: false.",
    ),
    _bandwidth(
        lambda card: card.why_no_gpm in (GpuAbsence.ERROR, GpuAbsence.IMPLAUSIBLE),
        "The driver has GPM of {name}, but gives no value that can be true; the log has the call.",
    ),
    _bandwidth(
        lambda card: card.capability in _ONE_CHIP,
        f"{{name}} has no GPM, and DCGM does not profile it: nothing measures its bandwidth in use; {_NO_SETTING}.",
        f"DCGM does not profile {{name}}; {_NO_SETTING}.",
    ),
    _bandwidth(
        lambda card: card.is_between((0, 0), _VOLTA),
        f"NVML's GPM needs Hopper or newer, DCGM's profiling Volta; {{name}} is older, and {_NO_SETTING}.",
        f"DCGM's profiling needs Volta or newer; {{name}} is older, and {_NO_SETTING}.",
    ),
    _bandwidth(
        lambda card: card.is_between(_VOLTA, _HOPPER) and _CONSUMER.search(card.gpu.identity.name) is not None,
        f"NVML's GPM needs Hopper or newer, and DCGM profiles datacenter cards only: nothing measures {{name}}; {_NO_SETTING}.",
        f"DCGM profiles datacenter cards only, and {{name}} is none; {_NO_SETTING}.",
    ),
    _bandwidth(
        lambda card: card.has_no_gpm and card.driver is not None and card.driver < _GPM_DRIVER and not _is_older(card),
        f"NVML's GPM needs driver {_GPM_DRIVER} or newer.",
        f"From Hopper on DCGM takes it from the driver's GPM, which needs driver {_GPM_DRIVER} or newer.",
    ),
    _bandwidth(
        lambda card: card.has_no_gpm and _is_instance(card) and not _is_older(card),
        f"The driver has no GPM of this MIG instance; {_NO_SETTING}.",
        f"From Hopper on DCGM takes it from the driver's GPM, which this MIG instance does not have; {_NO_SETTING}.",
    ),
    _bandwidth(
        lambda card: card.has_no_gpm and card.capability is not None and not _is_older(card),
        f"{{name}} is new enough for GPM, but its driver has none of it; {_NO_SETTING}.",
        f"From Hopper on DCGM takes it from the driver's GPM, which {{name}} does not have; {_NO_SETTING}.",
    ),
)
_OF_ENERGY = (
    _energy(_is_foreign, f"{_FOREIGN}, which does not count its energy; {_NO_SETTING}."),
    _energy(_is_virtual, f"{_GUEST}: a guest has no energy counter, the host has that of the card; {_NO_SETTING}."),
    _energy(_is_instance, "A MIG instance has no energy counter: gpu_energy_joules_total has that of the whole card."),
    _energy(
        lambda card: card.is_between((0, 0), _VOLTA),
        f"NVML's energy counter needs Volta or newer; {{name}} is older, and {_NO_SETTING}.",
    ),
    _energy(
        lambda card: card.gpu.absent.get("energy_joules_total") == GpuAbsence.NOT_SUPPORTED,
        f"The driver does not count the energy of {{name}}; {_NO_SETTING}.",
    ),
)


def _is_older(card: _Card) -> bool:
    """Than Hopper, as far as that is known."""
    return card.is_between((0, 0), _HOPPER)


def find_lacks(uuids: Sequence[str], readings: GpuReadings | None) -> Mapping[str, str]:
    """By signal: why the first of the target's GPUs that lacks its reading does not have it, and what helps.

    Only what card, driver or partition cannot do: for any other reason the signal's own sentence stands. `readings`: the last pass.
    """
    if not uuids or readings is None:
        return NOTHING
    by_uuid = {gpu.identity.uuid: gpu for gpu in readings.gpus}
    sentences: dict[str, str] = {}
    for card in (_describe(by_uuid[uuid], readings) for uuid in uuids if uuid in by_uuid):
        gpu, causes = card.gpu, []
        if gpu.dram_bandwidth_ratio is None and not gpu.lost:
            causes += [cause for cause in _OF_BANDWIDTH if cause.is_it(card)][:1]
        if gpu.energy_joules_total is None and not gpu.lost:
            causes += [cause for cause in _OF_ENERGY if cause.is_it(card)][:1]
        for cause in causes:
            for signal, sentence in cause.sentences.items():
                sentences.setdefault(signal, sentence.format(name=gpu.identity.name or "The card"))
    return sentences


def _describe(gpu: GpuReading, readings: GpuReadings) -> _Card:
    identity = gpu.identity
    capability = identity.compute_capability or _FIRST_CAPABILITIES.get(identity.architecture or "")
    number = re.match(r"\d+", readings.driver_version or "")
    return _Card(gpu, readings.source, int(number[0]) if number else None, capability)


# --- A target's GPUs of one pass -> DeviceSample, and means over a window of them.


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
    gpus = [by_uuid.get(uuid) for uuid in uuids]
    absent: dict[str, Absence] = {}

    def mean(name: str, value: Callable[[GpuReading], float | None], key: str) -> float | None:
        present = []
        for gpu in gpus:
            number = value(gpu) if gpu is not None else None
            if number is None:
                absent[name] = _why(gpu, key)
                return None
            present.append(number)
        return add_up(present) / len(present)

    used = mean("memory_used_bytes", lambda gpu: gpu.memory_used_bytes, "memory_used_bytes")
    return DeviceSample(
        readings.monotonic_seconds,
        len(gpus),
        gpm_ratio=mean("gpm_ratio", lambda gpu: gpu.dram_bandwidth_ratio, "dram_bandwidth_ratio"),
        dcgm_ratio=_dcgm(uuids, dcgm, absent, helps=lambda: DCGM not in find_lacks(uuids, readings)),
        memory_used_bytes=None if used is None else used * len(gpus),
        absent=absent,
        clocks=_read_clocks(gpus),
    )


def _read_clocks(own: Sequence[GpuReading | None]) -> Clocks | None:
    gpus = [gpu for gpu in own if gpu is not None and gpu.slowdown is not None and "sm" in gpu.clock_hertz]
    most = [gpu.identity.sm_clock_max_hertz for gpu in gpus]
    maxima = [hertz for hertz in most if hertz]
    if len(maxima) < len(own):
        return None

    def mean(values: Iterable[float | None]) -> float | None:
        present = [value for value in values if value is not None]
        return add_up(present) / len(own) if len(present) == len(own) else None

    counted = set.intersection(*(set(gpu.held_seconds_total) for gpu in gpus))
    return Clocks(
        add_up(gpu.clock_hertz["sm"] for gpu in gpus) / len(gpus),
        add_up(maxima) / len(maxima),
        mean(gpu.power_watts for gpu in gpus),
        mean(gpu.power_limit_watts for gpu in gpus),
        {
            cause: add_up(any(gpu.slowdown.get(name) for name in reasons) for gpu in gpus if gpu.slowdown) / len(gpus)
            for cause, reasons in REASONS.items()
        },
        {reason: add_up(gpu.held_seconds_total[reason] for gpu in gpus) / len(gpus) for reason in sorted(counted)},
    )


def make_shared_sample(uuids: Sequence[str], readings: GpuReadings, parts: Mapping[str, GpuPart]) -> DeviceSample:
    """The same of GPUs that others use too (`parts`): bandwidth is the card's, memory in use that of the target's own processes."""
    absent = dict.fromkeys(("gpm_ratio", "dcgm_ratio"), Absence.GPU_SHARED)
    by_uuid = {gpu.identity.uuid: gpu.memory_used_bytes for gpu in readings.gpus}
    held = [parts[uuid].memory_bytes if uuid in parts else by_uuid.get(uuid) for uuid in uuids]
    numbers = [number for number in held if number is not None]
    used = float(add_up(numbers)) if len(numbers) == len(held) else None
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
    return tuple(sample for sample in samples if now - sample.monotonic_seconds <= span_seconds)


def average_samples(samples: tuple[DeviceSample, ...], field: str) -> float | Absence:
    """Mean of a field over the samples that have it; the newest sample's reason where none has."""
    values = [value for sample in samples if (value := getattr(sample, field)) is not None]
    if values:
        return float(add_up(values) / len(values))
    return samples[-1].absent.get(field, Absence.NOT_EXPORTED) if samples else Absence.GPUS_UNKNOWN


# --- Whether a cap on power or heat holds the multiprocessors' clock down, over a window of passes over the GPUs.


# a clock below this share of its maximum is held down; single steps of 15 MHz below it are no loss that anybody would see
HELD_BELOW = 0.95


def find_cap(samples: Sequence[DeviceSample]) -> Cap | None:
    """What has held the clock for the largest share of the window; None where no pass shows clocks and reasons.

    A cap holds in as much of the time as the driver counts for it (where its counter moved, else in as many passes as name it), and in no
    more of it than the clock is below HELD_BELOW.
    """
    shown = [each for each in samples if each.clocks is not None]
    clocks = [each.clocks for each in shown if each.clocks is not None]
    if not clocks:
        return None
    below = add_up(each.sm_hertz < HELD_BELOW * each.sm_max_hertz for each in clocks) / len(clocks)
    shares = {}
    for cause, reasons in REASONS.items():
        counted = [share for reason in reasons if (share := _count_share(shown, reason))]
        named = add_up(each.held_now.get(cause, 0.0) for each in clocks) / len(clocks)
        shares[cause] = min(below, max(counted) if counted else named)
    cause = max(shares, key=lambda name: shares[name])

    def mean(values: list[float | None]) -> float | None:
        present = [value for value in values if value is not None]
        return add_up(present) / len(present) if present else None

    return Cap(
        cause,
        min(1.0, shares[cause]),
        add_up(each.sm_hertz for each in clocks) / len(clocks),
        add_up(each.sm_max_hertz for each in clocks) / len(clocks),
        mean([each.power_watts for each in clocks]),
        mean([each.power_limit_watts for each in clocks]),
    )


def _count_share(shown: Sequence[DeviceSample], reason: str) -> float | None:
    """Share of the time from the first pass to the last in which the driver counts that a reason held; None where it does not."""
    first, last = shown[0], shown[-1]
    seconds = last.monotonic_seconds - first.monotonic_seconds
    ends = [sample.clocks.held_seconds_total.get(reason) for sample in (first, last) if sample.clocks is not None]
    if seconds <= 0 or ends[0] is None or ends[1] is None or ends[1] < ends[0]:
        return None
    return (ends[1] - ends[0]) / seconds
