"""FOCUS and AWS CUR: the header of a bill, its tags, and a line of it -> a charge."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from math import fsum
from typing import ClassVar

from llm_serving_exporter.settings.problems import listed, shown
from llm_serving_review.bills.charge import (
    MOST_KEPT,
    BillError,
    Charge,
    CurrencyError,
    Kind,
    LineError,
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
# gives the text of a line's cell
_Cell = Callable[[Row], str]


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
            what = f"the header is neither that of FOCUS nor that of AWS CUR 2.0: it begins with {begin}"
            fix = "Export as FOCUS 1.x or as CUR 2.0, with the line of headers and commas between cells."
            raise BillError(file, what, fix, 1)
        self.positions, self._spell = (by_cur, spell_cur) if self.format == "cur" else (by_focus, _spell_focus)

    def find(self, *names: str) -> int:
        """The position of the first of these columns that the file has; ABSENT for none."""
        return next((self.positions[name] for name in names if name in self.positions), ABSENT)

    def find_cell(self, *names: str) -> _Cell:
        """What gives a line's cell of that column without blanks around it; "" where the file has none of them, and for NULL of FOCUS."""
        position = self.find(*names)
        if position == ABSENT:
            return lambda row: ""
        if self.format == "cur":
            return lambda row: row[position].strip()

        def read(row: Row) -> str:
            text = row[position].strip()
            return "" if len(text) == 4 and text.lower() == "null" else text

        return read

    def need(self, names: Iterable[str]) -> None:
        """Raises BillError where the file lacks columns. `names`: as they are published."""
        lacking = [name for name in names if self._spell(name) not in self.positions]
        if lacking:
            columns, are = ("columns", "are") if len(lacking) > 1 else ("column", "is")
            what = f"the {columns} {listed(lacking, 'and')} {are} missing"
            raise BillError(self.file, what, "Add what is missing to the export.", 1)

    def name(self, position: int) -> str:
        """A column's name as the file has it; "" where it has none."""
        return self._written[position] if position != ABSENT else ""


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
        self._map = columns.find_cell("resource_tags", "tags")
        beside = {
            _simplify(name.removeprefix(_TAG_COLUMNS)): position
            for name, position in columns.positions.items()
            if name.startswith(_TAG_COLUMNS)
        }
        self._wanted = {key: tuple(prefix + _simplify(key) for prefix in _PREFIXES) for key in keys}
        self._positions = {
            key: tuple(beside[name] for name in names if name in beside) for key, names in self._wanted.items()
        }

    def read(self, row: Row) -> Mapping[str, str]:
        """The tags that the line has, by the keys of the settings."""
        if not self._wanted:
            return {}
        by_name = {_simplify(name): value for name, value in read_map(self._map(row)).items()}
        found = {}
        for key, names in self._wanted.items():
            values = [by_name.get(name, "") for name in names] + [row[position] for position in self._positions[key]]
            value = next((one.strip() for one in values if one.strip()), "")
            if value:
                found[key] = value
        return found


def _simplify(name: str) -> str:
    return _NOT_A_LETTER.sub("_", name.lower()).strip("_")


# --- What readers of lines share.


class LineReader:
    """Reads the lines of one file by its header."""

    name: ClassVar[str]  # of the format, as readers know it
    needed: ClassVar[tuple[str, ...]]  # columns
    reads_net = False  # whether amounts are read after discounts
    converted_lines = 0  # lines in another currency that were read in USD

    def __init__(self, columns: Columns) -> None:
        """Raises BillError where needed columns are missing."""
        columns.need(self.needed)
        self._columns = columns
        # the clouds that the lines are of
        self.clouds: set[str] = set()


def _refuse_currency(column: str, currency: str, others: str = "") -> None:
    if not currency:
        raise LineError(column, "the currency is empty", "Export the bill again, with this column filled.")
    fix = f"Only bills in USD can be compared{others}: leave this one out."
    raise CurrencyError(column, f"the bill is in {shown(currency)}, not in USD", fix)


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


_CATEGORIES = {kind.name.lower(): kind for kind in (Kind.USAGE, Kind.PURCHASE, Kind.TAX, Kind.CREDIT, Kind.ADJUSTMENT)}
_TYPE_KEYS = ("F_InstanceType", "InstanceType", "x_InstanceType", "instanceType", "instance_type", "ServiceType")
_COUNT_KEYS = ("F_GpuCount", "GpuCount", "gpu")


