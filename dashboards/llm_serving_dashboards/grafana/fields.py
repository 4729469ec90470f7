"""Parts of a panel's JSON for which grafanalib has no class, or one that writes an older form of them."""

from __future__ import annotations

from typing import Any

from grafanalib import core

from llm_serving_dashboards.panels import (
    REPLICA_UID,
    Colour,
    Column,
    Link,
    Panel,
    Query,
    ThresholdStep,
    Unit,
    ValueMapping,
    Visualization,
)

Json = dict[str, Any]


def choose_colour_mode(panel: Panel) -> str:
    """Colours come from the thresholds unless these are only drawn as lines; a number without any has the colour of text."""
    by_value = panel.thresholds or panel.visualization is Visualization.STAT
    return "thresholds" if by_value and not panel.draw_thresholds else "palette-classic"


def write_threshold_steps(steps: tuple[ThresholdStep, ...]) -> list[Json]:
    """At least one step: without thresholds everything has the colour of text.

    grafanalib's Threshold writes keys of the Angular graph and the word "null" for the lowest value.
    """
    return [{"color": str(step.colour), "value": step.from_value} for step in steps or (ThresholdStep("text"),)]


def write_value_mappings(panel: Panel) -> list[Json]:
    """A panel's values in words; of a single value also its absence, which else has the colour of the lowest threshold."""
    if panel.visualization is Visualization.STAT and panel.may_be_empty and not panel.mappings:
        return _write_mappings((ValueMapping(None, panel.may_be_empty, Colour.UNKNOWN),))
    return _write_mappings(panel.mappings)


def _write_mappings(mappings: tuple[ValueMapping, ...]) -> list[Json]:
    """Values in words. For no data grafanalib has no class."""
    items = [
        core.StatValueMappingItem(
            one.text, one.value if isinstance(one.value, str) else f"{one.value:g}", str(one.colour), index
        )
        for index, one in enumerate(mappings)
        if one.value is not None
    ]
    found: list[Json] = [core.StatValueMappings(*items).to_json_data()] if items else []
    for index, one in enumerate(mappings):
        if one.value is None:
            result = {"text": one.text, "color": str(one.colour), "index": index}
            found.append({"type": "special", "options": {"match": "null+nan", "result": result}})
    return found


def write_scale(panel: Panel) -> Json:
    """Of the vertical axis."""
    return {"type": "log", "log": 10} if panel.logarithmic else {"type": "linear"}


# without a highest value an axis that is 0 all the time reaches up to 100, which is 10,000 %
_SOFT_MAXIMUM = {Unit.RATIO: 0.05, Unit.COUNT: 1.0, Unit.TIMES: 1.0}


def choose_soft_maximum(panel: Panel) -> float | None:
    """How high the axis reaches at least."""
    if panel.maximum is not None or panel.logarithmic:
        return None
    return _SOFT_MAXIMUM.get(panel.unit)


# where a third of a graph is wide enough for names and a value, of 24 columns; Grafana keeps a table below a graph within 35 % of what is below the title
_WIDE = 12
# in rows of 30 pixels
_TALL = 12
# of a screen of 1920 pixels without the menu
_COLUMN_PIXELS = 66


def place_legend(panel: Panel) -> str:
    """Beside a wide graph, else below it, as below a tall one, whose third has room for names of any length."""
    return "right" if panel.width >= _WIDE and panel.height < _TALL else "bottom"


def find_legend_width(panel: Panel) -> int | None:
    """In pixels: a third of the graph; None: all of it."""
    return panel.width * _COLUMN_PIXELS // 3 if place_legend(panel) == "right" else None


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
    if panel.link is not None:
        return write_link(panel.link)
    if not panel.detail_uid:
        return None
    url = f"/d/{panel.detail_uid}?${{__url_time_range}}&${{__all_variables}}"
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
    if panel.sorted_by is None:
        # names in alphabetical order, values from the largest
        kept, before, after = names, [], [_sort(first.title, isinstance(first.source, int))]
    else:
        by = _name_field(panel.sorted_by, panel)
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
        *(alike if panel.one_value else _drop_empty(panel, identity)),
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
    if panel.one_value or len(panel.queries) == 1:
        return "Value"
    return f"Value #{name_query(source)} (lastNotNull)"


