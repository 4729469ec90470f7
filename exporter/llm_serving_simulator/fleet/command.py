"""Command `simulate`: a fleet of simulated engines on loopback ports, in real time or faster."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from llm_serving_exporter.errors import ConfigError, LLMServingExporterError, Problem
from llm_serving_exporter.settings.flags import CommandParser, add_rows, duration_once_bare
from llm_serving_exporter.settings.kinds import format_duration
from llm_serving_exporter.terminal import EXIT_FAILED, EXIT_OK, ended_by_signal, print_line, print_message, run_command
from llm_serving_simulator.fleet.fleet import Fleet
from llm_serving_simulator.fleet.scenario import Scenario, load, names
from llm_serving_simulator.fleet.server import FleetServer, exporter_config
from llm_serving_simulator.options import port, speed

_DEFAULT_SCENARIO = "calm-day"
_PROGRESS_SECONDS = 5.0
# flags in the order of --help: name, word for the value, help, what else argparse is told
_FLAGS = (
    ("--scenario", "NAME|FILE", "one of --list, or a file; default: %(default)s", {"default": _DEFAULT_SCENARIO}),
    ("--list", None, "show the scenarios and exit", {"action": "store_true"}),
    ("--speed", "TIMES", "times as fast as real time", {"type": speed, "default": 1.0}),
    ("--duration", "10m", "end by itself after this much real time", {"type": duration_once_bare("--duration")}),
    ("--seed", None, "of arrivals and lengths; default: the scenario's", {"type": int}),
    ("--port", "PORT", "the first replica's, the others follow; default: free ones", {"type": port, "default": 0}),
    ("--control-port", "PORT", "default: a free one", {"type": port, "default": 0}),
    ("--write-config", "FILE", "write an exporter's configuration for these replicas", {"type": Path}),
)


def run(argv: Sequence[str]) -> int:
    """Serve a scenario until Ctrl-C, SIGTERM or the end of `--duration`; 0 when it ended so, 1 where it could not start, 2 for a scenario
    that is not one."""
    return run_command(lambda: _simulate(_arguments(argv)))


def _simulate(args: argparse.Namespace) -> int:
    if args.list:
        return EXIT_OK if print_line(_list()) else EXIT_FAILED
    scenario = load(args.scenario)
    with ExitStack() as stack:
        ended = stack.enter_context(ended_by_signal())
        try:
            fleet = scenario.fleet(seed=args.seed)
            server = stack.enter_context(
                FleetServer(fleet, args.speed, first_port=args.port, control_port=args.control_port)
            )
            _introduce(scenario, server, args)
        except (OSError, LLMServingExporterError) as error:
            print_message(f"error: {error}")
            return EXIT_FAILED
        left: float | None = args.duration
        while not ended.wait(_PROGRESS_SECONDS if left is None else min(left, _PROGRESS_SECONDS)):
            with server.lock:
                print_line(_progress(server.advance()))
            if left is not None:
                left -= _PROGRESS_SECONDS
                if left <= 0:
                    break
        print_line("\nstopping")
    return EXIT_OK


def _introduce(scenario: Scenario, server: FleetServer, args: argparse.Namespace) -> None:
    urls = {replica.name: server.url(replica.name) for replica in scenario.replicas}
    if args.write_config is not None:
        _write_config(args.write_config, exporter_config(scenario, urls))
    print_line(f"\n{scenario.name}: {scenario.summary}.")
    print_line("These are simulated engines: no model runs, no GPU is used.\n")
    for replica in scenario.replicas:
        print_line(f"{replica.name:<14}{urls[replica.name]}/metrics   on {', '.join(replica.nodes)}")
    print_line(f"{'control':<14}{server.control_url}/fleet   (also GET /truth, POST /nodes/NAME/lose ...)")
    if args.write_config is not None:
        print_line(f"\nexporter: llm-serving-exporter --config.file {args.write_config}")
    happens = [f"{event.what} at {format_duration(event.at_seconds)}" for event in scenario.events]
    if happens:
        print_line(f"\nevents: {', '.join(happens)}")
    for alert in scenario.alerts:
        print_line(f"must fire: {alert.name}, from {format_duration(alert.after_seconds)} on")
    if args.speed != 1.0:
        print_line(f"\n{args.speed:g} times as fast as real time: an exporter sees rates that many times as high.")
    print_line("\nCtrl-C ends it." if args.duration is None else f"\nEnds by itself after {args.duration:g} s.")


def _write_config(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        what = f"{path} cannot be written: {error.strerror}"
        raise ConfigError(Problem("flag --write-config", "", what, "Choose another file.")) from None


def _progress(fleet: Fleet) -> str:
    states: dict[str, int] = {}
    for replica in fleet.replicas.values():
        state = "hung" if replica.engine and replica.engine.hung else replica.state.value
        states[state] = states.get(state, 0) + 1
    counts = fleet.totals().counts
    usage = max((engine.kv.usage_ratio for engine in fleet.engines()), default=0.0)
    who = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
    return (
        f"{format_duration(round(fleet.now_seconds)):>10}  {who}; {fleet.running} running, {fleet.waiting} waiting, "
        f"KV at most {usage:.0%}; {counts.finished} finished, {counts.generated_tokens} tokens generated"
    )


def _list() -> str:
    lines = []
    for name in names():
        scenario = load(name)
        lines.append(f"{name:<24}{format_duration(scenario.duration_seconds):>8}  {len(scenario.replicas)} replicas")
        lines.append(textwrap.fill(scenario.summary, 96, initial_indent="    ", subsequent_indent="    "))
    return "\n".join(lines)


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = CommandParser(
        "simulate",
        description="A fleet of simulated vLLM or SGLang servers that obey the roofline, for tests, drills and alerts.",
    )
    add_rows(parser, _FLAGS)
    return parser.parse_args(argv)
