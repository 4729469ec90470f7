"""Parts of a panel's JSON: legends, overrides, transformations, links."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from grafanalib import core

from llm_serving_dashboards.panels import (
    REPLICA_UID,
    Axis,
    Board,
    Colour,
    Column,
    Draw,
    Link,
    Panel,
    ThresholdStep,
    Unit,
    ValueMapping,
    Visualization,
    X,
)
from llm_serving_dashboards.queries import HiddenVariable, QueryBuilder

# --- Parts of a panel's JSON for which grafanalib has no class, or one that writes an older form of them.

Json = dict[str, Any]


def choose_colour_mode(panel: Panel) -> str:
    """Colours come from the thresholds; a number without any has the colour of text."""
    by_value = panel.look.thresholds or panel.visualization is Visualization.STAT
    return "thresholds" if by_value else "palette-classic"


def write_threshold_steps(steps: tuple[ThresholdStep, ...]) -> list[Json]:
    """At least one step: without thresholds everything has the colour of text.

    grafanalib's Threshold writes keys of the Angular graph and the word "null" for the lowest value.
    """
    return [{"color": str(step.colour), "value": step.from_value} for step in steps or (ThresholdStep("text"),)]


def write_value_mappings(panel: Panel) -> list[Json]:
    """A panel's values in words; of a single value also its absence, which else has the colour of the lowest threshold."""
    if panel.visualization is Visualization.STAT and panel.may_be_empty and not panel.look.mappings:
        return _write_mappings((ValueMapping(None, panel.may_be_empty, Colour.UNKNOWN),))
    return _write_mappings(panel.look.mappings)


def _write_mappings(mappings: tuple[ValueMapping, ...]) -> list[Json]:
    """Values in words. For no data grafanalib has no class."""
    items = [
        core.StatValueMappingItem(
            one.text, one.value if isinstance(one.value, str) else f"{one.value:g}", str(one.colour), index
        )
        for index, one in enumerate(mappings)
        if one.value is not None
    ]
    written: list[Json] = [core.StatValueMappings(*items).to_json_data()] if items else []
    for index, one in enumerate(mappings):
        if one.value is None:
            result = {"text": one.text, "color": str(one.colour), "index": index}
            written.append({"type": "special", "options": {"match": "null+nan", "result": result}})
    return written


def write_scale(panel: Panel) -> Json:
    """Of the vertical axis."""
    return {"type": "log", "log": 10} if panel.look.logarithmic else {"type": "linear"}


# without a highest value an axis that is 0 all the time reaches up to 100, which is 10,000 %
_SOFT_MAXIMUM = {Unit.RATIO: 0.05, Unit.COUNT: 1.0, Unit.TIMES: 1.0}


def choose_soft_maximum(panel: Panel) -> float | None:
    """How high the axis reaches at least."""
    if panel.look.maximum is not None or panel.look.logarithmic:
        return None
    return _SOFT_MAXIMUM.get(panel.look.unit)


# where a third of a graph is wide enough for names and a value, of 24 columns; Grafana keeps a table below a graph within 35 % of what is below the title
_WIDE = 12
# in rows of 30 pixels
_TALL = 12
# of a screen of 1920 pixels without the menu
_COLUMN_PIXELS = 66


def place_legend(panel: Panel) -> str:
    """Beside a wide graph, else below it, as below a tall one, whose third has room for names of any length."""
    return "right" if panel.look.width >= _WIDE and panel.look.height < _TALL else "bottom"


def find_legend_width(panel: Panel) -> int | None:
    """In pixels: a third of the graph; None: all of it."""
    return panel.look.width * _COLUMN_PIXELS // 3 if place_legend(panel) == "right" else None


def write_link(link: Link) -> list[Json]:
    """A click opens what the link leads to: a dashboard in the same window, a page elsewhere in another one."""
    if link.url:
        return [{"title": "Details", "url": link.url, "targetBlank": True}]
    chosen = "".join(f"&var-{name}={value}" for name, value in link.chosen)
    alone = f"&viewPanel=panel-{link.panel}" if link.panel is not None else ""
    url = f"/d/{link.uid}?${{__url_time_range}}&var-datasource=${{datasource}}{chosen}{alone}"
    return [{"title": "Details", "url": url, "targetBlank": False}]


def write_detail_links(panel: Panel) -> list[Json] | None:
    """A click on the value opens the details, with the variables and the time range of this dashboard."""
    if not panel.look.detail_uid:
        return None
    url = f"/d/{panel.look.detail_uid}?${{__url_time_range}}&${{__all_variables}}"
    return [{"title": "Details", "url": url, "targetBlank": False}]


def name_query(number: int) -> str:
    """A, B, C …"""
    return chr(ord("A") + number)


