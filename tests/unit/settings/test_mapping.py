"""docs/mapping.md: the example works as it is told there, and the tables have every key."""

from __future__ import annotations

import re
from pathlib import Path
from textwrap import dedent

import pytest

from llm_serving_exporter.cli import main
from llm_serving_exporter.commands.once import as_table
from llm_serving_exporter.engines.check import FIELDS
from llm_serving_exporter.engines.hooks import HOOKS
from llm_serving_exporter.model.snapshot import (
    COUNTER_FIELDS,
    GAUGE_FIELDS,
    HISTOGRAM_FIELDS,
    LABELLED_COUNTER_FIELDS,
)
from llm_serving_exporter.settings.runtimes import ROW_KEYS, RUNTIME_KEYS
from tests.support.builders.configuration import load_text
from tests.support.paths import ROOT
from tests.support.servers.replica import Replica, readings

TEXT = (ROOT / "docs/mapping.md").read_text()
PAGE, LATER = (dedent(block) for block in re.findall(r"```text\n(.*?)```", TEXT, re.DOTALL))
CONFIG, BROKEN, FORK = re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)
CHECKED, ONCE, ERRORS = re.findall(r"```console\n(.*?)```", TEXT, re.DOTALL)


def moved_on() -> str:
    """The page with its later lines in the places of those of the same series."""
    later = {line.rpartition(" ")[0]: line for line in LATER.splitlines()}
    lines = PAGE.splitlines()
    assert later.keys() <= {line.rpartition(" ")[0] for line in lines}
    return "".join(f"{later.get(line.rpartition(' ')[0], line)}\n" for line in lines)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_check_config_says_what_the_page_says(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "exporter.yml").write_text(CONFIG)
    assert main(["check-config", "--config.file", "exporter.yml"]) == 0
    said = capsys.readouterr()
    assert said.out == CHECKED
    assert said.err == ""


def test_once_says_what_the_page_says(folder: Path) -> None:
    config = load_text(folder, CONFIG)
    with Replica() as server:
        steps = [{"/metrics": PAGE}, {"/metrics": moved_on()}]
        found = readings(steps, seconds=5.0, runtimes=config.runtimes, replica=server)
        table = as_table(found[-1]).replace(server.url, config.targets[0].url)
    assert table.replace("replica-0:", f"{config.targets[0].name}:", 1).startswith(ONCE)


def test_the_figures_are_those_of_the_page(folder: Path) -> None:
    found = readings([{"/metrics": PAGE}], runtimes=load_text(folder, CONFIG).runtimes)[0]
    (engine,) = found.snapshot.engines
    assert (engine.model_name, engine.engine) == ("tiny", "0")
    # 52,000 prompt tokens, 12,000 of them from the cache; 480 of 480 + 1,568 blocks of 16 tokens
    assert (engine.prompt_tokens_total, engine.prefill_tokens_total) == (52_000.0, 40_000.0)
    assert (engine.kv_cache_usage_ratio, engine.kv_cache_capacity_tokens) == (480 / 2048, 32_768.0)
    assert engine.requests_finished_total == {"success": 240.0, "abort": 3.0}
    assert engine.batch_limit_requests == 8.0
    histogram = engine.time_to_first_token_seconds
    assert (histogram.edges, histogram.sum) == ((0.1, 1.0, 2.5), 48.0)
    assert found.snapshot.process_start_unix_seconds == 1_795_140_000.0
    assert found.snapshot.unmapped_families == ()


def test_the_mistakes_are_those_of_the_page(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "exporter.yml").write_text(BROKEN)
    assert main(["check-config", "--config.file", "exporter.yml"]) == 2
    assert capsys.readouterr().err == ERRORS


def test_the_fork_loads(folder: Path) -> None:
    config = load_text(folder, f"targets: ['http://a:1']\n{FORK}")
    assert [table.name for table in config.runtimes] == ["vllm-house"]
    assert config.warnings == ()


def keys_of(section: str) -> set[str]:
    rows = re.findall(r"^\| (`[^|]+`) \|", TEXT.split(f"## {section}\n")[1].split("\n## ")[0], re.MULTILINE)
    return {key.strip("`") for cell in rows for key in cell.split(", ")}


def test_the_page_has_every_key() -> None:
    assert keys_of("A runtime") == set(RUNTIME_KEYS)
    assert keys_of("A row") == set(ROW_KEYS)


def test_the_page_has_every_hook() -> None:
    (row,) = re.findall(r"^\| `hooks` \|(.*)\|$", TEXT, re.MULTILINE)
    assert tuple(re.findall(r"`([a-z0-9-]+)`", row)) == tuple(HOOKS)


def test_the_page_has_every_field() -> None:
    fields = TEXT.split("**Counters**")[1].split("\n\n")[0]
    listed = re.findall(r"`([a-z0-9_]+)`", fields)
    assert sorted(listed) == sorted(FIELDS)
    kinds = [set(re.findall(r"`([a-z0-9_]+)`", part)) for part in re.split(r"\*\*|METRICS.md", fields)]
    groups = [COUNTER_FIELDS, LABELLED_COUNTER_FIELDS, HISTOGRAM_FIELDS, GAUGE_FIELDS]
    assert [set(group) for group in groups] == [found for found in kinds if found][:4]
