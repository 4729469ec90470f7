"""Families' rows: that every line can be read, what the evaluator makes of it, and what a config that they do not cover is told."""

import ast
import re
from collections.abc import Iterator
from typing import Any

import pytest

from llm_serving_exporter.errors import FactsError
from llm_serving_exporter.facts.architectures import geometry, list_families
from llm_serving_exporter.facts.families import blocks, dense
from llm_serving_exporter.facts.families.blocks import lines
from llm_serving_exporter.facts.fields import Fields
from llm_serving_exporter.facts.shapes import Family, Look, evaluate
from llm_serving_exporter.model.shape import AttentionLayers, Module, Part, RecurrentLayers, Span
from tests.support.rows import check_rows

CONFIG: dict[str, Any] = {
    "model_type": "acme", "hidden_size": 8, "num_hidden_layers": 3, "vocab_size": 10, "four": 4, "none": None, "nought": 0, "on": True,
    "off": False, "part": {"two": 2, "on": True}, "some": [2], "marks": [0, 1, 1], "marks_of_ten": [10],
}  # fmt: skip
SIZES = {"hidden": "hidden_size", "vocabulary": "vocab_size", "heads": "four", "kv": "2", "head": "hidden//heads"}


def look(**sizes: Any) -> Look:
    family = Family(rows="", sizes={**SIZES, **sizes}, defaults={"by_class": 7})
    return Look(Fields(CONFIG).with_defaults(family.defaults), family)


@check_rows(
    ("text", "value"),
    [
        ("hidden + 2*four - 3", 13),
        ("hidden//3", 2),
        ("hidden % 3", 2),
        ("head**3", 8),
        ("max(four, 9)", 9),
        ("len(every)", 3),
        ("none | four", 4),
        ("missing | 6", 6),
        ("missing | nought | 0", 0),
        ("missing | hidden*2", 16),
        # what a config states goes before a class default
        ("by_class | four", 4),
        ("by_class | missing", 7),
        ("zero(nought)", 0),
        ("part.two", 2),
        ("part.missing | 5", 5),
        ("nowhere.two | 5", 5),
        ("1 if on else 2", 1),
        ("1 if off else 2", 2),
    ],
)
def test_a_size(text: str, value: int) -> None:
    assert look().number(text) == value


@check_rows(
    ("text", "value"),
    [
        ("on", True), ("off", False), ("missing", False), ("flag(missing, True)", True), ("flag(off, True)", False),
        ("flag(part.on)", True), ("has(four)", True), ("has(none)", False), ("not on", False), ("on and off", False),
        ("on or off", True), ("four == 4", True), ("four == 5", False), ("four != 4", False), ("four > 4", False),
        ("four > 3", True), ("four < 4", False), ("four < 5", True), ("zero(nought)", False),
    ],
)  # fmt: skip
def test_a_flag(text: str, value: bool) -> None:
    assert look().flag(text) is value


def test_a_rule_gives_each_of_its_names_a_value_once() -> None:
    asked: list[Look] = []

    def rule(of: Look) -> tuple[int, int]:
        asked.append(of)
        return 1, 2

    both = look(**{"first second": rule})
    assert (both["second"], both["first"], both["second"], len(asked)) == (2, 1, 2, 1)


@check_rows(
    ("text", "fault"),
    [
        ("missing", "missing is missing"),
        ("nought", "nought is 0, not a whole number of at least 1"),
        ("missing | nought | 5", "nought is 0, not a whole number of at least 1"),
        ("nowhere.two", "nowhere is missing"),
        ("four.two", "four is not a table of keys"),
    ],
)
def test_a_size_that_is_not_there_is_refused_by_its_key(text: str, fault: str) -> None:
    with pytest.raises(FactsError, match=fault):
        look().number(text)


@check_rows(
    ("text", "layers"),
    [
        ("True", ((0, 1, 2), ())),
        ("layer % 2 == 0", ((0, 2), (1,))),
        ("layer >= zero(nought) and layer <= 1", ((0, 1), (2,))),
        ("layer in some", ((2,), (0, 1))),
        ("layer not in some", ((0, 1), (2,))),
        ("layer in missing", ((), (0, 1, 2))),
        ("marks[layer]", ((1, 2), (0,))),
        ("marks[layer] == 0 if has(marks) else on", ((0,), (1, 2))),
    ],
)
def test_a_text_of_two_names_splits_the_layers(text: str, layers: tuple[tuple[int, ...], ...]) -> None:
    kinds = look(**{"these others": text})
    assert (kinds["these"], kinds["others"]) == layers


