"""An exporter beside a served fleet that is faster than time: its intervals, as everything else, are stated by the fleet's clock."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

from llm_serving_exporter.model.gpu import GpuReadings
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.target import Target
from llm_serving_exporter.settings.config import Config
from llm_serving_exporter.settings.load import load
from llm_serving_simulator.fleet.exporter_config import exporter_config
from llm_serving_simulator.fleet.gpus import FleetGpuSource
from llm_serving_simulator.fleet.scenario import Scenario
from llm_serving_simulator.fleet.server import FleetServer

# simulated seconds between two readings
READ_SECONDS = 10.0
# of one reading: a busy machine answers within a second or two of real time
TIMEOUT_SECONDS = 120.0


def paced_config(
    scenario: Scenario,
    urls: Mapping[str, str],
    folder: Path,
    *listen: str,
    read_seconds: float = READ_SECONDS,
    timeout_seconds: float = TIMEOUT_SECONDS,
) -> Config:
    """The configuration of an exporter of these replicas (`urls` by name), which is written to `folder`; listens on `listen`.

    `read_seconds`, `timeout_seconds`: between two readings, and of one; both simulated."""
    file = folder / "exporter.yml"
    file.write_text(exporter_config(scenario, urls), encoding="utf-8")
    read = load(argparse.Namespace(config_file=str(file)), {})

    def paced(target: Target) -> Target:
        http = replace(target.http, timeout_seconds=timeout_seconds)
        return replace(target, interval_seconds=read_seconds, http=http)

    return replace(
        read,
        targets=tuple(map(paced, read.targets)),
        interval_seconds=read_seconds,
        stale_after_seconds=3 * read_seconds + timeout_seconds,
        gpu=replace(read.gpu, enabled=True, interval_seconds=read_seconds),
        web=replace(read.web, listen_addresses=listen),
    )


class ServedGpuSource:
    """A `gpus.source.GpuSource`: the GPUs of a fleet that is served, read while nobody else uses it."""

    def __init__(self, server: FleetServer) -> None:
        self._server = server
        self._source = FleetGpuSource(server.fleet, moved_on=server.advance, monotonic=server.clock.monotonic)

    def read(self) -> GpuReadings:
        """One pass."""
        with self._server.lock:
            return self._source.read()

    def close(self) -> None:
        """Reads nothing any more."""
        self._source.close()
