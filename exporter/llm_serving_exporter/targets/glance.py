"""GPUs for `once`: NVML read anew for each look at a target, without a daemon around it."""

from __future__ import annotations

from collections.abc import Sequence

from llm_serving_exporter.config.types import Config
from llm_serving_exporter.derive.derive import Settings
from llm_serving_exporter.derive.gpus import assign
from llm_serving_exporter.devices.attribution import Gpus, settings_of
from llm_serving_exporter.devices.dcgm_source import DcgmSource
from llm_serving_exporter.devices.locality import pids_of
from llm_serving_exporter.devices.peaks import GpuFacts
from llm_serving_exporter.gpu.source import GpuSource
from llm_serving_exporter.model.facts import ServerFacts
from llm_serving_exporter.model.target import Target


class Glance:
    """Reads the GPUs whenever a target's settings are asked for. `source` None: GPUs are off."""

    def __init__(self, config: Config, targets: Sequence[Target], source: GpuSource | None) -> None:
        self._config, self._targets, self._source = config, tuple(targets), source
        self._facts = GpuFacts()
        self._dcgm = DcgmSource(config.dcgm) if config.dcgm is not None else None

    def settings(self, target: Target, facts: ServerFacts, engines: int) -> Settings:
        """What derive needs for a target now."""
        gpus, uuids = Gpus(), tuple[str, ...]()
        if self._source is not None:
            readings = self._source.read()
            dcgm = self._dcgm.read() if self._dcgm is not None else None
            gpus = Gpus(readings, dcgm, self._facts.of_gpus(readings.gpus))
            if readings.attempt.ok:
                uuids = assign(self._targets, readings.gpus, pids_of(self._targets), {})[target.name].uuids
        return settings_of(self._config, target, uuids, gpus, self._facts, facts, engines)

    def close(self) -> None:
        """Ends what was opened."""
        for source in (self._source, self._dcgm):
            if source is not None:
                source.close()
