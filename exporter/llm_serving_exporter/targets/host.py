"""One tick of one target, wired once: its page, its GPUs, its models and its cost.

The daemon, `once`, the simulator and the tests bring their own clocks, sources and schedules; what a tick consists of stands here alone.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path

from llm_serving_exporter.clock import elapsed_seconds
from llm_serving_exporter.cost.meters import Costs
from llm_serving_exporter.derive.derive import DeriveSettings
from llm_serving_exporter.engines.registry import together
from llm_serving_exporter.errors import FactsError
from llm_serving_exporter.fetch.http import Connect, HttpClient
from llm_serving_exporter.gpus.attribution import GpuCounter, SettingsBuilder, find_lacks
from llm_serving_exporter.gpus.node_gpus import NodeGpus
from llm_serving_exporter.gpus.ownership import Assignment
from llm_serving_exporter.gpus.source import DcgmReader, GpuSource, KubeletReader
from llm_serving_exporter.model.gpu import GpuReadings
from llm_serving_exporter.model.hardware import TargetGpus
from llm_serving_exporter.model.reading import AssignedGpus, TargetReading
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.shape import ModelFacts
from llm_serving_exporter.model.snapshot import ServerFacts
from llm_serving_exporter.model.target import ModelSettings, PodState, ServedModel, Target
from llm_serving_exporter.render.sentences import place_remedy
from llm_serving_exporter.settings.config import Config
from llm_serving_exporter.targets.page_source import PageBook
from llm_serving_exporter.targets.pipeline import TargetPipeline
from llm_serving_exporter.targets.server import ModelBook
from llm_serving_exporter.targets.several_servers import ReplicaBook
from llm_serving_exporter.targets.tenants import TenantNames, make_names

# a target of a host: its readings have GPUs and cost too. `TargetHost.add_target` makes it
HostedTarget = TargetPipeline


class TargetHost:
    """The targets that one process reads, and what they share: configuration, GPUs, models and cost meters.

    `config` may be replaced whole at any time: thresholds, prices and the attribution of cost count from the next tick on, its window and
    runtimes for targets that are added later. Targets are added and removed by one thread at a time, while others tick.
    """

    def __init__(
        self,
        config: Config,
        *,
        gpu_source: GpuSource | None = None,
        dcgm_source: DcgmReader | None = None,
        kubelet_source: KubeletReader | None = None,
        monotonic: Callable[[], float] = elapsed_seconds,
        wall: Callable[[], float] = time.time,
        proc_root: Path = Path("/proc"),
    ) -> None:
        self._monotonic, self._wall = monotonic, wall
        self.gpus = NodeGpus(monotonic, proc_root)
        # how tenants of front doors are called; None: they are not counted
        self._tenant_names: TenantNames | None = None
        self.config = config
        self.gpus.set_source(gpu_source)
        self.gpus.set_dcgm(dcgm_source)
        self.gpus.set_kubelet(kubelet_source)
        self._models = ModelBook(config.hf_cache, config.model_catalogue)
        # the configuration's own runtimes, and what is known of pages with them
        self._book = config.runtimes, PageBook(together(config.runtimes))
        self._replicas = ReplicaBook()
        # what the targets have cost; other threads may ask it
        self.costs = Costs()
        # one at a time: of two threads that find out, the later one must have the last word
        self._claiming = threading.Lock()
        # replaced whole: passes over the GPUs read it in their own thread
        self._targets: Mapping[str, HostedTarget] = {}
        # by the targets' names; replaced whole, ticks read it in their own threads
        self._pods: Mapping[str, PodState] = {}

    @property
    def config(self) -> Config:
        """The configuration that ticks go by."""
        return self._config

    @config.setter
    def config(self, config: Config) -> None:
        self._config = config
        self.gpus.facts.use_own(config.gpu_models)
        self._tenant_names = make_names(config.tenants.settings, self._tenant_names)

    @property
    def targets(self) -> Mapping[str, HostedTarget]:
        """The targets by name, in the order in which they were added."""
        return self._targets

    def add_target(self, target: Target, connect: Connect = HttpClient) -> HostedTarget:
        """Makes what reads a target, under a name that is free. `connect` makes the client of its server.

        Raises ConfigError where the target cannot be asked as configured.
        """
        settings, counter = SettingsBuilder(), GpuCounter()
        hosted = TargetPipeline(
            target,
            lambda facts, engines: self._settings_for(settings, hosted.target, facts, engines),
            self.config.window_seconds,
            models=self._find_model,
            book=self._find_book(),
            monotonic=self._monotonic,
            wall=self._wall,
            connect=connect,
            pod_state=lambda: self._pods.get(target.name),
            tenant_names=lambda: self._tenant_names,
            commands=lambda: self.gpus.read_commands(hosted.target),
            finish=partial(self._finish_reading, counter),
        )
        self.costs.begin_target(target)
        self._targets = {**self._targets, target.name: hosted}
        self.gpus.look_up_processes_soon()
        return hosted

    def _find_book(self) -> PageBook:
        runtimes, book = self._book
        if runtimes != self.config.runtimes:
            book = PageBook(together(self.config.runtimes))
            self._book = self.config.runtimes, book
        return book

    def remove_target(self, name: str) -> None:
        """Ends a target, if there is one of that name. What it has cost is kept until `settle_targets`: it may be added again, changed.

        Of another pod that is added under the name nothing is kept.
        """
        hosted = self._targets.get(name)
        self._targets = {other: target for other, target in self._targets.items() if other != name}
        # its GPUs go with it: another server may get the name
        self.gpus.forget_target(name)
        self._replicas.forget(name)
        if hosted is not None:
            hosted.close()

    def settle_targets(self, names: Collection[str] | None = None) -> None:
        """To be called once targets have come and gone: finds out which claim the same GPUs, and forgets what others than `names` cost.

        `names` (default: all targets) may include targets that could not be added now and may be later.
        """
        self.costs.drop_others(self._targets.keys() if names is None else names)
        self._replicas.keep_only(self._targets.keys())
        self._claim_gpus()

    def put_pod_states(self, pods: Mapping[str, PodState]) -> None:
        """What Kubernetes says now of the pods of targets, by the targets' names; ticks use it from then on."""
        self._pods = pods

    def read_gpus(self) -> GpuReadings | None:
        """One pass over the GPUs; ticks use it from then on. None where there is no source, or it was replaced meanwhile."""
        before = self.gpus.assignments
        readings = self.gpus.read(lambda: [hosted.target for hosted in self._targets.values()])
        if before != self.gpus.assignments:
            self._claim_gpus()
        return readings

    def forget_models(self) -> None:
        """Has every model looked up again: files may have changed."""
        self._models = ModelBook(self.config.hf_cache, self.config.model_catalogue)
        for hosted in self._targets.values():
            hosted.look_again()

    def close(self) -> None:
        """Ends every connection and closes the sources of GPU readings."""
        targets, self._targets = self._targets, {}
        for hosted in targets.values():
            hosted.close()
        self.gpus.close()

    # --- what a tick asks for -------------------------------------------------------------------------------------

    def _settings_for(
        self, builder: SettingsBuilder, target: Target, facts: ServerFacts, engines: int
    ) -> DeriveSettings:
        gpus, assignment = self.gpus, self.gpus.assignments.get(target.name)
        uuids, parts = (assignment.uuids, assignment.parts) if assignment is not None else ((), {})
        settings = builder.build(self.config, target, uuids, gpus.latest, gpus.facts, facts, engines, parts)
        siblings = self._replicas.find_siblings(target.name)
        return settings if siblings is None else replace(settings, siblings=siblings)

    def _find_model(self, settings: ModelSettings, served: ServedModel) -> ModelFacts | FactsError:
        return self._models.find(settings, served)  # whichever book there is by then

    # --- what follows from a tick ---------------------------------------------------------------------------------

    def _finish_reading(self, counter: GpuCounter, before: TargetReading, reading: TargetReading) -> TargetReading:
        latest, assignment = self.gpus.latest, self.gpus.assignments.get(reading.target.name)
        total = counter.keep_known(before, reading, assignment, latest, self.gpus.facts)
        gpus = _describe_gpus(assignment, total, reading.target, latest.readings)
        replica_part = self._replicas.note(reading)
        if replica_part != reading.server.replica_part:
            reading = replace(reading, server=replace(reading.server, replica_part=replica_part))
        if gpus != reading.gpus:
            reading = replace(reading, gpus=gpus)
        now = {"monotonic": self._monotonic(), "unix": self._wall()}
        return self.costs.advance_target(reading, latest.readings, self.config, **now)

    def _claim_gpus(self) -> None:
        """Finds out which targets have the same GPUs, so that none of them is charged for all of these."""
        with self._claiming:
            targets = [hosted.target for hosted in self._targets.values()]
            self.costs.update_claims(targets, self.gpus.assignments, self.gpus.latest.readings)


def _describe_gpus(
    assignment: Assignment | None, total: TargetGpus | None, target: Target, readings: GpuReadings | None
) -> AssignedGpus:
    """The part of a reading on the target's GPUs. `assignment`: those that were found on this node; `total`: all of them."""
    if assignment is None:
        return AssignedGpus(total=total, lacks=find_lacks((), readings))
    origin = assignment.origin or place_remedy(assignment.why, target)
    return AssignedGpus(assignment.uuids, origin, assignment.parts, total, find_lacks(assignment.uuids, readings))