def write_transformations(panel: Panel, identity: tuple[str, ...]) -> list[Json]:
    """A table has a row for each set of labels, and only the columns that are named. `identity`: labels that rows differ in too."""
    if any("{{gpu}}" in query.legend for query in panel.queries):
        # the beginning of a UUID is enough to tell cards apart
        shortened = {"regex": r"(.*)((?:GPU|MIG)-\w{8})[-\w]*(.*)", "renamePattern": "$1$2$3"}
        return [{"id": "renameByRegex", "options": shortened}]
    if not panel.columns:
        return []
    names = [_name_field(column.source, panel) for column in panel.columns]
    first = panel.columns[0]
    organized: Json = {
        "indexByName": {name: place for place, name in enumerate(names)},
        "renameByName": {name: column.title for name, column in zip(names, panel.columns, strict=True)},
    }
    if panel.look.sorted_by is None:
        # names in alphabetical order, values from the largest
        kept, before, after = names, [], [_sort(first.title, isinstance(first.source, int))]
    else:
        by = _name_field(panel.look.sorted_by, panel)
        # Grafana sorts by one field, and keeps the order of what is equal
        kept, before, after = [*dict.fromkeys((*names, by))], [_sort(names[0], False), _sort(by, True)], []
        if by not in names:
            organized["excludeByName"] = {by: True}
    every = [f"Value #{name_query(number)}" for number in range(len(panel.queries))]
    reduced = {"reducer": "lastNotNull", "include": every}
    alike: list[Json] = [
        {
            "id": "calculateField",
            "options": {"mode": "reduceRow", "reduce": reduced, "alias": "Value", "replaceFields": False},
        }
    ]
    return [
        {"id": "labelsToFields", "options": {"mode": "columns"}},
        {"id": "merge", "options": {}},
        *(alike if panel.look.one_value else _drop_empty(panel, identity)),
        {"id": "filterFieldsByName", "options": {"include": {"names": kept}}},
        *before,
        {"id": "organize", "options": organized},
        *after,
    ]


def _drop_empty(panel: Panel, identity: tuple[str, ...]) -> list[Json]:
    """Of several queries without an answer Grafana shows headings without rows, and not the sentence for that: grouping drops what has no label."""
    if len(panel.queries) == 1:
        return []
    labels = (*identity, *(column.source for column in panel.columns if isinstance(column.source, str)))
    fields: Json = {label: {"operation": "groupby", "aggregations": []} for label in labels}
    for number in range(len(panel.queries)):
        fields[f"Value #{name_query(number)}"] = {"operation": "aggregate", "aggregations": ["lastNotNull"]}
    return [{"id": "groupBy", "options": {"fields": fields}}]


def _sort(field: str, descending: bool) -> Json:
    return {"id": "sortBy", "options": {"sort": [{"field": field, "desc": descending}]}}


def _name_field(source: str | int, panel: Panel) -> str:
    if isinstance(source, str):
        return source
    if panel.look.one_value or len(panel.queries) == 1:
        return "Value"
    return f"Value #{name_query(source)} (lastNotNull)"


def count_rows(panel: Panel) -> int:
    """Of a state timeline how many rows a page has; 0: there are no pages, since there is a row a query."""
    return panel.look.height - 1 if any("{{" in query.legend for query in panel.queries) else 0


# of an override: what it sets, by Grafana's name, and to what; None leaves it out
Property = tuple[str, Any]
_CELL = "${__value.raw:percentencode}"


def _override(by: str, which: str, properties: Iterable[Property]) -> list[Json]:
    """What the fields that a matcher chooses have otherwise; nothing where that is nothing."""
    written = [{"id": name, "value": value} for name, value in properties if value is not None]
    return [{"matcher": {"id": by, "options": which}, "properties": written}] if written else []


def _paint(colour: str) -> Property:
    return "color", {"mode": "fixed", "fixedColor": str(colour)} if colour else None


def link_replica(uid: str, target: str) -> Property:
    """A click leads to the dashboard of one replica. `target`: Grafana's variable with its name."""
    url = f"/d/{uid}?var-target={target}&var-datasource=${{datasource}}&${{__url_time_range}}"
    return "links", [{"title": "Replica", "url": url, "targetBlank": False}]


def write_overrides(panel: Panel) -> list[Json]:
    """Colours of series that mean the same everywhere; unit, decimals and colours of a table's columns."""
    overrides: list[Json] = []
    for word, colour in panel.look.series_colours:
        overrides += _override("byRegexp", f"/^{word}\\b/", [_paint(colour)])
    for number, query in enumerate(panel.queries):
        unit = None if query.unit is None else query.unit.value
        own = ("unit", unit), _paint(query.colour), ("mappings", _write_mappings(query.mappings) or None)
        overrides += _override("byFrameRefID", name_query(number), own)
    # else a cell without a value would show the sentence for a table without rows
    blank = "–" if panel.may_be_empty else None  # a dash, as in our documents
    for column in panel.columns:
        overrides += _override("byName", column.title, _write_column(column, blank))
    return overrides


