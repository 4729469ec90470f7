"""The flags of every command: old names, durations, and texts read to values."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from llm_serving_alerts.command import _arguments as rules_arguments
from llm_serving_dashboards.command import _parse_arguments as dashboards_arguments
from llm_serving_drill.command import parser as drill_parser
from llm_serving_exporter.cli import main
from llm_serving_exporter.commands.page_test import _parser as page_test_parser
from llm_serving_exporter.settings import kinds
from llm_serving_exporter.settings.flags import (
    RENAMED,
    CommandParser,
    FlagReader,
    attribute,
    duration,
    duration_once_bare,
)
from llm_serving_review.settings.arguments import parser as report_parser
from llm_serving_simulator.demo import _arguments as demo_arguments
from llm_serving_simulator.drill_demo import _arguments as drill_demo_arguments
from tests.support.rows import check_rows

Said = pytest.CaptureFixture[str]

# each command's own way from words to a namespace, and what it cannot do without
READ = {
    "rules": (rules_arguments, []),
    "dashboards": (dashboards_arguments, ["--output-dir", "d"]),
    "drill": (lambda words: drill_parser().parse_args(words), ["--model", "m", "--prometheus.url", "http://p:9090"]),
    "report": (lambda words: report_parser().parse_args(words), []),
    "demo": (demo_arguments, []),
    "drill_demo": (drill_demo_arguments, []),
    "page-test": (lambda words: page_test_parser().parse_args(words), []),
}
OLD = [(command, old, new) for command, names in RENAMED.items() for old, new in names.items()]


@check_rows(("command", "old", "new"), OLD, ids=lambda one: str(one))
@check_rows("form", ["two words", "one word"])
def test_an_old_name_still_works_with_a_warning(command: str, old: str, new: str, form: str, capsys: Said) -> None:
    read, needed = READ[command]
    text = ":1234" if "listen" in new else "value"
    words = [old, text] if form == "two words" else [f"{old}={text}"]
    by_old = vars(read([*needed, *words]))
    assert capsys.readouterr().err == f"warning: flag {old} is now {new}; the next version knows the new name only\n"
    by_new = vars(read([*needed, new, text]))
    assert by_old == by_new
    assert text.removeprefix(":") in str(list(by_new.values()))
    assert capsys.readouterr().err == ""


def test_the_table_is_about_commands_that_are_tried_here() -> None:
    assert set(RENAMED) == set(READ)


@check_rows("command", [name for name in READ if name != "drill_demo"])
def test_help_shows_no_old_name(command: str, capsys: Said) -> None:
    with pytest.raises(SystemExit):
        main([command, "--help"])
    shown = set(capsys.readouterr().out.replace("[", " ").replace("]", " ").replace("=", " ").split())
    assert shown.isdisjoint(RENAMED[command])
    assert shown.issuperset(RENAMED[command].values())


def test_a_value_that_looks_like_an_old_flag_is_left_alone(capsys: Said) -> None:
    parser = CommandParser("report", description="")
    parser.add_argument("--by-label")
    parser.add_argument("rest", nargs="*")
    assert parser.parse_args(["--by-label=--out"]).by_label == "--out"
    assert parser.parse_args(["--", "--out"]).rest == ["--out"]
    assert capsys.readouterr().err == ""


@check_rows("word", ["-5", "-.5", "-", "--no such flag"])
def test_words_that_are_no_flags_are_not_taken_for_ones(word: str) -> None:
    parser = CommandParser("report", description="")
    parser.add_argument("rest")
    assert parser.parse_args([word]).rest == word


def test_durations_need_a_unit() -> None:
    assert duration("1m30s") == 90.0
    with pytest.raises(argparse.ArgumentTypeError, match="Write 5s for seconds"):
        duration("5")


@check_rows(
    ("text", "seconds", "written"),
    [("5", 5.0, "5s"), ("0.2", 0.2, "200ms"), ("90", 90.0, "1m30s"), ("0.5m", 30.0, "30s"), ("1.5h", 5400.0, "1h30m")],
)
def test_what_a_flag_once_took_still_works_with_a_warning(
    text: str, seconds: float, written: str, capsys: Said
) -> None:
    assert duration_once_bare("--wait")(text) == seconds
    said = f'warning: flag --wait: write {written} instead of "{text}", which the next version refuses\n'
    assert capsys.readouterr().err == said


@check_rows("text", ["", "-5", "5x", "5 s", "1e3", "nan"])
def test_what_it_never_took_is_refused(text: str, capsys: Said) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        duration_once_bare("--wait")(text)
    assert capsys.readouterr().err == ""


def test_values_are_read_by_flag_and_every_fault_is_kept() -> None:
    namespace = argparse.Namespace(query_timeout="5", config_file="a.yml", by_label=["a", "b", "a"], ca_file=None)
    flags = FlagReader(namespace)
    assert flags.value("--config.file", kinds.PATH) == "a.yml"
    assert flags.value("--ca-file", kinds.PATH) is None
    assert flags.values("--by-label", kinds.text("label")) == ("a", "b")
    assert not flags.problems
    assert flags.value("--query-timeout", kinds.DURATION) is None
    flags.refuse("--ca-file", "it is wrong")
    assert [str(problem) for problem in flags.problems] == [
        'flag --query-timeout: the duration "5" has no unit. Write 5s for seconds, 5ms for milliseconds.',
        "flag --ca-file: it is wrong.",
    ]
    assert attribute("--web.listen-address") == "web_listen_address"


def test_no_document_shows_an_old_name() -> None:
    """Old names stand in the CHANGELOG alone."""
    root = Path(__file__).parents[3]
    documents = [
        *root.glob("*.md"),
        *root.glob("docs/*.md"),
        *root.glob("deploy/**/*.yml"),
        *root.glob("alerts/**/*.md"),
    ]
    assert len(documents) > 40
    for path in documents:
        if path.name == "CHANGELOG.md":
            continue
        for line in path.read_text().splitlines():
            for command, names in RENAMED.items():
                used = {word.strip("`(),;.[]") for word in line.replace("=", " ").split()}
                assert f" {command} " not in line or used.isdisjoint(names), (path.name, line)


@check_rows(("command", "old", "new"), OLD, ids=lambda one: str(one))
def test_the_changelog_says_what_each_old_name_is_now(command: str, old: str, new: str) -> None:
    # its module has moved since
    shown = "python -m llm_serving_alerts.drill_demo" if command == "drill_demo" else command
    assert f"| `{shown}` | `{old}` | `{new}` |\n" in (Path(__file__).parents[3] / "CHANGELOG.md").read_text()
