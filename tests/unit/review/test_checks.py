"""The hours of each check, by the verdicts that the rules record."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from llm_serving_exporter.model.record import replace
from llm_serving_review.evidence import names
from llm_serving_review.evidence.names import Asking
from llm_serving_review.evidence.usage import Fleet, Gauge, Usage
from llm_serving_review.figures.review import build_review
from llm_serving_review.figures.rows import sum_checks
from llm_serving_review.pages.csv_files import render_figures_csv
from llm_serving_review.pages.page import render_page
from llm_serving_review.settings.settings import Settings
from tests.pack.judging import verdict
from tests.support.builders.costevidence import WEEK, evidence

CHAT = {"model_name": "chat", "role": "unified"}


def said(check: str, verdict: str, hours: float, **labels: str) -> Gauge:
    each = [0.0] * len(WEEK.hours)
    each[0] = hours
    return Gauge({**CHAT, **labels, "check": check, "verdict": verdict}, tuple(each))


def test_what_had_no_verdict_is_not_known_and_the_worst_comes_first() -> None:
    week = WEEK.length_hours
    fleet = Fleet(
        verdicts=(
            said("kv", "fine", week - 3), said("kv", "ticket", 2),
            said("ttft", "fine", week - 1), said("ttft", "page", 1),
            said("slo", "fine", week),
        )
    )  # fmt: skip
    found = [(row.check, row.page_hours, row.ticket_hours, row.unknown_hours) for row in sum_checks(fleet, WEEK)]
    assert found == [("ttft", 1, 0, 0), ("kv", 0, 2, 1), ("slo", 0, 0, 0)]
    assert sum_checks(Fleet(), WEEK) == ()


def test_two_fleets_of_one_model_are_two() -> None:
    fleet = Fleet(verdicts=(said("kv", "page", 1, namespace="a"), said("kv", "page", 2, namespace="b")))
    assert [dict(row.labels)["namespace"] for row in sum_checks(fleet, WEEK)] == ["b", "a"]


@pytest.mark.process
@pytest.mark.parametrize(("value", "hours"), [(2, 0.25), (1, 0.0), (0, 0.5)])
def test_an_hour_is_counted_by_its_minutes(tmp_path: Path, value: int, hours: float) -> None:
    series = f'{names.VERDICT}{{check="kv",model_name="chat",role="unified"}}'
    # a quarter of an hour without a verdict, then half an hour fine and a quarter that pages; the moment before is of another hour
    test = {
        "expr": Asking().verdicts(value, 3600.0),
        "eval_time": "60m",
        "exp_samples": [{"labels": '{check="kv", model_name="chat", role="unified"}', "value": hours}],
    }
    history = {"series": series, "values": "2 stale _x14 0x29 2x14"}
    document = {
        "rule_files": [],
        "evaluation_interval": "1m",
        "tests": [{"interval": "1m", "input_series": [history], "promql_expr_test": [test]}],
    }
    (tmp_path / "test.yml").write_text(yaml.safe_dump(document))
    assert not verdict(tmp_path, "test.yml")


def test_the_page_and_the_csv_show_what_was_not_fine() -> None:
    week = WEEK.length_hours
    calm = said("slo", "fine", week)
    ordinary = evidence(
        Usage(), Usage(), fleet=Fleet(verdicts=(said("kv", "page", 1.5), said("kv", "fine", week - 5), calm))
    )
    review = build_review(ordinary, Settings())
    text = render_page(review)
    assert "Not known" in text
    assert re.search(r"kv.*unified.*1\.5.*0\.0.*3\.5", text, re.DOTALL)
    # fine all week
    assert "Not known" not in render_page(replace(review, checks=sum_checks(Fleet(verdicts=(calm,)), WEEK)))
    rows = [row for row in render_figures_csv(review).splitlines() if "checks" in row]
    assert len(rows) == 8
