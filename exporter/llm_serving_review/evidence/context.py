"""What the review needs besides counters: prices, GPUs, nodes, commitments, replicas, ratios, alerts, and Prometheus' retention."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import pairwise
from math import fsum

from llm_serving_exporter.catalogue import cost as series
from llm_serving_exporter.catalogue.spec import NODE_LABELS
from llm_serving_exporter.clients.json_api import ApiError, Labels, Series
from llm_serving_exporter.commands.what_if.week import UnansweredError, read_load
from llm_serving_exporter.commands.what_if.week import Week as Load
from llm_serving_exporter.model.record import Struct
from llm_serving_exporter.model.target import NodePlace
from llm_serving_exporter.settings.kinds import parse_duration
from llm_serving_review.evidence import names
from llm_serving_review.evidence.fetch import MINUTE_SECONDS, Reader
from llm_serving_review.evidence.names import Quantity
from llm_serving_review.evidence.usage import (
    Book,
    Episode,
    Extra,
    Fleet,
    Gauge,
    Hours,
    Line,
    Owner,
    Usage,
    find_fleet,
)
from llm_serving_review.evidence.week import HOUR_SECONDS, Week
from llm_serving_review.tables.sums import sum_by_key

_RETENTION = re.compile(r"(?:^|\s)([0-9][0-9a-z]*[a-z])(?:\s|$)")
# evaluations of a rule may be a minute apart and late
_SAME_EPISODE_SECONDS = 2.5 * MINUTE_SECONDS
_WORKLOAD = ("workload", "workload_kind", "namespace")
_OF_WHOM = ("model_name", "role", "target", "node", "gpu", "slo", "phase", "resource")


def read_book(reader: Reader, week: Week) -> Book:
    """Prices and commitments as they were in force, hour by hour. What cannot be read is named in `reader.missing`."""
    asking = reader.asking

    def gauges(what: str, name: str, labels: tuple[str, ...], function: str = "max_over_time") -> tuple[Gauge, ...]:
        return _read_gauges(reader, what, week, lambda seconds: asking.over_hour(name, labels, seconds, function))

    reader.progress(f"{week.name}: prices, GPUs, nodes")
    info = gauges("rates", names.RATE_INFO, ("rate", "kind"))
    places = gauges("nodes of targets", names.NODE_INFO, ("target", "node", *NODE_LABELS))
    budgets = gauges("the budget", names.BUDGET, (), "last_over_time")
    return Book(
        prices=gauges("prices", names.PRICE, ("target", "gpu_name", "rate"), "last_over_time"),
        gpus=gauges("GPUs of targets", names.TARGET_GPUS, ("target", "gpu_name")),
        nodes=_forget_places(places),
        workloads=tuple(
            gauge
            for gauge in gauges("workloads", names.TARGET_INFO, ("target", *_WORKLOAD))
            if gauge.labels.get("workload")
        ),
        committed=gauges("commitments", names.COMMITTED, ("rate",)),
        rates={gauge.label("rate"): gauge.label("kind") for gauge in info},
        budget_usd_per_month=_sum_budgets(budgets),
        places=places,
        cluster_places={}
        if all(gauge.label(name) for gauge in places for name in NODE_LABELS)
        else _ask_cluster(reader, week),
    )


def _ask_cluster(reader: Reader, week: Week) -> dict[tuple[Extra, str], NodePlace]:
    """Where nodes stand by kube-state-metrics, by the identity labels that scrapes add and by node; {} where there is none."""
    found: dict[tuple[Extra, str], NodePlace] = {}
    for name, labels_of in names.KUBE_PLACES.items():
        if name != names.KUBE_INFO and not found:
            # there is no kube-state-metrics
            break
        what = f"nodes of the cluster ({name})"
        for gauge in _read_gauges(reader, what, week, partial(reader.asking.cluster_nodes, name)):
            fleet = tuple((label, gauge.labels.get(label, "")) for label in reader.asking.scraped_by)
            key = fleet, gauge.labels.get("node", "")
            said = {
                field: next((gauge.labels[one] for one in labels if gauge.labels.get(one)), "")
                for field, labels in labels_of.items()
            }
            found[key] = found.get(key, NodePlace()).fill_up(NodePlace(**said))
    return found


def _forget_places(places: Iterable[Gauge]) -> tuple[Gauge, ...]:
    """By target and node alone: a node whose place became known or changed is one node all the same."""
    found: dict[tuple[tuple[str, str], ...], Hours] = {}
    for gauge in places:
        key = tuple(sorted((name, value) for name, value in gauge.labels.items() if name not in NODE_LABELS))
        there = found.get(key, gauge.hours)
        found[key] = tuple(b if a is None else a for a, b in zip(there, gauge.hours, strict=True))
    return tuple(Gauge(dict(key), hours) for key, hours in found.items())


def read_fleet(reader: Reader, week: Week) -> Fleet:
    """Replicas and ratios by model. Without the rule pack there is nothing about replicas."""
    asking = reader.asking
    reader.progress(f"{week.name}: replicas, bandwidth, batch")

    def read(what: str, query: Callable[[float], str], **more: str) -> list[Gauge]:
        return [Gauge({**one.labels, **more}, one.hours) for one in _read_gauges(reader, what, week, query)]

    def read_required(reserve: str) -> list[Gauge]:
        matcher = f'reserve="{reserve}"'
        return read(
            "required replicas", lambda seconds: asking.replicas(names.REQUIRED, matcher, "max_over_time", seconds), reserve=reserve
        )  # fmt: skip

    present = read("replicas", lambda seconds: asking.replicas(names.PRESENT, "", "avg_over_time", seconds))
    required = [gauge for reserve in names.RESERVES for gauge in read_required(reserve)]
    bandwidth = read("bandwidth", lambda seconds: asking.mean_by_model(names.BANDWIDTH, ("source",), seconds))
    batch = read("batch utilisation", lambda seconds: asking.mean_by_model(names.BATCH, (), seconds))
    verdicts = [
        gauge
        for said, value in names.VERDICTS.items()
        for gauge in read("verdicts", partial(asking.verdicts, value), verdict=said)
    ]
    return Fleet(tuple(present), tuple(required), tuple(bandwidth), tuple(batch), tuple(verdicts))


def read_methods(reader: Reader, week: Week) -> tuple[tuple[str, str], ...]:
    """How busy time was split and from what, each pair once."""
    found = _read_gauges(
        reader,
        "the method",
        week,
        lambda seconds: reader.asking.over_hour(names.ATTRIBUTION, ("method", "inputs"), seconds),
    )
    return tuple(sorted({(gauge.labels.get("method", ""), gauge.labels.get("inputs", "")) for gauge in found}))


def read_episodes(reader: Reader, week: Week) -> tuple[Episode, ...] | None:
    """Times in which alerts of the rule pack fired; None where that cannot be read."""
    reader.progress(f"{week.name}: alerts")
    series = reader.attempt(
        f"alerts of {week.name}", lambda: list(reader.read_by_minute(reader.asking.alerts(), week.begin, week.end))
    )
    return None if series is None else tuple(join_minutes(series, reader.asking.identity))


def read_watched_hours(reader: Reader, week: Week) -> float | None:
    """How long rules were evaluated, by the alert that always fires; None where that cannot be read."""

    def minutes() -> float:
        found = reader.read_by_minute(reader.asking.watchdog(), week.begin + MINUTE_SECONDS, week.end)
        return float(sum(len(points) for _, points in found))

    read = reader.attempt(f"whether rules were evaluated in {week.name}", minutes)
    return None if read is None else read * MINUTE_SECONDS / HOUR_SECONDS


def join_minutes(series: Iterable[Series], identity: Iterable[str]) -> list[Episode]:
    """Minutes in which alerts fired -> episodes, ordered by their beginning. Pieces of the same series are joined."""
    minutes: dict[tuple[tuple[str, str], ...], list[float]] = {}
    for labels, points in series:
        minutes.setdefault(tuple(sorted(labels.items())), []).extend(at for at, _ in points)
    found = []
    for key, unordered in minutes.items():
        moments = sorted(unordered)
        breaks = [at for at, (a, b) in enumerate(pairwise(moments), 1) if b - a > _SAME_EPISODE_SECONDS]
        for first, end in pairwise((0, *breaks, len(moments))):
            if first < end:
                found.append(_make_episode(dict(key), moments[first], moments[end - 1], identity))
    return sorted(found, key=lambda episode: (episode.begin, episode.alert, episode.what))


def _make_episode(labels: Labels, begin: float, last: float, identity: Iterable[str]) -> Episode:
    whom = [labels[name] for name in (*identity, *_OF_WHOM) if labels.get(name)]
    return Episode(
        labels.get("alertname", ""), labels.get("severity", ""), " / ".join(whom), begin, last + MINUTE_SECONDS
    )


def read_retention_seconds(reader: Reader) -> float | None:
    """How long Prometheus says it keeps samples; None where it does not say, or limits them by size alone."""
    try:
        said = str(reader.prometheus.runtime_info().get("storageRetention", ""))
    except ApiError as error:
        if error.reason == "unreachable":
            raise
        return None
    match = _RETENTION.search(said)
    if match is None:
        return None
    try:
        return parse_duration(match[1])
    except ValueError:
        return None


def _read_gauges(reader: Reader, what: str, week: Week, query: Callable[[float], str]) -> tuple[Gauge, ...]:
    found = reader.attempt(f"{what} of {week.name}", reader.read_hourly, query, week)
    return tuple(Gauge(labels, hours) for labels, hours in found or ())


def _sum_budgets(found: Iterable[Gauge]) -> float | None:
    """The last budget in force, summed over fleets: each has its own."""
    last = []
    for gauge in found:
        values = [value for value in gauge.hours if value is not None]
        if values:
            last.append(values[-1])
    return fsum(last) if last else None


# --- What gateways counted by tenant, by hour: a part of the evidence of its own, because only some fleets have it.


_OF = ("tenant", "kind")
# tokens first: where nobody has any of them, the others are not asked for
QUANTITIES = {
    "decode": Quantity("tenants' generated tokens", series.DECODE_TOKENS.name, _OF, ""),
    "prompt": Quantity("tenants' prompt tokens", series.PROMPT_TOKENS.name, _OF, ""),
    "cached": Quantity("tenants' cached tokens", series.CACHED_TOKENS.name, _OF, ""),
    "requests": Quantity("tenants' requests", series.REQUESTS.name, _OF, ""),
}
# prompt and generated
_KINDS_OF_TOKENS = 2


class TenantUsage(Struct, frozen=True):
    """Growth of gateways' counters by hour of a week; labels tenant, kind. The owners' models are named as engines serve them."""

    decode: tuple[Line, ...] = ()  # generated tokens
    prompt: tuple[Line, ...] = ()  # prompt tokens as sent
    cached: tuple[Line, ...] = ()  # of these, what the engine's answers said to have been cached; () where they do not
    requests: tuple[Line, ...] = ()

    @property
    def empty(self) -> bool:
        """Whether no gateway counted any token."""
        return not any(line.total for line in (*self.prompt, *self.decode))


def read_tenants(reader: Reader, week: Week) -> TenantUsage:
    """The counters of a week; pairs of exporters count once. What cannot be read is named in `reader.missing`."""
    found: dict[str, tuple[Line, ...]] = {}
    for name, quantity in QUANTITIES.items():
        lines = reader.attempt(f"{quantity.name} of {week.name}", reader.read_lines, quantity, week)
        found[name] = lines or ()
        # a gateway of embeddings, or one that counts prompts only, has no generated ones
        if len(found) == _KINDS_OF_TOKENS and not any(found.values()):
            return TenantUsage()
    return TenantUsage(**found)


# --- How models were asked and how their engines stepped, as `ceiling --from-prometheus` reads it: of those that cost most.


# each is about thirty queries, half of them over the week in steps of five minutes
_MOST_LOADS = 10
# below that share of the spend nobody acts
LEAST_SHARE = 0.005
# values of the identity labels by name, model and role
ModelKey = tuple[Extra, str, str]


class ModelLoad(Struct, frozen=True):
    """A model and role of a fleet, and its load."""

    key: ModelKey
    load: Load


def find_model_key(owner: Owner, identity: Sequence[str]) -> ModelKey:
    """Which model of which fleet an owner belongs to."""
    return tuple(zip(identity, owner.fleet(identity), strict=True)), owner.model_name, owner.role


def find_gauge_key(gauge: Gauge, identity: Sequence[str]) -> ModelKey:
    """The same of a gauge."""
    return (
        tuple(zip(identity, find_fleet(gauge.labels, identity), strict=True)),
        gauge.label("model_name"),
        gauge.label("role"),
    )


def read_loads(reader: Reader, week: Week, usage: Usage, fleet: Fleet) -> tuple[ModelLoad, ...]:
    """Of the models that cost most; none of a model without records of the rule pack, or without a load. What cannot be read is named in
    `reader.missing`."""
    identity = reader.asking.identity
    spend = sum_by_key((find_model_key(line.owner, identity), line.total) for line in usage.cost)
    least = LEAST_SHARE * fsum(spend.values())
    dearest = sorted(spend, key=lambda key: (-spend[key], key))
    recorded = {find_gauge_key(gauge, identity) for gauge in fleet.present}
    found = []
    for key in [key for key in dearest if spend[key] > least and key in recorded][:_MOST_LOADS]:
        reader.progress(f"{week.name}: load of {key[1]}")
        load = reader.attempt(f"the load of {key[1]}", _read_load, reader, key, week)
        if load is not None:
            found.append(ModelLoad(key, load))
    return tuple(found)


def _read_load(reader: Reader, key: ModelKey, week: Week) -> Load | None:
    extra, model_name, role = key
    try:
        return read_load(
            reader.prometheus, {**dict(extra), "model_name": model_name, "role": role}, week.begin, week.end
        )
    except UnansweredError:
        return None
