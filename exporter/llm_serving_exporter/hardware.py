"""What derive needs to know about one target's GPUs, put together at the rim."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from llm_serving_exporter.config.types import Config
from llm_serving_exporter.derive import devices
from llm_serving_exporter.derive.derive import Settings
from llm_serving_exporter.derive.parallel import spread
from llm_serving_exporter.derive.roofline import Hardware
from llm_serving_exporter.gpu.dcgm import ratios_for
from llm_serving_exporter.gpu_facts import GpuFacts
from llm_serving_exporter.model.dcgm import DcgmReadings
from llm_serving_exporter.model.device import GpuReadings
from llm_serving_exporter.model.devices import DeviceSample
from llm_serving_exporter.model.facts import ServerFacts
from llm_serving_exporter.model.hardware import GpuPeaks
from llm_serving_exporter.model.snapshot import Absence
from llm_serving_exporter.model.target import Target
from llm_serving_exporter.normalise.version import parse_version

# a dcgm-exporter that missed this many of its readings says nothing about now
DCGM_STALE_INTERVALS = 3


@dataclass(frozen=True, slots=True)
class Gpus:
    """The GPUs of this node as last read; replaced whole. `peaks` by UUID."""

    readings: GpuReadings | None = None
    dcgm: DcgmReadings | None = None
    peaks: Mapping[str, GpuPeaks] = field(default_factory=dict)


def settings_of(
    config: Config, target: Target, uuids: Sequence[str], gpus: Gpus, known: GpuFacts, facts: ServerFacts, engines: int
) -> Settings:
    """What derive needs for one target whose page shows `engines` engines; `uuids`: its GPUs that are here, () if not known."""
    seconds = {"ttft": config.slo.ttft_seconds, "itl": config.slo.itl_seconds, "e2e": config.slo.e2e_seconds}
    thresholds = {name: value for name, value in seconds.items() if value is not None}
    configured = len(target.gpus) if target.gpus is not None else 0
    if len(uuids) < configured:
        uuids = ()  # what is known of some of them is not known of the target
    work = spread(target, facts, configured or len(uuids) or None, engines)
    version = parse_version(facts.version)
    hardware = Hardware(
        peaks=known.of_target(target, uuids, gpus.peaks, facts.gpu_name),
        parallel=work.parallel,
        gpus=work.gpus_per_engine,
        assumed_gpus=work.assumed,
        version=(version[0], version[1] if len(version) > 1 else 0) if version is not None else None,
    )
    return Settings(thresholds, config.slo.errors, hardware, device=_sample(config, uuids, gpus))


def _sample(config: Config, uuids: Sequence[str], gpus: Gpus) -> DeviceSample | None:
    if gpus.readings is None:
        return None
    oldest = float("-inf")
    if config.dcgm is not None:
        oldest = gpus.readings.monotonic_seconds - DCGM_STALE_INTERVALS * config.dcgm.interval_seconds
    ratios = ratios_for(uuids, gpus.dcgm, gpus.readings.gpus, not_before_monotonic_seconds=oldest)
    found = ratios.by_uuid if ratios.by_uuid is not None else ratios.absence or Absence.NOT_EXPORTED
    return devices.sample(uuids, gpus.readings, found)
