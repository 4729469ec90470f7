"""`llm-serving-exporter dashboards`: what it writes, and how it ends."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from llm_serving_exporter.cli import main
from tests.support.paths import ROOT
from tests.support.rows import check_rows
from tests.support.yaml_text import load_yaml

RENDERED = ROOT / "dashboards" / "rendered"
# what the API server takes: 1 MiB of data a ConfigMap (kubernetes.io/docs/concepts/configuration/configmap)
MOST_BYTES = 1 << 20


def test_a_folder_gets_the_committed_files_and_their_names_are_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["dashboards", "--output-dir", str(tmp_path / "made")]) == 0
    made = {path.name: path.read_text() for path in (tmp_path / "made").iterdir()}
    assert made == {path.name: path.read_text() for path in RENDERED.iterdir()}
    assert sorted(capsys.readouterr().out.split()) == sorted(str(tmp_path / "made" / name) for name in made)


def test_the_users_settings_are_in_them(tmp_path: Path) -> None:
    settings = tmp_path / "my-rules.yml"
    settings.write_text("identity_labels: [cluster]\nslo: {ttft: {threshold: 750ms}}\n")
    assert main(["dashboards", "--config.file", str(settings), "--output-dir", str(tmp_path)]) == 0
    home = json.loads((tmp_path / "llm-serving-home.json").read_text())
    assert [one["name"] for one in home["templating"]["list"]][:2] == ["datasource", "cluster"]
    (p99,) = (one for one in home["panels"] if one["title"] == "p99 time to first token")
    assert [step["value"] for step in p99["fieldConfig"]["defaults"]["thresholds"]["steps"]] == [None, 0.75]


def test_a_configmap_a_dashboard_that_the_sidecar_finds(tmp_path: Path) -> None:
    words = ["--format", "configmap", "--namespace", "monitoring", "--label", "team=llm", "--output-dir", str(tmp_path)]
    assert main(["dashboards", *words]) == 0
    found = sorted(tmp_path.iterdir())
    assert len(found) == len(list(RENDERED.iterdir()))
    for path in found:
        assert path.stat().st_size < MOST_BYTES
        made = load_yaml(path.read_text())
        assert made["kind"] == "ConfigMap"
        assert made["metadata"] == {
            "name": path.stem, "namespace": "monitoring", "labels": {"grafana_dashboard": "1", "team": "llm"}
        }  # fmt: skip
        ((name, text),) = made["data"].items()
        assert text == (RENDERED / name).read_text()


def test_a_data_source_for_a_grafana_that_has_none(tmp_path: Path) -> None:
    settings = tmp_path / "my-rules.yml"
    settings.write_text("scrape_interval: 30s\n")
    words = ["--format", "configmap", "--datasource-url", "http://p:9090", "--output-dir", str(tmp_path)]
    assert main(["dashboards", "--config.file", str(settings), *words]) == 0
    made = load_yaml((tmp_path / "llm-serving-datasource.yml").read_text())
    assert made["metadata"]["labels"] == {"grafana_datasource": "1"}
    (found,) = load_yaml(made["data"]["llm-serving-datasource.yml"])["datasources"]
    assert (found["url"], found["jsonData"]["timeInterval"]) == ("http://p:9090", "30s")


@check_rows(
    ("words", "said"),
    [
        ([], "--output-dir"),
        (["--output-dir", "d", "--namespace", "x"], "add --format configmap"),
        (["--output-dir", "d", "--format", "configmap", "--label", "x"], "'x' is not NAME=VALUE"),
        (["--output-dir", "d", "--format", "configmap", "--datasource-url", "prometheus:9090"], "is not a URL"),
    ],
)
def test_bad_usage_is_refused(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["dashboards", *words])
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_bad_settings_write_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = tmp_path / "my-rules.yml"
    settings.write_text("slo: {ttft: {threshold: -1s}}\n")
    assert main(["dashboards", "--config.file", str(settings), "--output-dir", str(tmp_path / "made")]) == 2
    assert "slo" in capsys.readouterr().err
    assert not (tmp_path / "made").exists()


def test_a_folder_that_cannot_be_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert main(["dashboards", "--output-dir", str(tmp_path / "file" / "below")]) == 1
    assert "choose another --output-dir" in capsys.readouterr().err


def test_without_grafanalib_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [name for name in sys.modules if name.startswith(("llm_serving_dashboards", "grafanalib"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "grafanalib", None)
    assert main(["dashboards", "--output-dir", "d"]) == 1
    said = capsys.readouterr().err
    assert "Run pip install 'llm-serving-exporter[dashboards]', or pip install '.[dashboards]' in a clone." in said


def test_readme_installs_the_extra_before_it_uses_it() -> None:
    readme = (ROOT / "README.md").read_text()
    assert readme.index("pip install '.[dashboards]'") < readme.index("llm-serving-exporter dashboards ")
