"""What a target costs -> series. Totals are there in every state of the target: a dead engine still costs."""

from __future__ import annotations

from llm_serving_exporter.catalogue import cost as names
from llm_serving_exporter.catalogue import health
from llm_serving_exporter.expose.families import Families
from llm_serving_exporter.expose.labels import NO_LABELS, SharedLabels
from llm_serving_exporter.model.cost import (
    Attribution,
    EngineCost,
    EngineTotals,
    PriceBook,
    Storage,
    StorageReport,
    WindowCost,
)
from llm_serving_exporter.model.reading import TargetReading


def add_cost(families: Families, reading: TargetReading, *, fresh: bool) -> None:
    """Adds the series of one target's cost. `fresh`: whether figures of the window are shown."""
    found = reading.cost
    if found is None:
        return
    of_target = families.of_target(reading.target)
    if found.busy_source is not None:
        families.add_value(names.GPU_BUSY_SOURCE, of_target, 1.0, source=found.busy_source.value)
    for one in found.engines:
        labels = of_target.with_labels(model_name=one.model_name, engine=one.engine, role=one.role)
        _totals(families, one.totals, labels)
        if fresh:
            _window(families, one.window, labels, found.method.value)
            _attribution(families, one, labels, found.method.value, found.inputs)
    if found.price is not None and reading.gpus.total is not None:
        rate, gpu_name = found.price.rate.name, reading.gpus.total.name
        families.add_value(names.PRICE, of_target, found.price.usd_per_gpu_hour, gpu_name=gpu_name, rate=rate)


def _totals(families: Families, totals: EngineTotals, labels: SharedLabels) -> None:
    seconds, usd = totals.gpu_seconds, totals.usd
    families.add_values(names.GPU_SECONDS, labels, ("state", "rate"), list(seconds), seconds.values())
    families.add_values(names.COST, labels, ("phase", "rate", "method"), list(usd), usd.values())
    families.add_value(names.ENERGY, labels, totals.energy_joules)
    families.add_value(names.ENERGY_COST, labels, totals.energy_usd)
    families.add_value(names.CARBON, labels, totals.carbon_grams)
    families.add_value(names.SAVINGS, labels, totals.savings_usd)


def _window(families: Families, window: WindowCost, labels: SharedLabels, method: str) -> None:
    per_million = window.usd_per_million_tokens
    keys = [(*key, method) for key in per_million]
    families.add_values(names.COST_PER_MILLION, labels, ("phase", "basis", "method"), keys, per_million.values())
    families.add_value(names.TOKENS_PER_USD, labels, window.tokens_per_usd)
    families.add_value(names.COST_PER_REQUEST, labels, window.usd_per_request)
    families.add_value(names.ENERGY_PER_TOKEN, labels, window.joules_per_token)


def _attribution(families: Families, one: EngineCost, labels: SharedLabels, method: str, inputs: str) -> None:
    if one.totals.usd:
        families.add_info(names.ATTRIBUTION, labels, method=method, inputs=inputs)


def add_price_book(families: Families, prices: PriceBook | None, how: Attribution) -> None:
    """Adds what the price file says about no target in particular: rates, budget, efficiency."""
    if prices is None:
        return
    eta = {"compute": how.efficiency.compute, "bandwidth": how.efficiency.bandwidth}
    families.add_by_label(names.EFFICIENCY, NO_LABELS, "ceiling", eta)
    for rate in prices.rates:
        includes = "true" if rate.includes_power else "false"
        families.add_info(names.RATE_INFO, NO_LABELS, rate=rate.name, kind=rate.kind.value, includes_power=includes)
        families.add_value(names.COMMITTED_GPUS, NO_LABELS, rate.committed_gpus, rate=rate.name)
    families.add_value(names.BUDGET, NO_LABELS, prices.budget_usd_per_month)


def add_storage(families: Families, report: StorageReport) -> None:
    """Adds where the counters of cost are safe."""
    by_storage = {one.value: one is report.storage for one in Storage}
    families.add_by_label(health.COST_STORAGE, NO_LABELS, "storage", by_storage)
    families.add_value(health.COST_SNAPSHOT_TIME, NO_LABELS, report.snapshot_unix_seconds)
    families.add_value(health.COST_SNAPSHOT_FAILURES, NO_LABELS, report.failures_total)
