"""Command `demo`: a simulated fleet that obeys the roofline, with the real exporter, Prometheus with the rules, and a story to watch.

It stands here because it needs both the exporter and the rules, which do not know each other.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from llm_serving_alerts.render import rule_files
from llm_serving_alerts.routes import alertmanager_config
from llm_serving_alerts.settings import Settings
from llm_serving_alerts.settings_file import default_settings
from llm_serving_exporter.daemon.service import Service
from llm_serving_exporter.errors import LLMServingExporterError
from llm_serving_exporter.model.cost import PriceBook, PriceStatement, Rate, RateKind, Scope
from llm_serving_exporter.model.numbers import add_up
from llm_serving_exporter.model.record import Struct, replace
from llm_serving_exporter.settings.flags import CommandParser
from llm_serving_exporter.settings.kinds import format_duration
from llm_serving_exporter.terminal import EXIT_FAILED, EXIT_OK, ended_by_signal, print_line, print_message
from llm_serving_simulator.fleet.fleet import Fleet
from llm_serving_simulator.fleet.gpus import gpus_of
from llm_serving_simulator.fleet.history import SHORT, recorded, usual
from llm_serving_simulator.fleet.scenario import History, Scenario, load_story
from llm_serving_simulator.fleet.server import FleetServer, ServedGpuSource, paced_config
from llm_serving_simulator.fleet.workload import DAY_SECONDS
from llm_serving_simulator.options import add_listening, find_free_address, find_free_port, port, say_moved, speed
from llm_serving_simulator.programs import (
    Alertmanager,
    ChildError,
    Grafana,
    Pace,
    Past,
    Rules,
    find_alertmanager,
    find_grafana,
    start_prometheus,
)

_STORY = "demo"
_EXPORTER_HOST, _EXPORTER_PORT, _GRAFANA_PORT = "127.0.0.1", 10077, 3000
_USD_PER_GPU_HOUR, _BUDGET_USD = 2.50, 12_000.0
# simulated seconds: before anything is served, so that batches are full; Prometheus' pace; the exporter's
_WARM_SECONDS = 900.0
_SCRAPE_SECONDS, _EVALUATE_SECONDS, _LOOKBACK_SECONDS, _RESEND_SECONDS = 5.0, 5.0, 300.0, 60.0
_READ_SECONDS, _TIMEOUT_SECONDS = 5.0, 4.0
# of an alert: a story of half an hour has no time for more
_LONGEST_FOR_SECONDS = 15.0
_LOOK_SECONDS = 2.0
# fires always, by design
_ALWAYS = "LLMServingWatchdog"

_WHAT_THIS_IS = """\

A simulated fleet, not a live one: {replicas} replicas of {model} on {nodes} nodes of two H100 each. Their engines take the time that
the roofline says, so that every figure fits every other. No model runs, no GPU is used; ${price:.2f} per GPU-hour is made up.
"""
_WHAT_IS_SHORTER = """\
Alerts wait {seconds:g} s here where the delivered rules wait for minutes; everything else about them is as delivered. The week before was
worked out from the fleet's own calm, so that baselines are known.
"""

# dashboards (texts by file name) and provisioning (texts by path) for a Prometheus at a URL
Boards = Callable[[Settings, str], tuple[Mapping[str, str], Mapping[str, str]]]


class Shown(Struct, frozen=True):
    """What somebody can look at. None: it does not run."""

    exporter: str  # URL
    prometheus: str | None  # URL
    alertmanager: str | None  # URL
    grafana: str | None  # URL


def run(argv: Sequence[str], boards: Boards | None = None) -> int:
    """Run the demo until Ctrl-C, SIGTERM or the end of `--duration`; 0 when it ended so, 1 where it could not start.

    `boards`: what Grafana is to show; None: dashboards cannot be made here."""
    args = _parse_arguments(argv)
    with ExitStack() as stack:
        ended = stack.enter_context(ended_by_signal())
        try:
            scenario = load_story(_STORY)
            server, begin, shown = _start(scenario, args, stack, ended, boards)
        except (OSError, LLMServingExporterError, ChildError) as error:
            if ended.is_set():
                return EXIT_OK
            print_message(f"error: {error}")
            return EXIT_FAILED
        print_line("\nCtrl-C ends it." if args.duration is None else f"\nEnds by itself after {args.duration:g} s.")
        _tell(scenario, server, begin, shown, ended, args.duration)
        print_line("\nstopping")
    return EXIT_OK


def settings_of(scenario: Scenario) -> Settings:
    """The default settings with the scenario's objectives; no alert waits for longer than a short story has time for."""
    settings = default_settings()
    wanted = {"ttft": scenario.slo.ttft, "itl": scenario.slo.itl, "e2e": scenario.slo.e2e}
    slo = {
        name: replace(objective, threshold_seconds=wanted.get(name) or objective.threshold_seconds)
        for name, objective in settings.slo.items()
    }
    alerts = {
        name: replace(alert, for_seconds=min(alert.for_seconds, _LONGEST_FOR_SECONDS))
        for name, alert in settings.alerts.items()
    }
    return replace(settings, scrape_interval_seconds=_SCRAPE_SECONDS, slo=slo, alerts=alerts)


