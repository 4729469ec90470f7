"""What happened, drawn into every graph: alerts, restarts, versions, configuration, drills."""

from __future__ import annotations

from typing import Any

from llm_serving_dashboards.asking import Asking
from llm_serving_dashboards.nouns import Colour

# a mark is where something was not a minute before: annotations are asked for each minute
_BEFORE_SECONDS = 60.0


def happenings(asking: Asking) -> tuple[dict[str, Any], ...]:
    """Those that happen often can be switched off at the top of a dashboard."""
    firing = asking.alerts('severity=~"critical|warning"')
    level = "alertname", "model_name", "check"
    before = asking.by("max", asking.dialect.offset(firing, _BEFORE_SECONDS), *level)
    version = asking.one("target_info", "model_name", "version")
    known = asking.dialect.offset(asking.of("target_info"), _BEFORE_SECONDS)
    return (
        _marked(
            "Alerts",
            Colour.BAD,
            f"{asking.by('max', firing, *level)} unless {before}",
            "{{alertname}} {{model_name}}",
        ),
        _marked(
            "Restarts",
            Colour.WARNING,
            _moment(asking.one("target_start_time_seconds", "target")),
            "{{target}} started",
            at_value=True,
        ),
        _marked(
            "Versions",
            Colour.PLAIN,
            # a new model is not a new version
            f"({version} unless {asking.on('model_name', 'version')} {known}) and {asking.on('model_name')} {known}",
            "{{model_name}}: version {{version}}",
        ),
        _marked(
            "Configuration",
            Colour.PLAIN,
            _moment(asking.of("exporter_config_reload_success_timestamp_seconds")),
            "exporter's configuration loaded",
            at_value=True,
            switch=False,
        ),
        _marked(
            "Drills",
            Colour.DEAD,
            _moment(asking.one("drill_last_run_timestamp_seconds", "model_name", "role")),
            "drill of {{model_name}} {{role}}",
            at_value=True,
            switch=False,
        ),
    )


def _moment(expression: str) -> str:
    """Grafana takes a time in milliseconds for the annotation's own."""
    return f"1000 * {expression}"


def _marked(
    name: str, colour: str, expression: str, text: str, *, at_value: bool = False, switch: bool = True
) -> dict[str, Any]:
    return {
        "name": name, "enable": True, "hide": not switch, "iconColor": str(colour), "expr": expression, "titleFormat": name, "textFormat": text,
        "step": "60s", "useValueForTime": at_value, "datasource": {"type": "prometheus", "uid": "${datasource}"},
    }  # fmt: skip