def _write_column(column: Column, blank: str | None) -> Iterator[Property]:
    is_label, since = isinstance(column.source, str), column.unit is Unit.MILLISECONDS_SINCE
    yield "unit", None if is_label else column.unit.value
    yield "noValue", blank
    yield from _write_cell(column)
    if is_label:
        yield link_replica(REPLICA_UID, _CELL) if column.source == "target" else ("links", None)
        return
    # words, not a number
    yield "custom.align", "left" if since else None
    yield "custom.width", 120 if since and column.width is None else None
    yield "decimals", column.decimals
    if column.thresholds:
        yield "thresholds", {"mode": "absolute", "steps": write_threshold_steps(column.thresholds)}
        yield "color", {"mode": "thresholds"}
        yield "custom.cellOptions", {"type": "color-text"}


def _write_cell(column: Column) -> Iterator[Property]:
    """How the cells of a column look, and where they lead."""
    yield "mappings", _write_mappings(column.mappings) or None
    if column.mappings and column.coloured:
        whole = {"applyToRow": True} if column.colours_row else {}
        yield "custom.cellOptions", {"type": "color-background", "mode": "basic", **whole}
        yield "custom.align", "center"
    yield "links", None if column.link is None else write_link(column.link)
    # of Grafana 12.0 and 12.1, and since then
    yield "custom.hidden", column.hidden or None
    yield "custom.hideFrom.viz", column.hidden or None
    # words, not numbers
    yield "custom.align", "left" if column.mappings and not column.coloured else None
    yield "custom.minWidth", column.least_width
    yield "custom.width", column.width


# --- Legends without what is the same everywhere: a label is written only while the chosen series differ in it.
#
# Grafana's legend templates know no condition. So a hidden variable has the text for a label, `{{role}}`, or one that writes nothing, and
# Grafana asks again which one whenever the choice or the time range changes. It needs one small query a dashboard instead of one more join
# a panel.

PREFIX = "legend_"
# a label that no series has: Grafana writes nothing in its place
NOTHING = "{{nothing}}"
_SAID = re.compile(r"\{\{(\w+)\}\}")
# a legend that names one of these names a model, a replica or a node, of which there may be one in each place
_NAMING = {"model_name", "target", "node"}
# in whose text a word stands before the value
_WORDS = {"engine": "engine {{engine}}"}
# never all that a legend says, since other words are left where they are dropped
_MINOR = ("role", "engine")


def list_varying(legend: str, identity: tuple[str, ...]) -> tuple[str, ...]:
    """Labels of a legend that are written only where they vary. `identity`: the user's labels, which are added to legends that name something."""
    said = _SAID.findall(legend)
    added = identity if _NAMING & {*said} else ()
    minor = tuple(label for label in _MINOR if label in said)
    # a model is all that its legend says, a node is not: its GPU follows
    rest = _SAID.sub(lambda match: "" if match[1] in (*_MINOR, "model_name") else match[0], legend).replace(
        "engine", ""
    )
    model = ("model_name",) if "model_name" in said and rest.strip() else ()
    node = ("node",) if {"node", "gpu"} <= {*said} else ()
    # of a model's GPUs the kinds are not counted
    kind = ("gpu_name",) if "gpu_name" in said and "model_name" not in said and rest.strip() != "{{gpu_name}}" else ()
    return (*model, *node, *kind, *minor, *added)


def write_legend(legend: str, identity: tuple[str, ...]) -> str:
    """Grafana's template, with a variable in place of each label that may be the same everywhere. "": Grafana names the series."""
    for label in list_varying(legend, identity):
        text, variable = _WORDS.get(label, f"{{{{{label}}}}}"), f"${PREFIX}{label}"
        legend = legend.replace(text, variable) if text in legend else f"{legend} {variable}"
    return legend.strip() or "__auto"


def blank_varying(legend: str) -> str:
    """The name of a series, written by `write_legend`, where no label varies: Grafana keeps the spaces between them."""
    return re.sub(rf"\${PREFIX}\w+", "", legend)


def write_legend_variables(board: Board, queries: QueryBuilder) -> list[Json]:
    """A hidden variable for each label that some legend of the dashboard writes only where it varies."""
    identity = queries.settings.identity_labels
    labels = dict.fromkeys(
        label for panel in board.panels for query in panel.queries for label in list_varying(query.legend, identity)
    )
    return [write_hidden_variable(_choose_text(label, queries)) for label in labels]


