"""What derive needs to know about one target's GPUs, put together from configuration, readings and what the server says."""

from __future__ import annotations

import logging
import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType

from llm_serving_exporter.catalogue import cost
from llm_serving_exporter.catalogue.roofline import BANDWIDTH_RATIO
from llm_serving_exporter.derive.derive import DeriveSettings
from llm_serving_exporter.derive.devices import REASONS
from llm_serving_exporter.engines.mapping import parse_version
from llm_serving_exporter.errors import FactsError
from llm_serving_exporter.facts import loader
from llm_serving_exporter.facts.gpus import find
from llm_serving_exporter.facts.peaks import peaks_of_identity, peaks_of_many, peaks_of_spec
from llm_serving_exporter.gpus.dcgm import select_dcgm_ratios
from llm_serving_exporter.gpus.ownership import Assignment, share_cards
from llm_serving_exporter.model.derived import BandwidthSource
from llm_serving_exporter.model.gpu import (
    DRIVER_SOURCES,
    DcgmReadings,
    GpuAbsence,
    GpuIdentity,
    GpuReading,
    GpuReadings,
)
from llm_serving_exporter.model.hardware import GpuPart, GpuPeaks, GpuSpec, Hardware, Parallel, TargetGpus
from llm_serving_exporter.model.later import Unchanged
from llm_serving_exporter.model.numbers import add_up
from llm_serving_exporter.model.reading import TargetReading
from llm_serving_exporter.model.record import Struct, field, replace
from llm_serving_exporter.model.snapshot import Absence, ServerFacts
from llm_serving_exporter.model.target import Role, Target
from llm_serving_exporter.model.window import Clocks, DeviceSample
from llm_serving_exporter.settings.config import Config

# --- Peaks of the GPUs of targets: the catalogue is read once, and each GPU's peaks are worked out once.


log = logging.getLogger("llm_serving_exporter.facts")


# labels of discovered targets may name any, again and again
MOST_NAMES = 256


class GpuFacts:
    """Peaks by GPU. May be used from several threads: what is known is replaced whole, and worked out twice at worst."""

    def __init__(self, own: Sequence[GpuSpec] = ()) -> None:
        # cards that the configuration describes, which win over the catalogue's
        self._own = tuple(own)
        # the GPUs of the last pass
        self._known: dict[GpuIdentity, GpuPeaks] = {}
        # by the name that a target or its server gives, None where the catalogue does not know it; the oldest first
        self._named: OrderedDict[str, GpuPeaks | None] = OrderedDict()

    def use_own(self, own: Sequence[GpuSpec]) -> None:
        """Replaces the cards that the configuration describes; what was worked out with those of before is forgotten."""
        if tuple(own) != self._own:
            self._own = tuple(own)
            self._known, self._named = {}, OrderedDict()

    def _list_rows(self) -> Sequence[GpuSpec]:
        return (*self._own, *loader.gpu_catalogue())

    def find_peaks(self, gpus: Sequence[GpuReading]) -> dict[str, GpuPeaks]:
        """Peaks by UUID. GPUs that are gone are forgotten."""
        self._known = {gpu.identity: self._find_identity_peaks(gpu.identity) for gpu in gpus}
        return {identity.uuid: peaks for identity, peaks in self._known.items()}

    def _find_identity_peaks(self, identity: GpuIdentity) -> GpuPeaks:
        known = self._known.get(identity)
        if known is None:
            known = peaks_of_identity(identity, self._list_rows())
            log.info(
                "gpu=%s (%s): peak bandwidth %s by %s, dense rates for %s",
                identity.uuid, identity.name,
                f"{known.bandwidth_bytes_per_second / 1e9:.0f} GB/s" if known.bandwidth_bytes_per_second else "unknown",
                known.origin or "nothing", ", ".join(known.flops) or "no precision",
            )  # fmt: skip
        return known

    def find_target_peaks(
        self, target: Target, uuids: Sequence[str], known: Mapping[str, GpuPeaks], said: str | None = None
    ) -> GpuPeaks | Absence:
        """One GPU that stands for each of the target's: as configured by name, else by what NVML says of them, else the name that the
        server itself said."""
        if target.gpu_model is not None:
            return self._find_by_name(target, target.gpu_model) or Absence.PEAK_UNKNOWN
        if not uuids and said is not None:
            return self._find_by_name(target, said) or Absence.GPUS_UNKNOWN
        own = [known[uuid] for uuid in uuids if uuid in known]
        if not own or len(own) < len(uuids):
            return Absence.GPUS_UNKNOWN
        try:
            return peaks_of_many(own)
        except FactsError as error:
            return Absence(error.reason)

    def name_target_gpus(
        self, target: Target, uuids: Sequence[str], known: Mapping[str, GpuPeaks], said: str | None = None
    ) -> str:
        """The kind of the target's GPUs, by the sources of `find_target_peaks` in their order; "" where none says it.

        The catalogue's name where it knows the card, whatever the source calls it, so that one kind has one spelling. `uuids`: those that
        are here, even if they are not all.
        """
        seen = sorted({known[uuid].name for uuid in uuids if uuid in known})
        text = target.gpu_model or ("" if seen else said)
        if not text:
            return " + ".join(seen)
        found = self._find_by_name(target, text)
        return found.name if found is not None else text

    def _find_by_name(self, target: Target, name: str) -> GpuPeaks | None:
        if name not in self._named:
            self._named[name] = _find_named(target, name, self._list_rows())
            while len(self._named) > MOST_NAMES:
                self._named.popitem(last=False)
        return self._named.get(name)


