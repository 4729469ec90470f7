"""The smallest change that a page can show, where it prints numbers with a few digits only."""

from __future__ import annotations

from llm_serving_exporter.model.numbers import resolution
from llm_serving_exporter.model.window import EngineWindow

# a rate whose increase is known no better than this is approximate
COARSE_SHARE = 0.05


def is_coarse(window: EngineWindow, field: str, digits: int | None) -> bool:
    """Whether a counter's increase over the window is known to no better than COARSE_SHARE of it."""
    grown = window.increase(field)
    if digits is None or not grown:
        return False
    step = resolution(getattr(window.last, field), digits)
    # whole numbers below that many digits are printed exactly
    return step > 1 and step > COARSE_SHARE * grown
