"""FOCUS and AWS CUR: the header of a bill, its tags, and a line of it -> a charge."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import fsum

from llm_serving_exporter.settings.problems import listed, shown
from llm_serving_review.bills.charge import (
    BillError,
    Charge,
    CurrencyError,
    Fault,
    Kind,
    LineError,
    Remembered,
    Row,
    counts_hours,
    counts_time,
    find_cloud_of_provider,
    name_gcp_instance,
    read_map,
    read_period,
    read_quantity,
    read_usage_type,
    read_usd,
)

# --- The header of a bill: which format it is, and where its columns stand.


# what stands at every position of a column that the file does not have
ABSENT = -1
_CAPITAL = re.compile(r"([A-Z])")
_UNPRINTABLE = re.compile(r"[^ -~]")
FORMATS = ("focus", "cur")


class Columns:
    """Positions of columns by their names in one spelling: those of CUR 2.0, or of FOCUS in lower case without underscores."""

    def __init__(self, file: str, header: Sequence[str], stated: str | None = None) -> None:
        """`stated`: the format, None to find it. Raises BillError for a header of neither."""
        self.file = file
        self.width = len(header)
        self._written = tuple(header)
        by_cur, by_focus = _first_of(header, spell_cur), _first_of(header, _spell_focus)
        found = "cur" if "line_item_line_item_type" in by_cur else "focus" if "chargeperiodstart" in by_focus else None
        self.format = stated or found or ""
        if not self.format:
            begin = listed((_UNPRINTABLE.sub("?", name)[:40] for name in header[:4]), "and") or "nothing"
            raise BillError(
                Fault(
                    file, 1, "", f"the header is neither that of FOCUS nor that of AWS CUR 2.0: it begins with {begin}",
                    "Export as FOCUS 1.x or as CUR 2.0, with the line of headers and commas between cells.",
                )
            )  # fmt: skip
        self._by_name = by_cur if self.format == "cur" else by_focus

    def find(self, *names: str) -> int:
        """The position of the first of these columns that the file has; ABSENT for none."""
        for name in names:
            if (position := self._by_name.get(name)) is not None:
                return position
        return ABSENT

    def need(self, names: Mapping[str, str]) -> None:
        """Raises BillError where the file lacks columns. `names`: as they are published, by our spelling."""
        lacking = [published for name, published in names.items() if name not in self._by_name]
        if lacking:
            many = len(lacking) > 1
            raise BillError(
                Fault(
                    self.file, 1, "", f"the column{'s' if many else ''} {listed(lacking, 'and')} {'are' if many else 'is'} missing",
                    "Add what is missing to the export.",
                )
            )  # fmt: skip

    def name(self, position: int, instead: str) -> str:
        """A column's name as the file has it."""
        return self._written[position] if position != ABSENT else instead

    def list_beginning_with(self, prefix: str) -> Iterator[tuple[str, int]]:
        """The rest of the names that begin so, with their positions."""
        for name, position in self._by_name.items():
            if name.startswith(prefix):
                yield name.removeprefix(prefix), position


def spell_cur(name: str) -> str:
    """As CUR 2.0 spells it: "lineItem/UnblendedCost" of older reports is line_item_unblended_cost."""
    head, slash, rest = name.strip().partition("/")
    if not slash:
        return name.strip().lower()
    if head == "resourceTags":
        return f"resource_tags_{rest.replace(':', '_').lower()}"
    return f"{_to_snake(head)}_{_to_snake(rest)}"


def _to_snake(name: str) -> str:
    return _CAPITAL.sub(r"_\1", name).lower().lstrip("_")


def _spell_focus(name: str) -> str:
    return name.strip().lower().replace("_", "")


