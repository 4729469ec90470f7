"""XY charts, of which grafanalib has no class: each query is a series of points or a line, on logarithmic axes."""

from __future__ import annotations

from llm_serving_dashboards.grafana.fields import Json, name_query
from llm_serving_dashboards.panels import Axis, Panel, X


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
    found = [{"matcher": {"id": "byName", "options": X}, "properties": _write_axis(horizontal)}]
    for number, mark in enumerate(panel.marks):
        drawn: list[Json] = [
            {"id": "displayName", "value": mark.title},
            {"id": "custom.show", "value": "lines" if mark.size is None else "points"},
            {"id": "custom.lineWidth", "value": 2},
            {"id": "custom.pointSize.fixed", "value": mark.size or 1},
            {"id": "color", "value": {"mode": "fixed", "fixedColor": str(mark.colour)}},
        ]
        matcher = {"id": "byName", "options": _name_value(number)}
        found.append({"matcher": matcher, "properties": [*_write_axis(vertical), *drawn]})
    return found


def _write_axis(axis: Axis) -> list[Json]:
    return [
        {"id": "unit", "value": axis.unit.value},
        {"id": "min", "value": axis.lowest},
        {"id": "max", "value": axis.highest},
        {"id": "custom.axisLabel", "value": axis.title},
        {"id": "custom.scaleDistribution", "value": {"type": "log", "log": 10}},
    ]


def _name_value(number: int) -> str:
    """Prometheus' data source calls the values of several queries so."""
    return f"Value #{name_query(number)}"
