"""A node-loss drill to look at: `python -m llm_serving_simulator.drill_demo`, which `make drill` runs.

A simulated fleet that is faster than time, and beside it the real exporter, Prometheus with these rules, Alertmanager with these routes,
and the command `drill`. It stands here because it needs both the exporter and the rules, which do not know each other.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from urllib.parse import urlencode, urlsplit

from llm_serving_alerts.render import rule_files
from llm_serving_alerts.routes import alertmanager_config
from llm_serving_alerts.settings import Settings
from llm_serving_alerts.settings_file import default_settings
from llm_serving_drill import names
from llm_serving_exporter import logs
from llm_serving_exporter.daemon.service import Service
from llm_serving_exporter.errors import LLMServingExporterError
from llm_serving_exporter.model.record import Struct, replace
from llm_serving_exporter.settings.flags import CommandParser
from llm_serving_exporter.settings.kinds import format_duration
from llm_serving_exporter.terminal import EXIT_FAILED, EXIT_INTERRUPTED, ended_by_signal, print_line, print_message
from llm_serving_simulator.fleet.scenario import Scenario, load
from llm_serving_simulator.fleet.server import FleetServer, ServedGpuSource, paced_config
from llm_serving_simulator.fleet.workload import Profile
from llm_serving_simulator.programs import Alertmanager, ChildError, Pace, Prometheus, Rules, find_alertmanager

_SCENARIO, _NODE = "node-loss-under-load", "node-0"
# the scenario's load as a share of what its four nodes can do (its summary says so), and what is left of them without one
_SCENARIO_SHARE, _SURVIVING_SHARE = 4 / 5, 3 / 4
_DEFAULT_LOAD, _DEFAULT_SPEED = 0.6, 30.0
# above this the exporter and Prometheus of two cores fall behind the fleet
_MOST_SPEED = 60.0

# simulated seconds: before anything is served, so that batches are full; Prometheus' pace; the drill's own
_WARM_SECONDS = 600.0
_SCRAPE_SECONDS, _EVALUATE_SECONDS, _LOOKBACK_SECONDS, _RESEND_SECONDS = 30.0, 60.0, 300.0, 60.0
_BASELINE_SECONDS, _SETTLE_SECONDS, _INTERVAL_SECONDS = 600.0, 60.0, 15.0
_RATE_WINDOW_SECONDS, _MOST_SECONDS, _PAGE_SLACK_SECONDS = 300.0, 3600.0, 120.0
# what the first recorded 5m rates of the fleet need before the baseline can begin
_SEEN_SECONDS = _BASELINE_SECONDS + _RATE_WINDOW_SECONDS
# real seconds: an alert goes over two processes that share a busy machine with the fleet
_LEAST_PAGE_SLACK_SECONDS = 15.0
# a place that is not known; Prometheus stores no label without a value
_EMPTY_LABEL = re.compile(r'(?<=\{)(?:\w+="",?)+|,\w+=""')
_PATIENCE_SECONDS, _PUBLISHED_SECONDS, _END_SECONDS = 120.0, 60.0, 20.0
_LOOK_SECONDS, _PROGRESS_SECONDS = 0.5, 5.0

_WHAT_THIS_IS = """\
A simulated fleet: {replicas} replicas of {model} on {nodes} nodes, {rate:.2f} requests/s, {load:.0%} of what the others can do
without {node}; {speed:g} times as fast as real time, so that a second here is {speed:g} there. No model runs, no GPU is used. Beside it
are the real exporter, Prometheus with the rules{routes}.
"""


class DemoError(LLMServingExporterError):
    """What is needed is missing or did not come about. Never leaves this module."""


class Stage(Struct, frozen=True):
    """Everything that runs beside a drill."""

    scenario: Scenario  # of the simulated fleet
    server: FleetServer  # of the simulated engines
    exporter_url: str  # of the real exporter that reads them
    prometheus_url: str  # that scrapes it and evaluates the rules
    alertmanager_url: str | None  # None: no Alertmanager runs
    result_file: Path  # of drill results, which the exporter publishes


def run(argv: Sequence[str] | None = None) -> int:
    """The exit status of `drill`; 1 too where it could not begin, 130 where it was interrupted."""
    args = _arguments(argv)
    logs.set_up("error", "logfmt")
    with ExitStack() as stack:
        ended = stack.enter_context(ended_by_signal())
        try:
            stage = _start(args, stack, ended)
            _wait_for_history(stage, ended)
            status = _drill(stage, args, ended)
            if not ended.is_set():
                _show_published(stage, ended)
        except (OSError, ChildError, LLMServingExporterError) as error:
            if not ended.is_set():
                print_message(f"error: {error}")
                return EXIT_FAILED
            status = EXIT_INTERRUPTED
        print_line("\nstopping")
    return EXIT_INTERRUPTED if ended.is_set() else status


def scenario_at(load_share: float) -> Scenario:
    """The fleet under a steady load: that share of what it can do without one of its nodes. Nothing happens to it by itself."""
    scenario = load(_SCENARIO)
    most = scenario.rate.base / _SCENARIO_SHARE
    return replace(scenario, rate=Profile(load_share * _SURVIVING_SHARE * most), events=(), alerts=(), history=None)


def settings_of(scenario: Scenario) -> Settings:
    """The default settings with the time to first token that the scenario's exporter counts by."""
    settings = default_settings()
    ttft = replace(settings.slo["ttft"], threshold_seconds=scenario.slo.ttft)
    return replace(settings, scrape_interval_seconds=_SCRAPE_SECONDS, slo={**settings.slo, "ttft": ttft})


