"""A simulated fleet, the real exporter, Prometheus and Alertmanager and a PagerDuty on loopback, faster than time."""

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from llm_serving_alerts.render import rule_files
from llm_serving_alerts.routes import alertmanager_files
from llm_serving_alerts.settings import Settings
from llm_serving_alerts.settings_file import default_settings
from llm_serving_exporter.daemon.service import Service
from llm_serving_exporter.model.record import replace
from llm_serving_simulator.fleet.fleet import Fleet
from llm_serving_simulator.fleet.scenario import Scenario
from llm_serving_simulator.fleet.server import FleetServer, ServedGpuSource, paced_config
from tests.support.servers.alertmanager import Alertmanager, write_config
from tests.support.servers.pagerduty import PagerDuty
from tests.support.servers.prometheus_server import PrometheusServer
from tests.support.servers.tsdb import make_blocks

# simulated seconds between scrapes and evaluations
SCRAPE_SECONDS, EVALUATE_SECONDS = 30.0, 60.0


@dataclass
class Watched:
    """What happened: `fired` has the simulated second of the scenario at which each alert first fired, `labels` the alerts as they did.
    `longest_gap_seconds`: simulated, between two looks. `missed_evaluations`: of the group of rules that missed most."""

    fired: dict[str, float] = field(default_factory=dict)
    labels: dict[str, list[dict[str, str]]] = field(default_factory=dict)
    last: set[str] = field(default_factory=set)
    longest_gap_seconds: float = 0.0
    missed_evaluations: float = 0.0


@dataclass
class Stack:
    """Everything that runs. `begin_seconds`: the fleet's second at which the scenario begins."""

    scenario: Scenario
    server: FleetServer
    service: Service
    prometheus: tuple[PrometheusServer, ...]
    alertmanager: Alertmanager
    inbox: PagerDuty
    begin_seconds: float

    @property
    def seconds(self) -> float:
        """The scenario's present."""
        return self.server.clock.monotonic() - self.begin_seconds

    def watch(self, until_seconds: float) -> Watched:
        """Looks at Prometheus' alerts until then."""
        found, before = Watched(), self.seconds
        while self.seconds < until_seconds:
            now = self.seconds
            found.longest_gap_seconds, before = max(found.longest_gap_seconds, now - before), now
            firing = [alert for alert in self.prometheus[0].alerts() if alert["state"] == "firing"]
            for alert in firing:
                name = alert["labels"]["alertname"]
                if name not in found.fired:
                    found.fired[name] = now
                found.labels.setdefault(name, [])
                if alert["labels"] not in found.labels[name]:
                    found.labels[name].append(alert["labels"])
            found.last = {alert["labels"]["alertname"] for alert in firing}
            time.sleep(0.25)
        found.missed_evaluations = max(one.count_missed_evaluations() for one in self.prometheus)
        return found


@contextmanager
def stack(
    scenario: Scenario,
    fleet: Fleet,
    settings: Settings,
    folder: Path,
    *,
    speed: float,
    servers: int = 1,
    history: str = "",
) -> Iterator[Stack]:
    """Starts everything for a fleet that has come to the scenario's beginning; ends it all.

    `history`: OpenMetrics text of recorded series from before, by real time. `servers`: Prometheus servers of an HA pair, which differ
    by the label `replica`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as opened:
        begin = fleet.now_seconds
        server = opened.enter_context(FleetServer(fleet, speed, real_wall=True))
        urls = {name: server.url(name) for name in fleet.replicas}
        config = paced_config(scenario, urls, folder, "127.0.0.1:0")

        service = Service(
            config,
            lambda: config,
            lambda _config: ServedGpuSource(server),
            monotonic=server.clock.monotonic,
            speed=speed,
        )
        service.start()
        opened.callback(service.close)
        inbox = opened.enter_context(PagerDuty())
        routes = write_config(alertmanager_files(settings), folder / "alertmanager", inbox)
        alertmanager = opened.enter_context(Alertmanager(routes))
        running = tuple(
            opened.enter_context(
                prometheus(
                    folder / f"prometheus-{number}",
                    settings,
                    speed,
                    service.url,
                    alertmanager.url,
                    f"r{number}",
                    history,
                )
            )
            for number in range(servers)
        )
        yield Stack(scenario, server, service, running, alertmanager, inbox, begin)


def settings_of(scenario: Scenario) -> Settings:
    """The defaults with the scenario's objectives, which its exporter counts by."""
    settings = default_settings()
    wanted = {"ttft": scenario.slo.ttft, "itl": scenario.slo.itl, "e2e": scenario.slo.e2e}
    objectives = {
        name: replace(objective, threshold_seconds=wanted.get(name) or objective.threshold_seconds)
        for name, objective in settings.slo.items()
    }
    return replace(
        settings,
        scrape_interval_seconds=SCRAPE_SECONDS,
        slo=objectives,
        # where a user has them, a page leads there
        runbook_url="http://exporter.example.com:10077/runbooks/{alert}",
        dashboard_url="http://grafana.example.com/d/{uid}",
    )


def prometheus(
    folder: Path, settings: Settings, speed: float, exporter: str, alertmanager: str, replica: str, history: str = ""
) -> PrometheusServer:
    """A server with the rules at that pace, and the past that it is given."""
    folder.mkdir(parents=True)
    rules = []
    for name, text in rule_files(settings, time_scale=speed).items():
        (folder / name).write_text(text)
        rules.append(str(folder / name))
    if history:
        (folder / "history.om").write_text(history)
        make_blocks(folder / "history.om", folder / "data", 720)
    config = {
        "global": {
            "scrape_interval": milliseconds(SCRAPE_SECONDS / speed),
            "scrape_timeout": milliseconds(SCRAPE_SECONDS / speed),
            "evaluation_interval": milliseconds(EVALUATE_SECONDS / speed),
            "external_labels": {"replica": replica},
        },
        "rule_files": rules,
        "alerting": {
            # as the example for a pair has it: else each server's alert is another one
            "alert_relabel_configs": [{"regex": "replica", "action": "labeldrop"}],
            "alertmanagers": [{"static_configs": [{"targets": [alertmanager.removeprefix("http://")]}]}],
        },
        "scrape_configs": [
            {"job_name": "llm-serving", "static_configs": [{"targets": [exporter.removeprefix("http://")]}]},
            {"job_name": "alertmanager", "static_configs": [{"targets": [alertmanager.removeprefix("http://")]}]},
        ],
    }
    # what is five minutes to Prometheus is five simulated ones here
    lookback = f"--query.lookback-delta={milliseconds(300 / speed)}"
    return PrometheusServer(folder, yaml.safe_dump(config), lookback, "--rules.alert.resend-delay=1s")


def milliseconds(seconds: float) -> str:
    """A duration of Prometheus' configuration."""
    return f"{max(1, round(seconds * 1000))}ms"
