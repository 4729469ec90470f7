"""README and the start pages: each command runs and each file is taken, in the order of the page and in one folder.

What wants a cluster, a container engine or somebody else's server is marked above its block, `<!-- needs: … -->`: of that the words are
checked.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from itertools import pairwise
from pathlib import Path

import pytest
import yaml

from llm_serving_alerts.render import every_rule, rule_groups
from llm_serving_alerts.rules import Record
from llm_serving_alerts.settings_file import default_settings
from llm_serving_exporter.catalogue import BY_NAME
from llm_serving_exporter.cli import main
from tests.support.builders.configuration import load_text
from tests.support.builders.recordings import page as recorded_page
from tests.support.docs_examples import list_blocks
from tests.support.helm import NAME, find_tool, template
from tests.support.paths import ROOT
from tests.support.rows import check_rows
from tests.support.servers.replica import Replica
from tests.support.waiting import PATIENCE_SECONDS
from tests.support.yaml_text import load_yaml

PAGES = ("README.md", "docs/start.md", "docs/start-kubernetes.md", "docs/start-fleet.md")
OURS = "llm-serving-exporter"
# programs that run on what the page has written
CHECKERS = ("promtool", "amtool")
# set up a machine, or want one: their words are checked
OTHERS = ("make", "pip", "python3", ".", "helm", "kubectl", "docker")
SHOWN = [
    (page, words, block.needs)
    for page in PAGES
    for block in list_blocks(page)
    if block.language == "sh"
    for words in block.list_commands()
]


# what was run from here already, apart from what reads a file of the page
_RAN: set[tuple[str, ...]] = set()


def run_ours(words: list[str], url: str) -> int:
    """Exit status of a command of ours; of the daemon, whether it would start."""
    if "--config.file" not in words and tuple(words) in _RAN:
        return 0
    _RAN.add(tuple(words))
    words = [word.replace("http://localhost:8000", url).replace("http://gpu-1:8000", url) for word in words[1:]]
    if words[0].startswith("-"):
        words = ["check-config", *words]
    if words[0] == "once":
        words += ["--wait", "100ms"]
    return main(words)


@pytest.mark.process
@pytest.mark.parametrize("page", PAGES)
def test_a_page_works_from_top_to_bottom(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with Replica({"/metrics": recorded_page("vllm-0.32", 50)}) as server:
        write_files(page)
        for block in list_blocks(page):
            if block.language != "sh" or block.needs:
                continue
            for words in block.list_commands():
                if words[0] == OURS:
                    assert run_ours(words, server.url) == 0, words
                elif words[0] in CHECKERS:
                    assert shutil.which(words[0]), f"{words[0]} is missing; `make test` installs it"
                    run_program(*words)
                else:
                    assert words[0] in OTHERS, words


def write_files(page: str) -> None:
    """Writes each file that a page shows under the name in its first line, and has whatever reads it take it."""
    for block in list_blocks(page):
        first, _, rest = block.text.partition("\n")
        if block.language == "json":
            (name,) = re.findall(r"`(targets/\w+\.json)`:", (ROOT / page).read_text())
            Path(name).parent.mkdir()
            Path(name).write_text(block.text)
        elif block.language == "yaml" and first == "# values":
            values = load_yaml(rest)
            assert set(values) == {"config"}, "keys of the exporter's own"
            Path("exporter.yml").write_text(yaml.safe_dump({"targets": [{"url": "http://a:8000"}], **values["config"]}))
            assert main(["check-config", "--config.file", "exporter.yml"]) == 0
        elif block.language == "yaml":
            name = first.removeprefix("# ")
            assert name in ("prometheus.yml", "exporter.yml", "rules.yml", "prices.yml"), first
            Path(name).write_text(block.text)
            if name == "prometheus.yml":
                run_program("promtool", "check", "config", name)


def run_program(*words: str) -> None:
    """Runs one of the programs that check files; it has to be content."""
    done = subprocess.run([*words], capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_thresholds_of_the_fleet_are_those_of_its_rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (line,) = re.findall(r"Add `(slo: \{file: [^`]+)` to `exporter.yml`", (ROOT / "docs/start-fleet.md").read_text())
    write_files("docs/start-fleet.md")
    config = load_text(tmp_path, Path("exporter.yml").read_text() + line)
    rules = load_yaml(Path("rules.yml").read_text())["slo"]
    assert {name: f"{getattr(config.slo, f'{name}_seconds') * 1000:g}ms" for name in rules} == {
        name: rule["threshold"] for name, rule in rules.items()
    }


@check_rows(
    ("page", "words", "needs"),
    [one for one in SHOWN if one[1][0] == OURS],
    ids=lambda one: " ".join(one) if isinstance(one, list) else one,
)
def test_our_commands_know_their_flags(
    page: str, words: list[str], needs: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert list_unknown_flags(words, capsys) == set()


def list_unknown_flags(words: list[str], capsys: pytest.CaptureFixture[str]) -> set[str]:
    command = [] if words[1].startswith("-") else [words[1]]
    with pytest.raises(SystemExit):
        main([*command, "--help"])
    known = set(re.findall(r"(?<![\w-])--[a-z][\w.-]*", capsys.readouterr().out))
    return {word.partition("=")[0] for word in words if word.startswith("--")} - known


def test_series_that_the_hand_written_pages_name_exist() -> None:
    """Ours are in the catalogue or recorded; of vLLM's each feeds something in its table of the support matrix."""
    names = {metric.full_name for metric in BY_NAME.values()}
    names |= {rule.record for rule in every_rule(rule_groups(default_settings())) if isinstance(rule, Record)}
    matrix = (ROOT / "docs/runtimes.md").read_text()
    seen = 0
    for page in (*PAGES, "docs/faq.md", "docs/migrate.md"):
        text = (ROOT / page).read_text()
        found = set(re.findall(r"(?<![\w:/])(?:\w+:)?llm_serving_\w+(?::\w+)?", text)) - {"llm_serving_"}
        assert found - names == set(), page
        assert {name for name in re.findall(r"`(vllm:\w+)`", text) if name not in matrix} == set(), page
        seen += len(found)
    assert seen > 50


