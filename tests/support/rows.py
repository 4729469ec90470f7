"""A table is one test: it tries every row, and says at its end which rows are wrong.

As an item of its own a row costs several milliseconds of pytest, and some more in every process that collects it; one wrong line of the
product is told by hundreds of red items. `check_rows` takes what `pytest.mark.parametrize` takes, and stands in its place.
"""

import functools
import inspect
import itertools
import traceback
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from textwrap import indent
from typing import Any

import pytest

from tests.support.logging_state import keep_logging
from tests.support.paths import ROOT

Test = Callable[..., None]
Source = Iterable[Any] | Callable[[], Iterable[Any]]
# names of marks
Marks = tuple[str, ...]

_PARAM = type(pytest.param())
_LONGEST_NAME = 100
_TIER = "marks_of_rows"


@dataclass(frozen=True, slots=True)
class Row:
    """The arguments that a test gets, and what the row is called."""

    name: str
    values: dict[str, Any]
    marks: Marks


@dataclass(frozen=True)
class Axis:
    """One `check_rows` above a test; several stand for every combination of their rows."""

    arguments: tuple[str, ...]
    # whether a row is the value itself, no tuple of values
    single: bool
    source: Source
    ids: list[Any] | Callable[[Any], Any] | None

    @property
    def rows(self) -> list[Row]:
        """Those of the table, each with a name."""
        lines = list(self.source() if callable(self.source) else self.source)
        names = self.ids if isinstance(self.ids, list) else [None] * len(lines)
        if len(names) != len(lines):
            raise ValueError(f"{len(lines)} rows of {', '.join(self.arguments)} have {len(names)} names")
        rows = [self._read(line, index, name) for index, (line, name) in enumerate(zip(lines, names, strict=True))]
        if callable(self.source) and any(row.marks for row in rows):
            raise ValueError("a row that is made when the test runs has a mark: pytest chose its tests before")
        return rows if isinstance(self.ids, list) else _number_namesakes(rows)

    @property
    def kinds_of_marks(self) -> list[Marks]:
        """Each set of marks that rows have."""
        if callable(self.source):
            return [()]
        return list(dict.fromkeys(_name_marks(line) for line in self.source))

    def _read(self, line: Any, index: int, name: Any) -> Row:
        if isinstance(line, _PARAM):
            values, name = tuple(line.values), line.id or name
        else:
            values = (line,) if self.single else tuple(line)
        if len(values) != len(self.arguments):
            raise ValueError(f"row {index} has {len(values)} values for {', '.join(self.arguments)}: {line!r}")
        arguments = dict(zip(self.arguments, values, strict=True))
        if name is None:
            name = "-".join(self._name_value(argument, value, index) for argument, value in arguments.items())
        return Row(str(name), arguments, _name_marks(line))

    def _name_value(self, argument: str, value: Any, index: int) -> str:
        name = self.ids(value) if callable(self.ids) else None
        return str(name) if name is not None else name_value(value) or f"{argument}{index}"


@dataclass(frozen=True)
class Table:
    """A test, and the rows that it tries."""

    test: Test
    axes: tuple[Axis, ...]
    # names of fixtures that are the same for all rows
    shared: frozenset[str]

    @property
    def rows(self) -> list[Row]:
        """Every combination of the axes' rows."""
        rows = [_join(parts) for parts in itertools.product(*(axis.rows for axis in self.axes))]
        if not rows:
            raise ValueError(f"the table of {self.test.__name__} is empty: it is a test that cannot fail")
        if namesakes := _find_namesakes(rows):
            raise ValueError(f"rows of {self.test.__name__} have the same name: {name_some(namesakes)}")
        return rows

    @property
    def tiers(self) -> list[Marks]:
        """The sets of marks that its rows have: each makes a test of its own."""
        kinds = itertools.product(*(axis.kinds_of_marks for axis in self.axes))
        return list(dict.fromkeys(_unite(marks) for marks in kinds))

    def check(self, marks: Marks, fixtures: dict[str, Any]) -> None:
        """Try each row that has these marks."""
        __tracebackhide__ = True
        unknown = [name for name in fixtures if name not in self.shared and name not in _FRESH]
        if unknown:
            raise TypeError(
                f"the rows of {self.test.__name__} share {', '.join(unknown)}: name it in `shared` where no row changes it"
            )
        rows = [row for row in self.rows if row.marks == marks]
        if chosen.name is None:
            self._check_all(rows, fixtures)
        else:
            self._check_chosen(rows, fixtures)

    def _check_all(self, rows: list[Row], fixtures: dict[str, Any]) -> None:
        __tracebackhide__ = True
        faults: list[RowFault] = []
        skipped: list[str] = []
        for index, row in enumerate(rows):
            try:
                self._try(row, index, fixtures)
            except pytest.skip.Exception as skip:
                skipped.append(f"{row.name}: {skip}")
            # pytest.fail raises no Exception
            except (Exception, pytest.fail.Exception) as error:
                faults.append(describe_fault(row.name, error, self.test))
        if faults:
            raise AssertionError(say_faults(faults, len(rows)))
        if skipped:
            pytest.skip(f"{len(skipped)} of {len(rows)} rows, the others are right: {name_some(skipped)}")

    def _check_chosen(self, rows: list[Row], fixtures: dict[str, Any]) -> None:
        """One row alone, whose exception stays what it is: a debugger stands where it was raised."""
        __tracebackhide__ = True
        for index, row in enumerate(rows):
            if row.name == chosen.name:
                self._try(row, index, fixtures)
                return
        pytest.skip(f"has no row {chosen.name!r}, but {name_some([row.name for row in rows])}")

    def _try(self, row: Row, index: int, fixtures: dict[str, Any]) -> None:
        __tracebackhide__ = True
        with ExitStack() as stack:
            stack.enter_context(keep_logging())
            fresh = {
                name: stack.enter_context(_FRESH[name](value, index))
                if name in _FRESH and name not in self.shared
                else value
                for name, value in fixtures.items()
            }
            self.test(**fresh, **row.values)


