"""Queries of panels as Grafana sends them."""

from __future__ import annotations

import re


def filled(expression: str, rate_interval: str = "4m") -> str:
    """Where the viewer chose nothing. `rate_interval`: four scrapes; the simulated hours have a sample a minute."""
    return re.sub(r"\$\{?[a-z]\w*\}?", ".*", name_times(expression, rate_interval))


def name_times(expression: str, rate_interval: str, interval: str = "1m") -> str:
    """With Grafana's own variables in place, over an hour."""
    for name, value in (("$__rate_interval", rate_interval), ("$__range", "1h"), ("$__interval", interval)):
        expression = expression.replace(name, value)
    return expression