class FocusReader(LineReader):
    """Reads FOCUS."""

    name = "FOCUS"
    needed = (
        "ChargePeriodStart",
        "ChargePeriodEnd",
        "BillingCurrency",
        "EffectiveCost",
        "BilledCost",
        "ChargeCategory",
    )

    def __init__(self, columns: Columns) -> None:
        super().__init__(columns)
        find, cell = columns.find, columns.find_cell
        self._begin, self._end, self._currency = (
            find("chargeperiodstart"),
            find("chargeperiodend"),
            find("billingcurrency"),
        )
        self._category, self._service = find("chargecategory"), find("servicecategory")
        # with their names; then the same in USD where the bill is in another currency: columns of Azure's own
        self._in_currency, self._in_usd = (
            tuple((find(name), columns.name(find(name))) for name in names)
            for names in (("effectivecost", "billedcost"), ("xeffectivecostinusd", "xbilledcostinusd"))
        )
        self._class, self._status = cell("chargeclass"), cell("commitmentdiscountstatus", "chargesubcategory")
        self._commitment, self._account = cell("commitmentdiscountid"), cell("subaccountid")
        self._resource, self._resource_name = cell("resourceid"), cell("resourcename")
        self._details, self._type = cell("skupricedetails", "xskudetails"), cell("xinstancetype", "xmachinetype")
        self._provider = cell("providername", "serviceprovidername")
        # the first is of AWS alone, and says of every line what it is about
        self._usage_type, self._meter = cell("xusagetype"), cell("skumeter")
        pairs = (
            (find("consumedquantity", "usagequantity"), find("consumedunit", "usageunit")),
            (find("pricingquantity"), find("pricingunit")),
        )
        self._quantities = [pair for pair in pairs if ABSENT not in pair]

    def read(self, row: Row) -> Charge:
        """The charge of a line that has as many cells as the header. Raises LineError."""
        amounts = self._in_currency
        if (currency := row[self._currency].strip()) != "USD":
            if not currency or any(position == ABSENT for position, _ in self._in_usd):
                others = ", and Azure's with x_EffectiveCostInUsd and x_BilledCostInUsd"
                _refuse_currency("BillingCurrency", currency, others)
            amounts = self._in_usd
        begin, end = read_period(row, self._begin, self._end, ("ChargePeriodStart", "ChargePeriodEnd"))
        effective, billed = read_usd(row, *amounts[0]), read_usd(row, *amounts[1])
        self.converted_lines += amounts is self._in_usd
        kind = self._find_kind(row, effective, billed)
        cloud = find_cloud_of_provider(self._provider(row))
        self.clouds.add(cloud)
        details = self._details(row)
        facts = read_map(details)
        instance_type = self._type(row) or (_find_type(details) if details else "")
        if usage_type := self._usage_type(row):
            by_usage = read_usage_type(usage_type)
            instance_type = "" if by_usage is None else instance_type or by_usage
        elif not instance_type:
            instance_type = read_usage_type(self._meter(row)) or ""
        resource = self._resource(row)
        if "/instances/" in resource:
            resource = name_gcp_instance(resource, self._resource_name(row))
        gpus = next((read_quantity(facts[key]) for key in _COUNT_KEYS if key in facts), None)
        return Charge(
            kind, begin, end, effective, billed, resource, instance_type, self._account(row), self._commitment(row),
            self._read_hours(row) if instance_type else None, gpus, not usage_type and self._is_compute(row),
            "", cloud,
        )  # fmt: skip

    def _find_kind(self, row: Row, effective: float, billed: float) -> Kind:
        if self._class(row).lower() == "correction":
            return Kind.CORRECTION
        category = row[self._category]
        kind = _CATEGORIES.get(category.strip().lower())
        if kind is None:
            fix = "It is Usage, Purchase, Tax, Credit or Adjustment."
            raise LineError("ChargeCategory", f"{shown(category)} is no category of FOCUS", fix)
        if kind is Kind.USAGE and self._status(row).lower().startswith("unused"):
            return Kind.UNUSED
        if kind is Kind.USAGE and (effective < 0 or (effective == 0 and billed < 0)):
            return Kind.REFUND
        return kind

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


@lru_cache(MOST_KEPT)
def _find_type(details: str) -> str:
    found = read_map(details)
    return next((found[key] for key in _TYPE_KEYS if found.get(key)), "")


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
_CLOUD = "aws"