def post_command(url: str) -> str:
    """A command line, for no shell, that posts to a control server: by curl where there is one."""
    if shutil.which("curl") is not None:
        return shlex.join(["curl", "-sS", "--fail", "--noproxy", "127.0.0.1", "-X", "POST", url])
    where = urlsplit(url)
    # no single quotes, so that the command line stays readable
    script = (
        f'import http.client; c = http.client.HTTPConnection("{where.netloc}"); c.request("POST", "{where.path}"); '
        "a = c.getresponse(); print(a.read().decode()); raise SystemExit(a.status != 200)"
    )
    return shlex.join([sys.executable, "-c", script])


def drill_command(stage: Stage, speed: float, output: Path, *, force: bool) -> list[str]:
    """The words of the real command; durations are real ones, as the rules of a faster fleet have them."""

    def paced(simulated_seconds: float) -> str:
        return format_duration(simulated_seconds / speed)

    node = f"{stage.server.control_url}/nodes/{_NODE}"
    asked = [
        *("--prometheus.url", stage.prometheus_url),
        *("--model", stage.scenario.replicas[0].engine.model),
        *("--node", _NODE),
        *("--trigger-command", post_command(f"{node}/lose")),
        *("--restore-command", post_command(f"{node}/return")),
        *("--hold", "page"),
        *("--baseline", paced(_BASELINE_SECONDS)),
        *("--settle", paced(_SETTLE_SECONDS)),
        *("--interval", paced(_INTERVAL_SECONDS)),
        *("--rate-window", paced(_RATE_WINDOW_SECONDS)),
        *("--max-duration", paced(_MOST_SECONDS)),
        *("--page-slack", format_duration(max(_PAGE_SLACK_SECONDS / speed, _LEAST_PAGE_SLACK_SECONDS))),
        *("--output-dir", str(output)),
        *("--drill.result-file", str(stage.result_file)),
    ]
    if stage.alertmanager_url is not None:
        asked += ["--alertmanager.url", stage.alertmanager_url]
    if force:
        asked.append("--force")
    return [sys.executable, "-m", "llm_serving_exporter", "drill", *asked]


