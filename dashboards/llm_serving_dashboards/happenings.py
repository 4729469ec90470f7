"""What happened, drawn into every graph: alerts, restarts, versions, configuration, drills."""

from __future__ import annotations

from typing import Any

from llm_serving_dashboards.asking import Asking
from llm_serving_dashboards.nouns import Colour

# how long a version counts as new
_NEW = "5m"


def happenings(asking: Asking) -> tuple[dict[str, Any], ...]:
    """Each can be switched off at the top of a dashboard."""
    version = asking.one("target_info", "model_name", "version")
    return (
        _marked(
            "Alerts",
            Colour.BAD,
            asking.alerts('severity=~"critical|warning"'),
            "{{alertname}} {{model_name}} {{target}}",
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
            f"{version} unless {asking.on('model_name', 'version')} {asking.dialect.offset(asking.of('target_info'), 300.0)}",
            "{{model_name}}: version {{version}}",
        ),
        _marked(
            "Configuration",
            Colour.PLAIN,
            _moment(asking.of("exporter_config_reload_success_timestamp_seconds")),
            "exporter's configuration loaded",
            at_value=True,
        ),
        _marked(
            "Drills",
            Colour.DEAD,
            _moment(asking.one("drill_last_run_timestamp_seconds", "model_name", "role")),
            "drill of {{model_name}} {{role}}",
            at_value=True,
        ),
    )


def _moment(expression: str) -> str:
    """Grafana takes a time in milliseconds for the annotation's own."""
    return f"1000 * {expression}"


def _marked(name: str, colour: str, expression: str, text: str, *, at_value: bool = False) -> dict[str, Any]:
    return {
        "name": name, "enable": True, "hide": False, "iconColor": str(colour), "expr": expression, "titleFormat": name, "textFormat": text,
        "step": "60s", "useValueForTime": at_value, "datasource": {"type": "prometheus", "uid": "${datasource}"},
    }  # fmt: skip
