"""What the page shows, as plain values: tables whose columns know how a value is written, and links. templates/parts.html has the markup.

The dashboards are a package of their own that the review does not import; a test compares the names below with what it writes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlencode

from llm_serving_exporter.model.record import Struct, replace
from llm_serving_exporter.render.html import make_presentable
from llm_serving_exporter.render.numbers import NOTHING, signed_usd_to_the_cent
from llm_serving_review.figures.review import Review

# what a template sees, by name
Shown = SimpleNamespace
# rows on the screen; the CSV has all
MOST_ROWS = 100
LONGEST_NAME = 120


class Cell(Struct, frozen=True):
    """One cell."""

    shown: str | None  # the text that a reader sees; None until the column has written it
    sort_key: Any = None  # the value that the column is sorted by; None sorts last
    kind: str = ""  # "good", "bad" or "" for the colour of the text
    aside: str = ""  # a soft word after the text
    phase: str = ""  # the phase whose colour stands before the text as a key to a chart; "" for none
    link: str = ""  # an address that the text leads to; "" for none


def mark(value: Any, kind: str = "", aside: str = "", link: str = "") -> Cell:
    """A value of a row with more than the value, as `Cell` has it; the column writes its text."""
    return Cell(None, value, kind, aside, link=link)


BLANK, NONE = Cell(""), Cell(NOTHING)


class Column(Struct, frozen=True):
    """The heading of a column, and how its values are written."""

    title: str
    unit: str = ""  # stands small below the title; "" for none
    write: Callable[[Any], str] = str
    number: bool = True  # whether cells are aligned to the right and sorted as numbers

    def make_cell(self, value: Any) -> Cell:
        """A cell with a value; of a cell without a text the text is written."""
        cell = value if isinstance(value, Cell) else mark(value)
        return cell if cell.shown is not None else replace(cell, shown=self.write(cell.sort_key))


def name_column(title: str, instead: str = "(none)", longest: int = LONGEST_NAME) -> Column:
    """A column of names from outside; `instead` is shown for ""."""
    return Column(title, write=lambda name: make_presentable(name or instead, longest), number=False)


def write_cents(value: float | None) -> str:
    """USD with their sign, to the cent, without the currency that the column states."""
    return signed_usd_to_the_cent(value).replace("$", "")


class Table(Struct, frozen=True):
    """A table that can be sorted. Every row has one cell for each column."""

    caption: str  # for screen readers
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    foot: Sequence[Cell] = ()  # the row of sums; () for none
    printed_rows: int = 0  # rows that are printed on paper; 0 prints all
    left_out: int = 0  # rows that the screen leaves out and the CSV has

    @property
    def left_out_on_paper(self) -> int:
        """Rows on the screen that paper leaves out."""
        return max(0, len(self.rows) - self.printed_rows) if self.printed_rows else 0


def make_table(
    caption: str,
    columns: Sequence[Column],
    rows: Iterable[Sequence[Any]],
    foot: Sequence[Any] = (),
    *,
    printed: int = 0,
    most: int | None = MOST_ROWS,
) -> Table:
    """A table of values, a row each. `most`: rows that are shown, None for all."""
    values = list(rows)
    shown = [_make_row(columns, row) for row in values[:most]]
    return Table(caption, columns, shown, _make_row(columns, foot) if foot else (), printed, len(values) - len(shown))


def _make_row(columns: Sequence[Column], values: Sequence[Any]) -> Sequence[Cell]:
    return tuple(column.make_cell(value) for column, value in zip(columns, values, strict=True))


# --- links to the pack's dashboards at the time that a figure is of; none where the settings do not say where Grafana is

# uid of each dashboard that the page leads to
COST, HOME, LATENCY, EXPORTER = "llm-serving-cost", "llm-serving-home", "llm-serving-latency", "llm-serving-exporter"
BOARDS = (COST, HOME, LATENCY, EXPORTER)
# Grafana's variables, of the boards that have them
MODEL_VARIABLE, TARGET_VARIABLE = "model_name", "target"
_HOUR_SECONDS = 3600.0


def link_board(review: Review, board: str, begin: float, end: float, **variables: str) -> str:
    """A dashboard from one moment to another, Unix seconds; variables by name, "" = whatever the dashboard shows. "" without a Grafana."""
    if not review.dashboards_url:
        return ""
    chosen = [(f"var-{name}", value) for name, value in variables.items() if value]
    query = urlencode([("from", str(round(1000 * begin))), ("to", str(round(1000 * end))), *chosen])
    return f"{review.dashboards_url}/d/{board}?{query}"


def link_week(review: Review, board: str, **variables: str) -> str:
    """A dashboard over what is reviewed."""
    return link_board(review, board, review.week.begin, review.week.end, **variables)


def link_hour(review: Review, board: str, begin: float, **variables: str) -> str:
    """A dashboard at an hour, with one before and two after it."""
    return link_board(review, board, begin - _HOUR_SECONDS, begin + 3 * _HOUR_SECONDS, **variables)
