"""What of a bill is a GPU's, how many GPUs and hours it has, and that every line of it is in one sum."""

from __future__ import annotations

import csv
import io
import lzma
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from pathlib import Path

import pytest

from llm_serving_exporter.model.record import replace
from llm_serving_review.bills import ledger as ledger_module
from llm_serving_review.bills.charge import count_gpus_of_type, normalise_resource
from llm_serving_review.bills.compare import BillReview, Comparison, compare
from llm_serving_review.bills.files import Found
from llm_serving_review.bills.ledger import Scope, find_period
from llm_serving_review.bills.read import read_bill
from llm_serving_review.evidence.usage import Evidence, Usage
from llm_serving_review.evidence.week import Week, parse_week, week_before
from llm_serving_review.figures.metered_hours import MeteredHour
from llm_serving_review.figures.review import Review
from llm_serving_review.pages.first_page import build_first_page
from llm_serving_review.pages.page import render_page
from llm_serving_review.settings.settings import BillSettings
from tests.support.builders import bills as made
from tests.support.builders.costevidence import UTC, WEEK, owner, usage
from tests.support.paths import TESTS
from tests.support.rows import check_rows

SAMPLE = lzma.decompress((TESTS / "captures/focus-1.0-sample.csv.xz").read_bytes()).decode()
LINES = list(csv.DictReader(io.StringIO(SAMPLE)))
W38 = parse_week("2024-W38", UTC)
METERED = 168 * 4.0
NULLS = ("", "NULL")


def review(folder: Path, rows: list[dict[str, str]], week: Week = W38, **settings: object) -> Review:
    """Of $672 that were metered, as a bill of these lines has it."""
    fleet = Evidence(week, week_before(week, UTC), usage(owner(), {"decode": METERED}, 9e6, 1e6), Usage())
    return made.review_bill(fleet, made.write_bill(folder, rows), week.end + 30 * 86400, **settings)


def of_week(rows: list[dict[str, str]], week: Week) -> list[dict[str, str]]:
    """Those that lie in it: none is cut by its ends."""
    first, last = (f"{datetime.fromtimestamp(moment, UTC):%Y-%m-%d %H:%M:%S}" for moment in (week.begin, week.end))
    return [row for row in rows if first <= row["ChargePeriodStart"] < last]


@pytest.mark.parametrize(
    ("clouds", "lines", "usd"), [(("AWS", "Microsoft", "Oracle"), 49, "$3.57"), (("AWS",), 42, "$2.00")]
)
def test_a_bill_of_which_nothing_is_known_to_be_a_gpu_says_so(
    tmp_path: Path, clouds: tuple[str, ...], lines: int, usd: str
) -> None:
    """FOCUS 1.0 has no column of instance types, and the clouds of the sample cover no time together."""
    rows = [row for row in LINES if row["ProviderName"] in clouds]
    assert len(of_week(rows, W38)) == lines
    found = review(tmp_path, rows)
    (said,) = found.missing_parts
    assert said == (
        f"The bill is not compared: none of its {lines} lines in 2024-W38, {usd} in all, is known to be a GPU's: "
        "it names no instance types and no machine of the fleet; no node of the fleet says its provider_id. "
        "Set mapping_file (what runs on which machine) or instance_types below bills, "
        "or export the accounts that pay for the fleet, with instance types and resource ids."
    )
    assert build_first_page(found).bill == (said.partition(": it names")[0] + ".",)
    page = render_page(found)
    assert "Not compared: none of its" in page
    assert "usage that is not of the fleet" in page
    assert "−100" not in page


