"""Arguments -> Config -> daemon: the only module that prints or exits."""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from llm_serving_exporter import __version__
from llm_serving_exporter.config.load import load
from llm_serving_exporter.config.options import add_flags
from llm_serving_exporter.config.types import Config
from llm_serving_exporter.errors import ConfigError, ListenError, PageError
from llm_serving_exporter.normalise.registry import RUNTIMES, together

if TYPE_CHECKING:
    from llm_serving_exporter.daemon.discovery import Discovered

EXIT_OK, EXIT_FAILED, EXIT_CONFIG = 0, 1, 2

_COMMANDS = {
    "run": "read the targets and serve /metrics until stopped (the default)",
    "once": "print one reading of each target and exit",
    "check-config": "check the configuration and exit: 0 good, 2 bad",
    "ceiling": "what a model on given GPUs could do at best: fit, tokens/s by batch, price, replicas",
    "rules": "recording rules and alerts from your settings, for Prometheus, its operator or vmalert",
    "dashboards": "Grafana dashboards with your thresholds and labels",
    "drill": "lose a node on purpose, or wait for a loss, and measure whether users noticed and somebody was told",
    "report": "a week's cost from Prometheus: a page, CSV and a summary, with what changed and what to do",
    "demo": "replay a recorded vLLM run beside an exporter; needs no GPU and no LLM",
    "simulate": "serve a fleet of simulated engines that obey the roofline; needs no GPU and no LLM",
    "page-test": "send one marked test page to PagerDuty, directly or through Alertmanager",
}

_DESCRIPTION = """Reads LLM serving engines' metrics pages and NVML, and exports engine-neutral series to Prometheus."""

_EPILOG = """examples:
  llm-serving-exporter --target http://localhost:8000
  llm-serving-exporter --config.file exporter.yml --web.listen-address :10077
  llm-serving-exporter once --target http://localhost:8000 --json
  llm-serving-exporter check-config --config.file exporter.yml

Every option is also an environment variable: LLM_SERVING_EXPORTER_ and the flag in upper case, '.' and '-' as '_'."""


def _parser(command: str) -> argparse.ArgumentParser:
    commands = "\n".join(f"  {name:<14}{what}" for name, what in _COMMANDS.items())
    parser = argparse.ArgumentParser(
        prog="llm-serving-exporter" if command == "run" else f"llm-serving-exporter {command}",
        usage="llm-serving-exporter [COMMAND] [OPTIONS]",
        description=f"{_DESCRIPTION}\n\ncommands:\n{commands}" if command == "run" else _COMMANDS[command],
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"llm-serving-exporter {__version__}")
    add_flags(parser)
    if command == "once":
        parser.add_argument(
            "--json",
            action="store_true",
            help="print JSON for programs instead of a table; a list where there are several targets",
        )
        parser.add_argument(
            "--wait", type=float, default=5.0, metavar="SECONDS", help="time between the two samples (default 5)"
        )
    return parser


