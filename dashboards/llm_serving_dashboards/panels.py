"""What a dashboard is made of: rows of panels with their queries, thresholds and words. Nothing here knows Grafana's JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
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
    # the date only where it is not today
    MILLISECONDS_AT = "dateTimeAsLocalNoDateIfToday"


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
    """Values have this colour up to the next step."""

    # a Colour, or any colour that Grafana knows
    colour: str
    # the lowest value of the step; None: the first step, which has no lower end
    from_value: float | None = None


@dataclass(frozen=True, slots=True)
class ValueMapping:
    """A value shown as text."""

    # the number or text that is replaced; None: no data
    value: float | str | None
    # shown instead
    text: str
    # a Colour, or any colour that Grafana knows
    colour: str


@dataclass(frozen=True, slots=True)
class Query:
    """A PromQL query of a panel."""

    # PromQL, with Grafana's variables
    expr: str
    # Grafana's template over labels; "": Grafana names the series
    legend: str = ""
    # True: one value at the end of the time range; False: values over the range
    instant: bool = False
    # True: a row for each series
    table: bool = False
    # the shortest step between values over the range, such as "1h"; "": Grafana chooses
    step: str = ""
    # of a graph's lines
    draw: Draw = Draw.LINE
    # UID of the dashboard that a click on a series opens, for the replica of its label `target`; "": none
    replica_uid: str = ""
    # of its series, where it is not the panel's; "": the panel's
    colour: str = ""
    # of its values; None: the panel's
    unit: Unit | None = None
    # its values shown as text; (): the panel's
    mappings: tuple[ValueMapping, ...] = ()


@dataclass(frozen=True, slots=True)
class Link:
    """A way to another dashboard with the time range of this one."""

    # of the dashboard, or a template of Grafana that yields it
    uid: str = ""
    # pairs of a variable there and the template of Grafana that yields its value
    chosen: tuple[tuple[str, str], ...] = ()
    # Grafana's number of the panel that is shown alone, or a template that yields it; None: the whole dashboard
    panel: int | str | None = None
    # a page elsewhere, in place of a dashboard; "": none
    url: str = ""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table."""

    # a label's name, or the number of the query (from 0) whose value is shown
    source: str | int
    # heading
    title: str
    # of the value; without meaning for a label
    unit: Unit = Unit.NONE
    # colours of the value; (): none
    thresholds: tuple[ThresholdStep, ...] = ()
    # decimal places of the value; None: Grafana chooses
    decimals: int | None = None
    # values shown as text on their colour
    mappings: tuple[ValueMapping, ...] = ()
    # where a click on the cell leads; None: nowhere
    link: Link | None = None
    # True: links read it, and it is not shown
    hidden: bool = False
    # in pixels; None: its share of what is left
    width: int | None = None
    # in pixels, of one that has a share; None: the table's
    least_width: int | None = None
    # False: the words of its mappings stand on no colour
    coloured: bool = True
    # True: the whole row has the colour of this cell
    colours_row: bool = False


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis of an XY chart, which is logarithmic."""

    # beside it
    title: str
    # of its values
    unit: Unit
    # where it begins, above 0
    lowest: float
    # where it ends
    highest: float


@dataclass(frozen=True, slots=True)
class Mark:
    """How an XY chart draws the rows of a query. The horizontal value is the label `x` of its series, the vertical one their value."""

    # in the legend
    title: str
    # a Colour, or any colour that Grafana knows
    colour: str
    # of a point, in pixels; None: a line through the rows
    size: int | None = None


@dataclass(frozen=True, slots=True)
class Panel:
    """A panel of a dashboard."""

    # unique on its dashboard
    title: str
    # sentences behind the panel's (i)
    description: str
    visualization: Visualization  # how the values are drawn
    # in the order of their letters A, B, C
    queries: tuple[Query, ...]
    # of all values
    unit: Unit
    # of 24 columns
    width: int = 12
    # in Grafana's rows of 30 pixels
    height: int = 8
    # lowest value of the axis; None: unbounded
    minimum: float | None = None
    # highest value of the axis; None: unbounded
    maximum: float | None = None
    # decimal places; None: Grafana chooses
    decimals: int | None = None
    # colours by value; (): none
    thresholds: tuple[ThresholdStep, ...] = ()
    # True: the thresholds are lines in the graph instead of colours of its values
    draw_thresholds: bool = False
    # values shown as text
    mappings: tuple[ValueMapping, ...] = ()
    # True: series are added up
    stacked: bool = False
    # True: logarithmic vertical axis
    logarithmic: bool = False
    # UID of the dashboard that a click on the value opens; "": none
    detail_uid: str = ""
    # where a click on any value leads; None: by detail_uid
    link: Link | None = None
    # False: the title is not shown, so that what matters has its place
    titled: bool = True
    # of a table: True: the values of all queries are one column, each of its rows from one of them
    one_value: bool = False
    # of a table: False leaves out the line of headings
    headings: bool = True
    # True: a stat that shows its legend; its value only chooses the colour
    named: bool = False
    # of a table: the number of the query whose values sort the rows, from the largest, shown only where a column has them; None: the first column does
    sorted_by: int | None = None
    # of a table
    columns: tuple[Column, ...] = ()
    # of a text panel, in Markdown
    text: str = ""
    # of an XY chart: horizontal, vertical
    axes: tuple[Axis, Axis] | None = None
    # of an XY chart, one for each query
    marks: tuple[Mark, ...] = ()
    # how far back its range reaches, whatever the dashboard's, such as "24h"; "": as far as the dashboard's
    time_from: str = ""
    # pairs of the first word of a legend and its colour, where the word means the same everywhere
    series_colours: tuple[tuple[str, str], ...] = ()
    # why there may be no data though everything is well, shown in place of "No data"; "": no data is a fault
    may_be_empty: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """Panels under a heading. They fill the 24 columns from left to right, then the next line."""

    # heading; "": none
    title: str
    # from left to right
    panels: tuple[Panel, ...]
    # True: only the heading is seen, and nothing is asked, until the viewer opens it
    folded: bool = False


@dataclass(frozen=True, slots=True)
class Board:
    """A dashboard."""

    # unique and stable: part of its URL
    uid: str
    title: str  # in Grafana's list
    # one or two sentences for Grafana's list of dashboards
    description: str
    # labels of the exporter's series that its viewers choose by; the user's identity labels come before them
    variables: tuple[str, ...]
    # from top to bottom
    rows: tuple[Row, ...]
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