def test_types_and_accounts_that_are_not_the_fleets_are_named(tmp_path: Path) -> None:
    rows = made.drop_other_lines(made.list_focus_rows((made.SAME,)))
    other = [{**row, "SkuPriceDetails": '{"InstanceType": "m5.large"}'} for row in rows]
    (said,) = review(tmp_path, other, WEEK).missing_parts
    assert (
        "a GPU's: no instance type that it names has GPUs (m5.large); it names no machine of the fleet; no node" in said
    )
    (said,) = review(tmp_path, rows, WEEK, accounts=("999",)).missing_parts
    assert "a GPU's: 168 lines are of other accounts than accounts lists. Set" in said
    assert "list all of the accounts that pay for the fleet" in said
    (said,) = review(tmp_path, rows, parse_week("2025-W01", UTC)).missing_parts
    assert said == "The bill is not compared: no line of the bill lies in 2025-W01."


def test_a_machine_that_is_billed_for_its_network_alone_is_named(tmp_path: Path) -> None:
    mapping = {made.SAME.id: (Found("target", "a:8000"),)}
    network = {"ConsumedUnit": "GB", "SkuPriceDetails": "", "PricingUnit": "GB"}
    rows = [{**row, **network} for row in made.drop_other_lines(made.list_focus_rows((made.SAME,)))]
    (said,) = review(tmp_path, rows, WEEK, mapping=mapping).missing_parts
    assert (
        "it names no instance types and machines of the fleet only where it bills no time of them, such as network."
        in said
    )


def test_a_report_that_was_cut_to_machines_and_hours_is_compared(tmp_path: Path) -> None:
    """CUR without its columns of usage types and products: a known machine's hours are its own, its network counts none."""
    mapping = {made.SAME.id: (Found("target", "a:8000"),)}
    left_out = {"line_item_usage_type", "product_instance_type", "product"}
    rows = [{name: row[name] for name in row if name not in left_out} for row in made.list_cur_rows((made.SAME,))]
    usage = [row for row in rows if row["line_item_line_item_type"] == "Usage"]
    found = review(tmp_path, usage, WEEK, mapping=mapping).bills
    assert found.comparison.total.billed_usd == round(168 * 31.44, 2)
    assert found.comparison.machines[0].billed_hours == 168.0


def test_a_machine_of_the_mapping_file_is_the_fleets_without_a_type(tmp_path: Path) -> None:
    """What a reader is told to set makes the bill of FOCUS 1.0 one that is compared."""
    machine = next(row["ResourceId"] for row in of_week(LINES, W38) if row["ConsumedUnit"] == "GB Hours")
    found = review(tmp_path, LINES, mapping={normalise_resource(machine): (Found("target", "a:8000"),)}).bills
    assert [row.targets for row in found.comparison.machines if row.name == machine] == [("a:8000",)]


def sum_of(found: BillReview) -> tuple[float, float]:
    """What the review has of a bill, whatever it took it for."""
    compared = found.comparison
    return (
        (compared.total.billed_usd if compared else 0.0) + sum(one.effective_usd for _, one in found.beside),
        (compared.invoiced_usd if compared else 0.0) + sum(one.billed_usd for _, one in found.beside),
    )


@pytest.mark.parametrize("week", ["2024-W36", "2024-W37", "2024-W38", "2024-W39", "2024-W40"])
@pytest.mark.parametrize("settings", [{}, {"instance_types": ("*",)}, {"accounts": ("100000000296",)}])
def test_totals_of_the_sample_are_the_sums_of_its_lines(
    tmp_path: Path, week: str, settings: Mapping[str, object]
) -> None:
    one = parse_week(week, UTC)
    rows = of_week(LINES, one)
    machines = sorted({row["ResourceId"] for row in rows if row["ResourceId"] not in NULLS})
    for mapped in ({}, {normalise_resource(name): (Found("target", "a:8000"),) for name in machines}):
        found = review(tmp_path, LINES, one, **settings, **({"mapping": mapped} if mapped else {})).bills
        if rows:
            expected = tuple(sum(float(row[name]) for row in rows) for name in ("EffectiveCost", "BilledCost"))
            # what is compared is in whole cents
            assert sum_of(found) == pytest.approx(expected, abs=0.005)
            assert expected[0] > 0 or week != "2024-W38"


