"""The same rules on VictoriaMetrics: it scrapes the exporter, vmalert evaluates the rendered files and tells the real Alertmanager."""

import time
from pathlib import Path

import pytest
import yaml

from llm_serving_alerts.render import rule_files
from llm_serving_exporter.model.record import replace
from llm_serving_simulator.fleet.scenario import History, load
from llm_serving_simulator.fleet.workload import DAY_SECONDS
from tests.e2e.scenarios import assert_as_listed, assert_pages
from tests.e2e.stack import EVALUATE_SECONDS, SCRAPE_SECONDS, Stack, Watched, milliseconds, settings_of, stack
from tests.support.servers.victoriametrics import VictoriaMetrics, VmAlert

pytestmark = [pytest.mark.paced, pytest.mark.soak]

# half of the pace on Prometheus: what VictoriaMetrics has taken in can be asked for after a second only
SPEED = 30.0
WARM_SECONDS = 1800.0
# what Prometheus looks back, and vmalert's default too; how old VictoriaMetrics lets samples become before it shows them
LOOKBACK_SECONDS, LATENCY_SECONDS = 300.0, 30.0


@pytest.mark.parametrize("name", ["engine-hang", "error-burst"])
def test_a_scenario_fires_what_it_fires_on_prometheus(name: str, tmp_path: Path) -> None:
    scenario = load(name)
    warmed = replace(scenario, history=History(WARM_SECONDS / DAY_SECONDS))
    fleet = warmed.fleet(with_history=True)
    fleet.advance(WARM_SECONDS)
    settings = settings_of(scenario)
    files = []
    for file, text in rule_files(settings, time_scale=SPEED).items():
        files.append(tmp_path / file)
        files[-1].write_text(text)
    with (
        stack(warmed, fleet, settings, tmp_path, speed=SPEED, servers=0) as running,
        VictoriaMetrics(
            tmp_path / "victoria-metrics",
            f"-search.latencyOffset={milliseconds(LATENCY_SECONDS / SPEED)}",
            scrape=scraped(running),
        ) as database,
        VmAlert(
            tmp_path / "vmalert",
            database.url,
            running.alertmanager.url,
            files,
            f"-evaluationInterval={milliseconds(EVALUATE_SECONDS / SPEED)}",
            f"-datasource.queryStep={milliseconds(LOOKBACK_SECONDS / SPEED)}",
        ) as evaluator,
    ):
        seen = watched(running, evaluator, scenario.duration_seconds)
        failed = [
            (rule["name"], rule["lastError"])
            for group in evaluator.groups()
            for rule in group["rules"]
            if rule.get("lastError")
        ]
    assert failed == []
    assert_as_listed(scenario, seen)
    assert_pages(seen, running)


def scraped(running: Stack) -> str:
    """The scrape configuration, at the scenario's pace."""
    pace = milliseconds(SCRAPE_SECONDS / SPEED)
    jobs = {"llm-serving": running.service.url, "alertmanager": running.alertmanager.url}
    return yaml.safe_dump(
        {
            "global": {"scrape_interval": pace, "scrape_timeout": pace},
            "scrape_configs": [
                {"job_name": job, "static_configs": [{"targets": [url.removeprefix("http://")]}]}
                for job, url in jobs.items()
            ],
        }
    )


def watched(running: Stack, evaluator: VmAlert, until_seconds: float) -> Watched:
    """Looks at vmalert's alerts until that second of the scenario."""
    found = Watched()
    while (now := running.seconds) < until_seconds:
        firing = [alert["labels"] for alert in evaluator.alerts() if alert["state"] == "firing"]
        for labels in firing:
            found.fired.setdefault(labels["alertname"], now)
            known = found.labels.setdefault(labels["alertname"], [])
            if labels not in known:
                known.append(labels)
        found.last = {labels["alertname"] for labels in firing}
        time.sleep(0.25)
    return found
