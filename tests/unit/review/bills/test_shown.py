"""The review with its bill: on the page, in the CSV and in the summary, and what is said where it cannot be compared."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

from llm_serving_exporter.model.record import replace
from llm_serving_review.bills.compare import Pair, compare
from llm_serving_review.bills.files import Found
from llm_serving_review.bills.ledger import Scope, find_period
from llm_serving_review.bills.read import read_bill
from llm_serving_review.bills.review import add_bills
from llm_serving_review.evidence.usage import Book, Evidence, Usage
from llm_serving_review.figures.review import Review, build_review
from llm_serving_review.pages.csv_files import render_figures_csv
from llm_serving_review.pages.first_page import build_first_page
from llm_serving_review.pages.page import render_page
from llm_serving_review.pages.summary import render_summary
from llm_serving_review.settings.settings import BillSettings, Settings
from tests.support.builders import bills as made
from tests.support.builders.costevidence import WEEK, evidence, gauge, joined, owner, usage
from tests.support.rows import check_rows

# two machines at the same price, and GPUs of our own
FLEET = joined(
    usage(owner("a:8000", "large"), {"decode": 168 * 8 * made.PRICE}, decode=1e6, rate="on-demand", price=made.PRICE),
    usage(owner("b:8000", "small"), {"decode": 100.0}, decode=1e6, rate="ours", price=1.0),
)


def fleet() -> Evidence:
    book = Book(
        nodes=(gauge(1.0, target="a:8000", node="node-1"),),
        places=(gauge(1.0, target="a:8000", node="node-1", provider_id=f"aws:///us-east-1a/{made.SAME.id}", instance_type=made.P5),),
        rates={"ours": "owned", "on-demand": "on_demand"},
    )  # fmt: skip
    return evidence(FLEET, Usage(), book=book)


def review(path: Path, *now: float, **more: object) -> Review:
    return made.review_bill(fleet(), path, *now, **more)


def bill(folder: Path, nodes: tuple[made.Node, ...] = (made.SAME, made.NOT_METERED, made.COVERED)) -> Path:
    return made.write_bill(folder, made.list_focus_rows(nodes))


def test_without_bills_nothing_changes() -> None:
    plain = build_review(fleet(), Settings())
    assert add_bills(plain, fleet(), Settings(), made.LONG_AFTER, lambda text: None) is plain
    assert "Against the bill" not in render_page(plain)


def test_the_page_says_both_sums_and_why(tmp_path: Path) -> None:
    found = review(bill(tmp_path))
    # 168 h of one machine metered; billed are two whole weeks at 31.44 and 20.00, ten hours, and what of the plan stood unused
    metered, billed = 168 * 31.44, 168 * 31.44 + 314.4 + 168 * 20 + 168
    page = render_page(found)
    difference = f"+${billed - metered:,.2f} (+{100 * (billed / metered - 1):.1f}\N{NO-BREAK SPACE}%)"
    for name, value in (
        ("Metered", f"${metered:,.2f}"),
        ("Billed, effective", f"${billed:,.2f}"),
        ("Difference", difference),
    ):
        assert f"<dt>{name}</dt><dd>{value}</dd>" in page
    assert "Billed, not metered" in page
    assert "+$3,674.40" in page
    assert made.NOT_METERED.id in page
    assert "refunds" in page
    assert "$100 of GPUs at owned rates is not compared" in page
    assert "Preliminary" not in page
    summary = render_summary(found)
    assert "Against the bill: metered" in summary
    rows = list(csv.DictReader(io.StringIO(render_figures_csv(found))))
    parts = [float(row["value"]) for row in rows if row["section"] == "bill_difference"]
    (whole,) = [float(row["value"]) for row in rows if (row["section"], row["item"]) == ("bill", "difference")]
    assert sum(parts) == pytest.approx(whole, abs=1e-9) == pytest.approx(billed - metered)


def test_machines_beyond_the_list_are_a_sum(tmp_path: Path) -> None:
    nodes = tuple(made.Node(100 + number, {}, metered=(), billed=range(number)) for number in range(1, 26))
    page = render_page(review(bill(tmp_path, nodes)))
    # the five that cost least, of one to five hours
    (foot,) = re.findall(r"<tfoot><tr><th scope=\"row\"[^>]*>5 more</th>(.*?)</tr></tfoot>", page)
    assert re.findall(r"<td[^>]*>([^<]*)</td>", foot) == ["", "", "", f"{15 * 31.44:,.2f}"]
    assert page.count("Billed, not metered</h3>") == 1


def test_a_young_bill_is_preliminary(tmp_path: Path) -> None:
    path = bill(tmp_path)
    young = review(path, WEEK.end + 71 * 3600)
    assert "Billed, effective (preliminary)" in render_page(young)
    assert "Preliminary: metered" in render_summary(young)
    assert "reliminary" not in render_page(review(path, WEEK.end + 73 * 3600))


def test_a_bill_that_cannot_be_compared_is_said_and_the_review_stays(tmp_path: Path) -> None:
    rows = list(made.list_focus_rows((made.SAME,)))
    rows[2]["BillingCurrency"] = "EUR"
    found = review(made.write_bill(tmp_path, rows))
    (said,) = found.missing_parts
    assert said.startswith("The bill is not compared: ")
    assert 'line 4, column BillingCurrency: the bill is in "EUR", not in USD' in said
    assert "Not compared: " in render_page(found)
    path = made.write_bill(tmp_path, [{**row, "ChargePeriodEnd": "2026-10-01T00:00:00Z"} for row in rows[:1]])
    assert "no line of the bill lies in 2026-W46; could not be used: 1, the first: " in review(path).missing_parts[0]


def test_a_bill_by_days_says_that_no_day_lies_within(tmp_path: Path) -> None:
    # a day that the week's first midnight cuts
    row = made.drop_other_lines(made.list_focus_rows((made.SAME,), step=24))[0]
    day = {"ChargePeriodStart": "2026-11-08T12:00:00Z", "ChargePeriodEnd": "2026-11-09T12:00:00Z"}
    (said,) = review(made.write_bill(tmp_path, [{**row, **day}])).missing_parts
    assert said == (
        "The bill is not compared: the bill has lines of whole days in UTC, and covers none that lies within 2026-W46."
    )


def test_a_bill_in_another_currency_is_read_in_usd_where_it_has_that(tmp_path: Path) -> None:
    """Azure's columns for whoever pays in EUR."""
    rows = list(made.list_focus_rows((made.SAME,)))
    euro = [
        {**row, "BillingCurrency": "EUR", **{name: str(float(row[name]) / 1.1) for name in ("EffectiveCost", "BilledCost")},
         "x_EffectiveCostInUsd": row["EffectiveCost"], "x_BilledCostInUsd": row["BilledCost"]} for row in rows
    ]  # fmt: skip
    found = review(made.write_bill(tmp_path, euro)).bills
    assert found.comparison.total.billed_usd == found.comparison.total.metered_usd == round(168 * 8 * made.PRICE, 2)
    assert (
        "In another currency, and read in USD by the bill's own columns x_EffectiveCostInUsd and x_BilledCostInUsd: "
        f"{len(rows)} lines." in found.notes
    )
    # in USD its own columns are read, whatever stands beside them
    plain = review(made.write_bill(tmp_path, [{**row, "BillingCurrency": "USD"} for row in euro])).bills
    assert plain.comparison.total.billed_usd == round(168 * 8 * made.PRICE / 1.1, 2)


