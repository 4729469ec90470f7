"""A week as it was metered, and bills of it as clouds write them, with differences that are known to the cent.

Names of columns are those that are published: FOCUS 1.2 (https://focus.finops.org/focus-specification/v1-2/) and the dictionary of CUR 2.0
(https://docs.aws.amazon.com/cur/latest/userguide/table-dictionary-cur2.html).
"""

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from llm_serving_review.bills.review import add_bills
from llm_serving_review.evidence.usage import Evidence
from llm_serving_review.evidence.week import Week, parse_week
from llm_serving_review.figures.metered_hours import MeteredHour
from llm_serving_review.figures.review import Review, build_review
from llm_serving_review.settings.settings import BillSettings, Settings
from tests.support.builders.costevidence import WEEK

MONDAY = datetime(2026, 11, 9, tzinfo=UTC)
P5 = "p5.48xlarge"
# USD per GPU-hour
PRICE = 3.93
HOURS = range(168)
ACCOUNT = "111122223333"
LONG_AFTER = WEEK.end + 30 * 86400
PLAN = "arn:aws:savingsplans::111122223333:savingsplan/aaaa-bbbb"


@dataclass(frozen=True)
class Node:
    """A machine with eight GPUs, on both sides."""

    # the number of its id
    number: int
    # GPUs in use by target
    targets: Mapping[str, int]
    # hours of the week in which it was metered
    metered: Sequence[int] = HOURS
    # hours of the week in which it is billed
    billed: Sequence[int] = HOURS
    # metered, USD per GPU-hour after commitments
    price: float = PRICE
    # billed, USD per hour of the machine
    billed_price: float = 8 * PRICE
    # whether a savings plan covers it
    covered: bool = False

    @property
    def id(self) -> str:
        return f"i-{self.number:017x}"


MODELS = {"a:8000": "large", "b:8000": "small", "c:8000": "tiny"}
SAME = Node(1, {"a:8000": 8})
SHARED = Node(2, {"b:8000": 4, "c:8000": 4})
# 7 % dearer
DEARER = Node(3, {"a:8000": 8}, billed_price=8 * PRICE * 1.07)
# billed for an hour in which it was not metered
LONGER = Node(4, {"a:8000": 8}, metered=[hour for hour in HOURS if hour != 10])
NOT_BILLED = Node(5, {"b:8000": 8}, metered=range(24), billed=())
NOT_METERED = Node(6, {}, metered=(), billed=range(30, 40))
# six of eight GPUs in use
PARTLY = Node(7, {"c:8000": 6}, metered=range(48), billed=range(48))
COVERED = Node(8, {"a:8000": 8}, price=2.5, billed_price=20.0, covered=True)
NODES = (SAME, SHARED, DEARER, LONGER, NOT_BILLED, NOT_METERED, PARTLY, COVERED)
# USD by reason: worked out by hand from the lines above
DIFFERENCES = {
    "price": round(168 * 8 * 3.93 * 0.07, 2),
    "hours": round(8 * 3.93, 2),
    "not_billed": round(-24 * 8 * 3.93, 2),
    "not_metered": round(10 * 8 * 3.93, 2),
    "unused_gpus": round(48 * 2 * 3.93, 2),
    "unused_commitments": 168.0,
}
# USD of the plan that nothing used, an hour
UNUSED_AN_HOUR = 1.0


def meter(nodes: Sequence[Node] = NODES, week: Week = WEEK) -> tuple[MeteredHour, ...]:
    """What was metered, by UTC hour."""
    return tuple(
        MeteredHour(
            week.begin + 3600 * hour, (), target, MODELS[target], f"node-{node.number}", f"aws:///us-east-1a/{node.id}",
            "us-east-1", "us-east-1a", P5, "NVIDIA H100 80GB HBM3", "on-demand", float(gpus), gpus * node.price, gpus * node.price,
        )
        for node in nodes for target, gpus in node.targets.items() for hour in node.metered
    )  # fmt: skip