def _start(args: argparse.Namespace, stack: ExitStack, ended: threading.Event) -> Stage:
    program = shutil.which("prometheus")
    if program is None:
        raise DemoError("no `prometheus` on PATH, and a drill asks one (Debian, Ubuntu: apt-get install prometheus)")
    try:
        args.output_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DemoError(
            f"flag --output-dir: the folder {args.output_dir} cannot be made: {error.strerror}; name another"
        ) from None
    scenario, speed = scenario_at(args.load), args.speed
    settings = settings_of(scenario)
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="llm-serving-drill-")))

    fleet = scenario.fleet(seed=args.seed)
    fleet.advance(_WARM_SECONDS)
    server = stack.enter_context(FleetServer(fleet, speed, real_wall=True))
    urls = {name: server.url(name) for name in fleet.replicas}
    result_file = folder / "drills.json"
    config = replace(paced_config(scenario, urls, folder, "127.0.0.1:0"), drill_result_file=str(result_file))
    clock = server.clock
    service = Service(
        config, lambda: config, lambda _config: ServedGpuSource(server), monotonic=clock.monotonic, speed=clock.speed
    )
    service.start()
    stack.callback(service.close)

    alertmanager = _start_alertmanager(settings, stack, ended)
    pace = Pace(*(each / speed for each in (_SCRAPE_SECONDS, _EVALUATE_SECONDS, _LOOKBACK_SECONDS, _RESEND_SECONDS)))
    rules = Rules(rule_files(settings, time_scale=speed), alertmanager and alertmanager.removeprefix("http://"))
    prometheus = Prometheus(program, service.url.removeprefix("http://"), 0, pace, rules, ended)
    stack.callback(prometheus.close)

    nodes = {node for replica in scenario.replicas for node in replica.nodes}
    about = {
        "replicas": len(scenario.replicas),
        "model": scenario.replicas[0].engine.model,
        "nodes": len(nodes),
        "node": _NODE,
    }
    routes = ", Alertmanager with the routes (its receivers send nothing)" if alertmanager else ""
    print_line(_WHAT_THIS_IS.format(**about, rate=scenario.rate.base, load=args.load, speed=speed, routes=routes))
    print_line(f"fleet           {server.control_url}/fleet")
    print_line(f"exporter        {service.url}/")
    print_line(f"Prometheus      {prometheus.url}/alerts")
    if alertmanager is not None:
        print_line(f"Alertmanager    {alertmanager}/")
    print_line("")
    return Stage(scenario, server, service.url, prometheus.url, alertmanager, result_file)


def _start_alertmanager(settings: Settings, stack: ExitStack, ended: threading.Event) -> str | None:
    program = find_alertmanager()
    if program is None:
        print_line(
            "no Alertmanager on PATH: the drill runs without (Debian, Ubuntu: apt-get install prometheus-alertmanager)"
        )
        return None
    running = Alertmanager(program, alertmanager_config(settings), cancelled=ended)
    stack.callback(running.close)
    return running.url


def _wait_for_history(stage: Stage, ended: threading.Event) -> None:
    """Until N-1 is known and a baseline has passed. Raises DemoError where that does not come about, or everything is to end."""
    began = stage.server.clock.monotonic()

    def missing() -> str:
        seen = stage.server.clock.monotonic() - began
        if seen < _SEEN_SECONDS:
            return f"{format_duration(round(seen))} of {format_duration(_SEEN_SECONDS)} of the fleet's time recorded"
        lacking = [name for name in (names.READY, names.DESIRED, names.SUFFICIENT) if not _known(stage, name)]
        return f"not recorded yet: {', '.join(lacking)}" if lacking else ""

    _wait_until_nothing(
        missing, "the recorded N-1", _PATIENCE_SECONDS + _SEEN_SECONDS / stage.server.clock.speed, ended
    )


def _known(stage: Stage, name: str) -> bool:
    query = urlencode({"query": name})
    document = json.loads(_fetch(f"{stage.prometheus_url}/api/v1/query?{query}"))
    return bool(document["data"]["result"])


