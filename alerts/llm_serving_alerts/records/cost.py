"""What was spent and what it bought, hour by hour, and what it comes to."""

from __future__ import annotations

from collections.abc import Iterator

from llm_serving_alerts.promql import DAY, ENGINE, FLEET, HOUR, MINUTE, MODEL, REPLICA, TARGET, WEEK, Dialect, series
from llm_serving_alerts.records.baselines import INTERVAL_SECONDS, baseline, same_hour
from llm_serving_alerts.records.history import of_replica
from llm_serving_alerts.records.node_loss import PRESENT, REQUIRED
from llm_serving_alerts.records.traffic import PHASES
from llm_serving_alerts.rules import Group, Record, write_records
from llm_serving_alerts.settings import Settings

# --- How often the last hour of a target was counted, so that records of cost take each moment of it once.
#
# An hour may be counted by several: a pair of exporters or servers side by side, of which one may be away for a while, or an exporter that
# is replaced by another in its middle. Their increases are added up, and divided by how many of them there were at a time in the mean: a
# pair's by two, of which each may have put the same second into another place; those of one after the other by one.
#
# How long each of them was there is the time from the first to the last moment at which it told of the target. An engine's own count rises
# within it whether it is read or not: that is `passed`. What the exporter counts itself stands still while it is away, and goes on while
# it only cannot be scraped: for that, `counted`, the GPU seconds of each say for how long it counted.

ONCE = "exporter:llm_serving_hour_counted_once:ratio"
PASSED, COUNTED = "passed", "counted"
SEEN = "exporter:llm_serving_target_seen:seconds"
# a minute would be 1.7 % of an hour
_STEP_SECONDS = 15.0
# of the time of all of them: increases of shorter spans are estimates, by half a scrape at each end
_LONG_ENOUGH = 0.25


def once(dialect: Dialect) -> tuple[Record, ...]:
    """By what increases of the last hour are multiplied that are added up over exporters; in this order."""
    of_target = dialect.key("target")
    places = ", ".join([*(label for label in ENGINE if label != "target"), "state", "rate"])
    moments = f"({series('target_up')} * 0 + time())"
    last, first = (dialect.apply_over_time(f"{how}_over_time", moments, HOUR, _STEP_SECONDS) for how in ("max", "min"))
    minute = dialect.length(MINUTE)
    each = f"clamp_min({last} - {first}, {minute})"
    counted = f"sum without ({places}) ({dialect.increase(series('gpu_seconds_total'), HOUR)})"
    long_enough = f"({each} >= on ({of_target}) group_left () {_LONG_ENOUGH:g} * {SEEN})"
    pace = f"max by ({of_target}) ({counted} / {long_enough})"
    return write_records(f"""
        ## seconds of the last hour from the first to the last moment at which some exporter told of a target
        {SEEN} = clamp_min(max by ({of_target}) ({last}) - min by ({of_target}) ({first}), {minute})
        ## one over how many there were at a time, of what an engine counts and exporters pass on
        {ONCE}{{of="{PASSED}"}} = {SEEN} / on ({of_target}) sum by ({of_target}) ({each})
        ## the same of what exporters count themselves
        {ONCE}{{of="{COUNTED}"}} = {SEEN} * on ({of_target}) {pace} / on ({of_target}) (sum by ({of_target}) ({counted}) > 0)
          or on ({of_target}) {ONCE}{{of="{PASSED}"}}
    """)


# --- What was spent and what it bought, hour by hour: what a review of last month is put together from once the counters are gone.
#
# Each is the increase of the last hour, of which any range of whole hours is a sum (docs/rules.md, "What it costs").

COST = "target:llm_serving_cost_usd:increase1h"
ENERGY_COST = "target:llm_serving_energy_cost_usd:increase1h"
PHASE_TOKENS = "target:llm_serving_phase_tokens:increase1h"
PROMPT_TOKENS = "target:llm_serving_prompt_tokens:increase1h"
MODEL_COST = "model:llm_serving_cost_usd:increase1h"
FLEET_COST = "fleet:llm_serving_cost_usd:increase1h"
# what the exporter counts tick by tick; the rest is the engine's own count, which goes on while nobody reads it
_COUNTED_HERE = {
    "gpu_seconds_total", "cost_usd_total", "energy_joules_total", "energy_cost_usd_total", "carbon_grams_total",
    "prefix_cache_savings_usd_total",
}  # fmt: skip


