"""Small pieces of HTML that the page is made of. Text from outside goes in through `text` only."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from llm_serving_exporter.model.text import blank_unprintable

LONGEST_TEXT = 400
# characters that could turn the direction of what stands beside them
_DIRECTIONS = dict.fromkeys((0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)), "�")


def text(raw: object, longest: int = LONGEST_TEXT) -> str:
    """Any text as HTML: escaped, without control characters, and cut where it is absurdly long."""
    plain = blank_unprintable(str(raw).translate(_DIRECTIONS))
    cut = plain if len(plain) <= longest else plain[:longest] + "…"
    # a number and its sign stay on one line
    return escape(cut).replace(" %", "\u00a0%")


@dataclass(frozen=True, slots=True)
class Column:
    """A heading. `unit` stands small below it; `number`: its cells are aligned to the right."""

    title: str
    unit: str = ""
    number: bool = True


@dataclass(frozen=True, slots=True)
class Cell:
    """What a cell shows, as HTML, and what it is sorted by; None sorts last."""

    html: str
    by: float | str | None = None
    kind: str = ""


def name(raw: str, instead: str = "(none)") -> Cell:
    """A cell with a text from outside."""
    return Cell(text(raw or instead, 120), raw)


def figure(shown: str, value: float | None, kind: str = "") -> Cell:
    """A cell with a number as it is shown."""
    return Cell(shown, value, kind)


def table(
    caption: str, columns: Sequence[Column], rows: Iterable[Sequence[Cell]], foot: Sequence[Cell] = (), printed: int = 0
) -> str:
    """A table that scrolls within itself where the window is narrow. `printed`: rows on paper, 0 = all."""
    head = "".join(map(_heading, columns))
    lines = [_row(columns, row, extra=bool(printed) and index >= printed) for index, row in enumerate(rows)]
    left = len(lines) - printed if printed else 0
    rest = f'<p class="paper soft">{left} more are on the screen and in the CSV.</p>' if left > 0 else ""
    body = "".join(lines)
    end = f"<tfoot>{_row(columns, foot)}</tfoot>" if foot else ""
    # reachable by keyboard, or it could not be scrolled without a pointer
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{text(caption)}">'
        f'<table class="sort"><caption>{text(caption)}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody>{end}</table></div>{rest}"
    )


def _heading(column: Column) -> str:
    kind = "" if column.number else ' class="t"'
    unit = f"<small>{text(column.unit)}</small>" if column.unit else ""
    return f'<th scope="col"{kind}>{text(column.title)}{unit}</th>'


def _row(columns: Sequence[Column], row: Sequence[Cell], *, extra: bool = False) -> str:
    cells = []
    for index, (column, cell) in enumerate(zip(columns, row, strict=True)):
        classes = " ".join(filter(None, ("" if column.number else "t", cell.kind)))
        kind = f' class="{classes}"' if classes else ""
        raw = repr(cell.by) if isinstance(cell.by, float | int) else cell.by
        by = f' data-v="{text(raw)}"' if raw is not None else ""
        opening, closing = ('th scope="row"', "th") if index == 0 else ("td", "td")
        cells.append(f"<{opening}{kind}{by}>{cell.html}</{closing}>")
    more = ' class="more"' if extra else ""
    return f"<tr{more}>{''.join(cells)}</tr>"


def card(title: str, body: str, kind: str = "", lead: str = "") -> str:
    """A section with a heading; nothing where it has no content."""
    if not body:
        return ""
    under = f'<p class="lead">{lead}</p>' if lead else ""
    return f'<section class="card {kind}"><h2>{text(title)}</h2>{under}{body}</section>'


def facts(pairs: Iterable[tuple[str, str]]) -> str:
    """Names and values, the values already HTML."""
    return "<dl>" + "".join(f"<div><dt>{text(what)}</dt><dd>{value}</dd></div>" for what, value in pairs) + "</dl>"
