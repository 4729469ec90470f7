"""A fleet's past: what the exporter would have published, as fast as it can be made."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import islice

from llm_serving_exporter.catalogue import health
from llm_serving_exporter.catalogue.spec import Kind, Metric
from llm_serving_exporter.daemon.store import Store
from llm_serving_exporter.expose import serving
from llm_serving_exporter.expose.collector import add_assignments, add_gpus
from llm_serving_exporter.expose.families import (
    Element,
    Families,
    SeriesKeys,
    SharedLabels,
    list_identity,
    read_section,
)
from llm_serving_exporter.expose.serving import add_cost, add_price_book
from llm_serving_exporter.fetch.http import Connect, JsonAnswer
from llm_serving_exporter.model.cost import PriceBook
from llm_serving_exporter.model.gpu import GpuReadings
from llm_serving_exporter.model.numbers import Histogram, add_up
from llm_serving_exporter.model.record import Struct, replace
from llm_serving_exporter.model.sample import FailureReason, Page, Refusal
from llm_serving_exporter.model.target import HttpSettings, Identity, Role, Target
from llm_serving_exporter.settings.config import Config, SloConfig
from llm_serving_exporter.targets.host import TargetHost
from llm_serving_simulator.fleet.fleet import Fleet, Replica, ReplicaState
from llm_serving_simulator.fleet.gpus import FleetGpuSource, gpu_uuid, gpus_of
from llm_serving_simulator.fleet.pages import side_answers
from llm_serving_simulator.fleet.scenario import Scenario, Slo
from llm_serving_simulator.fleet.workload import DAY_SECONDS, Profile
from llm_serving_simulator.web import METRICS_CONTENT_TYPE

# --- The exporter's pipeline beside a simulated replica without a socket between them: the same answers, as fast as they can be made.


class _Client:
    """A `fetch.http.Client` of one replica."""

    def __init__(self, fleet: Fleet, name: str, monotonic: Callable[[], float], wall: Callable[[], float]) -> None:
        self._fleet, self._replica = fleet, fleet.replica(name)
        self._monotonic, self._wall = monotonic, wall

    async def get_metrics(self, path: str) -> Page | Refusal:
        """Its page on /metrics, else 404; refused as the server of a fleet refuses."""
        if self._replica.name in self._fleet.unreachable:
            return self._away()
        page = self._fleet.page(self._replica.name)
        if page is None:
            return self._away()
        if path != "/metrics":
            return self._refused(FailureReason.STATUS, f"the server answered {path} with 404", 404)
        return Page(page, METRICS_CONTENT_TYPE, self._wall(), self._monotonic())

    async def get_json(
        self, path: str, max_bytes: int = 1024 * 1024, timeout_seconds: float | None = None
    ) -> JsonAnswer | Refusal:
        """A side endpoint."""
        replica = self._replica
        if replica.engine is None or replica.name in self._fleet.unreachable:
            return self._away()
        started = self._fleet.unix_seconds(replica.started_seconds)
        body = side_answers(replica.spec.engine, started).get(path.partition("?")[0])
        if body is None:
            return self._refused(FailureReason.STATUS, f"the server answered {path} with 404", 404)
        return JsonAnswer(json.loads(body), 200)

    async def get_any(self, path: str) -> Page | Refusal:
        """As `get_metrics`."""
        return await self.get_metrics(path)

    def close(self) -> None:
        """There is nothing to close."""

    def _away(self) -> Refusal:
        # the first node has the address
        if self._replica.name in self._fleet.unreachable or self._replica.spec.nodes[0] in self._fleet.lost_nodes:
            return self._refused(FailureReason.UNREACHABLE, "no connection within 4 s", None)
        if self._replica.state is ReplicaState.LOADING:
            return self._refused(FailureReason.LOADING, "the server says that it is not ready yet", 503)
        return self._refused(FailureReason.REFUSED, "connection refused", None)

    def _refused(self, reason: FailureReason, detail: str, status: int | None) -> Refusal:
        return Refusal(reason, detail, status, self._wall())


def connect_to(fleet: Fleet, name: str) -> Connect:
    """For `TargetHost.add_target(connect=…)`: whatever the target's URL says, the replica answers."""

    def connect(
        base_url: str, settings: HttpSettings, *, monotonic: Callable[[], float], wall: Callable[[], float]
    ) -> _Client:
        return _Client(fleet, name, monotonic, wall)

    return connect


