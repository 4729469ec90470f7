"""Files that are hostile, broken or odd: each is a problem, none hurts the process."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_serving_exporter.errors import ConfigError, Problem
from llm_serving_exporter.settings.document import LARGEST_FILE_BYTES, parse_json, parse_yaml, read_document
from llm_serving_exporter.settings.problems import Place, Scalar
from tests.support.builders.configuration import load_flags, load_text, problems_of
from tests.support.rows import check_rows

LAUGHS = "a: &a [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{name}: &{name} [{','.join([f'*{before}'] * 10)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


@check_rows("text", ["[1,]", '{"a":1,\n}', "[1 , \n ]"])
def test_a_comma_before_the_closing_bracket_is_named_at_the_bracket(text: str) -> None:
    """Python 3.13 points at the comma and calls it illegal, those before it expect a value or a name."""
    problems: list[Problem] = []
    assert parse_json(text, Place("f.json", "", problems)) is None
    line, column = text.count("\n") + 1, len(text.splitlines()[-1])
    (problem,) = problems
    assert problem.what == f"this is not JSON at line {line}, column {column}: a comma before the closing bracket"


@check_rows(
    ("text", "what"),
    [
        (LAUGHS, "the file holds more than 400000 values, counting its aliases. Use fewer aliases."),
        (
            "[" + "a," * 410_000 + "]",
            "the file holds more than 400000 values, counting its aliases. Use fewer aliases.",
        ),
        (
            "a: &a [*a]\n",
            "line 1 uses an alias (*…) that no anchor (&…) before it defines. Put a text that starts with * in quotes.",
        ),
        ("[" * 500_000, "line 1 is nested more than 32 levels deep. No setting is that deep."),
        ("- " * 500_000, "line 1 is nested more than 32 levels deep. No setting is that deep."),
        ("{a: " * 200_000, "line 1 is nested more than 32 levels deep. No setting is that deep."),
        ("a: \x07\n", "this is not YAML: unacceptable character #x0007: control characters are not allowed"),
        ("a" * 2**20 + ": 1\n", "the file is larger than 1 MiB. Split its targets over files of file_sd."),
        ("# é" + "é" * 2**19, "the file is larger than 1 MiB. Split its targets over files of file_sd."),
    ],
    ids=[
        "laughs",
        "values",
        "alias of itself",
        "lists",
        "dashes",
        "mappings",
        "bell",
        "large",
        "cut within a character",
    ],
)
def test_hostile_yaml(tmp_path: Path, text: str, what: str) -> None:
    (message,) = problems_of(tmp_path, text)
    assert message.startswith(what)


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"\xff\xfet\x00", "byte 0 is not UTF-8. Save the file as UTF-8 text."),
        (b"window: \xe9\n", "byte 8 is not UTF-8. Save the file as UTF-8 text."),
    ],
)
def test_bytes_that_are_not_utf_8(tmp_path: Path, content: bytes, what: str) -> None:
    path = tmp_path / "c.yml"
    path.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        load_flags("--config.file", str(path))
    assert str(caught.value) == f"{path}: {what}"


def test_a_byte_order_mark_is_no_mistake(tmp_path: Path) -> None:
    path = tmp_path / "c.yml"
    path.write_bytes(b"\xef\xbb\xbftargets: ['a:1']\n")
    assert load_flags("--config.file", str(path)).targets


def test_a_folder_is_not_a_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"this is a folder\. Give the path of a file\."):
        load_flags("--config.file", str(tmp_path))


def test_an_endless_file_is_read_up_to_the_bound() -> None:
    problems: list = []
    assert read_document("/dev/zero", Place("/dev/zero", "", problems)) is None
    assert [problem.what for problem in problems] == ["the file is larger than 1 MiB"]


def test_a_file_at_the_bound_is_read(tmp_path: Path) -> None:
    text = "targets: ['a:1']\n"
    assert load_text(tmp_path, text + "#" * (LARGEST_FILE_BYTES - len(text))).targets


def test_json_is_bounded_and_strict() -> None:
    for text in ("[" * 500_000, "[" * 50 + "]" * 50, '{"a": 1, "a": 2}', "{", "", "[1,]", "nul"):
        problems: list = []
        assert parse_json(text, Place("f.json", "", problems)) is None
        assert len(problems) == 1


def test_json_and_yaml_give_the_same_tree() -> None:
    text = '{"a": [1, 2.5, true, null, "x", "1"], "b": {"c": []}}'
    place = Place("f", "", [])
    tree = parse_json(text, place)
    assert tree == parse_yaml(text, place)
    assert tree["a"][0] == Scalar("1", "a number")
    assert tree["a"][5] == Scalar("1", "text")
    assert place.problems == []


WORDS = st.sampled_from(
    [
        "targets",
        "url",
        "http://a:1",
        "scrape",
        "interval",
        "5s",
        "5",
        "~",
        "*a",
        "&a ",
        "!x ",
        "<<",
        "on",
        "\t",
        "auth",
        "headers",
        "file_sd",
        "files",
        "gpus",
        "[",
        "]",
        "{",
        "}",
        ":",
        ": ",
        "\n",
        "- ",
        "  ",
        ",",
        "'",
        '"',
        "#",
        "é",
    ]
)


@pytest.mark.hypothesis
def test_any_text_is_a_config_or_a_list_of_problems(tmp_path: Path) -> None:
    texts = st.lists(WORDS, max_size=40).map("".join)
    given(texts)(lambda text: read_any_text(tmp_path, text))()


def read_any_text(folder: Path, text: str) -> None:
    try:
        config = load_text(folder, text)
    except ConfigError as error:
        messages = [str(problem).encode() for problem in error.problems]
        assert messages
    else:
        assert config.targets or config.discovery


TREES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["5s", "http://a:1", "none"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "targets",
                    "url",
                    "name",
                    "scrape",
                    "interval",
                    "timeout",
                    "auth",
                    "basic",
                    "headers",
                    "tls",
                    "gpus",
                    "nodes",
                    "file_sd",
                    "files",
                    "defaults",
                    "expected_replicas",
                    "model_name",
                    "replicas",
                    "target_defaults",
                    "role",
                    "X",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@pytest.mark.hypothesis
def test_any_tree_is_a_config_or_a_list_of_problems(tmp_path: Path) -> None:
    keys = st.sampled_from(["targets", "target_defaults", "file_sd", "expected_replicas", "scrape"])
    trees = st.dictionaries(keys, TREES)
    given(trees)(lambda tree: read_any_tree(tmp_path / "tree.json", tree))()


def read_any_tree(path: Path, tree: dict) -> None:
    path.write_text(json.dumps(tree))
    try:
        config = load_flags("--config.file", str(path))
    except ConfigError as error:
        messages = [str(problem).encode() for problem in error.problems]
        assert messages
    else:
        assert config.targets or config.discovery