def _find_named(target: Target, name: str, rows: Sequence[GpuSpec]) -> GpuPeaks | None:
    try:
        return peaks_of_spec(find(name, rows))
    except FactsError as error:
        # a configured name was checked when the configuration was loaded; a discovered one, or a server's own word, may be unknown
        log.warning("target=%s: %s", target.name, error)
        return None


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


# --- How an engine's work is spread over GPUs: what is configured, what the server says, else what the number of GPUs suggests.


class Spread(Struct, frozen=True):
    """How a target's GPUs are shared among its engines. None: nothing says it."""

    parallel: Parallel | None  # how the work of one engine is spread
    # the engine's share of the target's GPUs, which need not be whole; never fewer than `parallel` has
    gpus_per_engine: float | None
    assumed: bool = False  # whether it is a guess that an engine's GPUs are one tensor-parallel group
    # whether the server has a size above one of a way to spread work that these figures do not know
    unread: bool = False


def spread_engines(target: Target, facts: ServerFacts, gpus: int | None, engines: int) -> Spread:
    """For one engine of a target whose page shows `engines` of them on `gpus` GPUs (None: not known).

    Configuration over the server's own word; without either, all GPUs of an engine are taken for one tensor-parallel group, which
    is how engines start by default and what one GPU can only be. An engine that spans nodes has more GPUs than are seen
    here. Data-parallel ranks share one set of routed experts unless somebody says that they do not: vLLM's do with and without
    expert parallelism, those of SGLang, TensorRT-LLM and LMDeploy under data-parallel attention.
    """
    engines = count_engines(facts, engines)
    tensor = target.tensor_parallel_size or facts.tensor_parallel_size
    pipeline = target.pipeline_parallel_size or facts.pipeline_parallel_size
    ranks = target.data_parallel_size or facts.data_parallel_size or engines
    shared = shares_experts(target, facts)
    context = target.decode_context_parallel_size or facts.decode_context_parallel_size or 1
    stated = facts.gpu_count * engines if facts.gpu_count else None
    count = gpus if gpus is not None else target.gpu_count or stated
    per_engine = count / engines if count else None
    if facts.unread_parallel_sizes or (facts.prefill_context_parallel_size or 1) > 1:
        return Spread(None, per_engine, unread=True)
    assumed = False
    stages = pipeline or 1
    if tensor is None and per_engine is not None and per_engine % stages == 0:
        tensor, assumed = int(per_engine) // stages, per_engine > stages
    if tensor is None:
        return Spread(None, per_engine)
    experts = tensor * ranks if shared and ranks > 1 else 1
    parallel = Parallel(tensor, stages, ranks, experts, context if tensor % context == 0 else 1)
    return Spread(parallel, max(float(parallel.rank_gpus), per_engine or 0.0), assumed)


