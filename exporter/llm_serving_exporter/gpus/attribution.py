"""What derive needs to know about one target's GPUs, put together from configuration, readings and what the server says."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from llm_serving_exporter.derive.derive import Settings
from llm_serving_exporter.derive.devices import make_sample, make_shared_sample
from llm_serving_exporter.derive.roof import count_engines, spread_engines
from llm_serving_exporter.engines.mapping import parse_version
from llm_serving_exporter.errors import FactsError
from llm_serving_exporter.facts import loader
from llm_serving_exporter.facts.gpus import find
from llm_serving_exporter.facts.peaks import peaks_of_identity, peaks_of_many, peaks_of_spec
from llm_serving_exporter.gpus.dcgm import select_dcgm_ratios
from llm_serving_exporter.gpus.ownership import Assignment, share_cards
from llm_serving_exporter.model.gpu import DcgmReadings, GpuIdentity, GpuReading, GpuReadings
from llm_serving_exporter.model.hardware import GpuPart, GpuPeaks, GpuSpec, Hardware, TargetGpus
from llm_serving_exporter.model.later import Unchanged
from llm_serving_exporter.model.numbers import add_up
from llm_serving_exporter.model.reading import TargetReading
from llm_serving_exporter.model.record import Struct, field, replace
from llm_serving_exporter.model.snapshot import Absence, ServerFacts
from llm_serving_exporter.model.target import Role, Target
from llm_serving_exporter.model.window import DeviceSample
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
    ) -> Settings:
        """What derive needs for one target whose page shows `engines` engines; `uuids`: its GPUs that are here, () if not known.

        `parts`: of those that others use too, so that what the driver measures is not the target's alone.
        """
        if len(uuids) < len(target.gpus or ()):
            uuids = ()  # what is known of some of them is not known of the target
        hardware = self._hardware(config, target, uuids, gpus.peaks, known, facts, engines)
        device = self._sample(config, uuids, gpus, parts)
        return Settings(
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
        if now.snapshot is not None:
            engines = add_up([engine.is_engine for engine in now.snapshot.engines]) or 1
        found = self._count(now.target, assignment, gpus, known, now.facts, engines)
        if before.target_gpus is None or found is None:
            return before.target_gpus or found
        if now.restarts_total != before.restarts_total:
            return replace(before.target_gpus, share=found.share)
        return found if found.name else replace(found, name=before.target_gpus.name)


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
    found = ratios.by_uuid if ratios.by_uuid is not None else ratios.absence or Absence.NOT_EXPORTED
    return make_sample(uuids, gpus.readings, found)
