"""Annotations on every graph: alerts, restarts, new versions, configuration loads, drills."""

from __future__ import annotations

from typing import Any

from llm_serving_dashboards.panels import Colour
from llm_serving_dashboards.queries import QueryBuilder

# an annotation marks what was not there a minute ago: Grafana evaluates its query each minute
_BEFORE_SECONDS = 60.0


def build_annotations(queries: QueryBuilder) -> tuple[dict[str, Any], ...]:
    """Grafana's annotation queries of one dashboard. Those that fire often can be switched off at its top."""
    firing = queries.select_firing_alerts('severity=~"critical|warning"')
    level = "alertname", "model_name", "check"
    before = queries.aggregate("max", queries.dialect.offset(firing, _BEFORE_SECONDS), *level)
    version = queries.select_one("target_info", "model_name", "version")
    known = queries.dialect.with_own(queries.dialect.offset(queries.select_scraped("target_info"), _BEFORE_SECONDS))
    return (
        _write_annotation(
            "Alerts",
            Colour.BAD,
            f"{queries.aggregate('max', firing, *level)} unless {before}",
            "{{alertname}} {{model_name}}",
        ),
        _write_annotation(
            "Restarts",
            Colour.WARNING,
            _to_milliseconds(queries.select_one("target_start_time_seconds", "target")),
            "{{target}} started",
            at_value=True,
        ),
        _write_annotation(
            "Versions",
            Colour.PLAIN,
            # a new model is not a new version
            f"({version} unless {queries.match_on('model_name', 'version')} {known}) and {queries.match_on('model_name')} {known}",
            "{{model_name}}: version {{version}}",
        ),
        _write_annotation(
            "Configuration",
            Colour.PLAIN,
            _to_milliseconds(queries.select("exporter_config_reload_success_timestamp_seconds")),
            "exporter's configuration loaded",
            at_value=True,
            switch=False,
        ),
        _write_annotation(
            "Drills",
            Colour.DEAD,
            _to_milliseconds(queries.select_one("drill_last_run_timestamp_seconds", "model_name", "role")),
            "drill of {{model_name}} {{role}}",
            at_value=True,
            switch=False,
        ),
    )


def _to_milliseconds(expression: str) -> str:
    """Grafana reads the value as the annotation's time, in milliseconds."""
    return f"1000 * {expression}"


def _write_annotation(
    name: str, colour: str, expression: str, text: str, *, at_value: bool = False, switch: bool = True
) -> dict[str, Any]:
    return {
        "name": name, "enable": True, "hide": not switch, "iconColor": str(colour), "expr": expression, "titleFormat": name, "textFormat": text,
        "step": "60s", "useValueForTime": at_value, "datasource": {"type": "prometheus", "uid": "${datasource}"},
    }  # fmt: skip