@pytest.mark.parametrize("list_rows", [made.list_focus_rows, made.list_cur_rows])
def test_totals_of_a_bill_of_gpus_are_the_sums_of_its_lines(
    tmp_path: Path, list_rows: Callable[..., Iterator[dict[str, str]]]
) -> None:
    rows = list(list_rows(made.NODES))
    found = review(tmp_path, rows, WEEK).bills
    if "EffectiveCost" in rows[0]:
        within = [row for row in rows if row["ChargePeriodStart"] >= "2026-11-09"]
        expected = [sum(float(row[name]) for row in within) for name in ("EffectiveCost", "BilledCost")]
    else:
        within = [row for row in rows if row["line_item_usage_start_date"] >= "2026-11-09"]

        def add(column: str, *kinds: str, but: tuple[str, ...] = ()) -> float:
            chosen = (one for one in within if one["line_item_line_item_type"] in kinds or not kinds)
            return sum(float(one[column] or 0) for one in chosen if one["line_item_line_item_type"] not in but)

        cost, covered = "line_item_unblended_cost", "savings_plan_savings_plan_effective_cost"
        fees = ("SavingsPlanUpfrontFee", "SavingsPlanNegation", "SavingsPlanCoveredUsage", "SavingsPlanRecurringFee")
        # amortised: what the plan covered, and the dollar an hour that nothing used
        expected = [add(cost, but=fees) + add(covered) + 168.0, add(cost) - add(cost, "SavingsPlanCoveredUsage")]
    assert sum_of(found) == pytest.approx(tuple(expected), abs=0.01)


@check_rows(
    ("instance_type", "gpus"),
    [
        ("p5.48xlarge", 8), ("p5en.48xlarge", 8), ("p5.4xlarge", 1), ("p4d.24xlarge", 8), ("p4de.24xlarge", 8), ("p3dn.24xlarge", 8),
        ("p3.8xlarge", 4), ("p6-b200.48xlarge", 8), ("p6e-gb200.36xlarge", 4), ("g5.xlarge", 1), ("g5.12xlarge", 4), ("g5.16xlarge", 1),
        ("g6e.24xlarge", 4), ("g6e.48xlarge", 8), ("g4dn.metal", 8), ("gr6.4xlarge", 1), ("g6f.xlarge", None),
        ("a2-highgpu-4g", 4), ("a2-megagpu-16g", 16), ("a2-ultragpu-1g", 1), ("a3-megagpu-8g", 8), ("a4x-highgpu-4g", 4),
        ("g2-standard-24", 2), ("g2-standard-96", 8), ("n1-standard-8", None),
        ("Standard_ND96isr_H100_v5", 8), ("ND96asr_v4", 8), ("Standard_NC80adis_H100_v5", 2), ("Standard_NC24ads_A100_v4", 1),
        ("Standard_NV6ads_A10_v5", None), ("Standard_NV72ads_A10_v5", 2), ("BM.GPU.H100.8", 8), ("VM.GPU.A10.2", 2), ("BM.GPU4.8", 8),
        ("m5.large", None), ("", None),
    ],
)  # fmt: skip
def test_gpus_of_an_instance_by_its_type(instance_type: str, gpus: int | None) -> None:
    assert count_gpus_of_type(instance_type) == gpus
    # whoever has GPUs is in scope
    assert gpus is None or Scope().cover_instance(instance_type)


def against(folder: Path, rows: list[dict[str, str]], pieces: tuple[MeteredHour, ...], **more: object) -> Comparison:
    path = made.write_bill(folder, rows)
    known = {normalise_resource(one.provider_id) for one in pieces}
    ledger = read_bill(BillSettings((str(path),)), WEEK, known, lambda text: None).ledger
    period = find_period(ledger, WEEK)
    return compare(ledger, pieces, period, Scope(known=known), BillSettings(**more))


# three of eight GPUs in use
PART = made.Node(7, {"a:8000": 3})
UNUSED = round(168 * 5 * made.PRICE, 2)


