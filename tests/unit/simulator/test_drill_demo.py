"""The parts of the simulated drill that take no minutes: its load, its words, its refusals."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from llm_serving_drill.command import parser
from llm_serving_drill.command import settings_of as drill_settings_of
from llm_serving_exporter.model.record import replace
from llm_serving_simulator.drill_demo import Stage, drill_command, post_command, run, scenario_at, settings_of
from llm_serving_simulator.fleet.server import FleetServer
from llm_serving_simulator.fleet.workload import Profile
from llm_serving_simulator.web import JSON_CONTENT_TYPE, Answer, SimServer
from tests.support.waiting import PATIENCE_SECONDS


def test_a_load_of_one_is_what_the_survivors_can_do() -> None:
    scenario = scenario_at(1.0)
    survivors = tuple(replica for replica in scenario.replicas if "node-0" not in replica.nodes)
    assert len(survivors) == 3
    # what three engines finish that are asked for twice as much, by their own counts
    flooded = replace(scenario, replicas=survivors, rate=Profile(2 * scenario.rate.base), ready=None).fleet()
    flooded.advance(1800.0)
    finished = flooded.truth(300.0, 1800.0).counts.finished / 1500.0
    assert scenario.rate.base == pytest.approx(finished, rel=0.1)


def test_the_load_is_steady_and_nothing_happens_by_itself() -> None:
    scenario = scenario_at(0.6)
    assert scenario.events == ()
    assert {scenario.rate.requests_per_second(hour * 3600.0) for hour in range(48)} == {scenario_at(0.3).rate.base * 2}


def test_the_rules_burn_by_what_the_exporter_counts_by() -> None:
    scenario = scenario_at(0.6)
    other = replace(scenario, slo=replace(scenario.slo, ttft=1.25))
    assert settings_of(other).slo["ttft"].threshold_seconds == 1.25
    assert settings_of(scenario).scrape_interval_seconds == 30.0


@pytest.mark.parametrize("alertmanager", [None, "http://127.0.0.1:9093"])
def test_the_drill_is_asked_for_in_real_durations(tmp_path: Path, alertmanager: str | None) -> None:
    scenario = scenario_at(0.6)
    with FleetServer(scenario.fleet(), 30.0) as server:
        stage = Stage(
            scenario, server, "http://127.0.0.1:2", "http://127.0.0.1:1", alertmanager, tmp_path / "drills.json"
        )
        words = drill_command(stage, 30.0, tmp_path, force=True)
        control = server.control_url
    assert words[1:4] == ["-m", "llm_serving_exporter", "drill"]
    args = parser().parse_args(words[4:])
    settings = drill_settings_of(args)
    # 10m, 1m, 15s, 5m and 1h of a fleet that is thirty times as fast
    assert settings.baseline_seconds == 20.0
    assert settings.settle_seconds == 2.0
    assert settings.interval_seconds == 0.5
    assert settings.rate_window_seconds == 10.0
    assert settings.bounds.duration_seconds == 120.0
    # 2m would be 4 s, in which no alert goes through two busy processes
    assert settings.page_slack_seconds == 15.0
    assert settings.hold_for_page
    assert settings.force
    assert args.model == "meta-llama/Llama-3.1-8B-Instruct"
    assert args.alertmanager_url == alertmanager
    assert args.trigger_command.endswith(f"{control}/nodes/node-0/lose")
    assert args.restore_command.endswith(f"{control}/nodes/node-0/return")


@pytest.mark.process
@pytest.mark.seam("drill demo")
@pytest.mark.parametrize("curl", [True, False])
def test_the_command_posts_and_fails_where_it_is_refused(curl: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if curl and shutil.which("curl") is None:
        pytest.skip("no curl on PATH")
    if not curl:
        monkeypatch.setattr(shutil, "which", lambda _name: None)
    asked = []

    def respond(method: str, path: str) -> Answer:
        asked.append((method, path))
        return Answer(404 if "nowhere" in path else 200, JSON_CONTENT_TYPE, b'{"done": 1}')

    # a proxy that is not there
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with SimServer(respond) as server:
        good, bad = (
            subprocess.run(
                shlex.split(post_command(f"{server.url}/nodes/{node}/lose")),
                capture_output=True,
                timeout=PATIENCE_SECONDS,
            )
            for node in ("node-0", "nowhere")
        )
    assert asked == [("POST", "/nodes/node-0/lose"), ("POST", "/nodes/nowhere/lose")]
    assert (good.returncode, good.stdout.strip()) == (0, b'{"done": 1}')
    assert bad.returncode != 0


def test_without_prometheus_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    assert run(["--output-dir", str(tmp_path / "reports")]) == 1
    assert "no `prometheus` on PATH" in capsys.readouterr().err
    assert not (tmp_path / "reports").exists()


@pytest.mark.skipif(shutil.which("prometheus") is None, reason="`make test` installs prometheus")
def test_a_file_is_no_folder_for_reports(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    taken = tmp_path / "reports"
    taken.touch()
    assert run(["--output-dir", str(taken)]) == 1
    said = capsys.readouterr().err
    assert said == f"error: flag --output-dir: the folder {taken} cannot be made: File exists; name another\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--load", "high"], "'high' is not a number from 0.05 to 1.3"),
        (["--load", "2"], "'2' is not a number from 0.05 to 1.3"),
        (["--speed", "nan"], "'nan' is not a number from 1 to 60"),
    ],
)
def test_bad_arguments(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run(arguments)
    assert ended.value.code == 2
    assert message in capsys.readouterr().err
