"""Every group of recording rules, in the order in which they rest on one another."""

from __future__ import annotations

from llm_serving_alerts.promql import Dialect
from llm_serving_alerts.records.bands import bands, gpu, views
from llm_serving_alerts.records.baselines import bandwidth, baselines, capacity, rates, tokens, work
from llm_serving_alerts.records.cost import hours, per_token, replicas, shares
from llm_serving_alerts.records.history import history, seen
from llm_serving_alerts.records.identity import claims, identity
from llm_serving_alerts.records.kv import kv, tail
from llm_serving_alerts.records.node_loss import node_loss
from llm_serving_alerts.records.outliers import outliers
from llm_serving_alerts.records.presence import exporters, missing, presence
from llm_serving_alerts.records.rollouts import autoscaling, rollouts
from llm_serving_alerts.records.signals import signals, workloads
from llm_serving_alerts.records.slo import first_tokens, slo
from llm_serving_alerts.records.targets import parts, targets
from llm_serving_alerts.records.traffic import latency, stalled, traffic
from llm_serving_alerts.rules import Group
from llm_serving_alerts.settings import Settings

_GROUPS = (
    identity, claims, exporters, seen, parts, targets, workloads, signals, traffic, stalled, history, presence, latency, slo,
    first_tokens, kv, tail, gpu, work, outliers, bandwidth, tokens, baselines, rates, capacity, node_loss, rollouts, autoscaling, missing,
    hours, per_token, shares, replicas, views, bands,
)  # fmt: skip


def record_groups(dialect: Dialect, settings: Settings) -> tuple[Group, ...]:
    """All recording rules as the settings want them."""
    made = (group(dialect, settings) for group in _GROUPS)
    return tuple(group for groups in made for group in (groups if isinstance(groups, tuple) else (groups,)))
