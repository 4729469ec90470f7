"""What a target's GPUs cannot measure, by source, architecture, vGPU and MIG -> a sentence for each signal that is absent for it.

Facts: GPM is Hopper's and newer, with driver 525; DCGM takes the same figures from it there, and from perfmon on datacenter cards of Volta
to Ada; the energy counter is Volta's and newer (nvml.h; NVIDIA/DCGM issues 56 and 62). A guest of vGPU has neither: its host has them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from llm_serving_exporter.catalogue import cost
from llm_serving_exporter.catalogue.roofline import BANDWIDTH_RATIO
from llm_serving_exporter.model.derived import BandwidthSource
from llm_serving_exporter.model.gpu import DRIVER_SOURCES, GpuAbsence, GpuReading, GpuReadings
from llm_serving_exporter.model.record import Struct

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
    found: dict[str, str] = {}
    for card in (_describe(by_uuid[uuid], readings) for uuid in uuids if uuid in by_uuid):
        gpu, causes = card.gpu, []
        if gpu.dram_bandwidth_ratio is None and not gpu.lost:
            causes += [cause for cause in _OF_BANDWIDTH if cause.is_it(card)][:1]
        if gpu.energy_joules_total is None and not gpu.lost:
            causes += [cause for cause in _OF_ENERGY if cause.is_it(card)][:1]
        for cause in causes:
            for signal, sentence in cause.sentences.items():
                found.setdefault(signal, sentence.format(name=gpu.identity.name or "The card"))
    return found


def _describe(gpu: GpuReading, readings: GpuReadings) -> _Card:
    identity = gpu.identity
    capability = identity.compute_capability or _FIRST_CAPABILITIES.get(identity.architecture or "")
    number = re.match(r"\d+", readings.driver_version or "")
    return _Card(gpu, readings.source, int(number[0]) if number else None, capability)