def _first_of(header: Sequence[str], spell: Callable[[str], str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for position, name in enumerate(header):
        found.setdefault(spell(name), position)
    return found


# --- Tags of a bill's line: one column of JSON, or a column a tag.


_NOT_A_LETTER = re.compile(r"[^a-z0-9]+")
_PREFIXES = ("", "user_")
# of CUR, as it names their columns and the keys of its map
_TAG_COLUMNS = "resource_tags_"


class TagReader:
    """Reads the tags that the settings name. Spelling goes by letters and digits: AWS writes user:My-Team as user_my_team."""

    def __init__(self, columns: Columns, keys: Iterable[str]) -> None:
        self._map = columns.find("resource_tags", "tags")
        beside = {_simplify(name): position for name, position in columns.list_beginning_with(_TAG_COLUMNS)}
        self._wanted = {key: tuple(prefix + _simplify(key) for prefix in _PREFIXES) for key in keys}
        self._positions = {
            key: tuple(beside[name] for name in names if name in beside) for key, names in self._wanted.items()
        }

    def read(self, row: Row) -> Mapping[str, str]:
        """The tags that the line has, by the keys of the settings."""
        if not self._wanted:
            return {}
        by_name = {_simplify(name): value for name, value in self._read_map(row).items()}
        found = {}
        for key, names in self._wanted.items():
            values = [by_name.get(name, "") for name in names] + [row[position] for position in self._positions[key]]
            value = next((one.strip() for one in values if one.strip()), "")
            if value:
                found[key] = value
        return found

    def _read_map(self, row: Row) -> Mapping[str, str]:
        return read_map(row[self._map]) if self._map != ABSENT else {}


def _simplify(name: str) -> str:
    return _NOT_A_LETTER.sub("_", name.lower()).strip("_")


# --- FOCUS 1.0-preview to 1.2: a line -> a charge.
#
# Columns and what they mean: https://focus.finops.org/focus-specification/ and, column by column,
# https://github.com/FinOps-Open-Cost-and-Usage-Spec/FOCUS_Spec/tree/v1.2/specification/columns.
#
# - EffectiveCost is compared; BilledCost stands beside it. A purchase has an EffectiveCost of 0, because what it covers has its parts. -
# ChargeCategory says what a line is about; ChargeClass "Correction" marks what corrects a bill of an earlier period. Usage and purchases
# include refunds, which are negative. - CommitmentDiscountStatus "Unused" marks what of a commitment nothing used. - 1.0-preview, which
# Azure still exports, has ChargeSubcategory ("Unused Commitment") and UsageQuantity instead:
# https://github.com/FinOps-Open-Cost-and-Usage-Spec/FOCUS_Spec/blob/v1.0-preview/specification/columns/chargesubcategory.md - A bill in
# another currency is read by x_EffectiveCostInUsd and x_BilledCostInUsd, which Azure's have:
# https://learn.microsoft.com/azure/cost-management-billing/dataset-schema/cost-usage-details-focus - The type of an instance stands in
# SkuPriceDetails (F_InstanceType, from 1.1 on) or in columns of the cloud's own, which begin with x_.


_NEEDED_OF_FOCUS = {
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
        columns.need(_NEEDED_OF_FOCUS)
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


# --- AWS CUR 2.0, and older reports with headers such as lineItem/UnblendedCost: a line -> a charge.
#
# Columns: https://docs.aws.amazon.com/cur/latest/userguide/table-dictionary-cur2.html, what each type of line is about:
# https://docs.aws.amazon.com/cur/latest/userguide/table-dictionary-cur2-line-item.html. What a line costs amortised depends on its type,
# as https://docs.aws.amazon.com/cur/latest/userguide/cur-sp.html and cur-ri.html there describe it:
#
# - Usage: its unblended cost. DiscountedUsage: what its reservation costs it. SavingsPlanCoveredUsage: what its plan costs it; a negation
# takes its unblended cost away again, so that 0 is invoiced for it. - SavingsPlanRecurringFee: the commitment less what of it was used.
# RIFee: what of a reservation was not used. Both invoice a fee. - Everything else is no usage. Rows of split cost allocation repeat the
# cost of their instance.
#
# Where the account has a discount the report has net columns, which are after it; they are read then. Lines of discounts have a net cost
# of their own: what is empty there is within the net cost of the lines that it was given on. Of what a plan was not used for there is
# none.


_COST = "line_item_unblended_cost"
_NEEDED_OF_CUR = {
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
        columns.need(_NEEDED_OF_CUR)
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
