"""Tables of tests: which rows are tried, what they find, what is said of those that are wrong."""

from __future__ import annotations

import logging
import os
from enum import Enum
from pathlib import Path

import pytest

from tests.support import rows
from tests.support.rows import MOST_SHOWN, check_rows

NUMBERS = [("one", 1), ("two", 2), ("three", 3), ("four", 4)]


def catch_failure(test, **fixtures):
    with pytest.raises(AssertionError) as caught:
        test(**fixtures)
    return str(caught.value)


def test_a_table_whose_rows_are_right_tries_each_of_them():
    tried = []

    @check_rows(("word", "number"), NUMBERS)
    def table(word, number):
        tried.append((word, number))

    table()
    assert tried == NUMBERS


def test_one_wrong_row_is_told_by_its_name_its_line_and_its_assertion():
    @check_rows("number", range(489))
    def table(number):
        assert number != 42, "no answer"

    text = catch_failure(table)
    assert text.startswith("1 of 489 rows is wrong\n\n42\n  tests/unit/support/test_rows.py:")
    assert ': assert number != 42, "no answer"\n' in text
    # what pytest says of the operands
    assert text.endswith("    no answer\n    assert 42 != 42")


def test_two_wrong_rows_are_both_told():
    @check_rows("word, number", NUMBERS)
    def table(word, number):
        assert number < 3

    text = catch_failure(table)
    assert text.startswith("2 of 4 rows are wrong\n\nthree-3\n")
    assert "\n\nfour-4\n" in text
    assert "two-2" not in text


def test_an_exception_is_told_by_type_text_and_both_lines():
    @check_rows("text", ["1", "x"])
    def table(text):
        read_number(text)

    text = catch_failure(table)
    assert text.startswith("1 of 2 rows is wrong\n\nx\n  tests/unit/support/test_rows.py:")
    assert text.endswith("return int(text)\n    ValueError: invalid literal for int() with base 10: 'x'")


def read_number(text):
    return int(text)


def test_an_exception_from_elsewhere_is_told_by_the_line_of_the_check_too():
    @check_rows("folder", [Path("/nowhere")])
    def table(folder):
        folder.joinpath("file").read_text()

    text = catch_failure(table)
    assert 'folder.joinpath("file").read_text()\n' in text
    assert "pathlib" in text
    assert "    FileNotFoundError: " in text


def test_what_calls_fail_or_raises_nothing_is_wrong():
    @check_rows("number", [1, 2, 3])
    def table(number):
        if number == 1:
            pytest.fail("a person says so")
        with pytest.raises(ZeroDivisionError):
            1 / (number - 2)

    text = catch_failure(table)
    assert text.startswith("2 of 3 rows are wrong\n\n1\n")
    assert "Failed: a person says so" in text
    assert "Failed: DID NOT RAISE" in text


def test_of_very_many_wrong_rows_some_are_shown_and_the_others_named():
    @check_rows("number", range(1000, 1050))
    def table(number):
        assert not number

    text = catch_failure(table)
    assert text.count("assert not number") == MOST_SHOWN
    assert text.endswith(f"and {50 - MOST_SHOWN} more: " + ", ".join(map(str, range(1000 + MOST_SHOWN, 1050))))


def test_an_interruption_ends_the_table():
    tried = []

    @check_rows("number", [1, 2])
    def table(number):
        tried.append(number)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        table()
    assert tried == [1]


def test_a_skipped_row_is_said_and_the_others_are_tried():
    tried = []

    @check_rows("number", [1, 2, 3])
    def table(number):
        if number == 1:
            pytest.skip("no GPU")
        tried.append(number)

    with pytest.raises(pytest.skip.Exception, match=r"^1 of 3 rows, the others are right: 1: no GPU$"):
        table()
    assert tried == [2, 3]


def test_a_wrong_row_counts_more_than_a_skipped_one():
    @check_rows("number", [1, 2])
    def table(number):
        if number == 1:
            pytest.skip("no GPU")
        assert number == 1

    assert catch_failure(table).startswith("1 of 2 rows is wrong")


@check_rows("empty", [[], list, lambda: iter(())], ids=["list", "function", "iterator"])
def test_an_empty_table_is_refused(empty):
    @check_rows("number", empty)
    def table(number): ...

    with pytest.raises(ValueError, match="the table of table is empty"):
        table()


def test_rows_of_the_same_given_name_are_refused():
    @check_rows("number", [1, 2, 3], ids=["a", "b", "a"])
    def table(number): ...

    with pytest.raises(ValueError, match="rows of table have the same name: a"):
        table()


def test_a_row_without_its_name_or_its_values_is_refused():
    @check_rows("number", [1, 2], ids=["a"])
    def unnamed(number): ...

    @check_rows("word, number", [("a",)])
    def short(word, number): ...

    with pytest.raises(ValueError, match="2 rows of number have 1 names"):
        unnamed()
    with pytest.raises(ValueError, match="row 0 has 1 values for word, number"):
        short()
    with pytest.raises(TypeError, match="no argument nummer"):
        check_rows("nummer", [1])(lambda number: None)


class Named:
    name = "H100"


@check_rows(
    "value, name",
    [
        ("a b", "a b"), ("", "value0"), ("a\nb", "a\\nb"), ("x" * 101, "x" * 100 + "…"), (1.5, "1.5"), (None, "None"),
        ((1, "a"), "(1, 'a')"), (Named(), "H100"), (Named, "Named"), (read_number, "read_number"), ([1] * 100, "value0"),
        (object(), "value0"),
    ],
    ids=str,
)  # fmt: skip
def test_a_row_is_called_by_its_values(value, name):
    assert name_rows("value", [value]) == [name]


