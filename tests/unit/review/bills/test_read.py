"""Reading bills: what is damaged is named with file, line, column and what to do, and nothing ends in a traceback."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import random
import re
import sys
import zipfile
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path

import pytest

from llm_serving_review.bills.charge import (
    BillError,
    Charge,
    Kind,
    counts_time,
    name_gcp_instance,
    normalise_resource,
    read_time,
    read_usage_type,
)
from llm_serving_review.bills.files import find_bill_files, read_parquet_rows
from llm_serving_review.bills.formats import spell_cur
from llm_serving_review.bills.ledger import REST, Ledger, Period, Scope, Sum, find_period
from llm_serving_review.bills.read import Bill, read_bill
from llm_serving_review.settings.settings import BillSettings
from tests.support.builders import bills as made
from tests.support.builders.costevidence import WEEK
from tests.support.rows import check_rows

ONE = (made.SAME,)


def read(*paths: Path, **settings: object) -> Bill:
    return read_bill(BillSettings(tuple(map(str, paths)), **settings), WEEK, (), lambda text: None)


def rows(count: int = 5) -> list[dict[str, str]]:
    return list(made.list_focus_rows(ONE))[:count]


def write(folder: Path, content: str | bytes, name: str = "bill.csv") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def spent(bill: Bill) -> float:
    return sum(sum(machine.effective) for machine in bill.ledger.machines.values())


@check_rows(
    ("column", "value", "said"),
    [
        ("EffectiveCost", "", "line 3, column EffectiveCost: the amount is empty. Export the bill again, with this column filled."),
        ("EffectiveCost", "1,5", 'line 3, column EffectiveCost: "1,5" is not an amount. Write a plain number with a point, as in -12.5.'),
        ("BilledCost", "nan", 'line 3, column BilledCost: "nan" is not an amount.'),
        ("BilledCost", "1_000", 'line 3, column BilledCost: "1_000" is not an amount.'),
        ("EffectiveCost", "$3", 'line 3, column EffectiveCost: "$3" is not an amount.'),
        ("ChargePeriodStart", "soon", 'line 3, column ChargePeriodStart: "soon" is not a time. Write it as in 2026-11-16T00:00:00Z.'),
        ("ChargePeriodEnd", "2026-11-09T00:00:00Z", "line 3, column ChargePeriodEnd: the period ends before it begins."),
        ("ChargeCategory", "Usage!", 'line 3, column ChargeCategory: "Usage!" is no category of FOCUS.'),
        ("BillingCurrency", "", "line 3, column BillingCurrency: the currency is empty."),
    ],
)  # fmt: skip
def test_a_bad_cell_leaves_its_line_out(tmp_path: Path, column: str, value: str, said: str) -> None:
    every = rows()
    every[1][column] = value
    bill = read(write(tmp_path, made.write_csv(every)))
    assert (bill.lines, bill.fault_count) == (5, 1)
    assert said in str(bill.faults[0])
    assert str(bill.faults[0]).startswith(str(tmp_path))
    assert spent(bill) == pytest.approx(4 * 31.44)


def test_another_currency_refuses_the_bill(tmp_path: Path) -> None:
    every = rows()
    every[3]["BillingCurrency"] = "EUR"
    with pytest.raises(
        BillError, match=r'bill\.csv, line 5, column BillingCurrency: the bill is in "EUR", not in USD\. Only bills'
    ):
        read(write(tmp_path, made.write_csv(every)))


def test_cells_that_are_odd_and_right(tmp_path: Path) -> None:
    every = rows()
    every[0]["EffectiveCost"] = "3.144E+1"
    every[1]["ChargePeriodStart"], every[1]["ChargePeriodEnd"] = (
        "2026-11-09 01:00:00 UTC",
        "2026-11-09T03:00:00.000+01:00",
    )
    every[2]["ChargePeriodStart"], every[2]["ChargePeriodEnd"] = "2026-11-09T02:00Z", "2026-11-09 03:00:00"
    every[3]["ChargeClass"] = "NULL"
    every[4]["ConsumedQuantity"] = "lots"
    every[4]["ChargeDescription"] = 'a "quote", a comma\r\nand a line'
    bill = read(write(tmp_path, made.write_csv(every) + "\r\n\r\n" + "," * (len(every[0]) - 1) + "\r\n"))
    assert bill.fault_count == 0
    assert spent(bill) == pytest.approx(5 * 31.44)
    assert bill.ledger.machines[made.SAME.id].counts_hours is False


def test_a_file_that_is_cut_in_the_middle(tmp_path: Path) -> None:
    text = made.write_csv(rows())
    bill = read(write(tmp_path, text[: len(text) - 200]))
    assert (
        "cells, the header 24. Export the file again: it seems to be cut." in str(bill.faults[0])
        or bill.fault_count == 1
    )
    assert spent(bill) == pytest.approx(4 * 31.44)
    packed = gzip.compress(made.write_csv(made.list_focus_rows()).encode())
    bill = read(write(tmp_path, packed[: len(packed) // 2], "bill.csv.gz"))
    assert "the packed file ends in the middle or is damaged. Fetch it again." in str(bill.faults[-1])
    assert bill.lines > 100


def zipped(files: Mapping[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, content in files.items():
            packed.writestr(name, content)
    return out.getvalue()


@check_rows(
    ("name", "pack"),
    [
        # of older AWS reports, one file in each
        ("report-00001.csv.zip", lambda text: zipped({"report-00001.csv": text.encode()})),
        ("bill.csv.bz2", lambda text: bz2.compress(text.encode())),
        ("bill.csv.gz", lambda text: gzip.compress(gzip.compress(text.encode()))),
        ("bill.csv.xz", lambda text: lzma.compress(text.encode())),
        # as a spreadsheet saves it
        ("bill.csv", lambda text: text.replace(",", "\t").encode("utf-16")),
        ("bill.tsv", lambda text: text.replace(",", "\t").encode()),
        ("bill.csv", lambda text: text.replace(",", ";").encode("utf-8-sig")),
        # two files of an export, one behind the other
        ("bill.csv", lambda text: (text + text.split("\r\n")[0] + "\r\n").encode()),
    ],
)  # fmt: skip
def test_however_it_is_packed_and_written(tmp_path: Path, name: str, pack: Callable[[str], bytes]) -> None:
    every = [
        {**row, "ChargeDescription": "", "Tags": "", "SkuPriceDetails": "", "x_InstanceType": made.P5} for row in rows()
    ]
    write(tmp_path, pack(made.write_csv(every)), name)
    bill = read(tmp_path)
    assert bill.fault_count == 0
    assert spent(bill) == pytest.approx(5 * 31.44)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (zipped({"a.csv": b"x", "b.csv": b"y"}), "bill.csv: the zip file has 2 files in it, not one. Unpack it, and give the folder."),
        (zipped({"[Content_Types].xml": b"x", "xl/workbook.xml": b"y"}), "bill.csv: the file is a workbook of a spreadsheet program. Save"),
        (b"\x28\xb5\x2f\xfd" + bytes(9), "bill.csv: the file is packed with zstd. Unpack it, or pack it with gzip."),
    ],
)  # fmt: skip
def test_what_cannot_be_unpacked_says_why(tmp_path: Path, content: bytes, said: str) -> None:
    with pytest.raises(BillError, match=re.escape(said)):
        read(write(tmp_path, content))


@check_rows("pack", [gzip.compress, bz2.compress, lzma.compress, lambda data: zipped({"a.csv": data})])
def test_a_packed_file_that_is_cut_is_named(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    packed = pack(made.write_csv(made.list_focus_rows()).encode())
    bill = read(write(tmp_path, packed[: len(packed) // 2]))
    assert "the packed file ends in the middle or is damaged. Fetch it again." in str(bill.faults[0])


@check_rows(
    ("content", "said"),
    [
        (b"name,amount\n1,2\n", "line 1: the header is neither that of FOCUS nor that of AWS CUR 2.0: it begins with name and amount"),
        (b"ChargePeriodStart,EffectiveCost\n", "line 1: the columns ChargePeriodEnd, BillingCurrency, BilledCost and ChargeCategory are"),
        (b"line_item_line_item_type\n", "line 1: the columns line_item_usage_start_date, line_item_usage_end_date"),
        (b"\xff\xfe\x00C\x00h", "neither that of FOCUS"),
        (b"\x89PNG\r\n\x1a\n" + bytes(200), "neither that of FOCUS"),
    ],
)  # fmt: skip
def test_a_file_of_something_else(tmp_path: Path, content: bytes, said: str) -> None:
    with pytest.raises(BillError, match=re.escape(said)):
        read(write(tmp_path, content))


def test_an_empty_file_and_one_without_line_ends(tmp_path: Path) -> None:
    bill = read(write(tmp_path, b""), write(tmp_path, b"x" * 3 * 2**20, "long.csv"))
    assert [fault.what for fault in bill.faults] == [
        "the file is empty",
        "the line is longer than 1 MiB",
        "the file is empty",
    ]


def test_a_quote_that_is_never_closed_costs_its_lines_alone(tmp_path: Path) -> None:
    text = made.write_csv(made.list_focus_rows(), "\n")
    begin, *rest = text.splitlines()
    bill = read(write(tmp_path, "\n".join([begin, rest[0], '"' + rest[1], *rest[2:]])))
    assert bill.fault_count >= 1
    assert bill.ledger.machines


def test_faults_beyond_the_first_are_counted(tmp_path: Path) -> None:
    every = list(made.list_focus_rows(ONE))
    for row in every[:50]:
        row["EffectiveCost"] = "x"
    bill = read(write(tmp_path, made.write_csv(every)))
    assert (len(bill.faults), bill.fault_count) == (10, 50)


def test_a_covered_line_without_the_columns_of_its_plan_says_which(tmp_path: Path) -> None:
    every = list(made.list_cur_rows((made.COVERED,)))
    for row in every:
        del row["savings_plan_savings_plan_effective_cost"]
    bill = read(write(tmp_path, made.write_csv(every)))
    assert bill.fault_count == 168
    assert (
        "column savings_plan_savings_plan_effective_cost: a line of the type SavingsPlanCoveredUsage needs this column. "
        "Add it to the export." in str(bill.faults[0])
    )


def test_the_preview_of_focus_has_other_names_for_the_same(tmp_path: Path) -> None:
    """Columns and values as FOCUS 1.0-preview has them, in which Azure exports too."""
    names = {
        "CommitmentDiscountStatus": "ChargeSubcategory",
        "ConsumedQuantity": "UsageQuantity",
        "ConsumedUnit": "UsageUnit",
    }
    values = {"Used": "Used Commitment", "Unused": "Unused Commitment"}
    every = [row for row in made.list_focus_rows((made.SAME, made.COVERED)) if not row["ChargeClass"]]
    earlier = [
        {names.get(name, name): values.get(value, value) for name, value in row.items() if name != "ChargeClass"}
        for row in every
    ]
    now, then = (read(write(tmp_path, made.write_csv(one))).ledger for one in (every, earlier))
    assert sum(sum(one.unused) for one in then.commitments.values()) == pytest.approx(168.0)
    assert then.commitments == now.commitments
    assert then.machines == now.machines
    assert then.beside == now.beside


def test_reservations_of_cur(tmp_path: Path) -> None:
    used, fee = list(made.list_cur_rows(ONE))[:2]
    used |= {"line_item_line_item_type": "DiscountedUsage", "reservation_effective_cost": "18.5", "line_item_unblended_cost": "0",
             "reservation_reservation_a_r_n": "arn:ri"}  # fmt: skip
    fee |= {
        "line_item_line_item_type": "RIFee", "line_item_usage_type": f"HeavyUsage:{made.P5}", "reservation_reservation_a_r_n": "arn:ri",
        "line_item_usage_start_date": "2026-11-01T00:00:00Z", "line_item_usage_end_date": "2026-12-01T00:00:00Z",
        "reservation_unused_amortized_upfront_fee_for_billing_period": "300", "reservation_unused_recurring_fee": "420",
        "line_item_unblended_cost": "9999",
    }  # fmt: skip
    bill = read(write(tmp_path, made.write_csv([used, fee])))
    assert spent(bill) == 18.5
    (reservation,) = bill.ledger.commitments.values()
    # a month of 720 h, of which the week has 168
    assert sum(reservation.unused) == pytest.approx(720 * 168 / 720)
    assert reservation.instance_type == made.P5


def test_after_discounts_where_cur_has_net_columns(tmp_path: Path) -> None:
    """Names as in AWS's dictionary of CUR 2.0; an EDP of 10 %, on a line as its net cost and as a line of its own, counts once."""
    plain, reserved, fee, discount = ({**row} for row in list(made.list_cur_rows(ONE))[:4])
    (covered,) = list(made.list_cur_rows((made.COVERED,)))[:1]
    net = dict.fromkeys(
        (
            "line_item_net_unblended_cost", "savings_plan_net_savings_plan_effective_cost", "reservation_net_effective_cost",
            "reservation_net_unused_amortized_upfront_fee_for_billing_period", "reservation_net_unused_recurring_fee",
        ),
        "",
    )  # fmt: skip
    plain |= {**net, "line_item_unblended_cost": "10", "line_item_net_unblended_cost": "9"}
    reserved |= {
        **net, "line_item_line_item_type": "DiscountedUsage", "line_item_unblended_cost": "0", "line_item_net_unblended_cost": "0",
        "reservation_effective_cost": "20", "reservation_net_effective_cost": "18", "reservation_reservation_a_r_n": "arn:ri",
    }  # fmt: skip
    covered |= {
        **net, "savings_plan_savings_plan_effective_cost": "30", "savings_plan_net_savings_plan_effective_cost": "27",
    }  # fmt: skip
    fee |= {
        **net, "line_item_line_item_type": "RIFee", "line_item_usage_type": f"HeavyUsage:{made.P5}",
        "reservation_reservation_a_r_n": "arn:ri",
        "reservation_unused_amortized_upfront_fee_for_billing_period": "0", "reservation_unused_recurring_fee": "100",
        "reservation_net_unused_recurring_fee": "90", "line_item_unblended_cost": "100",
    }  # fmt: skip
    discount |= {**net, "line_item_line_item_type": "EdpDiscount", "line_item_unblended_cost": "-6"}
    bill = read(write(tmp_path, made.write_csv([plain, reserved, covered, fee, discount])))
    assert bill.fault_count == 0
    assert spent(bill) == 9 + 18 + 27
    (reservation,) = [one for name, one in bill.ledger.commitments.items() if "arn:ri" in str(name)]
    assert sum(reservation.unused) == pytest.approx(90)
    assert bill.ledger.beside[Kind.DISCOUNT] == Sum(1, 0.0, 0.0)
    assert (bill.cur_files, bill.net_files) == (1, 1)
    # without the first of them nothing is read net, or a sum would be of both
    for row in (plain, reserved, covered, fee, discount):
        del row["line_item_net_unblended_cost"]
    gross = read(write(tmp_path, made.write_csv([plain, reserved, covered, fee, discount])))
    assert spent(gross) == 10 + 20 + 30
    assert gross.ledger.beside[Kind.DISCOUNT].effective_usd == -6
    assert (gross.cur_files, gross.net_files) == (1, 0)