def _drill(stage: Stage, args: argparse.Namespace, ended: threading.Event) -> int:
    """Runs the real command, which shows its own progress and prints its report; its exit status."""
    before = set(args.output_dir.glob("drill-*"))
    command = drill_command(stage, args.speed, args.output_dir, force=args.force)
    print_line(f"\n$ llm-serving-exporter {shlex.join(command[3:])}\n")
    # in our process group: it heeds a Ctrl-C itself, and brings the node back
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL)  # noqa: S603  # our own interpreter and arguments
    try:
        while process.poll() is None and not ended.wait(_LOOK_SECONDS):
            pass
        if process.poll() is None:
            process.send_signal(signal.SIGINT)  # where only we were told to end
            with suppress(subprocess.TimeoutExpired):
                process.wait(_END_SECONDS)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    print_line("")
    for path in sorted(set(args.output_dir.glob("drill-*")) - before):
        print_line(f"report: {path}")
    return process.returncode


def _show_published(stage: Stage, ended: threading.Event) -> None:
    """The result as the exporter has it. Raises DemoError where it does not publish what was recorded."""
    if not stage.result_file.exists():
        print_line("\nNothing was lost, so that nothing was recorded: the exporter has no drill_* series.")
        return
    shown: list[str] = []

    def missing() -> str:
        page = _fetch(f"{stage.exporter_url}/metrics").decode()
        shown[:] = [line for line in page.splitlines() if line.startswith("llm_serving_drill_")]
        return "" if shown else "it looks every 30 s for results of drills"

    _wait_until_nothing(missing, "the exporter's drill_* series", _PUBLISHED_SECONDS, ended)
    print_line(f"\n{stage.exporter_url}/metrics says of it, labels without a value left out:")
    for line in shown:
        print_line(f"  {_EMPTY_LABEL.sub('', line)}")


def _wait_until_nothing(missing: Callable[[], str], what: str, patience_seconds: float, ended: threading.Event) -> None:
    """Until `missing` says "", with its words as progress. Raises DemoError after that many seconds and where `ended` is set."""
    began = time.monotonic()
    last = -_PROGRESS_SECONDS
    while lacking := missing():
        passed = time.monotonic() - began
        if passed > patience_seconds:
            raise DemoError(
                f"{what} did not come about within {patience_seconds:.0f} s: {lacking}; try a lower --speed"
            )
        if passed - last >= _PROGRESS_SECONDS:
            last = passed
            print_line(f"waiting for {what}: {lacking}")
        if ended.wait(_LOOK_SECONDS):
            raise DemoError("interrupted")


def _fetch(url: str) -> bytes:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(url, timeout=10) as answer:
        return bytes(answer.read())


def _number(least: float, most: float) -> Callable[[str], float]:
    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is not a number from {least:g} to {most:g}")
        return value

    return read


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = CommandParser(
        "drill_demo",
        prog="python -m llm_serving_simulator.drill_demo",
        description="A node-loss drill on a simulated fleet, faster than time, with the real exporter, rules and drill.",
        epilog="exit status: that of drill: 0 passed, 1 failed, aborted or not begun, 130 interrupted; 2 bad usage",
    )
    parser.add_argument(
        "--load",
        type=_number(0.05, 1.3),
        default=_DEFAULT_LOAD,
        metavar="SHARE",
        help="requests, as a share of what the fleet can do without the node (default %(default)s; at 1.1 the drill refuses)",
    )
    parser.add_argument("--force", action="store_true", help="begin although N-1 says no")
    parser.add_argument(
        "--output-dir",
        type=Path,
        default=Path("build/drill"),
        metavar="FOLDER",
        help="where the report goes (default %(default)s)",
    )
    parser.add_argument(
        "--speed",
        type=_number(1, _MOST_SPEED),
        default=_DEFAULT_SPEED,
        metavar="TIMES",
        help="times as fast as real time (default %(default)g)",
    )
    parser.add_argument("--seed", type=int, help="of arrivals and lengths (default: the scenario's)")
    return parser.parse_args(argv)


if __name__ == "__main__":
    raise SystemExit(run())
