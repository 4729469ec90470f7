"""`llm-serving-exporter rules` and docs/rules.md: what is printed and written, and that what the page says is so."""

import os
import re
import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
import yaml

from llm_serving_alerts.alerting import ALERTS
from llm_serving_alerts.render import every_rule, rule_document, rule_files, rule_groups
from llm_serving_alerts.rules import Record
from llm_serving_alerts.settings import Workload
from llm_serving_alerts.settings_file import default_settings, defaults_text, read_settings
from llm_serving_exporter.cli import main
from llm_serving_exporter.engines.registry import RUNTIMES
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.snapshot import Quality
from tests.support.paths import ROOT
from tests.support.rows import check_rows
from tests.support.waiting import PATIENCE_SECONDS
from tests.support.yaml_text import load_all_yaml, load_yaml

PAGE = (ROOT / "docs/rules.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
REFUSED = [(yaml, text) for (_, yaml), (kind, text) in pairwise(BLOCKS) if kind == "text"]
# another program's, or the exporter's own
OTHERS = ("# prometheus.yml", "# exporter.yml", "# Mimir")
SETTINGS = [
    text
    for kind, text in BLOCKS
    if kind == "yaml" and not text.startswith(OTHERS) and text not in [bad for bad, _ in REFUSED]
]


@check_rows("text", SETTINGS, ids=lambda text: text.split(":")[0])
def test_the_settings_of_the_page_are_taken(text: str, tmp_path: Path) -> None:
    settings = tmp_path / "my-rules.yml"
    settings.write_text(text)
    assert rule_groups(read_settings(str(settings))[0])


def test_every_key_of_the_settings_has_an_example() -> None:
    shown = {key for text in SETTINGS for key in load_yaml(text)}
    assert shown == set(load_yaml(defaults_text()))


@check_rows(("text", "printed"), REFUSED)
def test_what_is_refused_is_refused_in_these_words(
    text: str, printed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("my-rules.yml").write_text(text)
    assert main(["rules", "--config.file", "my-rules.yml"]) == 2
    assert capsys.readouterr() == ("", printed)


@pytest.mark.process
def test_the_commands_of_the_page_run_in_their_order(tmp_path: Path) -> None:
    scripts = [
        text for kind, text in BLOCKS if kind == "sh" and text.startswith(("llm-serving-exporter", "vmalert -dryRun"))
    ]
    assert len(scripts) == 3
    if not shutil.which("vmalert"):
        scripts.pop()  # a peer of Prometheus that not every machine has
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    script = "set -e\n" + "".join(scripts)
    ran = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, env={**os.environ, "PATH": path}, capture_output=True, text=True,
        timeout=PATIENCE_SECONDS, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert {file.name for file in (tmp_path / "operator").iterdir()} == {
        "alerts.prometheusrule.yml",
        "records.prometheusrule.yml",
    }


@pytest.mark.process
def test_promtool_takes_every_query_of_the_page(tmp_path: Path) -> None:
    queries = [
        line
        for kind, text in BLOCKS
        if kind == "promql"
        for line in (text.split("\n") if "\n  " not in text else [text])
    ]
    rules = [
        {"record": f"page:query{number}", "expr": query} for number, query in enumerate(filter(str.strip, queries))
    ]
    assert len(rules) >= 6
    (tmp_path / "rules.yml").write_text(yaml.safe_dump({"groups": [{"name": "page", "rules": rules}]}))
    checked = subprocess.run(
        ["promtool", "check", "rules", "rules.yml"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_what_is_to_be_kept_for_long_are_the_hours_of_cost_and_nothing_else() -> None:
    regex = re.search(r"regex: '(target:.*)'", PAGE)
    recorded = {rule.record for rule in every_rule(rule_groups(default_settings())) if isinstance(rule, Record)}
    kept = {record for record in recorded if re.fullmatch(regex[1], record)}
    of_cost = {
        rule.record
        for group in rule_groups(default_settings())["records"]
        if group.name.startswith("llm-serving.cost.")
        for rule in group.rules
        if isinstance(rule, Record) and rule.record.endswith("1h")
    }
    # a model's spend is the sum of its targets'
    assert kept == of_cost - {"model:llm_serving_cost_usd:increase1h"}
    assert len(kept) > 15


def test_no_group_is_larger_than_mimir_allows() -> None:
    groups = [group for found in rule_groups(default_settings()).values() for group in found]
    assert "larger than the 20 rules" in PAGE
    assert "the 70 groups" in PAGE
    assert max(len(group.rules) for group in groups) <= 20
    assert len(groups) <= 70
    assert len({alert.check for alert in ALERTS}) == 9


def test_links_lead_somewhere() -> None:
    for page in ("rules", "n1", "internals-n1", "alerts", "records"):
        text = (ROOT / "docs" / f"{page}.md").read_text()
        for link in re.findall(r"\]\(([^)\s]+)\)", text):
            path, _, anchor = link.partition("#")
            target = ROOT / "docs" / (path or f"{page}.md")
            assert "://" in link or target.exists(), link
            if anchor and target.suffix == ".md":
                headings = re.findall(r"^#+ (.*)$", target.read_text(), re.MULTILINE)
                anchors = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
                anchors |= set(re.findall(r'<a id="([^"]+)">', target.read_text()))
                assert anchor in anchors, link


@check_rows("page", ["rules.md", "n1.md", "internals-n1.md", "alertmanager.md", "drill.md"])
def test_the_records_and_settings_of_alerts_that_a_page_names_exist(page: str) -> None:
    text = (ROOT / "docs" / page).read_text()
    # some are recorded only where kube-state-metrics knows a workload
    known_workload = Workload("chat", "llm", "deployment", "chat")
    asked = (
        replace(default_settings(), node_loss=replace(default_settings().node_loss, workloads=workloads))
        for workloads in ((), (known_workload,))
    )
    rules = (rule for settings in asked for rule in every_rule(rule_groups(settings)))
    recorded = {rule.record for rule in rules if isinstance(rule, Record)}
    named = set(re.findall(r"\b(?:engine|target|model|model_gpu|model_node|fleet):llm_serving_\w+:\w+", text))
    assert named <= recorded
    known = {alert.name: alert for alert in ALERTS}
    for alert, setting in re.findall(r"`alerts\.(\w+)\.(\w+)`", text):
        assert setting in {"for", "severity", "labels", *known[alert].values}, (alert, setting)


def test_every_alert_that_needs_what_must_be_set_is_one_of_the_rules() -> None:
    table = PAGE.partition("## What the alerts need")[2].partition("\n## ")[0]
    named = set(
        re.findall(
            r"\b[A-Z]\w+(?:[a-z][A-Z])\w*|\bN1\w+",
            " ".join(row.split("|")[3] for row in table.splitlines() if row.startswith("| `")),
        )
    )
    assert len(named) >= 7
    assert named <= {alert.name for alert in ALERTS}


def test_the_runtimes_that_can_be_seen_to_stall_are_those_that_the_page_names() -> None:
    """A running gauge and a counter of tokens or steps of quality live, which `Stalled` asks for; without the gauge, aborts."""

    def live(*fields: str) -> set[str]:
        return {
            runtime.name
            for runtime in RUNTIMES.values()
            if any(row.field in fields and row.quality is Quality.LIVE for row in runtime.rows)
        }

    counts = live("decode_tokens_total", "engine_steps_total")
    assert live("requests_running") & counts == {"vllm", "dynamo-worker", "tgi", "llamacpp", "trtllm-json"}
    assert "sglang" in live("requests_finished_total") & counts - live("requests_running")
    assert (
        "It can for vLLM (behind Dynamo too), TGI, llama.cpp and TensorRT-LLM's iteration statistics; for SGLang"
        in PAGE
    )


# --- `llm-serving-exporter rules`: what it prints, what it writes, and how it ends ---


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
