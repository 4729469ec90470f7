"""PromQL taken apart into operators and operands, with the comments that belong to each, and laid out over several lines.

As much of it is known as rules and dashboards are written in, with Grafana's variables where numbers stand.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

# --- PromQL taken apart into operators and operands, with the comments that belong to each: as much of it as rules and dashboards are
# written in, with Grafana's variables where numbers stand.

_QUOTED = r""""(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|`[^`]*`"""
_TOKEN = re.compile(
    rf"""\s*(?:(?P<comment>\#[^\n]*)
    |(?P<string>{_QUOTED})
    |(?P<matchers>\{{(?:[^"'`}}]|{_QUOTED})*\}})
    |(?P<range>\[[^\]]*\])
    |(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?(?:[a-zA-Z]\w*)?|\$\w+)
    |(?P<name>[a-zA-Z_:][\w:]*)
    |(?P<sign>==|!=|>=|<=|[-+*/%^<>(),@]))""",
    re.VERBOSE,
)
# from the loosest on; ^ binds to the right, which changes nothing of where lines end
BINDS = {"or": 1, "and": 2, "unless": 2, "==": 3, "!=": 3, ">=": 3, "<=": 3, ">": 3, "<": 3}
BINDS |= {"+": 4, "-": 4, "*": 5, "/": 5, "%": 5, "atan2": 5, "^": 6}
_MATCHINGS, _SIDES, _GROUPINGS = ("on", "ignoring"), ("group_left", "group_right"), ("by", "without")
_NUMBERS = ("inf", "nan")


@dataclass(frozen=True, slots=True)
class Leaf:
    """What is never broken: a number, a string, or a selector."""

    text: str  # without the range and offset of a selector
    suffix: str = ""  # `[5m] offset 1h`
    is_selector: bool = False  # whether it reads series


@dataclass(frozen=True, slots=True)
class Call:
    """A function, an aggregation, or plain parentheses."""

    head: str  # `sum by (le) `, `rate`, "" for parentheses
    arguments: tuple[Node, ...]  # one for parentheses
    tail: str = ""  # `[1d:1h] offset 1h`, ` by (le)` where it was written behind


@dataclass(frozen=True, slots=True)
class Unary:
    """A sign before an operand."""

    sign: str  # + or -
    operand: Node  # what it stands before


@dataclass(frozen=True, slots=True)
class Binary:
    """Two operands."""

    left: Node  # what stands before it
    name: str  # of the operator
    operator: str  # with its modifiers: `* on (target) group_left ()`
    right: Node  # what stands behind it
    notes: tuple[str, ...] = ()  # said of the operator and its right operand


@dataclass(frozen=True, slots=True)
class Noted:
    """An operand with what is said of it."""

    notes: tuple[str, ...]  # comments with their #
    operand: Node  # what they stand above


Node = Leaf | Call | Unary | Binary | Noted


# a text is asked for again wherever another dashboard or other settings have it too
@lru_cache(maxsize=4096)
def strip_comments(expression: str) -> str:
    """An expression on one line without its comments."""
    return write_flat(parse(expression))


def parse(expression: str) -> Node:
    """An expression as operators and operands. Raises ValueError for anything else."""
    reader = _Reader(expression)
    node = reader.read_expression()
    if reader.word or reader.notes:
        raise ValueError(f"{reader.word or reader.notes[0]!r} belongs to nothing in {expression!r}")
    return node


def list_selectors(node: Node) -> Iterator[Leaf]:
    """Every operand that reads series, from left to right."""
    match node:
        case Leaf():
            yield from (node,) if node.is_selector else ()
        case Call():
            for argument in node.arguments:
                yield from list_selectors(argument)
        case Unary() | Noted():
            yield from list_selectors(node.operand)
        case Binary():
            yield from list_selectors(node.left)
            yield from list_selectors(node.right)


def change_selectors(node: Node, change: Callable[[Leaf], Node]) -> Node:
    """The same with something else in place of every operand that reads series."""
    match node:
        case Leaf():
            return change(node) if node.is_selector else node
        case Call():
            return replace(node, arguments=tuple(change_selectors(one, change) for one in node.arguments))
        case Unary() | Noted():
            return replace(node, operand=change_selectors(node.operand, change))
        case Binary():
            left, right = (change_selectors(one, change) for one in (node.left, node.right))
            return replace(node, left=left, right=right)


def add_matcher(expression: str, matcher: str, has: Callable[[str], bool] = lambda _name: True) -> str:
    """An expression on one line with one more matcher in every selector. `has`: whether series of a name have what is matched; selectors of
    others stay as they are."""

    def narrow(leaf: Leaf) -> Leaf:
        name, _, matchers = leaf.text.removesuffix("}").partition("{")
        if not has(name):
            return leaf
        return replace(leaf, text=f"{name}{{{','.join(filter(None, (matchers, matcher)))}}}")

    return write_flat(change_selectors(parse(expression), narrow))


