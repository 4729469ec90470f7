"""Reads the growth of counters by hour. One query covers a day, so that 200 targets stay below Prometheus' limit of samples."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from llm_serving_exporter.clients.json_api import ApiError, Labels, Prometheus, Series
from llm_serving_exporter.clients.stored_labels import read_label
from llm_serving_review.evidence import names
from llm_serving_review.evidence.names import Asking, Quantity
from llm_serving_review.evidence.usage import Hours, Line, Owner, Usage
from llm_serving_review.evidence.week import HOUR_SECONDS, Hour, Week

_CHUNK_SECONDS = 86_400.0
MINUTE_SECONDS = 60.0
# asked again with less where it was too much
_SMALLER = ("large", "late")

Progress = Callable[[str], None]
T = TypeVar("T")


class Reader:
    """Reads by hour and by minute. `missing` collects what could not be read, in sentences. Raises ApiError where Prometheus cannot be
    reached."""

    def __init__(self, prometheus: Prometheus, asking: Asking, progress: Progress) -> None:
        self.prometheus = prometheus
        self.asking = asking
        self.progress = progress
        self.missing: list[str] = []

    def read_usage(self, week: Week) -> Usage:
        """Every counter of a week. Money and GPU time must be readable, or ApiError is raised; what else fails is named as missing."""
        found: dict[str, tuple[Line, ...]] = {}
        unread = []
        for quantity in names.QUANTITIES:
            words = quantity.name.replace("_", " ")
            self.progress(f"{week.name}: {words}")
            if quantity in (names.COST, names.GPU_SECONDS):
                found[quantity.name] = self.read_lines(quantity, week)
            else:
                lines = self.attempt(f"{words} of {week.name}", self.read_lines, quantity, week)
                found[quantity.name] = lines or ()
                if lines is None:
                    unread.append(quantity.name)
        return Usage(**found, unread=tuple(unread))

    def read_recorded_lines(self, quantity: Quantity, week: Week) -> tuple[Line, ...]:
        """Growth of a counter by hour as the rule pack recorded it. Raises ApiError."""
        return tuple(
            Line(find_owner(labels, self.asking.identity), tuple(labels.get(label, "") for label in quantity.of), hours)
            for labels, hours in self.read_hourly(lambda seconds: self.asking.recorded(quantity), week, whole=True)
        )

    def attempt(self, what: str, read: Callable[..., T], *arguments: object) -> T | None:
        """What `read` finds; None, and a line in `missing`, where it cannot be read."""
        try:
            return read(*arguments)
        except ApiError as error:
            if error.reason == "unreachable":
                raise
            self.missing.append(f"{what} could not be read: {error}")
            return None

    def read_hourly(
        self, query: Callable[[float], str], week: Week, *, whole: bool = False
    ) -> list[tuple[Labels, Hours]]:
        """Series with a value for each hour, asked for at its end. `query` is written for a length in seconds. `whole`: all hours at once,
        for queries that read a sample an hour."""
        at = {round(hour.end): index for index, hour in enumerate(week.hours)}
        found: dict[tuple[tuple[str, str], ...], list[float | None]] = {}
        for chunk in (week.hours,) if whole else _cut_at_days(week.hours):
            for labels, points in self._read_range(query(chunk[0].seconds), chunk[0].end, chunk[-1].end, HOUR_SECONDS):
                line = found.setdefault(tuple(sorted(labels.items())), [None] * len(week.hours))
                for moment, value in points:
                    index = at.get(round(moment))
                    if index is not None:
                        line[index] = value
        return [(dict(labels), tuple(hours)) for labels, hours in found.items()]

    def read_by_minute(self, query: str, begin: float, end: float, step: float = MINUTE_SECONDS) -> Iterator[Series]:
        """Series with a value for each minute, or each `step` seconds, in pieces of a day: the same labels come again in the next piece."""
        at = begin
        while at <= end:
            until = min(at + _CHUNK_SECONDS - step, end)
            yield from self._read_range(query, at, until, step)
            at = until + step

    def _read_range(self, query: str, begin: float, end: float, step: float) -> list[Series]:
        try:
            return self.prometheus.range(query, begin, end, step)
        except ApiError as error:
            steps = round((end - begin) / step)
            if error.reason not in _SMALLER or steps < 1:
                raise
        middle = begin + steps // 2 * step
        return [*self._read_range(query, begin, middle, step), *self._read_range(query, middle + step, end, step)]

    def read_lines(self, quantity: Quantity, week: Week) -> tuple[Line, ...]:
        """The growth of one quantity by owner and its own labels. Raises ApiError."""
        gathered: dict[tuple[Owner, tuple[str, ...]], Hours] = {}
        for labels, hours in self.read_hourly(lambda seconds: self.asking.increase(quantity, seconds), week):
            key = find_owner(labels, self.asking.extra), tuple(labels.get(label, "") for label in quantity.of)
            gathered[key] = add_hours(gathered[key], hours) if key in gathered else hours
        return tuple(Line(owner, of, hours) for (owner, of), hours in gathered.items())


def find_owner(labels: Labels, extra: Sequence[str]) -> Owner:
    """The owner of a series."""
    return Owner(
        tuple((name, read_label(labels, name)) for name in extra),
        labels.get("target", ""),
        labels.get("model_name", ""),
        labels.get("role", ""),
    )


def add_hours(one: Hours, other: Hours) -> Hours:
    """The sum, hour by hour; None only where both are unknown."""
    return tuple(b if a is None else a if b is None else a + b for a, b in zip(one, other, strict=True))


def _cut_at_days(hours: Sequence[Hour]) -> Iterator[Sequence[Hour]]:
    """Runs of whole hours, a day at most; a shorter hour stands alone."""
    run: list[Hour] = []
    for hour in hours:
        if run and (len(run) * HOUR_SECONDS >= _CHUNK_SECONDS or hour.seconds != run[-1].seconds):
            yield run
            run = []
        run.append(hour)
    yield run
