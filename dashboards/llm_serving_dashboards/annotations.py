"""Annotations on every graph: alerts that notify somebody; at the click of a switch restarts, new versions, configuration loads and drills too.

With more than three chosen models there are none: the alerts of sixteen are a curtain before every graph, and say nothing of the one that is looked at.
"""

from __future__ import annotations

from typing import Any

from llm_serving_alerts.external import FIRING
from llm_serving_dashboards.firing import GRAVE, find_firing, shows_rest
from llm_serving_dashboards.panels import Board, Colour
from llm_serving_dashboards.queries import QueryBuilder

# an annotation marks what was not there a minute ago: Grafana evaluates its query each minute
_BEFORE_SECONDS = 60.0
# chosen models (nodes, where GPUs are chosen) of which events can still be seen one by one
MOST_CHOSEN = 3
# alerts of any other severity notify nobody who has to do something: docs/alertmanager.md
_NOTIFIES = 'severity=~"critical|warning"'


def build_annotations(board: Board, queries: QueryBuilder) -> tuple[dict[str, Any], ...]:
    """Grafana's annotation queries of one dashboard. Only alerts are there at first; each has a switch at its top."""
    about_gpus = "model_name" not in queries.variables
    # a ticket that becomes a page is a mark of its own
    level = "alertname", "severity", "model_name", "node", "gpu", *board.single
    chosen = "".join(f',{label}=~"${label}|"' for label in queries.settings.identity_labels)
    every = f'{FIRING.name}{{alertstate="firing",{_NOTIFIES}{chosen}}}'
    before = queries.aggregate("max", queries.dialect.offset(every, _BEFORE_SECONDS), *level)
    began = f"{queries.aggregate('max', find_firing(queries, _NOTIFIES, rest=shows_rest(board.uid), single=bool(board.single)), *level)} unless {before}"
    for severity, word, _ in GRAVE:
        began = f'label_replace({began}, "told", "{word}", "severity", "{severity}")'
    version = queries.select_one("target_info", "model_name", "version")
    known = queries.dialect.with_own(queries.dialect.offset(queries.select_scraped("target_info"), _BEFORE_SECONDS))

    def write(name: str, colour: Colour, expression: str, text: str, **more: bool) -> dict[str, Any]:
        counted = "node" if about_gpus else "model_name"
        return _write_annotation(name, colour, queries.hide_above(MOST_CHOSEN, counted, expression), text, **more)

    return (
        write(
            "Alerts",
            Colour.BAD,
            began,
            "{{alertname}} ({{told}}) {{model_name}} {{node}}",
            enabled=True,
        ),
        write(
            "Restarts",
            Colour.WARNING,
            _to_milliseconds(queries.select_one("target_start_time_seconds", "target")),
            "{{target}} started",
            at_value=True,
        ),
        write(
            "Versions",
            Colour.PLAIN,
            # a new model is not a new version
            f"({version} unless {queries.match_on('model_name', 'version')} {known}) and {queries.match_on('model_name')} {known}",
            "{{model_name}}: version {{version}}",
        ),
        write(
            "Configuration",
            Colour.PLAIN,
            _to_milliseconds(queries.select("exporter_config_reload_success_timestamp_seconds")),
            "exporter's configuration loaded",
            at_value=True,
        ),
        write(
            "Drills",
            Colour.DEAD,
            _to_milliseconds(queries.select_one("drill_last_run_timestamp_seconds", "model_name", "role")),
            "drill of {{model_name}} {{role}}",
            at_value=True,
        ),
    )


def _to_milliseconds(expression: str) -> str:
    """Grafana reads the value as the annotation's time, in milliseconds."""
    return f"1000 * {expression}"


def _write_annotation(
    name: str, colour: str, expression: str, text: str, *, at_value: bool = False, enabled: bool = False
) -> dict[str, Any]:
    return {
        "name": name, "enable": enabled, "hide": False, "iconColor": str(colour), "expr": expression, "titleFormat": name, "textFormat": text,
        "step": "60s", "useValueForTime": at_value, "datasource": {"type": "prometheus", "uid": "${datasource}"},
    }  # fmt: skip
