"""What was spent and what it bought, hour by hour: what a review of last month is put together from once the counters are gone.

Each is the increase of the last hour, of which any range of whole hours is a sum (docs/rules.md, "What it costs").
"""

from __future__ import annotations

from collections.abc import Iterator

from llm_serving_alerts.promql import ENGINE, FLEET, HOUR, MODEL, TARGET, Dialect, series
from llm_serving_alerts.records.baselines import INTERVAL_SECONDS
from llm_serving_alerts.records.traffic import PHASES
from llm_serving_alerts.rules import Group, Record
from llm_serving_alerts.settings import Settings

COST = "target:llm_serving_cost_usd:increase1h"
ENERGY_COST = "target:llm_serving_energy_cost_usd:increase1h"
PHASE_TOKENS = "target:llm_serving_phase_tokens:increase1h"
PROMPT_TOKENS = "target:llm_serving_prompt_tokens:increase1h"
MODEL_COST = "model:llm_serving_cost_usd:increase1h"
FLEET_COST = "fleet:llm_serving_cost_usd:increase1h"


def spend(dialect: Dialect, settings: Settings) -> Group:
    """GPU time and what it costs: GPU seconds, USD, joules, grams."""
    by_target = dialect.labels(*TARGET)
    rules = [
        Record(
            "target:llm_serving_gpu_seconds:increase1h",
            f"sum by ({by_target}, state, rate) ({_shared_out(dialect, 'gpu_seconds_total', 'state', 'rate')})",
            "GPU seconds of a target in the last hour by state and rate",
        ),
        Record(
            COST,
            f"sum by ({by_target}, phase, rate, method) ({_shared_out(dialect, 'cost_usd_total', 'phase', 'rate', 'method')})",
            "USD of a target's GPU time in the last hour by what it went to; the phases add up to all of it",
        ),
    ]
    for counter, about in (
        ("energy_joules_total", "joules that its GPUs used"),
        ("energy_cost_usd_total", "USD of that energy, where the rate does not include it; not in cost_usd"),
        ("carbon_grams_total", "grams of carbon dioxide equivalent of that energy"),
        ("prefix_cache_savings_usd_total", "USD of prefill that the prefix cache spared at least: capacity, not cash"),
    ):
        rules.append(Record(_hourly(counter), _increase(dialect, counter), f"{about} in the last hour"))
    rules += [
        Record(
            MODEL_COST,
            f"sum by ({dialect.labels(*MODEL, 'phase')}) ({COST})",
            "USD of all GPU time of a model's replicas in the last hour by what it went to",
        ),
        Record(
            FLEET_COST,
            # labels tell one from the other: the cost of energy has no phase
            f"sum by ({dialect.labels(*FLEET)}) ({COST} or {ENERGY_COST})",
            "USD of all GPU time and of the energy that its rate does not include, in the last hour",
        ),
    ]
    return Group("llm-serving.cost.spend", tuple(rules), INTERVAL_SECONDS / dialect.time_scale)


def bought(dialect: Dialect, settings: Settings) -> Group:
    """What was served in that hour: tokens, requests, events of objectives."""
    return Group("llm-serving.cost.bought", tuple(_bought(dialect)), INTERVAL_SECONDS / dialect.time_scale)


def _bought(dialect: Dialect) -> Iterator[Record]:
    about = "tokens of a target in the last hour by phase: prefill computed, decode generated"
    for phase, counter in PHASES.items():
        yield Record(PHASE_TOKENS, _increase(dialect, counter), about, {"phase": phase})
    for counter, about in (
        ("prompt_tokens_total", "prompt tokens as sent"),
        ("cached_prompt_tokens_total", "prompt tokens that the prefix cache had"),
    ):
        yield Record(_hourly(counter), _increase(dialect, counter), f"{about} in the last hour")
    finished = "requests_finished_total"
    yield Record(
        _hourly(finished), _increase(dialect, finished, "reason"), "finished requests in the last hour, every reason"
    )
    each = dialect.one(_raw(dialect, "slo_events_total"), *ENGINE, "slo", "outcome", "source", "threshold")
    yield Record(
        _hourly("slo_events_total"),
        f"sum by ({dialect.labels(*TARGET)}, slo, outcome) ({each})",
        "good and bad events of each objective in the last hour",
    )


def _hourly(counter: str) -> str:
    return f"target:llm_serving_{counter.removesuffix('_total')}:increase1h"


def _raw(dialect: Dialect, counter: str) -> str:
    return dialect.increase(series(counter), HOUR)


def _increase(dialect: Dialect, counter: str, *own: str) -> str:
    """Of a target in the last hour: of each engine once, whoever reads it. `own`: labels of the counter that are summed."""
    return f"sum by ({dialect.labels(*TARGET)}) ({dialect.one(_raw(dialect, counter), *ENGINE, *own)})"


def _shared_out(dialect: Dialect, counter: str, *own: str) -> str:
    """The increase of a counter that gives each second one of several places, `own` its labels for them.

    Two exporters of a server may give the same second different ones: one of them cannot reach it and counts it as down, of a model that
    it never learnt, or has not got the new price yet. The places together get what the exporter that saw most of the target's hour
    counted, never more.
    """
    of_target = dialect.labels("target")
    each = dialect.one(_raw(dialect, counter), *ENGINE, *own)
    places = [label for label in ENGINE if label != "target"] + list(own)
    most = dialect.one(f"sum without ({', '.join(places)}) ({_raw(dialect, counter)})", "target")
    # of nothing there is nothing to share out, and 0 stays 0
    counted = f"clamp_min(sum by ({of_target}) ({each}), 1e-9)"
    return f"{each} * on ({of_target}) group_left () ({most} / on ({of_target}) {counted})"
