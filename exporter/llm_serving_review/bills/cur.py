"""AWS CUR 2.0, and older reports with headers such as lineItem/UnblendedCost: a line -> a charge.

Columns: https://docs.aws.amazon.com/cur/latest/userguide/table-dictionary-cur2.html, what each type of line is about:
https://docs.aws.amazon.com/cur/latest/userguide/table-dictionary-cur2-line-item.html. What a line costs amortised depends on its type,
as https://docs.aws.amazon.com/cur/latest/userguide/cur-sp.html and cur-ri.html there describe it:

- Usage: its unblended cost. DiscountedUsage: what its reservation costs it. SavingsPlanCoveredUsage: what its plan costs it; a negation
  takes its unblended cost away again, so that 0 is invoiced for it.
- SavingsPlanRecurringFee: the commitment less what of it was used. RIFee: what of a reservation was not used. Both invoice a fee.
- Everything else is no usage. Rows of split cost allocation repeat the cost of their instance.

Where the account has a discount the report has net columns, which are after it; they are read then. Lines of discounts have a net cost of
their own: what is empty there is within the net cost of the lines that it was given on. Of what a plan was not used for there is none.
"""

from __future__ import annotations

from math import fsum

from llm_serving_exporter.settings.problems import shown
from llm_serving_review.bills.cells import Row, counts_hours, read_map, read_period, read_quantity, read_usd
from llm_serving_review.bills.charge import Charge, CurrencyError, Kind, LineError
from llm_serving_review.bills.columns import ABSENT, Columns
from llm_serving_review.bills.instances import read_usage_type

_COST = "line_item_unblended_cost"
_NEEDED = {
    name: name
    for name in (
        "line_item_line_item_type", "line_item_usage_start_date", "line_item_usage_end_date", "line_item_currency_code", _COST,
    )
}  # fmt: skip
_COVERED = "savings_plan_savings_plan_effective_cost"
_RESERVED = "reservation_effective_cost"
_COMMITTED, _USED = "savings_plan_total_commitment_to_date", "savings_plan_used_commitment"
_UNUSED_UPFRONT = "reservation_unused_amortized_upfront_fee_for_billing_period"
_UNUSED_FEE = "reservation_unused_recurring_fee"
# after discounts; columns of the same sheets. A cell that is empty has no discount
_NET = {
    _COST: "line_item_net_unblended_cost",
    _COVERED: "savings_plan_net_savings_plan_effective_cost",
    _RESERVED: "reservation_net_effective_cost",
    _UNUSED_UPFRONT: "reservation_net_unused_amortized_upfront_fee_for_billing_period",
    _UNUSED_FEE: "reservation_net_unused_recurring_fee",
}
# by type of line: what it is about, and the columns that are added up to what it costs amortised, with their signs
_TYPES: dict[str, tuple[Kind, tuple[tuple[str, float], ...]]] = {
    "Usage": (Kind.USAGE, ((_COST, 1.0),)),
    "DiscountedUsage": (Kind.USAGE, ((_RESERVED, 1.0),)),
    "SavingsPlanCoveredUsage": (Kind.USAGE, ((_COVERED, 1.0),)),
    "SavingsPlanRecurringFee": (Kind.UNUSED, ((_COMMITTED, 1.0), (_USED, -1.0))),
    "RIFee": (Kind.UNUSED, ((_UNUSED_UPFRONT, 1.0), (_UNUSED_FEE, 1.0))),
    "SavingsPlanNegation": (Kind.NEGATION, ()),
    "SavingsPlanUpfrontFee": (Kind.PURCHASE, ()),
    "Fee": (Kind.FEE, ((_COST, 1.0),)),
    "Tax": (Kind.TAX, ((_COST, 1.0),)),
    "Credit": (Kind.CREDIT, ((_COST, 1.0),)),
    "Refund": (Kind.REFUND, ((_COST, 1.0),)),
}
_DISCOUNT = (Kind.DISCOUNT, ((_COST, 1.0),))
_PRODUCT = "product"
_CLOUD = "aws"


