"""Every example of every page: run, or read by what would read it, or marked with what it needs and parsed.

What wants a cluster, a container engine, Grafana or somebody else's server has `<!-- needs: … -->` above its fence. README and the start
pages are run from top to bottom in test_docs_commands.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from llm_serving_alerts.settings_file import defaults_text, read_settings
from llm_serving_exporter.cli import main
from llm_serving_exporter.errors import LLMServingExporterError
from llm_serving_exporter.settings.prices import look_at_prices
from llm_serving_review.settings.arguments import parser as report_parser
from llm_serving_review.settings.arguments import settings_of
from llm_serving_simulator.fleet.scenario import parse as parse_scenario
from tests.support.builders.configuration import load_text
from tests.support.builders.recordings import page as recorded_page
from tests.support.docs_examples import Block, list_blocks
from tests.support.paths import ROOT
from tests.support.rows import check_rows
from tests.support.servers.replica import Replica
from tests.support.waiting import PATIENCE_SECONDS
from tests.support.yaml_text import load_yaml
from tests.unit.test_docs_commands import CHECKERS, OURS, run_ours
from tests.unit.test_docs_commands import PAGES as RUN_IN_ORDER

# where the shell, the language or the output of an example is tried: the test file names the page
ELSEWHERE = {
    ("docs/ceiling.md", "console"): "tests/unit/commands/ceiling/test_command.py",
    ("docs/ceiling-command.md", "console"): "tests/unit/commands/ceiling/test_command.py",
    ("docs/discovery.md", "sh"): "tests/unit/discovery/test_sections.py",
    ("docs/mapping.md", "console"): "tests/unit/settings/test_runtimes.py",
    ("docs/rules.md", "refused"): "tests/unit/alerts/test_rules_page.py",
    ("docs/mapping.md", "refused"): "tests/unit/settings/test_runtimes.py",
    ("CONTRIBUTING.md", "python"): "tests/unit/test_contributing.py",
    ("CONTRIBUTING.md", "diff"): "tests/unit/test_contributing.py",
}
# not ours, and not here: words are checked, and the mark has to say what they need
FOREIGN = ("kubectl", "helm", "docker", "mimirtool", "thanos", "vmalert", "curl", "install", "systemctl")
# run anywhere, or too long for a test; make's targets and the extras of pip are checked
HARMLESS = ("make", "pip", ".venv/bin/python", "python3")
# output, formulas and pages: nothing that anybody types
SHOWN_ONLY = ("", "text", "markdown")
PAGES = [
    *(str(path.relative_to(ROOT)) for path in sorted((ROOT / "docs").glob("*.md"))),
    "METRICS.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "deploy/helm/llm-serving-exporter/README.md",
    "deploy/compose/README.md",
]
BLOCKS = [block for page in PAGES if page not in RUN_IN_ORDER for block in list_blocks(page)]


def of_language(*languages: str) -> list[Block]:
    return [block for block in BLOCKS if block.language in languages and not is_tried_elsewhere(block)]


def is_tried_elsewhere(block: Block, language: str = "") -> bool:
    return (block.place.partition(":")[0], language or block.language) in ELSEWHERE


def test_each_example_is_of_a_kind_that_is_tried() -> None:
    tried = {"sh", "console", "yaml", "promql", "json", "toml", "python", "diff", *SHOWN_ONLY}
    assert [str(block) for block in BLOCKS if block.language not in tried] == []
    for (page, language), test in ELSEWHERE.items():
        assert Path(page).name in (ROOT / test).read_text(), test
        assert language == "refused" or any(block.language == language for block in list_blocks(page))


@check_rows("block", of_language("", "text"), ids=str)
def test_what_is_only_shown_is_no_command(block: Block) -> None:
    words = (OURS, *CHECKERS, *FOREIGN, "pip", "make")
    typed = [line for line in block.text.splitlines() if line.lstrip("$ ").split(" ")[0] in words]
    assert typed == [], "put it into a fence of sh or console"


# --- commands --------------------------------------------------------------------------------------------------------------------


def make_folder(folder: Path, page: str) -> None:
    """Files that commands of a page name: those that it shows, else the examples of deploy/ and the defaults."""
    for name in ("rules.yml", "my-rules.yml"):
        (folder / name).write_text(defaults_text())
    (folder / "exporter.yml").write_text("targets: [{url: 'http://a:8000'}]\n")
    (folder / "report.yml").write_text(
        "prometheus: {url: 'http://p:9090'}\nschedule: 0 7 * * mon\nout: /var/lib/reviews\n"
    )
    shutil.copy(ROOT / "deploy/prices.example.yml", folder / "prices.yml")
    for block in list_blocks(page):
        if block.language == "yaml" and re.fullmatch(r"[\w-]+\.ya?ml", block.title):
            (folder / block.title).write_text(block.text)


@pytest.mark.process
@pytest.mark.parametrize("page", sorted({block.place.partition(":")[0] for block in of_language("sh", "console")}))
def test_commands_of_a_page_run(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    make_folder(tmp_path, page)
    with Replica({"/metrics": recorded_page("vllm-0.32", 50)}) as server:
        for block in of_language("sh", "console"):
            if block.place.partition(":")[0] == page:
                for words in list_typed(block):
                    check_command(block, words, capsys, server.url)


def list_typed(block: Block) -> Iterator[list[str]]:
    """Commands of a block; of one with output those behind a prompt."""
    if block.language == "console" and "$ " in block.text:
        typed = [line.removeprefix("$ ") for line in block.text.splitlines() if line.startswith("$ ")]
        block = Block(block.place, block.needs, "sh", "\n".join(typed))
    return block.list_commands()


def check_command(block: Block, words: list[str], capsys: pytest.CaptureFixture[str], url: str = "") -> None:
    """Runs a command where it can be run; `url`: the engine that answers in the place of the page's."""
    while "=" in words[0]:  # variables before the command
        words = words[1:]
    program = words[0]
    if program == OURS:
        check_flags(block, words, capsys)
        if not block.needs:
            words, output = split_redirection(words)
            assert (main(words[1:]) if output else run_ours(words, url)) == 0, (str(block), words)
            if output:
                Path(output).write_text(capsys.readouterr().out)
    elif program in CHECKERS:
        done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
        assert block.needs or done.returncode == 0, (str(block), done.stdout + done.stderr)
    elif program in FOREIGN:
        assert block.needs, f"{block}: {program} needs something: say what in <!-- needs: … --> above the fence"
        missing = [word for word in words if word.startswith("deploy/") and not (ROOT / word).exists()]
        assert missing == [], str(block)
    else:
        assert program in HARMLESS, f"{block}: nobody knows {program}"
        check_harmless(block, words)


