"""Changes to the JSON that grafanalib 0.7.1 writes: one table for each visualization, one for queries and one for rows.

grafanalib was frozen in 2024. Some keys that it writes have been renamed since, others mislead (at most 100 points a graph), and some of
Grafana 12's settings have no argument in its classes. It writes a heatmap in the Angular form and has no XY chart: both take from grafanalib only what
every panel has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Generic, TypeVar

from llm_serving_dashboards.grafana.fields import (
    Json,
    choose_colour_mode,
    choose_soft_maximum,
    count_rows,
    find_legend_width,
    write_detail_links,
    write_scale,
    write_value_mappings,
    write_xy_series,
)
from llm_serving_dashboards.panels import Panel, Query, Unit, Visualization

# --- Changes to JSON by dotted paths: keys that are added, replaced and removed.

Drawn = TypeVar("Drawn", Panel, Query, None)


@dataclass(frozen=True, slots=True)
class Changes(Generic[Drawn]):
    """Keys by dotted path. A value is a constant, or a function of what is drawn; None leaves the key out."""

    added: Mapping[str, Any] = field(default_factory=dict)  # grafanalib does not write them
    # grafanalib writes another value, and its class has no argument for ours
    replaced: Mapping[str, Any] = field(default_factory=dict)
    # Grafana 12 ignores them, migrates them, or reads them as something that is not meant
    removed: tuple[str, ...] = ()


def apply_changes(written: Json, changes: Changes[Drawn], drawn: Drawn) -> Json:
    """A copy of `written` with the changes. Keys whose value is None are left out, except in lists: the first threshold of a list starts at null."""
    changed = _copy_with_values(written)
    for path in changes.removed:
        _set_value(changed, path, None)
    for path, value in (*changes.replaced.items(), *changes.added.items()):
        _set_value(changed, path, value(drawn) if callable(value) else value)
    return changed


def _copy_with_values(written: Json) -> Json:
    return {
        name: _copy_with_values(value) if isinstance(value, dict) else value
        for name, value in written.items()
        if value is not None
    }


def _set_value(target: Json, path: str, value: Any) -> None:
    *parents, last = path.split(".")
    if value is None:
        for parent in parents:
            target = target.get(parent, {})
        target.pop(last, None)
        return
    for parent in parents:
        target = target.setdefault(parent, {})
    target[last] = value


# options belong to the plugin of this version: Grafana migrates those of a panel that names none
PLUGIN_VERSION = "12.0.0"


# --- parts of several tables ---------------------------------------------------------------------------------------

_DEFAULTS = "fieldConfig.defaults"
_CUSTOM = f"{_DEFAULTS}.custom"
_HIDDEN_ZEROS = {"options.tooltip.hideZeros": False}


_EVERY_PANEL_ADDED: Mapping[str, Any] = {
    "pluginVersion": PLUGIN_VERSION,
    # shown in place of "No data"
    f"{_DEFAULTS}.noValue": lambda panel: panel.may_be_empty or None,
    f"{_DEFAULTS}.links": write_detail_links,
}
_EVERY_PANEL_REMOVED = (
    # of Angular panels
    "editable",
    "error",
    # a graph has as many points as pixels
    "maxDataPoints",
    # Grafana saves them only where they are set
    "hideTimeOverride",
    "links",
    "transparent",
)
_BOUNDS: Mapping[str, Any] = {
    f"{_DEFAULTS}.min": lambda panel: panel.minimum,
    f"{_DEFAULTS}.max": lambda panel: panel.look.maximum,
}
# of the panels whose class has no argument for them
_FIELD: Mapping[str, Any] = {
    f"{_DEFAULTS}.unit": lambda panel: panel.look.unit.value,
    f"{_DEFAULTS}.decimals": lambda panel: panel.look.decimals,
    **_BOUNDS,
}
_OUR_FIELD: Mapping[str, Any] = {
    **_FIELD,
    f"{_DEFAULTS}.mappings": write_value_mappings,
    f"{_DEFAULTS}.color.mode": choose_colour_mode,
}


def _change_panel(
    added: Mapping[str, Any], replaced: Mapping[str, Any] = MappingProxyType({}), removed: tuple[str, ...] = ()
) -> Changes[Panel]:
    """What is changed of one kind of panel, beside what is changed of every one."""
    return Changes({**_EVERY_PANEL_ADDED, **added}, replaced, (*_EVERY_PANEL_REMOVED, *removed))


PANEL_CHANGES: Mapping[Visualization, Changes[Panel]] = {
    Visualization.TIME_SERIES: _change_panel(
        {
            **_HIDDEN_ZEROS,
            "options.legend.showLegend": True,
            # the heading of the one column that there is
            "options.legend.sortBy": "Last *",
            "options.legend.sortDesc": True,
            "options.legend.width": find_legend_width,
            # the class takes whole numbers only
            f"{_CUSTOM}.axisSoftMax": choose_soft_maximum,
        },
        # the class gives a linear scale the base of a logarithm
        replaced={f"{_CUSTOM}.scaleDistribution": write_scale},
    ),
    Visualization.STAT: _change_panel(
        {
            **_BOUNDS,
            "options.wideLayout": True,
            "options.showPercentChange": False,
            "options.percentChangeColorMode": "standard",
        },
        removed=(_CUSTOM,),
    ),
    Visualization.STATE_TIMELINE: _change_panel(
        {
            **_HIDDEN_ZEROS,
            **_FIELD,
            "options.legend.showLegend": True,
            "options.tooltip.sort": "none",
            # rows tall enough to read; the next page is a click away
            "options.perPage": count_rows,
            # a gap stays a gap
            f"{_CUSTOM}.spanNulls": False,
        }
    ),
    Visualization.TABLE: _change_panel(
        {
            **_BOUNDS,
            f"{_DEFAULTS}.decimals": lambda panel: panel.look.decimals,
            f"{_DEFAULTS}.mappings": write_value_mappings,
            f"{_DEFAULTS}.color.mode": choose_colour_mode,
            f"{_CUSTOM}.minWidth": 80,
            f"{_CUSTOM}.cellOptions": {"type": "auto"},
            "options.cellHeight": "sm",
        },
        # of the Angular table; Grafana 12 reads mappings and color from the field's defaults. cellOptions since Grafana 9
        removed=("color", "columns", "fontSize", "mappings", f"{_CUSTOM}.displayMode"),
    ),
    # of these grafanalib writes only what every panel has
    Visualization.HEATMAP: _change_panel(
        {
            **_OUR_FIELD,
            "type": Visualization.HEATMAP.value,
            "options": lambda panel: {
                "calculate": False, "cellGap": 1, "legend": {"show": True}, "showValue": "never",
                # the engine's own edges: a cell is what lies between two of them
                "rowsFrame": {"layout": "le"}, "yAxis": {"unit": panel.look.unit.value, "axisPlacement": "left", "reverse": False},
                "color": {"mode": "scheme", "scheme": "Turbo", "steps": 64, "scale": "exponential", "exponent": 0.5, "fill": "dark-orange",
                          "reverse": False},
                "filterValues": {"le": 1e-9}, "cellValues": {"unit": Unit.EVENTS_PER_SECOND.value}, "exemplars": {"color": "rgba(255,0,255,0.7)"},
                "tooltip": {"mode": "single", "yHistogram": True, "showColorScale": False},
            },
        }
    ),
    Visualization.XY_CHART: _change_panel(
        {
            **_OUR_FIELD,
            "type": Visualization.XY_CHART.value,
            _CUSTOM: {"show": "points", "pointSize": {"fixed": 8}, "fillOpacity": 60, "scaleDistribution": {"type": "log", "log": 10}},
            "timeFrom": lambda panel: panel.look.time_from or None,
            "options": {
                "mapping": "auto", "series": write_xy_series(),
                "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []},
                "tooltip": {"mode": "single", "sort": "none", "hideZeros": False},
            },
        }
    ),
    Visualization.TEXT: Changes(
        added={
            "pluginVersion": PLUGIN_VERSION,
            "type": Visualization.TEXT.value,
            "options": lambda panel: {"mode": "markdown", "content": panel.text, "code": {"language": "plaintext", "showLineNumbers": False, "showMiniMap": False}},
        },
        removed=(*_EVERY_PANEL_REMOVED, "targets", "transformations", "fieldConfig"),
    ),
}  # fmt: skip

# --- queries and rows ------------------------------------------------------------------------------------------------

QUERY_CHANGES: Changes[Query] = Changes(
    added={"editorMode": "code", "range": lambda query: not query.instant},
    # the class writes an empty one
    replaced={"interval": lambda query: query.step or None},
    removed=(
        # of other data sources
        "metric",
        "query",
        "target",
        # of Prometheus' editor before Grafana 7: half the points, and a step of ten seconds
        "intervalFactor",
        "step",
        # Grafana saves them only where they are set
        "hide",
    ),
)

# a row has a title and a place, nothing to draw
ROW_CHANGES: Changes[None] = Changes(removed=(*_EVERY_PANEL_REMOVED, "fieldConfig", "targets", "transformations"))