# --- What exporters beside a simulated fleet would export: the real stages, fed page by page in simulated time, no socket between.


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
        names = [name for name in self._names if self._discovers is None or self._discovers(self._fleet.replica(name))]
        targets = self._host.targets
        for name in targets.keys() - set(names):
            self._host.remove_target(name)
            self._store.remove_target(name)
        new = [name for name in names if name not in targets]
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
        if new or targets.keys() - set(names):
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
            fresh = reading.page.is_fresh(now, self._stale_seconds)
            serving.add_target_health(families, reading, fresh=fresh, now_monotonic_seconds=now)
            if fresh:
                serving.add_serving(families, reading)
            add_cost(families, reading, fresh=fresh)
        add_price_book(families, self._host.config.prices, self._host.config.attribution)
        self._expected_replicas(families)
        yield from self._chosen(families)
        # an exporter a node, each with its own view of its GPUs; what all of them say alike is said once
        written: set[tuple[str, tuple[tuple[str, str], ...]]] = set()
        for node, readings in (self._nodes.latest if self._nodes is not None else {}).items():
            families = _Wanted(self._wanted)
            add_gpus(families, replace(view, gpus=readings), node, oldest_monotonic_seconds=now)
            add_assignments(families, view, node)
            for name, labels, value in self._chosen(families):
                key = name, tuple(labels.items())
                if key not in written:
                    written.add(key)
                    yield name, labels, value

    def _chosen(self, families: Families) -> Iterator[Sample]:
        for family in families:
            lines = family.read_text().split("\n")[:-1]
            parts = [line.rpartition(" ") for line in lines]
            try:
                series = [self._series[start] for start, _, _ in parts]
            except KeyError:
                for (start, _, _), sample in zip(parts, family.samples, strict=True):
                    wanted = self._wanted is None or sample.name in self._wanted or family.name in self._wanted
                    self._series[start] = (sample.name, sample.labels) if wanted else None
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
        self, metric: Metric, labels: SharedLabels, own: tuple[str, ...], keys: SeriesKeys, values: Collection[float]
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
        for series in read_section(tuple(elements)):
            values = list(islice(following, len(series.keys)))
            if self._keeps(series.metric):
                super().add_elements(labels, (series.metric, series.own, series.keys), values)

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


# --- What Prometheus would have recorded in the week before a scenario: the fleet's own calm, day after day.
#
# A week of simulated requests would take minutes a scenario. So the fleet is run twice for a while, calm and overloaded, and what it
# really did is taken for what it did all week, the traffic by the scenario's own hours and weekdays.


MINUTE = 60.0
WEEK = 7 * DAY_SECONDS


class Spans(Struct, frozen=True):
    """For how many of its seconds the fleet is run, to see what it usually does."""

    calm: float = 2400.0  # under its own load
    overload: float = 1500.0  # under four times its highest
    settle: float = 600.0  # of each, before anything is counted


LONG, SHORT = Spans(), Spans(600.0, 400.0, 180.0)


class Usual(Struct, frozen=True):
    """What a fleet of one model does."""

    model_name: str  # as served
    gpu_name: str  # as on `target_gpus`
    hit_ratio: float | None  # of the prefix cache; None: nothing was looked up
    bandwidth_ratio: dict[str, float]  # share of the ceiling under the usual load, by source
    tokens_per_request: float  # prefill and decode
    work_waiting: float  # reference seconds per second of a replica under a queue
    best: dict[str, float]  # tokens per second of a replica under a queue, by phase
    replicas: int  # that there are
    wanted: int | None  # that are expected; None: nobody says