def _choose_text(label: str, queries: QueryBuilder) -> HiddenVariable:
    text = _WORDS.get(label, f"{{{{{label}}}}}")
    query = (
        f'label_replace({queries.count_chosen(label)} > 1, "legend", "{text}", "", "")'
        f' or on () label_replace(vector(0), "legend", "{NOTHING}", "", "")'
    )
    return HiddenVariable(f"{PREFIX}{label}", query, "legend")


def write_hidden_variable(variable: HiddenVariable) -> Json:
    """A variable that takes its values out of the text of a query's result."""
    return write_variable(
        variable.name, f"query_result({variable.query})", several=variable.several, label=variable.label
    )


DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}


def write_variable(
    name: str, query: str, *, several: bool, label: str = "", hidden: bool = True, sort: int = 0, **more: Any
) -> Json:
    """A variable by a query of Grafana's. `label`: of the series of a query's result, whose values are the variable's; "": the query lists them."""
    return {
        "name": name, "type": "query", "datasource": DATASOURCE, "query": {"query": query, "refId": name}, "definition": query,
        # 2: not at the top of the dashboard; and, for `refresh`, whenever the time range changes, since models come and go
        "hide": 2 if hidden else 0, "refresh": 2, "sort": sort, "includeAll": several, "multi": several, "options": [],
        "regex": f'/{label}="([^"]*)"/' if label else "",
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]} if several else {},
        # another dashboard has its own of what is hidden
        "skipUrlSync": hidden, **more,
    }  # fmt: skip


# --- How the lines of a graph are drawn that are not drawn as all others are, and where a click on them leads.

_SERIES_TARGET = "${__field.labels.target:percentencode}"


def write_line_overrides(panel: Panel, identity: tuple[str, ...]) -> list[Json]:
    """Overrides for the queries of a graph, after those for its series. `identity`: labels that legends have too."""
    overrides: list[Json] = []
    for number, query in enumerate(panel.queries):
        properties = list(_write_drawing(panel, number, identity))
        if query.replica_uid:
            properties.append(link_replica(query.replica_uid, _SERIES_TARGET))
        overrides += _override("byFrameRefID", name_query(number), properties)
    return overrides


def _write_drawing(panel: Panel, number: int, identity: tuple[str, ...]) -> Iterator[Property]:
    draw = panel.queries[number].draw
    if draw is Draw.LINE:
        return
    if draw in (Draw.MAIN, Draw.OWN):
        yield "custom.lineWidth", 2
        yield _paint(Colour.PLAIN if draw is Draw.OWN else "")
        return
    yield _paint(Colour.UNKNOWN)
    yield "custom.lineWidth", 0.5
    # of a band the names of the worst stand there, and the description says what it is
    yield "custom.hideFrom", {"legend": True, "tooltip": draw is Draw.BEHIND, "viz": False}
    if draw is Draw.TOP_EDGE:
        # by the name of the one series that the next query has where there is a band to fill
        yield "custom.fillBelowTo", blank_varying(write_legend(panel.queries[number + 1].legend, identity))
        yield "custom.fillOpacity", 15


# --- XY charts, of which grafanalib has no class: each query is a series of points or a line, on logarithmic axes.


def write_xy_series() -> list[Json]:
    """Every frame with a horizontal value, one for each query, is a series. Grafana 12.4 knows frames by their number only, and a query
    without an answer has none."""
    return [{"x": {"matcher": {"id": "byName", "options": X}}}]


def write_xy_transformations() -> list[Json]:
    """Labels are text: the horizontal axis needs numbers, and a line goes from the left to the right."""
    number = {"targetField": X, "destinationType": "number"}
    return [
        {"id": "convertFieldType", "options": {"fields": {}, "conversions": [number]}},
        {"id": "sortBy", "options": {"sort": [{"field": X, "desc": False}]}},
    ]


def write_xy_overrides(panel: Panel) -> list[Json]:
    """The horizontal axis, then the marks of each query with the vertical one; none without axes."""
    if panel.axes is None:
        return []
    horizontal, vertical = panel.axes
    overrides = _override("byName", X, _write_axis(horizontal))
    for number, mark in enumerate(panel.marks):
        drawn = (
            ("displayName", mark.title),
            ("custom.show", "lines" if mark.size is None else "points"),
            ("custom.lineWidth", 2),
            ("custom.pointSize.fixed", mark.size or 1),
            _paint(mark.colour),
        )
        # as Prometheus' data source calls the values of several queries
        overrides += _override("byName", f"Value #{name_query(number)}", (*_write_axis(vertical), *drawn))
    return overrides


def _write_axis(axis: Axis) -> tuple[Property, ...]:
    return (
        ("unit", axis.unit.value),
        ("min", axis.lowest),
        ("max", axis.highest),
        ("custom.axisLabel", axis.title),
        ("custom.scaleDistribution", {"type": "log", "log": 10}),
    )
