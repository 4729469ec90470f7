"""Command `runbook`, as an alert names it."""

from __future__ import annotations

import shlex
import subprocess
import sys

import pytest

from llm_serving_alerts.render import every_rule, rule_groups
from llm_serving_alerts.rules import AlertRule
from llm_serving_alerts.settings_file import default_settings
from llm_serving_exporter.cli import main
from tests.support.paths import ROOT
from tests.support.rows import check_rows

FOLDER = ROOT / "alerts/llm_serving_alerts/runbooks"
COMMANDS = sorted(
    {rule.annotations["runbook"] for rule in every_rule(rule_groups(default_settings())) if isinstance(rule, AlertRule)}
)
Said = pytest.CaptureFixture[str]


@check_rows("command", COMMANDS, ids=lambda command: command.split()[-1])
def test_the_command_of_an_alert_prints_its_runbook(command: str, capsys: Said) -> None:
    program, *words = shlex.split(command)
    assert program == "llm-serving-exporter"
    assert main(words) == 0
    assert capsys.readouterr().out == (FOLDER / f"{words[-1]}.md").read_text()


def test_without_a_name_it_lists_them_all(capsys: Said) -> None:
    assert main(["runbook"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert sorted(line.split()[0] for line in lines) == sorted(path.stem for path in FOLDER.glob("LLM*.md"))
    stalled = next(line for line in lines if line.startswith("LLMServingStalled "))
    assert stalled.endswith("critical          an engine has requests and does nothing")


@check_rows(
    ("word", "fix"),
    [
        ("KVSaturatd", "Did you mean LLMServingKVSaturated?"),
        ("LLMServingStaled", "Did you mean LLMServingStalled?"),
        ("zzz", "llm-serving-exporter runbook lists them."),
        ("", "llm-serving-exporter runbook lists them."),
        ("../settings.yml", "llm-serving-exporter runbook lists them."),
    ],
)
def test_a_name_that_is_none_is_refused_with_the_nearest(word: str, fix: str, capsys: Said) -> None:
    assert main(["runbook", word]) == 2
    assert capsys.readouterr().err == f'error: there is no runbook "{word}". {fix}\n'


@pytest.mark.process
@pytest.mark.seam("runbook")
def test_it_needs_neither_the_rules_nor_a_configuration() -> None:
    code = (
        "import sys; from llm_serving_exporter.cli import main; main(['runbook', 'Stalled']);"
        "print(sorted({'llm_serving_alerts.rules', 'llm_serving_exporter.settings.load', 'yaml'} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"