def usual(scenario: Scenario, spans: Spans = LONG) -> Usual:
    """Runs the fleet calm and overloaded, without any event."""
    quiet = replace(
        scenario, events=(), history=None, mixes=scenario.mixes[:1], rate=replace(scenario.rate, steps=(), bursts=())
    )
    calm, calm_watch = _run(quiet, spans.calm)
    full, full_watch = _run(replace(quiet, rate=Profile(quiet.rate.highest * 4)), spans.overload)
    truth = calm.truth(spans.settle, spans.calm)
    heavy = full.truth(spans.settle, spans.overload)
    engine = scenario.replicas[0].engine
    labels = {(name, of.get("phase", of.get("source", ""))): (value, of) for name, of, value in full_watch.samples()}
    weight = {
        phase: labels["llm_serving_phase_reference_seconds_per_token", phase][0] for phase in ("prefill", "decode")
    }
    seconds = heavy.end_seconds - heavy.begin_seconds
    each = {
        "prefill": heavy.counts.prefill_pass_tokens / seconds / len(scenario.replicas),
        "decode": heavy.decode_tokens / seconds / len(scenario.replicas),
    }
    bandwidth = {
        of["source"]: value
        for name, of, value in calm_watch.samples()
        if name == "llm_serving_bandwidth_ceiling_ratio" and of["source"] in ("gpm", "model")
    }
    return Usual(
        model_name=engine.served_name,
        gpu_name=labels["llm_serving_target_gpus", ""][1]["gpu_name"],
        hit_ratio=truth.counts.hit_tokens / truth.counts.queried_tokens if truth.counts.queried_tokens else None,
        bandwidth_ratio=bandwidth,
        tokens_per_request=(truth.prefill_tokens + truth.decode_tokens) / max(1, truth.counts.finished),
        work_waiting=add_up(each[phase] * weight[phase] for phase in each),
        best=each,
        replicas=len(scenario.replicas),
        wanted=scenario.expected_replicas,
    )


def _run(scenario: Scenario, seconds: float) -> tuple[Fleet, Watch]:
    fleet = scenario.fleet()
    watch = Watch(fleet, interval_seconds=15.0, slo=scenario.slo, gpus=True)
    at = seconds - 120.0
    fleet.advance(at)
    while at <= seconds:
        fleet.advance(at)
        watch.read()
        at += 15.0
    return fleet, watch


def recorded(
    scenario: Scenario,
    usual_week: Usual,
    speed: float,
    *,
    skipped_seconds: float = 0.0,
    usd_per_hour: float | None = None,
) -> str:
    """OpenMetrics text of what was recorded in the week before the scenario's beginning (or that many seconds later): a sample a simulated
    minute, `speed` times as close together, up to now by the real clock. `usd_per_hour`: what the fleet costs; None: nobody says."""
    now = time.time()
    lines = []
    rate = replace(scenario.rate, steps=(), bursts=())
    for ago in range(int(WEEK / MINUTE), 0, -1):
        at = -ago * MINUTE
        stamp = f"{now + at / speed:.3f}"
        lines += [
            f"{series} {value:.9g} {stamp}" for series, value in past_samples(usual_week, rate, skipped_seconds + at)
        ]
        if usd_per_hour is not None:
            lines.append(f"fleet:llm_serving_cost_usd:increase1h {usd_per_hour:.9g} {stamp}")
    return "\n".join([*sorted(lines, key=lambda line: line.rsplit(" ", 2)[0]), "# EOF", ""])


def past_samples(usual_week: Usual, rate: Profile, at: float) -> Iterator[tuple[str, float]]:
    """Series of the recording rules that baselines read, with their values, at a second of the scenario (before it: below 0)."""
    model = f'model_name="{usual_week.model_name}",role="unified"'
    kind = f'{model},gpu_name="{usual_week.gpu_name}"'
    yield f"model:llm_serving_targets:count{{{model}}}", usual_week.replicas
    if usual_week.wanted is not None:
        yield f"model:llm_serving_desired_replicas:max{{{model}}}", usual_week.wanted
    hour = add_up(rate.requests_per_second(at - 3600.0 * step / 6) for step in range(7)) / 7
    yield f"model:llm_serving_tokens:rate1h{{{model}}}", hour * usual_week.tokens_per_request
    yield f"model:llm_serving_reference_work_per_replica:rate5m_waiting{{{model}}}", usual_week.work_waiting
    for suffix in ("", "_waiting"):
        yield f"model_gpu:llm_serving_reference_work:max_rate5m{suffix}{{{kind}}}", usual_week.work_waiting
        for phase, best in usual_week.best.items():
            yield f'model_gpu:llm_serving_phase_tokens:max_rate5m{suffix}{{{kind},phase="{phase}"}}', best
    if usual_week.hit_ratio is not None:
        yield f"model:llm_serving_prefix_cache_hit:ratio_increase30m{{{model}}}", usual_week.hit_ratio
    for source, ratio in usual_week.bandwidth_ratio.items():
        yield f'model_gpu:llm_serving_bandwidth_ceiling:ratio{{{kind},source="{source}"}}', ratio
