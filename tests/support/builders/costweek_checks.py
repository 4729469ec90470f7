"""A review, and recorded hours, against what a simulated fleet counted itself."""

from collections.abc import Sequence

import pytest

from llm_serving_alerts.promql import Dialect
from llm_serving_alerts.records import record_groups
from llm_serving_alerts.records.cost import ONCE, SEEN
from llm_serving_alerts.rules import Record
from llm_serving_alerts.settings_file import default_settings
from llm_serving_review.figures.review import Review
from tests.support.builders.costweek import HOUR, Plan, Truth
from tests.support.servers.prometheus_server import PrometheusServer

CLOSE = 0.005
# of busy and idle time
CLOSE_IF_ESTIMATED = 0.05


def close_of(state: str) -> float:
    """How near GPU hours of a state must be: what of a tick the GPUs worked is worked out from latencies."""
    return CLOSE_IF_ESTIMATED if state in ("busy", "idle") else CLOSE


def write_out(expression: str, rules: Sequence[Record]) -> str:
    """An expression with those of the records that it rests on in their place: this Prometheus records nothing."""
    for rule in rules:
        if rule.record in (ONCE, SEEN):
            chosen = rule.record + "".join(f'{{{name}="{value}"}}' for name, value in rule.labels.items())
            if chosen in expression:
                expression = expression.replace(chosen, f"({write_out(rule.expr, rules)})")
    return expression


def agree(made: Review, plan: Plan, truth: Truth) -> None:
    """Within half a percent, busy and idle within five; each end of the outage is known to an interval."""
    now = made.now
    ends = 2 * plan.interval / HOUR
    assert now.usd == pytest.approx(truth.usd, rel=CLOSE)
    assert now.gpu_hours == pytest.approx(sum(truth.gpu_hours.values()), rel=CLOSE)
    for state, hours in truth.gpu_hours.items():
        assert now.gpu_hours_by_state[state] == pytest.approx(hours, rel=close_of(state), abs=ends), state
    assert now.gpu_hours_by_state["unknown"] == pytest.approx(0.0, abs=CLOSE * sum(truth.gpu_hours.values()))
    assert now.prompt_tokens == pytest.approx(truth.prompt_tokens, rel=CLOSE)
    assert now.prefill_tokens == pytest.approx(truth.prefill_tokens, rel=CLOSE)
    assert now.decode_tokens == pytest.approx(truth.decode_tokens, rel=CLOSE)
    assert now.requests == pytest.approx(truth.finished, rel=CLOSE)
    # what went to phases, idle, down and unattributed is all of it
    assert sum(now.usd_by_phase.values()) == pytest.approx(now.usd, abs=0.005)
    # and the allocated cost of the phases is the spend, but for targets that had neither
    assert truth.usd / 2 < sum(now.allocated_usd.values()) <= (now.usd or 0.0) + 0.005
    assert now.blended_usd_per_million == pytest.approx(
        1e6 * truth.usd / (truth.prompt_tokens + truth.decode_tokens), rel=2 * CLOSE
    )


def agree_with_rules(prometheus: PrometheusServer, plan: Plan, truth: Truth) -> None:
    """The expressions of the hourly records, at the end of each hour."""
    rules = [
        rule
        for group in record_groups(Dialect(), default_settings())
        for rule in group.rules
        if isinstance(rule, Record)
    ]

    def week(record: str, **labels: str) -> float:
        """Of the series with these labels."""
        total = 0.0
        expressions = [write_out(rule.expr, rules) for rule in rules if rule.record == record]
        assert expressions
        for expression in expressions:
            found = prometheus.get(
                "/api/v1/query_range",
                query=f"sum by ({', '.join(labels)}) ({expression})",
                start=str(plan.begin_unix + HOUR),
                end=str(plan.begin_unix + plan.seconds),
                step="3600",
            ).json()["data"]["result"]
            total += sum(float(value) for one in found if one["metric"] == labels for _, value in one["values"])
        return total

    assert week("target:llm_serving_cost_usd:increase1h") == pytest.approx(truth.usd, rel=CLOSE)
    hours = week("target:llm_serving_gpu_seconds:increase1h") / HOUR
    assert hours == pytest.approx(sum(truth.gpu_hours.values()), rel=CLOSE)
    for state, true_hours in truth.gpu_hours.items():
        of_state = week("target:llm_serving_gpu_seconds:increase1h", state=state) / HOUR
        assert of_state == pytest.approx(true_hours, rel=close_of(state), abs=2 * plan.interval / HOUR), state
    tokens = truth.prefill_tokens + truth.decode_tokens
    assert week("target:llm_serving_phase_tokens:increase1h") == pytest.approx(tokens, rel=CLOSE)
    assert week("target:llm_serving_prompt_tokens:increase1h") == pytest.approx(truth.prompt_tokens, rel=CLOSE)
    assert week("target:llm_serving_requests_finished:increase1h") == pytest.approx(truth.finished, rel=CLOSE)