def lines(**more: str) -> list[dict[str, str]]:
    return [{**row, **more} for row in made.drop_other_lines(made.list_focus_rows((PART,)))]


def without_type() -> list[dict[str, str]]:
    return lines(SkuPriceDetails="")


@check_rows(
    "rows",
    [
        # the bill says the type, not how many GPUs it has
        lambda: lines(SkuPriceDetails='{"InstanceType": "p5.48xlarge"}'),
        # nor any hours
        lambda: lines(SkuPriceDetails='{"InstanceType": "p5.48xlarge"}', ConsumedQuantity="", ConsumedUnit=""),
        # nor the type, which the node says
        without_type,
        # parts of a machine, each by itself
        lambda: [
            {**row, "EffectiveCost": repr(float(row["EffectiveCost"]) / 2), "ConsumedUnit": unit}
            for row in without_type() for unit in ("core hour", "gibibyte hour")
        ],
    ],
)  # fmt: skip
def test_unused_gpus_are_no_other_price(tmp_path: Path, rows: Callable[[], list[dict[str, str]]]) -> None:
    found = against(tmp_path, rows(), made.meter((PART,)))
    assert found.reasons.parts() == {**dict.fromkeys(found.reasons.parts(), 0.0), "unused_gpus": UNUSED}
    assert found.machines[0].billed_hours == 168.0
    assert found.uncounted_types == ()


def test_hours_that_only_the_bill_has_are_hours_where_it_counts_none(tmp_path: Path) -> None:
    pieces = tuple(piece for piece in made.meter((PART,)) if piece.utc_begin >= WEEK.begin + 24 * 3600)
    found = against(tmp_path, without_type(), pieces)
    day = 24 * 8 * made.PRICE
    assert found.reasons.hours == round(day, 2)
    assert found.reasons.unused_gpus == round(144 * 5 * made.PRICE, 2)
    assert found.reasons.price == 0.0


def test_machines_beyond_the_list_are_no_single_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_module, "MOST_MACHINES", 0)
    nodes = (PART, replace(PART, number=8))
    pieces = made.meter(nodes)
    rows = [{**row, "SkuPriceDetails": ""} for row in made.drop_other_lines(made.list_focus_rows(nodes))]
    found = against(tmp_path, rows, pieces)
    assert [row.billed_hours for row in found.machines if row.name == ledger_module.REST] == [None]


def test_days_of_which_a_bill_counts_no_hours_are_not_divided(tmp_path: Path) -> None:
    every = made.drop_other_lines(made.list_focus_rows((PART,), step=24))
    rows = [{**row, "ConsumedQuantity": "", "ConsumedUnit": ""} for row in every]
    found = against(tmp_path, rows, made.meter((PART,)))
    assert found.reasons.parts() == {**dict.fromkeys(found.reasons.parts(), 0.0), "undivided": UNUSED}
    told = "counts no hours of instances, so that hours, unused GPUs and price are one sum: +$4,609.92."
    mapping = {"i-0abc": (Found("target", "a:8000"),)}
    fleet = review(tmp_path, [{**row, "ResourceId": "i-0abc"} for row in rows], WEEK, mapping=mapping).bills
    assert any(told in note for note in fleet.notes)


def test_a_type_of_which_nobody_counts_the_gpus_is_said(tmp_path: Path) -> None:
    rows = lines(SkuPriceDetails='{"InstanceType": "g6f.xlarge"}')
    found = against(tmp_path, rows, made.meter((PART,)))
    assert found.uncounted_types == ("g6f.xlarge",)
    assert against(tmp_path, rows, made.meter((PART,)), gpus_per_instance={"g6f.xlarge": 8}).uncounted_types == ()
    more = tuple(replace(piece, gpu_hours=8.0) for piece in made.meter((replace(PART, number=8),)))
    assert against(tmp_path, rows, (*made.meter((PART,)), *more)).uncounted_types == ("g6f.xlarge",)
