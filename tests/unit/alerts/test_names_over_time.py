"""No rule takes a function over time of what has one name now and another then.

Prometheus drops the names, finds two series of one label set, and refuses the whole rule.
"""

from __future__ import annotations

from collections.abc import Iterator

from llm_serving_alerts.promql_tree import Binary, Call, Leaf, Node, Noted, Unary, parse
from llm_serving_alerts.render import rule_groups
from llm_serving_alerts.rules import Record
from llm_serving_alerts.settings_file import read_settings
from tests.support.rows import check_rows

_COMPARES = ("==", "!=", ">=", "<=", ">", "<")
# of functions and aggregations, those whose result has the name that it had
_KEEP = ("", "topk", "bottomk", "limitk", "sort", "sort_desc", "label_replace", "label_join", "last_over_time")


def find_names(node: Node) -> set[str]:
    """The names that the series of an expression may have; "" for those without."""
    match node:
        case Leaf():
            return {node.text.split("{")[0]} if node.is_selector else set()
        case Noted():
            return find_names(node.operand)
        case Unary():
            return {""}
        case Call():
            function = node.head.split("(")[0].split(" ")[0]
            return set().union(*map(find_names, node.arguments)) if function in _KEEP else {""}
        case Binary(name="or"):
            return find_names(node.left) | find_names(node.right)
        case Binary(name=name, operator=operator):
            keeps = name in ("and", "unless") or (name in _COMPARES and "bool" not in operator)
            return find_names(node.left) if keeps else {""}


def find_mixed(node: Node) -> Iterator[tuple[str, set[str]]]:
    """Calls over the moments of a subquery whose series have several names."""
    match node:
        case Call():
            for argument in node.arguments:
                over_time = isinstance(argument, Call) and ":" in argument.tail and "[" in argument.tail
                if over_time and len(names := find_names(argument)) > 1:
                    yield node.head, names
                yield from find_mixed(argument)
        case Unary() | Noted():
            yield from find_mixed(node.operand)
        case Binary():
            yield from find_mixed(node.left)
            yield from find_mixed(node.right)


@check_rows(
    ("expression", "mixed"),
    [
        ("max_over_time((a or on (target) b)[10m:1m])", True),
        ("max_over_time((a > 1 or b:c unless d)[10m:1m])", True),
        ("max_over_time((max by (target) (a) or on (target) max by (target) (b))[10m:1m])", False),
        ("sum_over_time((a * 0 + 1 or b * 0)[10m:1m])", False),
        ("max_over_time((a or a)[10m:1m])", False),
    ],
)
def test_it_is_found(expression: str, *, mixed: bool) -> None:
    assert bool(list(find_mixed(parse(expression)))) == mixed


def test_no_rule_mixes_names_over_time() -> None:
    found = {
        rule.record if isinstance(rule, Record) else rule.alert: list(find_mixed(parse(rule.expr)))
        for groups in rule_groups(read_settings(None)[0]).values()
        for group in groups
        for rule in group.rules
    }
    assert len(found) > 100
    assert {name: mixed for name, mixed in found.items() if mixed} == {}
