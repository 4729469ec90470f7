"""Expressions that look at a moment that has passed, where samples arrive late: by remote write, or from a store that several write to.

Scraped series are looked at that much earlier, and so is the clock. What rules have recorded is not: it is as old already.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import lru_cache

from llm_serving_alerts.layout import write_lines
from llm_serving_alerts.promql import seconds_text
from llm_serving_alerts.promql_tree import Binary, Call, Leaf, Node, Noted, Unary, parse
from llm_serving_exporter.settings.kinds import parse_duration

_OFFSET = re.compile(r" offset (\S+)")
_RECORDED = re.compile(r"[a-z_]+:")


@lru_cache(maxsize=4096)
def delay_expression(expression: str, seconds: float) -> str:
    """The expression as it was so many seconds ago, laid out, with its comments."""
    return write_lines(_delay(parse(expression), seconds))


def _delay(node: Node, seconds: float) -> Node:
    match node:
        case Leaf() if node.is_selector and not _RECORDED.match(node.text):
            return replace(node, suffix=_later(node.suffix, seconds))
        case Call() if node.head == "time" and not node.arguments:
            return Call("", (Binary(node, "-", "-", Leaf(f"{seconds:g}")),))
        case Call():
            return replace(node, arguments=tuple(_delay(one, seconds) for one in node.arguments))
        case Unary() | Noted():
            return replace(node, operand=_delay(node.operand, seconds))
        case Binary():
            return replace(node, left=_delay(node.left, seconds), right=_delay(node.right, seconds))
        case _:
            return node


def _later(suffix: str, seconds: float) -> str:
    """The range and offset of a selector with the delay added."""
    found = _OFFSET.search(suffix)
    if found is None:
        return f"{suffix} offset {seconds_text(seconds)}"
    return suffix.replace(found[0], f" offset {seconds_text(parse_duration(found[1]) + seconds)}")
