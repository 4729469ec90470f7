"""What is normal for a model, and what a replica can do: recorded, so that alerts read short ranges."""

from __future__ import annotations

from llm_serving_alerts.promql import DAY, ENGINE, HOUR, MODEL, MODEL_GPU, TARGET, WEEK, Dialect, series
from llm_serving_alerts.records.outliers import FULL, OUTLIER
from llm_serving_alerts.records.targets import SETTLED, of_kind
from llm_serving_alerts.rules import MINUTELY_SECONDS, Group, Record, write_records
from llm_serving_alerts.settings import Settings

# --- What is normal for a model: recorded, so that alerts read short ranges.

# a week of a recorded series is some 20,000 samples: read every second minute, and looked at every fifth where a step is needed
INTERVAL_SECONDS, STEP_SECONDS = 120.0, 300.0
# an hour's mean, taken half an hour late, is centred on the moment
HALF_HOUR, QUARTER = HOUR / 2, HOUR / 4

WORK = "model:llm_serving_reference_work_per_replica:rate5m"
WORK_QUEUED = "model:llm_serving_reference_work_per_queued_replica:rate5m"
WORK_WAITING = "model:llm_serving_reference_work_per_replica:rate5m_waiting"
# a p90 of fewer moments is one moment
LEAST_MOMENTS = 20
_ACHIEVED = "model_gpu:llm_serving_achieved_bandwidth_bytes_per_second:sum"
_PEAK = "model_gpu:llm_serving_bandwidth_ceiling_bytes_per_second:sum"
BANDWIDTH = "model_gpu:llm_serving_bandwidth_ceiling:ratio"
HIT_RATE = "model:llm_serving_prefix_cache_hit:ratio_increase30m"
# measured before worked out; the engine's own estimate feeds no alert (design: roofline)
SOURCES = ("gpm", "dcgm", "model")


def work(dialect: Dialect, settings: Settings) -> Group:
    """Mixed throughput in one number: seconds that the tokens of each phase take at the ceilings at a fixed batch, done per second."""
    by_engine, by_target, by_model = dialect.labels(*ENGINE, "phase"), dialect.labels(*TARGET), dialect.labels(*MODEL)
    weights = dialect.one(series("phase_reference_seconds_per_token"), *ENGINE, "phase")
    waiting = dialect.apply_over_time("min_over_time", "model:llm_serving_requests_waiting:sum", 300)
    return Group(
        "llm-serving.work",
        write_records(f"""
            ## reference seconds of work that a replica does per second
            target:llm_serving_reference_work:rate5m = sum by ({by_target}) (engine:llm_serving_phase_tokens:rate5m
              * on ({by_engine}) {weights})
            ## the same per settled replica
            {WORK} = sum by ({by_model}) (target:llm_serving_reference_work:rate5m
              and on ({by_target}) target:llm_serving_settled:max)
              / count by ({by_model}) (target:llm_serving_settled:max and on ({by_target}) target:llm_serving_reference_work:rate5m)
            ## the same per settled replica that has had a queue of its own for 5m
            {WORK_QUEUED} = avg by ({by_model}) (target:llm_serving_reference_work:rate5m
              and on ({by_target}) target:llm_serving_settled:max
              and on ({by_target}) {dialect.apply_over_time("min_over_time", "target:llm_serving_requests_waiting:sum", 300)} > 0)
            ## the same at moments when requests had waited for 5m
            {WORK_WAITING} = {WORK} and on ({by_model}) {waiting} > 0
        """),
    )


