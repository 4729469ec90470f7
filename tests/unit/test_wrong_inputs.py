"""Wrong inputs of every command, as a table: a command line with its files, its exit status, and every fault that is told.

The rows stand in `wrong_inputs/`, a file a command. `says`: what each line of the answer holds, whole but for long lists of known names.
What a file of the exporter's configuration can have wrong has a table of its own, `settings/bad/`, prices `settings/bad_prices/`, the
rules' settings `alerts/test_settings.py`, and the web config file `web/test_webconfig.py`.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from llm_serving_exporter import cli
from llm_serving_exporter.cli import main
from llm_serving_exporter.daemon.service import Service
from tests.support.builders.input_files import write_input
from tests.support.rows import check_rows
from tests.support.yaml_text import load_yaml

FOLDER = Path(__file__).parent / "wrong_inputs"
_WORDS = (
    "add|begin|check|choose|copy|did you mean|docs/|give|known here|keep|leave|list|lists|load|look|make|name|only|put|quote|remove|"
    "run|say|save|scrape|see|set|shards count|spread|start|state|use|write|yaml indents"
)
# a sentence, or a part of one, that begins with what to do
WHAT_TO_DO = re.compile(rf"(?:^|[.;:,] |\) |\band |\bor )(?:{_WORDS})\b|lists them|is the server up", re.IGNORECASE)
# a flag, a variable, a file with the place in it, or whom was asked
WHERE = re.compile(
    r"--[a-z]|environment variable [A-Z_]+|[\w./]+\.(?:yml|json|txt)\b|https?://|\bfolder\b|\d+\.\d+\.\d+\.\d+:\d+|\bfile \w+|"
    r"\b(?:command|runbook) \"|\bhost name\b"
)
# of the program as a whole
NOWHERE = ("configuration: there is no server to read", "report: there is no Prometheus to ask")


@cache
def read_table() -> list[dict[str, Any]]:
    return [row for file in sorted(FOLDER.glob("*.yml")) for row in load_yaml(file.read_text())]


def _name(row: dict[str, Any]) -> str:
    return re.sub(r"[^\w.=/-]+", " ", row["run"])[:80] or "nothing"


def test_there_are_many_and_of_every_command() -> None:
    assert len(read_table()) >= 150
    commands = Counter(first for row in read_table() if (first := row["run"].split(" ")[0]) in cli._COMMANDS)
    assert set(cli._COMMANDS) - set(commands) == {"run"}, "the daemon is what no word means"
    assert sum(not row["run"] or row["run"].startswith("--") for row in read_table()) > 50


def test_no_row_is_there_twice() -> None:
    again = Counter(yaml.safe_dump({**row, "says": None}) for row in read_table())
    assert [text for text, count in again.items() if count > 1] == []


@check_rows("row", read_table, ids=_name)
def test_it_is_said_what_is_wrong_and_where_and_what_to_do(
    row: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in row.get("files", {}).items():
        write_input(tmp_path / name, text)
    for name, text in row.get("environment", {}).items():
        monkeypatch.setenv(name, text)
    # none of these may get that far
    monkeypatch.setattr(Service, "start", lambda _self: pytest.fail("it starts all the same"))
    try:
        status = main(shlex.split(row["run"]))
    except SystemExit as ended:  # argparse's way
        status = ended.code if isinstance(ended.code, int) else 1
    said = capsys.readouterr()
    told = f"{said.err}\n{said.out}"
    assert status == row.get("status", 2), told
    assert "Traceback" not in told
    assert "[Errno" not in told
    assert row["says"]
    for message in row["says"]:
        assert message in told
    assert any(WHAT_TO_DO.search(message) for message in row["says"]), "what to do"
    first = row["says"][0]
    assert WHERE.search(first) or first.startswith(NOWHERE), "where"