def count_engines(facts: ServerFacts, shown: int) -> int:
    """Engines of a target whose page shows so many: of a server that speaks for all of its ranks, also those that have not worked yet."""
    return max(1, shown, (facts.data_parallel_size or 1) if facts.all_ranks_shown else 1)


def shares_experts(target: Target, facts: ServerFacts) -> bool:
    """Whether the data-parallel ranks of a mixture-of-experts model share one set of routed experts: as configured, else as the server
    says, else true."""
    return facts.experts_spread is not False if target.experts_shared is None else target.experts_shared


# --- What derive needs to know of one target.


# a dcgm-exporter that missed this many of its readings says nothing about now
DCGM_STALE_INTERVALS = 3


class Gpus(Struct, frozen=True):
    """The GPUs of this node as last read; replaced whole."""

    readings: GpuReadings | None = None  # the last pass, failed ones included; None before the first
    # the last scrape of dcgm-exporter, failed ones included; None before the first, and where none is configured
    dcgm: DcgmReadings | None = None
    peaks: Mapping[str, GpuPeaks] = field(default_factory=dict)  # by UUID, of the last pass that did not fail


class SettingsBuilder:
    """Builds one target's settings tick after tick, again only what rests on something that has changed. Used by one thread at a time."""

    def __init__(self) -> None:
        self._hardware = Unchanged(_describe_hardware)
        self._sample = Unchanged(_sample_devices)
        self._thresholds = Unchanged(_list_thresholds)

    def build(
        self,
        config: Config,
        target: Target,
        uuids: Sequence[str],
        gpus: Gpus,
        known: GpuFacts,
        facts: ServerFacts,
        engines: int,
        parts: Mapping[str, GpuPart] = MappingProxyType({}),
    ) -> DeriveSettings:
        """What derive needs for one target whose page shows `engines` engines; `uuids`: its GPUs that are here, () if not known.

        `parts`: of those that others use too, so that what the driver measures is not the target's alone.
        """
        if len(uuids) < len(target.gpus or ()):
            uuids = ()  # what is known of some of them is not known of the target
        hardware = self._hardware(config, target, uuids, gpus.peaks, known, facts, engines)
        device = self._sample(config, uuids, gpus, parts)
        return DeriveSettings(
            self._thresholds(config),
            config.slo.errors,
            hardware,
            device=device,
            stalled_after_seconds=config.limiter.stalled_after_seconds,
        )


def _list_thresholds(config: Config) -> dict[str, float]:
    seconds = {"ttft": config.slo.ttft_seconds, "itl": config.slo.itl_seconds, "e2e": config.slo.e2e_seconds}
    return {name: value for name, value in seconds.items() if value is not None}


def _describe_hardware(
    config: Config,
    target: Target,
    uuids: Sequence[str],
    peaks: Mapping[str, GpuPeaks],
    known: GpuFacts,
    facts: ServerFacts,
    engines: int,
) -> Hardware:
    work = spread_engines(target, facts, _count_gpus(target, uuids) or None, engines)
    version = parse_version(facts.version)
    return Hardware(
        peaks=known.find_target_peaks(target, uuids, peaks, facts.gpu_name),
        parallel=work.parallel,
        gpus=work.gpus_per_engine,
        assumed_gpus=work.assumed,
        layout_unread=work.unread,
        efficiency=config.attribution.efficiency,
        version=(version[0], version[1] if len(version) > 1 else 0) if version is not None else None,
    )