def test_lines_of_a_month_each_are_not_said_to_be_missing(tmp_path: Path) -> None:
    (row,) = list(made.list_focus_rows((made.SAME,)))[:1]
    month = {"ChargePeriodStart": "2026-11-01T00:00:00Z", "ChargePeriodEnd": "2026-12-01T00:00:00Z"}
    found = review(made.write_bill(tmp_path, [{**row, **month}]))
    # of a machine's $31.44 in November a week
    assert [(what, round(one.effective_usd, 3)) for what, one in found.bills.beside] == [
        ("usage of the fleet", round(31.44 * 7 / 30, 3))
    ]
    (said,) = found.missing_parts
    assert said == (
        "The bill is not compared: the lines of the bill in 2026-W46 cover more than a day each, which says nothing of a week: "
        "export it by hours or days."
    )


def test_days_without_a_line_in_the_middle_of_a_bill_are_said(tmp_path: Path) -> None:
    rows = list(made.list_focus_rows((made.SAME,)))
    cut = [row for row in rows if not "2026-11-11" <= row["ChargePeriodStart"] < "2026-11-13"]
    found = review(made.write_bill(tmp_path, cut)).bills
    assert found.notes[0] == (
        "The bill has no line of any usage from 2026-11-11 00:00 to 2026-11-13 00:00 UTC: is a file missing? "
        "What was metered then counts as hours that are not billed."
    )
    assert not any("no line" in note for note in review(made.write_bill(tmp_path, rows)).bills.notes)