class CurReader:
    """Reads the lines of one file by its header. Raises BillError where needed columns are missing."""

    def __init__(self, columns: Columns) -> None:
        columns.need(_NEEDED)
        self._columns = columns
        # the clouds that the lines are of
        self.clouds = {_CLOUD}
        find = columns.find
        # the costs that were found net, by their usual columns; a part of them alone would mix both
        net = {usual: find(name) for usual, name in _NET.items()}
        self.reads_net = net[_COST] != ABSENT
        self._net = net if self.reads_net else dict.fromkeys(_NET, ABSENT)
        self._type, self._currency, self._cost = (
            find("line_item_line_item_type"),
            find("line_item_currency_code"),
            find(_COST),
        )
        self._begin, self._end = find("line_item_usage_start_date"), find("line_item_usage_end_date")
        self._resource, self._account = find("line_item_resource_id"), find("line_item_usage_account_id")
        self._usage_type, self._amount = find("line_item_usage_type"), find("line_item_usage_amount")
        self._unit = find("pricing_unit")
        self._instance_type, self._gpus, self._product = (
            find("product_instance_type"),
            find("product_gpu"),
            find(_PRODUCT),
        )
        self._plan, self._family = find("savings_plan_savings_plan_a_r_n"), find("savings_plan_instance_type_family")
        self._reservation = find("reservation_reservation_a_r_n")
        self._parent = find("split_line_item_parent_resource_id")
        self._id, self._interval = find("identity_line_item_id"), find("identity_time_interval")
        self._names = tuple(columns.name(position, "") for position in (self._begin, self._end))

    def read(self, row: Row) -> Charge:
        """The charge of a line that has as many cells as the header. Raises LineError."""
        if (currency := row[self._currency].strip()) != "USD":
            self._refuse_currency(currency)
        begin, end = read_period(row, self._begin, self._end, (self._names[0], self._names[1]))
        kind, effective, billed = self._find_costs(row)
        instance_type = self._find_type(row)
        return Charge(
            kind, begin, end, effective, billed, self._cell(row, self._resource),
            (self._cell(row, self._family) if kind is Kind.UNUSED else "") or instance_type,
            self._cell(row, self._account), self._cell(row, self._plan) or self._cell(row, self._reservation),
            self._read_hours(row) if instance_type else None,
            self._read_gpus(row) if instance_type else None,
            # network and storage of an instance say no type of it, and count no hours
            not instance_type and self._usage_type == ABSENT and counts_hours(self._cell(row, self._unit)),
            f"{row[self._id]} {self._cell(row, self._interval)}" if self._id != ABSENT and row[self._id] else "",
            _CLOUD,
        )  # fmt: skip

    def _find_costs(self, row: Row) -> tuple[Kind, float, float]:
        """What the line is about, and what it costs amortised and as invoiced."""
        if self._cell(row, self._parent):
            # the amounts of these rows stand in columns of their own, and repeat those of the instance
            return Kind.SPLIT, 0.0, 0.0
        name = row[self._type].strip()
        known = _TYPES.get(name) or (_DISCOUNT if name.endswith("Discount") else None)
        if known is None:
            raise LineError(
                self._columns.name(self._type, ""), f"{shown(name)} is no type of line that is known", "Report it to us, with the type."
            )  # fmt: skip
        kind, parts = known
        billed = self._read_cost(row, _COST, self._cost, is_discount=kind is Kind.DISCOUNT)
        if parts == ((_COST, 1.0),):
            effective = billed
            if kind is Kind.USAGE and billed < 0:
                kind = Kind.REFUND
            elif kind is Kind.FEE and self._cell(row, self._reservation):
                # the upfront part of a reservation, which what it covers has parts of
                return Kind.PURCHASE, 0.0, billed
            return kind, effective, billed
        effective = fsum(sign * self._read_part(row, column, name) for column, sign in parts)
        # a negation of its own takes this away again
        return kind, effective, 0.0 if name == "SavingsPlanCoveredUsage" else billed

    def _read_part(self, row: Row, column: str, name: str) -> float:
        position = self._columns.find(column)
        if position == ABSENT:
            raise LineError(column, f"a line of the type {name} needs this column", "Add it to the export.")
        if name == "RIFee" and not row[position].strip():
            # a reservation without an upfront fee has none of it unused
            return 0.0
        return self._read_cost(row, column, position)

    def _read_cost(self, row: Row, column: str, position: int, *, is_discount: bool = False) -> float:
        """An amount after discounts, where the file has that."""
        net = self._net.get(column, ABSENT)
        if net != ABSENT and self._cell(row, net):
            return read_usd(row, net, self._columns.name(net, ""))
        if net != ABSENT and is_discount:
            return 0.0
        return read_usd(row, position, self._columns.name(position, column))

    def _find_type(self, row: Row) -> str:
        stated = self._cell(row, self._instance_type)
        if not stated and self._product != ABSENT:
            stated = read_map(row[self._product]).get("instance_type", "")
        if self._usage_type == ABSENT:
            return stated
        by_usage = read_usage_type(row[self._usage_type])
        return "" if by_usage is None else stated or by_usage

    def _read_hours(self, row: Row) -> float | None:
        unit = self._cell(row, self._unit)
        if self._amount == ABSENT or (unit and not counts_hours(unit)):
            return None
        return read_quantity(row[self._amount])

    def _read_gpus(self, row: Row) -> float | None:
        stated = self._cell(row, self._gpus)
        if not stated and self._product != ABSENT:
            stated = read_map(row[self._product]).get("gpu", "")
        return read_quantity(stated)

    def _refuse_currency(self, currency: str) -> None:
        column = self._columns.name(self._currency, "")
        if not currency:
            raise LineError(column, "the currency is empty", "Export the bill again, with this column filled.")
        raise CurrencyError(
            column,
            f"the bill is in {shown(currency)}, not in USD",
            "Only bills in USD can be compared: leave this one out.",
        )

    @staticmethod
    def _cell(row: Row, position: int) -> str:
        return row[position].strip() if position != ABSENT else ""