def test_only_the_accounts_and_types_of_the_settings_are_compared(tmp_path: Path) -> None:
    path = write(tmp_path, made.write_csv(rows()))
    assert not read(path, accounts=("444",)).ledger.machines
    assert read(path, accounts=(made.ACCOUNT,)).ledger.machines
    azure = write(tmp_path, made.write_csv(rows()).replace(made.ACCOUNT, "/subscriptions/Ab-1"), "azure.csv")
    assert read(azure, accounts=("ab-1",)).ledger.machines
    other = read(path, instance_types=("g6.*",))
    assert not other.ledger.machines
    assert other.ledger.others.effective_usd == pytest.approx(5 * 31.44)


def test_progress_is_said_while_a_bill_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llm_serving_review.bills.read._PROGRESS_SECONDS", 0.0)
    monkeypatch.setattr("llm_serving_review.bills.read._LINES_BETWEEN", 100)
    said: list[str] = []
    path = write(tmp_path, made.write_csv(made.list_focus_rows(ONE)))
    read_bill(BillSettings((str(path),)), WEEK, (), said.append)
    assert said[0] == "reading bills: bill.csv, file 1 of 1, 100 lines"


def test_machines_beyond_the_bound_are_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llm_serving_review.bills.ledger.MOST_MACHINES", 2)
    nodes = [made.Node(number, {}) for number in range(5)]
    bill = read(write(tmp_path, made.write_csv(made.list_focus_rows(nodes))))
    assert set(bill.ledger.machines) == {nodes[0].id, nodes[1].id, REST}
    assert spent(bill) == pytest.approx(5 * 168 * 31.44)


