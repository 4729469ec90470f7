"""Every line of every family's rows can be read, whatever a config says: a line that no tested config reaches would fail at a user's."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from llm_serving_exporter.facts.architectures import list_families
from llm_serving_exporter.facts.families import blocks, dense
from llm_serving_exporter.facts.families.blocks import lines
from llm_serving_exporter.facts.shapes import Family
from llm_serving_exporter.model.shape import Part, Span
from tests.support.rows import check_rows

FAMILIES = {name: family for families in list_families() for name, family in families.items()}
PARTS = {part.value for part in Part} | {"side"}
DIFFERENCES = {
    "elements", "kv", "heads", "size", "value", "decode", "prefill", "flops", "top", "ratio", "indexer", "shared"
}  # fmt: skip


def faults(family: Family) -> Iterator[str]:
    """What is wrong with a family's lines, in words."""
    layers = {name for key in family.sizes for name in key.split()} | {"every"}
    for columns in lines(family.rows):
        expressions: list[str] = []
        match columns:
            case ("reads", where, span, *rest):
                places = [where]
                if span.partition(":")[0] not in {span.value for span in Span}:
                    yield f"no span {span}"
                words = {text.partition(" ")[0] for text in rest}
                yield from (f"reads knows no {word}" for word in words - DIFFERENCES)
            case ("state", where, *sizes):
                places, expressions = [where], [size for size in sizes if size != "float32"]
            case ("refuse", condition, _, what):
                places, expressions = [], [condition, *re.findall(r"\{(.+?)\}", what)]
            case ("needs", name):
                places = [name]
            case ("left_out", _, condition):
                places, expressions = [], [condition.removeprefix("if ")]
            case (_, part, shape, *rest):
                if part not in PARTS:
                    yield f"no part {part}"
                expressions = shape.split(" x ")
                options = [text for text in rest if text.partition(" ")[0] in ("bias", "if", "plain")]
                expressions += [text.partition(" ")[2] for text in options if text != "plain"]
                places = [text for text in rest if text not in options]
                if len(places) > 1:
                    yield f"two places: {places}"
            case _:
                yield f"too few columns: {columns}"
                continue
        yield from (f"no layers {place}" for place in places if place.removeprefix("each:") not in layers)
        for text in expressions:
            try:
                ast.parse(text, mode="eval")
            except SyntaxError:
                yield f"no expression: {text}"


@check_rows("name", sorted(name for name, family in FAMILIES.items() if isinstance(family, Family)))
def test_every_line_can_be_read(name: str) -> None:
    assert list(faults(FAMILIES[name])) == []


def test_faults_are_found() -> None:
    """The check above can fail."""
    family = dense.FAMILIES["llama"]
    assert isinstance(family, Family)
    wrong = {
        "a  normm  hidden  every": "no part normm",
        "a  norm  hidden  evry": "no layers evry",
        "a  norm  hidden +  every": "no expression: hidden +",
        "reads  every  fill": "no span fill",
        "reads  every  full  element 2": "reads knows no element",
        "a  norm": "too few columns: ('a', 'norm')",
    }
    for line, fault in wrong.items():
        assert list(faults(Family(rows=line, sizes=family.sizes))) == [fault]


def test_a_block_refuses_a_parameter_that_it_does_not_have() -> None:
    with pytest.raises(KeyError, match="block mlp has no wide"):
        lines("*mlp wide=2")


def test_a_block_hands_what_it_does_not_have_to_the_one_block_in_it_that_has_it() -> None:
    assert "mlp.shared.up_proj" in str(lines("*mixture shared=shared."))
    with pytest.raises(KeyError, match="block mixture has no wide"):
        lines("*mixture wide=2")
    with pytest.raises(KeyError, match="block mixture has several at"):
        lines("*mixture at=mlp.")


def test_no_family_stands_twice() -> None:
    assert len(FAMILIES) == sum(map(len, list_families()))


def test_every_block_is_used() -> None:
    used = {
        block
        for family in FAMILIES.values()
        if isinstance(family, Family)
        for block in re.findall(r"[*=](\w+)", family.rows)
    }
    used |= {block for _, text in blocks.BLOCKS.values() for block in re.findall(r"\*([a-z]\w+)", text)}
    used |= {value for parameters, _ in blocks.BLOCKS.values() for value in parameters.values()}
    assert blocks.BLOCKS.keys() - used == set()
