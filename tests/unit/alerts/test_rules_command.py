"""`llm-serving-exporter rules`: what it prints, what it writes, and how it ends."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from llm_serving_alerts.render import rule_document, rule_files
from llm_serving_alerts.settings_file import default_settings, defaults_text
from llm_serving_exporter.cli import main
from tests.support.paths import ROOT
from tests.support.rows import check_rows
from tests.support.yaml_text import load_all_yaml, load_yaml

RENDERED = ROOT / "alerts" / "rendered"


def test_without_a_word_all_groups_go_to_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rules"]) == 0
    out, err = capsys.readouterr()
    groups = [group["name"] for group in load_yaml(out)["groups"]]
    assert groups == [
        group["name"]
        for name in ("records.yml", "alerts.yml")
        for group in load_yaml((RENDERED / name).read_text())["groups"]
    ]
    assert len(set(groups)) == len(groups)
    assert err == ""


def test_a_folder_gets_the_committed_files_and_their_names_are_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "deep" / "rules"
    assert main(["rules", "--output-dir", str(folder)]) == 0
    assert capsys.readouterr().out == f"{folder}/records.yml\n{folder}/alerts.yml\n"
    assert {path.name: path.read_text() for path in folder.iterdir()} == {
        path.name: path.read_text() for path in RENDERED.iterdir()
    }


def test_the_printed_settings_used_as_settings_give_the_same_rules(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["rules", "--print-settings"]) == 0
    printed = capsys.readouterr().out
    assert printed == defaults_text()
    settings = tmp_path / "my-rules.yml"
    settings.write_text(printed)
    assert main(["rules", "--config.file", str(settings)]) == 0
    assert capsys.readouterr().out == rule_document(default_settings())


def test_the_operators_objects_are_documents_of_one_stream(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--format", "operator", "--label", "release=prom", "--label", "on=true", "--namespace", "llm"]
    assert main(["rules", *words]) == 0
    objects = list(load_all_yaml(capsys.readouterr().out))
    assert [found["metadata"]["name"] for found in objects] == ["llm-serving-records", "llm-serving-alerts"]
    for found in objects:
        assert found["metadata"]["namespace"] == "llm"
        # what Kubernetes reads as labels is text, whatever it looks like
        assert found["metadata"]["labels"]["on"] == "true"
        assert found["metadata"]["labels"]["release"] == "prom"


def test_the_operators_objects_go_to_a_folder_too(tmp_path: Path) -> None:
    assert main(["rules", "--format", "operator", "--output-dir", str(tmp_path)]) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "alerts.prometheusrule.yml",
        "records.prometheusrule.yml",
    ]


def test_bad_settings_end_with_2_and_every_fault_and_nothing_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = tmp_path / "bad.yml"
    settings.write_text("severity_cap: loud\nalerts: {Nothing: off}\n")
    assert main(["rules", "--config.file", str(settings), "--output-dir", str(tmp_path / "rules")]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    known, unknown = err.splitlines()
    assert known == f'error: {settings}: severity_cap: "loud" is not a severity. Write critical, warning or info.'
    assert unknown.startswith(
        f"error: {settings}: alerts.Nothing: there is no such alert. Known here: BudgetExceeded, "
    )
    assert not (tmp_path / "rules").exists()


def test_a_file_that_is_not_there_ends_with_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing = tmp_path / "none.yml"
    assert main(["rules", "--config.file", str(missing)]) == 2
    assert capsys.readouterr().err == f"error: {missing}: the file does not exist. Check the path.\n"


def test_a_warning_is_said_and_the_rules_are_rendered(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = tmp_path / "rules.yml"
    settings.write_text("slo: {ttft: {threshold: 2s}}\n")
    assert main(["rules", "--config.file", str(settings)]) == 0
    out, err = capsys.readouterr()
    assert err.startswith("warning: slo.ttft: 2 s lies between the bucket edges 1 s and 2.5 s of vLLM's histogram")
    assert "groups" in load_yaml(out)


def test_a_folder_that_cannot_be_made_ends_with_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "file"
    file.write_text("")
    assert main(["rules", "--output-dir", str(file / "rules")]) == 1
    assert capsys.readouterr().err == (
        f"error: {file}/rules cannot be written: Not a directory; choose another --output-dir\n"
    )


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may write anywhere")
def test_a_folder_that_may_not_be_written_ends_with_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tmp_path.chmod(0o500)
    assert main(["rules", "--output-dir", str(tmp_path)]) == 1
    assert "Permission denied; choose another --output-dir" in capsys.readouterr().err


def test_a_file_that_is_a_folder_ends_with_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "records.yml").mkdir()
    assert main(["rules", "--output-dir", str(tmp_path)]) == 1
    assert capsys.readouterr().err == (
        f"error: {tmp_path}/records.yml cannot be written: Is a directory; choose another --output-dir\n"
    )


@check_rows(
    ("words", "message"),
    [
        (["--label", "release=prom"], "--label and --namespace are of the operator's objects: add --format operator"),
        (["--namespace", "llm"], "--label and --namespace are of the operator's objects: add --format operator"),
        (["--format", "operator", "--label", "release"], "'release' is not NAME=VALUE"),
        (
            ["--format", "helm"],
            'flag --format: "helm" is none of its values. Known here: alertmanager, operator, prometheus.',
        ),
        (["--conf", "x"], "there is no flag --conf. Did you mean --config.file?"),
    ],
)
def test_a_wrong_option_ends_with_2_and_says_which(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["rules", *words])
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


def test_the_files_rendered_with_the_defaults_are_the_committed_ones() -> None:
    assert rule_files(default_settings()) == {path.name: path.read_text() for path in RENDERED.iterdir()}