def bandwidth(dialect: Dialect, settings: Settings) -> Group:
    """Memory bandwidth by the best source that is not suspect, per model, role and kind of GPU."""
    by_engine, of_target = dialect.labels(*ENGINE), dialect.key("target")
    by_kind = dialect.labels(*MODEL_GPU, "source")
    sources = []
    for source in SOURCES:
        achieved = dialect.one(series("achieved_bandwidth_bytes_per_second", f'source="{source}"'), *ENGINE, "source")
        suspect = series("signal_suspect", f'signal="bandwidth_ceiling_ratio_{source}"')
        sources.append(f"({achieved} unless on ({of_target}) {suspect})")
    best = "engine:llm_serving_achieved_bandwidth_bytes_per_second:best"
    ceiling = dialect.one(series("bandwidth_ceiling_bytes_per_second"), *ENGINE)
    named = of_kind(dialect, best)
    named_ceilings = of_kind(dialect, f"({best} * 0 + on ({by_engine}) group_left () {ceiling})")
    return Group(
        "llm-serving.bandwidth",
        (
            Record(
                "model:llm_serving_limiter:count",
                f"sum by ({dialect.labels(*MODEL)}, state) ({dialect.one(series('limiter'), *TARGET, 'state')})",
                "replicas that this state limits",
            ),
            Record(best, f" or on ({by_engine}) ".join(sources), "memory traffic of an engine by the best source"),
            Record(_ACHIEVED, f"sum by ({by_kind}) ({named})", "the same by kind of GPU"),
            Record(_PEAK, f"sum by ({by_kind}) ({named_ceilings})", "their peak"),
            Record(BANDWIDTH, f"{_ACHIEVED} / ({_PEAK} > 0)", "share of the peak bandwidth in use"),
        ),
        MINUTELY_SECONDS,
    )


def tokens(dialect: Dialect, settings: Settings) -> Group:
    """Traffic by the hour, for a comparison with the same hour of other days."""
    by_model = dialect.labels(*MODEL)
    hourly = "model:llm_serving_tokens:rate1h"
    quarter, lowest = "model:llm_serving_tokens:avg15m", "model:llm_serving_tokens:min1h_avg15m"
    lows = _days(dialect, lowest, HALF_HOUR)
    least = settings.alerts["TrafficVanished"]["days"]
    return Group(
        "llm-serving.tokens",
        write_records(f"""
            ## tokens/s of both phases
            model:llm_serving_tokens:rate5m = sum by ({by_model}) (model:llm_serving_phase_tokens:rate5m)
            ## its mean over an hour
            {hourly} = {dialect.apply_over_time("avg_over_time", "model:llm_serving_tokens:rate5m", HOUR)}
            ## median of the same hour on the last seven days
            model:llm_serving_tokens:same_hour_median7d = {same_hour(dialect, hourly, HALF_HOUR, least)}
            ## its mean over a quarter of an hour
            {quarter} = {dialect.apply_over_time("avg_over_time", "model:llm_serving_tokens:rate5m", QUARTER)}
            ## the lowest quarter of an hour within an hour
            {lowest} = {dialect.apply_over_time("min_over_time", quarter, HOUR)}
            ## the lowest quarter of the same hour, median of the last seven days: 0 where traffic comes in bursts
            model:llm_serving_tokens:same_hour_lowest_median7d = quantile by ({by_model}) (0.5, {lows})
            ## the same hour a week ago
            model:llm_serving_tokens:same_hour_week_ago = {dialect.offset(hourly, WEEK - HALF_HOUR)}
        """),
    )


def same_hour(dialect: Dialect, hourly: str, later_seconds: float, least_days: float) -> str:
    """The median of a model's record at this time of the last seven days, or so much later, where it was there on so many of them."""
    by_model, days = dialect.labels(*MODEL), _days(dialect, hourly, later_seconds)
    return (
        f"quantile by ({by_model}) (0.5, {days}) and on ({by_model}) count by ({by_model}) ({days}) >= {least_days:g}"
    )


def _days(dialect: Dialect, record: str, later_seconds: float) -> str:
    return " or ".join(
        f'label_replace({dialect.offset(record, day * DAY - later_seconds)}, "day", "{day}", "", "")'
        for day in range(1, 8)
    )


