"""Series of the check cost, in promtool's notation. Money is slow: most histories have a sample every five minutes."""

from __future__ import annotations

from tests.pack.builders import NOTHING, held, of_model

EVERY = "5m"
HOUR = 12  # samples
DAY = 24 * HOUR


def recorded(model: str, name: str, values: str, role: str = "unified", extra: str = "") -> dict[str, str]:
    """What a rule recorded of a model."""
    return {f"model:llm_serving_{name}{{{of_model(model, role)}{extra}}}": values}


def labels(model: str, role: str = "unified") -> dict[str, str]:
    """Those of an alert of a model."""
    return {"model_name": model, "role": role}


def variables(model: str, role: str = "unified") -> str:
    """What the dashboard's address of such an alert ends with."""
    return f"var-model_name={model}&var-role={role}"


def with_gap(value: float, before: int, gap: int, after: int) -> str:
    """A series that ends and comes back: the exporter restarts, and nothing carries over."""
    return f"{held((before, value))} stale {NOTHING}x{gap - 1} {held((after, value))}"