def count_rows(panel: Panel) -> int:
    """Of a state timeline how many rows a page has; 0: there are no pages, since there is a row a query."""
    return panel.height - 1 if any("{{" in query.legend for query in panel.queries) else 0


_CELL = "${__value.raw:percentencode}"


def write_replica_link(uid: str, target: str) -> Json:
    """A property: a click leads to the dashboard of one replica. `target`: Grafana's variable with its name."""
    url = f"/d/{uid}?var-target={target}&var-datasource=${{datasource}}&${{__url_time_range}}"
    return {"id": "links", "value": [{"title": "Replica", "url": url, "targetBlank": False}]}


def write_overrides(panel: Panel) -> list[Json]:
    """Colours of series that mean the same everywhere; unit, decimals and colours of a table's columns."""
    found: list[Json] = [
        {
            "matcher": {"id": "byRegexp", "options": f"/^{word}\\b/"},
            "properties": [{"id": "color", "value": {"mode": "fixed", "fixedColor": str(colour)}}],
        }
        for word, colour in panel.series_colours
    ]
    # else a cell without a value would show the sentence for a table without rows
    blank: list[Json] = [{"id": "noValue", "value": "–"}] if panel.may_be_empty else []  # a dash, as in our documents
    for number, query in enumerate(panel.queries):
        if own := _write_own(query):
            found.append({"matcher": {"id": "byFrameRefID", "options": name_query(number)}, "properties": own})
    for column in panel.columns:
        properties = [*blank, *_write_cell(column)]
        if isinstance(column.source, str):
            if column.source == "target":
                properties.append(write_replica_link(REPLICA_UID, _CELL))
            if properties:
                found.append({"matcher": {"id": "byName", "options": column.title}, "properties": properties})
            continue
        properties.insert(0, {"id": "unit", "value": column.unit.value})
        if column.unit is Unit.MILLISECONDS_SINCE:
            # words, not a number
            properties.append({"id": "custom.align", "value": "left"})
            if column.width is None:
                properties.append({"id": "custom.width", "value": 120})
        if column.decimals is not None:
            properties.append({"id": "decimals", "value": column.decimals})
        if column.thresholds:
            thresholds = {"mode": "absolute", "steps": write_threshold_steps(column.thresholds)}
            properties.append({"id": "thresholds", "value": thresholds})
            properties.append({"id": "color", "value": {"mode": "thresholds"}})
            properties.append({"id": "custom.cellOptions", "value": {"type": "color-text"}})
        found.append({"matcher": {"id": "byName", "options": column.title}, "properties": properties})
    return found


def _write_own(query: Query) -> list[Json]:
    """What the series of a query have otherwise than the panel."""
    unit: list[Json] = [{"id": "unit", "value": query.unit.value}] if query.unit is not None else []
    colour: list[Json] = (
        [{"id": "color", "value": {"mode": "fixed", "fixedColor": query.colour}}] if query.colour else []
    )
    mappings: list[Json] = [{"id": "mappings", "value": _write_mappings(query.mappings)}] if query.mappings else []
    return [*unit, *colour, *mappings]


def _write_cell(column: Column) -> list[Json]:
    """How the cells of a column look, and where they lead."""
    properties: list[Json] = []
    if column.mappings:
        properties.append({"id": "mappings", "value": _write_mappings(column.mappings)})
    if column.mappings and column.coloured:
        whole = {"applyToRow": True} if column.colours_row else {}
        properties.append({"id": "custom.cellOptions", "value": {"type": "color-background", "mode": "basic", **whole}})
        properties.append({"id": "custom.align", "value": "center"})
    if column.link is not None:
        properties.append({"id": "links", "value": write_link(column.link)})
    if column.hidden:
        # of Grafana 12.0 and 12.1, and since then
        properties.append({"id": "custom.hidden", "value": True})
        properties.append({"id": "custom.hideFrom.viz", "value": True})
    if column.mappings and not column.coloured:
        # words, not numbers
        properties.append({"id": "custom.align", "value": "left"})
    if column.least_width is not None:
        properties.append({"id": "custom.minWidth", "value": column.least_width})
    if column.width is not None:
        properties.append({"id": "custom.width", "value": column.width})
    return properties