def test_parquet_is_as_csv(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="the extra bills-parquet is not installed")
    from pyarrow import parquet

    every = list(made.list_focus_rows())
    table = pyarrow.table({name: [row[name] for row in every] for name in every[0]})
    for name in ("EffectiveCost", "BilledCost"):
        position = table.schema.get_field_index(name)
        table = table.set_column(position, name, table[name].cast(pyarrow.float64()))
    for name in ("ChargePeriodStart", "ChargePeriodEnd"):
        position = table.schema.get_field_index(name)
        moments = [read_time(row[name]) for row in every]
        values = pyarrow.array([int(1e3 * moment) for moment in moments], pyarrow.int64()).cast(pyarrow.timestamp("ms"))
        table = table.set_column(position, name, values)
    path = tmp_path / "bill.parquet"
    parquet.write_table(table, path, row_group_size=500)
    by_csv = read(write(tmp_path, made.write_csv(every))).ledger
    by_parquet = read(path).ledger
    assert {key: list(one.effective) for key, one in by_parquet.machines.items()} == {
        key: list(one.effective) for key, one in by_csv.machines.items()
    }
    pairs = [[(key, str(value)) for key, value in json.loads(row["SkuPriceDetails"] or "{}").items()] for row in every]
    details = pyarrow.array(pairs, pyarrow.map_(pyarrow.string(), pyarrow.string()))
    position = table.schema.get_field_index("SkuPriceDetails")
    parquet.write_table(table.set_column(position, "SkuPriceDetails", details), path, row_group_size=500)
    assert read(path).ledger.machines[made.SAME.id].gpus == 8.0
    content = path.read_bytes()
    with pytest.raises(BillError, match=r"the Parquet file is damaged: .*\. Fetch it again\."):
        read(write(tmp_path, content[:2000], "cut.parquet"))


