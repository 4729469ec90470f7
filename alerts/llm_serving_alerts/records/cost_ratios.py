"""What the spend comes to: USD per million tokens, idle shares, run rate, replicas that nobody needed; for alerts and panels."""

from __future__ import annotations

from collections.abc import Iterator

from llm_serving_alerts.promql import DAY, FLEET, HOUR, MODEL, REPLICA, TARGET, WEEK, Dialect, series
from llm_serving_alerts.records.baselines import INTERVAL_SECONDS, baseline, same_hour
from llm_serving_alerts.records.cost import COST, FLEET_COST, MODEL_COST, PHASE_TOKENS, PROMPT_TOKENS
from llm_serving_alerts.records.node_loss import PRESENT, REQUIRED
from llm_serving_alerts.records.replicas import of_replica
from llm_serving_alerts.rules import Group, Record
from llm_serving_alerts.settings import Settings

RATIO_SECONDS = 6 * HOUR
PER_MILLION = "model:llm_serving_cost_usd_per_million_tokens:ratio6h"
# of models with tokens enough for a comparison
PER_MILLION_COMPARED = "model:llm_serving_cost_usd_per_million_tokens:ratio6h_compared"
PER_MILLION_MEDIAN = "model:llm_serving_cost_usd_per_million_tokens:median7d"
IDLE_SHARE = "model:llm_serving_idle_cost:ratio1d"
DAYS_COST = "model:llm_serving_cost_usd:increase1d"
RUN_RATE = "fleet:llm_serving_cost_usd_per_hour:avg7d"
TOKENS = "model:llm_serving_tokens:rate1h"
TOKENS_MEDIAN = "model:llm_serving_tokens:past_hour_median7d"

_COST_6H = "target:llm_serving_cost_usd:increase6h"
_ALLOCATED = "target:llm_serving_allocated_cost_usd:increase6h"
_TOKENS_6H = "model:llm_serving_priced_tokens:increase6h"
_SERVED = 'phase=~"prefill|decode"'
_BLENDED = 'phase="blended"'
_PRESENT = "model:llm_serving_present_replicas:avg1h"
_REQUIRED = "model:llm_serving_required_replicas:max1h"
_PRICED = "model:llm_serving_priced_replicas:avg1h"
_REPLICA_COST = "model:llm_serving_replica_cost_usd:mean1h"


def hours(dialect: Dialect, function: str, expression: str, seconds: float) -> str:
    """A function over the running increases of whole hours, which do not overlap: `sum_over_time(x[6h:1h])`."""
    return dialect.apply_over_time(function, expression, seconds, HOUR)


def per_token(dialect: Dialect, settings: Settings) -> Group:
    """USD per million tokens of six hours, and what is usual."""
    return Group(
        "llm-serving.cost.per-token", tuple(_per_token(dialect, settings)), INTERVAL_SECONDS / dialect.time_scale
    )


def _per_token(dialect: Dialect, settings: Settings) -> Iterator[Record]:
    by_target, by_model = dialect.labels(*TARGET), dialect.labels(*MODEL)
    by_phase = dialect.labels(*MODEL, "phase")
    yield Record(
        _COST_6H,
        f"sum by ({by_target}, phase) ({hours(dialect, 'sum_over_time', COST, RATIO_SECONDS)})",
        "USD of a target's GPU time in six whole hours by what it went to",
    )
    share = f"sum by ({by_target}) ({_COST_6H}) / on ({by_target}) (sum by ({by_target}) ({_COST_6H}{{{_SERVED}}}) > 0)"
    yield Record(
        _ALLOCATED,
        f"{_COST_6H}{{{_SERVED}}} * on ({by_target}) group_left () ({share})",
        "the same with all other time borne by prefill and decode, in proportion; absent where a target did neither",
    )
    about = (
        "tokens of six whole hours, of targets and hours that have a price; prefill computed, decode generated, blended: prompt as sent "
        "and decode"
    )
    priced = f"and on ({by_target}) {COST}"
    of_phases = hours(dialect, "sum_over_time", f"({PHASE_TOKENS} {priced})", RATIO_SECONDS)
    yield Record(_TOKENS_6H, f"sum by ({by_phase}) ({of_phases})", about)
    sent = f'({PROMPT_TOKENS} + on ({by_target}) {PHASE_TOKENS}{{phase="decode"}} {priced})'
    of_both = hours(dialect, "sum_over_time", sent, RATIO_SECONDS)
    yield Record(_TOKENS_6H, f"sum by ({by_model}) ({of_both})", about, {"phase": "blended"})
    about = (
        "USD per million tokens over six whole hours: busy, of the time that a phase took; allocated, with idle, down and unattributed "
        "time borne by the tokens (blended: of replicas that served nothing, too)"
    )
    # 0 USD is time that nobody could attribute, not a token for nothing
    for basis, cost, all_ in (("busy", _COST_6H, f"{_COST_6H}{{{_SERVED}}}"), ("allocated", _ALLOCATED, _COST_6H)):
        of_phase = f"sum by ({by_phase}) ({cost}{{{_SERVED}}}) > 0"
        yield Record(PER_MILLION, f"1e6 * ({of_phase}) / on ({by_phase}) ({_TOKENS_6H} > 0)", about, {"basis": basis})
        yield Record(
            PER_MILLION,
            f"1e6 * (sum by ({by_model}) ({all_}) > 0) / on ({by_model}) ({_TOKENS_6H}{{{_BLENDED}}} > 0)",
            about,
            {"phase": "blended", "basis": basis},
        )
    least = settings.alerts["CostPerTokenUp"]["tokens"]
    yield Record(
        PER_MILLION_COMPARED,
        f'sum by ({by_model}) ({PER_MILLION}{{{_BLENDED},basis="allocated"}})'
        f" and on ({by_model}) {_TOKENS_6H}{{{_BLENDED}}} >= {least:g}",
        "the blended one with everything allocated, where there were tokens enough",
    )
    yield Record(
        PER_MILLION_MEDIAN,
        # the price file may be younger than the model
        baseline(dialect, settings, "quantile_over_time", PER_MILLION_COMPARED, 0.5, seen=PER_MILLION_COMPARED),
        "what a million tokens usually cost, where there were tokens enough",
    )


