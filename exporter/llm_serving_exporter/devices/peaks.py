"""Peaks of the GPUs of targets: the catalogue is read once, and each GPU's peaks are worked out once."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Mapping, Sequence

from llm_serving_exporter.errors import FactsError
from llm_serving_exporter.facts import loader
from llm_serving_exporter.facts.gpus import find
from llm_serving_exporter.facts.peaks import peaks_of_identity, peaks_of_many, peaks_of_spec
from llm_serving_exporter.model.gpu import GpuIdentity, GpuReading
from llm_serving_exporter.model.hardware import GpuPeaks, GpuSpec
from llm_serving_exporter.model.snapshot import Absence
from llm_serving_exporter.model.target import Target

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
