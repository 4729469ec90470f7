"""Pieces of HTML: text from outside stays text, and is bounded."""

from __future__ import annotations

from markupsafe import Markup

from llm_serving_exporter.render import html
from tests.support.rows import check_rows

HOSTILE = "<script>alert(1)</script>\"'&"
ESCAPED = "&lt;script&gt;alert(1)&lt;/script&gt;&#34;&#39;&amp;"


@check_rows(
    "piece",
    [
        html.fill("<p>{}</p>", HOSTILE), html.join([HOSTILE]), html.level(0.5, HOSTILE), html.badge(HOSTILE, "good"), html.soft(HOSTILE),
        html.note("bad", HOSTILE), html.facts([HOSTILE]), html.tile("a", HOSTILE, ""), html.tile("a", "1", HOSTILE), html.row(HOSTILE, []),
        html.row("a", [HOSTILE]), html.header(HOSTILE, []), html.header("a", [HOSTILE]), html.row("a", ["{}", HOSTILE]),
    ],
)  # fmt: skip
def test_text_is_escaped_wherever_it_enters(piece: Markup) -> None:
    assert isinstance(piece, Markup)
    assert ESCAPED in piece
    assert "<script" not in piece


def test_markup_enters_as_it_is() -> None:
    assert html.row("a", [html.badge("b", "good")]) == (
        '<tr><th class="text" scope="row">a</th><td><span class="badge good">b</span></td></tr>'
    )


def test_braces_in_text_are_text() -> None:
    assert html.fill("<p>{}{}</p>", "{0.__class__}", "{}") == "<p>{0.__class__}{}</p>"


@check_rows(
    ("text", "shown"),
    [
        ("Llama 3", "Llama 3"),
        ("a\u202eb\u2066c", "a\ufffdb\ufffdc"),
        ("a\nb\tc\x00d", "a b c\ufffdd"),
        ("\udcff", "\ufffd"),
        ("x" * 700, "x" * html.LONGEST_TEXT + "…"),
    ],
)
def test_text_from_outside_is_bounded_and_printable(text: str, shown: str) -> None:
    assert html.fill("<p>{}</p>", text) == f"<p>{shown}</p>"
