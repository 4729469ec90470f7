"""The demo on a simulated fleet: its story, its settings, that its figures fit one another, and that it leaves nothing behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from llm_serving_alerts.records.cost import FLEET_COST
from llm_serving_alerts.settings_file import default_settings
from llm_serving_simulator.fleet.history import SHORT, Usual, Watch, recorded, usual
from llm_serving_simulator.fleet.scenario import Scenario, load_story
from llm_serving_simulator.fleet_demo import run, settings_of
from llm_serving_simulator.options import require_free
from tests.support.paths import ROOT
from tests.support.waiting import PATIENCE_SECONDS

ANY_PORTS = ["--web.listen-address", "127.0.0.1:0", "--prometheus-port", "0", "--grafana-port", "0"]
NO_RULES = [*ANY_PORTS, "--no-prometheus"]


@pytest.fixture(scope="module")
def story() -> Scenario:
    return load_story("demo")


def test_it_is_small_enough_for_a_laptop(story: Scenario) -> None:
    assert len(story.replicas) <= 12
    assert len({node for replica in story.replicas for node in replica.nodes}) >= 3


def test_something_happens_at_each_chapter_and_nothing_between(story: Scenario) -> None:
    happens = {event.at_seconds for event in story.events} | {step.at_seconds for step in story.rate.steps}
    happens |= {mix.from_seconds for mix in story.mixes if mix.from_seconds}
    told = {chapter.at_seconds for chapter in story.story}
    assert told == happens | {0.0, story.duration_seconds}


def test_only_how_long_alerts_wait_differs_from_what_is_delivered(story: Scenario) -> None:
    ours, delivered = settings_of(story), default_settings()
    for name, alert in delivered.alerts.items():
        assert ours.alerts[name].values == alert.values
        assert ours.alerts[name].for_seconds == min(alert.for_seconds, 15.0)
    assert (ours.burn, ours.baseline, ours.node_loss) == (delivered.burn, delivered.baseline, delivered.node_loss)


def test_what_gpus_and_pages_say_of_the_bandwidth_is_the_same_and_so_is_what_binds(story: Scenario) -> None:
    fleet = story.fleet()
    watch = Watch(fleet, interval_seconds=5.0, slo=story.slo, gpus=True)
    fleet.advance(60.0)
    while fleet.now_seconds < 115.0:
        watch.read()
        fleet.advance(fleet.now_seconds + 5.0)
    found = [(name, labels, value) for name, labels, value in watch.samples()]
    ratios: dict[str, dict[str, float]] = {}
    for name, labels, value in found:
        if name == "llm_serving_bandwidth_ceiling_ratio":
            ratios.setdefault(labels["target"], {})[labels["source"]] = value
    assert len(ratios) == len(story.replicas)
    for of in ratios.values():
        assert of["gpm"] == pytest.approx(of["model"], rel=0.05)
        assert 0.5 < of["model"] < 0.9
    binds = {
        labels["target"]: labels["state"]
        for name, labels, value in found
        if name == "llm_serving_limiter" and value == 1
    }
    assert set(binds.values()) == {"bandwidth"}


def test_the_week_before_has_a_sample_a_minute_of_what_baselines_read(story: Scenario) -> None:
    known = Usual("m", "g", 0.1, {"gpm": 0.7}, 2600.0, 0.4, {"prefill": 1400.0, "decode": 1900.0}, 6, 6)
    lines = recorded(story, known, 1.0).splitlines()
    assert lines[-1] == "# EOF"
    of_one = [line for line in lines if line.startswith("model:llm_serving_tokens:rate1h")]
    assert len(of_one) == 7 * 24 * 60
    stamps = [float(line.rpartition(" ")[2]) for line in of_one]
    assert stamps[1] - stamps[0] == pytest.approx(60.0, abs=0.002)
    # 5 requests a second
    assert float(of_one[0].split(" ")[-2]) == pytest.approx(5 * 2600.0)


def test_the_week_before_has_what_the_fleet_cost_each_hour(story: Scenario) -> None:
    known = Usual("m", "g", None, {}, 2600.0, 0.4, {}, 6, 6)
    spent = [line for line in recorded(story, known, 1.0, usd_per_hour=15.0).splitlines() if "cost" in line]
    assert len(spent) == 7 * 24 * 60
    assert {line.rpartition(" ")[0] for line in spent} == {"fleet:llm_serving_cost_usd:increase1h 15"}
    # a name that the rules record, and that the monthly cost is made of
    assert FLEET_COST == "fleet:llm_serving_cost_usd:increase1h"
    assert "cost" not in recorded(story, known, 1.0)


def test_it_ends_by_itself_and_says_what_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*NO_RULES, "--duration", "0.5s"]) == 0
    said = capsys.readouterr().out
    assert "A simulated fleet, not a live one: 6 replicas" in said
    assert "0:00  A calm fleet" in said
    for number in re.findall(r"http://127\.0\.0\.1:(\d+)", said):
        require_free("127.0.0.1", int(number))


@pytest.mark.process
def test_a_signal_ends_it(tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-m", "llm_serving_exporter", "demo", *NO_RULES]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment, cwd=ROOT) as process:
        assert process.stdout is not None
        said = ""
        while "Ctrl-C ends it." not in said:
            line = process.stdout.readline()
            assert line, said
            said += line
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_SECONDS) == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.e2e
def test_a_signal_while_it_starts_ends_it_without_a_traceback(tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-m", "llm_serving_exporter", "demo", *ANY_PORTS]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, cwd=ROOT
    ) as process:
        assert process.stdout.readline() == "starting the fleet ...\n"
        process.send_signal(signal.SIGINT)
        said, complained = process.communicate(timeout=PATIENCE_SECONDS)
    assert (process.returncode, said, complained) == (0, "", "")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--duration", "soon"], '"soon" is not a duration'),
        (["--grafana-port", "70000"], "'70000' is not a port"),
        (["--speed", "0"], "'0' is not a number from 0.01 to 1000"),
    ],
)
def test_bad_arguments(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run(arguments)
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


@pytest.mark.e2e
def test_a_week_of_it_is_worked_out_from_what_it_does(story: Scenario) -> None:
    known = usual(story, SHORT)
    assert known.bandwidth_ratio["gpm"] == pytest.approx(known.bandwidth_ratio["model"], rel=0.05)
    # what a replica does under a queue is more than its share of the calm load
    calm = story.rate.base * known.tokens_per_request / len(story.replicas)
    assert sum(known.best.values()) > calm


@pytest.mark.soak
def test_each_part_of_the_story_is_told_of(tmp_path: Path) -> None:
    """The whole of it, with the real Prometheus and Alertmanager, twelve times as fast as a user sees it."""
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-m", "llm_serving_exporter", "demo", *ANY_PORTS, "--speed", "12", "--duration", "190s"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    fired: dict[str, float] = {}
    for minutes, seconds, name in re.findall(r"^ *(\d+):(\d\d)    fires  (\w+)", done.stdout, re.MULTILINE):
        fired.setdefault(name, int(minutes) + int(seconds) / 60)
    # nothing before the flood; a busy machine may keep the exporter from being scraped at that speed
    assert all(at >= 2 for name, at in fired.items() if name != "ExporterAbsent"), done.stdout
    for name, begin, end in (
        ("PrefillStarvesDecode", 2, 9),
        ("TTFTBurn", 2, 14),
        ("ReplicaOutlier", 16, 24),
        ("ReplicaLost", 24, 34),
        ("TargetDown", 24, 34),
    ):
        assert begin <= fired.get(name, -1) <= end, (name, done.stdout)
    assert list(tmp_path.iterdir()) == []