def warm_fleet(scenario: Scenario) -> tuple[Fleet, float]:
    """The fleet at the beginning of its story, with full batches, and the second of it that this is."""
    warmed = replace(scenario, history=History(_WARM_SECONDS / DAY_SECONDS))
    fleet = warmed.fleet(with_history=True)
    fleet.advance(_WARM_SECONDS)
    return fleet, _WARM_SECONDS


def _start(
    scenario: Scenario, args: argparse.Namespace, stack: ExitStack, ended: threading.Event, boards: Boards | None
) -> tuple[FleetServer, float, Shown]:
    settings = settings_of(scenario)
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="llm-serving-demo-")))
    print_line("starting the fleet ...")
    program, promtool = shutil.which("prometheus"), shutil.which("promtool")
    with_rules = not args.no_prometheus and program is not None and promtool is not None
    # before the story's clock runs
    usual_week = usual(scenario, SHORT) if with_rules else None
    fleet, begin = warm_fleet(scenario)
    if ended.is_set():
        raise ChildError("interrupted")
    server = stack.enter_context(FleetServer(fleet, args.speed, real_wall=True))
    exporter = _start_exporter(scenario, server, folder, args, stack)
    names = {node for replica in scenario.replicas for node in replica.nodes}
    model = scenario.replicas[0].engine.model
    about = {"replicas": len(scenario.replicas), "model": model, "nodes": len(names), "price": _USD_PER_GPU_HOUR}
    print_line(_WHAT_THIS_IS.format(**about))
    print_line(f"exporter           {exporter}/")
    print_line(f"exporter's page    {exporter}/metrics")
    prometheus = alertmanager = None
    if program is not None and promtool is not None and usual_week is not None:
        spent = _USD_PER_GPU_HOUR * add_up(replica.engine.gpus for replica in scenario.replicas)
        past = Past(promtool, recorded(scenario, usual_week, args.speed, usd_per_hour=spent))
        prometheus, alertmanager = _start_rules(program, past, settings, exporter, args, stack, ended)
    elif not args.no_prometheus:
        print_line("no `prometheus` on PATH: the demo runs without (Debian, Ubuntu: apt-get install prometheus)")
    seen = None if prometheus is None else _start_grafana(settings, prometheus, boards, args, stack, ended)
    if prometheus is not None:
        print_line(f"\n{_WHAT_IS_SHORTER.format(seconds=_LONGEST_FOR_SECONDS)}".rstrip())
    return server, begin, Shown(exporter, prometheus, alertmanager, seen)


def _start_exporter(
    scenario: Scenario, server: FleetServer, folder: Path, args: argparse.Namespace, stack: ExitStack
) -> str:
    urls = {name: server.url(name) for name in server.fleet.replicas}
    asked = args.listen_addresses or [(_EXPORTER_HOST, _EXPORTER_PORT)]
    listen = [find_free_address(host, number, "--web.listen-address") for host, number in asked]
    paced = paced_config(
        scenario, urls, folder, *listen, read_seconds=_READ_SECONDS, timeout_seconds=_TIMEOUT_SECONDS * args.speed
    )
    kinds = {replica.engine.gpu_spec.name for replica in scenario.replicas}
    prices = PriceBook(
        tuple(PriceStatement(Scope.GPU_MODEL, kind, _USD_PER_GPU_HOUR, "example") for kind in sorted(kinds)),
        (Rate("example", RateKind.ON_DEMAND),),
        budget_usd_per_month=_BUDGET_USD,
    )
    # its GPUs are read too, so that what the GPUs say stands beside what the pages say
    targets = [replace(target, gpus=gpus_of(server.fleet, target.name), gpu_count=None) for target in paced.targets]
    config = replace(paced, prices=prices, targets=tuple(targets))
    clock = server.clock
    service = Service(
        config, lambda: config, lambda _config: ServedGpuSource(server), monotonic=clock.monotonic, speed=clock.speed
    )
    service.start()
    stack.callback(service.close)
    say_moved("the exporter", asked[0][1], service.url)
    return service.url


