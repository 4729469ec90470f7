"""The spend by tenant as rows of the CSV."""

from __future__ import annotations

from collections.abc import Iterator

from llm_serving_review.figures.tenant_costs import TenantCost, TenantSplit

Figure = tuple[str, str, dict[str, str], float | None, str]


def list_tenants(split: TenantSplit | None) -> Iterator[Figure]:
    """Section, item, labels, value, unit: every figure of every tenant and model, then what no tenant explains, and how far gateway and
    engines agree. Nothing where no gateway counts by tenant."""
    if split is None:
        return
    for row in split.rows:
        yield from _list_row("tenants" if row.served else "tenants_external", row)
    for row in split.unexplained:
        labels = {"model_name": row.model_name, "label_value": " / ".join(row.fleet)}
        for item, usd in _list_usd(row):
            yield "tenants_unexplained", item, labels, usd, "USD"
    for scale in split.scales:
        labels = {"model_name": scale.model_name, "label_value": " / ".join(scale.fleet)}
        yield "tenants_scale", "input", labels, scale.prompt, "ratio"
        yield "tenants_scale", "output", labels, scale.decode, "ratio"


def _list_row(section: str, row: TenantCost) -> Iterator[Figure]:
    labels = {
        "tenant": row.tenant,
        "label": row.kind,
        "label_value": " / ".join(row.fleet),
        "model_name": row.model_name,
    }
    cached = "cached_by_mean" if row.cached_is_mean else "cached"
    for item, tokens in (
        ("prompt_as_sent", row.prompt_tokens),
        (cached, row.cached_tokens),
        ("decode", row.decode_tokens),
    ):
        yield section, item, labels, tokens, "tokens"
    yield section, "finished", labels, row.requests, "requests"
    if not row.served:
        return
    for item, usd in _list_usd(row):
        yield section, item, labels, usd, "USD"
    for item, price in (
        ("input_as_sent", row.input_usd_per_million), ("input_not_cached", row.uncached_usd_per_million),
        ("output", row.output_usd_per_million),
    ):  # fmt: skip
        yield section, item, labels, price, "USD per million tokens"


def _list_usd(row: TenantCost) -> Iterator[tuple[str, float]]:
    yield "spend", row.usd
    yield "prefill", row.prefill_usd
    yield "decode", row.decode_usd
    yield "prefill_idle_and_other", row.prefill_rest_usd
    yield "decode_idle_and_other", row.decode_rest_usd