def test_names_that_are_made_differ():
    assert name_rows("one, other", [("a", 1), ("a", "1"), ("b", 2)]) == ["a-1 #0", "a-1 #1", "b-2"]
    assert name_rows("number", [1, 1], ids=lambda number: f"<{number}>") == ["<1> #0", "<1> #1"]


def test_names_come_from_the_list_the_function_or_the_row():
    assert name_rows("number", [1, 2], ids=["a", "b"]) == ["a", "b"]
    assert name_rows(
        "word, number", NUMBERS[:1], ids=lambda value: f"<{value}>" if isinstance(value, int) else None
    ) == ["one-<1>"]
    assert name_rows("number", [pytest.param(1, id="a"), 2]) == ["a", "2"]


def name_rows(arguments, lines, **options):
    @check_rows(arguments, lines, **options)
    def table(value=None, number=None, word=None, one=None, other=None): ...

    return [row.name for row in table.table.rows]


def test_several_tables_stand_for_every_combination():
    tried = []

    @check_rows("number", [1, 2])
    @check_rows("letter", "ab")
    def table(letter, number):
        tried.append(f"{letter}{number}")

    table()
    assert tried == ["a1", "a2", "b1", "b2"]


class Colour(Enum):
    RED = 1
    BLUE = 2


def test_the_members_of_an_enumeration_are_rows():
    assert name_rows("value", Colour) == ["Colour.RED", "Colour.BLUE"]


def test_rows_are_made_when_the_test_runs():
    made = []

    @check_rows("number", lambda: made.append(1) or [1])
    def table(number): ...

    assert made == []
    table()
    assert made == [1]


FOLDERS = set()


@check_rows("number", [1, 2, 3])
def test_each_row_has_its_own_folder_environment_and_output(number, tmp_path, monkeypatch, capsys, caplog):
    assert list(tmp_path.iterdir()) == []
    assert tmp_path not in FOLDERS
    FOLDERS.add(tmp_path)
    assert "LEFT_BY_A_ROW" not in os.environ
    assert Path.cwd() not in FOLDERS
    assert capsys.readouterr().out == ""
    assert caplog.records == []
    logging.getLogger().handlers.append(logging.NullHandler())
    logging.getLogger("llm_serving_exporter").setLevel(number)
    logging.getLogger("other").warning("left")
    (tmp_path / "left").touch()
    monkeypatch.setenv("LEFT_BY_A_ROW", "1")
    monkeypatch.chdir(tmp_path)
    print("left")


def test_logging_is_as_before_each_row():
    left = []

    @check_rows("number", [1, 2])
    def table(number):
        left.append(len(logging.getLogger().handlers))
        logging.getLogger().addHandler(logging.NullHandler())

    table()
    assert left[0] == left[1] == len(logging.getLogger().handlers)


def test_a_fixture_of_which_nothing_is_said_is_refused():
    @check_rows("number", [1])
    def table(number, server): ...

    @check_rows("number", [1], shared=["server"])
    def shared(number, server):
        assert server == "one"

    with pytest.raises(TypeError, match="share server"):
        table(server="one")
    shared(server="one")


@pytest.fixture
def server():
    return "one"


@check_rows("number", [1, 2], shared=["server"])
def test_fixtures_come_from_pytest(number, server):
    assert server == "one"


def test_rows_with_a_mark_make_a_test_with_that_mark():
    tried = []

    @check_rows("number", [1, pytest.param(2, marks=pytest.mark.e2e), 3])
    def table(number):
        tried.append(number)

    (mark,) = table.pytestmark
    assert [(param.id, [one.name for one in param.marks]) for param in mark.args[1]] == [
        ("quick", []),
        ("e2e", ["e2e"]),
    ]
    for tier, numbers in (((), [1, 3]), (("e2e",), [2])):
        tried.clear()
        table(marks_of_rows=tier)
        assert tried == numbers


def test_a_mark_that_comes_too_late_or_says_more_than_its_name_is_refused():
    @check_rows("number", lambda: [pytest.param(1, marks=pytest.mark.e2e)])
    def table(number): ...

    with pytest.raises(ValueError, match="has a mark: pytest chose its tests before"):
        table()
    with pytest.raises(ValueError, match="says more than its name"):
        check_rows("number", [pytest.param(1, marks=pytest.mark.skipif(True, reason="no GPU"))])(lambda number: None)


def test_marks_of_the_test_stay_and_combinations_have_those_of_their_parts():
    @check_rows("number", [1, pytest.param(2, marks=pytest.mark.e2e)])
    @pytest.mark.soak
    @check_rows("letter", ["a", pytest.param("b", marks=pytest.mark.e2e)])
    def table(letter, number): ...

    assert [mark.name for mark in table.pytestmark] == ["soak", "parametrize"]
    assert [row.name for row in table.table.rows if row.marks == ("e2e",)] == ["a-2", "b-1", "b-2"]


def test_one_row_can_be_tried_alone_and_its_exception_stays_what_it_is(monkeypatch):
    tried = []

    @check_rows("word, number", NUMBERS)
    def table(word, number):
        tried.append(word)
        return 1 / 0

    monkeypatch.setattr(rows.chosen, "name", "two-2")
    with pytest.raises(ZeroDivisionError):
        table()
    assert tried == ["two"]
    monkeypatch.setattr(rows.chosen, "name", "five")
    with pytest.raises(pytest.skip.Exception, match="has no row 'five', but one-1, two-2"):
        table()
