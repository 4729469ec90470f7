"""The plain tree that a YAML or JSON file becomes, and its bounds."""

from __future__ import annotations

from typing import TypeAlias

from llm_serving_exporter.model.record import Struct

# Our deepest setting is 6 levels down. The bound keeps hostile nesting from exhausting the stack.
DEEPEST_LEVEL = 32
# Aliases included, so that a "billion laughs" file ends here.
MOST_NODES = 400_000


class Scalar(Struct, frozen=True):
    """A single value."""

    # as it was written
    text: str
    # how YAML or JSON reads it: text, a number, true or false, nothing, a date
    kind: str


Node: TypeAlias = "Scalar | list[Node] | dict[str, Node]"