def test_each_clouds_bill_is_compared_over_its_own_time(tmp_path: Path) -> None:
    """The bill of AWS goes to the end of the week, that of Google Cloud is two days behind."""
    rows = list(made.list_focus_rows((made.SAME,)))
    other = {"ProviderName": "Google Cloud", "ResourceId": "//compute.googleapis.com/projects/p/zones/z/instances/n"}
    late = [{**row, **other} for row in made.drop_other_lines(rows) if row["ChargePeriodStart"] < "2026-11-14"]
    made.write_bill(tmp_path, rows, "aws.csv")
    made.write_bill(tmp_path, late, "google.csv")
    both = review(tmp_path).bills
    assert both.comparison.total == Pair(round(168 * 31.44, 2), round((168 + 120) * 31.44, 2))
    behind = "covers a part of the week, and only that of it is compared"
    assert both.notes[0] == f"The bill of Google Cloud {behind}: 2026-11-09 00:00 to 2026-11-14 00:00 UTC."
    # what was metered on Saturday is compared with a bill that begins then, not with what another cloud billed before
    made.write_bill(tmp_path, [row for row in rows if row["ChargePeriodStart"] >= "2026-11-14"], "aws.csv")
    apart = review(tmp_path)
    assert apart.missing_parts == ()
    assert apart.bills.comparison.total == Pair(round(48 * 31.44, 2), round((48 + 120) * 31.44, 2))
    assert apart.bills.comparison.reasons.not_metered == round(120 * 31.44, 2)


def test_a_difference_stands_on_page_one_with_its_reason_and_what_is_left_out(tmp_path: Path) -> None:
    found = review(bill(tmp_path))
    first = build_first_page(found)
    # of the bill's own sums: storage and network of $10, taxes, credits, adjustments, refunds and corrections
    left_out = 10 + 150 - 75.25 - 40 - 123.45 - 123.45
    said = (
        "The bill says $9,124, $3,842 more than the $5,282 that were metered (+72.7 %). Most of it: billed, not metered, $3,674.",
        f"Left out of it: −${-left_out:,.0f} (taxes $150, refunds −$123, 4 more).",
    )
    assert tuple(first.bill) == said
    assert found.findings[0].sentence == " ".join(said)
    assert first.fewer_actions == "These figures call for no action, but the bill for a look."
    page = render_page(found)
    assert (
        page.index("The bill says $9,124")
        < page.index("<h2>What to do first</h2>")
        < page.index("Against the bill</h2>")
    )
    summary = render_summary(found)
    assert "Most of it: Billed, not metered, +$3,674.40." in summary
    # one that agrees is said, and stands out nowhere
    agreed = review(made.write_bill(tmp_path, made.drop_other_lines(made.list_focus_rows((made.SAME,)))))
    assert build_first_page(agreed).bill == ("The bill says $5,282, as much as was metered.",)
    assert [one for one in agreed.findings if one.rule == "bill"] == []
    assert build_first_page(agreed).fewer_actions == "These figures call for no action."
    assert build_first_page(build_review(fleet(), Settings())).bill == ()


