"""Text from outside."""

from __future__ import annotations

from llm_serving_exporter.model.text import blank_unprintable, clean, has_control_characters, on_one_line
from tests.support.rows import check_rows

HOSTILE = "a\tb\x1b[2K\r\n \u2028c\ud800"


def test_one_line_has_nothing_that_moves_a_cursor() -> None:
    assert on_one_line(HOSTILE) == "a b [2K c"
    assert on_one_line(" \n\x00 ") == ""


def test_an_error_of_tls_has_no_line_of_pythons_source() -> None:
    said = "[SSL: WRONG_VERSION_NUMBER] wrong version number"
    assert on_one_line(f"{said} (_ssl.c:1006)") == said


def test_a_line_is_cut_where_it_is_too_long() -> None:
    assert on_one_line("x" * 10, 10) == "x" * 10
    assert on_one_line("x" * 11, 10) == "x" * 9 + "…"


def test_columns_stay_where_only_unprintable_characters_are_blanked() -> None:
    assert blank_unprintable("a  b\x07\x08c") == "a  b  c"


def test_a_label_shows_that_there_was_something() -> None:
    assert clean(HOSTILE, 4) == "a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}"


@check_rows("text", ["\n", "\x00", "\x7f", "\x85", "\u2028", "\ud800"])
def test_control_characters_are_found(text: str) -> None:
    assert has_control_characters(f"a{text}b")
    assert not has_control_characters("Qwen/Qwen3 – é 模型")
