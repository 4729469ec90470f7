"""FOCUS 1.0-preview to 1.2: a line -> a charge.

Columns and what they mean: https://focus.finops.org/focus-specification/ and, column by column,
https://github.com/FinOps-Open-Cost-and-Usage-Spec/FOCUS_Spec/tree/v1.2/specification/columns.

- EffectiveCost is compared; BilledCost stands beside it. A purchase has an EffectiveCost of 0, because what it covers has its parts.
- ChargeCategory says what a line is about; ChargeClass "Correction" marks what corrects a bill of an earlier period. Usage and purchases
  include refunds, which are negative.
- CommitmentDiscountStatus "Unused" marks what of a commitment nothing used.
- 1.0-preview, which Azure still exports, has ChargeSubcategory ("Unused Commitment") and UsageQuantity instead:
  https://github.com/FinOps-Open-Cost-and-Usage-Spec/FOCUS_Spec/blob/v1.0-preview/specification/columns/chargesubcategory.md
- A bill in another currency is read by x_EffectiveCostInUsd and x_BilledCostInUsd, which Azure's have:
  https://learn.microsoft.com/azure/cost-management-billing/dataset-schema/cost-usage-details-focus
- The type of an instance stands in SkuPriceDetails (F_InstanceType, from 1.1 on) or in columns of the cloud's own, which begin with x_.
"""

from __future__ import annotations

from collections.abc import Mapping

from llm_serving_exporter.settings.problems import shown
from llm_serving_review.bills.cells import (
    Remembered,
    Row,
    counts_hours,
    counts_time,
    read_map,
    read_period,
    read_quantity,
    read_usd,
)
from llm_serving_review.bills.charge import Charge, CurrencyError, Kind, LineError
from llm_serving_review.bills.columns import ABSENT, Columns
from llm_serving_review.bills.instances import read_usage_type
from llm_serving_review.bills.resources import find_cloud_of_provider, name_gcp_instance

_NEEDED = {
    name.lower(): name
    for name in ("ChargePeriodStart", "ChargePeriodEnd", "BillingCurrency", "EffectiveCost", "BilledCost", "ChargeCategory")
}  # fmt: skip
_CATEGORIES = {
    "usage": Kind.USAGE,
    "purchase": Kind.PURCHASE,
    "tax": Kind.TAX,
    "credit": Kind.CREDIT,
    "adjustment": Kind.ADJUSTMENT,
}
_TYPE_KEYS = ("F_InstanceType", "InstanceType", "x_InstanceType", "instanceType", "instance_type", "ServiceType")
_COUNT_KEYS = ("F_GpuCount", "GpuCount", "gpu")


