"""A declaration of keys: what is read, what is missing, what is left out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from llm_serving_exporter.errors import Problem
from llm_serving_exporter.settings import kinds
from llm_serving_exporter.settings.document import parse_yaml
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
from llm_serving_exporter.settings.problems import Place

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