def test_words_for_others_are_true() -> None:
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    seen = set()
    for page, words, needs in SHOWN:
        seen.add(words[0])
        if words[0] == "make":
            assert set(words[1:]) <= targets, page
        elif words[0] == "pip":
            assert set(re.findall(r"\.\[(\w+)\]", words[-1])) <= set(extras), page
        elif words[0] in ("helm", "kubectl", "docker"):
            assert needs, (page, words)
            paths = [word for word in words if word.startswith("deploy/")]
            assert [path for path in paths if not (ROOT / path).exists()] == []
    assert seen >= {"make", "pip", "helm", "kubectl", "docker", OURS, *CHECKERS}


HELM = [words for _, words, _ in SHOWN if words[0] == "helm"]


@pytest.mark.packages
@pytest.mark.parametrize("words", HELM, ids=lambda words: " ".join(words)[:30])
def test_the_chart_has_what_helm_is_told(words: list[str], tmp_path: Path) -> None:
    """Keys are those of the chart's values; with helm, the chart is rendered too."""
    assert words[2:4] == [NAME, f"deploy/helm/{NAME}"]
    values = load_yaml((ROOT / "deploy/helm" / NAME / "values.yaml").read_text())
    settings = [(flag, text) for flag, text in pairwise(words) if flag in ("--set", "--set-string")]
    for key in (text.partition("=")[0] for _, text in settings):
        node = values
        for part in re.split(r"(?<!\\)\.", key):
            assert part in node or node == {}, key
            node = node.get(part, {})
    if find_tool("helm") is not None:
        (shown,) = (
            block.text for block in list_blocks("docs/start-kubernetes.md") if block.text.startswith("# values\n")
        )
        (tmp_path / "my-values.yaml").write_text(shown)
        files = ["--values", str(tmp_path / "my-values.yaml")] if "--values" in words else []
        done = template(*files, *(word for setting in settings for word in setting))
        assert done.returncode == 0, done.stderr


def test_a_command_with_a_flag_of_nobody_is_seen(capsys: pytest.CaptureFixture[str]) -> None:
    assert list_unknown_flags([OURS, "rules", "--no-such-flag", "a"], capsys) == {"--no-such-flag"}
