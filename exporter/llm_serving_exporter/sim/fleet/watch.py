"""What exporters beside a simulated fleet would export: the real stages, fed page by page in simulated time, no socket between."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import islice

from llm_serving_exporter.catalogue import health
from llm_serving_exporter.catalogue.spec import Kind, Metric
from llm_serving_exporter.daemon.store import Store
from llm_serving_exporter.expose import cost, gpu, serving
from llm_serving_exporter.expose.families import Families, Keys
from llm_serving_exporter.expose.identity import list_identity
from llm_serving_exporter.expose.labels import SharedLabels
from llm_serving_exporter.expose.layouts import Element, read_section
from llm_serving_exporter.model.cost import PriceBook
from llm_serving_exporter.model.gpu import GpuReadings
from llm_serving_exporter.model.numbers import Histogram
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.target import Identity, Role, Target
from llm_serving_exporter.settings.config import Config, SloConfig
from llm_serving_exporter.sim.fleet.fleet import Fleet
from llm_serving_exporter.sim.fleet.gpus import FleetGpuSource, gpu_uuid, gpus_of
from llm_serving_exporter.sim.fleet.inprocess import connect_to
from llm_serving_exporter.sim.fleet.replica import Replica
from llm_serving_exporter.sim.fleet.scenario import Slo
from llm_serving_exporter.targets.host import TargetHost

Sample = tuple[str, Mapping[str, str], float]

# after three intervals without a good page series vanish, as by default (stale_after)
_STALE_INTERVALS = 3
_HISTOGRAM_SUFFIXES = ("_bucket", "_count", "_sum")


class Watch:
    """Reads every replica of a fleet whenever `samples` is asked, as an exporter with `interval_seconds` does.

    `wanted`: names as exposed, of whole histograms or of their `_bucket`, `_count` or `_sum`; None = everything. `slo` gives the
    thresholds, `expected_replicas` is exported as configured. `gpus`: read the simulated GPUs too.
    `prices`: what they cost. `replicas`: those that are its targets, None = all. `identities`: who targets are, by name; of others
    nothing is known. `discovers`: whether a replica is found now, as an exporter that asks Kubernetes finds pods; None = a fixed list.
    """

    def __init__(
        self,
        fleet: Fleet,
        *,
        interval_seconds: float,
        wanted: Collection[str] | None = None,
        slo: Slo | None = None,
        expected_replicas: int | None = None,
        window_seconds: float = 60.0,
        gpus: bool = False,
        prices: PriceBook | None = None,
        replicas: Iterable[str] | None = None,
        identities: Mapping[str, Identity] | None = None,
        discovers: Callable[[Replica], bool] | None = None,
    ) -> None:
        thresholds = slo or Slo()
        self._fleet = fleet
        self._wanted = None if wanted is None else frozenset(wanted)
        self._expected = expected_replicas
        self._stale_seconds = _STALE_INTERVALS * interval_seconds
        config = Config(
            targets=(),
            slo=SloConfig(
                SloConfig().ttft_seconds if thresholds.ttft is None else thresholds.ttft, thresholds.itl, thresholds.e2e
            ),
            prices=prices,
            window_seconds=max(window_seconds, interval_seconds),
        )
        self._nodes = _NodeSources(fleet, self._wall) if gpus and fleet.nodes else None
        self._host = TargetHost(config, gpu_source=self._nodes, monotonic=self._now, wall=self._wall)
        self._store = Store()
        self._interval_seconds, self._gpus = interval_seconds, gpus
        self._names = tuple(fleet.replicas if replicas is None else replicas)
        self._identities, self._discovers = identities or {}, discovers
        # by the text that a sample's line begins with, None for one that is not wanted: reading labels is most of what a sample costs
        self._series: dict[str, tuple[str, Mapping[str, str]] | None] = {}
        self._find_targets()

    def _find_targets(self) -> None:
        """Adds and removes targets, as discovery finds them now."""
        found = [name for name in self._names if self._discovers is None or self._discovers(self._fleet.replica(name))]
        known = self._host.targets
        for name in known.keys() - set(found):
            self._host.remove_target(name)
            self._store.remove_target(name)
        new = [name for name in found if name not in known]
        for name in new:
            replica = self._fleet.replica(name)
            spec = replica.spec.engine
            target = Target(
                name,
                f"http://{name}:8000",
                identity=self._identities.get(name, Identity()),
                nodes=replica.spec.nodes,
                gpus=gpus_of(self._fleet, name) if self._gpus else None,
                gpu_count=None if self._gpus else spec.gpus,
                gpu_model=spec.gpu,
                interval_seconds=self._interval_seconds,
            )
            self._store.add_target(target)
            self._host.add_target(target, connect_to(self._fleet, name))
        if new or known.keys() - set(found):
            self._host.settle_targets()

    def fail_gpu(self, replica: str, number: int) -> None:
        """A GPU of a replica falls off the bus: what reads it gets no answer from now on. Raises ValueError where no GPU is read."""
        if self._nodes is None:
            raise ValueError("no GPU is read")
        self._nodes.fail(gpu_uuid(replica, number))

    def samples(self) -> Iterator[Sample]:
        """Every sample now: name, labels, value."""
        self.read()
        families = _Wanted(self._wanted)
        now = self._now()
        view = self._store.view()
        for reading in view.targets:
            fresh = reading.fresh(now, self._stale_seconds)
            serving.add_target_health(families, reading, fresh=fresh, now_monotonic_seconds=now)
            if fresh:
                serving.add_serving(families, reading)
            cost.add_cost(families, reading, fresh=fresh)
        cost.add_price_book(families, self._host.config.prices, self._host.config.attribution)
        self._expected_replicas(families)
        yield from self._chosen(families)
        # an exporter a node, each with its own view of its GPUs; what all of them say alike is said once
        said: set[tuple[str, tuple[tuple[str, str], ...]]] = set()
        for node, readings in (self._nodes.latest if self._nodes is not None else {}).items():
            families = _Wanted(self._wanted)
            gpu.add_gpus(families, replace(view, gpus=readings), node, oldest_monotonic_seconds=now)
            gpu.add_assignments(families, view, node)
            for name, labels, value in self._chosen(families):
                key = name, tuple(labels.items())
                if key not in said:
                    said.add(key)
                    yield name, labels, value

    def _chosen(self, families: Families) -> Iterator[Sample]:
        for family in families:
            lines = family.read_text().split("\n")[:-1]
            parts = [line.rpartition(" ") for line in lines]
            try:
                series = [self._series[start] for start, _, _ in parts]
            except KeyError:
                for (start, _, _), sample in zip(parts, family.samples, strict=True):
                    kept = self._wanted is None or sample.name in self._wanted or family.name in self._wanted
                    self._series[start] = (sample.name, sample.labels) if kept else None
                series = [self._series[start] for start, _, _ in parts]
            for chosen, (_, _, number) in zip(series, parts, strict=True):
                if chosen is not None:
                    yield *chosen, float(number)

    def read(self) -> Store:
        """One tick of every target; the store that holds the readings."""
        if self._discovers is not None:
            self._find_targets()
        readings = self._host.read_gpus()
        if readings is not None:
            self._store.put_gpus(readings, self._host.gpus.latest.peaks)
        for hosted in self._host.targets.values():
            self._store.put_target(hosted.tick())
            hosted.refresh_facts()
        return self._store

    def _expected_replicas(self, families: Families) -> None:
        if self._expected is None:
            return
        for model in {replica.spec.engine.served_name for replica in self._fleet.replicas.values()}:
            labels = families.of_fleet(Identity(), model, Role.UNIFIED.value)
            families.add_value(health.EXPECTED_REPLICAS, labels, self._expected)

    def _now(self) -> float:
        return self._fleet.now_seconds

    def _wall(self) -> float:
        return self._fleet.unix_seconds(self._fleet.now_seconds)


class _NodeSources:
    """A `gpus.source.GpuSource` of all nodes: a replica may span several, and its target is given the GPUs of all of them.

    `latest` has the last readings by node, as the exporter on each would show them. A lost node takes its own GPUs away, no others.
    """

    def __init__(self, fleet: Fleet, wall: Callable[[], float]) -> None:
        self._sources = {node: FleetGpuSource(fleet, node, wall=wall) for node in fleet.nodes}
        self.latest: dict[str, GpuReadings] = {}

    def read(self) -> GpuReadings:
        """One pass over every node."""
        self.latest = {node: source.read() for node, source in self._sources.items()}
        every = list(self.latest.values())
        first = next((readings for readings in every if readings.attempt.ok), every[0])
        return replace(first, gpus=tuple(gpu for readings in every for gpu in readings.gpus))

    def fail(self, uuid: str) -> None:
        """The GPU falls off the bus."""
        for source in self._sources.values():
            source.fault(uuid).lost = True

    def close(self) -> None:
        """Reads nothing any more."""
        for source in self._sources.values():
            source.close()


class _Wanted(Families):
    """Families of some names only (None: all): what is not wanted is not put together. A simulated replica is in no pod."""

    def __init__(self, names: frozenset[str] | None) -> None:
        super().__init__()
        self._names = names

    def add_value(self, metric: Metric, labels: SharedLabels, value: float | None, /, **own: str) -> None:
        if self._keeps(metric):
            super().add_value(metric, labels, value, **own)

    def add_values(
        self, metric: Metric, labels: SharedLabels, own: tuple[str, ...], keys: Keys, values: Collection[float]
    ) -> None:
        if self._keeps(metric):
            super().add_values(metric, labels, own, keys, values)

    def add_by_label(
        self, metric: Metric, labels: SharedLabels, label: str, values: Mapping[str, float] | None
    ) -> None:
        if self._keeps(metric):
            super().add_by_label(metric, labels, label, values)

    def add_elements(self, labels: SharedLabels, elements: Iterable[Element], numbers: Iterable[float]) -> None:
        following = iter(numbers)
        for one in read_section(tuple(elements)):
            values = list(islice(following, len(one.keys)))
            if self._keeps(one.metric):
                super().add_elements(labels, (one.metric, one.own, one.keys), values)

    def add_histogram(self, metric: Metric, labels: SharedLabels, histogram: Histogram | None) -> None:
        if self._keeps(metric):
            super().add_histogram(metric, labels, histogram)

    def _keeps(self, metric: Metric) -> bool:
        return self._names is None or _kept(self._names, metric)

    def of_target(self, target: Target) -> SharedLabels:
        return SharedLabels({"target": target.name})

    def of_target_info(self, target: Target) -> SharedLabels:
        if target.identity == Identity():
            return self.of_target(target)
        stated = list_identity(target.identity, target.nodes)
        return SharedLabels({"target": target.name, **{name: text for name, text in stated.items() if text}})

    def of_gpu(self, uuid: str, name: str, node: str) -> SharedLabels:
        return SharedLabels({"gpu": uuid, "gpu_name": name, "node": node})

    def of_fleet(self, identity: Identity, model_name: str, role: str) -> SharedLabels:
        return SharedLabels({"model_name": model_name, "role": role})


@lru_cache(maxsize=4096)
def _kept(names: frozenset[str], metric: Metric) -> bool:
    name = metric.full_name
    return name in names or (
        metric.kind is Kind.HISTOGRAM and any(name + suffix in names for suffix in _HISTOGRAM_SUFFIXES)
    )
