"""A settings file -> its tree, or the reason why not: YAML and JSON. Safe for any text: bounded in size, depth and aliases."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from llm_serving_exporter.model.record import Struct, field
from llm_serving_exporter.settings.problems import InvalidValueError, Node, Place, Scalar, shown

DEEPEST_LEVEL = 32  # Our deepest setting is 6 levels down. The bound keeps hostile nesting from exhausting the stack.
MOST_NODES = 400_000  # Aliases included, so that a "billion laughs" file ends here.


# --- JSON --------------------------------------------------------------------------------------------------------------


def parse_json(text: str, place: Place, what: str = "the file") -> Node | None:
    """The tree of a JSON text; None where it is not usable, which is then reported at `place`. `what` the text is, for messages."""

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        members = dict(items)
        if len(members) != len(items):
            twice = Counter(key for key, _ in items).most_common(1)[0][0]
            raise InvalidValueError(f"the key {shown(twice)} is given twice in one object", "Keep one of them.")
        return members

    def number(literal: str) -> Scalar:
        return Scalar(literal, "a number")

    try:
        value = json.loads(text, object_pairs_hook=pairs, parse_int=number, parse_float=number, parse_constant=number)
        return _from_json(value, 0, what)
    except InvalidValueError as error:
        place.refuse(error.what, error.fix)
    except json.JSONDecodeError as error:
        fault = find_fault(error)
        where = f"line {fault.lineno}, column {fault.colno}"
        place.refuse(f"this is not JSON at {where}: {fault.msg}", "Check brackets, commas and quotes.")
    except RecursionError:
        place.refuse(f"{what} is nested more than {DEEPEST_LEVEL} levels deep", "No setting is that deep.")
    return None


def find_fault(error: json.JSONDecodeError) -> json.JSONDecodeError:
    """The same fault at the same place in the same words on every Python: of a comma in front of a closing bracket 3.13 names the comma,
    those before it name the bracket, where they expect something."""
    at = error.pos
    if error.msg.startswith("Illegal trailing comma"):
        at = len(error.doc) - len(error.doc[at + 1 :].lstrip())
    if error.doc[at : at + 1] in ("]", "}") and error.doc[:at].rstrip().endswith(","):
        return json.JSONDecodeError("a comma before the closing bracket", error.doc, at)
    return error


def _from_json(value: Any, level: int, what: str) -> Node:
    if level > DEEPEST_LEVEL:
        raise InvalidValueError(f"{what} is nested more than {DEEPEST_LEVEL} levels deep", "No setting is that deep.")
    if isinstance(value, dict):
        return {key: _from_json(item, level + 1, what) for key, item in value.items()}
    if isinstance(value, list):
        return [_from_json(item, level + 1, what) for item in value]
    if isinstance(value, str):
        return Scalar(value, "text")
    if isinstance(value, bool):
        return Scalar("true" if value else "false", "true or false")
    if value is None:
        return Scalar("null", "nothing")
    assert isinstance(value, Scalar)
    return value


# --- YAML --------------------------------------------------------------------------------------------------------------

try:
    from yaml import CSafeLoader as _Loader
except ImportError:  # a PyYAML that was built without libyaml
    from yaml import SafeLoader as _Loader  # type: ignore[assignment]  # PyYAML without libyaml
_KINDS = {
    "str": "text",
    "int": "a number",
    "float": "a number",
    "bool": "true or false",
    "null": "nothing",
    "timestamp": "a date",
    "merge": "text",
    "value": "text",
}
_TAG = "tag:yaml.org,2002:"


class _OpenNode(Struct):
    """A mapping or list whose end has not been read yet."""

    node: dict[str, Node] | list[Node]
    anchor: str | None  # its name where the text gives it one (&…)
    place: Place
    size: int = 1  # how many values it holds, aliases counted
    key: str | None = None  # of a mapping: the key whose value comes next
    key_lines: dict[str, int] = field(default_factory=dict)
    merged: list[dict[str, Node]] = field(default_factory=list)


def parse_yaml(text: str, place: Place) -> Node | None:
    """The tree of a YAML text; None where it is not usable, which is then reported at `place`.

    An empty text is like an explicit null. A key given twice is reported too; its first value is the one in the tree.

    Events are read one by one instead of composing nodes: PyYAML's C composer recurses and ends the process with a
    segmentation fault on deep nesting.
    """
    try:
        loader = _Loader(text)
        try:
            return _Builder(loader, place).build()
        finally:
            loader.dispose()
    except InvalidValueError as error:
        place.refuse(error.what, error.fix)
    except yaml.MarkedYAMLError as error:
        _refuse_syntax(error, text, place)
    except yaml.YAMLError as error:
        what = re.sub(r"\s+", " ", str(error))
        place.refuse(f"this is not YAML: {what}", "Remove control characters and save the file as UTF-8 text.")
    return None


def _too_deep(line: int) -> tuple[str, str]:
    """What is wrong, and what to do. PyYAML 6.0.4 and newer look ahead, and refuse a thousand levels before we see the first."""
    return f"line {line} is nested more than {DEEPEST_LEVEL} levels deep", "No setting is that deep."


def _refuse_syntax(error: yaml.MarkedYAMLError, text: str, place: Place) -> None:
    mark = error.problem_mark or error.context_mark
    line, column = (mark.line, mark.column) if mark else (0, 0)
    lines = text.splitlines()
    whole = lines[line] if line < len(lines) else ""
    rest = whole[column:]
    where = f"line {line + 1}, column {column + 1}"
    problem = error.problem or "syntax error"
    if "nesting depth" in problem:
        place.refuse(*_too_deep(line + 1))
        return
    if rest.startswith("\t") or re.match(r"\s*\t", whole):
        place.refuse(f"a tab at {where}", "YAML indents with spaces only.")
        return
    if "mapping values are not allowed" in problem:
        fix = "Check the indentation, and put a text that contains a colon and a space in quotes."
    elif "cannot start any token" in problem or rest.startswith(":"):
        fix = f"Put a text that starts with {rest[:1]} in quotes."
    else:
        problem = f"{error.context}, {problem}" if error.context else problem
        fix = "Check indentation, brackets and quotes."
    place.refuse(f"this is not YAML at {where}: {problem}", fix)


class _Builder:
    """Reads events and keeps the open mappings and lists on a stack of its own."""

    def __init__(self, loader: Any, place: Place) -> None:
        self._loader = loader
        self._place = place
        self._stack: list[_OpenNode] = []
        self._anchors: dict[str, tuple[Node, int]] = {}
        self._root: Node | None = None
        self._nodes = 0

    def build(self) -> Node | None:
        documents = 0
        while self._loader.check_event():
            event = self._loader.get_event()
            line = event.start_mark.line + 1
            match event:
                case yaml.DocumentStartEvent():
                    documents += 1
                    if documents > 1:
                        raise InvalidValueError(
                            f"a second document starts at line {line}", "Keep one document and remove ---."
                        )
                case yaml.MappingStartEvent():
                    self._open({}, event.anchor, line)
                case yaml.SequenceStartEvent():
                    self._open([], event.anchor, line)
                case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                    self._close()
                case yaml.ScalarEvent():
                    self._add(self._scalar(event, line), 1, event.anchor, line)
                case yaml.AliasEvent():
                    if event.anchor not in self._anchors:
                        # the name is not shown: it may be a password that starts with *
                        raise InvalidValueError(
                            f"line {line} uses an alias (*…) that no anchor (&…) before it defines",
                            "Put a text that starts with * in quotes.",
                        )
                    node, size = self._anchors[event.anchor]
                    self._add(node, size, None, line)
        # a text without any value is like an explicit null
        return Scalar("", "nothing") if self._root is None else self._root

    def _scalar(self, event: yaml.ScalarEvent, line: int) -> Scalar:
        tag = event.tag
        if tag is None or tag == "!":
            tag = self._loader.resolve(yaml.ScalarNode, event.value, event.implicit)
        kind = _KINDS.get(tag.removeprefix(_TAG)) if tag.startswith(_TAG) else None
        if kind is None:
            raise InvalidValueError(f"line {line} has a tag (!…) that is not known here", "Remove it.")
        return Scalar(event.value, kind)

    def _open(self, node: dict[str, Node] | list[Node], anchor: str | None, line: int) -> None:
        if len(self._stack) >= DEEPEST_LEVEL:
            raise InvalidValueError(*_too_deep(line))
        if self._stack and isinstance(self._stack[-1].node, dict) and self._stack[-1].key is None:
            raise InvalidValueError(f"line {line} has a list or mapping as a key", "Write a word before the colon.")
        self._stack.append(_OpenNode(node, anchor, self._here()))

    def _here(self) -> Place:
        if not self._stack:
            return self._place
        top = self._stack[-1]
        return top.place.item(len(top.node)) if isinstance(top.node, list) else top.place.key(top.key or "")

    def _close(self) -> None:
        frame = self._stack.pop()
        if isinstance(frame.node, dict):
            for source in frame.merged:
                for key, value in source.items():
                    frame.node.setdefault(key, value)
        self._add(frame.node, frame.size, frame.anchor, 0)

    def _add(self, node: Node, size: int, anchor: str | None, line: int) -> None:
        if anchor is not None:
            self._anchors[anchor] = (node, size)
        self._nodes += 1
        if not self._stack:
            self._root = node
            return
        top = self._stack[-1]
        top.size += size
        if max(top.size, self._nodes) > MOST_NODES:
            raise InvalidValueError(
                f"the file holds more than {MOST_NODES} values, counting its aliases", "Use fewer aliases."
            )
        if isinstance(top.node, list):
            top.node.append(node)
        elif top.key is None:
            self._key(top, node, line)
        elif top.key == "<<":
            self._merge(top, node)
        elif top.key in top.node:
            top.key = None  # reported with its key
        else:
            top.node[top.key] = node
            top.key = None

    @staticmethod
    def _key(top: _OpenNode, node: Node, line: int) -> None:
        if not isinstance(node, Scalar):
            raise InvalidValueError(f"line {line} has a list or mapping as a key", "Write a word before the colon.")
        top.key = node.text
        if node.text in top.key_lines:
            first = top.key_lines[node.text]
            what = f"the key is given twice (lines {first} and {line})"
            top.place.key(node.text).refuse(what, "Keep one of them.")
        top.key_lines[node.text] = line

    @staticmethod
    def _merge(top: _OpenNode, node: Node) -> None:
        sources = node if isinstance(node, list) else [node]
        for source in sources:
            if not isinstance(source, dict):
                raise InvalidValueError(
                    "<< merges something that is not a mapping", "Merge an alias of a mapping, as in <<: *base."
                )
            top.merged.append(source)
        top.key = None


# --- files -------------------------------------------------------------------------------------------------------------

LARGEST_FILE_BYTES = 2**20


def read_bounded(path: Path) -> str:
    """The text of a file, at most one byte above the limit. Raises OSError, UnicodeDecodeError."""
    with path.open("rb") as file:
        return file.read(LARGEST_FILE_BYTES + 1).decode("utf-8-sig", errors="strict")


def read_document(path: str, place: Place, read: Callable[[Path], str] = read_bounded) -> Node | None:
    """The tree of the file at `path`; None where the file cannot be used, which is then reported at `place`."""
    try:
        text = read(Path(path))
    except (OSError, ValueError) as error:
        place.refuse(*_explain_unread(error))
        return None
    if len(text.encode(errors="replace")) > LARGEST_FILE_BYTES:
        place.refuse(*_TOO_LARGE)
        return None
    return parse_json(text, place) if path.lower().endswith(".json") else parse_yaml(text, place)


_TOO_LARGE = "the file is larger than 1 MiB", "Split its targets over files of file_sd."


def _explain_unread(error: OSError | ValueError) -> tuple[str, str]:
    match error:
        case FileNotFoundError():
            return "the file does not exist", "Check the path."
        case IsADirectoryError():
            return "this is a folder", "Give the path of a file."
        case UnicodeDecodeError():
            # a text cut at the limit may end within a character
            cut = error.end >= LARGEST_FILE_BYTES
            return _TOO_LARGE if cut else (f"byte {error.start} is not UTF-8", "Save the file as UTF-8 text.")
    cause = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return f"the file cannot be read: {cause}", "Check its path and permissions."