def test_what_the_mapping_file_names_and_nobody_metered_is_said(tmp_path: Path) -> None:
    mapping = {
        "i-00000000000000001": (Found("target", "a:8000"),),
        "i-00000000000000002": (Found("target", "no-such:8000"), Found("node", "=1+1")),
    }
    found = review(bill(tmp_path), mapping=mapping).bills
    assert 'The mapping file names what was not metered here: node "=1+1", target "no-such:8000".' in found.notes
    named = review(bill(tmp_path), mapping={"i-00000000000000001": (Found("target", "a:8000"),)}).bills
    assert not any("mapping file" in note for note in named.notes)


@check_rows("provider", ["Google Cloud", "Oracle", "Alibaba Cloud", "Nebius"])
def test_other_clouds_are_left_out_and_lines_without_a_machine_are_named(tmp_path: Path, provider: str) -> None:
    rows = [{**row, "ProviderName": provider, "ResourceId": ""} for row in made.list_focus_rows((made.SAME,))]
    found = review(made.write_bill(tmp_path, rows)).bills
    assert found.comparison.total.metered_usd == 0.0
    assert "$5,282 of GPUs in clouds of which the bill has no line is not compared." in found.notes
    assert "Name no machine, so that nothing finds them: 168 lines. Export the bill with resource ids." in found.notes


def test_a_reseller_of_a_cloud_is_known_by_its_machines(tmp_path: Path) -> None:
    rows = [{**row, "ProviderName": "Contoso Hosting"} for row in made.list_focus_rows((made.SAME,))]
    total = review(made.write_bill(tmp_path, rows)).bills.comparison.total
    assert total.metered_usd == total.billed_usd > 0


def test_what_was_read_after_discounts_is_said(tmp_path: Path) -> None:
    rows = list(made.list_cur_rows((made.SAME,)))
    said = "After discounts, by the net columns of AWS CUR: 1 of 1 file."
    for net, expected in (({"line_item_net_unblended_cost": "9"}, True), ({}, False)):
        notes = review(made.write_bill(tmp_path, [{**row, **net} for row in rows])).bills.notes
        assert any(note.startswith(said) for note in notes) is expected


def test_names_of_a_bill_are_text_on_the_page(tmp_path: Path) -> None:
    rows = [{**row, "ResourceId": "<script>=HYPERLINK(1)"} for row in list(made.list_focus_rows((made.SAME,)))[:3]]
    page = render_page(review(made.write_bill(tmp_path, rows)))
    assert "<script>=HYPERLINK" not in page
    assert "&lt;script&gt;=hyperlink" in page.lower()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    nodes=some.lists(
        some.builds(
            made.Node,
            number=some.integers(1, 5),
            targets=some.dictionaries(some.sampled_from(sorted(made.MODELS)), some.integers(1, 4), max_size=2),
            metered=some.lists(some.integers(0, 167), max_size=12, unique=True),
            billed=some.lists(some.integers(0, 167), min_size=1, max_size=12, unique=True),
            price=some.floats(0.1, 9.0),
            billed_price=some.floats(0.01, 99.0),
        ),
        min_size=1,
        max_size=4,
        unique_by=lambda node: node.number,
    ),
    step=some.sampled_from([1, 24]),
)
def test_reasons_and_models_add_up_in_cents_whatever_comes(tmp_path: Path, nodes: list[made.Node], step: int) -> None:
    path = made.write_bill(tmp_path, made.list_focus_rows(nodes, step))
    ledger = read_bill(BillSettings((str(path),)), WEEK, (), lambda text: None).ledger
    period = find_period(ledger, WEEK)
    pieces = [replace(piece, rate="x") for piece in made.meter(nodes)]
    found = compare(ledger, pieces, period, Scope(), BillSettings())
    cents = round(100 * found.total.difference_usd)
    assert sum(round(100 * value) for value in found.reasons.parts().values()) == cents
    for side in ("metered_usd", "billed_usd"):
        whole = round(100 * getattr(found.total, side))
        assert sum(round(100 * getattr(pair, side)) for _, pair in found.models) == whole
        assert sum(getattr(row.pair, side) for row in found.machines) <= whole / 100 + 0.05