def test_parquet_without_its_extra_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(BillError, match=r"Install llm-serving-exporter\[bills-parquet\], or export as CSV\."):
        list(read_parquet_rows(str(write(tmp_path, b"PAR1")), [].append))


def test_of_an_exports_versions_the_newest_is_read(tmp_path: Path) -> None:
    text = made.write_csv(rows())
    for month in ("BILLING_PERIOD=2026-11", "20261101-20261201"):
        for version in ("20261110T000000Z-aa", "20261112T000000Z-bb", "20261111T000000Z-cc"):
            write(tmp_path, text, f"{month}/{version}/x-00001.csv")
    found = find_bill_files([str(tmp_path)])
    assert [Path(path).parent.name for path in found.paths] == ["20261112T000000Z-bb"] * 2
    assert len(found.older) == 4


def test_files_are_found_once_and_what_is_missing_is_said(tmp_path: Path) -> None:
    path = write(tmp_path, "x", "a/one.csv")
    write(tmp_path, "x", "a/readme.txt")
    assert find_bill_files([str(path), str(tmp_path), str(tmp_path / "**" / "*.csv")]).paths == (str(path.resolve()),)
    for pattern, what in (
        ("none.csv", "no file has this name"),
        ("*.parquet", "no file fits"),
        ("b", "the folder has no bill"),
    ):
        (tmp_path / "b").mkdir(exist_ok=True)
        with pytest.raises(BillError, match=what):
            find_bill_files([str(tmp_path / pattern)])


