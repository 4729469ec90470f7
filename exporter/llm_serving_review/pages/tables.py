"""What a table of the page shows, as plain values; templates/parts.html writes the markup."""

from __future__ import annotations

from collections.abc import Sequence

from llm_serving_exporter.model.record import Struct
from llm_serving_exporter.render.html import make_presentable

# rows on the screen; the CSV has all
MOST_ROWS = 100
LONGEST_NAME = 120


class Column(Struct, frozen=True):
    """The heading of a column."""

    title: str
    unit: str = ""  # stands small below the title; "" for none
    number: bool = True  # whether cells are aligned to the right and sorted as numbers


class Cell(Struct, frozen=True):
    """One cell."""

    shown: str  # the text that a reader sees
    sort_key: float | str | None = None  # the value that the column is sorted by; None sorts last
    kind: str = ""  # "good", "bad" or "" for the colour of the text
    aside: str = ""  # a soft word after the text
    phase: str = ""  # the phase whose colour stands before the text as a key to a chart; "" for none
    link: str = ""  # an address that the text leads to; "" for none


class Table(Struct, frozen=True):
    """A table that can be sorted. Every row has one cell for each column."""

    caption: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    foot: Sequence[Cell] = ()  # the row of sums; () for none
    printed_rows: int = 0  # rows that are printed on paper; 0 prints all
    left_out: int = 0  # rows that the screen leaves out and the CSV has

    @property
    def left_out_on_paper(self) -> int:
        """Rows on the screen that paper leaves out."""
        return max(0, len(self.rows) - self.printed_rows) if self.printed_rows else 0


def name_cell(name: str, instead: str = "(none)", link: str = "") -> Cell:
    """A cell with a name from outside; `instead` is shown for "". `link`: where it leads to."""
    return Cell(make_presentable(name or instead, LONGEST_NAME), name, link=link)


def number_cell(shown: str, value: float | None, kind: str = "") -> Cell:
    """A cell with a number as it is written, sorted by its value."""
    return Cell(shown, value, kind)