@check_rows(
    ("text", "fault"),
    [
        ("layer in marks_of_ten", r"marks_of_ten has 10, not the index of one of 3 layers"),
        ("marks_of_ten[layer]", r"marks_of_ten has 1 entries for 3 layers"),
        ("missing[layer]", r"missing has 0 entries for 3 layers"),
        ("layer in four", r"four is not a list"),
    ],
)
def test_a_list_that_is_not_of_the_layers_is_refused_by_its_key(text: str, fault: str) -> None:
    with pytest.raises(FactsError, match=fault):
        look(**{"these others": text})["these"]


def built(rows: str, **sizes: Any) -> Any:
    return evaluate(Fields(CONFIG), Family(rows=rows, sizes={**SIZES, **sizes}))


def test_lines_make_modules() -> None:
    made = built(
        """
        embed  embedding  vocabulary x hidden
        a, b  attention  four x hidden  every  bias on  if on
        c  ffn  four x hidden  every  bias off
        left  ffn  four x hidden  every  if off
        gate  router  four x hidden  every  plain
        nothing  norm  zero(nought)  every
        nowhere  norm  hidden  none_of_them
        {root}norm  norm  2*hidden
        """,
        none_of_them=lambda _: (),
    )
    every = (0, 1, 2)
    assert made.modules == (
        Module("embed", Part.EMBEDDING, 80, 0, 10, 8, linear=False),
        Module("model.layers.{}.a", Part.ATTENTION, 32, 4, 4, 8, every),
        Module("model.layers.{}.b", Part.ATTENTION, 32, 4, 4, 8, every),
        Module("model.layers.{}.c", Part.FFN, 32, 0, 4, 8, every),
        Module("model.layers.{}.gate", Part.ROUTER, 32, 0, 4, 8, every, linear=False),
        Module("model.norm", Part.NORM, 0, 16, linear=False),
    )


def test_lines_of_groups_have_the_values_of_their_group() -> None:
    groups = [{"here": (0, 2), "wide": 3, "window": None}, {"here": (1,), "wide": 5, "window": 64}]
    made = built("a  ffn  wide x hidden  each:groups\nreads  each:groups  sliding:window", groups=lambda _: groups)
    assert [(module.rows, module.layers) for module in made.modules] == [(3, (0, 2)), (5, (1,))]
    assert [(group.layers, group.span, group.window_tokens) for group in made.attention] == [
        (2, Span.FULL, None), (1, Span.SLIDING, 64)
    ]  # fmt: skip


def test_lines_make_attention_and_state() -> None:
    made = built(
        "reads  every  full\nreads  every  full  elements 5  kv 1  flops 6  decode 7  heads 3  shared\nstate  every  9  four"
    )
    usual, other = made.attention
    # keys and values of 2 heads of 2 elements; 4 FLOPs for each element of 4 query heads
    assert usual == AttentionLayers(3, 8, 2, 32, 32, Span.FULL, None, 4)
    assert other == AttentionLayers(3, 5, 1, 7, 6, Span.FULL, None, 3, kept=False)
    assert made.recurrent == (RecurrentLayers(3, 9, 4),)


def test_a_config_that_no_line_covers_is_told_why() -> None:
    with pytest.raises(FactsError, match=r"four is 4, and twice that is 8"):
        built("refuse  four > 3  four  is {four}, and twice that is {2*four}")
    assert built("refuse  four > 4  four  never").modules == ()


@check_rows("sizes", [[16384] * 35, [8192] * 10 + [16384] * 25])
def test_gemma3n_counts_each_layers_own_mlp(sizes: list[int]) -> None:
    def mlps(said: object) -> int:
        modules = geometry({"model_type": "gemma3n_text", "intermediate_size": said}).modules
        return sum(module.parameters for module in modules if ".mlp." in module.path)

    assert mlps(sizes) == sum(3 * 2048 * size for size in sizes)
    assert mlps(16384) == 35 * 3 * 2048 * 16384


# --- every line of every family's rows can be read, whatever a config says ---


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
