"""What we publish: every exported metric declared once, one explicit tuple of all."""

from __future__ import annotations

from llm_serving_exporter.catalogue.cost import COSTS
from llm_serving_exporter.catalogue.derived import DERIVED
from llm_serving_exporter.catalogue.gpu import GPU
from llm_serving_exporter.catalogue.health import HEALTH
from llm_serving_exporter.catalogue.roofline import ROOFLINE
from llm_serving_exporter.catalogue.serving import SERVING
from llm_serving_exporter.catalogue.spec import Metric

METRICS: tuple[Metric, ...] = (*SERVING, *DERIVED, *ROOFLINE, *COSTS, *GPU, *HEALTH)
BY_NAME: dict[str, Metric] = {metric.name: metric for metric in METRICS}
