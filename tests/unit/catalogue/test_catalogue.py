"""The catalogue's own rules, and what is generated from it."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from llm_serving_exporter.catalogue import BY_NAME, METRICS
from llm_serving_exporter.catalogue.spec import Group, Kind, Metric, Unit
from llm_serving_exporter.docgen.generate import FILES, main
from tests.support.paths import ROOT
from tests.support.rows import check_rows


def test_names_are_unique() -> None:
    assert len(BY_NAME) == len(METRICS)
    helps = [metric.help for metric in METRICS]
    assert len(set(helps)) == len(helps)


@check_rows(
    ("change", "fault"),
    [
        ({"name": "Bad:name_total"}, "lower-case words"),
        ({"name": "events"}, "ends in _total"),
        ({"unit": Unit.SECONDS}, "must show in the name as 'seconds'"),
        ({"help": "No full stop"}, "full stop"),
        ({"labels": ("pod",)}, r"\['pod'\] are not in spec.LABELS"),
        ({"absent": ""}, "what absence means"),
        ({"kind": Kind.INFO, "name": "thing"}, "ends in _info"),
    ],
)
def test_a_broken_declaration_is_refused(change: dict[str, object], fault: str) -> None:
    good = {
        "name": "events_total", "kind": Kind.COUNTER, "unit": Unit.COUNT, "group": Group.HEALTH, "help": "Events.", "labels": ("target",),
        "absent": "never",
    }  # fmt: skip
    Metric(**good)
    with pytest.raises(ValueError, match=fault):
        Metric(**{**good, **change})


def test_a_stale_file_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # of this page only the tables are made
    shutil.copytree(ROOT / "docs", tmp_path / "docs", ignore=lambda _, names: {*names} - {"configuration.md"})
    monkeypatch.chdir(tmp_path)
    assert main(["--check"]) == 1
    assert (
        capsys.readouterr().err
        == "out of date: exporter/llm_serving_exporter/engines/tables.json, METRICS.md, docs/runtimes.md, docs/img/limiter.svg, "
        "docs/img/ceiling.svg; "
        "run `make generate`, remove what is not made any more, commit the result\n"
    )
    assert main(["--write"]) == 0
    assert main(["--check"]) == 0
    for picture in ("docs/img/limiter.svg", "docs/img/ceiling.svg"):
        assert (tmp_path / picture).read_text() == (ROOT / picture).read_text()


def test_each_series_stands_once_in_its_chapter_of_metrics_md() -> None:
    _, *chapters = re.split(r"^## (.+)$", FILES["METRICS.md"](), flags=re.MULTILINE)
    found = {
        title: re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)
        for title, text in zip(chapters[::2], chapters[1::2], strict=True)
    }
    assert len(Group) > 5
    for group in Group:
        assert found[group.value] == [metric.full_name for metric in METRICS if metric.group is group], group


def test_source_root_holds_no_package_of_its_own() -> None:
    assert not (ROOT / "exporter" / "__init__.py").exists()
    assert re.match(r"\d+\.\d+\.\d+\Z", __import__("llm_serving_exporter").__version__)
