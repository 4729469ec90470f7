"""Every alert, declared once, in the order of the checks."""

from __future__ import annotations

from llm_serving_alerts.alerting.cost import COST
from llm_serving_alerts.alerting.exporter import EVALUATION, EXPORTER, EXPORTERS_ALERTS
from llm_serving_alerts.alerting.gpu import GPU
from llm_serving_alerts.alerting.identity import IDENTITY, SIGNALS
from llm_serving_alerts.alerting.kv import KV, TAIL
from llm_serving_alerts.alerting.node_loss import NODE_LOSS
from llm_serving_alerts.alerting.phases import OUTLIERS, PHASES
from llm_serving_alerts.alerting.slo import SLO
from llm_serving_alerts.declare import Alert

ALERTS: tuple[Alert, ...] = (
    *PHASES,
    *OUTLIERS,
    *SLO,
    *KV,
    *TAIL,
    *NODE_LOSS,
    *COST,
    *GPU,
    *IDENTITY,
    *EVALUATION,
    *EXPORTERS_ALERTS,
    *EXPORTER,
    *SIGNALS,
)
