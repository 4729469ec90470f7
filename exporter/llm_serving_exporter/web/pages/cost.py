"""What a target costs, as HTML: the price in force, the unit costs of the window, and where the money went since the exporter started."""

from __future__ import annotations

from markupsafe import Markup

from llm_serving_exporter.model.cost import CostPhase, EngineCost, TargetCost
from llm_serving_exporter.model.numbers import add_up
from llm_serving_exporter.model.reading import TargetReading
from llm_serving_exporter.render.html import NO_MARKUP, fill, header, row, table
from llm_serving_exporter.render.numbers import NOTHING, describe_price, describe_split, share, span, usd_to_the_cent

MOST_ROWS = 64
_COLUMNS = (
    "prefill, $/M", "decode, $/M", "blended, $/M", "$/request", "spent", "prefill", "decode", "idle", "down", "other",
)  # fmt: skip


def render_cost(reading: TargetReading, *, fresh: bool) -> Markup:
    """Nothing where the target has no price and never had one. `fresh`: whether figures of the window are shown."""
    found = reading.cost
    if found is None or not any(one.totals.usd for one in found.engines):
        return NO_MARKUP
    rows = [row(_name(one, found), _cells(one, fresh=fresh)) for one in found.engines[:MOST_ROWS]]
    return table(header("cost", _COLUMNS), rows) + fill('<p class="facts">{}</p>', _basis(reading, found))


def _name(one: EngineCost, found: TargetCost) -> str:
    return one.model_name or "?" if len(found.engines) == 1 else f"{one.model_name or '?'} / {one.engine}"


def _cells(one: EngineCost, *, fresh: bool) -> list[str]:
    each = one.window.usd_per_million_tokens if fresh else {}
    by_phase: dict[str, float] = {}
    for (phase, _rate, _method), amount in one.totals.usd.items():
        by_phase[phase] = by_phase.get(phase, 0.0) + amount
    everything = add_up(by_phase.values())
    return [
        *(usd_to_the_cent(each.get((phase, "allocated"))) for phase in ("prefill", "decode", "blended")),
        usd_to_the_cent(one.window.usd_per_request if fresh else None),
        usd_to_the_cent(everything),
        *(share(by_phase.get(phase.value, 0.0) / everything) if everything > 0 else NOTHING for phase in CostPhase),
    ]


def _basis(reading: TargetReading, found: TargetCost) -> str:
    now = describe_price(reading, found) or "no price is in force now"
    window = span(reading.derived.window_seconds) if reading.derived is not None else "a window"
    return (
        f"{now}; per million tokens and per request over {window}, idle time included; spent since the exporter started; "
        f"{describe_split(found)}: {found.inputs}"
    )
