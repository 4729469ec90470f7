"""Parts of a panel's JSON for which grafanalib has no class, or one that writes an older form of them."""

from __future__ import annotations

from typing import Any

from grafanalib import core

from llm_serving_dashboards.panels import REPLICA_UID, Column, Panel, ThresholdStep, Unit

Json = dict[str, Any]


def choose_colour_mode(panel: Panel) -> str:
    """Colours come from the thresholds unless these are only drawn as lines."""
    return "thresholds" if panel.thresholds and not panel.draw_thresholds else "palette-classic"


def write_threshold_steps(steps: tuple[ThresholdStep, ...]) -> list[Json]:
    """At least one step: without thresholds everything has the colour of text.

    grafanalib's Threshold writes keys of the Angular graph and the word "null" for the lowest value.
    """
    return [{"color": str(step.colour), "value": step.from_value} for step in steps or (ThresholdStep("text"),)]


def write_value_mappings(panel: Panel) -> list[Json]:
    """Values in words. For no data grafanalib has no class."""
    items = [
        core.StatValueMappingItem(one.text, f"{one.value:g}", str(one.colour), index)
        for index, one in enumerate(panel.mappings)
        if one.value is not None
    ]
    found: list[Json] = [core.StatValueMappings(*items).to_json_data()] if items else []
    for index, one in enumerate(panel.mappings):
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


def write_detail_links(panel: Panel) -> list[Json] | None:
    """A click on the value opens the details, with the variables and the time range of this dashboard."""
    if not panel.detail_uid:
        return None
    url = f"/d/{panel.detail_uid}?${{__url_time_range}}&${{__all_variables}}"
    return [{"title": "Details", "url": url, "targetBlank": False}]


def name_query(number: int) -> str:
    """A, B, C …"""
    return chr(ord("A") + number)


def write_transformations(panel: Panel) -> list[Json]:
    """A table has a row for each set of labels, and only the columns that are named."""
    if any("{{gpu}}" in query.legend for query in panel.queries):
        # the beginning of a UUID is enough to tell cards apart
        shortened = {"regex": r"(.*)((?:GPU|MIG)-\w{8})[-\w]*(.*)", "renamePattern": "$1$2$3"}
        return [{"id": "renameByRegex", "options": shortened}]
    if not panel.columns:
        return []
    names = [_name_field(column, panel) for column in panel.columns]
    first = panel.columns[0]
    return [
        {"id": "labelsToFields", "options": {"mode": "columns"}},
        {"id": "merge", "options": {}},
        {"id": "filterFieldsByName", "options": {"include": {"names": names}}},
        {
            "id": "organize",
            "options": {
                "indexByName": {name: place for place, name in enumerate(names)},
                "renameByName": {name: column.title for name, column in zip(names, panel.columns, strict=True)},
            },
        },
        # names in alphabetical order, values from the largest
        {"id": "sortBy", "options": {"sort": [{"field": first.title, "desc": isinstance(first.source, int)}]}},
    ]


def _name_field(column: Column, panel: Panel) -> str:
    if isinstance(column.source, str):
        return column.source
    return "Value" if len(panel.queries) == 1 else f"Value #{name_query(column.source)}"


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
    for column in panel.columns:
        if isinstance(column.source, str):
            linked = [write_replica_link(REPLICA_UID, _CELL)] if column.source == "target" else []
            if blank or linked:
                found.append({"matcher": {"id": "byName", "options": column.title}, "properties": [*blank, *linked]})
            continue
        properties: list[Json] = [{"id": "unit", "value": column.unit.value}, *blank]
        if column.unit is Unit.MILLISECONDS_SINCE:
            # words, not a number
            properties += [{"id": "custom.align", "value": "left"}, {"id": "custom.width", "value": 120}]
        if column.decimals is not None:
            properties.append({"id": "decimals", "value": column.decimals})
        if column.thresholds:
            thresholds = {"mode": "absolute", "steps": write_threshold_steps(column.thresholds)}
            properties.append({"id": "thresholds", "value": thresholds})
            properties.append({"id": "color", "value": {"mode": "thresholds"}})
            properties.append({"id": "custom.cellOptions", "value": {"type": "color-text"}})
        found.append({"matcher": {"id": "byName", "options": column.title}, "properties": properties})
    return found
