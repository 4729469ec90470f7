"""Command `rules`: the settings of a user rendered to rule files."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from llm_serving_alerts.render import prometheus_rules, rule_document, rule_files
from llm_serving_alerts.routes import alertmanager_files
from llm_serving_alerts.rules import BY_NAME, PORTABLE, Ruler
from llm_serving_alerts.settings import Settings
from llm_serving_alerts.settings_file import defaults_text, read_settings
from llm_serving_exporter.files.written import write_atomically
from llm_serving_exporter.settings.flags import CommandParser
from llm_serving_exporter.terminal import EXIT_FAILED, EXIT_OK, print_line, print_message, run_command

# --- What renders files shares: writing them, and labels on a command line.

# what Kubernetes takes: https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#syntax-and-character-set and .../names/
_WORD = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_NAMESPACE = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_DNS_NAME = re.compile(r"(?=.{1,253}$)[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)*")


def written(folder: Path, files: Mapping[str, str], option: str) -> int:
    """Writes files by name below a folder and prints where; 1 where that fails. `option`: that chose the folder."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            write_atomically(folder / name, text.encode())
            print_line(str(folder / name))
    except OSError as error:
        print_message(f"error: {error.filename or folder} cannot be written: {error.strerror}; choose another {option}")
        return EXIT_FAILED
    return EXIT_OK


def name_value(text: str) -> tuple[str, str]:
    """A label of a Kubernetes object from a command line. Raises ArgumentTypeError."""
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE. Write one such as release=prometheus.")
    prefix, slash, own = name.rpartition("/")
    if not _WORD.fullmatch(own) or (slash and not _DNS_NAME.fullmatch(prefix)):
        raise argparse.ArgumentTypeError(f"{name!r} is no name of a label in Kubernetes. Write one such as release.")
    if value and not _WORD.fullmatch(value):
        raise argparse.ArgumentTypeError(
            f"{value!r} is no value of a label in Kubernetes. Write up to 63 letters, digits and any of . _ -."
        )
    return name, value


def namespace_name(text: str) -> str:
    """A namespace of Kubernetes from a command line. Raises ArgumentTypeError."""
    if not _NAMESPACE.fullmatch(text):
        raise argparse.ArgumentTypeError(
            f"{text!r} is no name of a namespace. Write up to 63 small letters, digits and dashes."
        )
    return text


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
