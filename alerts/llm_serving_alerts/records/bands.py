"""How replicas and GPUs compare, and what else dashboards read: recorded, so that a day of 200 replicas is drawn within a second."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from llm_serving_alerts.promql import ENGINE, MODEL, TARGET, Dialect, clauses, one_of, series
from llm_serving_alerts.records.targets import DOWN
from llm_serving_alerts.records.traffic import RATE_SECONDS, common_edges
from llm_serving_alerts.rules import MINUTELY_SECONDS, Group, Record, write_records
from llm_serving_alerts.settings import Settings

# --- How a model's replicas compare: figures by target, and the quantiles of them that boards draw in place of a line for each.

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
    drawn = series(LATENCY.name, one_of("latency", ("ttft", "itl")), rank="p99")
    peak = dialect.one(series("bandwidth_ceiling_bytes_per_second"), *ENGINE)
    yield from write_records(f"""
        ## {KV_USAGE.about}
        {KV_USAGE.by_target} = max by ({by_target}) (engine:llm_serving_kv_cache_usage_ratio:max)
        ## {LATENCY.about}
        {LATENCY.by_target} = {dialect.one(drawn, *TARGET, "latency")}
        ## {BANDWIDTH.about}
        {BANDWIDTH.by_target} = max by ({by_target}) ({_BEST} / on ({by_engine}) group_left () ({peak} > 0))
    """)


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


# --- GPUs that hold back, minute by minute.

# not sw_power_cap: a busy card at its power limit is what was paid for
SLOWDOWNS = ("hw_slowdown", "hw_thermal_slowdown", "sw_thermal_slowdown", "hw_power_brake_slowdown")
SLOWED = "gpu:llm_serving_slowed_while_busy:bool"


def gpu(dialect: Dialect, settings: Settings) -> Group:
    """What an alert counts the minutes of."""
    held = dialect.by_gpu(series("gpu_slowdown", one_of("reason", SLOWDOWNS)))
    busy = dialect.bare(series("gpu_busy_ratio"), "gpu")
    # 0, not nothing, at other moments: a ruler that marks no ends would go on saying 1
    slowed = f"{held} * on ({dialect.key('gpu')}) group_left () ({busy} > bool 0)"
    return Group(
        "llm-serving.gpu",
        (Record(SLOWED, slowed, "1 for a busy GPU whose clocks are held down by heat, hardware or the power brake"),),
    )


# --- How GPUs of a kind compare: figures by GPU, and the quantiles of them that the board of GPUs draws in place of a line for each.


@dataclass(frozen=True, slots=True)
class GpuFigure:
    """What is compared between the GPUs of a kind."""

    # of the records, between level and operation
    name: str
    # the record by GPU
    by_gpu: str
    # for the reader of the reference
    about: str

    @property
    def median(self) -> str:
        """The record of its median across the GPUs of a kind, however few."""
        return f"fleet:llm_serving_{self.name}:median_of_gpus"

    @property
    def edges(self) -> str:
        """The record of its quantiles across them by `rank`, where there are more than few."""
        return f"fleet:llm_serving_{self.name}:quantile_of_gpus"


def _name_figure(name: str, about: str) -> GpuFigure:
    return GpuFigure(name, f"gpu:llm_serving_{name}:max", about)


DRAM = _name_figure("gpu_dram_bandwidth_ratio", "memory traffic over the theoretical peak")
TENSOR = _name_figure("gpu_tensor_activity_ratio", "share of time in which tensor cores work")
SM = _name_figure("gpu_sm_activity_ratio", "share of time in which multiprocessors work")
BUSY = _name_figure("gpu_busy_ratio", "share of time in which any kernel runs")
POWER = _name_figure("gpu_power_watts", "power draw")
HEAT = _name_figure("gpu_temperature_celsius", "temperature of the hottest sensor")
CLOCK = GpuFigure("gpu_sm_clock", "gpu:llm_serving_gpu_sm_clock:ratio", "clock of the multiprocessors over its maximum")
# recorded with the views
MEMORY = GpuFigure("gpu_memory_used", "gpu:llm_serving_gpu_memory_used:ratio", "share of the memory in use")
POWER_LIMIT = "fleet:llm_serving_gpu_power_limit_watts:max"
GPU_FIGURES = (DRAM, TENSOR, SM, BUSY, POWER, HEAT, CLOCK, MEMORY)


def gpu_bands(dialect: Dialect, settings: Settings) -> tuple[Group, ...]:
    """What is not by GPU yet, then the median and the edges of each figure. Once a minute: only people look at them."""
    every = MINUTELY_SECONDS / dialect.time_scale
    by = dialect.labels("gpu_name")
    medians = tuple(
        Record(
            figure.median,
            f"quantile by ({by}) (0.5, {figure.by_gpu})",
            f"median across the GPUs of a kind: {figure.about}",
        )
        for figure in GPU_FIGURES
    )
    limit = f"max by ({by}) ({dialect.by_gpu(series('gpu_power_limit_watts'))})"
    edges = tuple(rule for figure in GPU_FIGURES for rule in _take_gpu_edges(by, figure))
    return (
        Group(
            "llm-serving.bands.gpus",
            (*_list_by_gpu(dialect), *medians, Record(POWER_LIMIT, limit, "highest power limit of a kind of GPU")),
            every,
        ),
        Group("llm-serving.bands.gpu-edges", edges, every),
    )


def _list_by_gpu(dialect: Dialect) -> Iterator[Record]:
    for figure in (DRAM, TENSOR, SM, BUSY, POWER, HEAT):
        yield Record(figure.by_gpu, dialect.by_gpu(series(figure.name)), figure.about)
    now, highest = (series(name, domain="sm") for name in ("gpu_clock_hertz", "gpu_clock_max_hertz"))
    yield Record(CLOCK.by_gpu, f"{dialect.bare(now, 'gpu')} / {dialect.by_gpu(highest)}", CLOCK.about)


def _take_gpu_edges(by: str, figure: GpuFigure) -> Iterator[Record]:
    several = f"count by ({by}) ({figure.by_gpu}) > {FEW_TARGETS}"
    about = f"quantiles across the GPUs of a kind where there are more than {FEW_TARGETS}: {figure.about}"
    for rank, quantile in EDGES.items():
        expression = f"quantile by ({by}) ({quantile:g}, {figure.by_gpu}) and on ({by}) {several}"
        yield Record(figure.edges, expression, about, {"rank": rank})


# --- What only dashboards read: by replica, engine or GPU, recorded so that a day of two hundred replicas is drawn within a second.

_PROMPTS = "request_prompt_tokens"
# of a figure that each target has
MEDIAN = "model:llm_serving_{name}:median_of_targets"


def views(dialect: Dialect, settings: Settings) -> Group:
    """One value where there are several exporters. Of states, reasons and failures only those that hold: most do not."""
    steps = dialect.one(series("step_bytes_mean"), *ENGINE, "part")
    return Group(
        "llm-serving.views",
        (
            *write_records(f"""
                ## 1 for the state that a target is in
                target:llm_serving_state:max = {dialect.one(series("target_state"), "target", "state")} == 1
                ## failed attempts of 5m by stage, where there were any, with the reason of the last one at that stage
                target:llm_serving_scrape_failures:increase5m = {_count_failures(dialect)}
                ## 1 for a reason that holds a GPU's clocks down
                gpu:llm_serving_gpu_slowdown:max = {dialect.by_gpu(series("gpu_slowdown") + " == 1", "reason")}
                ## share of a GPU's memory in use
                gpu:llm_serving_gpu_memory_used:ratio =
                  {dialect.bare(series("gpu_memory_used_bytes"), "gpu")} / {dialect.by_gpu(series("gpu_memory_total_bytes"))}
            """),
            *(
                Record(f"engine:llm_serving_{name}:max", dialect.one(series(name), *ENGINE, "source"), about)
                for name, about in (
                    ("bandwidth_ceiling_ratio", "share of the peak bandwidth in use, by source"),
                    ("achieved_bandwidth_bytes_per_second", "memory traffic, by source"),
                )
            ),
            *write_records(f"""
                ## bytes that a mean step moves, mean of the engines
                model:llm_serving_step_bytes_mean:avg = avg by ({dialect.labels(*MODEL)}, part) ({steps})
                ## GPU memory of all engines by what takes it up, an estimate
                model:llm_serving_gpu_memory_bytes_estimate:sum =
                  sum by ({dialect.labels(*MODEL)}, part) ({dialect.one(series("gpu_memory_bytes_estimate"), *ENGINE, "part")})
            """),
            *_list_by_model(dialect),
            *write_records(f"""
                ## finished requests/s up to each edge of their prompts' lengths, at the edges that all engines have
                model:llm_serving_{_PROMPTS}_bucket:rate5m = {common_edges(dialect, _PROMPTS)}
            """),
        ),
        MINUTELY_SECONDS / dialect.time_scale,
    )


def _list_by_model(dialect: Dialect) -> Iterator[Record]:
    """Of each engine's or target's figure one of its model: hundreds of them at each point of a graph take a second."""
    by_model = dialect.labels(*MODEL)
    for name, function, labels, about in (
        ("arithmetic_intensity_flops_per_byte", "avg", (), "FLOPs per byte of memory traffic, mean of the engines"),
        ("ridge_flops_per_byte", "avg", (), "the intensity above which compute is the limit, mean of the engines"),
        ("batch_ridge_size", "avg", ("part",), "batch from which decode is compute-bound, mean of the engines"),
        ("decode_ceiling_tokens_per_second", "sum", (), "decode tokens/s that are possible on all engines"),
        ("phase_busy_ratio", "avg", ("phase",), "share of time that a phase needs at its ceiling, mean of the engines"),
        ("phase_reference_seconds_per_token", "avg", ("phase",), "time per token at the ceilings, mean of the engines"),
    ):
        by, one = ", ".join((by_model, *labels)), dialect.one(series(name), *ENGINE, *labels)
        yield Record(f"model:llm_serving_{name}:{function}", f"{function} by ({by}) ({one})", about)
    whose = f"on ({dialect.key('target')}) group_left ({', '.join(dict.fromkeys((*dialect.own, *MODEL)))}) {DOWN} * 0"
    yield Record(
        "model:llm_serving_signals:sum",
        f"sum by ({by_model}, state) ({dialect.bare(series('signals'), 'target', 'state')} + {whose})",
        "signals of all targets, available and absent",
    )
    for name, about in (
        ("target_sample_age_seconds", "age of the last good page"),
        ("scrape_duration_seconds", "duration of the last scrape"),
        ("scrape_page_bytes", "size of a metrics page"),
        ("unmapped_families", "metric families that the exporter does not know"),
    ):
        figures = f"{dialect.bare(series(name), 'target')} + {whose}"
        yield Record(
            MEDIAN.format(name=name),
            f"quantile by ({by_model}) (0.5, {figures})",
            f"median across a model's targets: {about}",
        )


def _count_failures(dialect: Dialect) -> str:
    """An exporter of an older version counts by reason, too, and says no last failure: of that there is no reason here."""
    of_stage = dialect.key("target", "stage")
    grown = f"sum without (reason) ({dialect.increase(series('scrape_failures_total'), RATE_SECONDS)})"
    failed = f"{dialect.one(grown, 'target', 'stage')} > 0"
    # of several exporters the one that failed last
    last = f"topk by ({of_stage}) (1, {dialect.bare(series('target_last_failure_timestamp_seconds'), 'target', 'stage', 'reason')})"
    return clauses(
        (
            "with the reason of the last failure at that stage",
            f"({failed}) + on ({of_stage}) group_left (reason) {last} * 0",
        ),
        ("or without, where the last failure was at another stage", f"or on ({of_stage}) {failed}"),
    )
