"""The command line: words -> the command that they name -> its exit status."""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import threading
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

from llm_serving_exporter.model.text import count_nouns
from llm_serving_exporter.settings.flags import CommandParser, add_rows, duration_once_bare
from llm_serving_exporter.settings.problems import listed, nearest, shown
from llm_serving_exporter.settings.sources import add_flags
from llm_serving_exporter.terminal import (
    EXIT_FAILED,
    EXIT_OK,
    EXIT_USAGE,
    ended_by_signal,
    print_line,
    print_message,
    run_command,
)

if TYPE_CHECKING:
    # what reads a configuration is imported once there is one to read: --help needs a third less time without it
    from llm_serving_exporter.discovery.sections import Discovered
    from llm_serving_exporter.settings.config import Config

_COMMANDS = {
    "run": "read the targets and serve /metrics until stopped (the default)",
    "once": "print one reading of each target and exit",
    "check-config": "check the configuration and exit: 0 good, 1 where its price file or a file of targets cannot be used, 2 bad",
    "ceiling": "what a model on given GPUs could do: fit, tokens/s by batch, price, replicas",
    "rules": "recording rules and alerts from your settings, for Prometheus, its operator or vmalert",
    "runbook": "what to do about an alert: meaning, queries, first steps",
    "dashboards": "Grafana dashboards with your thresholds and labels",
    "runtimes": "the tables by which metrics pages are read, to look at or to start one of your own from",
    "drill": "lose a node on purpose, or wait for a loss, and measure whether users noticed and somebody was told",
    "report": "a week's cost from Prometheus: a page, CSV and a summary, with what changed and what to do",
    "demo": "a simulated fleet beside an exporter, Prometheus and Grafana; needs no GPU and no LLM",
    "simulate": "serve a fleet of simulated engines that obey the roofline; needs no GPU and no LLM",
    "page-test": "send one marked test page to PagerDuty, directly or through Alertmanager",
}

_DESCRIPTION = """Reads LLM serving engines' metrics pages and NVML, and exports engine-neutral series to Prometheus."""

_EPILOG = """examples:
  llm-serving-exporter --target http://localhost:8000
  llm-serving-exporter --config.file exporter.yml --web.listen-address :10077
  llm-serving-exporter once --target http://localhost:8000 --json
  llm-serving-exporter check-config --config.file exporter.yml

Every option of the configuration is also an environment variable: LLM_SERVING_EXPORTER_ and the flag in upper case, '.' and '-' as '_'."""

# of `once`: two samples within a step of the engine would say that it makes no tokens; nobody waits longer at a terminal
_SHORTEST_WAIT_SECONDS, _LONGEST_WAIT_SECONDS = 0.1, 3600.0

_USAGE = {
    "run": "llm-serving-exporter [COMMAND] [OPTIONS]",
    "once": "llm-serving-exporter once [--wait 5s] [--json] [--all] [OPTIONS OF THE CONFIGURATION]",
    "check-config": "llm-serving-exporter check-config --config.file FILE [OPTIONS OF THE CONFIGURATION]",
}


def _parser(command: str) -> CommandParser:
    """The parser of a command that reads the daemon's configuration; its own flags come first in --help."""
    commands = "\n".join(f"  {name:<14}{what}" for name, what in _COMMANDS.items())
    parser = CommandParser(
        command,
        usage=_USAGE[command],
        description=f"{_DESCRIPTION}\n\ncommands:\n{commands}" if command == "run" else _COMMANDS[command],
        epilog=_EPILOG,
    )
    if command == "once":
        wait = duration_once_bare("--wait", _SHORTEST_WAIT_SECONDS, _LONGEST_WAIT_SECONDS)
        flag = {"action": "store_true"}
        add_rows(parser, (
            ("--json", None, "print JSON for programs instead of a table; a list where there are several targets", flag),
            ("--all", None, "list every absent signal, also those about which nothing can be done here; JSON has them anyway", flag),
            ("--wait", "5s", "time between the two samples (default 5s)", {"type": wait, "default": 5.0}),
        ))  # fmt: skip
    add_flags(parser.add_argument_group("configuration"))
    return parser