def write_time(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def _focus_row(begin: datetime, length: timedelta, **more: str) -> dict[str, str]:
    return {
        "AvailabilityZone": "us-east-1a", "BilledCost": "0", "BillingAccountId": "999", "BillingCurrency": "USD",
        "ChargeCategory": "Usage", "ChargeClass": "", "ChargeDescription": "per hour, on demand, with a \"quote\" and a comma",
        "ChargePeriodStart": write_time(begin), "ChargePeriodEnd": write_time(begin + length), "CommitmentDiscountId": "",
        "CommitmentDiscountStatus": "", "ConsumedQuantity": "", "ConsumedUnit": "", "EffectiveCost": "0", "PricingQuantity": "",
        "PricingUnit": "", "ProviderName": "AWS", "RegionId": "us-east-1", "ResourceId": "", "ServiceCategory": "Compute",
        "ServiceName": "Amazon Elastic Compute Cloud", "SkuPriceDetails": "", "SubAccountId": ACCOUNT, "Tags": "", **more,
    }  # fmt: skip


def list_focus_rows(nodes: Sequence[Node] = NODES, step: int = 1) -> Iterator[dict[str, str]]:
    """Lines of FOCUS 1.2, `step` hours each, and what is no usage beside them."""
    length = timedelta(hours=step)
    details = json.dumps({"F_InstanceType": P5, "F_GpuCount": 8})
    for node in nodes:
        for begin in range(0, 168, step):
            count = sum(begin <= hour < begin + step for hour in node.billed)
            if not count:
                continue
            usd = count * node.billed_price
            yield _focus_row(
                MONDAY + timedelta(hours=begin), length, ResourceId=f"arn:aws:ec2:us-east-1:{ACCOUNT}:instance/{node.id}",
                EffectiveCost=repr(usd), BilledCost="0" if node.covered else repr(usd), ConsumedQuantity=str(count), ConsumedUnit="Hours",
                SkuPriceDetails=details, Tags=json.dumps({"user:Team": f"team-{node.number}"}),
                CommitmentDiscountId=PLAN if node.covered else "", CommitmentDiscountStatus="Used" if node.covered else "",
            )  # fmt: skip
    for begin in range(0, 168, step):
        at = MONDAY + timedelta(hours=begin)
        unused = repr(UNUSED_AN_HOUR * step)
        yield _focus_row(
            at,
            length,
            EffectiveCost=unused,
            ServiceCategory="Other",
            CommitmentDiscountId=PLAN,
            CommitmentDiscountStatus="Unused",
        )
        yield _focus_row(at, length, ChargeCategory="Purchase", BilledCost=repr(21.0 * step), CommitmentDiscountId=PLAN)
    first = MONDAY + timedelta(hours=1)
    for category, usd in (("Tax", "1.5E+2"), ("Credit", "-75.25"), ("Adjustment", "-4e1")):
        yield _focus_row(first, length, ChargeCategory=category, EffectiveCost=usd, BilledCost=usd)
    # a refund of this month, and what corrects an earlier one
    refund = {"EffectiveCost": "-123.45", "BilledCost": "-123.45", "ResourceId": SAME.id, "SkuPriceDetails": details}
    yield _focus_row(first, length, **refund)
    yield _focus_row(first, length, **refund, ChargeClass="Correction")
    # network of a machine, and another service
    yield _focus_row(
        first,
        length,
        ResourceId=SAME.id,
        EffectiveCost="0.5",
        BilledCost="0.5",
        ConsumedUnit="GB",
        ConsumedQuantity="50",
    )
    yield _focus_row(
        first, length, ResourceId="bucket", EffectiveCost="9.5", BilledCost="9.5", ServiceCategory="Storage"
    )
    # of the month before
    yield _focus_row(
        MONDAY - timedelta(days=20), length, EffectiveCost="1000", BilledCost="1000", SkuPriceDetails=details
    )


CUR_COLUMNS = (
    "bill_payer_account_id", "identity_line_item_id", "identity_time_interval", "line_item_currency_code", "line_item_line_item_type",
    "line_item_line_item_description", "line_item_product_code", "line_item_resource_id", "line_item_unblended_cost",
    "line_item_usage_account_id", "line_item_usage_amount", "line_item_usage_end_date", "line_item_usage_start_date",
    "line_item_usage_type", "pricing_unit", "product", "product_instance_type", "reservation_effective_cost",
    "reservation_reservation_a_r_n", "reservation_unused_amortized_upfront_fee_for_billing_period", "reservation_unused_recurring_fee",
    "resource_tags", "savings_plan_savings_plan_a_r_n", "savings_plan_savings_plan_effective_cost",
    "savings_plan_total_commitment_to_date", "savings_plan_used_commitment", "split_line_item_parent_resource_id",
    "split_line_item_split_cost",
)  # fmt: skip


def _cur_row(number: int, begin: datetime, length: timedelta, kind: str, **more: str) -> dict[str, str]:
    interval = f"{write_time(begin)}/{write_time(begin + length)}"
    return {
        **dict.fromkeys(CUR_COLUMNS, ""),
        "identity_line_item_id": f"line{number}", "identity_time_interval": interval, "line_item_currency_code": "USD",
        "line_item_line_item_type": kind, "line_item_usage_start_date": write_time(begin), "line_item_unblended_cost": "0",
        "line_item_usage_end_date": write_time(begin + length), "line_item_usage_account_id": ACCOUNT,
        "line_item_line_item_description": "$31.44 per On Demand Linux p5.48xlarge, hourly", **more,
    }  # fmt: skip


def list_cur_rows(nodes: Sequence[Node] = NODES) -> Iterator[dict[str, str]]:
    """Lines of CUR 2.0, an hour each, with every type of line that EC2 has."""
    hour = timedelta(hours=1)
    number = 0
    machine = {
        "line_item_usage_type": f"USE1-BoxUsage:{P5}", "pricing_unit": "Hrs", "line_item_usage_amount": "1.0",
        "product_instance_type": P5, "product": json.dumps({"gpu": "8", "instance_type": P5}), "line_item_product_code": "AmazonEC2",
    }  # fmt: skip
    for node in nodes:
        for at in node.billed:
            number += 1
            begin = MONDAY + timedelta(hours=at)
            own = {
                "line_item_resource_id": node.id,
                "resource_tags": json.dumps({"user_team": f"team-{node.number}"}),
                **machine,
            }
            if not node.covered:
                yield _cur_row(number, begin, hour, "Usage", line_item_unblended_cost=repr(node.billed_price), **own)
                continue
            plan = {"savings_plan_savings_plan_a_r_n": PLAN}
            yield _cur_row(
                number, begin, hour, "SavingsPlanCoveredUsage", line_item_unblended_cost="31.44", **own, **plan,
                savings_plan_savings_plan_effective_cost=repr(node.billed_price),
            )  # fmt: skip
            yield _cur_row(
                number + 10_000, begin, hour, "SavingsPlanNegation", line_item_unblended_cost="-31.44", **plan, **own
            )
    for at in HOURS:
        yield _cur_row(
            20_000 + at, MONDAY + timedelta(hours=at), hour, "SavingsPlanRecurringFee", line_item_unblended_cost="21.0",
            savings_plan_savings_plan_a_r_n=PLAN, savings_plan_total_commitment_to_date="21.0", savings_plan_used_commitment="20.0",
        )  # fmt: skip
    first = MONDAY + timedelta(hours=1)
    for index, (kind, usd) in enumerate(
        (
            ("Tax", "1.5E+2"), ("Credit", "-75.25"), ("Refund", "-123.45"), ("Fee", "12"), ("EdpDiscount", "-4e1"),
            ("BundledDiscount", "-1"), ("PrivateRateDiscount", "-2"), ("SavingsPlanUpfrontFee", "5000"),
        )
    ):  # fmt: skip
        yield _cur_row(
            30_000 + index, first, hour, kind, line_item_unblended_cost=usd, line_item_resource_id=SAME.id, **machine
        )
    # split cost allocation: a pod of a machine, which says again what its machine costs
    yield _cur_row(
        40_000, first, hour, "Usage", line_item_resource_id=f"arn:aws:eks:us-east-1:{ACCOUNT}:pod/x", line_item_unblended_cost="",
        split_line_item_parent_resource_id=SAME.id, split_line_item_split_cost="31.44", **machine,
    )  # fmt: skip
    # network of a machine, and another service
    yield _cur_row(
        40_001, first, hour, "Usage", line_item_resource_id=SAME.id, line_item_unblended_cost="0.5", pricing_unit="GB",
        line_item_usage_type="USE1-DataTransfer-Out-Bytes", line_item_usage_amount="50",
    )  # fmt: skip
    yield _cur_row(
        40_002,
        first,
        hour,
        "Usage",
        line_item_resource_id="bucket",
        line_item_unblended_cost="9.5",
        line_item_usage_type="TimedStorage",
    )
    yield _cur_row(40_003, MONDAY - timedelta(days=20), hour, "Usage", line_item_unblended_cost="1000", **machine)


def write_csv(rows: Iterator[dict[str, str]] | Sequence[dict[str, str]], end: str = "\r\n") -> str:
    """As a program writes it."""
    every = list(rows)
    out = io.StringIO()
    writer = csv.DictWriter(out, list(every[0]), lineterminator=end)
    writer.writeheader()
    writer.writerows(every)
    return out.getvalue()


def spell_as_older_report(text: str) -> str:
    """The header of CUR 2.0 as reports before it have it: lineItem/UnblendedCost."""
    heads = {
        "bill": "bill", "identity": "identity", "line_item": "lineItem", "pricing": "pricing", "reservation": "reservation",
        "savings_plan": "savingsPlan", "split_line_item": "splitLineItem",
    }  # fmt: skip
    header, rest = text.split("\n", 1)
    names = []
    for name in header.rstrip("\r").split(","):
        head = next((one for one in heads if name.startswith(f"{one}_")), None)
        if name.startswith("product_"):
            names.append("product/instanceType")
        elif head is None:
            names.append(name)
        else:
            words = name.removeprefix(f"{head}_").split("_")
            names.append(f"{heads[head]}/{''.join(word.capitalize() for word in words)}")
    return ",".join(names) + "\n" + rest


def in_zone(zone: str) -> Week:
    """The same week in another zone."""
    from zoneinfo import ZoneInfo

    return parse_week("2026-W46", ZoneInfo(zone))


def write_bill(folder: Path, rows: Iterable[Mapping[str, str]], name: str = "bill.csv") -> Path:
    """A file of these lines."""
    path = folder / name
    path.write_text(write_csv(rows))
    return path


def review_bill(evidence: Evidence, path: Path, now: float = LONG_AFTER, **settings: object) -> Review:
    """The review of the evidence with a bill, of which nothing may change any more by then."""
    asked = Settings(bills=BillSettings((str(path),), **settings))
    return add_bills(build_review(evidence, asked), evidence, asked, now, lambda text: None)


def drop_other_lines(rows: Iterable[dict[str, str]]) -> list[dict[str, str]]:
    """Lines of FOCUS about machines alone."""
    return [row for row in rows if row["ResourceId"].startswith("arn:")]