def hours(dialect: Dialect, settings: Settings) -> Group:
    """What was spent and what was served for it, in an order: all of it rests on how often an hour was counted."""
    rules = (*once(dialect), *_spend(dialect), *_tokens(dialect), *_requests(dialect))
    return Group("llm-serving.cost.hours", rules, INTERVAL_SECONDS)


def _spend(dialect: Dialect) -> list[Record]:
    """GPU time and what it costs: GPU seconds, USD, joules, grams."""
    by_target = dialect.labels(*TARGET)
    rules = [
        *write_records(f"""
            ## GPU seconds of a target in the last hour by state and rate
            target:llm_serving_gpu_seconds:increase1h =
              sum by ({by_target}, state, rate) ({_once(dialect, "gpu_seconds_total", "state", "rate")})
            ## USD of a target's GPU time in the last hour by what it went to; the phases add up to all of it
            {COST} = sum by ({by_target}, phase, rate, method) ({_once(dialect, "cost_usd_total", "phase", "rate", "method")})
        """)
    ]
    for counter, about in (
        ("energy_joules_total", "joules that its GPUs used"),
        ("energy_cost_usd_total", "USD of that energy, where the rate does not include it; not in cost_usd"),
        ("carbon_grams_total", "grams of carbon dioxide equivalent of that energy"),
        ("prefix_cache_savings_usd_total", "USD of prefill that the prefix cache spared at least: capacity, not cash"),
    ):
        rules.append(Record(_hourly(counter), _increase(dialect, counter), f"{about} in the last hour"))
    rules += [
        *write_records(f"""
            ## USD of all GPU time of a model's replicas in the last hour by what it went to
            {MODEL_COST} = sum by ({dialect.labels(*MODEL, "phase")}) ({COST})
        """),
        Record(
            FLEET_COST,
            # labels tell one from the other: the cost of energy has no phase
            f"sum by ({dialect.labels(*FLEET)}) ({COST} or {ENERGY_COST})",
            "USD of all GPU time and of the energy that its rate does not include, in the last hour",
        ),
    ]
    return rules


def _tokens(dialect: Dialect) -> Iterator[Record]:
    about = "tokens of a target in the last hour by phase: prefill computed, decode generated"
    for phase, counter in PHASES.items():
        yield Record(PHASE_TOKENS, _increase(dialect, counter), about, {"phase": phase})
    for counter, about in (
        ("prompt_tokens_total", "prompt tokens as sent"),
        ("cached_prompt_tokens_total", "prompt tokens that the prefix cache had"),
    ):
        yield Record(_hourly(counter), _increase(dialect, counter), f"{about} in the last hour")


def _requests(dialect: Dialect) -> Iterator[Record]:
    finished = "requests_finished_total"
    each = _once(dialect, "slo_events_total", "slo", "outcome", "source", "threshold")
    yield from write_records(f"""
        ## finished requests in the last hour, every reason
        {_hourly(finished)} = {_increase(dialect, finished, "reason")}
        ## good and bad events of each objective in the last hour
        {_hourly("slo_events_total")} = sum by ({dialect.labels(*TARGET)}, slo, outcome) ({each})
    """)


def _hourly(counter: str) -> str:
    return f"target:llm_serving_{counter.removesuffix('_total')}:increase1h"


def _raw(dialect: Dialect, counter: str) -> str:
    return dialect.increase(series(counter), HOUR)


def _increase(dialect: Dialect, counter: str, *own: str) -> str:
    """Of a target in the last hour, whoever reads it. `own`: labels of the counter that are summed."""
    return f"sum by ({dialect.labels(*TARGET)}) ({_once(dialect, counter, *own)})"


def _once(dialect: Dialect, counter: str, *own: str) -> str:
    """The increase of a counter in the last hour by engine and its `own` labels, with each moment of it once."""
    by_place, of_target = dialect.key(*ENGINE, *own), dialect.key("target")
    how = COUNTED if counter in _COUNTED_HERE else PASSED
    return dialect.with_own(
        f'sum by ({by_place}) ({_raw(dialect, counter)}) * on ({of_target}) group_left () {ONCE}{{of="{how}"}}'
    )


# --- What the spend comes to: USD per million tokens, idle shares, run rate, replicas that nobody needed; for alerts and panels.

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


def apply_over_hours(dialect: Dialect, function: str, expression: str, seconds: float) -> str:
    """A function over the running increases of whole hours, which do not overlap: `sum_over_time(x[6h:1h])`."""
    return dialect.apply_over_time(function, expression, seconds, HOUR)


def per_token(dialect: Dialect, settings: Settings) -> Group:
    """USD per million tokens of six hours, and what is usual."""
    return Group("llm-serving.cost.per-token", tuple(_per_token(dialect, settings)), INTERVAL_SECONDS)


