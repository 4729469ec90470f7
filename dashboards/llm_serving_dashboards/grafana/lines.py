"""How the lines of a graph are drawn that are not drawn as all others are, and where a click on them leads."""

from __future__ import annotations

from llm_serving_dashboards.grafana.fields import Json, name_query, write_replica_link
from llm_serving_dashboards.grafana.legends import blank_varying, write_legend
from llm_serving_dashboards.panels import Colour, Draw, Panel

_SERIES_TARGET = "${__field.labels.target:percentencode}"
_GREY: Json = {"id": "color", "value": {"mode": "fixed", "fixedColor": str(Colour.UNKNOWN)}}


def write_line_overrides(panel: Panel, identity: tuple[str, ...]) -> list[Json]:
    """Overrides for the queries of a graph, after those for its series. `identity`: labels that legends have too."""
    found: list[Json] = []
    for number, query in enumerate(panel.queries):
        properties = _write_drawing(panel, number, identity)
        if query.replica_uid:
            properties.append(write_replica_link(query.replica_uid, _SERIES_TARGET))
        if properties:
            found.append({"matcher": {"id": "byFrameRefID", "options": name_query(number)}, "properties": properties})
    return found


def _write_drawing(panel: Panel, number: int, identity: tuple[str, ...]) -> list[Json]:
    draw = panel.queries[number].draw
    if draw is Draw.LINE:
        return []
    thick: Json = {"id": "custom.lineWidth", "value": 2}
    if draw is Draw.MAIN:
        return [thick]
    if draw is Draw.OWN:
        return [thick, {"id": "color", "value": {"mode": "fixed", "fixedColor": str(Colour.PLAIN)}}]
    thin = [_GREY, {"id": "custom.lineWidth", "value": 0.5}]
    if draw is Draw.BEHIND:
        return [*thin, {"id": "custom.hideFrom", "value": {"legend": True, "tooltip": True, "viz": False}}]
    # the names of the worst stand there, and the description says what the band is
    thin.append({"id": "custom.hideFrom", "value": {"legend": True, "tooltip": False, "viz": False}})
    if draw is Draw.BOTTOM_EDGE:
        return thin
    # by the name of the one series that the next query has where there is a band to fill
    below = blank_varying(write_legend(panel.queries[number + 1].legend, identity))
    return [*thin, {"id": "custom.fillBelowTo", "value": below}, {"id": "custom.fillOpacity", "value": 15}]
