"""Files that are hostile, broken or odd: each is a problem with its exact message, none hurts the process."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_serving_exporter.errors import ConfigError, Problem
from llm_serving_exporter.settings import kinds
from llm_serving_exporter.settings.document import LARGEST_FILE_BYTES, parse_json, parse_yaml, read_document
from llm_serving_exporter.settings.keys import (
    Key,
    Section,
    key,
    keys_of,
    list_reader,
    mapping_reader,
    names_of,
    read_complete,
    section_reader,
    table,
)
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
        "laughs", "values", "alias of itself", "lists", "dashes", "mappings", "bell", "large",
        "cut within a character",
    ],
)  # fmt: skip
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
        "targets", "url", "http://a:1", "scrape", "interval", "5s", "5", "~", "*a", "&a ", "!x ", "<<", "on", "\t",
        "auth", "headers", "file_sd", "files", "gpus", "[", "]", "{", "}", ":", ": ", "\n", "- ", "  ", ",", "'", '"',
        "#", "é",
    ]
)  # fmt: skip


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
                    "targets", "url", "name", "scrape", "interval", "timeout", "auth", "basic", "headers", "tls",
                    "gpus", "nodes", "file_sd", "files", "defaults", "expected_replicas", "model_name", "replicas",
                    "target_defaults", "role", "X",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)  # fmt: skip


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


# --- one broken file for each rule. Its first lines say the exact messages, in order ---


FOLDER = Path(__file__).parent / "bad"
FILES = sorted(FOLDER.glob("*.yml"))


def test_there_are_broken_files() -> None:
    assert len(FILES) > 100


@check_rows("path", FILES, ids=lambda path: path.stem)
def test_every_problem_is_reported_with_its_place_and_what_to_do_and_no_secret(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(FOLDER)
    expected = [
        line.removeprefix("# expect ").replace("FILE", path.name, 1)
        for line in path.read_text().splitlines()
        if line.startswith("# expect ")
    ]
    with pytest.raises(ConfigError) as caught:
        load_flags("--config.file", path.name, environ={"HOME": "/"})
    assert [str(problem) for problem in caught.value.problems] == expected
    assert expected
    # the secrets in these files
    assert "hunter" not in str(caught.value)
    assert "123456" not in str(caught.value)


# --- A declaration of keys: what is read, what is missing, what is left out ---


NAME = kinds.text("name")


@dataclass(frozen=True, slots=True)
class Mail:
    host: str = key(NAME, required=True)
    sender: str = key(NAME, name="from", required=True)
    port: int = key(kinds.integer(1, 65_535), default="587")
    copies: tuple[str, ...] = key(list_reader(NAME, "names"), unset=())
    note: str = "no key"


def read(text: str, keys: Any = None) -> tuple[dict[str, Any] | None, list[str]]:
    problems: list[Problem] = []
    place = Place("FILE", "", problems)
    found = read_complete(keys or keys_of(Mail), parse_yaml(text, place), place, "Write {host: a, from: b}.")
    return found, [str(problem) for problem in problems]


def test_fields_declare_keys_under_their_own_names_or_others() -> None:
    assert names_of(keys_of(Mail)) == ("host", "from", "port", "copies")
    assert (Mail("a", "b").port, Mail("a", "b").copies) == (587, ())
    with pytest.raises(TypeError):
        Mail()


def test_what_is_given_is_read_by_field_and_what_is_not_is_left_out() -> None:
    found, problems = read("{host: a, from: b, copies: [c, c, d]}")
    assert (found, problems) == ({"host": "a", "sender": "b", "copies": ("c", "d")}, [])
    assert found is not None
    assert Mail(**found) == Mail("a", "b", copies=("c", "d"))


def test_every_fault_is_reported_in_the_order_of_the_file() -> None:
    found, problems = read("{sendr: x, port: 0, host: 7}")
    assert found is None
    assert problems == [
        "FILE: sendr: this key is not known. Known here: copies, from, host, port.",
        "FILE: port: 0 is out of range. Write a whole number from 1 to 65535.",
        "FILE: host: YAML reads this value as a number, not as text. Put it in double quotes.",
        "FILE: from is missing. Write {host: a, from: b}.",
    ]
    assert read("{}")[1] == ["FILE: host and from are missing. Write {host: a, from: b}."]


def test_a_section_is_read_into_its_class_and_an_empty_one_is_none() -> None:
    keys = table(mail=section_reader(Mail, "Write {host: a, from: b}."), other=Key(NAME))
    assert read("mail: {host: a, from: b, port: 25}", keys) == ({"mail": Mail("a", "b", 25)}, [])
    assert read("mail:", keys) == ({}, [])
    assert read("mail: {host: a}\nother: x", keys) == (
        {"other": "x"},
        ["FILE: mail: from is missing. Write {host: a, from: b}."],
    )


def test_a_section_knows_what_is_wrong_with_it() -> None:
    problems: list[Problem] = []
    place = Place("FILE", "", problems)
    by_mail, by_phone = table(mail=NAME), table(phone=NAME)
    ways = {**by_mail, **by_phone}
    both = Section(ways, parse_yaml("{mail: a, phone: b}", place), place)
    assert (both.values, both.is_sound) == ({"mail": "a", "phone": "b"}, True)
    both.refuse_unless_one(ways, "how to reach it")
    assert not both.is_sound
    # what was wrong elsewhere before is not its fault
    neither = Section(ways, parse_yaml("{phone: }", place), place)
    assert [neither.is_sound, "phone" in neither.nodes] == [False, True]
    neither.refuse_unless_one(ways, "how to reach it")
    assert [str(problem) for problem in problems] == [
        "FILE: mail and phone are given. Write one of mail, phone.",
        "FILE: phone: the key has no value. Write a name, or remove the line.",
        "FILE: nothing says how to reach it. Write one of mail, phone.",
    ]
    assert Section(by_mail, parse_yaml("{mail: a}", place), place).is_sound


def test_required_keys_may_be_empty_or_not() -> None:
    problems: list[Problem] = []
    place = Place("FILE", "", problems)
    section = Section(keys_of(Mail), parse_yaml("{host: a, from: }", place), place)
    section.refuse_missing("Write {host: a, from: b}.")
    assert len(problems) == 1
    section.refuse_missing("Write {host: a, from: b}.", or_empty=True)
    assert str(problems[1]) == "FILE: from is missing. Write {host: a, from: b}."


def test_keys_that_the_user_chooses() -> None:
    keys = table(ports=mapping_reader(kinds.integer(1, 9), "Write {web: 8}.", form="such as {web: 8}"))
    assert read("ports: {web: 8, mail: 25, ssh: 2}", keys) == (
        {"ports": {"web": 8, "ssh": 2}},
        ["FILE: ports.mail: 25 is out of range. Write a whole number from 1 to 9."],
    )
    assert read("ports: [8]", keys)[1] == [
        "FILE: ports: must be a mapping such as {web: 8}, not a list. Write {web: 8}."
    ]
