"""The review's fact table in SQLite: a row is one quantity of one owner in one week, with its labels, its value by hour and its total.

Figures are views over it, a file of SQL for each chapter in this folder. Absent is NULL; a sum of nothing is NULL. SQLite's and Python's
own sums differ by version, so every sum is `fsum`: exact, then rounded once.

What SQL may call beside its own: `fsum(value)`, and `add_up(value, ...)` over columns; `sum_hours(hours)`, hour by hour;
`times(hours, shares)`, known where both are; `total_of(hours)`; `priced_shares(priced, all, usd)`.
"""

# ruff: noqa: S608 - what is written into queries are names and expressions of this package; values are bound

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, cast
from weakref import finalize

from llm_serving_review.evidence import names
from llm_serving_review.evidence.context import ModelKey
from llm_serving_review.evidence.usage import (
    Extra,
    Hours,
    Line,
    Owner,
    Usage,
    Where,
    pack,
    sum_packed,
    total_packed,
    unpack,
)
from llm_serving_review.evidence.week import Week
from llm_serving_review.tables.sums import sum_known

# expressions over rows, and what is bound in them: `name_model`, and the names of rates as JSON
OF_MODEL = "fleet = :fleet and model_name = :model_name and role = :role"
AT_RATES = "rate in (select value from json_each(:rates))"

# the week under review, and the one before
NOW, BEFORE = "now", "before"
# whose `filter` and `iif` the views are written with (sqlite.org/changes.html): what Python is built with may be older
LEAST_SQLITE = (3, 32)
# in the order in which each stands on those before it
_CHAPTERS = ("counted", "totals", "tenants")


class FactTable:
    """Both weeks, or one, with only what counts: `counted.sql` says what that is."""

    def __init__(
        self, weeks: Mapping[str, tuple[Week, Usage]], identity: Sequence[str] = (), by_labels: Sequence[str] = ()
    ) -> None:
        """`weeks`: by NOW and BEFORE. `identity`: labels that tell fleets apart. `by_labels`: labels that the bill is split by."""
        self.weeks = {name: week for name, (week, _) in weeks.items()}
        self._db = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        finalize(self, self._db.close)
        self.identity, self._by_labels = tuple(identity), tuple(dict.fromkeys(by_labels))
        self._owners: dict[Owner, int] = {}
        _add_functions(self._db)
        self._run("schema")
        for week, (_, usage) in weeks.items():
            for quantity in names.QUANTITIES:
                self.add(week, quantity.name, quantity.of, getattr(usage, quantity.name))
        for chapter in _CHAPTERS:
            self._run(chapter)

    def add(self, week: str, quantity: str, labels: Sequence[str], lines: Iterable[Line]) -> None:
        """Adds rows. `labels`: the columns in which the lines' own labels stand."""
        columns = ("week", "quantity", "owner", "hours", "total", *labels)
        self._db.executemany(
            f"insert into fact ({', '.join(columns)}) values ({', '.join('?' * len(columns))})",
            ((week, quantity, self._find_owner(line.owner), line.packed, line.total, *line.of) for line in lines),
        )

    def forget(self, week: str) -> None:
        """Takes a week out, where it cannot be compared with."""
        self._db.execute("delete from fact where week = ?", (week,))

    def lines(self, week: str, quantity: str, where: str = "1", **values: object) -> tuple[Line, ...]:
        """Rows of a quantity for which an expression over `line` holds, in the order in which they came."""
        owners = list(self._owners)
        labels = next(one.of for one in names.QUANTITIES if one.name == quantity)
        columns = ", ".join(("owner", "hours", *labels))
        query = f"select {columns} from line where week = :week and quantity = :quantity and ({where}) order by fact"
        rows = self._db.execute(query, {"week": week, "quantity": quantity, **values})
        return tuple(Line(owners[owner], tuple(of), unpack(hours)) for owner, hours, *of in rows)

    def sum_total(self, week: str, where: str, **values: object) -> float | None:
        """The sum of the rows of a week for which an expression over `summand` holds; None without any."""
        found: float | None = self._sum("fsum(total)", week, where, values)
        return found

    def sum_hours(self, week: str, where: str, **values: object) -> Hours:
        """The same by hour; None in hours without any value."""
        found = self._sum("sum_hours(hours)", week, where, values)
        return (None,) * len(self.weeks[week].hours) if found is None else unpack(found)

    def _sum(self, what: str, week: str, where: str, values: Mapping[str, object]) -> Any:
        query = f"select {what} from summand where section = '' and week = :week and ({where})"
        return self._db.execute(query, {"week": week, **values}).fetchone()[0]

    def rows(self, query: str, **values: object) -> Iterator[dict[str, Any]]:
        """Rows by the names of their columns. Those with a dot are gathered: "usd_by_phase.idle" stands in the mapping usd_by_phase,
        where it is not NULL."""
        cursor = self._db.execute(query, values)
        columns = [column.partition(".") for column, *_ in cursor.description]
        for row in cursor:
            found: dict[str, Any] = {}
            for (name, dot, key), value in zip(columns, row, strict=True):
                if not dot:
                    found[name] = unpack(value) if isinstance(value, bytes) else value
                elif value is not None:
                    found.setdefault(name, {})[key] = value
            yield found

    def _find_owner(self, owner: Owner) -> int:
        number = self._owners.get(owner)
        if number is None:
            number = self._owners[owner] = len(self._owners)
            fleet = write_key(owner.fleet(self.identity))
            model = write_key((fleet, owner.model_name))
            row = number, fleet, owner.target, owner.model_name, owner.role, write_key(owner.who), model
            self._db.execute("insert into owner values (?, ?, ?, ?, ?, ?, ?)", row)
            of = [
                ("", ""),
                ("model", owner.model_name),
                *((f"label {name}", owner.label(name)) for name in self._by_labels),
            ]
            self._db.executemany("insert into member values (?, ?, ?)", ((number, *each) for each in of))
        return number

    def _run(self, chapter: str) -> None:
        self._db.executescript((Path(__file__).parent / f"{chapter}.sql").read_text(encoding="utf-8"))