def write_flat(node: Node) -> str:
    """On one line, without comments."""
    match node:
        case Leaf():
            return node.text + node.suffix
        case Call():
            return f"{node.head}({', '.join(map(write_flat, node.arguments))}){node.tail}"
        case Unary():
            return node.sign + write_flat(node.operand)
        case Binary():
            return f"{write_flat(node.left)} {node.operator} {write_flat(node.right)}"
        case Noted():
            return write_flat(node.operand)


class _Reader:
    """Takes an expression apart from left to right."""

    def __init__(self, expression: str) -> None:
        self._expression = expression
        self._tokens = self._read_tokens()
        self.word, self.kind = "", ""  # that comes next; "" at the end
        self.notes: tuple[str, ...] = ()  # that stood before it
        self._advance()

    def read_expression(self, loosest: int = 1) -> Node:
        left = self._operand()
        while (binds := BINDS.get(self.word, 0)) >= loosest:
            before, self.notes = self.notes, ()
            name, operator = self.word, self._operator()
            notes, self.notes = (*before, *self.notes), ()
            left = Binary(left, name, operator, self.read_expression(binds + 1), notes)
        return left

    def _read_tokens(self) -> Iterator[tuple[str, str]]:
        position, text = 0, self._expression.rstrip()
        while position < len(text):
            token = _TOKEN.match(text, position)
            if token is None:
                raise ValueError(f"no PromQL at {text[position : position + 20]!r} of {text!r}")
            kind = str(token.lastgroup)
            yield token[kind], kind
            position = token.end()

    def _advance(self) -> str:
        taken = self.word
        for word, kind in self._tokens:
            if kind == "comment":
                self.notes += (word,)
                continue
            self.word, self.kind = word, kind
            return taken
        self.word, self.kind = "", ""
        return taken

    def _take_sign(self, expected: str) -> None:
        if self.word != expected:
            raise ValueError(f"{expected!r} is missing before {self.word!r} in {self._expression!r}")
        self._advance()

    def _operator(self) -> str:
        parts = [self._advance()]
        if self.word == "bool":
            parts.append(self._advance())
        for words in (_MATCHINGS, _SIDES):
            if self.word in words:
                parts.append(self._advance())
                if self.word == "(":
                    parts.append(self._labels())
        return " ".join(parts)

    def _labels(self) -> str:
        self._take_sign("(")
        names = []
        while self.word != ")":
            names.append(self._advance())
            if self.word == ",":
                self._advance()
            elif not self.word:
                break
        self._take_sign(")")
        return f"({', '.join(names)})"

    def _operand(self) -> Node:
        notes, self.notes = self.notes, ()
        node = self._unnoted()
        return Noted(notes, node) if notes else node

    def _unnoted(self) -> Node:
        if self.word in ("+", "-"):
            # a power binds tighter than a sign
            return Unary(self._advance(), self.read_expression(BINDS["^"]))
        if self.word == "(":
            return Call("", self._arguments(), self._suffix())
        token, kind = self.word, self.kind
        if kind not in ("string", "number", "name", "matchers"):
            raise ValueError(f"an operand is missing before {token!r} in {self._expression!r}")
        self._advance()
        if kind == "name" and self.word in _GROUPINGS:
            head = f"{token} {self._advance()} {self._labels()} "
            return Call(head, self._arguments(), self._suffix())
        if kind == "name" and self.word == "(":
            arguments = self._arguments()
            if self.word in _GROUPINGS:
                return Call(token, arguments, f" {self._advance()} {self._labels()}")
            return Call(token, arguments, self._suffix())
        if kind == "name" and self.kind == "matchers":
            token += self._advance()
        is_selector = kind == "matchers" or (kind == "name" and token.lower() not in _NUMBERS)
        return Leaf(token, self._suffix() if is_selector else "", is_selector)

    def _arguments(self) -> tuple[Node, ...]:
        self._take_sign("(")
        arguments: list[Node] = []
        while self.word != ")":
            arguments.append(self.read_expression())
            if self.word == ",":
                self._advance()
            elif self.word != ")":
                break
        if self.notes:
            raise ValueError(f"{self.notes[0]!r} belongs to nothing in {self._expression!r}")
        self._take_sign(")")
        return tuple(arguments)

    def _suffix(self) -> str:
        suffix = ""
        while self.kind == "range" or self.word in ("offset", "@"):
            if self.kind == "range":
                suffix += self._advance()
                continue
            suffix += f" {self._advance()} "
            if self.word == "-":
                suffix += self._advance()
            suffix += self._advance()
            if self.word == "(":  # @ end()
                suffix += self._advance() + self._advance()
        return suffix


# --- PromQL over several lines: one operand a line, indented by depth, with the words of why above what they speak of.
#
# Only white space is put between the tokens: what is laid out means what was written. Prometheus' own formatter does nearly the same, and
# loses the comments.

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
    row = [node]
    while isinstance(left := row[-1].left, Binary) and BINDS[left.name] == BINDS[node.name]:
        row.append(left)
    return row[-1].left, row[::-1]


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
