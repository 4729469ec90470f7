"""Schedules what the daemon does: ticks, passes over the GPUs, discovery, files, reloads; what they find goes into the store."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable
from functools import partial

from llm_serving_exporter.clock import elapsed_seconds
from llm_serving_exporter.cost.meters import Costs
from llm_serving_exporter.daemon.file_jobs import FileJobs, PriceFile
from llm_serving_exporter.daemon.garbage import fit_collector
from llm_serving_exporter.daemon.schedule import Schedule, ThreadSchedule
from llm_serving_exporter.daemon.store import Store
from llm_serving_exporter.discovery.sections import Discovery
from llm_serving_exporter.engines.registry import reads_otherwise, together
from llm_serving_exporter.errors import ConfigError
from llm_serving_exporter.gpus.attribution import gpu_interval
from llm_serving_exporter.gpus.exporter_source import DcgmSource
from llm_serving_exporter.gpus.kubelet import open_kubelet
from llm_serving_exporter.gpus.source import GpuSource
from llm_serving_exporter.model.reading import PageReading
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.target import Target, is_relabelled
from llm_serving_exporter.model.text import count_nouns
from llm_serving_exporter.settings.config import Config, hash_of
from llm_serving_exporter.targets.host import HostedTarget, TargetHost
from llm_serving_exporter.targets.several_servers import SameEngines

log = logging.getLogger("llm_serving_exporter.daemon")

# a pod that comes or goes is seen within this, so that its target has begun or ended after two intervals
DISCOVERY_EVERY_SECONDS = 2.0
# the wall clock was stepped when it moved this much against elapsed time between two looks
CLOCK_STEP_SECONDS = 2.0
# a target that is new is read within this
FIRST_WITHIN_SECONDS = 5.0
# places that lie so far apart, on and on around an interval, are spread evenly over it however many there are
_GOLDEN_SHARE = (5**0.5 - 1) / 2


class Daemon:
    """Runs targets, GPUs and discovery until `stop`. The web server is the caller's: it reads `store` and calls `reload`.

    `load` reads the configuration again (raises ConfigError); `gpu_source` makes the source of GPU readings, or None where GPUs are off.
    `schedule`: what runs the jobs (default: threads, by elapsed time). `speed`: seconds of `monotonic` to an elapsed one.
    `take`: given a configuration that was loaded again, before it is in force; raises ConfigError where it cannot be.
    """

    def __init__(
        self,
        config: Config,
        load: Callable[[], Config],
        gpu_source: Callable[[Config], GpuSource | None],
        *,
        store: Store | None = None,
        schedule: Schedule | None = None,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = elapsed_seconds,
        speed: float = 1.0,
        take: Callable[[Config], None] = lambda _config: None,
    ) -> None:
        self.store = store or Store()
        self._load, self._make_gpu_source, self._take = load, gpu_source, take
        self._wall, self._monotonic = wall, monotonic
        self._host = TargetHost(config, monotonic=monotonic, wall=wall)
        # reloads come from the web server, from a signal and from discovery: one at a time changes what is run
        self._lock = threading.RLock()
        self._discovery = Discovery(config.discovery, shard=config.shard, monotonic=monotonic)
        # targets of one pod that are one engine
        self._same_engines = SameEngines()
        # what discovery said last, so that each sentence is logged once
        self._discovery_problems: tuple[str, ...] = ()
        # whether the configuration could be loaded last, whatever its price file says
        self._config_good = True
        # what the web server was started with
        self._web_in_force = self._read_web = config.web
        # whether the configuration in force has been started
        self._config_applied = False
        # of the last target that was added, in its interval: a share of that; exporters that start together do not begin at the same place
        self._place = random.random()
        # whether a dcgm-exporter is configured that can be asked
        self._dcgm_is_read = False
        self._schedule: Schedule = schedule or ThreadSchedule(speed=speed)
        self._files = FileJobs(
            self.store, self._lock, self._schedule.every, self._schedule.cancel, self._set_prices, wall
        )

    @property
    def config(self) -> Config:
        """The configuration in force, with the prices that its file states now."""
        return self._host.config

    @property
    def web_waits(self) -> bool:
        """Whether the file has other web settings than the server was started with, as far as it was read."""
        return self._read_web != self._web_in_force

    @property
    def costs(self) -> Costs:
        """What the targets have cost so far."""
        return self._host.costs

    # --- life -----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Starts every job; returns at once."""
        with self._lock:
            self._apply(self.config)
        self._schedule.start()

    def stop(self) -> None:
        """Ends every job without waiting for exchanges under way; they end at their deadline."""
        self._schedule.stop()
        self._files.close()
        with self._lock:
            self._discovery.close()
            self._host.close()

    def run(self, stopping: threading.Event, reloading: threading.Event) -> None:
        """Watches for reloads until `stopping` is set, and says when the wall clock is stepped, which no interval, age or rate goes by."""
        drift = self._wall() - self._monotonic()
        while not stopping.wait(1.0):
            try:
                if reloading.is_set():
                    reloading.clear()
                    self.reload()
                moved = self._wall() - self._monotonic() - drift
                if abs(moved) > CLOCK_STEP_SECONDS:
                    drift += moved
                    log.warning(
                        "the wall clock moved by %.1f s against elapsed time; intervals and rates go by the latter",
                        moved,
                    )
            except Exception:
                log.exception("the main loop goes on after a fault; this is a bug, please report it")

    # --- configuration --------------------------------------------------------------------------------------------

    def reload(self) -> ConfigError | None:
        """Loads the configuration again; a bad one changes nothing, and its error is returned."""
        with self._lock:
            try:
                config = self._load()
                self._take(config)
            except ConfigError as error:
                self._config_good = False
                self.store.put_config("", False, self._wall())
                log.error("the configuration was not reloaded, the running one stays: %s", error)
                return error
            self._read_web = config.web
            if self.web_waits:
                log.warning("web settings changed: they take effect at the next start only")
            self._discovery.replace(config.discovery, config.shard)
            self._apply(config)
            log.info("configuration reloaded, %s", count_nouns(len(self._host.targets), "target"))
            return None

    def _apply(self, config: Config) -> None:
        window_kept = config.window_seconds == self.config.window_seconds
        gpus_kept = self._host.gpus.is_read and _gpu_reading(config) == _gpu_reading(self.config)
        dcgm_kept = self._dcgm_is_read and config.dcgm == self.config.dcgm
        retold = [
            name
            for name, hosted in self._host.targets.items()
            if reads_otherwise(hosted.target, hosted.runtime, self.config.runtimes, config.runtimes)
        ]
        # until the first reading of a price file nothing has a cost
        known = self.config.prices if self._config_applied else None
        prices = self._files.take_prices(config.price_file, known, config.gpu_models)
        if config.price_file is None:
            prices = config.prices  # as a flag states them
        if prices != config.prices:
            config = replace(config, prices=prices)
            config = replace(config, config_hash=hash_of(config))
        self._config_applied = True
        self._host.config = config
        self._host.forget_models()
        for warning in config.warnings:
            log.warning("%s", warning)
        if not gpus_kept:
            self._restart_gpus(config)
        if not dcgm_kept:
            self._restart_dcgm(config)
        for name in retold if window_kept else list(self._host.targets):
            self._remove(name)
        self._set_targets()
        if config.discovery or config.shard is not None:  # a shard may have targets to let go
            self._schedule.every("discovery", DISCOVERY_EVERY_SECONDS, self._discover)
        else:
            self._schedule.cancel("discovery")
        self._files.apply(config)
        self._config_good = True
        self.store.put_config(config.config_hash, True, self._wall())
        if not self._files.prices_are_good:
            self.store.put_config("", False, self._wall())

    def _discover(self) -> None:
        with self._lock:
            repeats = self._same_engines.update(self.store.view().targets)
            if self._discovery.changed() or repeats:
                self._set_targets()

    def _set_targets(self) -> None:
        found = self._discovery.targets(self.config.targets, together(self.config.runtimes))
        repeats = self._same_engines.repeats
        sentences = (
            f"{name}: it shows the page of the engine that {kept} is, and is left out. Name the engine's port: llm-serving-exporter/port."
            for name, kept in sorted(repeats.items())
        )
        problems = (*found.problems, *sentences)
        self.store.put_discovery(problems, found.failures, elsewhere=found.elsewhere, left_out=found.left_out)
        for problem in problems:
            if problem not in self._discovery_problems:
                log.warning("discovery: %s", problem)
        self._discovery_problems = problems
        self.store.put_values(waiting=found.waiting)
        # before a new target is read for the first time
        self._host.put_pod_states(found.pods)
        self._host.gpus.set_pods(finished=found.finished, workers=found.workers, slices=found.slices)
        wanted = {target.name: target for target in found.targets if target.name not in repeats}
        known = {name: hosted.target for name, hosted in self._host.targets.items()}
        known |= {reading.target.name: reading.target for reading in self.store.view().targets}
        for name, target in known.items():
            now = wanted.get(name)
            if now is None or not is_relabelled(target, now):
                self._remove(name)
            elif now != target:
                self._relabel(now)
        for name, target in wanted.items():
            if name not in self._host.targets:
                self._add(target, alone=len(wanted) == 1)
        self._host.settle_targets(wanted)
        fit_collector(len(wanted))

    def _add(self, target: Target, *, alone: bool) -> None:
        reading = self.store.add_target(target)
        try:
            hosted = self._host.add_target(target)
        except ConfigError as error:
            # a configured target was checked when the configuration was loaded; a discovered one may still be unusable
            log.error("target=%s cannot be read: %s", target.name, error)
            self.store.put_target(replace(reading, page=PageReading(problem=str(error))))
            return
        # a single one is read at once; many are, for the first time, within a few seconds, and from then on all over their interval
        self._place = (self._place + _GOLDEN_SHARE) % 1.0
        place, interval = 0.0 if alone else self._place, target.interval_seconds
        first, later = place * min(interval, FIRST_WITHIN_SECONDS), place * interval
        self._schedule.every(f"target {target.name}", interval, partial(self._tick, hosted), first, later)

    def _relabel(self, target: Target) -> None:
        hosted = self._host.targets.get(target.name)
        if hosted is not None:
            hosted.relabel(target)
        self.store.relabel_target(target)

    def _remove(self, name: str) -> None:
        self._schedule.cancel(f"target {name}")
        self._host.remove_target(name)
        self.store.remove_target(name)

    # --- jobs -----------------------------------------------------------------------------------------------------

    async def _tick(self, hosted: HostedTarget) -> None:
        self.store.put_target(await hosted.advance())
        await hosted.refresh()

    # --- GPUs and prices --------------------------------------------------------------------------------------------

    def _restart_gpus(self, config: Config) -> None:
        source = None
        if config.gpu.enabled or config.device_exporter is not None:
            try:
                source = self._make_gpu_source(config)
            except ConfigError as error:
                # as for dcgm-exporter below
                log.error("the device exporter cannot be read: %s", error)
        kubelet = open_kubelet(config.gpu)
        self._host.gpus.set_source(source)
        self._host.gpus.set_kubelet(kubelet)
        self.store.put_kubelet(None)
        if source is None:
            self.store.put_values(gpus=None, gpu_peaks={}, node_gpus=None, workers=())
            self._schedule.cancel("gpus")
        else:
            self._schedule.every("gpus", gpu_interval(config), self._read_gpus)
        if source is None or kubelet is None:
            self._schedule.cancel("kubelet")
        else:
            self._schedule.every("kubelet", gpu_interval(config), self._read_kubelet)

    def _read_gpus(self) -> None:
        readings = self._host.read_gpus()
        with self._lock:
            latest = self._host.gpus.latest
            if readings is not None and latest.readings is readings:  # else they were switched off while they were read
                gpus = self._host.gpus
                self.store.put_gpus(readings, latest.peaks, node_gpus=gpus.node_count, workers=gpus.workers)

    def _read_kubelet(self) -> None:
        readings = self._host.gpus.read_kubelet()
        self.store.put_kubelet(readings.attempt if readings is not None else None)

    def _restart_dcgm(self, config: Config) -> None:
        source = None
        self.store.put_values(dcgm_ok=None)
        if config.dcgm is not None:
            try:
                source = DcgmSource(config.dcgm, monotonic=self._monotonic, wall=self._wall)
            except ConfigError as error:
                # as for a target: it was checked when the configuration was loaded, and must not take a reload down with it
                log.error("dcgm-exporter cannot be read: %s", error)
                self.store.put_values(dcgm_ok=False)
        self._host.gpus.set_dcgm(source)
        self._dcgm_is_read = source is not None
        if config.dcgm is not None and source is not None:
            self._schedule.every("dcgm", config.dcgm.interval_seconds, self._read_dcgm)
        else:
            self._schedule.cancel("dcgm")

    def _read_dcgm(self) -> None:
        readings = self._host.gpus.read_dcgm()
        with self._lock:
            if readings is not None and self._host.gpus.latest.dcgm is readings:
                self.store.put_values(dcgm_ok=readings.attempt.ok)

    def _set_prices(self, source: PriceFile) -> None:
        good = source.problem is None
        if good:  # whatever is wrong with the other files
            config = replace(self.config, prices=source.value)
            self._host.config = replace(config, config_hash=hash_of(config))
        self.store.put_config(self.config.config_hash, good and self._config_good, self._wall())


def _gpu_reading(config: Config) -> tuple[object, ...]:
    return config.gpu, gpu_interval(config), config.device_exporter
