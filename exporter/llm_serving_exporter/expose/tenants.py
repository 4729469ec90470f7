"""One front door's counts by tenant -> series."""

from __future__ import annotations

from llm_serving_exporter.catalogue.tenants import TENANTS
from llm_serving_exporter.expose.families import Families
from llm_serving_exporter.model.reading import TargetReading


def add_tenants(families: Families, reading: TargetReading) -> None:
    """A series for each tenant, model and count; none where tenants are off or the page knows none."""
    if reading.page.tenants is None:
        return
    of_target, kind = families.of_target(reading.target), reading.page.tenants.kind.value
    labels = of_target.with_labels(role=reading.role.value, kind=kind)
    for metric in TENANTS:
        counted = [
            ((row.model_name, row.tenant), row.counts[metric.name])
            for row in reading.page.tenants.rows
            if metric.name in row.counts
        ]
        families.add_values(
            metric, labels, ("model_name", "tenant"), [key for key, _ in counted], [value for _, value in counted]
        )
