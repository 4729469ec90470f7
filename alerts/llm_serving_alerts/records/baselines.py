"""What is normal for a model: recorded, so that alerts read short ranges."""

from __future__ import annotations

from llm_serving_alerts.promql import DAY, ENGINE, HOUR, MODEL, MODEL_GPU, TARGET, WEEK, Dialect, series
from llm_serving_alerts.records.targets import of_kind
from llm_serving_alerts.rules import MINUTELY_SECONDS, Group, Record
from llm_serving_alerts.settings import Settings

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
        (
            Record(
                "target:llm_serving_reference_work:rate5m",
                f"sum by ({by_target}) (engine:llm_serving_phase_tokens:rate5m * on ({by_engine}) {weights})",
                "reference seconds of work that a replica does per second",
            ),
            Record(
                WORK,
                f"sum by ({by_model}) (target:llm_serving_reference_work:rate5m and on ({by_target}) target:llm_serving_settled:max)"
                f" / count by ({by_model}) (target:llm_serving_settled:max and on ({by_target}) target:llm_serving_reference_work:rate5m)",
                "the same per settled replica",
            ),
            Record(
                WORK_QUEUED,
                f"avg by ({by_model}) (target:llm_serving_reference_work:rate5m and on ({by_target}) target:llm_serving_settled:max"
                f" and on ({by_target}) {dialect.apply_over_time('min_over_time', 'target:llm_serving_requests_waiting:sum', 300)} > 0)",
                "the same per settled replica that has had a queue of its own for 5m",
            ),
            Record(
                WORK_WAITING,
                f"{WORK} and on ({by_model}) {waiting} > 0",
                "the same at moments when requests had waited for 5m",
            ),
        ),
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
            Record(
                _ACHIEVED,
                f"sum by ({by_kind}) ({named})",
                "the same by kind of GPU",
            ),
            Record(
                _PEAK,
                f"sum by ({by_kind}) ({named_ceilings})",
                "their peak",
            ),
            Record(
                BANDWIDTH,
                f"{_ACHIEVED} / ({_PEAK} > 0)",
                "share of the peak bandwidth in use",
            ),
        ),
        MINUTELY_SECONDS / dialect.time_scale,
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
        (
            Record(
                "model:llm_serving_tokens:rate5m",
                f"sum by ({by_model}) (model:llm_serving_phase_tokens:rate5m)",
                "tokens/s of both phases",
            ),
            Record(
                hourly,
                dialect.apply_over_time("avg_over_time", "model:llm_serving_tokens:rate5m", HOUR),
                "its mean over an hour",
            ),
            Record(
                "model:llm_serving_tokens:same_hour_median7d",
                same_hour(dialect, hourly, HALF_HOUR, least),
                "median of the same hour on the last seven days",
            ),
            Record(
                quarter,
                dialect.apply_over_time("avg_over_time", "model:llm_serving_tokens:rate5m", QUARTER),
                "its mean over a quarter of an hour",
            ),
            Record(
                lowest,
                dialect.apply_over_time("min_over_time", quarter, HOUR),
                "the lowest quarter of an hour within an hour",
            ),
            Record(
                "model:llm_serving_tokens:same_hour_lowest_median7d",
                f"quantile by ({by_model}) (0.5, {lows})",
                "the lowest quarter of the same hour, median of the last seven days: 0 where traffic comes in bursts",
            ),
            Record(
                "model:llm_serving_tokens:same_hour_week_ago",
                dialect.offset(hourly, WEEK - HALF_HOUR),
                "the same hour a week ago",
            ),
        ),
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
        (
            Record(
                "model:llm_serving_reference_work_per_replica:p90_7d",
                f"{baseline(dialect, settings, 'quantile_over_time', WORK_WAITING, 0.9)}"
                f" and on ({by_model}) ({moments}) >= {LEAST_MOMENTS}",
                "work per replica at its limit",
            ),
            Record(
                "model_gpu:llm_serving_bandwidth_ceiling:median7d",
                baseline(dialect, settings, "quantile_over_time", BANDWIDTH, 0.5),
                "usual share of the peak bandwidth, by source",
            ),
            Record(
                "model:llm_serving_prefix_cache_hit:median7d",
                baseline(dialect, settings, "quantile_over_time", HIT_RATE, 0.5),
                "usual prefix hit rate",
            ),
        ),
        INTERVAL_SECONDS / dialect.time_scale,
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
