"""Files of bills -> the ledger of a week. One pass, a line at a time."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection
from functools import partial

from llm_serving_exporter.model.record import Struct
from llm_serving_review.bills.charge import BillError, CurrencyError, Fault, LineError
from llm_serving_review.bills.files import find_bill_files, read_csv_rows, read_parquet_rows
from llm_serving_review.bills.formats import READERS, Columns, TagReader
from llm_serving_review.bills.ledger import Ledger, Scope
from llm_serving_review.evidence.week import Week
from llm_serving_review.settings.settings import BillSettings

# faults that are shown; the others are counted
MOST_FAULTS = 10
_PROGRESS_SECONDS = 2.0
_LINES_BETWEEN = 4096
_SHORT = "Export the file again: it seems to be cut."


class Bill(Struct):
    """What was read."""

    ledger: Ledger
    files: int = 0
    older: tuple[str, ...] = ()  # older versions of exports that were left out, by their folders
    lines: int = 0  # lines below headers, with those that could not be used
    formats: tuple[str, ...] = ()  # FOCUS, AWS CUR
    cur_files: int = 0  # files of AWS CUR
    net_files: int = 0  # those of them that were read after discounts, by their net columns
    converted_lines: int = 0  # lines in another currency that the bill has in USD too
    clouds: frozenset[str] = frozenset()  # clouds whose lines they have, as `find_cloud_of_provider` names them
    faults: tuple[Fault, ...] = ()  # the first faults
    fault_count: int = 0  # all of them

    def note(self, fault: Fault) -> None:
        """One more fault; the first ones are kept."""
        self.fault_count += 1
        if len(self.faults) < MOST_FAULTS:
            self.faults += (fault,)


def read_bill(settings: BillSettings, week: Week, known: Collection[str], progress: Callable[[str], None]) -> Bill:
    """Reads all files. `known`: machines that were metered, by `normalise_resource`. Raises BillError where nothing can be compared."""
    files = find_bill_files(settings.paths)
    scope = Scope(settings.instance_types, settings.accounts, {*known, *settings.mapping})
    bill = Bill(Ledger(week, scope), len(files.paths), files.older)
    last = time.monotonic()

    def say(number: int, path: str, lines: int) -> None:
        """How far it is, every two seconds at most."""
        nonlocal last
        if time.monotonic() - last >= _PROGRESS_SECONDS:
            last, name = time.monotonic(), os.path.basename(path)[:60]
            progress(f"reading bills: {name}, file {number} of {len(files.paths)}, {lines:,} lines")

    for number, path in enumerate(files.paths, 1):
        _read_file(path, settings, bill, partial(say, number, path))
    return bill


def _read_file(path: str, settings: BillSettings, bill: Bill, say: Callable[[int], None]) -> None:
    numbered = (read_parquet_rows if _is_parquet(path) else read_csv_rows)(path, bill.note)
    first = next(numbered, None)
    if first is None:
        bill.note(Fault(path, 0, "", "the file is empty", "Leave it out, or export it again."))
        return
    columns = Columns(path, first[1], settings.format)
    reader = READERS[columns.format](columns)
    bill.cur_files += columns.format == "cur"
    bill.net_files += reader.reads_net
    if reader.name not in bill.formats:
        bill.formats += (reader.name,)
    tags = TagReader(columns, settings.tags)
    read, add, width = reader.read, bill.ledger.add, columns.width
    for number, row in numbered:
        bill.lines += 1
        if not bill.lines % _LINES_BETWEEN:
            say(bill.lines)
        if row == first[1]:
            # of a file that was put behind another one
            continue
        if len(row) != width:
            bill.note(Fault(path, number, "", f"the line has {len(row)} cells, the header {width}", _SHORT))
            continue
        try:
            charge = read(row)
        except CurrencyError as error:
            raise BillError(path, error.what, error.fix, number, error.column) from None
        except LineError as error:
            bill.note(Fault(path, number, error.column, error.what, error.fix))
            continue
        if not charge.resource and charge.instance_type and (own := tags.read(row)):
            # exported without ids of machines: what has other tags is another machine
            charge = charge._replace(resource=", ".join(f"{name}={value}" for name, value in own.items()))
        machine = add(charge)
        if machine is not None and not machine.tags:
            machine.tags = tags.read(row)
    bill.clouds |= reader.clouds - {""}
    bill.converted_lines += reader.converted_lines


def _is_parquet(path: str) -> bool:
    """By how the file begins, whatever its name."""
    try:
        with open(path, "rb") as file:
            return file.read(4) == b"PAR1"
    except OSError:
        return False
