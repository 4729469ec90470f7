"""A review, and recorded hours, against what a simulated fleet counted itself."""

from __future__ import annotations

import pytest

from llm_serving_alerts.promql import Dialect
from llm_serving_alerts.records import record_groups
from llm_serving_alerts.rules import Record
from llm_serving_alerts.settings_file import default_settings
from llm_serving_exporter.report.figures.review import Review
from tests.support.builders.costweek import HOUR, Plan, Truth
from tests.support.servers.prometheus_server import PrometheusServer

CLOSE = 0.005


def agree(made: Review, plan: Plan, truth: Truth) -> None:
    """Within half a percent; each end of the outage is known to an interval."""
    now = made.now
    ends = 2 * plan.interval / HOUR
    assert now.usd == pytest.approx(truth.usd, rel=CLOSE)
    assert now.gpu_hours == pytest.approx(sum(truth.gpu_hours.values()), rel=CLOSE)
    for state, hours in truth.gpu_hours.items():
        assert now.gpu_hours_by_state[state] == pytest.approx(hours, rel=CLOSE, abs=ends), state
    assert now.gpu_hours_by_state["unknown"] == pytest.approx(0.0, abs=CLOSE * sum(truth.gpu_hours.values()))
    assert now.prompt_tokens == pytest.approx(truth.prompt_tokens, rel=CLOSE)
    assert now.prefill_tokens == pytest.approx(truth.prefill_tokens, rel=CLOSE)
    assert now.decode_tokens == pytest.approx(truth.decode_tokens, rel=CLOSE)
    assert now.requests == pytest.approx(truth.finished, rel=CLOSE)
    # what went to phases, idle, down and unattributed is all of it
    assert sum(now.usd_by_phase.values()) == pytest.approx(now.usd, abs=0.005)
    # and the allocated cost of the phases is the spend, but for targets that had neither
    assert sum(now.allocated_usd.values()) + now.tokenless_usd == pytest.approx(now.usd, abs=0.005)
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
        expressions = [rule.expr for rule in rules if rule.record == record]
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
        assert of_state == pytest.approx(true_hours, rel=CLOSE, abs=2 * plan.interval / HOUR), state
    tokens = truth.prefill_tokens + truth.decode_tokens
    assert week("target:llm_serving_phase_tokens:increase1h") == pytest.approx(tokens, rel=CLOSE)
    assert week("target:llm_serving_prompt_tokens:increase1h") == pytest.approx(truth.prompt_tokens, rel=CLOSE)
    assert week("target:llm_serving_requests_finished:increase1h") == pytest.approx(truth.finished, rel=CLOSE)