@check_rows(
    ("here", "there"),
    [
        ("aws:///us-east-1a/i-0abcdef0123456789", "arn:aws:ec2:us-east-1:111122223333:instance/i-0abcdef0123456789"),
        ("aws:///us-east-1a/i-0abcdef0123456789", "i-0abcdef0123456789"),
        ("gce://my-project/us-central1-a/gke-a-1", "//compute.googleapis.com/projects/123456/zones/us-central1-a/instances/gke-a-1"),
        (
            "gce://p/us-central1-a/gke-a-1",
            name_gcp_instance("//compute.googleapis.com/projects/1/zones/us-central1-a/instances/83747583", "gke-a-1"),
        ),
        (
            "azure:///subscriptions/AB/resourceGroups/MC_x/providers/Microsoft.Compute/virtualMachines/aks-1",
            "/subscriptions/ab/resourcegroups/mc_X/providers/microsoft.compute/virtualmachines/AKS-1",
        ),
        (
            "azure:///subscriptions/ab/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/s/virtualMachines/12",
            "/subscriptions/ab/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/s",
        ),
        ("oci://ocid1.instance.oc1.iad.anuwcljtabc", "ocid1.instance.oc1.iad.anuwcljtabc"),
    ],
)  # fmt: skip
def test_names_of_machines_on_both_sides(here: str, there: str) -> None:
    assert normalise_resource(here) == normalise_resource(there) != ""


def test_types_of_instances_with_gpus() -> None:
    for name in (
        "p5.48xlarge", "p4d.24xlarge", "p5en.48xlarge", "p6-b200.48xlarge", "g5.xlarge", "g6e.48xlarge", "gr6.4xlarge", "g4dn.metal",
        "a3-highgpu-8g", "g2-standard-24", "a4x-highgpu-4g", "Standard_ND96isr_H100_v5", "Standard_NC24ads_A100_v4",
    ):  # fmt: skip
        assert Scope().cover_instance(name), name
    for name in (
        "m5.large",
        "c7g.large",
        "r6g.large",
        "a1.large",
        "n2-standard-8",
        "Standard_D4s_v5",
        "t4g.micro",
        "inf2.xlarge",
    ):
        assert not Scope().cover_instance(name), name