def shares(dialect: Dialect, settings: Settings) -> Group:
    """Idle share of a day, run rate of a week, and tokens of the same hour on other days."""
    by_model, by_all = dialect.labels(*MODEL), dialect.labels(*FLEET)
    least = settings.alerts["TokenExplosion"]["days"]
    return Group(
        "llm-serving.cost.shares",
        (
            Record(
                DAYS_COST,
                hours(dialect, "sum_over_time", MODEL_COST, DAY),
                "USD of all GPU time of a model's replicas in 24 whole hours by what it went to",
            ),
            Record(
                IDLE_SHARE,
                f'sum by ({by_model}) ({DAYS_COST}{{phase="idle"}}) / on ({by_model}) (sum by ({by_model}) ({DAYS_COST}) > 0)',
                "share of that spend that went to idle time",
            ),
            Record(
                IDLE_SHARE.replace("model:", "fleet:"),
                f'sum by ({by_all}) ({DAYS_COST}{{phase="idle"}}) / on ({by_all}) (sum by ({by_all}) ({DAYS_COST}) > 0)',
                "the same of all models",
            ),
            Record(
                RUN_RATE,
                hours(dialect, "avg_over_time", FLEET_COST, WEEK),
                "USD per hour, GPU time and energy, mean over those hours of seven days that were seen",
            ),
            Record(
                TOKENS_MEDIAN,
                same_hour(dialect, TOKENS, 0.0, least),
                "tokens/s in the hour that ends now, median of the last seven days",
            ),
        ),
        INTERVAL_SECONDS / dialect.time_scale,
    )


def replicas(dialect: Dialect, settings: Settings) -> Group:
    """Replicas that ran beside those that were needed, and what they cost.

    Those that run are `present`: they serve, or sleep and could be woken, and cost either way. One that loads is on its way for a demand
    that has come; the spend of one that is down has a phase of its own, and would be called a waste twice.
    """
    by_model, by_target = dialect.labels(*MODEL), dialect.key(*TARGET)
    # what a server cost under the model that it had before goes on being shown, and is no replica of that model any more
    costs = f"count by ({by_target}) ({series('cost_usd_total')}) and on ({by_target}) {series('target_info')}"
    each = f"count by ({dialect.labels(*REPLICA)}) ({of_replica(dialect, f'({dialect.with_own(costs)})')})"
    priced = f"(count by ({by_model}) ({each}))"
    bare, reserved = (f'sum by ({by_model}) ({_REQUIRED}{{reserve="{one}"}})' for one in ("none", "nodes"))
    of_one = f"* on ({by_model}) {_REPLICA_COST}"
    # the smaller of both: a reserve that does not run costs nothing
    running = (
        f"({_PRESENT} < on ({by_model}) {reserved} or on ({by_model}) ({reserved} and on ({by_model}) {_PRESENT}))"
    )
    return Group(
        "llm-serving.cost.replicas",
        (
            Record(
                _PRESENT,
                dialect.apply_over_time("avg_over_time", PRESENT, HOUR),
                "replicas that serve, or sleep and could be woken, mean of the last hour",
            ),
            Record(
                _REQUIRED,
                dialect.apply_over_time("max_over_time", REQUIRED, HOUR),
                "replicas that the demand needed at most within the last hour, without and with a reserve",
            ),
            Record(
                _PRICED,
                dialect.apply_over_time("avg_over_time", priced, HOUR, 5 * 60.0),
                "replicas whose GPU time has a price, in whatever state, mean of the last hour",
            ),
            Record(
                _REPLICA_COST,
                f"sum by ({by_model}) ({MODEL_COST}) / on ({by_model}) ({_PRICED} > 0)",
                "USD of one replica's GPU time in the last hour, mean of those that have a price",
            ),
            Record(
                "model:llm_serving_overprovisioned_cost_usd:sum1h",
                f"clamp_min({_PRESENT} - on ({by_model}) {reserved}, 0) {of_one}",
                "USD of the replicas that ran in the last hour beyond those needed with a reserve; absent where these are not known",
            ),
            Record(
                "model:llm_serving_reserve_cost_usd:sum1h",
                f"clamp_min({running} - on ({by_model}) {bare}, 0) {of_one}",
                "USD of the reserve for a lost node in the last hour, as far as so many ran",
            ),
        ),
        INTERVAL_SECONDS / dialect.time_scale,
    )
