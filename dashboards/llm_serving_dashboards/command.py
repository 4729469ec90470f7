"""The command `dashboards`: writes the dashboards for the user's settings."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

import yaml

from llm_serving_alerts.command import name_value, namespace_name, written
from llm_serving_alerts.promql import seconds_text
from llm_serving_alerts.settings import Settings
from llm_serving_alerts.settings_file import read_settings
from llm_serving_dashboards.boards import build_dashboards
from llm_serving_dashboards.grafana.document import format_json
from llm_serving_exporter.settings.flags import CommandParser, add_rows
from llm_serving_exporter.terminal import print_message, run_command

# --- The files that Grafana reads at its start: where the dashboards are, and which Prometheus they query
# (grafana.com/docs/grafana/latest/administration/provisioning).

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


# libyaml's, where PyYAML was built with it, writes the same bytes sixty times as fast
_DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
_DESCRIPTION = "Dashboards for Grafana 12 (schema 42), with the thresholds and labels of the rules' settings."
_EPILOG = """examples:
  llm-serving-exporter dashboards --output-dir dashboards/                             for Grafana's provisioning
  llm-serving-exporter dashboards --config.file my-rules.yml --output-dir dashboards/  with the thresholds and labels of your rules
  llm-serving-exporter dashboards --format configmap --namespace monitoring --output-dir manifests/

The data source is chosen on each dashboard. The settings are those of `llm-serving-exporter rules --print-settings`."""


def run(argv: Sequence[str]) -> int:
    """Writes the dashboards. Returns the exit status: 0 done, 1 a file could not be written, 2 bad settings or usage."""
    return run_command(lambda: _render(_parse_arguments(argv)))


def _render(arguments: argparse.Namespace) -> int:
    settings, warnings = read_settings(arguments.config_file)
    for warning in warnings:
        print_message(f"warning: {warning}")
    folder = Path(arguments.output_dir)
    if arguments.format == "json":
        return written(folder, render_json_files(settings), "--output-dir")
    files = render_configmaps(settings, dict(arguments.label), arguments.namespace, arguments.datasource_url)
    return written(folder, files, "--output-dir")


def render_json_files(settings: Settings) -> dict[str, str]:
    """The text of each dashboard's file by the file's name."""
    return {f"{made.board.uid}.json": format_json(made.document) for made in build_dashboards(settings)}


def render_for_demo(settings: Settings, prometheus_url: str) -> tuple[dict[str, str], dict[str, str]]:
    """The dashboards by file name, and the provisioning of a Grafana that asks that Prometheus, by path; `{dashboards}` stands for the
    dashboards' folder."""
    provisioning = {
        "datasources/prometheus.yml": render_datasource(settings, prometheus_url),
        "dashboards/llm-serving.yml": render_provider("{dashboards}"),
    }
    return render_json_files(settings), provisioning


def render_configmaps(
    settings: Settings, labels: dict[str, str], namespace: str | None, url: str | None = None
) -> dict[str, str]:
    """The text of each ConfigMap by its file's name: one for each dashboard, since a ConfigMap holds at most 1 MiB, and one for a data source at
    `url`, unless that is None."""
    files = {
        name.replace(".json", ".yml"): _render_configmap(name, text, {**DASHBOARD_LABELS, **labels}, namespace)
        for name, text in render_json_files(settings).items()
    }
    if url:
        name = "llm-serving-datasource.yml"
        files[name] = _render_configmap(
            name, render_datasource(settings, url), {**DATASOURCE_LABELS, **labels}, namespace
        )
    return files


def _render_configmap(name: str, text: str, labels: dict[str, str], namespace: str | None) -> str:
    metadata = {"name": Path(name).stem, "labels": labels, **({"namespace": namespace} if namespace else {})}
    made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {name: text}}
    return str(yaml.dump(made, Dumper=_DUMPER, sort_keys=False, allow_unicode=True, width=1_000_000))


def _parse_url(text: str) -> str:
    """A server's URL from the command line. Raises ArgumentTypeError."""
    url = urlsplit(text)
    if url.scheme not in ("http", "https") or not url.hostname:
        raise argparse.ArgumentTypeError(f"{text!r} is not a URL; write http:// or https:// and the server")
    return text


def _parse_arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = CommandParser("dashboards", description=_DESCRIPTION, epilog=_EPILOG)
    add_rows(parser, (
        ("--output-dir", "DIR", "write files there", {"required": True}),
        ("--config.file", "FILE", "settings of the rules (YAML); what it leaves out has its default", {"dest": "config_file"}),
        ("--format", None, "files for Grafana's provisioning, or ConfigMaps for its sidecar",
         {"choices": ("json", "configmap"), "default": "json"}),
        ("--label", "NAME=VALUE", "on the ConfigMaps, beside the sidecar's grafana_dashboard",
         {"action": "append", "type": name_value, "default": []}),
        ("--namespace", "NAME", "of the ConfigMaps", {"type": namespace_name}),
        ("--datasource-url", "URL", "of Prometheus: a ConfigMap for a data source too, where Grafana has none yet", {"type": _parse_url}),
    ))  # fmt: skip
    arguments = parser.parse_args(argv)
    if arguments.format != "configmap" and (arguments.label or arguments.namespace or arguments.datasource_url):
        parser.error("--label, --namespace and --datasource-url are of ConfigMaps: add --format configmap")
    return arguments
