"""Flags: what is refused, and what secrets and files must be like."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from llm_serving_drill import command
from llm_serving_drill.command import EPILOG, access_of, parser, run, scope_of, settings_of
from llm_serving_drill.course import Course, Scope
from llm_serving_drill.report import as_document
from llm_serving_exporter.cli import main
from llm_serving_exporter.model.record import replace
from tests.support.builders.drills import MINUTE, START, course, reading, seen
from tests.support.paths import ROOT

WHOM = ["--prometheus.url", "http://127.0.0.1:9", "--model", "m"]
TRIGGER = ["--trigger-command", "true"]


def parsed(*more: str) -> object:
    return parser().parse_args([*WHOM, *more])


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([], "give one of --trigger-command, --watch and --plan"),
        (["--trigger-command", " "], "flag --trigger-command: it is empty"),
        (["--watch", "--restore-command", "true"], "flag --restore-command: there is nothing to undo without --trigger-command"),
        ([*TRIGGER, "--hold", "5m"], "flag --hold: nothing ends the loss after that time; give --restore-command"),
        ([*TRIGGER, "--restore-command", "true", "--hold", "1h"], "flag --hold: it must be shorter than --max-duration"),
        ([*TRIGGER, "--restore-command", "true", "--hold", "soon"], 'flag --hold: "soon" is not a duration'),
        ([*TRIGGER, "--interval", "10ms"], "flag --interval: write 50ms or more"),
        ([*TRIGGER, "--interval", "100ms", "--max-duration", "1h"], "flag --interval: write 50ms or more, and at most 20000"),
        ([*TRIGGER, "--baseline", "0"], "flag --baseline: write a duration above 0"),
        ([*TRIGGER, "--expect-alert", "none", "--expect-alert", "A"], "flag --expect-alert: none stands alone"),
        ([*TRIGGER, "--selector", "cluster=prod"], "flag --selector: 'cluster=prod' is not like"),
        ([*TRIGGER, "--selector", 'a="b" c="d"'], "flag --selector: "),
        ([*TRIGGER, "--selector", 'role="decode"'], "flag --selector: role is given twice, or has a flag of its own"),
        ([*TRIGGER, "--model", " "], "flag --model: it is empty"),
        ([*TRIGGER, "--prometheus.url", "prometheus:9090"], 'flag --prometheus.url: "prometheus:9090" is not like http://host:9090'),
        ([*TRIGGER, "--prometheus.url", "http://me:secret@host"], "flag --prometheus.url: "),
        ([*TRIGGER, "--username", "me"], "flag --username: give it with --password-file"),
        ([*TRIGGER, "--alertmanager.username", "me"], "flag --alertmanager.url: it is missing beside its credentials"),
        ([*TRIGGER, "--grafana.url", "http://g"], "flag --grafana.url: it needs --grafana.bearer-token-file"),
        ([*TRIGGER, "--bearer-token-file", "/nonexistent"], "cannot be read: No such file or directory"),
        ([*TRIGGER, "--ca-file", "/nonexistent"], "flag --ca-file: there is no file /nonexistent"),
        ([*TRIGGER, "--output-dir", "/proc/nowhere"], "flag --output-dir: the folder /proc/nowhere cannot be made"),
    ],
)  # fmt: skip
def test_a_bad_flag_is_refused_by_name(flags: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*WHOM, *flags]) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: ")
    assert message in said
    assert "secret" not in said.replace(" credentials have flags of their own", "") or "--prometheus.url" in said


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--max-ttft", "5"], "has no unit"),
        (["--objective", "99"], "'99' is not a share between 0 and 1"),
        (["--max-lost", "0"], "'0' is not a number of replicas from 1 up"),
        (["--role", "frontend"], 'flag --role: "frontend" is none of its values. Known here: decode, prefill, unified.'),
        (["--watch"], "flag --watch: it does not go with --trigger-command. Leave one of them away."),
    ],
)  # fmt: skip
def test_a_value_of_the_wrong_kind_is_refused_with_what_it_should_be(
    flags: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        run([*WHOM, *TRIGGER, *flags])
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


def test_the_selector_makes_matchers_that_quote_what_they_must() -> None:
    found = scope_of(parsed("--model", 'org/"x"\\y', "--selector", ' cluster="prod", namespace = "llm" '))
    assert found == Scope('org/"x"\\y', "unified", (("cluster", "prod"), ("namespace", "llm")))
    assert found.matchers == r'model_name="org/\"x\"\\y",role="unified",cluster="prod",namespace="llm"'
    assert found.of_model == r'model_name="org/\"x\"\\y",role="unified"'


def test_alerts_may_be_named_with_or_without_the_prefix() -> None:
    found = settings_of(parsed(*TRIGGER, "--expect-alert", "N1Critical", "--expect-alert", "LLMServingReplicaLost"))
    assert found.expected_alerts == ("LLMServingN1Critical", "LLMServingReplicaLost")
    assert settings_of(parsed(*TRIGGER, "--expect-alert", "none")).expected_alerts == ()
    assert settings_of(parsed(*TRIGGER)).expected_alerts is None


@pytest.mark.parametrize(
    ("flags", "seconds"), [(TRIGGER, 300.0), (["--watch"], 3600.0), (["--watch", "--loss-timeout", "8h"], 28_800.0)]
)
def test_a_loss_that_is_waited_for_may_take_longer(flags: list[str], seconds: float) -> None:
    assert settings_of(parsed(*flags)).loss_timeout_seconds == seconds


@pytest.mark.parametrize("content", [b"", b"\n", b"two\nlines\n", "käse".encode(), b"x" * 20_000])
def test_a_file_that_holds_no_secret_is_refused_and_not_quoted(
    content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "token"
    file.write_bytes(content)
    assert run([*WHOM, *TRIGGER, "--bearer-token-file", str(file)]) == 2
    said = capsys.readouterr().err
    assert str(file) in said
    assert "lines" not in said
    assert "xxx" not in said


def test_secrets_are_read_without_their_line_end(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("t0ken\r\n")
    found = access_of(parsed(*TRIGGER, "--username", "ops", "--password-file", str(file)))
    assert found["prometheus"].basic == ("ops", "t0ken")


def test_the_command_line_leads_here_and_every_example_can_be_run(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["drill", "--help"])
    assert ended.value.code == 0
    assert EPILOG in capsys.readouterr().out
    documented = (ROOT / "docs" / "drill.md").read_text()
    examples = re.findall(
        r"^[ $]*llm-serving-exporter drill (.*)$", f"{EPILOG}\n{documented}".replace("\\\n", " "), re.MULTILINE
    )
    assert len(examples) == 5
    for example in examples:
        args = parser().parse_args(shlex.split(example))
        settings_of(args)
        access_of(args)


@pytest.mark.process
def test_the_daemon_and_the_help_of_others_load_no_requests() -> None:
    script = (
        "import sys, llm_serving_exporter.daemon.service, llm_serving_exporter.cli; print('requests' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_drills_that_began_in_the_same_second_have_a_report_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.time", lambda: 1_800_000_000.5)
    for _ in range(3):
        # nobody answers there: aborted, and reported
        assert run([*WHOM, *TRIGGER, "--output-dir", str(tmp_path)]) == 1
    began = "drill-20270115T080000Z"
    assert {path.name for path in tmp_path.iterdir()} == {
        f"{began}{number}{suffix}" for number in ("", "-2", "-3") for suffix in (".json", ".md")
    }


@pytest.mark.parametrize(("taken", "step", "left"), [(1000, 1, 1000), (1001, 2, 501), (2500, 3, 834)])
def test_a_report_has_a_thousand_readings_at_most_as_far_from_one_another(taken: int, step: int, left: int) -> None:
    """The fewest that are passed over: 1,001 leave every second one, 0 to 1,000, and 2,500 every third one, 0 to 2,499."""
    found = as_document(course(*(reading(minute) for minute in range(taken))))["readings"]
    assert [one["unix_seconds"] for one in found] == [START + number * step * MINUTE for number in range(left)]


def test_a_report_of_nothing_has_no_readings() -> None:
    assert as_document(course())["readings"] == []


# --- what a drill leaves for the exporter that publishes it


GONE = [reading(minute, ready=3) for minute in range(1, 15)]
PASSED = course(*GONE, reading(15), sightings=(seen("LLMServingReplicaLost", 11.2),))
FLAGS = ["--prometheus.url", "http://127.0.0.1:9", "--model", "m", "--watch"]


def drilled(found: Course, file: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[int, list[Any]]:
    monkeypatch.setattr(command.Drill, "run", lambda drill: found)
    status = command.run([*FLAGS, "--drill.result-file", str(file)])
    return status, json.loads(file.read_text())["models"] if file.exists() else []


def test_a_verdict_is_recorded_and_a_failure_keeps_the_last_success(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "drills.json"
    status, (first,) = drilled(PASSED, file, monkeypatch)
    assert (status, first["model_name"], first["role"], first["last_verdict"]) == (0, "m", "unified", "passed")
    assert first["last_success_unix_seconds"] == first["last_run_unix_seconds"]
    status, (second,) = drilled(replace(PASSED, sightings=()), file, monkeypatch)
    assert (status, second["last_verdict"]) == (1, "failed")
    assert second["last_success_unix_seconds"] == first["last_run_unix_seconds"]


def test_a_verdict_is_that_of_the_fleet_that_the_selector_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "drills.json"
    monkeypatch.setattr(command.Drill, "run", lambda drill: PASSED)
    selector = 'namespace="prod",team="a",job="vllm"'
    assert command.run([*FLAGS, "--selector", selector, "--drill.result-file", str(file)]) == 0
    (entry,) = json.loads(file.read_text())["models"]
    assert (entry["namespace"], entry["labels"]) == ("prod", {"team": "a"})
    assert "the result of the drill is kept without job" in capsys.readouterr().err


def test_what_was_not_begun_was_no_drill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = replace(PASSED, start_unix_seconds=None, lost_unix_seconds=None, readings=(), broken_off="not begun: x")
    assert drilled(refused, tmp_path / "drills.json", monkeypatch) == (1, [])


def test_a_file_that_cannot_be_used_is_said_before_anything_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "drills.json"
    file.write_text("[]")
    monkeypatch.setattr(command.Drill, "run", lambda drill: pytest.fail("it was begun"))
    assert command.run([*FLAGS, "--drill.result-file", str(file)]) == 2
    assert str(file) in capsys.readouterr().err
    assert file.read_text() == "[]"