class Chosen:
    """The only row that is tried; conftest.py takes its name from `--row`."""

    name: str | None = None


chosen = Chosen()


def check_rows(
    arguments: str | Sequence[str],
    rows: Source,
    *,
    ids: Iterable[Any] | Callable[[Any], Any] | None = None,
    shared: Collection[str] = (),
) -> Callable[[Test], Test]:
    """One test of all rows. `rows` may be a function that makes them when the test runs.

    `ids` names the rows, or makes a name of a value. A list has each name once.

    Each row has a `tmp_path`, a `monkeypatch` and captured output of its own. `shared` names the other fixtures of the test: no row may
    leave something in them that the next one finds. Rows with a mark make a test of their own, which has the mark.
    """
    single = isinstance(arguments, str) and "," not in arguments
    names = arguments.split(",") if isinstance(arguments, str) else arguments
    # an enumeration is both
    source = list(rows) if isinstance(rows, Iterable) else rows
    row_names = ids if ids is None or callable(ids) else list(ids)
    axis = Axis(tuple(name.strip() for name in names if name.strip()), single, source, row_names)
    return functools.partial(_add_axis, axis=axis, shared=frozenset(shared))


def _add_axis(test: Test, axis: Axis, shared: frozenset[str]) -> Test:
    below = getattr(test, "table", None) or Table(test, (), frozenset())
    return _make_test(test, Table(below.test, (*below.axes, axis), below.shared | shared))


def _make_test(test: Test, table: Table) -> Test:
    parameters = inspect.signature(table.test).parameters
    filled = [argument for axis in table.axes for argument in axis.arguments]
    if absent := [argument for argument in filled if argument not in parameters]:
        raise TypeError(f"{table.test.__name__} has no argument {', '.join(absent)}")

    @functools.wraps(test)
    def check(**fixtures: Any) -> None:
        __tracebackhide__ = True
        table.check(fixtures.pop(_TIER, ()), fixtures)

    fixtures = [parameter for name, parameter in parameters.items() if name not in filled]
    marks = [
        mark for mark in getattr(test, "pytestmark", ()) if not (mark.name == "parametrize" and mark.args[0] == _TIER)
    ]
    tiers = table.tiers
    if tiers != [()]:
        fixtures.append(inspect.Parameter(_TIER, inspect.Parameter.KEYWORD_ONLY))
        params = [
            pytest.param(tier, marks=[getattr(pytest.mark, name) for name in tier], id="-".join(tier) or "quick")
            for tier in tiers
        ]
        marks.append(pytest.mark.parametrize(_TIER, params).mark)
    # pytest reads them: which fixtures it gives to the test, and which marks it has
    vars(check).update(table=table, pytestmark=marks, __signature__=inspect.Signature(fixtures))
    return check


def _name_marks(line: Any) -> Marks:
    marks = line.marks if isinstance(line, _PARAM) else ()
    if longer := [mark for mark in marks if mark.args or mark.kwargs]:
        raise ValueError(f"a row has a mark that says more than its name: {longer[0]}")
    return tuple(mark.name for mark in marks)


