"""What Grafana reads at its start: where the dashboards lie, and which Prometheus they ask (grafana.com/docs/grafana/latest/administration/provisioning)."""

from __future__ import annotations

import yaml

from llm_serving_alerts.promql import seconds_text
from llm_serving_alerts.settings import Settings

FOLDER = "LLM serving"
# where the container image keeps what is mounted
PATH = "/var/lib/grafana/dashboards/llm-serving"
URL = "http://prometheus:9090"


def provider(path: str = PATH) -> str:
    """The dashboards of a folder, which nobody can change or delete in the browser."""
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


def datasource(settings: Settings, url: str = URL) -> str:
    """A Prometheus. Its scrape interval is the rules' own: the shortest range of a rate is four of them."""
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
