"""The table of all targets on the page at /, where they are too many for a card each."""

from __future__ import annotations

from urllib.parse import quote

from markupsafe import Markup

from llm_serving_exporter.model.numbers import add_up
from llm_serving_exporter.model.reading import State, TargetReading
from llm_serving_exporter.render.html import badge, fill, header, row, table
from llm_serving_exporter.render.numbers import NOTHING, count, number, share
from llm_serving_exporter.render.sentences import render_isolated
from llm_serving_exporter.web.pages.clock import Clock

BADGES = {State.READY: "good", State.LOADING: "wait", State.SLEEPING: "calm", State.DOWN: "bad", State.UNKNOWN: "warn"}


def render_overview(targets: tuple[TargetReading, ...], clock: Clock) -> Markup:
    """One row a target, with what its last good page says where that is fresh."""
    columns = (
        "state",
        "engine",
        "model",
        "last page",
        "prefill, tok/s",
        "decode, tok/s",
        "running",
        "waiting",
        "KV cache",
    )
    rows = (row(_link(reading.target.name), _overview_cells_isolated(reading, clock)) for reading in targets)
    return fill(
        '<section class="card" id="targets"><div class="title"><h2>Targets</h2></div>{}</section>',
        table(header("target", columns), rows),
    )


def _link(name: str) -> Markup:
    return fill('<a href="/?target={}">{}</a>', quote(name, safe=""), name)


def list_models(reading: TargetReading) -> str:
    """The models that a target serves: two of them by name, and how many more."""
    engines = reading.snapshot.engines if reading.snapshot is not None else ()
    names = sorted({engine.model_name for engine in engines if engine.model_name}) or [reading.model_name]
    more = f" and {len(names) - 2} more" if len(names) > 2 else ""
    return ", ".join(names[:2]) + more


def _overview_cells_isolated(reading: TargetReading, clock: Clock) -> list[str]:
    state = badge(reading.state.value, BADGES[reading.state])
    return render_isolated(
        f"target {reading.target.name}",
        lambda: _overview_cells(reading, clock),
        lambda why: [state, why, *[NOTHING] * 7],
    )


def _overview_cells(reading: TargetReading, clock: Clock) -> list[str]:
    age = clock.page_age(reading)
    known = [
        badge(reading.state.value, BADGES[reading.state]),
        f"{reading.runtime} {reading.facts.version or ''}".strip() or NOTHING,
        list_models(reading) or NOTHING,
        f"{age} ago" if age else NOTHING,
    ]
    if not clock.fresh(reading) or reading.derived is None or reading.snapshot is None:
        return [*known, *[NOTHING] * 5]
    engines, derived = reading.snapshot.engines, reading.derived.engines

    def total(values: list[float | None]) -> float | None:
        there = [value for value in values if value is not None]
        return add_up(there) if values and len(there) == len(values) else None

    usage = [engine.kv_cache_usage_ratio for engine in engines if engine.kv_cache_usage_ratio is not None]
    fullest = f"{'≤ ' if len(usage) > 1 else ''}{share(max(usage))}" if usage else NOTHING
    return [
        *known,
        number(total([one.phase_tokens_per_second.get("prefill") for one in derived])),
        number(total([one.phase_tokens_per_second.get("decode") for one in derived])),
        count(total([one.requests_running for one in engines])),
        count(total([one.requests_waiting for one in engines])),
        fullest,
    ]
