"""`once`: what a target costs, for the table and for JSON, from no more than two samples."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llm_serving_exporter.cost.terms import PER_MILLION, PER_REQUEST
from llm_serving_exporter.model.cost import EngineCost, TargetCost
from llm_serving_exporter.model.reading import TargetReading
from llm_serving_exporter.model.snapshot import Absence
from llm_serving_exporter.render.numbers import number, span, usd
from llm_serving_exporter.render.prices import describe_price, describe_split
from llm_serving_exporter.render.sentences import why_absent

_PHASES = ("prefill", "decode", "blended")
# signals that nothing can be said of where the target has not answered: its problem says why
_OF_TOKENS = (PER_MILLION, PER_REQUEST)


def cost_document(reading: TargetReading) -> dict[str, Any] | None:
    """Names as the exported series, without prefix; `signals` has why a figure is absent. None before the first tick."""
    found = reading.cost
    if found is None:
        return None
    gpus, price = reading.gpus.total, found.price
    return {
        "gpus": gpus.count if gpus is not None else None,
        "gpu_name": gpus.name or None if gpus is not None else None,
        "price_usd_per_gpu_hour": price.usd_per_gpu_hour if price is not None else None,
        "rate": price.rate.name if price is not None else None,
        "before_commitments": price is not None and price.before_commitments,
        "method": found.method.value,
        "engines": [_engine_document(one) for one in found.engines],
        "signals": {name: reason.value for name, reason in found.signals.items()},
    }


def _engine_document(one: EngineCost) -> dict[str, Any]:
    each: dict[str, dict[str, float]] = {}
    for (phase, basis), amount in one.window.usd_per_million_tokens.items():
        each.setdefault(phase, {})[basis] = amount
    return {
        "model_name": one.model_name,
        "engine": one.engine,
        "role": one.role,
        "cost_usd_per_million_tokens": each,
        "tokens_per_usd": one.window.tokens_per_usd,
        "cost_usd_per_request_mean": one.window.usd_per_request,
        "energy_joules_per_token": one.window.joules_per_token,
    }


def cost_lines(reading: TargetReading) -> list[str]:
    """Lines for the table: the price in force and each engine's figures. () where the target has no price or did not answer."""
    found = reading.cost
    price = None if found is None else describe_price(reading, found)
    if found is None or price is None or not reading.page.up:
        return []
    lines = [f"\n  cost: {price}; {describe_split(found)}"]
    for one in found.engines:
        rows = _engine_rows(one)
        if rows:
            width = max(len(label) for label, _ in rows)
            lines.append(f"    model {one.model_name or '?'}, engine {one.engine}")
            lines += [f"      {label:<{width}}  {value}" for label, value in rows]
    return lines


def _engine_rows(one: EngineCost) -> list[tuple[str, str]]:
    each, window = one.window.usd_per_million_tokens, one.window
    rows = []
    for phase in _PHASES:
        allocated, busy = each.get((phase, "allocated")), each.get((phase, "busy"))
        if allocated is not None:
            without_idle = f" ({usd(busy)} without idle time)" if usd(busy) != usd(allocated) else ""
            rows.append((phase, f"{usd(allocated)} per million tokens{without_idle}"))
    if not rows and window.tokens_per_usd:
        # what is known without the split that needs the model
        rows.append(
            ("all tokens", f"{usd(1e6 / window.tokens_per_usd)} per million tokens, sent and generated together")
        )
    if window.usd_per_request is not None:
        rows.append(("request, mean", usd(window.usd_per_request)))
    if window.joules_per_token is not None:
        rows.append(("energy", number(window.joules_per_token, "J/token")))
    return rows


def absent_costs(reading: TargetReading) -> Mapping[str, str]:
    """Why each figure of cost is absent: signal -> sentence. Empty where the target did not answer."""
    found = reading.cost
    if found is None or not reading.page.up:
        return {}
    return {signal: _why(signal, why, reading, found) for signal, why in found.signals.items() if why}


def _why(signal: str, why: Absence, reading: TargetReading, found: TargetCost) -> str:
    if signal not in _OF_TOKENS or found.price is None or why not in (Absence.IDLE, Absence.WARMING_UP):
        return why_absent(signal, why, reading.server.missing, reading.gpus.lacks)
    between = (
        f"the {span(reading.page.derived.window_seconds)} between the two samples"
        if reading.page.derived
        else "one sample"
    )
    if why is Absence.IDLE:
        nothing = "no request finished" if signal == PER_REQUEST else "no token was counted"
        return f"In {between} {nothing}, and without one there is no cost of one: try a longer --wait."
    return f"What {between} cost is not split over tokens yet: try a longer --wait."