def count_target_gpus(
    target: Target,
    uuids: Sequence[str],
    gpus: Gpus,
    known: GpuFacts,
    facts: ServerFacts,
    engines: int,
    shares: Mapping[str, float | None] | None = None,
) -> TargetGpus | None:
    """How many GPUs all engines of the target use together, and what they are; None where the number is not known.

    `shares`: by UUID, which part of its card the target has, where that is not all of it; None: not known.

    `engines` 0: no page was read yet, so that only what is said of the whole target counts, not the parallel sizes of one engine. How an
    engine's GPUs share its work may be assumed: their number is not.
    """
    if target.gpus == ():  # configured as a server without a GPU
        return None
    count = _count_gpus(target, uuids)
    if count is None and not engines:
        return None
    engines = count_engines(facts, engines)
    each = spread_engines(target, facts, count, engines).gpus_per_engine
    if each is None:
        return None
    whole = round(each * engines)
    name = known.name_target_gpus(target, uuids, gpus.peaks, facts.gpu_name)
    return TargetGpus(whole, name, target.gpu_share or _average_shares(whole, uuids, shares or {}))


def _average_shares(count: int, uuids: Sequence[str], shares: Mapping[str, float | None]) -> float | None:
    """Mean part of a card that each of `count` GPUs is; those that are not seen here are taken for whole ones."""
    if not shares:
        return 1.0 if count else None
    own = [shares.get(uuid, 1.0) for uuid in uuids]
    known = [share for share in own if share is not None]
    if len(known) < len(own) or not count:
        return None
    return (add_up(known) + max(0, count - len(own))) / max(count, len(own))


def _count_gpus(target: Target, uuids: Sequence[str]) -> int | None:
    """As listed, else as seen, else as stated. Of a target that spans nodes the GPUs of one at most are seen here: more may be stated."""
    if target.gpus is not None:
        return len(target.gpus)
    if target.lacks_pods:
        return target.gpu_count
    stated = target.gpu_count or 0
    return (max(len(uuids), stated) if len(target.nodes) > 1 else len(uuids) or stated) or None


class GpuCounter:
    """Counts one target's GPUs tick after tick: again only where something has changed. Used by one thread at a time."""

    def __init__(self) -> None:
        self._count = Unchanged(_count_assigned)

    def keep_known(
        self, before: TargetReading, now: TargetReading, assignment: Assignment | None, gpus: Gpus, known: GpuFacts
    ) -> TargetGpus | None:
        """As `count_target_gpus`, for a target's reading `now`. What the reading `before` knew stays where nothing is known now.

        A front end has none. At the tick that shows a restart the server has not been asked yet what it says of itself: what was known
        stays.
        """
        if now.role is Role.FRONTEND:
            return None
        engines = 0
        if now.page.snapshot is not None:
            engines = add_up([engine.is_engine for engine in now.page.snapshot.engines]) or 1
        found = self._count(now.target, assignment, gpus, known, now.server.facts, engines)
        if before.gpus.total is None or found is None:
            return before.gpus.total or found
        if now.server.restarts_total != before.server.restarts_total:
            return replace(before.gpus.total, share=found.share)
        return found if found.name else replace(found, name=before.gpus.total.name)


def _count_assigned(
    target: Target, assignment: Assignment | None, gpus: Gpus, known: GpuFacts, facts: ServerFacts, engines: int
) -> TargetGpus | None:
    if assignment is None:
        return count_target_gpus(target, (), gpus, known, facts, engines)
    seen = [gpu.identity for gpu in gpus.readings.gpus] if gpus.readings is not None else []
    return count_target_gpus(target, assignment.uuids, gpus, known, facts, engines, share_cards(assignment, seen))


def gpu_interval(config: Config) -> float:
    """Seconds between two passes over the GPUs."""
    return config.gpu.interval_seconds or config.interval_seconds


def _sample_devices(
    config: Config, uuids: Sequence[str], gpus: Gpus, parts: Mapping[str, GpuPart]
) -> DeviceSample | None:
    if gpus.readings is None:
        return None
    if gpus.readings.attempt.ok and uuids and any(part.share != 1.0 for part in parts.values()):
        return make_shared_sample(uuids, gpus.readings, parts)
    oldest = float("-inf")
    if config.dcgm is not None:
        oldest = gpus.readings.monotonic_seconds - DCGM_STALE_INTERVALS * config.dcgm.interval_seconds
    ratios = select_dcgm_ratios(uuids, gpus.dcgm, gpus.readings.gpus, not_before_monotonic_seconds=oldest)
    return make_sample(uuids, gpus.readings, ratios)