def _join(parts: Sequence[Row]) -> Row:
    values = {argument: value for part in parts for argument, value in part.values.items()}
    return Row("-".join(part.name for part in parts), values, _unite([part.marks for part in parts]))


def _unite(marks: Iterable[Marks]) -> Marks:
    return tuple(dict.fromkeys(mark for each in marks for mark in each))


# --- what rows are called


def name_value(value: Any) -> str | None:
    """What a person would call it, or None where its text says too much or nothing."""
    if isinstance(value, type) or inspect.isroutine(value):
        return value.__name__
    if isinstance(value, str):
        text = value
    elif value is None or isinstance(
        value, bool | int | float | complex | bytes | Enum | Path | list | tuple | dict | set
    ):
        text = str(value)
    else:
        text = value.name if isinstance(getattr(value, "name", None), str) else ""
    printable = text.encode("unicode_escape").decode() if not text.isprintable() else text
    if isinstance(value, str):
        return printable if len(printable) <= _LONGEST_NAME else f"{printable[:_LONGEST_NAME]}…"
    return printable if 0 < len(printable) <= _LONGEST_NAME else None


def _number_namesakes(rows: list[Row]) -> list[Row]:
    """Names that were made out of values may be the same: they get their place in the table."""
    namesakes = set(_find_namesakes(rows))
    return [
        Row(f"{row.name} #{index}", row.values, row.marks) if row.name in namesakes else row
        for index, row in enumerate(rows)
    ]


def _find_namesakes(rows: list[Row]) -> list[str]:
    return [name for name, times in Counter(row.name for row in rows).items() if times > 1]


# --- fixtures that each row has for itself


@contextmanager
def _make_folder(folder: Path, index: int) -> Iterator[Path]:
    made = folder / f"row{index}"
    made.mkdir()
    yield made


@contextmanager
def _make_monkeypatch(patch: pytest.MonkeyPatch, index: int) -> Iterator[pytest.MonkeyPatch]:
    with patch.context() as made:
        yield made


@contextmanager
def _drain(captured: Any, index: int) -> Iterator[Any]:
    captured.readouterr()
    yield captured


@contextmanager
def _clear(records: Any, index: int) -> Iterator[Any]:
    records.clear()
    yield records


_FRESH: dict[str, Callable[[Any, int], Any]] = {
    "tmp_path": _make_folder,
    "monkeypatch": _make_monkeypatch,
    "capsys": _drain,
    "capfd": _drain,
    "caplog": _clear,
    "recwarn": _clear,
}


# --- how a test of a table says which rows are wrong ---


# whoever sees more wrong rows than that looks for what they share
MOST_SHOWN = 20
_MOST_NAMED = 100


@dataclass(frozen=True, slots=True)
class RowFault:
    """A row whose check failed."""

    name: str
    # file and line of the check, and that line's text
    place: str
    # the assertion's text, or the exception's type and text
    text: str


def describe_fault(name: str, error: BaseException, check: Callable[..., None]) -> RowFault:
    """What `check` raised for the row, as text: an exception would hold everything that the check had in hand."""
    frames = traceback.extract_tb(error.__traceback__)
    code = inspect.unwrap(check).__code__
    path = code.co_filename
    of_check = [frame for frame in frames if frame.filename == path] or [frames[-1]]
    places = [_say_place(of_check[-1])]
    if frames[-1] is not of_check[-1]:
        places.append(_say_place(frames[-1]))
    text = str(error)
    if not isinstance(error, AssertionError):
        text = f"{type(error).__name__}: {text}"
    return RowFault(name, "\n".join(places), text)


def say_faults(faults: Sequence[RowFault], tried: int) -> str:
    """How many rows are wrong, which, and why."""
    parts = [f"{len(faults)} of {tried} rows {'is' if len(faults) == 1 else 'are'} wrong"]
    parts += [
        "\n".join(part for part in (fault.name, indent(fault.place, "  "), indent(fault.text, "    ")) if part.strip())
        for fault in faults[:MOST_SHOWN]
    ]
    if rest := faults[MOST_SHOWN:]:
        parts.append(f"and {len(rest)} more: {name_some([fault.name for fault in rest])}")
    return "\n\n".join(parts)


def name_some(names: Sequence[str]) -> str:
    """All of them, where they can be read."""
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more


def _say_place(frame: traceback.FrameSummary) -> str:
    path = Path(frame.filename)
    where = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
    return f"{where}:{frame.lineno}: {frame.line}"
