"""Drills against a real Prometheus: a fleet of a test's own is lost by `touch` and restored by `rm`."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from llm_serving_drill import names
from llm_serving_drill.command import run
from tests.support.rows import check_rows
from tests.support.servers.drillbed import Bed, Fleet
from tests.support.servers.replica import Replica
from tests.support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.process

# Everything that takes minutes in life takes moments here. What a drill waits for has far more time than it needs: a scrape, a rule or
# an alert may come late on a machine that does other work.
QUICK = [
    "--baseline", "5s", "--interval", "100ms", "--settle", "500ms", "--max-duration", "120s", "--loss-timeout", "60s",
    "--page-slack", "60s", "--rate-window", "500ms",
]  # fmt: skip


FLEETS = (
    Fleet("passes"),
    Fleet("says-no", {names.SUFFICIENT: 0, (names.N1_LOAD, "resource", "kv"): 1.3}),
    Fleet("unknown", {names.SUFFICIENT: None}),
    Fleet("alone", {names.SUFFICIENT: None, names.NODES: 1}),
    Fleet("silent", {names.DESIRED: None}),
    Fleet(
        "forced",
        {names.SUFFICIENT: 0, names.N1_LOAD_MAX: 1.3, (names.N1_LOAD, "resource", "kv"): 1.3},
        {names.WAITING: 80},
        rates_when_lost={"good": 150, "bad": 50},
    ),
    Fleet("suffers", when_lost={(names.TTFT, "rank", "p99"): 30, names.ABOVE_TOP: 0.02}),
    Fleet("too-many", when_lost={names.READY: 1}),
    Fleet("unseen", when_lost={names.READY: 4}),
    Fleet("no-trigger"),
    Fleet("nobody-told", muted=True),
    Fleet("stays-away"),
    Fleet("received"),
    Fleet("watched"),
    Fleet("planned"),
    Fleet("interrupted"),
    Fleet("unreachable"),
)


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    with Bed(tmp_path_factory.mktemp("prometheus"), *FLEETS) as bed:
        yield bed


class Tried:
    """A drill that has been run: status, report, its Markdown, whether the fleet is still lost."""

    def __init__(self, status: int, output: Path) -> None:
        self.status = status
        (report,) = output.glob("drill-*.json")
        self.report: dict[str, Any] = json.loads(report.read_text())
        self.markdown = report.with_suffix(".md").read_text()
        self.verdict = self.report["verdict"]
        self.reasons = "\n".join(self.report["reasons"])


def words(bed: Bed, fleet: Fleet, output: Path, *more: str) -> list[str]:
    given = ["--prometheus.url", bed.url, "--model", fleet.model, *QUICK, "--output-dir", str(output)]
    if "--watch" not in more:
        given += ["--trigger-command", f"touch {fleet.file}", "--restore-command", f"rm -f {fleet.file}"]
    return [*given, *more]


@contextmanager
def started(bed: Bed, fleet: Fleet, output: Path, *more: str) -> Iterator[subprocess.Popen[str]]:
    """A drill as a process of its own."""
    command = [sys.executable, "-m", "llm_serving_exporter", "drill", *words(bed, fleet, output, *more)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def said_until(process: subprocess.Popen[str], text: str) -> None:
    """Reads what a drill says until the text comes."""
    assert process.stderr is not None
    said = ""
    while text not in said:
        line = process.stderr.readline()
        assert line, said
        said += line


def ended(process: subprocess.Popen[str]) -> int:
    """The status of a drill that comes to its end."""
    process.communicate(timeout=PATIENCE_SECONDS)
    return process.returncode


def drilled(bed: Bed, fleet: Fleet, output: Path, *more: str) -> Tried:
    return Tried(run(words(bed, fleet, output, *more)), output)


def test_a_loss_that_the_survivors_carry_and_that_is_told_is_passed(bed: Bed, tmp_path: Path) -> None:
    fleet = bed["passes"]
    done = drilled(bed, fleet, tmp_path, "--hold", "page", "--rate-window", "1ms")
    assert (done.status, done.verdict, done.report["reasons"]) == (0, "passed", [])
    assert not fleet.lost
    assert [one["what"] for one in done.report["commands"]] == ["trigger", "restore"]
    told = {one["name"]: one for one in done.report["alerts"]}
    assert told["LLMServingReplicaLost"]["arrival"] == "in time"
    assert told["LLMServingReplicaLost"]["severity"] == "warning"
    assert told["LLMServingN1Critical"]["arrival"] == "not due"
    worst = done.report["worst"]
    assert (worst["ready_min"], worst["waiting_max"], worst["p99_ttft_seconds"]) == (2, 5, 1.5)
    assert done.report["baseline"]["p99_ttft_seconds"] == 0.5
    # 8,000 tokens/s prefilled while two replicas were left, of the 10,000 that the forecast leaves
    prefill = next(row for row in done.report["compared"] if row["resource"] == "prefill")
    assert (prefill["forecast"], prefill["reached"]) == (0.8, 0.8)
    # the counters rise by 200 and 100 a second: the window is a few seconds long
    assert done.report["slo"]["ttft_good"] > 100
    assert done.report["slo"]["ttft_bad"] == 0
    assert 0 < done.report["recovered_seconds"] < 120
    assert done.markdown.startswith("# Node-loss drill of passes (unified): passed\n")


@check_rows(
    ("name", "flags", "verdict", "reasons"),
    [
        ("says-no", "", "aborted", "not begun: .*N-1 says that .* the last hour: 130 % of what is left of kv would be needed.*"),
        ("unknown", "", "aborted", "not begun: .*N-1 is unknown.*"),
        ("alone", "", "aborted", "not begun: .*one node serves the model.*"),
        ("silent", "", "aborted", "not begun: .*nothing says how many replicas are wanted.*"),
        # at the top edge, or beyond it: on a busy machine another number of requests ends in time
        ("suffers", "--hold 60s --max-ttft 10s", "aborted",
         r"p99 time to first token is (at least )?30 s, more than 10 s \(--max-ttft\)(\n.*)?"),
        ("too-many", "", "aborted", r"3 replicas are gone, 2 were meant to go(\n.*)?"),
        ("unseen", "--loss-timeout 1s", "aborted", "no replica was lost within 1 s"),
        ("nobody-told", "--hold 2s --page-slack 300ms", "failed", "LLMServingReplicaLost did not fire"),
        ("stays-away", "--max-duration 1s", "failed", ".*not recovered within 1 s: fewer replicas were ready than before.*"),
    ],
    shared=("bed",),
)  # fmt: skip
def test_what_is_not_passed_says_why_and_the_node_is_there(
    bed: Bed, tmp_path: Path, name: str, flags: str, verdict: str, reasons: str
) -> None:
    done = drilled(bed, bed[name], tmp_path, *flags.split())
    assert (done.status, done.verdict) == (1, verdict)
    assert re.fullmatch(reasons, done.reasons, re.DOTALL), done.reasons
    assert not bed[name].lost
    if reasons.startswith("not begun"):
        assert done.report["commands"] == []
        assert "It was not begun: nothing was lost." in done.markdown
    else:
        assert [(one["what"], one["status"]) for one in done.report["commands"]][-1] == ("restore", 0)


def test_force_overrides_and_is_noted_and_what_was_forecast_comes_about(bed: Bed, tmp_path: Path) -> None:
    fleet = bed["forced"]
    done = drilled(bed, fleet, tmp_path, "--force", "--hold", "page")
    assert (done.status, done.verdict) == (1, "failed")
    assert done.report["forced"]
    assert any(note.startswith("forced, although N-1 says") for note in done.report["notes"])
    assert "of the times to first token were over the threshold, 1 % are allowed" in done.reasons
    told = {one["name"]: one["arrival"] for one in done.report["alerts"]}
    assert told["LLMServingN1Critical"] == "in time"


def test_a_trigger_that_fails_ends_it_with_its_output_in_the_report(bed: Bed, tmp_path: Path) -> None:
    done = drilled(bed, bed["no-trigger"], tmp_path, "--trigger-command", "ls /nonexistent-folder")
    assert done.reasons.startswith("the trigger command failed: it ended with status ")
    assert "/nonexistent-folder" in done.report["commands"][0]["output"]
    assert "    $ ls /nonexistent-folder" in done.markdown


def test_alertmanager_is_asked_for_whom(bed: Bed, tmp_path: Path) -> None:
    # as version 0.25 answers, cut to what is read; tests/e2e asks a real one
    alert = {
        "labels": {"alertname": "LLMServingReplicaLost", "model_name": "received", "role": "unified"},
        "receivers": [{"name": "tickets"}],
        "status": {"state": "active", "silencedBy": [], "inhibitedBy": []},
    }
    with Replica({"/api/v2/alerts": (200, "application/json", json.dumps([alert]).encode())}) as alertmanager:
        done = drilled(bed, bed["received"], tmp_path, "--hold", "page", "--alertmanager.url", alertmanager.url)
    told = next(one for one in done.report["alerts"] if one["name"] == "LLMServingReplicaLost")
    assert (done.verdict, told["receivers"]) == ("passed", ["tickets"])
    assert any("filter=model_name%3D%22received%22" in path for path in alertmanager.asked)


def test_a_loss_of_other_cause_is_watched(bed: Bed, tmp_path: Path) -> None:
    fleet = bed["watched"]
    with started(bed, fleet, tmp_path, "--watch", "--expect-alert", "ReplicaLost") as process:
        said_until(process, "waiting for the loss")
        fleet.lose()
        firing = f'ALERTS{{alertname="LLMServingReplicaLost",alertstate="firing",model_name="{fleet.model}"}}'
        # for some evaluations, so that the drill has looked meanwhile
        bed.until(lambda: bool(bed.ask(f"count_over_time({firing}[5m]) >= 4")), "the alert")
        said_until(process, "node lost")
        fleet.file.unlink()
        status = ended(process)
    done = Tried(status, tmp_path)
    assert (done.status, done.verdict) == (0, "passed"), done.reasons
    assert done.report["commands"] == []
    assert done.report["window"]["start"] < done.report["lost_unix_seconds"]


def test_a_plan_loses_nothing_and_says_what_would_happen(bed: Bed, capsys: pytest.CaptureFixture[str]) -> None:
    fleet = bed["planned"]
    given = ["--prometheus.url", bed.url, "--model", fleet.model, "--plan"]
    assert run(given) == 0
    said = capsys.readouterr().out
    assert "node: a; replicas that may go: 2" in said
    assert "a drill may begin" in said
    assert run([*given, "--node", "c"]) == 1
    assert "no: no ready replica stands on the node c; known are a, b" in capsys.readouterr().out
    assert run([*given, "--model", f"{fleet.model}s"]) == 1
    said = capsys.readouterr().out
    assert "Prometheus has no ready replicas of this model and role recorded" in said
    assert "check --model, --role and --selector: it has " in said
    assert f"{fleet.model} (unified)" in said


def test_a_ctrl_c_writes_what_there_is_and_restores(bed: Bed, tmp_path: Path) -> None:
    fleet = bed["interrupted"]
    with started(bed, fleet, tmp_path) as process:
        said_until(process, "node lost")
        assert fleet.lost
        process.send_signal(signal.SIGINT)
        assert ended(process) == 130
    assert not fleet.lost
    done = Tried(130, tmp_path)
    assert (done.verdict, done.report["reasons"][0]) == ("aborted", "interrupted")
    assert done.report["worst"]["ready_min"] == 2


def test_a_prometheus_that_cannot_be_reached_is_said_and_nothing_is_lost(bed: Bed, tmp_path: Path) -> None:
    fleet = bed["unreachable"]
    done = drilled(bed, fleet, tmp_path, "--prometheus.url", "http://127.0.0.1:9")
    assert (
        done.reasons == "Prometheus at http://127.0.0.1:9 cannot be reached: Connection refused; check --prometheus.url"
    )
    assert not fleet.lost
