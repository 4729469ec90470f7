"""Queries of panels as Grafana sends them."""

from __future__ import annotations

import re
from collections.abc import Mapping

from llm_serving_dashboards.queries import ANYBODY, NOTHING, HiddenVariable


def filled(expression: str, rate_interval: str = "4m") -> str:
    """Where the viewer chose nothing. `rate_interval`: four scrapes; the simulated hours have a sample a minute."""
    return re.sub(r"\$\{?[a-z]\w*\}?", ".*", name_times(expression, rate_interval))


def name_times(expression: str, rate_interval: str, interval: str = "1m") -> str:
    """With Grafana's own variables in place, over an hour."""
    for name, value in (("$__rate_interval", rate_interval), ("$__range", "1h"), ("$__interval", interval)):
        expression = expression.replace(name, value)
    return expression


def answered(expression: str, hidden: Mapping[str, HiddenVariable]) -> str:
    """A query whose selectors have matchers by hidden variables, as one without these, joined with what the variables' queries answer."""
    for name, one in hidden.items():
        matcher = f'{one.label if one.several else NOTHING}=~"${name}"'
        if matcher not in expression:
            continue
        expression = expression.replace(f",{matcher}", "").replace(f"{{{matcher}}}", "")
        asked = answered(one.query, hidden)
        if one.several:
            expression = f"({expression}) and on ({one.label}) ({asked})"
        else:
            shown = f'label_replace(vector(1), "{one.label}", "{ANYBODY}", "", "")'
            expression = f"({expression}) and on () (({asked}) and on ({one.label}) {shown})"
    return filled(expression)
