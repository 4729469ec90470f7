"""The catalogue's own rules, and what is generated from it."""

from __future__ import annotations

import re
import shutil
from math import inf, isfinite, nan
from pathlib import Path
from typing import Any

import pytest

from llm_serving_exporter.catalogue import BY_NAME, METRICS
from llm_serving_exporter.catalogue.spec import LABELS, NODE_LABELS, Formerly, Group, Kind, Metric, Unit
from llm_serving_exporter.docgen.generate import FILES, main
from llm_serving_exporter.model.record import replace
from tests.support.paths import ROOT
from tests.support.rows import check_rows


def test_names_are_unique() -> None:
    assert len(BY_NAME) == len(METRICS)
    helps = [metric.help for metric in METRICS]
    assert len(set(helps)) == len(helps)


# a unit and what the name has to contain for it
IN_NAME = {
    Unit.SECONDS: "seconds", Unit.BYTES: "bytes", Unit.TOKENS: "tokens", Unit.RATIO: "_ratio", Unit.JOULES: "joules", Unit.USD: "usd",
    Unit.GRAMS: "grams", Unit.WATTS: "watts", Unit.CELSIUS: "celsius", Unit.HERTZ: "hertz",
    Unit.TOKENS_PER_SECOND: "tokens_per_second", Unit.BYTES_PER_SECOND: "bytes_per_second", Unit.PER_SECOND: "per_second",
    Unit.FLOPS_PER_SECOND: "flops_per_second", Unit.FLOPS_PER_BYTE: "flops_per_byte", Unit.TIMESTAMP: "_time(stamp)?_seconds$",
}  # fmt: skip


def list_faults(metric: Metric) -> list[str]:
    bounds = metric.bounds
    edge = bounds.least if bounds.suspect_above is None else bounds.suspect_above
    rules = {
        "the name is lower-case words joined by single underscores": re.fullmatch(
            r"[a-z][a-z0-9]*(_[a-z0-9]+)*", metric.name
        ),
        "a counter, and only a counter, ends in _total": (metric.kind is Kind.COUNTER)
        == metric.name.endswith("_total"),
        "an info metric, and only that, ends in _info": (metric.kind is Kind.INFO) == metric.name.endswith("_info"),
        "the unit shows in the name": re.search(IN_NAME.get(metric.unit, ""), metric.name),
        "the help is a sentence that ends in a full stop": metric.help.endswith("."),
        "its labels are in spec.LABELS or NODE_LABELS": {*metric.labels} <= {*LABELS, *NODE_LABELS},
        "it says what absence means": metric.absent,
        "its range is one": isfinite(bounds.least) and isfinite(bounds.most) and bounds.least <= edge <= bounds.most,
        "a former name is another": metric.formerly is None or metric.formerly.name != metric.name,
        "a name changes with a minor version": metric.formerly is None
        or re.fullmatch(r"\d+\.\d+", metric.formerly.since),
    }
    return [rule for rule, holds in rules.items() if not holds]


@check_rows(
    "metric", [*METRICS, *(metric.former for metric in METRICS if metric.former)], ids=lambda metric: metric.name
)
def test_a_declaration_keeps_to_the_rules(metric: Metric) -> None:
    assert list_faults(metric) == []


GOOD = Metric("events_total", Kind.COUNTER, Unit.COUNT, Group.HEALTH, "Events.", ("target",), "never")


@check_rows(
    "change",
    [
        {"name": "Bad:name_total"}, {"name": "events"}, {"unit": Unit.SECONDS}, {"help": "No full stop"}, {"labels": ("pod",)},
        {"absent": ""}, {"kind": Kind.INFO, "name": "thing"}, {"least": 1.0, "most": 0.0}, {"most": inf}, {"least": nan},
        {"suspect_above": 1e99}, {"suspect_above": -1.0}, {"formerly": Formerly("events_total", "0.2")},
        {"formerly": Formerly("old_total", "0.2.1")},
    ],
)  # fmt: skip
def test_a_broken_declaration_has_a_fault(change: dict[str, Any]) -> None:
    assert list_faults(GOOD) == []
    assert len(list_faults(replace(GOOD, **change))) >= 1


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
