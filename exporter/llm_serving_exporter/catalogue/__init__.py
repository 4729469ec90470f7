"""What we publish: every exported metric declared once, one tuple of all.

The tuple is made when somebody asks for it: a command that only reads the configuration needs none of the metrics.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from llm_serving_exporter.catalogue.spec import Metric

    METRICS: tuple[Metric, ...]
    BY_NAME: dict[str, Metric]
    PUBLISHED: dict[str, Metric]


def __getattr__(name: str) -> Any:
    """METRICS; BY_NAME: the same by name without the prefix; PUBLISHED: the same by their whole name, and by former names that still stand."""
    if name not in ("METRICS", "BY_NAME", "PUBLISHED"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from llm_serving_exporter.catalogue.cost import COSTS, TENANTS
    from llm_serving_exporter.catalogue.derived import DERIVED
    from llm_serving_exporter.catalogue.gpu import GPU
    from llm_serving_exporter.catalogue.health import HEALTH
    from llm_serving_exporter.catalogue.roofline import ROOFLINE
    from llm_serving_exporter.catalogue.serving import SERVING

    metrics = (*SERVING, *DERIVED, *ROOFLINE, *COSTS, *TENANTS, *GPU, *HEALTH)
    former = (metric.former for metric in metrics if metric.former is not None)
    globals().update(
        METRICS=metrics,
        BY_NAME={metric.name: metric for metric in metrics},
        PUBLISHED={metric.full_name: metric for metric in (*metrics, *former)},
    )
    return globals()[name]