def test_usage_types_of_ec2() -> None:
    assert read_usage_type("USE1-BoxUsage:p5.48xlarge") == "p5.48xlarge"
    assert read_usage_type("BoxUsage") == "m1.small"
    assert read_usage_type("EUC1-SpotUsage:g6e.xlarge") == "g6e.xlarge"
    assert read_usage_type("USE1-EBSOptimized:p3.2xlarge") is None
    assert read_usage_type("USE1-DataTransfer-Out-Bytes") is None


def test_older_reports_names_of_columns() -> None:
    # https://docs.aws.amazon.com/cur/latest/userguide/data-dictionary.html against the names of CUR 2.0
    assert [spell_cur(name) for name in (
        "lineItem/UnblendedCost", "savingsPlan/SavingsPlanARN", "reservation/UnusedAmortizedUpfrontFeeForBillingPeriod",
        "product/instanceType", "identity/LineItemId", "resourceTags/user:Team", "line_item_usage_amount",
    )] == [
        "line_item_unblended_cost", "savings_plan_savings_plan_a_r_n",
        "reservation_unused_amortized_upfront_fee_for_billing_period", "product_instance_type", "identity_line_item_id",
        "resource_tags_user_team", "line_item_usage_amount",
    ]  # fmt: skip


def test_units_of_time() -> None:
    assert all(
        counts_time(unit) for unit in ("Hours", "Hrs", "hour", "gibibyte hour", "seconds", "1 Hour", "byte-seconds")
    )
    assert not any(counts_time(unit) for unit in ("GB", "Requests", "gibibyte month", "GB-Mo", ""))


@check_rows("seed", range(40))
def test_no_damage_ends_in_a_traceback(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    text = made.write_csv(list(made.list_cur_rows(ONE))[:40] if seed % 2 else rows(40))
    content = bytearray(text.encode())
    if seed % 4 >= 2:
        content = bytearray(gzip.compress(bytes(content)))
    for _ in range(chance.randint(1, 12)):
        at = chance.randrange(len(content))
        what = chance.choice(["flip", "cut", "quote", "null", "comma", "repeat"])
        if what == "cut":
            del content[at : at + chance.randint(1, 400)]
        elif what == "repeat":
            content[at:at] = content[max(0, at - 300) : at]
        else:
            content[at] = {"flip": chance.randrange(256), "quote": 34, "null": 0, "comma": 44}[what]
        if not content:
            break
    path = write(tmp_path, bytes(content), "bill.csv.gz" if seed % 4 >= 2 else "bill.csv")
    said, ledger = _read_or_refuse(path)
    assert ledger is not None or said
    assert all(one.startswith(str(path)) and one.endswith(".") for one in said)


def _read_or_refuse(path: Path) -> tuple[list[str], Ledger | None]:
    try:
        bill = read(path)
    except BillError as error:
        return [str(error)], None
    return [str(fault) for fault in bill.faults], bill.ledger


def test_a_month_whose_file_is_missing_is_not_compared_with_nothing() -> None:
    """Lines of September and November say nothing of a week in October; those of the days around a quiet hour do."""

    def find(*begins: tuple[int, int, int]) -> Period | None:
        ledger = Ledger(WEEK, Scope())
        for month, day, hour in begins:
            begin = datetime(2026, month, day, hour, tzinfo=UTC).timestamp()
            ledger.add(
                Charge(Kind.USAGE, begin, begin + 3600, 1.0, 1.0, "i-1", "p5.48xlarge", "", "", 1.0, 8.0, True, "")
            )
        return find_period(ledger, WEEK)

    assert find((9, 30, 0), (12, 1, 0)) is None
    # 9 to 15 November are the week
    part = find((9, 30, 0), (11, 13, 0), (11, 15, 23))
    assert (part.begin, part.hours) == (datetime(2026, 11, 13, tzinfo=UTC).timestamp(), 72.0)
    whole = find((11, 8, 12), (11, 10, 0), (11, 15, 0), (11, 16, 3))
    assert (whole.begin, whole.end) == (WEEK.begin, WEEK.end)
