"""What a dashboard is made of: frozen, and nothing of Grafana's JSON or of the library that writes it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

# of Grafana's grid
COLUMNS = 24


class Look(StrEnum):
    """How a panel shows what it asked for, by Grafana's own names."""

    LINES = "timeseries"
    VALUE = "stat"
    STATES = "state-timeline"
    TABLE = "table"
    BARS = "bargauge"
    HEATMAP = "heatmap"
    POINTS = "xychart"


class Unit(StrEnum):
    """Grafana's units. `si:` is a unit of our own with k, M, G before it."""

    NONE = "none"
    COUNT = "short"
    RATIO = "percentunit"
    SECONDS = "s"
    BYTES = "bytes"
    BYTES_PER_SECOND = "Bps"
    TOKENS = "si:tok"
    TOKENS_PER_SECOND = "si:tok/s"
    REQUESTS_PER_SECOND = "reqps"
    EVENTS_PER_SECOND = "cps"
    FLOPS = "flops"
    FLOPS_PER_BYTE = "si:FLOP/B"
    USD = "currencyUSD"
    WATTS = "watt"
    JOULES = "joule"
    CELSIUS = "celsius"
    HERTZ = "hertz"
    TIMES = "suffix: ×"
    MILLISECONDS_SINCE = "dateTimeFromNow"


class Colour(StrEnum):
    """What it means, not how it looks: the same on every panel."""

    GOOD = "green"
    WARNING = "orange"
    BAD = "red"
    UNKNOWN = "#8e8e8e"
    DEAD = "purple"
    PLAIN = "blue"


@dataclass(frozen=True, slots=True)
class Step:
    """From that value on (None: from the lowest) this colour."""

    colour: str
    from_value: float | None = None


@dataclass(frozen=True, slots=True)
class Says:
    """A value in words. `value` None: there is no data."""

    value: float | None
    text: str
    colour: str


@dataclass(frozen=True, slots=True)
class Query:
    """PromQL. `legend`: Grafana's template over labels; `instant`: only as it is at the end of the range; `table`: a row a series."""

    expr: str
    legend: str = ""
    instant: bool = False
    table: bool = False


@dataclass(frozen=True, slots=True)
class Column:
    """Of a table: a label, or the value of the query of that number (from 0)."""

    source: str | int
    title: str
    unit: Unit = Unit.NONE
    steps: tuple[Step, ...] = ()
    decimals: int | None = None


@dataclass(frozen=True, slots=True)
class Panel:
    """`width` of 24 columns, `height` in Grafana's rows of 30 pixels. `least`, `most`: only where the value is bounded.

    `steps`: colours by value; `lines`: whether they are drawn into a graph. `detail`: uid of the dashboard that a click leads to.
    `columns`: of a table; of points: the first is the horizontal axis, the others are heights.
    `colours`: of series by the word that their legend begins with, where the word means the same everywhere.
    `may_be_empty`: why there may be nothing to show though everything is well; "" where that is a fault.
    """

    title: str
    description: str
    look: Look
    queries: tuple[Query, ...]
    unit: Unit
    width: int = 12
    height: int = 8
    least: float | None = None
    most: float | None = None
    decimals: int | None = None
    steps: tuple[Step, ...] = ()
    lines: bool = False
    says: tuple[Says, ...] = ()
    stacked: bool = False
    logarithmic: bool = False
    detail: str = ""
    columns: tuple[Column, ...] = ()
    colours: tuple[tuple[str, str], ...] = ()
    may_be_empty: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """Panels under a heading, which fill lines of 24 columns from left to right."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True)
class Board:
    """A dashboard. `variables`: the labels of the exporter's series that its viewers choose by; the user's identity labels are added.

    `models_of`: series that name the models which may be chosen, PromQL; "" = every model. "All" then means all of those.
    """

    uid: str
    title: str
    description: str
    variables: tuple[str, ...]
    rows: tuple[Row, ...]
    models_of: str = ""

    @property
    def panels(self) -> Iterator[Panel]:
        """All, from top to bottom."""
        for row in self.rows:
            yield from row.panels
