"""`otlp.resource`: attributes of the resource that series are sent as, named as OpenTelemetry names them."""

from __future__ import annotations

import re

from llm_serving_exporter.schema import kinds
from llm_serving_exporter.schema.context import Context
from llm_serving_exporter.schema.problems import Place, shown
from llm_serving_exporter.schema.reading import is_empty, mapping, value
from llm_serving_exporter.schema.tree import Node

MOST_ATTRIBUTES = 32
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,127}")
_VALUE = kinds.text("value of an attribute", 256)


def read_resource(node: Node | None, place: Place, context: Context) -> tuple[tuple[str, str], ...] | None:
    """Attributes by name; None where the key is not given. What is wrong is reported."""
    if node is None or is_empty(node):
        return None
    found = {}
    names = node.keys() if isinstance(node, dict) else ("service.name",)
    for name, content in mapping(node, place, names).items():
        at = place.key(name)
        if not _NAME.fullmatch(name):
            at.refuse(f"{shown(name)} is not the name of an attribute", "Write one as in deployment.environment.name.")
        elif (text := value(content, at, _VALUE)) is not None:
            found[name] = text
    if len(found) > MOST_ATTRIBUTES:
        place.refuse(f"{len(found)} attributes are more than {MOST_ATTRIBUTES}", "Keep those that somebody groups by.")
    return tuple(sorted(found.items()))
