"""How replicas and GPUs compare, and what else dashboards read: recorded, so that a day of 200 replicas is drawn within a second."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from llm_serving_alerts.promql import ENGINE, MODEL, TARGET, Dialect, clauses, one_of, series
from llm_serving_alerts.records.targets import DOWN
from llm_serving_alerts.records.traffic import RATE_SECONDS, common_edges
from llm_serving_alerts.rules import MINUTELY_SECONDS, Group, Record, write_records
from llm_serving_alerts.settings import Settings

# up to so many lines can be read one by one, and between so few targets no quantile lies
FEW_TARGETS = 3
# quantiles by the rank that they have as a label
EDGES = {"p10": 0.1, "p90": 0.9}
POWER_LIMIT = "fleet:llm_serving_gpu_power_limit_watts:max"
_BEST = "engine:llm_serving_achieved_bandwidth_bytes_per_second:best"


@dataclass(frozen=True, slots=True)
class Figure:
    """What is compared between the targets of a model and role, or the GPUs of a kind; boards draw its quantiles, not a line for each."""

    name: str  # between level and operation of its records
    operation: str  # of the record that has it of each of them
    about: str
    labels: tuple[str, ...] = ()  # that tell several of it on one target from one another
    of_gpus: bool = False

    @property
    def each(self) -> str:
        """The record that has it of each target or GPU."""
        return f"{'gpu' if self.of_gpus else 'target'}:llm_serving_{self.name}:{self.operation}"

    @property
    def median(self) -> str:
        """The record of its median across them, however few."""
        return self._name_across("median")

    @property
    def edges(self) -> str:
        """The record of its quantiles across them by `rank`, where there are more than few."""
        return self._name_across("quantile")

    def _name_across(self, what: str) -> str:
        level, many = ("fleet", "gpus") if self.of_gpus else ("model", "targets")
        return f"{level}:llm_serving_{self.name}:{what}_of_{many}"


TOKENS = Figure("phase_tokens", "rate5m", "tokens/s by phase", ("phase",))
RUNNING = Figure("requests_running", "sum", "requests in the batch")
WAITING = Figure("requests_waiting", "sum", "requests that wait")
KV_USAGE = Figure("kv_cache_usage_ratio", "max", "share of the KV cache in use on the fullest engine")
CONTEXT = Figure("context_tokens_mean", "max", "tokens of a running request, on average")
BATCH = Figure("batch_size_mean", "max", "decoding sequences per step, on average")
_TAILS = "99th percentile of first tokens and of the time between tokens over the exporter's window"
LATENCY = Figure("window_latency_seconds", "max", _TAILS, ("latency",))
_TRAFFIC = "memory traffic over the peak bandwidth, by the best source that is not suspect"
BANDWIDTH = Figure("bandwidth_ceiling_ratio", "best", _TRAFFIC)
COMPUTE = Figure("compute_ceiling_ratio", "max", "FLOPs over the dense tensor peak")
DECODE = Figure("decode_ceiling_ratio", "max", "decode steps over what is possible")
FIGURES = (TOKENS, RUNNING, WAITING, KV_USAGE, CONTEXT, BATCH, LATENCY, BANDWIDTH, COMPUTE, DECODE)

DRAM = Figure("gpu_dram_bandwidth_ratio", "max", "memory traffic over the theoretical peak", of_gpus=True)
TENSOR = Figure("gpu_tensor_activity_ratio", "max", "share of time in which tensor cores work", of_gpus=True)
SM = Figure("gpu_sm_activity_ratio", "max", "share of time in which multiprocessors work", of_gpus=True)
BUSY = Figure("gpu_busy_ratio", "max", "share of time in which any kernel runs", of_gpus=True)
POWER = Figure("gpu_power_watts", "max", "power draw", of_gpus=True)
HEAT = Figure("gpu_temperature_celsius", "max", "temperature of the hottest sensor", of_gpus=True)
CLOCK = Figure("gpu_sm_clock", "ratio", "clock of the multiprocessors over its maximum", of_gpus=True)
# recorded with the views
MEMORY = Figure("gpu_memory_used", "ratio", "share of the memory in use", of_gpus=True)
GPU_FIGURES = (DRAM, TENSOR, SM, BUSY, POWER, HEAT, CLOCK, MEMORY)


def bands(dialect: Dialect, settings: Settings) -> tuple[Group, ...]:
    """What is not by target or GPU yet, then the median and the edges of each figure. Once a minute: only people look at them."""
    limit = f"max by ({dialect.labels('gpu_name')}) ({dialect.by_gpu(series('gpu_power_limit_watts'))})"
    of_targets = (*_list_by_target(dialect), *_take_medians(dialect, FIGURES))
    highest = Record(POWER_LIMIT, limit, "highest power limit of a kind of GPU")
    return (
        Group("llm-serving.bands", of_targets, MINUTELY_SECONDS),
        Group("llm-serving.bands.edges", tuple(_take_edges(dialect, FIGURES)), MINUTELY_SECONDS),
        Group(
            "llm-serving.bands.gpus",
            (*_list_by_gpu(dialect), *_take_medians(dialect, GPU_FIGURES), highest),
            MINUTELY_SECONDS,
        ),
        Group("llm-serving.bands.gpu-edges", tuple(_take_edges(dialect, GPU_FIGURES)), MINUTELY_SECONDS),
    )


def _list_by_target(dialect: Dialect) -> Iterator[Record]:
    by_target, by_engine = dialect.labels(*TARGET), dialect.labels(*ENGINE)
    for figure in (CONTEXT, BATCH, COMPUTE, DECODE):
        yield Record(figure.each, dialect.one(series(figure.name), *TARGET), figure.about)
    drawn = series(LATENCY.name, one_of("latency", ("ttft", "itl")), rank="p99")
    peak = dialect.one(series("bandwidth_ceiling_bytes_per_second"), *ENGINE)
    yield from write_records(f"""
        ## {KV_USAGE.about}
        {KV_USAGE.each} = max by ({by_target}) (engine:llm_serving_kv_cache_usage_ratio:max)
        ## {LATENCY.about}
        {LATENCY.each} = {dialect.one(drawn, *TARGET, "latency")}
        ## {BANDWIDTH.about}
        {BANDWIDTH.each} = max by ({by_target}) ({_BEST} / on ({by_engine}) group_left () ({peak} > 0))
    """)


def _list_by_gpu(dialect: Dialect) -> Iterator[Record]:
    for figure in (DRAM, TENSOR, SM, BUSY, POWER, HEAT):
        yield Record(figure.each, dialect.by_gpu(series(figure.name)), figure.about)
    now, highest = (series(name, domain="sm") for name in ("gpu_clock_hertz", "gpu_clock_max_hertz"))
    yield Record(CLOCK.each, f"{dialect.bare(now, 'gpu')} / {dialect.by_gpu(highest)}", CLOCK.about)


def _group_by(dialect: Dialect, figure: Figure) -> tuple[str, str]:
    """The labels that it is compared within, and words for them."""
    if figure.of_gpus:
        return dialect.labels("gpu_name"), "the GPUs of a kind"
    return dialect.labels(*MODEL, *figure.labels), "a model's targets"


def _take_medians(dialect: Dialect, figures: Iterable[Figure]) -> Iterator[Record]:
    for figure in figures:
        by, across = _group_by(dialect, figure)
        about = f"median across {across}: {figure.about}"
        yield Record(figure.median, f"quantile by ({by}) (0.5, {figure.each})", about)


def _take_edges(dialect: Dialect, figures: Iterable[Figure]) -> Iterator[Record]:
    for figure in figures:
        by, across = _group_by(dialect, figure)
        several = f"count by ({by}) ({figure.each}) > {FEW_TARGETS}"
        about = f"quantiles across {across} where there are more than {FEW_TARGETS}: {figure.about}"
        for rank, quantile in EDGES.items():
            expression = f"quantile by ({by}) ({quantile:g}, {figure.each}) and on ({by}) {several}"
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
        MINUTELY_SECONDS,
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
    yield from write_records(f"""
        ## signals of all targets, available and absent
        model:llm_serving_signals:sum = sum by ({by_model}, state) ({dialect.bare(series("signals"), "target", "state")} + {whose})
    """)
    for name, about in (
        ("target_sample_age_seconds", "age of the last good page"),
        ("scrape_duration_seconds", "duration of the last scrape"),
        ("scrape_page_bytes", "size of a metrics page"),
        ("unmapped_families", "metric families that the exporter does not know"),
    ):
        figures = f"{dialect.bare(series(name), 'target')} + {whose}"
        yield from write_records(f"""
            ## median across a model's targets: {about}
            {MEDIAN.format(name=name)} = quantile by ({by_model}) (0.5, {figures})
        """)


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
