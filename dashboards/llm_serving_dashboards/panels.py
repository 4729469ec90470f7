"""What a dashboard is made of: rows of panels with their queries, thresholds and words. Nothing here knows Grafana's JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

# of Grafana's grid
COLUMNS = 24
# the dashboard of one replica, to which the name of a replica leads
REPLICA_UID = "llm-serving-replica"
# the label of an XY chart's series that is their place on the horizontal axis
X = "x"


class Visualization(StrEnum):
    """How a panel shows its data, by Grafana's names."""

    TIME_SERIES = "timeseries"
    STAT = "stat"
    STATE_TIMELINE = "state-timeline"
    TABLE = "table"
    HEATMAP = "heatmap"
    XY_CHART = "xychart"
    TEXT = "text"


class Unit(StrEnum):
    """Grafana's units. `si:` is a unit of our own with the prefixes k, M, G."""

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
    """Colours by their meaning, which is the same on every panel."""

    GOOD = "green"
    # good, where nobody has to look: a field's ground, and the values on it or beside it
    FINE = "#3b5344"
    FINE_TEXT = "text"
    WARNING = "orange"
    BAD = "red"
    UNKNOWN = "#8e8e8e"
    DEAD = "purple"
    PLAIN = "blue"


class Worst(StrEnum):
    """Which few of many are named in a graph."""

    LOWEST = "lowest"
    HIGHEST = "highest"


class Draw(StrEnum):
    """How the series of a query are drawn in a graph."""

    LINE = "line"
    # thick: what the others are compared with
    MAIN = "main"
    # the same, of the one that a board is about
    OWN = "own"
    # upper edge of a band: the space down to the edge of the query after it is filled
    TOP_EDGE = "top edge"
    BOTTOM_EDGE = "bottom edge"
    # thin and grey, and not in the legend
    BEHIND = "behind"


@dataclass(frozen=True, slots=True)
class ThresholdStep:
    """Values have this colour up to the next step. `colour`: a Colour, or any colour that Grafana knows."""

    colour: str
    from_value: float | None = None  # None: the first step, which has no lower end


@dataclass(frozen=True, slots=True)
class ValueMapping:
    """A value shown as text. `colour`: a Colour, or any colour that Grafana knows."""

    value: float | str | None  # None: no data
    text: str
    colour: str


@dataclass(frozen=True, slots=True)
class Query:
    """A PromQL query of a panel, with Grafana's variables."""

    expr: str
    legend: str = ""  # Grafana's template over labels; "": Grafana names the series
    instant: bool = False  # True: one value at the end of the time range; False: values over the range
    table: bool = False  # True: a row for each series
    step: str = ""  # the shortest step between values over the range, such as "1h"; "": Grafana chooses
    draw: Draw = Draw.LINE
    replica_uid: str = (
        ""  # of the dashboard that a click on a series opens, for the replica of its label `target`; "": none
    )
    colour: str = ""  # of its series; "": the panel's
    unit: Unit | None = None  # of its values; None: the panel's
    mappings: tuple[ValueMapping, ...] = ()  # its values shown as text; (): the panel's


@dataclass(frozen=True, slots=True)
class Link:
    """A way to another dashboard with the time range of this one, or to a page elsewhere."""

    uid: str = ""  # of the dashboard, or a template of Grafana that yields it
    chosen: tuple[
        tuple[str, str], ...
    ] = ()  # pairs of a variable there and the template of Grafana that yields its value
    # Grafana's number of the panel that is shown alone, or a template that yields it; None: the whole dashboard
    panel: int | str | None = None
    url: str = ""  # a page elsewhere, in place of a dashboard; "": none


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table."""

    source: str | int  # a label's name, or the number of the query (from 0) whose value is shown
    title: str
    unit: Unit = Unit.NONE
    thresholds: tuple[ThresholdStep, ...] = ()
    decimals: int | None = None  # None: Grafana chooses
    mappings: tuple[ValueMapping, ...] = ()
    link: Link | None = None  # where a click on the cell leads; None: nowhere
    hidden: bool = False  # True: links read it, and it is not shown
    width: int | None = None  # in pixels; None: its share of what is left
    least_width: int | None = None  # in pixels, of one that has a share; None: the table's
    coloured: bool = True  # False: the words of its mappings stand on no colour
    colours_row: bool = False  # True: the whole row has the colour of this cell


# headings of labels that are not their names
_HEADINGS = {"model_name": "model", "gpu_name": "GPU", "gpu": "UUID", "mig_profile": "MIG", "driver_version": "driver"}


def head_columns(columns: Iterable[Column | str]) -> tuple[Column, ...]:
    """Columns of a table; the name of a label stands for its column without anything of its own."""
    return tuple(one if isinstance(one, Column) else Column(one, _HEADINGS.get(one, one)) for one in columns)


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis of an XY chart, which is logarithmic."""

    title: str
    unit: Unit
    lowest: float  # where it begins, above 0
    highest: float


