"""The committed rules, routes and references for the default settings: `python -m llm_serving_alerts.generate --write` or `--check`."""

from __future__ import annotations

import sys
from pathlib import Path

import yaml

from llm_serving_alerts.alerting import ALERTS
from llm_serving_alerts.alerting.rules_of import alert_rules
from llm_serving_alerts.promql import Dialect
from llm_serving_alerts.reference import alerts_md, records_md
from llm_serving_alerts.render import prometheus_rules, rule_files
from llm_serving_alerts.routes import alertmanager_files
from llm_serving_alerts.rules import ALERT_PREFIX
from llm_serving_alerts.runbook_texts import complete_runbook
from llm_serving_alerts.settings import Settings
from llm_serving_alerts.settings_file import default_settings
from llm_serving_exporter.docgen.generated_files import write_or_check

RENDERED = Path("alerts/rendered")
ROUTES = Path("alerts/alertmanager")
DOCS = Path("docs")
RUNBOOKS = Path("alerts/llm_serving_alerts/runbooks")
# of the Helm chart, which reads only what lies in it; kustomize takes the same folder
CHART = Path("deploy/helm/llm-serving-exporter/files/rules")


def files() -> dict[Path, str]:
    """Every generated file below the repository's root, with its text."""
    settings = default_settings()
    routes = {ROUTES / name: text for name, text in alertmanager_files(settings).items()}
    references = {DOCS / "records.md": records_md(settings), DOCS / "alerts.md": alerts_md(settings)}
    rendered = {RENDERED / name: text for name, text in rule_files(settings).items()}
    return (
        rendered
        | routes
        | references
        | _runbooks(settings)
        | {CHART / name: text for name, text in _chart_files(settings).items()}
    )


def _runbooks(settings: Settings) -> dict[Path, str]:
    """Each alert's runbook with its expression; what stands above that is written by hand."""
    dialect = Dialect(settings.external_labels, settings.own_labels)
    paths = {alert.name: RUNBOOKS / f"{ALERT_PREFIX}{alert.name}.md" for alert in ALERTS}
    return {
        paths[alert.name]: complete_runbook(
            paths[alert.name].read_text(encoding="utf-8"), alert_rules(alert, dialect, settings)
        )
        for alert in ALERTS
        if paths[alert.name].is_file()
    }


def _chart_files(settings: Settings) -> dict[str, str]:
    """The rules as objects of the Prometheus operator, and the file by which kustomize finds them."""
    objects = prometheus_rules(settings, {}, None)
    return {**objects, "kustomization.yaml": yaml.safe_dump({"resources": sorted(objects)})}


def main(argv: list[str] | None = None) -> int:
    """Writes or checks every generated file below the current folder; 1 where one differs or should not be there."""
    existing = [*RENDERED.glob("*"), *CHART.glob("*")]
    return write_or_check("python -m llm_serving_alerts.generate", __doc__, files(), existing, argv)


if __name__ == "__main__":
    sys.exit(main())