def baselines(dialect: Dialect, settings: Settings) -> Group:
    """Quantiles over seven days, once there is history enough (or since the moment that the settings name)."""
    by_model = dialect.labels(*MODEL)
    moments = baseline(dialect, settings, "count_over_time", WORK_WAITING)
    return Group(
        "llm-serving.baselines",
        write_records(f"""
            ## work per replica at its limit
            model:llm_serving_reference_work_per_replica:p90_7d = {baseline(dialect, settings, "quantile_over_time", WORK_WAITING, 0.9)}
              and on ({by_model}) ({moments}) >= {LEAST_MOMENTS}
            ## usual share of the peak bandwidth, by source
            model_gpu:llm_serving_bandwidth_ceiling:median7d = {baseline(dialect, settings, "quantile_over_time", BANDWIDTH, 0.5)}
            ## usual prefix hit rate
            model:llm_serving_prefix_cache_hit:median7d = {baseline(dialect, settings, "quantile_over_time", HIT_RATE, 0.5)}
        """),
        INTERVAL_SECONDS,
    )


def baseline(
    dialect: Dialect,
    settings: Settings,
    function: str,
    record: str,
    quantile: float | None = None,
    seen: str = "model:llm_serving_targets:count",
) -> str:
    """A function over the last week of a recorded series, for models of which `seen` was there long enough ago; over what came since the
    moment that the settings name, where they do."""
    first = "" if quantile is None else f"{quantile:g}, "
    since = settings.baseline.since_unix_seconds
    if since is not None:
        kept = f"({record} and on () vector(time()) >= {since:.0f})"
        return f"{function}({first}{kept}[{dialect.duration(WEEK)}:{dialect.duration(STEP_SECONDS)}])"
    there = dialect.apply_over_time("present_over_time", seen, WEEK - settings.baseline.history_seconds)
    long_ago = dialect.offset(there[:-1], settings.baseline.history_seconds) + ")"
    return f"{function}({first}{record}[{dialect.duration(WEEK)}]) and on ({dialect.labels(*MODEL)}) {long_ago}"


# --- What a replica can do: the best that its kind was seen to do under a queue, else what its roofline promises.

BEST_TOKENS = "model_gpu:llm_serving_replica_tokens_per_second:best"
BEST_WORK = "model_gpu:llm_serving_replica_work:best"
BASIS = "model_gpu:llm_serving_replica_capacity:basis"
# replicas that do one phase only: what they do under a queue is that phase's limit
SPLIT = 'role!="unified"'
CEILINGS = "target:llm_serving_phase_ceiling_tokens_per_second:sum"
_TOKENS = "model_gpu:llm_serving_phase_tokens:max_rate5m"
_WORK = "model_gpu:llm_serving_reference_work:max_rate5m"