def _per_token(dialect: Dialect, settings: Settings) -> Iterator[Record]:
    by_target, by_model = dialect.labels(*TARGET), dialect.labels(*MODEL)
    by_phase = dialect.labels(*MODEL, "phase")
    share = f"sum by ({by_target}) ({_COST_6H}) / on ({by_target}) (sum by ({by_target}) ({_COST_6H}{{{_SERVED}}}) > 0)"
    about = (
        "tokens of six whole hours, of targets and hours that have a price; prefill computed, decode generated, blended: prompt as sent "
        "and decode"
    )
    priced = f"and on ({by_target}) {COST}"
    of_phases = apply_over_hours(dialect, "sum_over_time", f"({PHASE_TOKENS} {priced})", RATIO_SECONDS)
    sent = f'({PROMPT_TOKENS} + on ({by_target}) {PHASE_TOKENS}{{phase="decode"}} {priced})'
    of_both = apply_over_hours(dialect, "sum_over_time", sent, RATIO_SECONDS)
    yield from write_records(f"""
        ## USD of a target's GPU time in six whole hours by what it went to
        {_COST_6H} = sum by ({by_target}, phase) ({apply_over_hours(dialect, "sum_over_time", COST, RATIO_SECONDS)})
        ## the same with all other time borne by prefill and decode, in proportion; absent where a target did neither
        {_ALLOCATED} = {_COST_6H}{{{_SERVED}}} * on ({by_target}) group_left () ({share})
        ## {about}
        {_TOKENS_6H} = sum by ({by_phase}) ({of_phases})
        ## {about}
        {_TOKENS_6H}{{phase="blended"}} = sum by ({by_model}) ({of_both})
    """)
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
    yield from write_records(f"""
        ## the blended one with everything allocated, where there were tokens enough
        {PER_MILLION_COMPARED} = sum by ({by_model}) ({PER_MILLION}{{{_BLENDED},basis="allocated"}})
          and on ({by_model}) {_TOKENS_6H}{{{_BLENDED}}} >= {least:g}
    """)
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
        write_records(f"""
            ## USD of all GPU time of a model's replicas in 24 whole hours by what it went to
            {DAYS_COST} = {apply_over_hours(dialect, "sum_over_time", MODEL_COST, DAY)}
            ## share of that spend that went to idle time
            {IDLE_SHARE} = sum by ({by_model}) ({DAYS_COST}{{phase="idle"}}) / on ({by_model}) (sum by ({by_model}) ({DAYS_COST}) > 0)
            ## the same of all models
            {IDLE_SHARE.replace("model:", "fleet:")} = sum by ({by_all}) ({DAYS_COST}{{phase="idle"}})
              / on ({by_all}) (sum by ({by_all}) ({DAYS_COST}) > 0)
            ## USD per hour, GPU time and energy, mean over those hours of seven days that were seen
            {RUN_RATE} = {apply_over_hours(dialect, "avg_over_time", FLEET_COST, WEEK)}
            ## tokens/s in the hour that ends now, median of the last seven days
            {TOKENS_MEDIAN} = {same_hour(dialect, TOKENS, 0.0, least)}
        """),
        INTERVAL_SECONDS,
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
        write_records(f"""
            ## replicas that serve, or sleep and could be woken, mean of the last hour
            {_PRESENT} = {dialect.apply_over_time("avg_over_time", PRESENT, HOUR)}
            ## replicas that the demand needed at most within the last hour, without and with a reserve
            {_REQUIRED} = {dialect.apply_over_time("max_over_time", REQUIRED, HOUR)}
            ## replicas whose GPU time has a price, in whatever state, mean of the last hour
            {_PRICED} = {dialect.apply_over_time("avg_over_time", priced, HOUR, 5 * 60.0)}
            ## USD of one replica's GPU time in the last hour, mean of those that have a price
            {_REPLICA_COST} = sum by ({by_model}) ({MODEL_COST}) / on ({by_model}) ({_PRICED} > 0)
            ## USD of the replicas that ran in the last hour beyond those needed with a reserve; absent where these are not known
            model:llm_serving_overprovisioned_cost_usd:sum1h = clamp_min({_PRESENT} - on ({by_model}) {reserved}, 0) {of_one}
            ## USD of the reserve for a lost node in the last hour, as far as so many ran
            model:llm_serving_reserve_cost_usd:sum1h = clamp_min({running} - on ({by_model}) {bare}, 0) {of_one}
        """),
        INTERVAL_SECONDS,
    )
