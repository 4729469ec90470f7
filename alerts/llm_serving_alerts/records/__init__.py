"""Every group of recording rules, in the order in which they rest on one another."""

from __future__ import annotations

from llm_serving_alerts.promql import Dialect
from llm_serving_alerts.records.autoscaling import autoscaling
from llm_serving_alerts.records.bands import bands
from llm_serving_alerts.records.baselines import bandwidth, baselines, tokens, work
from llm_serving_alerts.records.capacity import capacity, rates
from llm_serving_alerts.records.cost import hours
from llm_serving_alerts.records.cost_ratios import per_token, replicas, shares
from llm_serving_alerts.records.first_tokens import first_tokens
from llm_serving_alerts.records.gpu import gpu
from llm_serving_alerts.records.gpu_bands import gpu_bands
from llm_serving_alerts.records.history import history, seen
from llm_serving_alerts.records.identity import claims, identity
from llm_serving_alerts.records.kv import kv, tail
from llm_serving_alerts.records.node_loss import node_loss
from llm_serving_alerts.records.outliers import outliers
from llm_serving_alerts.records.presence import exporters, missing, presence
from llm_serving_alerts.records.rollouts import rollouts
from llm_serving_alerts.records.signals import signals
from llm_serving_alerts.records.slo import slo
from llm_serving_alerts.records.stalled import stalled
from llm_serving_alerts.records.targets import parts, targets
from llm_serving_alerts.records.traffic import latency, traffic
from llm_serving_alerts.records.views import views
from llm_serving_alerts.records.workloads import workloads
from llm_serving_alerts.rules import Group
from llm_serving_alerts.settings import Settings

_GROUPS = (
    identity, claims, exporters, seen, parts, targets, workloads, signals, traffic, stalled, history, presence, latency, slo,
    first_tokens, kv, tail, gpu, work, outliers, bandwidth, tokens, baselines, rates, capacity, node_loss, rollouts, autoscaling, missing,
    hours, per_token, shares, replicas, views, bands, gpu_bands,
)  # fmt: skip


def record_groups(dialect: Dialect, settings: Settings) -> tuple[Group, ...]:
    """All recording rules as the settings want them."""
    made = (group(dialect, settings) for group in _GROUPS)
    return tuple(group for found in made for group in (found if isinstance(found, tuple) else (found,)))
