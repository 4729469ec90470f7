"""What a large bill costs to read: `.venv/bin/python -m bench.bills --lines 10000000`.

Writes a bill of so many lines into a folder of its own, as FOCUS or CUR 2.0, and reads it in a fresh process, whose highest resident memory
and time are printed. One line in fifty is of a machine with GPUs of the week, of 2,000 machines and 168 hours; all others are of other
services, machines and days, no two alike, so that nothing is spared by what repeats. With `--one-in 1 --machines 20000 --format cur` every
line is of a machine, of more machines than have rows of their own, and each has a number that is kept: the most memory that there is.
"""

from __future__ import annotations

import csv
import os
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

from bench.shared import make_parser, run_fresh
from llm_serving_review.bills.read import read_bill
from llm_serving_review.settings.settings import BillSettings
from tests.support.builders import bills as made
from tests.support.builders.costevidence import WEEK

# begin, end, which machine, and what it cost
_COLUMNS = {
    "focus": ("ChargePeriodStart", "ChargePeriodEnd", "ResourceId", "EffectiveCost"),
    "cur": (
        *(f"line_item_{name}" for name in ("usage_start_date", "usage_end_date", "resource_id", "unblended_cost")),
    ),
}


def list_rows(lines: int, form: str, machines: int, one_in: int) -> Iterator[list[str]]:
    """The header, then the lines."""
    every = list(made.list_focus_rows((made.SAME,)) if form == "focus" else made.list_cur_rows((made.SAME,)))
    names = list(every[0])
    yield names
    machine = [every[0][name] for name in names]
    other = [next(row for row in reversed(every) if "bucket" in row.values())[name] for name in names]
    begin, end, named, cost = (names.index(name) for name in _COLUMNS[form])
    number = names.index("identity_line_item_id") if form == "cur" else None
    hours = [made.write_time(made.MONDAY + timedelta(hours=hour)) for hour in range(-192, 360)]
    for line in range(lines):
        if line % one_in == 0:
            row, which = machine.copy(), line // one_in
            row[named], at = f"i-{which % machines:017x}", 192 + which // machines % 168
        else:
            row, at = other.copy(), line % 551
            row[named], row[cost] = f"arn:aws:s3:::bucket-{line}", repr(line % 9973 * 1e-4)
        row[begin], row[end] = hours[at], hours[at + 1]
        if number is not None:
            row[number] = f"line{line:x}"
        yield row


def read(path: str) -> None:
    begin = time.perf_counter()
    before = resource.getrusage(resource.RUSAGE_SELF)
    bill = read_bill(BillSettings((path,)), WEEK, (), lambda text: print(text, file=sys.stderr))
    used = resource.getrusage(resource.RUSAGE_SELF)
    cpu = used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime
    print(
        f"{bill.lines:,} lines of {', '.join(bill.formats)}, {os.path.getsize(path) / 2**20:,.0f} MiB: "
        f"{time.perf_counter() - begin:.0f} s, {cpu:.0f} s of CPU, {bill.lines / cpu:,.0f} lines per second of CPU, "
        f"highest resident memory {used.ru_maxrss / 1024:.0f} MiB; {len(bill.ledger.machines):,} machines, {bill.fault_count} faults"
    )


def main() -> None:
    parser = make_parser("bills", __doc__)
    parser.add_argument("--lines", type=int, default=1_000_000)
    parser.add_argument("--format", choices=("focus", "cur"), default="focus")
    parser.add_argument("--machines", type=int, default=2_000)
    parser.add_argument("--one-in", type=int, default=50)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "bill.csv")
        rows = list_rows(arguments.lines, arguments.format, arguments.machines, arguments.one_in)
        with path.open("w", newline="") as file:
            csv.writer(file).writerows(rows)
        run_fresh(read, str(path))


if __name__ == "__main__":
    main()
