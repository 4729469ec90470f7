"""JSON text -> the same tree as YAML becomes, or the reason why not."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from llm_serving_exporter.schema.problems import InvalidValueError, Place, shown
from llm_serving_exporter.schema.tree import DEEPEST_LEVEL, Node, Scalar


def parse_json(text: str, place: Place, what: str = "the file") -> Node | None:
    """The tree of a JSON text; None where it is not usable, which is then reported at `place`. `what` the text is, for messages."""

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(items)
        if len(found) != len(items):
            twice = Counter(key for key, _ in items).most_common(1)[0][0]
            raise InvalidValueError(f"the key {shown(twice)} is given twice in one object", "Keep one of them.")
        return found

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