def _load(arguments: argparse.Namespace) -> Config:
    config = load(arguments, os.environ, runtimes=RUNTIMES)
    if config.report_settings_file is None:
        return config
    from llm_serving_exporter.report.settings.schedule import with_review

    return with_review(config, os.environ)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command; returns the exit status: 0 good, 1 failed, 2 bad usage or configuration."""
    words = list(sys.argv[1:] if argv is None else argv)
    command = words.pop(0) if words and words[0] in _COMMANDS else "run"
    if command in _OWN_ARGUMENTS:
        return _OWN_ARGUMENTS[command](words)
    if words and not words[0].startswith("-"):
        print(f"llm-serving-exporter: no command {words[0]!r}; commands are {', '.join(_COMMANDS)}", file=sys.stderr)
        return EXIT_CONFIG
    arguments = _parser(command).parse_args(words)
    try:
        config = _load(arguments)
        if command == "check-config":
            return _check(config)
        if command == "once":
            return _once(config, wait_seconds=arguments.wait, as_document=arguments.json)
        return _run(config, arguments)
    except ConfigError as error:
        for problem in error.problems:
            print(f"error: {problem}", file=sys.stderr)
        return EXIT_CONFIG
    except ListenError as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_FAILED


def _check(config: Config) -> int:
    from llm_serving_exporter.config.tables import table_lines, target_lines

    if config.web.config_file is not None:
        from llm_serving_exporter.web.guard import Guard

        Guard(config.web.config_file, logging.getLogger("llm_serving_exporter.web"))
    for warning in config.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    found = _discovered(config)
    for problem in found.problems:
        print(f"warning: {problem}", file=sys.stderr)
    from_files = f", {len(found.targets) - len(config.targets)} of them from file_sd" if config.discovery else ""
    lines = [f"{config.file or 'flags and environment'}: good, {len(found.targets)} targets{from_files}"]
    lines += target_lines(found.targets)
    for number, table in enumerate(config.runtimes):
        lines += ["", *table_lines(table, f"{config.file}: runtimes[{number}]", RUNTIMES.values())]
    return _say("\n".join(lines))


def _discovered(config: Config) -> Discovered:
    from llm_serving_exporter.daemon.discovery import Discovery

    return Discovery(config.discovery).targets(config.targets, together(config.runtimes))


def _once(config: Config, *, wait_seconds: float, as_document: bool) -> int:
    from llm_serving_exporter import logs
    from llm_serving_exporter.commands import once

    logs.set_up("error", config.log.format)  # the reading itself says what is wrong with a target
    return once.run(config, _discovered(config).targets, wait_seconds=wait_seconds, as_json=as_document)


def _ceiling(words: list[str]) -> int:
    from llm_serving_exporter.commands.ceiling.answer import answer
    from llm_serving_exporter.commands.ceiling.arguments import EPILOG, USAGE, add_arguments
    from llm_serving_exporter.commands.ceiling.question import question
    from llm_serving_exporter.commands.ceiling.table import as_document, as_table

    parser = argparse.ArgumentParser(
        prog="llm-serving-exporter ceiling",
        usage=USAGE,
        description="What a model on given GPUs could do at best: fit, tokens/s by batch, price, replicas. Asks no server.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add_arguments(parser)
    arguments = parser.parse_args(words)
    try:
        found = answer(question(arguments, os.environ))
    except ConfigError as error:
        for problem in error.problems:
            print(f"error: {problem}", file=sys.stderr)
        return EXIT_CONFIG
    return _say(json.dumps(as_document(found), indent=2, allow_nan=False) if arguments.json else as_table(found))


def _say(text: str) -> int:
    """Prints an answer; a reader that went away (`| head`) or a full disk is no traceback."""
    try:
        print(text, flush=True)
    except OSError as error:
        # else the interpreter tries once more when it ends
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            print(f"error: the answer cannot be written: {error.strerror}", file=sys.stderr)
        return EXIT_FAILED
    return EXIT_OK


def _demo(words: list[str]) -> int:
    from llm_serving_exporter import logs
    from llm_serving_exporter.sim.demo import run

    logs.set_up("warn", "logfmt")
    return run(words)


def _simulate(words: list[str]) -> int:
    from llm_serving_exporter import logs
    from llm_serving_exporter.sim.fleet.command import run

    logs.set_up("warn", "logfmt")
    return run(words)


def _rules(words: list[str]) -> int:
    from llm_serving_alerts.command import run

    return run(words)


def _dashboards(words: list[str]) -> int:
    try:
        from llm_serving_dashboards.command import run
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "grafanalib":
            raise
        sys.stderr.write(
            "error: dashboards are made with grafanalib, which is not installed; pip install 'llm-serving-exporter[dashboards]'\n"
        )
        return EXIT_FAILED
    return run(words)


def _drill(words: list[str]) -> int:
    from llm_serving_exporter.drill.command import run

    return run(words)


def _report(words: list[str]) -> int:
    from llm_serving_exporter.report.command import run

    return run(words)


def _page_test(words: list[str]) -> int:
    from llm_serving_exporter.commands.page_test import run

    try:
        return run(words)
    except ConfigError as error:
        for problem in error.problems:
            print(f"error: {problem}", file=sys.stderr)
        return EXIT_CONFIG
    except PageError as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_FAILED


def _run(config: Config, arguments: argparse.Namespace) -> int:
    from llm_serving_exporter import logs
    from llm_serving_exporter.daemon.service import Service

    logs.set_up(config.log.level, config.log.format)
    stopping, reloading = threading.Event(), threading.Event()
    # set before anything listens: an early signal must find its handler
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: stopping.set())
    signal.signal(signal.SIGHUP, lambda _number, _frame: reloading.set())
    service = Service(config, lambda: _load(arguments))
    service.start()
    service.daemon.run(stopping, reloading)
    service.close()
    sys.stderr.flush()
    # a scrape under way ends at its own deadline, seconds from now: its thread must not hold up the exit
    os._exit(EXIT_OK)


# commands that are not about the daemon's configuration; what they need is imported when they are called
_OWN_ARGUMENTS: dict[str, Callable[[list[str]], int]] = {
    "ceiling": _ceiling,
    "demo": _demo,
    "drill": _drill,
    "page-test": _page_test,
    "report": _report,
    "rules": _rules,
    "dashboards": _dashboards,
    "simulate": _simulate,
}
