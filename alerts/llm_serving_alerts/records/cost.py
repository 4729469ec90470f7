"""What was spent and what it bought, hour by hour: what a review of last month is put together from once the counters are gone.

Each is the increase of the last hour, of which any range of whole hours is a sum (docs/rules.md, "What it costs").
"""

from __future__ import annotations

from collections.abc import Iterator

from llm_serving_alerts.promql import ENGINE, FLEET, HOUR, MODEL, TARGET, Dialect, series
from llm_serving_alerts.records.baselines import INTERVAL_SECONDS
from llm_serving_alerts.records.counted_once import COUNTED, ONCE, PASSED, once
from llm_serving_alerts.records.traffic import PHASES
from llm_serving_alerts.rules import Group, Record
from llm_serving_alerts.settings import Settings

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
    return Group("llm-serving.cost.hours", rules, INTERVAL_SECONDS / dialect.time_scale)


def _spend(dialect: Dialect) -> list[Record]:
    """GPU time and what it costs: GPU seconds, USD, joules, grams."""
    by_target = dialect.labels(*TARGET)
    rules = [
        Record(
            "target:llm_serving_gpu_seconds:increase1h",
            f"sum by ({by_target}, state, rate) ({_once(dialect, 'gpu_seconds_total', 'state', 'rate')})",
            "GPU seconds of a target in the last hour by state and rate",
        ),
        Record(
            COST,
            f"sum by ({by_target}, phase, rate, method) ({_once(dialect, 'cost_usd_total', 'phase', 'rate', 'method')})",
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
    yield Record(
        _hourly(finished), _increase(dialect, finished, "reason"), "finished requests in the last hour, every reason"
    )
    each = _once(dialect, "slo_events_total", "slo", "outcome", "source", "threshold")
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
    """Of a target in the last hour, whoever reads it. `own`: labels of the counter that are summed."""
    return f"sum by ({dialect.labels(*TARGET)}) ({_once(dialect, counter, *own)})"


def _once(dialect: Dialect, counter: str, *own: str) -> str:
    """The increase of a counter in the last hour by engine and its `own` labels, with each moment of it once."""
    by_place, of_target = dialect.key(*ENGINE, *own), dialect.key("target")
    how = COUNTED if counter in _COUNTED_HERE else PASSED
    return dialect.with_own(
        f'sum by ({by_place}) ({_raw(dialect, counter)}) * on ({of_target}) group_left () {ONCE}{{of="{how}"}}'
    )