class FocusReader:
    """Reads the lines of one file by its header. Raises BillError where needed columns are missing."""

    def __init__(self, columns: Columns) -> None:
        columns.need(_NEEDED)
        self._columns = columns
        find = columns.find
        self._begin, self._end = find("chargeperiodstart"), find("chargeperiodend")
        self._currency, self._category, self._class = (
            find("billingcurrency"),
            find("chargecategory"),
            find("chargeclass"),
        )
        self._effective, self._billed = find("effectivecost"), find("billedcost")
        # the same in USD where the bill is in another currency: columns of Azure's own
        self._in_usd = find("xeffectivecostinusd"), find("xbilledcostinusd")
        # lines that were read in USD by them
        self.converted_lines = 0
        self._commitment = find("commitmentdiscountid")
        self._status = find("commitmentdiscountstatus", "chargesubcategory")
        self._resource, self._account = find("resourceid"), find("subaccountid")
        self._service, self._resource_name = find("servicecategory"), find("resourcename")
        self._details, self._type = find("skupricedetails", "xskudetails"), find("xinstancetype", "xmachinetype")
        self._provider = find("providername", "serviceprovidername")
        # the clouds that the lines are of
        self.clouds: set[str] = set()
        # the first is of AWS alone, and says of every line what it is about
        self._usage_type, self._meter = find("xusagetype"), find("skumeter")
        self._quantities = [
            pair
            for pair in (
                (find("consumedquantity", "usagequantity"), find("consumedunit", "usageunit")),
                (find("pricingquantity"), find("pricingunit")),
            )
            if ABSENT not in pair
        ]
        self._remember_type = Remembered(_find_type)

    def read(self, row: Row) -> Charge:
        """The charge of a line that has as many cells as the header. Raises LineError."""
        effective_at, billed_at = self._effective, self._billed
        if (currency := row[self._currency].strip()) != "USD":
            if not currency or ABSENT in self._in_usd:
                _refuse_currency(currency)
            effective_at, billed_at = self._in_usd
        begin, end = read_period(row, self._begin, self._end, ("ChargePeriodStart", "ChargePeriodEnd"))
        effective = read_usd(row, effective_at, self._columns.name(effective_at, "EffectiveCost"))
        billed = read_usd(row, billed_at, self._columns.name(billed_at, "BilledCost"))
        self.converted_lines += effective_at != self._effective
        kind = self._find_kind(row, effective, billed)
        cloud = find_cloud_of_provider(self._cell(row, self._provider))
        self.clouds.add(cloud)
        details = self._cell(row, self._details)
        instance_type = self._cell(row, self._type) or (self._remember_type(details) if details else "")
        if usage_type := self._cell(row, self._usage_type):
            by_usage = read_usage_type(usage_type)
            instance_type = "" if by_usage is None else instance_type or by_usage
        elif not instance_type and self._meter != ABSENT:
            instance_type = read_usage_type(row[self._meter]) or ""
        return Charge(
            kind, begin, end, effective, billed, self._read_resource(row), instance_type,
            self._cell(row, self._account), self._cell(row, self._commitment),
            self._read_hours(row) if instance_type else None,
            _find_count(read_map(details)) if details else None,
            not usage_type and self._is_compute(row),
            "",
            cloud,
        )  # fmt: skip

    def _find_kind(self, row: Row, effective: float, billed: float) -> Kind:
        if self._cell(row, self._class).lower() == "correction":
            return Kind.CORRECTION
        category = row[self._category]
        kind = _CATEGORIES.get(category.strip().lower())
        if kind is None:
            raise LineError(
                "ChargeCategory", f"{shown(category)} is no category of FOCUS", "It is Usage, Purchase, Tax, Credit or Adjustment."
            )  # fmt: skip
        if kind is Kind.USAGE and self._cell(row, self._status).lower().startswith("unused"):
            return Kind.UNUSED
        if kind is Kind.USAGE and (effective < 0 or (effective == 0 and billed < 0)):
            return Kind.REFUND
        return kind

    def _read_resource(self, row: Row) -> str:
        found = self._cell(row, self._resource)
        return name_gcp_instance(found, self._cell(row, self._resource_name)) if "/instances/" in found else found

    def _is_compute(self, row: Row) -> bool:
        """Whether the line is about time of a machine or its parts: network and storage count in bytes."""
        if self._service != ABSENT and row[self._service].strip().lower() != "compute":
            return False
        return not self._quantities or any(counts_time(row[unit]) for _, unit in self._quantities)

    def _read_hours(self, row: Row) -> float | None:
        for quantity, unit in self._quantities:
            if counts_hours(row[unit]) and (found := read_quantity(row[quantity])) is not None:
                return found
        return None

    @staticmethod
    def _cell(row: Row, position: int) -> str:
        if position == ABSENT or not (found := row[position]):
            return ""
        found = found.strip()
        return "" if len(found) == 4 and found.lower() == "null" else found


def _refuse_currency(currency: str) -> None:
    if not currency:
        raise LineError("BillingCurrency", "the currency is empty", "Export the bill again, with this column filled.")
    raise CurrencyError(
        "BillingCurrency",
        f"the bill is in {shown(currency)}, not in USD",
        "Only bills in USD can be compared, and Azure's with x_EffectiveCostInUsd and x_BilledCostInUsd: leave this one out.",
    )


def _find_type(details: str) -> str:
    found = read_map(details)
    return next((found[key] for key in _TYPE_KEYS if found.get(key)), "")


def _find_count(details: Mapping[str, str]) -> float | None:
    return next((read_quantity(details[key]) for key in _COUNT_KEYS if key in details), None)