def _load(arguments: argparse.Namespace) -> Config:
    from llm_serving_exporter.engines.registry import RUNTIMES
    from llm_serving_exporter.settings.load import load

    config = load(arguments, os.environ, runtimes=RUNTIMES)
    if config.report_settings_file is None:
        return config
    from llm_serving_exporter.settings.review import with_review

    return with_review(config, os.environ)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command; returns the exit status: 0 good, 1 failed, 2 bad usage or configuration, 130 interrupted."""
    words = list(sys.argv[1:] if argv is None else argv)
    return run_command(lambda: _run_words(words))


def _run_words(words: list[str]) -> int:
    command = words.pop(0) if words and words[0] in _COMMANDS else "run"
    if command in _OWN_ARGUMENTS:
        return _OWN_ARGUMENTS[command](words)
    if words and not words[0].startswith("-"):
        near = nearest(words[0], _COMMANDS)
        fix = f"Did you mean {near}?" if near else f"The commands are {listed(_COMMANDS, 'and')}."
        print_message(f"error: there is no command {shown(words[0])}. {fix}")
        return EXIT_USAGE
    arguments = _parser(command).parse_args(words)
    config = _load(arguments)
    if command == "check-config":
        return _check(config)
    if command == "once":
        return _once(config, wait_seconds=arguments.wait, as_document=arguments.json, everything=arguments.all)
    return _run(config, arguments)


def _check(config: Config) -> int:
    from llm_serving_exporter.commands.runtimes import table_lines, target_lines
    from llm_serving_exporter.engines.registry import RUNTIMES

    if config.web.config_file is not None:
        from llm_serving_exporter.web.guard import Guard

        Guard(config.web.config_file, logging.getLogger("llm_serving_exporter.web"))
    for warning in (*config.warnings, *config.price_warnings):
        print_message(f"warning: {warning}")
    discovered = _discovered(config)
    _print_problems(discovered)
    for fault in config.price_problems:
        print_message(f"error: {fault}")
    bad = [*(["the price file"] if config.price_problems else []), *discovered.broken_files]
    good = f"good, but for {listed(bad, 'and')}" if bad else "good"
    lines = [
        f"{config.file or 'flags and environment'}: {good}, {count_nouns(len(discovered.targets), 'target')}{_origin(config, discovered)}"
    ]
    lines += target_lines(discovered.targets)
    for number, table in enumerate(config.runtimes):
        lines += ["", *table_lines(table, f"{config.file}: runtimes[{number}]", RUNTIMES.values())]
    return EXIT_OK if print_line("\n".join(lines)) and not bad else EXIT_FAILED


def _print_problems(discovered: Discovered) -> None:
    """What is wrong with sources of targets. A file will not mend itself, and one that is not there yet, or a server, may."""
    broken = tuple(f"{file}: " for file in discovered.broken_files)
    for problem in discovered.problems:
        print_message(f"{'error' if broken and problem.startswith(broken) else 'warning'}: {problem}")


def _origin(config: Config, answer: Discovered) -> str:
    """Where the targets are from, beyond the configuration."""
    configured = {target.name for target in config.targets}
    discovered = sum(target.name not in configured for target in answer.targets)
    parts = [f"{discovered} of them from {_name_discovery(config)}"] if config.discovery else []
    if config.shard is not None:
        parts.append(f"shard {config.shard}, {answer.elsewhere} in other shards")
    return "".join(f", {part}" for part in parts)


def _name_discovery(config: Config) -> str:
    """The keys of the sections of discovery that there are."""
    return listed(dict.fromkeys(section.kind for section in config.discovery), "and")


def _discovered(config: Config) -> Discovered:
    from llm_serving_exporter.discovery.sections import discover_once
    from llm_serving_exporter.engines.registry import together

    return discover_once(config, together(config.runtimes), print_message)


def _once(config: Config, *, wait_seconds: float, as_document: bool, everything: bool) -> int:
    from llm_serving_exporter import logs
    from llm_serving_exporter.commands import once

    logs.set_up("error", config.log.format)  # the reading itself says what is wrong with a target
    discovered = _discovered(config)
    _print_problems(discovered)
    return once.run(config, discovered.targets, wait_seconds=wait_seconds, as_json=as_document, everything=everything)


def _ceiling(words: list[str]) -> int:
    from llm_serving_exporter.commands.ceiling.answer import answer
    from llm_serving_exporter.commands.ceiling.question import parser, question
    from llm_serving_exporter.commands.ceiling.table import as_document, as_table

    arguments = parser().parse_args(words)
    if arguments.from_prometheus is not None:
        from llm_serving_exporter.commands.what_if.command import run

        return run(arguments, os.environ)
    ceiling = answer(question(arguments, os.environ))
    text = json.dumps(as_document(ceiling), indent=2, allow_nan=False) if arguments.json else as_table(ceiling)
    return EXIT_OK if print_line(text) else EXIT_FAILED


def _demo(words: list[str]) -> int:
    from llm_serving_exporter import logs

    if "--recording" in words:
        logs.set_up("warn", "logfmt")
        return _run_module("llm_serving_simulator.demo", [word for word in words if word != "--recording"])
    dashboards = _import_dashboards()
    # of a lost node every poll fails: that is the story, not news
    logs.set_up("error", "logfmt")
    boards = None if dashboards is None else dashboards.render_for_demo
    return _run_module("llm_serving_simulator.fleet_demo", words, boards)


def _simulate(words: list[str]) -> int:
    from llm_serving_exporter import logs

    logs.set_up("warn", "logfmt")
    return _run_module("llm_serving_simulator.fleet.command", words)


def _run_module(module: str, words: list[str], *more: object) -> int:
    """The command of a module. The packs stand on the exporter, which imports none of them: it loads what is asked for by name."""
    status: int = import_module(module).run(words, *more)
    return status


def _import_dashboards() -> ModuleType | None:
    """None where grafanalib, which is an extra, is not installed."""
    try:
        return import_module("llm_serving_dashboards.command")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "grafanalib":
            raise
        return None


def _dashboards(words: list[str]) -> int:
    if _import_dashboards() is None:
        print_message(
            "error: dashboards are made with grafanalib, which is not installed. "
            "Run pip install 'llm-serving-exporter[dashboards]', or pip install '.[dashboards]' in a clone."
        )
        return EXIT_FAILED
    return _run_module("llm_serving_dashboards.command", words)


def _run(config: Config, arguments: argparse.Namespace) -> int:
    from llm_serving_exporter import logs
    from llm_serving_exporter.daemon.service import Service
    from llm_serving_exporter.files.descriptors import raise_descriptor_limit

    logs.set_up(config.log.level, config.log.format)
    reloading = threading.Event()
    # set before anything listens: an early signal must find its handler
    with ended_by_signal(reloading) as stopping:
        raise_descriptor_limit()
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
    "drill": partial(_run_module, "llm_serving_drill.command"),
    "page-test": partial(_run_module, "llm_serving_exporter.commands.page_test"),
    "report": partial(_run_module, "llm_serving_review.command"),
    "rules": partial(_run_module, "llm_serving_alerts.command"),
    "runbook": partial(_run_module, "llm_serving_exporter.commands.runbook"),
    "runtimes": partial(_run_module, "llm_serving_exporter.commands.runtimes"),
    "dashboards": _dashboards,
    "simulate": _simulate,
}
