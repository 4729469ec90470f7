"""One line of a bill, whatever its format, and what can be wrong with one."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from llm_serving_exporter.errors import LLMServingExporterError
from llm_serving_exporter.model.record import Struct


class Kind(Enum):
    """What a line is about. Only usage and unused commitments are compared with what was metered; the others are counted."""

    USAGE = "usage"
    UNUSED = "unused commitments"
    PURCHASE = "purchases and recurring fees"
    FEE = "fees"
    NEGATION = "negations of covered usage"
    DISCOUNT = "discounts"
    CREDIT = "credits"
    REFUND = "refunds"
    TAX = "taxes"
    ADJUSTMENT = "adjustments"
    CORRECTION = "corrections of earlier bills"
    SPLIT = "split cost allocation"


class Charge(NamedTuple):
    """A line of a bill. "" stands for what the line does not say."""

    kind: Kind  # what the line is about
    begin: float  # Unix seconds, within the period
    end: float  # Unix seconds, after the period
    effective_usd: float  # amortised: what a commitment covers has its part of the commitment's price
    billed_usd: float  # as invoiced
    resource: str  # as the bill names it
    instance_type: str  # of a line about an instance; "" for any other
    account: str  # that used it
    commitment: str  # that covered it, or whose unused part or fee it is
    instance_hours: float | None  # None where the line does not count in hours of an instance
    gpus: float | None  # of one instance; None where the line does not say
    is_compute: bool  # False for network, storage and the like
    identity: str  # tells a line from all others of the bill; "" for a format without
    cloud: str = ""  # whose bill it is, as `find_cloud_of_provider` names it


class Fault(Struct, frozen=True):
    """What is wrong with a file or a line of it."""

    file: str
    line: int  # counted from 1, the header being the first; 0 for the file as a whole
    column: str  # the column's name as the file has it; "" for the line as a whole
    what: str  # the fault, without a full stop
    fix: str  # what to do, a sentence

    def __str__(self) -> str:
        where = f"{self.file}, line {self.line}" if self.line else self.file
        return f"{where}{f', column {self.column}' if self.column else ''}: {self.what}. {self.fix}"


class BillError(LLMServingExporterError):
    """Bills that cannot be compared at all. The message names file, line and what to do."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(str(fault))
        self.fault = fault


class LineError(LLMServingExporterError):
    """One line that cannot be used: it is left out and named."""

    def __init__(self, column: str, what: str, fix: str) -> None:
        super().__init__(what)
        self.column = column
        self.what = what
        self.fix = fix


class CurrencyError(LineError):
    """A line in another currency than USD: its bill is refused as a whole, because no sum of it would be right."""
