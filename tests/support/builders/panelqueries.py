"""Queries of panels as Grafana sends them."""

from __future__ import annotations

import re


def filled(expression: str, rate_interval: str = "4m") -> str:
    """Where the viewer chose nothing. `rate_interval`: four scrapes; the simulated hours have a sample a minute."""
    return re.sub(r"\$\{?[a-z]\w*\}?", ".*", expression.replace("$__rate_interval", rate_interval))
