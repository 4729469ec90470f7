"""PromQL over several lines: one operand a line, indented by depth, with the words of why above what they speak of.

Only white space is put between the tokens: what is laid out means what was written. Prometheus' own formatter does nearly the same,
and loses the comments.
"""

from __future__ import annotations

from functools import lru_cache

from llm_serving_alerts.promql_tree import BINDS, Binary, Call, Leaf, Node, Noted, Unary, parse, write_flat

WIDTH = 100  # of a line: rule files indent it by eight, and pages show some 110 characters
_INDENT = "  "


# most expressions are the same whatever the settings
@lru_cache(maxsize=4096)
def lay_out(expression: str, width: int = WIDTH) -> str:
    """An expression over as many lines as it needs; its comments stay. Raises ValueError as `parse` does."""
    return write_lines(parse(expression), width)


def write_lines(node: Node, width: int = WIDTH) -> str:
    """The same of what `parse` has made."""
    return "\n".join(_lay(node, width))


def _lay(node: Node, room: int) -> list[str]:
    notes, node = _take_leading_notes(node)
    flat = write_flat(node)
    lines = [flat] if len(flat) <= room and not _has_notes(node) else _break(node, room)
    return [*notes, *lines]


def _break(node: Node, room: int) -> list[str]:
    match node:
        case Call():
            inner = [_lay(argument, room - len(_INDENT)) for argument in node.arguments]
            for lines in inner[:-1]:
                lines[-1] += ","
            return [f"{node.head}(", *(_INDENT + line for lines in inner for line in lines), f"){node.tail}"]
        case Unary():
            return _attach(node.sign, node.operand, room)
        case Binary():
            first, others = _chain(node)
            lines = _lay(first, room)
            if isinstance(first, Binary) and len(lines) > 1:
                # what binds tighter stands deeper
                lines = [_INDENT + line for line in _lay(first, room - len(_INDENT))]
            for one in others:
                lines += [*one.notes, *_attach(f"{one.operator} ", one.right, room)]
            return lines
        case _:
            return [write_flat(node)]


def _attach(prefix: str, operand: Node, room: int) -> list[str]:
    """An operand behind its operator: on the same line, but for one of several lines that binds tighter."""
    flat = write_flat(operand)
    if isinstance(operand, Leaf) or (len(prefix) + len(flat) <= room and not _has_notes(operand)):
        return [prefix + flat]
    if isinstance(operand, Call):
        first, *others = _break(operand, room)
        return [prefix + first, *others]
    return [prefix.rstrip(), *(_INDENT + line for line in _lay(operand, room - len(_INDENT)))]


def _chain(node: Binary) -> tuple[Node, list[Binary]]:
    """The first operand of a row of operators that bind alike, and the others with theirs."""
    found = [node]
    while isinstance(left := found[-1].left, Binary) and BINDS[left.name] == BINDS[node.name]:
        found.append(left)
    return found[-1].left, found[::-1]


def _take_leading_notes(node: Node) -> tuple[tuple[str, ...], Node]:
    """What is said of the first operand, which stands above all of the expression, and the expression without it."""
    if isinstance(node, Noted):
        return node.notes, node.operand
    if isinstance(node, Binary):
        notes, left = _take_leading_notes(node.left)
        return notes, Binary(left, node.name, node.operator, node.right, node.notes)
    return (), node


def _has_notes(node: Node) -> bool:
    match node:
        case Call():
            return any(map(_has_notes, node.arguments))
        case Unary():
            return _has_notes(node.operand)
        case Binary():
            return bool(node.notes) or _has_notes(node.left) or _has_notes(node.right)
        case _:
            return isinstance(node, Noted)