def _start_rules(
    program: str,
    past: Past,
    settings: Settings,
    exporter: str,
    args: argparse.Namespace,
    stack: ExitStack,
    ended: threading.Event,
) -> tuple[str | None, str | None]:
    """Prometheus, and Alertmanager where it is installed: their URLs."""
    alertmanager = None
    receiver = find_alertmanager()
    if receiver is not None:
        try:
            running = Alertmanager(receiver, alertmanager_config(settings), cancelled=ended)
        except (OSError, ChildError) as error:
            print_line(f"Alertmanager did not start, the demo runs without: {error}")
        else:
            stack.callback(running.close)
            alertmanager = running.url
    pace = Pace(
        *(each / args.speed for each in (_SCRAPE_SECONDS, _EVALUATE_SECONDS, _LOOKBACK_SECONDS, _RESEND_SECONDS))
    )
    rules = Rules(rule_files(settings, time_scale=args.speed), alertmanager and alertmanager.removeprefix("http://"))
    prometheus = start_prometheus(program, exporter, args.prometheus_port, stack, ended, pace, rules, past)
    if prometheus is None:
        return None, alertmanager
    print_line(f"Prometheus         {prometheus.url}/alerts")
    if alertmanager is not None:
        print_line(f"Alertmanager       {alertmanager}/   (its receivers send nothing)")
    return prometheus.url, alertmanager


def _start_grafana(
    settings: Settings,
    prometheus: str,
    boards: Boards | None,
    args: argparse.Namespace,
    stack: ExitStack,
    ended: threading.Event,
) -> str | None:
    grafana = find_grafana()
    if grafana is None:
        print_line("no Grafana on PATH: the demo runs without dashboards")
        return None
    if boards is None:
        print_line("Grafana is here, dashboards are not: pip install 'llm-serving-exporter[dashboards]'")
        return None
    dashboards, provisioning = boards(settings, prometheus)
    try:
        free = find_free_port("127.0.0.1", args.grafana_port, "--grafana-port")
        running = Grafana(*grafana, dashboards, provisioning, free, ended)
    except (OSError, LLMServingExporterError, ChildError) as error:
        print_line(f"Grafana did not start, the demo runs without: {error}")
        return None
    stack.callback(running.close)
    say_moved("Grafana", args.grafana_port, running.url)
    print_line(f"Grafana            {running.url}/d/llm-serving-home")
    return running.url


def _tell(
    scenario: Scenario, server: FleetServer, begin: float, shown: Shown, ended: threading.Event, duration: float | None
) -> None:
    """Says each chapter at its time, and which alerts begin and end, until everything is to end."""
    chapters = list(scenario.story)
    until = None if duration is None else time.monotonic() + duration
    firing: dict[tuple[tuple[str, str], ...], str] = {}
    while until is None or time.monotonic() < until:
        now = server.clock.monotonic() - begin
        while chapters and chapters[0].at_seconds <= now:
            print_line(f"{_stamp(now)}  {chapters.pop(0).says}")
        if shown.prometheus is not None:
            before, firing = firing, dict(_read_alerts(shown.prometheus, firing))
            for key in firing.keys() - before.keys():
                print_line(f"{_stamp(now)}    fires  {firing[key]}")
            for key in before.keys() - firing.keys():
                print_line(f"{_stamp(now)}    ends   {before[key].partition(':')[0]}")
        left = _LOOK_SECONDS if until is None else min(_LOOK_SECONDS, until - time.monotonic())
        if ended.wait(max(0.0, left)):
            return


def _stamp(seconds: float) -> str:
    return f"{int(seconds // 60):3d}:{int(seconds % 60):02d}"


def _read_alerts(
    prometheus: str, firing: Mapping[tuple[tuple[str, str], ...], str]
) -> Iterator[tuple[tuple[tuple[str, str], ...], str]]:
    """The alerts that fire, by their labels, in words; as they were where Prometheus does not answer."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"{prometheus}/api/v1/alerts", timeout=5) as answer:
            alerts = json.loads(answer.read())["data"]["alerts"]
    except (OSError, ValueError, urllib.error.URLError):
        yield from firing.items()
        return
    for alert in alerts:
        labels = alert["labels"]
        if alert["state"] == "firing" and labels["alertname"] != _ALWAYS:
            name = labels["alertname"].removeprefix("LLMServing")
            words = f"{name} ({labels['severity']}): {alert['annotations'].get('summary', '')}"
            yield tuple(sorted(labels.items())), words


def _parse_arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = CommandParser(
        "demo",
        description="A simulated fleet that obeys the roofline beside the real exporter, with Prometheus, Alertmanager and Grafana where "
        f"they are installed. A story of {format_duration(load_story(_STORY).duration_seconds)}: a flood, a slow replica, a lost node. "
        "`demo --recording` replays a recorded vLLM instead.",
    )
    add_listening(parser, f"{_EXPORTER_HOST}:{_EXPORTER_PORT}")
    parser.add_argument("--grafana-port", type=port, default=_GRAFANA_PORT, metavar="PORT")
    parser.add_argument(
        "--speed",
        type=speed,
        default=1.0,
        metavar="TIMES",
        help="times as fast as real time; Prometheus then sees rates that many times as high",
    )
    return parser.parse_args(argv)
