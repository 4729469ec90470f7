"""The CSV: typed, harmless, and the same figures as everywhere else."""

from __future__ import annotations

import csv
import io
from collections import defaultdict

import pytest

from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.text import on_one_line
from llm_serving_exporter.render.numbers import usd, usd_plain
from llm_serving_review.figures.review import Review, build_review
from llm_serving_review.pages.csv_files import COLUMNS, HOUR_COLUMNS, render_figures_csv, render_hours_csv, write_text
from llm_serving_review.pages.page import render_page
from llm_serving_review.pages.summary import render_summary
from llm_serving_review.settings.settings import ApiPrice, Settings
from tests.support.builders.costevidence import fleet_of
from tests.support.rows import check_rows

SETTINGS = Settings(by_labels=("team",), api_price=ApiPrice("An API", 1.0, 0.1, 4.0), objectives={"ttft": 0.995})


@pytest.fixture(scope="module")
def made() -> Review:
    return build_review(fleet_of(6, 3, 2), SETTINGS)


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text), strict=True))


def test_each_row_is_a_typed_figure(made: Review) -> None:
    rows = rows_of(render_figures_csv(made))
    assert tuple(rows[0]) == COLUMNS
    for row in rows:
        assert None not in row
        assert row["week"] in ("2026-W46", "2026-W45")
        assert row["section"]
        assert row["value"] == "" or float(row["value"]) == float(row["value"])
        assert row["unit"] or row["section"] == "notes"
    keys = [tuple(value for name, value in row.items() if name != "value") for row in rows]
    assert len(keys) == len(set(keys))


def test_parts_add_up_to_the_spend_wherever_they_stand(made: Review) -> None:
    sums: dict[str, float] = defaultdict(float)
    for row in rows_of(render_figures_csv(made)):
        if row["week"] == "2026-W46" and row["unit"] == "USD" and row["item"] == "gpu_time":
            sums[row["section"]] += float(row["value"] or 0)
    spend = made.now.usd
    assert spend
    for section in (
        "spend",
        "spend_by_phase",
        "model_spend",
        "model_spend_by_phase",
        "label_spend",
        "nodes",
        "invoice",
    ):
        assert sums[section] == pytest.approx(spend), section


def test_the_hours_add_up_to_the_spend(made: Review) -> None:
    rows = rows_of(render_hours_csv(made))
    assert tuple(rows[0]) == HOUR_COLUMNS
    assert len(rows) == 168
    assert sum(
        float(row[name] or 0) for row in rows for name in HOUR_COLUMNS if name.endswith("_usd")
    ) == pytest.approx(made.now.usd)
    assert (rows[0]["hour_begin"], rows[0]["utc_offset_hours"]) == ("2026-11-09 00:00", "0")
    assert int(rows[1]["hour_begin_unix_seconds"]) - int(rows[0]["hour_begin_unix_seconds"]) == 3600


FORMULAS = ("=HYPERLINK(1)", "+1", "-1", "@SUM(A1)", "＝1", "＋1", "－1", "＠SUM(A1)", "﹦1")
BEFORE_ONE = ("", "\t", "\n", "\r", "\r\n", " ", "\u00a0", "\ufeff", '"', "'")


@check_rows("text", [before + formula for before in BEFORE_ONE for formula in FORMULAS])
def test_no_text_is_a_formula_whatever_stands_before_it(text: str) -> None:
    cell = write_text(text)
    assert cell.isprintable()
    assert cell.startswith("'")


@check_rows("text", ["a=b", "gpu-7", "Qwen/Qwen3-32B", "1: scale in", "", "it's", "é"])
def test_ordinary_text_stays_as_it_is(text: str) -> None:
    assert write_text(text) == text


@check_rows("breaking", ["\r", "\n", "\r\n", "\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\0", "\t"])
def test_no_label_splits_its_row(breaking: str) -> None:
    review = build_review(fleet_of(2, 2, 1, f"a{breaking}=1"), SETTINGS)
    text, whole = render_figures_csv(review), render_figures_csv(build_review(fleet_of(2, 2, 1, "a =1"), SETTINGS))
    # every way of some reader to end a row
    assert text.splitlines() == text.split("\n")[:-1]
    assert len(text.splitlines()) == len(whole.splitlines())
    for row in csv.reader(text.splitlines()):
        assert len(row) == len(COLUMNS)
        assert not any(cell.startswith(("=", "+", "@")) for cell in row)


@check_rows("name", ["=HYPERLINK(1)", "+1", "-1", "@SUM(A1)", "\t=1", 'a","b', "a\nb"])
def test_no_spreadsheet_takes_a_name_for_a_formula(name: str) -> None:
    text = render_figures_csv(build_review(fleet_of(2, 2, 1, name), SETTINGS))
    named = 0
    for row in rows_of(text):
        for column in ("model_name", "label_value", "node", "rate", "gpu_name", "target", "alert", "item"):
            assert not row[column].startswith(("=", "+", "-", "@", "\t", "\r"))
            named += on_one_line(name) in row[column]
    assert named


def test_what_is_not_known_is_an_empty_cell() -> None:
    bare = build_review(fleet_of(1, 1, 0), Settings())
    (budget,) = (
        row
        for row in rows_of(render_figures_csv(bare))
        if row["section"] == "energy" and row["item"] == "energy" and row["week"] == "2026-W46"
    )
    assert budget["value"] == ""


def test_each_gap_has_what_was_recovered_and_a_sum_without_a_price_is_a_least() -> None:
    whole = fleet_of(2, 2, 2)
    first, second = whole.gaps or ()
    found = build_review(
        replace(whole, gaps=(replace(first, recovered={"cost": 1.5}), replace(second, gpus=None))), SETTINGS
    )
    gaps = [row for row in rows_of(render_figures_csv(found)) if row["section"] == "gaps"]
    assert [row["value"] for row in gaps if row["unit"] == "USD recovered"] == ["1.5", ""]
    assert "Gaps in the data hide at least $0.333 that is not in the spend." in render_summary(found)
    assert "≥ 0.333" in render_page(found)
    assert "Gaps in the data hide about $0.667 that is not in the spend." in render_summary(
        build_review(whole, SETTINGS)
    )


def test_the_page_shows_the_sums_of_the_table(made: Review) -> None:
    """What the CSV's rows add up to stands on the page, as it writes amounts."""
    sums: dict[tuple[str, str], float] = defaultdict(float)
    for row in rows_of(render_figures_csv(made)):
        if row["week"] == "2026-W46" and row["unit"] == "USD" and row["item"] == "gpu_time":
            of = {"model_spend": "model_name", "nodes": "node", "label_spend": "label_value", "spend_by_phase": "phase"}
            sums[row["section"], row.get(of.get(row["section"], ""), "")] += float(row["value"] or 0)
    shown = render_page(made)
    assert len(sums) > 15
    for (section, name), amount in sums.items():
        if amount and section in ("spend", "spend_by_phase", "model_spend", "nodes", "label_spend"):
            assert f">{usd_plain(amount)}<" in shown or f">{usd(amount)}<" in shown, (section, name, amount)