def rates(dialect: Dialect, settings: Settings) -> Group:
    """Rates of now by kind of GPU: pods come and go, so that nothing is kept by target."""
    by_target = dialect.labels(*TARGET)
    # a replica that has just come has waited for as long as it has been seen, which is no 5m
    waiting = "target:llm_serving_requests_waiting:sum"
    waited = f"{dialect.apply_over_time('min_over_time', waiting, 300)} > 0 and on ({by_target}) {dialect.offset(waiting, 300)} > 0"
    # in split pools requests also wait for KV that is on its way: there a queue is a limit only where memory or the batch is full
    fullest = f"max by ({by_target}) (engine:llm_serving_kv_cache_usage_ratio:avg5m)"
    of_limit = "target:llm_serving_requests_running:sum / target:llm_serving_batch_limit_requests:sum"
    full = f"({fullest} > {FULL:g} or on ({by_target}) {of_limit} > {FULL:g})"
    # a replica with cold caches, or one that still compiles, shows no limit either
    limited = f'({SETTLED}{{role="unified"}} or on ({by_target}) {SETTLED} and on ({by_target}) {full})'
    rules = []
    for record, rate, extra, about in (
        (_TOKENS, "target:llm_serving_phase_tokens:rate5m", ("phase",), "tokens/s by phase"),
        (_WORK, "target:llm_serving_reference_work:rate5m", (), "reference seconds of work per second"),
    ):
        best = f"max by ({dialect.labels(*MODEL_GPU, *extra)})"
        # nor does one that is unlike its peers: what a sick replica does is not what its kind can do
        under_queue = (
            f"({rate} and on ({by_target}) {waited} and on ({by_target}) {limited} unless on ({by_target}) {OUTLIER})"
        )
        rules += [
            Record(record, f"{best} ({of_kind(dialect, rate)})", f"{about} of the best replica of a kind"),
            Record(
                f"{record}_waiting",
                f"{best} ({of_kind(dialect, under_queue)})",
                f"{about} of the best replica of a kind where requests had waited for 5m",
            ),
        ]
    # while a replica idles it shows no context: its last one holds
    ceiling = dialect.apply_over_time("last_over_time", series("phase_ceiling_tokens_per_second"), HOUR)
    one = dialect.one(ceiling, *ENGINE, "phase")
    about = "what a replica could do of one phase alone, at its ceiling"
    rules.append(Record(CEILINGS, f"sum by ({dialect.labels(*TARGET, 'phase')}) ({one})", about))
    return Group("llm-serving.rates", tuple(rules), MINUTELY_SECONDS)


def capacity(dialect: Dialect, settings: Settings) -> Group:
    """Capacity of one replica of a kind: measured where one was seen under a queue within a week, else estimated, else nothing.

    A replica of mixed load that is at its limit is not at the limit of each phase: one that finds most prompts in its cache computes few
    of them however long its queue. So what it was seen to do under a queue counts as work of both phases together; of one phase alone
    its roofline says more.
    """
    by_kind, by_phase = dialect.labels(*MODEL_GPU), dialect.labels(*MODEL_GPU, "phase")
    promised = f"{settings.node_loss.efficiency:g} * max by ({by_phase}) ({of_kind(dialect, CEILINGS)})"
    seen, limit = (dialect.apply_over_time("max_over_time", record, WEEK) for record in (_TOKENS, f"{_TOKENS}_waiting"))
    seen_work, limit_work = (
        dialect.apply_over_time("max_over_time", record, WEEK) for record in (_WORK, f"{_WORK}_waiting")
    )
    # a replica that stood still while requests waited has shown no limit
    limit, limit_work = f"{limit} > 0", f"{limit_work} > 0"
    # what was reached without a queue can be reached: the limit is at least that
    measured = f"({seen} and on ({by_phase}) {limit})"
    estimated = f"({seen} > on ({by_phase}) {promised} or on ({by_phase}) {promised})"
    of_one_phase = dialect.apply_over_time("max_over_time", f"{_TOKENS}{{{SPLIT}}}", WEEK)
    known = "1 by phase, with how the capacity is known: measured under a queue, or estimated from the roofline"
    return Group(
        "llm-serving.capacity",
        write_records(f"""
            ## tokens/s by phase that one replica of a kind can do
            {BEST_TOKENS} = ({of_one_phase} and on ({by_phase}) {limit}) or on ({by_phase}) {estimated} or on ({by_phase}) {measured}
            ## reference seconds of work per second of one replica of a kind, where one was seen under a queue
            {BEST_WORK} = {seen_work} and on ({by_kind}) {limit_work}
            ## {known}
            {BASIS}{{basis="measured"}} = ({BEST_TOKENS}{{{SPLIT}}} > bool 0) and on ({by_phase}) {limit}
              or ({BEST_TOKENS} > bool 0) and on ({by_kind}) {BEST_WORK}
              or ({BEST_TOKENS} > bool 0) unless on ({by_phase}) {promised}
            ## {known}
            {BASIS}{{basis="estimated"}} = ({BEST_TOKENS} > bool 0) unless on ({by_phase}) {BASIS}{{basis="measured"}}
        """),
        INTERVAL_SECONDS,
    )