def write_key(key: Where | tuple[Extra, str]) -> str:
    """A fleet, or a target and where it is, as the table has them."""
    return json.dumps(key)


def name_model(key: ModelKey) -> dict[str, str]:
    """What `OF_MODEL` has bound."""
    extra, model_name, role = key
    return {"fleet": write_key(tuple(value for _, value in extra)), "model_name": model_name, "role": role}


def read_fleet(text: str) -> Where:
    """A fleet back."""
    return tuple(json.loads(text))


class _Sum(list[Any]):
    """`fsum`: NULL where every value is."""

    step = list.append

    def finalize(self) -> float | None:
        return sum_known(self)


class _SumHours(list[Any]):
    """`sum_hours`: NULL where every value is."""

    step = list.append

    def finalize(self) -> bytes | None:
        return sum_packed(packed for packed in self if packed is not None)


@lru_cache(maxsize=8)
def _pack_ones(length: int) -> bytes:
    return pack((1.0,) * (length // 8))


def _times(hours: bytes, shares: bytes | None) -> bytes | None:
    """Hour by hour; unknown where the share is 0."""
    if shares is None:
        return None
    if shares == _pack_ones(len(shares)):
        return hours
    both = zip(unpack(hours), unpack(shares), strict=True)
    return pack(None if value is None or not share else value * share for value, share in both)


def _find_priced_shares(priced: bytes | None, whole: bytes | None, usd: bytes | None) -> bytes | None:
    """The share of GPU time that has a price, by hour: 1 where only the cost is known, 0 where there is no price. NULL where all are 0."""
    if priced and priced == whole and all(unpack(priced)):
        return _pack_ones(len(priced))
    some = whole or usd
    nothing = (None,) * len(unpack(some)) if some else ()
    columns = (unpack(hours) if hours else nothing for hours in (priced, whole, usd))
    shares = tuple(
        ((part or 0.0) / all_ if all_ else 0.0) or float(bool(cost)) for part, all_, cost in zip(*columns, strict=True)
    )
    return pack(shares) if any(shares) else None


def _add_functions(db: sqlite3.Connection) -> None:
    # the stub knows no NULL
    db.create_aggregate("fsum", 1, cast(Any, _Sum))
    db.create_aggregate("sum_hours", 1, cast(Any, _SumHours))
    for name, count, function in (
        ("add_up", -1, lambda *values: sum_known(values)),
        ("times", 2, _times),
        ("total_of", 1, total_packed),
        ("priced_shares", 3, _find_priced_shares),
    ):
        db.create_function(name, count, function, deterministic=True)