@dataclass(frozen=True, slots=True)
class Mark:
    """How an XY chart draws the rows of a query. The horizontal value is the label `x` of its series, the vertical one their value."""

    title: str
    colour: str  # a Colour, or any colour that Grafana knows
    size: int | None = None  # of a point, in pixels; None: a line through the rows


@dataclass(frozen=True, slots=True)
class Look:
    """How a panel draws its values."""

    unit: Unit = Unit.NONE
    width: int = 12  # of 24 columns
    height: int = 8  # in Grafana's rows of 30 pixels
    worst: Worst = Worst.HIGHEST  # of a graph of many models, replicas or cards: which few are named
    maximum: float | None = None  # highest value of the axis; None: unbounded
    from_zero: bool | None = None  # whether a graph begins at 0; None: unless it is logarithmic
    logarithmic: bool = False
    stacked: bool = False  # True: series are added up
    decimals: int | None = None  # None: Grafana chooses
    thresholds: tuple[ThresholdStep, ...] = ()  # colours by value
    limits: tuple[ThresholdStep, ...] = ()  # the same as lines in a graph, whose values keep their colours
    mappings: tuple[ValueMapping, ...] = ()  # values shown as text
    series_colours: tuple[tuple[str, str], ...] = ()  # pairs of the first word of a legend and its colour
    titled: bool = True  # False: the title is not shown, so that what matters has its place
    named: bool = False  # True: a stat that shows its legend; its value only chooses the colour
    headings: bool = True  # of a table: False leaves out the line of headings
    one_value: bool = (
        False  # of a table: True: the values of all queries are one column, each of its rows from one of them
    )
    # of a table: the number of the query whose values sort the rows, from the largest, shown only where a column has them; None: the first
    # column does
    sorted_by: int | None = None
    detail_uid: str = ""  # of the dashboard that a click on the value opens; "": none
    time_from: str = (
        ""  # how far back its range reaches, whatever the dashboard's, such as "24h"; "": as far as the dashboard's
    )


@dataclass(frozen=True, slots=True)
class Panel:
    """A panel of a dashboard. `title`: unique on its dashboard. `description`: sentences behind the panel's (i)."""

    title: str
    description: str
    visualization: Visualization
    look: Look
    queries: tuple[Query, ...] = ()  # in the order of their letters A, B, C
    columns: tuple[Column, ...] = ()  # of a table
    text: str = ""  # of a text panel, in Markdown
    axes: tuple[Axis, Axis] | None = None  # of an XY chart: horizontal, vertical
    marks: tuple[Mark, ...] = ()  # of an XY chart, one for each query
    # why there may be no data though everything is well, shown in place of "No data"; "": no data is a fault
    may_be_empty: str = ""

    @property
    def minimum(self) -> int | None:
        """The lowest value of the axis; None: unbounded."""
        look, graph = self.look, self.visualization is Visualization.TIME_SERIES
        return 0 if graph and (not look.logarithmic if look.from_zero is None else look.from_zero) else None


@dataclass(frozen=True, slots=True)
class Row:
    """Panels under a heading. They fill the 24 columns from left to right, then the next line."""

    title: str  # "": no heading
    panels: tuple[Panel, ...]
    folded: bool = False  # True: only the heading is seen, and nothing is asked, until the viewer opens it
    may_be_empty: str = ""  # of its panels that do not say it themselves

    def __post_init__(self) -> None:
        panels = (replace(one, may_be_empty=one.may_be_empty or self.may_be_empty) for one in self.panels)
        object.__setattr__(self, "panels", tuple(panels))


@dataclass(frozen=True, slots=True)
class Board:
    """A dashboard."""

    uid: str  # unique and stable: part of its URL
    title: str
    description: str  # one or two sentences for Grafana's list of dashboards
    # labels of the exporter's series that its viewers choose by; the user's identity labels come before them
    variables: tuple[str, ...]
    rows: tuple[Row, ...]  # from top to bottom
    # pairs of a variable and PromQL whose series name its values, of which "All" means all; of the others every value that there is
    choices: tuple[tuple[str, str], ...] = ()
    # pairs of a variable that no viewer sees and a label_values(…) of Grafana: a selector with it is answered from few series
    hidden: tuple[tuple[str, str], ...] = ()
    # of the variables those of which one value is chosen, never several or all: at first the first one, in the order of its choices
    single: tuple[str, ...] = ()

    @property
    def panels(self) -> Iterator[Panel]:
        """All panels from top to bottom."""
        for row in self.rows:
            yield from row.panels

    def find_number(self, title: str) -> int:
        """Grafana's number of a panel: headings and panels are counted together, from the top. Raises KeyError where none has that title."""
        number = 0
        for row in self.rows:
            number += bool(row.title)
            for panel in row.panels:
                number += 1
                if panel.title == title:
                    return number
        raise KeyError(title)
