"""Bills that are made from what was metered, with known differences: each is found to the cent."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from llm_serving_exporter.model.record import replace
from llm_serving_review.bills.charge import normalise_resource
from llm_serving_review.bills.compare import NOT_METERED, UNUSED, Comparison, Pair, compare
from llm_serving_review.bills.files import Found
from llm_serving_review.bills.ledger import Scope, find_period
from llm_serving_review.bills.read import Bill, read_bill
from llm_serving_review.evidence.week import Week
from llm_serving_review.figures.metered_hours import MeteredHour
from llm_serving_review.settings.settings import BillSettings
from tests.support.builders import bills as made
from tests.support.builders.costevidence import WEEK
from tests.support.rows import check_rows

METERED = sum(one.paid_usd for one in made.meter())


def write(folder: Path, text: str, name: str = "bill.csv", encoding: str = "utf-8") -> str:
    path = folder / name
    path.write_bytes(gzip.compress(text.encode(encoding)) if name.endswith(".gz") else text.encode(encoding))
    return str(path)


def read(*paths: str, week: Week = WEEK, pieces: tuple[MeteredHour, ...] | None = None, **settings: object) -> Bill:
    known = {
        normalise_resource(one.provider_id) for one in (made.meter() if pieces is None else pieces) if one.provider_id
    }
    return read_bill(BillSettings(paths, **settings), week, known, lambda text: None)


def against(bill: Bill, pieces: tuple[MeteredHour, ...] | None = None, week: Week = WEEK, **more: object) -> Comparison:
    period = find_period(bill.ledger, week)
    return compare(bill.ledger, made.meter() if pieces is None else pieces, period, Scope(), BillSettings(**more))


def focus() -> str:
    return made.write_csv(made.list_focus_rows())


def cur() -> str:
    return made.write_csv(made.list_cur_rows())


def older_cur() -> str:
    return made.spell_as_older_report(cur())


@check_rows("text", [focus, cur, older_cur])
@check_rows(("name", "encoding"), [("b.csv", "utf-8"), ("b.csv", "utf-8-sig"), ("b.csv.gz", "utf-8-sig")])
def test_every_difference_is_found_to_the_cent(
    tmp_path: Path, text: Callable[[], str], name: str, encoding: str
) -> None:
    bill = read(write(tmp_path, text(), name, encoding))
    assert (bill.fault_count, bill.ledger.outside_lines) == (0, 1)
    found = against(bill)
    assert found.reasons.parts() == {**dict.fromkeys(found.reasons.parts(), 0.0), **made.DIFFERENCES}
    assert found.total.metered_usd == pytest.approx(METERED, abs=0.005)
    assert found.total.difference_usd == round(sum(made.DIFFERENCES.values()), 2)
    # as invoiced, without what the plan covers
    assert found.invoiced_usd == pytest.approx(found.total.billed_usd - 168.0 - 168 * 20.0, abs=0.01)


@pytest.mark.parametrize("text", [focus, cur])
def test_parts_by_model_and_machine_add_up(tmp_path: Path, text: Callable[[], str]) -> None:
    found = against(read(write(tmp_path, text())))
    models = dict(found.models)
    assert models[UNUSED] == Pair(0.0, 168.0)
    assert models[NOT_METERED] == Pair(0.0, 314.4)
    # half of a machine each, and six of eight GPUs, which pay for all eight
    assert models["tiny"] == Pair(round((168 * 4 + 48 * 6) * 3.93, 2), round((168 * 4 + 48 * 8) * 3.93, 2))
    for side in ("metered_usd", "billed_usd"):
        assert sum(getattr(pair, side) for pair in models.values()) == pytest.approx(
            getattr(found.total, side), abs=1e-6
        )
    rows = {row.name[-2:]: row for row in found.machines}
    assert rows["02"].targets == ("b:8000", "c:8000")
    assert rows["02"].pair == Pair(round(168 * 8 * 3.93, 2), round(168 * 8 * 3.93, 2))
    assert (rows["06"].targets, rows["06"].billed_hours, rows["06"].reasons.not_metered) == (
        (),
        10.0,
        pytest.approx(314.4),
    )
    assert (rows["-5"].name, rows["-5"].reasons.not_billed) == ("node-5", pytest.approx(-24 * 31.44))
    assert found.machines[0].name == "node-5"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            focus,
            {
                "purchases and recurring fees": (336, 0.0, 168 * 21.0), "taxes": (1, 150.0, 150.0), "credits": (1, -75.25, -75.25),
                "adjustments": (1, -40.0, -40.0), "refunds": (1, -123.45, -123.45),
                "corrections of earlier bills": (1, -123.45, -123.45),
            },
        ),
        (
            cur,
            {
                "negations of covered usage": (168, 0.0, -168 * 31.44), "purchases and recurring fees": (169, 0.0, 168 * 21.0 + 5000),
                "taxes": (1, 150.0, 150.0), "credits": (1, -75.25, -75.25), "refunds": (1, -123.45, -123.45), "fees": (1, 12.0, 12.0),
                "discounts": (3, -43.0, -43.0), "split cost allocation": (1, 0.0, 0.0),
            },
        ),
    ],
)  # fmt: skip
def test_what_is_no_usage_is_counted_and_in_no_sum(
    tmp_path: Path, text: Callable[[], str], expected: dict[str, tuple[int, float, float]]
) -> None:
    ledger = read(write(tmp_path, text())).ledger
    found = {kind.value: (one.lines, one.effective_usd, one.billed_usd) for kind, one in ledger.beside.items()}
    assert found == {what: pytest.approx(values) for what, values in expected.items()}
    # network of a machine and a bucket
    assert (ledger.others.lines, ledger.others.effective_usd) == (2, 10.0)


def test_days_are_compared_by_whole_days_in_utc(tmp_path: Path) -> None:
    bill = read(write(tmp_path, made.write_csv(made.list_focus_rows(step=24))))
    found = against(bill)
    assert found.period.by_days
    assert found.period.hours == 168
    # the hour too many is found within its day, and the machine that ran ten hours within its two
    assert found.reasons.parts() == {**dict.fromkeys(found.reasons.parts(), 0.0), **made.DIFFERENCES}


def test_days_in_another_zone_leave_out_what_the_week_cuts(tmp_path: Path) -> None:
    week = made.in_zone("Europe/Berlin")
    nodes = (made.SAME, made.COVERED)
    bill = read(write(tmp_path, made.write_csv(made.list_focus_rows(nodes, step=24))), week=week)
    found = against(bill, made.meter(nodes), week)
    # from Monday 0:00 UTC, an hour into the week, to Sunday 0:00 UTC
    assert found.period.hours == 144
    assert found.total == Pair(round(144 * 51.44, 2), round(144 * 51.44 + 144, 2))


def test_hours_are_cut_at_the_reviews_zone(tmp_path: Path) -> None:
    # India is 5:30 ahead: the week's first half hour is the second half of 18 to 19 h of Sunday in UTC
    week = made.in_zone("Asia/Kolkata")
    rows = [
        row
        for row in made.list_focus_rows((made.SAME,))
        if row["ChargeCategory"] == "Usage" and row["ConsumedQuantity"] == "1"
    ]
    bill = read(write(tmp_path, made.write_csv(rows)), week=week)
    machine = bill.ledger.machines[made.SAME.id]
    # the bill begins 5.5 h into the week and ends with it, at 18:30 UTC of Sunday
    assert sum(machine.hours) == pytest.approx(162.5)
    assert machine.hours[-1] == pytest.approx(0.5)


def test_a_bill_that_ends_early_is_compared_as_far_as_it_goes(tmp_path: Path) -> None:
    nodes = (made.SAME, made.COVERED)
    rows = [row for row in made.list_focus_rows(nodes) if row["ChargePeriodEnd"] <= "2026-11-11T00:00:00Z"]
    found = against(read(write(tmp_path, made.write_csv(rows))), made.meter(nodes))
    assert found.period.hours == 48
    assert found.total == Pair(round(48 * 51.44, 2), round(48 * 51.44 + 48, 2))


@pytest.mark.parametrize("by", ["mapping", "tags"])
def test_without_provider_ids_a_file_or_tags_join(tmp_path: Path, by: str) -> None:
    nodes = (made.SAME, made.DEARER)
    pieces = tuple(replace(piece, provider_id="") for piece in made.meter(nodes))
    mapping = {node.id: (Found("target", "a:8000"),) for node in nodes} if by == "mapping" else {}
    tags = {"Team": "node"} if by == "tags" else {}
    if by == "tags":
        pieces = tuple(replace(piece, node=f"team-{piece.node[5:]}") for piece in pieces)
    bill = read(write(tmp_path, made.write_csv(made.list_focus_rows(nodes))), pieces=pieces, mapping=mapping, tags=tags)
    found = against(bill, pieces, mapping=mapping, tags=tags)
    assert found.reasons.price == made.DIFFERENCES["price"]
    assert found.reasons.not_billed == found.reasons.not_metered == 0.0
    # one target over two machines is one row, tags tell them apart
    assert len(found.machines) == (1 if by == "mapping" else 2)


@pytest.mark.parametrize("list_rows", [made.list_focus_rows, made.list_cur_rows])
def test_without_ids_of_machines_tags_tell_them_apart(
    tmp_path: Path, list_rows: Callable[..., Iterator[dict[str, str]]]
) -> None:
    """AWS leaves ids out unless an export asks for them; tags for cost allocation are there all the same."""
    nodes = (made.SAME, made.DEARER)
    pieces = tuple(
        replace(piece, provider_id="", target=f"{piece.node}:8000", node=f"team-{piece.node[5:]}")
        for piece in made.meter(nodes)
    )
    rows = [
        {**row, **{name: "" for name in ("ResourceId", "line_item_resource_id") if name in row}}
        for row in list_rows(nodes)
    ]
    tags = {"Team": "node"}
    bill = read(write(tmp_path, made.write_csv(rows)), pieces=pieces, tags=tags)
    found = against(bill, pieces, tags=tags)
    assert {row.name: row.pair.difference_usd for row in found.machines if row.targets} == {
        "Team=team-3": made.DIFFERENCES["price"], "Team=team-1": 0.0,
    }  # fmt: skip
    assert found.reasons.not_billed == found.reasons.hours == 0.0
    assert bill.ledger.unnamed_lines == 0


def test_the_same_export_twice(tmp_path: Path) -> None:
    one, other = write(tmp_path, cur(), "one.csv"), write(tmp_path, cur(), "other.csv.gz")
    twice = read(one, other)
    assert twice.ledger.repeated_lines > 1000
    assert against(twice).total == against(read(one)).total


def test_two_lines_that_a_number_is_given_to_twice_both_count(tmp_path: Path) -> None:
    # AWS promises unique numbers within a file alone
    rows = list(made.list_cur_rows((made.SAME, made.DEARER)))
    for row in rows:
        row["identity_line_item_id"] = "line1"
    found = against(read(write(tmp_path, made.write_csv(rows))), made.meter((made.SAME, made.DEARER)))
    assert found.reasons.price == made.DIFFERENCES["price"]


def test_a_scale_set_of_azure_is_billed_by_days_as_one(tmp_path: Path) -> None:
    group = "/subscriptions/ab/resourceGroups/MC/providers/Microsoft.Compute/virtualMachineScaleSets/gpus"
    nodes = (made.SAME, replace(made.SAME, number=9, metered=range(24, 168), billed=range(24, 168)))
    pieces = tuple(
        replace(piece, provider_id=f"azure://{group}/virtualMachines/{piece.node[5:]}") for piece in made.meter(nodes)
    )
    rows = []
    for row in made.list_focus_rows((made.SAME,), step=24):
        if row["ConsumedUnit"] == "Hours":
            machines = 1 if row["ChargePeriodStart"].startswith("2026-11-09") else 2
            usd = repr(machines * float(row["EffectiveCost"]))
            more = {
                "ConsumedQuantity": str(24 * machines),
                "EffectiveCost": usd,
                "BilledCost": usd,
                "ProviderName": "Microsoft",
            }
            rows.append({**row, **more, "ResourceId": group.upper()})
    found = against(read(write(tmp_path, made.write_csv(rows)), pieces=pieces), pieces)
    assert found.total.difference_usd == 0.0
    (row,) = found.machines
    assert (row.metered_gpu_hours, row.billed_hours) == (312 * 8, 312.0)
    assert not any(found.reasons.parts().values())


def test_unused_commitments_for_something_else_are_counted_beside(tmp_path: Path) -> None:
    rows = list(made.list_focus_rows((made.COVERED,)))
    begin = rows[0]
    unused = {"CommitmentDiscountStatus": "Unused", "ResourceId": "", "EffectiveCost": "7", "BilledCost": "0"}
    # half of what the plan covered in that hour is another service; a reservation of another type; one of which nothing is said
    rows.append({**begin, "SkuPriceDetails": "", "ResourceId": "lambda", "EffectiveCost": repr(168 * 20.0)})
    rows.append(
        {**begin, **unused, "SkuPriceDetails": '{"F_InstanceType": "m5.large"}', "CommitmentDiscountId": "ri-1"}
    )
    rows.append({**begin, **unused, "SkuPriceDetails": "", "CommitmentDiscountId": "plan-2"})
    found = against(read(write(tmp_path, made.write_csv(rows))), made.meter((made.COVERED,)))
    assert found.reasons.unused_commitments == 84.0
    assert (found.other_unused.lines, found.other_unused.effective_usd) == (169, pytest.approx(84.0 + 7.0))
    assert (found.unassigned.lines, found.unassigned.effective_usd) == (1, 7.0)