class CurReader(LineReader):
    """Reads AWS CUR."""

    name = "AWS CUR"
    needed = (
        "line_item_line_item_type", "line_item_usage_start_date", "line_item_usage_end_date", "line_item_currency_code", _COST,
    )  # fmt: skip

    def __init__(self, columns: Columns) -> None:
        super().__init__(columns)
        self.clouds.add(_CLOUD)
        find, cell = columns.find, columns.find_cell
        # a part of the costs net alone would mix both
        self.reads_net = find(_NET[_COST]) != ABSENT
        # where each cost stands, and where after discounts
        self._costs = {
            usual: (find(usual), find(_NET.get(usual, "")) if self.reads_net else ABSENT)
            for usual in (*_NET, _COMMITTED, _USED)
        }
        self._type, self._currency = find("line_item_line_item_type"), find("line_item_currency_code")
        self._begin, self._end = find("line_item_usage_start_date"), find("line_item_usage_end_date")
        self._period = columns.name(self._begin), columns.name(self._end)
        self._resource, self._account = cell("line_item_resource_id"), cell("line_item_usage_account_id")
        self._usage_type, self._amount = cell("line_item_usage_type"), cell("line_item_usage_amount")
        self._has_usage_type = find("line_item_usage_type") != ABSENT
        self._unit, self._product = cell("pricing_unit"), cell("product")
        self._instance_type, self._gpus = cell("product_instance_type"), cell("product_gpu")
        self._plan, self._family = cell("savings_plan_savings_plan_a_r_n"), cell("savings_plan_instance_type_family")
        self._reservation, self._parent = (
            cell("reservation_reservation_a_r_n"),
            cell("split_line_item_parent_resource_id"),
        )
        self._id, self._interval = cell("identity_line_item_id"), cell("identity_time_interval")

    def read(self, row: Row) -> Charge:
        """The charge of a line that has as many cells as the header. Raises LineError."""
        if (currency := row[self._currency].strip()) != "USD":
            _refuse_currency(self._columns.name(self._currency), currency)
        begin, end = read_period(row, self._begin, self._end, self._period)
        kind, effective, billed = self._find_costs(row)
        instance_type = self._find_type(row)
        identity = self._id(row)
        return Charge(
            kind, begin, end, effective, billed, self._resource(row),
            (self._family(row) if kind is Kind.UNUSED else "") or instance_type,
            self._account(row), self._plan(row) or self._reservation(row),
            self._read_hours(row) if instance_type else None,
            read_quantity(self._read_product(row, self._gpus, "gpu")) if instance_type else None,
            # network and storage of an instance say no type of it, and count no hours
            not instance_type and not self._has_usage_type and counts_hours(self._unit(row)),
            f"{identity} {self._interval(row)}" if identity else "",
            _CLOUD,
        )  # fmt: skip

    def _find_costs(self, row: Row) -> tuple[Kind, float, float]:
        """What the line is about, and what it costs amortised and as invoiced."""
        if self._parent(row):
            # the amounts of these rows stand in columns of their own, and repeat those of the instance
            return Kind.SPLIT, 0.0, 0.0
        name = row[self._type].strip()
        known = _TYPES.get(name) or (_DISCOUNT if name.endswith("Discount") else None)
        if known is None:
            what = f"{shown(name)} is no type of line that is known"
            raise LineError(self._columns.name(self._type), what, "Report it to us, with the type.")
        kind, parts = known
        billed = self._read_cost(row, _COST, name)
        if parts == ((_COST, 1.0),):
            if kind is Kind.FEE and self._reservation(row):
                # the upfront part of a reservation, which what it covers has parts of
                return Kind.PURCHASE, 0.0, billed
            return Kind.REFUND if kind is Kind.USAGE and billed < 0 else kind, billed, billed
        effective = fsum(sign * self._read_cost(row, column, name) for column, sign in parts)
        # a negation of its own takes this away again
        return kind, effective, 0.0 if name == "SavingsPlanCoveredUsage" else billed

    def _read_cost(self, row: Row, column: str, name: str) -> float:
        """An amount of a line of the type `name`, after discounts where the file has that."""
        position, net = self._costs[column]
        if position == ABSENT:
            raise LineError(column, f"a line of the type {name} needs this column", "Add it to the export.")
        if name == "RIFee" and column != _COST and not row[position].strip():
            # a reservation without an upfront fee has none of it unused
            return 0.0
        if net != ABSENT and row[net].strip():
            position = net
        elif net != ABSENT and name not in _TYPES:
            # of a discount: within the net cost of the lines that it was given on
            return 0.0
        return read_usd(row, position, self._columns.name(position))

    def _find_type(self, row: Row) -> str:
        stated = self._read_product(row, self._instance_type, "instance_type")
        if not self._has_usage_type:
            return stated
        by_usage = read_usage_type(self._usage_type(row))
        return "" if by_usage is None else stated or by_usage

    def _read_product(self, row: Row, column: _Cell, key: str) -> str:
        """A fact of the product: in a column of its own, or in the map of all of them."""
        return column(row) or read_map(self._product(row)).get(key, "")

    def _read_hours(self, row: Row) -> float | None:
        unit = self._unit(row)
        return None if unit and not counts_hours(unit) else read_quantity(self._amount(row))


# by `Columns.format`
READERS: Mapping[str, type[FocusReader | CurReader]] = {"focus": FocusReader, "cur": CurReader}