def split_redirection(words: list[str]) -> tuple[list[str], str]:
    """The command, and the file that its output goes to; empty where it is printed."""
    at = words.index(">") if ">" in words else len(words)
    return words[:at], "".join(words[at + 1 :])


def check_flags(block: Block, words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    command = [] if words[1].startswith("-") else [words[1]]
    with pytest.raises(SystemExit):
        main([*command, "--help"])
    known = set(re.findall(r"(?<![\w-])--[a-z][\w.-]*", capsys.readouterr().out))
    assert {word.partition("=")[0] for word in words if word.startswith("--")} - known == set(), str(block)


def check_harmless(block: Block, words: list[str]) -> None:
    if words[0] == "make":
        targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
        assert {word for word in words[1:] if "=" not in word} <= targets, str(block)
    elif words[0] == "pip":
        extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
        assert set(re.findall(r"\[(\w+)\]", words[-1])) <= set(extras), str(block)
    elif words[1:2] == ["-m"] and words[2].startswith("tests."):
        assert (ROOT / f"{words[2].replace('.', '/')}.py").exists(), str(block)


# --- files -----------------------------------------------------------------------------------------------------------------------


def read_as_exporter(text: str, folder: Path) -> None:
    sources = ("targets:", "file_sd:", "http_sd:", "kubernetes:")
    more = () if re.search(rf"^({'|'.join(sources)})", text, re.MULTILINE) else ("--target", "http://a:8000")
    load_text(folder, text, *more, environ={"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"})


def read_as_rules(text: str, folder: Path) -> None:
    (folder / "rules.yml").write_text(text)
    read_settings(str(folder / "rules.yml"))


def read_as_prices(text: str, folder: Path) -> None:
    (folder / "prices.yml").write_text(text)
    found = look_at_prices(str(folder / "prices.yml"))
    assert found.book is not None, found


def read_as_report(text: str, folder: Path) -> None:
    server = "" if "prometheus:" in text else "prometheus: {url: 'http://p:9090'}\n"
    # files that a settings file may name have to be there
    for name in ("ca.pem", "bills/2026-11.csv.gz"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).touch()
    (folder / "machines.csv").write_text("resource,target\ni-1,chat\n")
    (folder / "report.yml").write_text(server + text.replace("/etc/llm-serving-exporter/ca.pem", "ca.pem"))
    settings_of(report_parser().parse_args(["--config.file", str(folder / "report.yml")]), {})


def read_as_scenario(text: str, _folder: Path) -> None:
    parse_scenario(text, "docs", "docs")


def read_as_prometheus(text: str, folder: Path) -> None:
    (folder / "prometheus.yml").write_text(text)
    run_checker("promtool", "check", "config", str(folder / "prometheus.yml"))


def read_as_receivers(text: str, folder: Path) -> None:
    """A part of the configuration that we render, with the receiver in the place of its own."""
    receivers = load_yaml(text)
    assert isinstance(receivers, list)
    whole = {"route": {"receiver": receivers[0]["name"]}, "receivers": receivers}
    (folder / "alertmanager.yml").write_text(yaml.safe_dump(whole))
    run_checker("amtool", "check-config", str(folder / "alertmanager.yml"))


def read_as_target_groups(text: str, folder: Path) -> None:
    (folder / "targets.yml").write_text(text)
    config = load_text(folder, "file_sd: [{files: [targets.yml]}]")
    assert [warning for warning in config.warnings if "targets.yml" in warning] == []


def read_as_values(text: str, _folder: Path) -> None:
    """Keys of the chart; helm renders them in tests/unit/deploy."""
    known = load_yaml((ROOT / "deploy/helm/llm-serving-exporter/values.yaml").read_text())
    assert set(load_yaml(text)) <= set(known)


def read_as_table(text: str, folder: Path) -> None:
    """One of the exporter's own tables of a runtime."""
    table = "\n".join(f"  {line}" for line in text.splitlines())
    load_text(folder, f"targets: ['http://a:1']\nruntimes:\n-\n{table}\n")


def read_as_manifest(text: str, _folder: Path) -> None:
    found = load_yaml(text)
    assert {"apiVersion", "kind"} <= set(found)


Reader = Callable[[str, Path], None]
# by what the first line of an example calls it, else whichever takes it
BY_TITLE: dict[str, Reader] = {
    "prometheus.yml": read_as_prometheus,
    "exporter.yml": read_as_exporter,
    "rules.yml": read_as_rules,
    "targets.d/": read_as_target_groups,
    "my-values.yaml": read_as_values,
    "values": read_as_values,
    "kustomization.yaml": read_as_manifest,
}
READERS: tuple[Reader, ...] = (
    read_as_exporter,
    read_as_rules,
    read_as_prices,
    read_as_report,
    read_as_scenario,
    read_as_receivers,
    read_as_manifest,
    read_as_table,
)


def run_checker(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.process
@pytest.mark.seam("promtool")
@check_rows("block", of_language("yaml"), ids=str)
def test_a_file_is_taken_by_whatever_reads_it(block: Block, tmp_path: Path) -> None:
    """A file that is shown because it is refused is tried where its message is."""
    load_yaml(block.text)
    if block.needs:
        return
    make_folder(tmp_path, block.place.partition(":")[0])
    named = [reader for title, reader in BY_TITLE.items() if block.title.startswith(title)]
    problems = list_problems(block.text, named or READERS, tmp_path)
    assert None in problems or is_tried_elsewhere(block, "refused"), "\n".join(map(str, (block, *problems)))


def list_problems(text: str, readers: Any, folder: Path) -> list[str | None]:
    """What each reader objects to; None, and last, where one takes it."""
    found: list[str | None] = []
    for reader in readers:
        try:
            reader(text, folder)
        except (LLMServingExporterError, AssertionError, KeyError, TypeError) as error:
            found.append(f"{reader.__name__}: {str(error)[:300]}")
        else:
            return [*found, None]
    return found


@check_rows("block", of_language("json", "toml", "python"), ids=str)
def test_other_languages_are_parsed(block: Block) -> None:
    readers: dict[str, Callable[[str], object]] = {
        "json": json.loads,
        "toml": tomllib.loads,
        "python": lambda text: compile(text, block.place, "exec"),
    }
    readers[block.language](block.text)


# --- queries ---------------------------------------------------------------------------------------------------------------------

_GOES_ON = re.compile(r"(?:and|or|unless|on|by|bool|offset)\b|[-+*/<>=!%^)]| |#")


def split_queries(text: str) -> list[str]:
    """Queries of an example: a new one begins at the left edge, outside of brackets, with something else than an operator."""
    found: list[list[str]] = []
    depth = 0
    for line in text.splitlines():
        if line and (not found or (depth == 0 and not _GOES_ON.match(line) and has_query(found[-1]))):
            found.append([])
        code = re.sub(r"\"[^\"]*\"|#.*", "", line)
        depth += sum(code.count(one) for one in "([{") - sum(code.count(one) for one in ")]}")
        if found:
            found[-1].append(line)
    return ["\n".join(lines) for lines in found]


def has_query(lines: list[str]) -> bool:
    return any(line.strip() and not line.lstrip().startswith("#") for line in lines)


@pytest.mark.process
def test_queries_are_queries(tmp_path: Path) -> None:
    queries = {
        f"q{number}": (str(block), query)
        for number, (block, query) in enumerate(
            (block, query) for block in of_language("promql") for query in split_queries(block.text)
        )
    }
    assert len(queries) > 10
    rules = [{"record": name, "expr": query} for name, (_, query) in queries.items()]
    (tmp_path / "rules.yml").write_text(yaml.safe_dump({"groups": [{"name": "docs", "rules": rules}]}))
    done = subprocess.run(
        ["promtool", "check", "rules", str(tmp_path / "rules.yml")],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    said = done.stdout + done.stderr
    bad = [queries[name][0] for name in re.findall(r"record \"?(q\d+)", said) if name in queries]
    assert done.returncode == 0, (bad, said[-2000:])


# --- the tests themselves ----------------------------------------------------------------------------------------------------------


def test_an_example_that_nobody_takes_is_seen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert None not in list_problems("targetz: [{url: 'http://a:8000'}]", READERS, tmp_path)
    assert split_queries("a\n  > 1\nand b\nc\n") == ["a\n  > 1\nand b", "c"]
    for command in (f"{OURS} rules --no-such-flag", "kubectl get pods", "unheard-of"):
        with pytest.raises(AssertionError):
            check_command(Block("page:1", "", "sh", command), command.split(), capsys)
