"""Queries of panels as Grafana sends them."""

import re
from collections.abc import Mapping

from llm_serving_alerts.promql_tree import Leaf, change_selectors, list_selectors, parse, write_flat
from llm_serving_dashboards.queries import ANYBODY, NOTHING, HiddenVariable


def _drop(matcher: str, expression: str) -> str:
    return expression.replace(f",{matcher}", "").replace(f"{{{matcher}}}", "")


def _keep_named(expression: str, matcher: str, label: str, asked: str) -> str:
    """An expression whose selectors with a matcher have only what a question names by a label at the end of the time range. No range can be
    joined with that: then the whole expression is."""
    tree = parse(expression)
    if any(matcher in leaf.text and leaf.suffix.startswith("[") for leaf in list_selectors(tree)):
        return f"({_drop(matcher, expression)}) and on ({label}) ({asked})"
    at_end = write_flat(change_selectors(parse(asked), lambda leaf: Leaf(f"{leaf.text}{leaf.suffix} @ end()")))

    def keep(leaf: Leaf) -> Leaf:
        if matcher not in leaf.text:
            return leaf
        return Leaf(f"({_drop(matcher, leaf.text)}{leaf.suffix} and on ({label}) ({at_end}))")

    return write_flat(change_selectors(tree, keep))


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
        narrowed, expression = expression, _drop(matcher, expression)
        asked = answered(one.query, hidden)
        if one.several:
            expression = _keep_named(narrowed, matcher, one.label, asked)
        else:
            shown = f'label_replace(vector(1), "{one.label}", "{ANYBODY}", "", "")'
            expression = f"({expression}) and on () (({asked}) and on ({one.label}) {shown})"
    return filled(expression)
