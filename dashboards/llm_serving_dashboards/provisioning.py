"""The files that Grafana reads at its start: where the dashboards are, and which Prometheus they query (grafana.com/docs/grafana/latest/administration/provisioning)."""

from __future__ import annotations

import yaml

from llm_serving_alerts.promql import seconds_text
from llm_serving_alerts.settings import Settings

FOLDER = "LLM serving"
# where the container image has its mounted dashboards
PATH = "/var/lib/grafana/dashboards/llm-serving"
URL = "http://prometheus:9090"
# what the sidecar of kube-prometheus-stack's Grafana looks for
DASHBOARD_LABELS, DATASOURCE_LABELS = {"grafana_dashboard": "1"}, {"grafana_datasource": "1"}


def render_provider(path: str = PATH) -> str:
    """Grafana's file provider for the dashboards in `path`. Nobody can change or delete them in the browser."""
    made = {
        "apiVersion": 1,
        "providers": [
            {
                "name": "llm-serving",
                "folder": FOLDER,
                "type": "file",
                "disableDeletion": True,
                "allowUiUpdates": False,
                "updateIntervalSeconds": 30,
                "options": {"path": path},
            }
        ],
    }
    return yaml.safe_dump(made, sort_keys=False)


def render_datasource(settings: Settings, url: str = URL) -> str:
    """A data source for the Prometheus at `url`. Its scrape interval is that of the rules: the shortest range of a rate is four scrapes."""
    made = {
        "apiVersion": 1,
        "datasources": [
            {
                "name": "Prometheus",
                "uid": "llm-serving-prometheus",
                "type": "prometheus",
                "access": "proxy",
                "url": url,
                "jsonData": {"httpMethod": "POST", "timeInterval": seconds_text(settings.scrape_interval_seconds)},
            }
        ],
    }
    return yaml.safe_dump(made, sort_keys=False)
