"""Command `rules`: the settings of a user rendered to rule files."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from llm_serving_alerts.output import name_value, namespace_name, written
from llm_serving_alerts.render import prometheus_rules, rule_document, rule_files
from llm_serving_alerts.routes import alertmanager_files
from llm_serving_alerts.rulers import BY_NAME, PORTABLE, Ruler
from llm_serving_alerts.settings import Settings
from llm_serving_alerts.settings_file import defaults_text, read_settings
from llm_serving_exporter.settings.flags import CommandParser
from llm_serving_exporter.terminal import EXIT_FAILED, EXIT_OK, print_line, print_message, run_command

_DESCRIPTION = "Recording rules and alerts for Prometheus (2.42 or newer), its operator, Mimir, Thanos or vmalert."
_EPILOG = """examples:
  llm-serving-exporter rules --print-settings > my-rules.yml       the settings with their defaults and reasons, to be changed
  llm-serving-exporter rules --config.file my-rules.yml --output-dir rules/
  llm-serving-exporter rules --config.file my-rules.yml --format alertmanager --output-dir alertmanager/
  llm-serving-exporter rules --config.file my-rules.yml --format operator --label release=kube-prometheus-stack | kubectl apply -f -

The exporter counts its objectives by the same file: start it with --slo.file my-rules.yml."""


def run(argv: Sequence[str]) -> int:
    """Renders; 0 good, 1 a file could not be written, 2 bad settings or usage."""
    return run_command(lambda: _render(_arguments(argv)))


def _render(arguments: argparse.Namespace) -> int:
    if arguments.print_settings:
        return EXIT_OK if print_line(defaults_text().removesuffix("\n")) else EXIT_FAILED
    settings, warnings = read_settings(arguments.config_file)
    for warning in warnings:
        print_message(f"warning: {warning}")
    ruler = BY_NAME[arguments.dialect]
    if arguments.format == "operator":
        files = prometheus_rules(settings, dict(arguments.label), arguments.namespace, ruler)
    elif arguments.format == "alertmanager":
        files = alertmanager_files(settings)
    else:
        files = rule_files(settings, ruler=ruler)
    if arguments.output_dir is None:
        stream = _one_stream(arguments.format, files, settings, ruler)
        return EXIT_OK if print_line(stream.removesuffix("\n")) else EXIT_FAILED
    return written(Path(arguments.output_dir), files, "--output-dir")


def _one_stream(form: str, files: dict[str, str], settings: Settings, ruler: Ruler) -> str:
    """One document of groups, the operator's objects one after the other, or the configuration without its templates."""
    if form == "operator":
        return "---\n".join(files.values())
    return files["alertmanager.yml"] if form == "alertmanager" else rule_document(settings, ruler)


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = CommandParser("rules", description=_DESCRIPTION, epilog=_EPILOG)
    parser.add_argument(
        "--config.file", dest="config_file", metavar="FILE", help="settings (YAML); what it leaves out has its default"
    )
    parser.add_argument("--output-dir", metavar="DIR", help="write files there; default: everything to standard output")
    parser.add_argument(
        "--format",
        choices=("prometheus", "operator", "alertmanager"),
        default="prometheus",
        help="rule files, PrometheusRule objects, or an Alertmanager configuration for them",
    )
    parser.add_argument(
        "--dialect",
        choices=tuple(BY_NAME),
        default=PORTABLE.name,
        help="who evaluates the rules, and may be given more than all others take; default: portable, which every one takes",
    )
    parser.add_argument(
        "--label",
        action="append",
        type=name_value,
        default=[],
        metavar="NAME=VALUE",
        help="on the objects, for the operator's rule selector",
    )
    parser.add_argument("--namespace", type=namespace_name, metavar="NAME", help="of the objects")
    parser.add_argument(
        "--print-settings", action="store_true", help="print the settings file with all defaults and their reasons"
    )
    arguments = parser.parse_args(argv)
    if arguments.format != "operator" and (arguments.label or arguments.namespace):
        parser.error("--label and --namespace are of the operator's objects: add --format operator")
    if arguments.format == "alertmanager" and arguments.dialect != PORTABLE.name:
        parser.error("--dialect is of rules, and Alertmanager evaluates none: leave it away")
    return arguments
