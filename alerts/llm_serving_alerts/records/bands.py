"""How a model's replicas compare: figures by target, and the quantiles of them that boards draw in place of a line for each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from llm_serving_alerts.promql import ENGINE, MODEL, TARGET, Dialect, one_of, series
from llm_serving_alerts.rules import MINUTELY_SECONDS, Group, Record
from llm_serving_alerts.settings import Settings

# up to so many lines can be read one by one, and between so few targets no quantile lies
FEW_TARGETS = 3
# quantiles by the rank that they have as a label
EDGES = {"p10": 0.1, "p90": 0.9}
_BEST = "engine:llm_serving_achieved_bandwidth_bytes_per_second:best"


@dataclass(frozen=True, slots=True)
class Figure:
    """What is compared between the targets of a model."""

    # of the record of its quantiles, between level and operation
    name: str
    # the record by target
    by_target: str
    # for the reader of the reference
    about: str
    # labels that tell several of it on one target from one another
    labels: tuple[str, ...] = ()

    @property
    def median(self) -> str:
        """The record of its median across the targets of a model and role, however few."""
        return f"model:llm_serving_{self.name}:median_of_targets"

    @property
    def edges(self) -> str:
        """The record of its quantiles across them by `rank`, where there are more than few."""
        return f"model:llm_serving_{self.name}:quantile_of_targets"


TOKENS = Figure("phase_tokens", "target:llm_serving_phase_tokens:rate5m", "tokens/s by phase", ("phase",))
RUNNING = Figure("requests_running", "target:llm_serving_requests_running:sum", "requests in the batch")
WAITING = Figure("requests_waiting", "target:llm_serving_requests_waiting:sum", "requests that wait")
KV_USAGE = Figure(
    "kv_cache_usage_ratio",
    "target:llm_serving_kv_cache_usage_ratio:max",
    "share of the KV cache in use on the fullest engine",
)
CONTEXT = Figure(
    "context_tokens_mean", "target:llm_serving_context_tokens_mean:max", "tokens of a running request, on average"
)
BATCH = Figure("batch_size_mean", "target:llm_serving_batch_size_mean:max", "decoding sequences per step, on average")
LATENCY = Figure(
    "window_latency_seconds",
    "target:llm_serving_window_latency_seconds:max",
    "99th percentile of first tokens and of the time between tokens over the exporter's window",
    ("latency",),
)
BANDWIDTH = Figure(
    "bandwidth_ceiling_ratio",
    "target:llm_serving_bandwidth_ceiling_ratio:best",
    "memory traffic over the peak bandwidth, by the best source that is not suspect",
)
COMPUTE = Figure(
    "compute_ceiling_ratio", "target:llm_serving_compute_ceiling_ratio:max", "FLOPs over the dense tensor peak"
)
DECODE = Figure("decode_ceiling_ratio", "target:llm_serving_decode_ceiling_ratio:max", "decode steps over what is possible")  # fmt: skip
FIGURES = (TOKENS, RUNNING, WAITING, KV_USAGE, CONTEXT, BATCH, LATENCY, BANDWIDTH, COMPUTE, DECODE)


def bands(dialect: Dialect, settings: Settings) -> tuple[Group, ...]:
    """What is not by target yet, then the median and the edges of each figure. Once a minute: only people look at them."""
    every = MINUTELY_SECONDS / dialect.time_scale
    return (
        Group(
            "llm-serving.bands",
            (*_list_by_target(dialect), *(_take_median(dialect, figure) for figure in FIGURES)),
            every,
        ),
        Group(
            "llm-serving.bands.edges", tuple(rule for figure in FIGURES for rule in _take_edges(dialect, figure)), every
        ),
    )


def _list_by_target(dialect: Dialect) -> Iterator[Record]:
    by_target, by_engine = dialect.labels(*TARGET), dialect.labels(*ENGINE)
    for figure in (CONTEXT, BATCH, COMPUTE, DECODE):
        yield Record(figure.by_target, dialect.one(series(figure.name), *TARGET), figure.about)
    yield Record(
        KV_USAGE.by_target,
        f"max by ({by_target}) (engine:llm_serving_kv_cache_usage_ratio:max)",
        KV_USAGE.about,
    )
    drawn = series(LATENCY.name, one_of("latency", ("ttft", "itl")), rank="p99")
    yield Record(LATENCY.by_target, dialect.one(drawn, *TARGET, "latency"), LATENCY.about)
    peak = dialect.one(series("bandwidth_ceiling_bytes_per_second"), *ENGINE)
    yield Record(
        BANDWIDTH.by_target,
        f"max by ({by_target}) ({_BEST} / on ({by_engine}) group_left () ({peak} > 0))",
        BANDWIDTH.about,
    )


def _take_median(dialect: Dialect, figure: Figure) -> Record:
    by = dialect.labels(*MODEL, *figure.labels)
    about = f"median across a model's targets: {figure.about}"
    return Record(figure.median, f"quantile by ({by}) (0.5, {figure.by_target})", about)


def _take_edges(dialect: Dialect, figure: Figure) -> Iterator[Record]:
    by = dialect.labels(*MODEL, *figure.labels)
    several = f"count by ({by}) ({figure.by_target}) > {FEW_TARGETS}"
    about = f"quantiles across a model's targets where there are more than {FEW_TARGETS}: {figure.about}"
    for rank, quantile in EDGES.items():
        expression = f"quantile by ({by}) ({quantile:g}, {figure.by_target}) and on ({by}) {several}"
        yield Record(figure.edges, expression, about, {"rank": rank})
