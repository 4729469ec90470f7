"""The weeks before: from the tables that earlier reviews left in their folder, else from the rule pack's hourly records.

Counters are never asked for them: beyond the store's retention they have nothing, and what is left of them would look like a small week.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from math import fsum, isfinite
from pathlib import Path
from zoneinfo import ZoneInfo

from llm_serving_exporter.errors import LLMServingExporterError
from llm_serving_exporter.model.record import Struct, field
from llm_serving_exporter.model.text import count_nouns
from llm_serving_review.evidence import names
from llm_serving_review.evidence.fetch import Reader
from llm_serving_review.evidence.usage import Usage
from llm_serving_review.evidence.week import Week, week_before, week_of
from llm_serving_review.tables.sums import sum_known

# --- Reads the tables that an earlier review left in its folder: cost-2026-W46.csv and cost-2026-W46-hours.csv.
#
# Anything may lie under such a name. A file that is too large, cut off, or somebody else's is refused by name; its week is then not known.


# the largest that was seen had 3 MB: 400 models and as many teams
MOST_BYTES = 32 * 2**20
# 169 hours of a row below 300 characters
MOST_HOURS_BYTES = 2**20
# of one week, with some room
_MOST_HOURS = 200
_NEEDED = frozenset({"week", "section", "item", "label", "label_value", "model_name", "phase", "value", "unit"})
_HOURS_NEEDED = frozenset({"week", "hour_begin_unix_seconds"})
_LARGEST = 1e18
# of a week's hours: with fewer an hour without data is not known, with more it cost nothing
COMPLETE_SHARE = 0.998
# amounts by hour that are no phase of GPU time
_BESIDE_GPU_TIME = frozenset({"electricity_usd", "unused_commitments_usd", "pools_usd"})


class KeptFileError(LLMServingExporterError):
    """A file of an earlier review that cannot be used. The message names it and says what is wrong."""


class Source(StrEnum):
    """Where a week is known from."""

    # counters, read for this review
    COUNTERS = "this review"
    # the table that its own review left
    FILE = "its review"
    # the rule pack's hourly records
    RECORDS = "hourly records"


class WeekSpend(Struct, frozen=True):
    """A week, or a span, of which something is known: sums, and its hours."""

    week: Week
    source: Source
    paid_usd: float  # GPU time, unused commitments and electricity
    tokens: float | None  # prompt as sent and generated; None where it is not known
    usd_per_million: float | None  # GPU time over tokens, of engines that count them; None where it is not known
    hours_seen: float  # hours that are in the figures; an hour without one of two equal targets counts half
    missing_usd: float = 0.0  # estimated cost of gaps, in no other figure
    # GPU time by the Unix second at which the hour begins; only hours that are known
    usd_by_hour: Mapping[int, float] = field(default_factory=dict)
    tokens_by_hour: Mapping[int, float] = field(default_factory=dict)  # tokens by the same
    # GPU time of engines whose tokens are counted, by the same; {} where that is all of it, or nobody knows
    counted_usd_by_hour: Mapping[int, float] = field(default_factory=dict)
    # what pools add to GPU time by the same, mostly less than nothing
    pools_by_hour: Mapping[int, float] = field(default_factory=dict)
    marks: tuple[str, ...] = ()  # what makes it hard to compare, a few words each
    # numbers of days of which more than a little is missing in gaps of single targets
    doubtful_days: frozenset[int] = frozenset()

    @property
    def complete(self) -> bool:
        """Whether its hours without data cost nothing."""
        return self.hours_seen >= COMPLETE_SHARE * self.week.length_hours

    @property
    def paid_by_hour(self) -> dict[int, float]:
        """What is paid by the Unix second at which the hour begins, after pools. What else is paid beside GPU time is spread evenly over
        the hours that are known."""
        hours = {
            at: self.usd_by_hour.get(at, 0.0) + self.pools_by_hour.get(at, 0.0)
            for at in (round(hour.begin) for hour in self.week.hours)
            if self.complete or at in self.usd_by_hour
        }
        beside = self.paid_usd - fsum(hours.values())
        return {hour: usd + beside / len(hours) for hour, usd in hours.items()}


def mark_hours(seen: float, week: Week) -> tuple[str, ...]:
    """A mark where less than the whole week is seen."""
    if seen >= COMPLETE_SHARE * week.length_hours:
        return ()
    return (f"{seen:.0f} of {count_nouns(round(week.length_hours), 'hour')}",)


def read_kept_week(folder: Path, week: Week, identity: Sequence[str] = ()) -> WeekSpend | None:
    """The week out of the files of its own review; None where there is none. `identity`: the labels that tell fleets apart in this one.
    Raises KeptFileError for a file that cannot be used."""
    path = folder / f"cost-{week.name}.csv"
    text = _read(path, MOST_BYTES)
    if text is None:
        return None
    figures: dict[tuple[str, str, str], float | None] = {}
    settings: dict[str, str] = {}
    for row in _list_rows(path, text, _NEEDED):
        if row["week"] != week.name or row["model_name"]:
            continue
        if row["section"] == "settings":
            settings[row["item"]] = row["label_value"]
        elif not row["label"]:
            figures[row["section"], row["item"], row["phase"]] = _read_number(path, row["value"])
    paid = figures.get(("invoice", "sum", ""))
    if paid is None:
        raise KeptFileError(
            f"{path.name} has no sum of {week.name}: it is not a review's table, or is cut off. It is left out."
        )
    prompt, generated = (figures.get(("tokens", item, "")) for item in ("prompt_as_sent", "decode"))
    seen = figures.get(("month", "hours_seen", ""))
    seen = week.length_hours if seen is None else seen
    zone, labels = settings.get("timezone", week.zone), ",".join(identity)
    usd, tokens, pools = _read_hours(folder / f"cost-{week.name}-hours.csv", week.name)
    return WeekSpend(
        week,
        Source.FILE,
        paid,
        None if prompt is None or generated is None else prompt + generated,
        figures.get(("unit_cost", "million_tokens", "blended")),
        seen,
        figures.get(("gaps", "missing_estimate", "")) or 0.0,
        usd,
        tokens,
        pools_by_hour=pools,
        marks=(
            *((f"weeks of {zone}",) if zone != week.zone else ()),
            *(("other identity labels",) if settings.get("identity_labels", labels) != labels else ()),
            *mark_hours(seen, week),
        ),
    )


def _read_hours(path: Path, name: str) -> tuple[dict[int, float], ...]:
    """GPU time in USD, tokens, and what pools add to GPU time, each by the Unix second at which an hour begins; only what is known. Older
    versions did not write all of it."""
    text = _read(path, MOST_HOURS_BYTES)
    found: dict[int, tuple[float | None, ...]] = {}
    for row in _list_rows(path, text, _HOURS_NEEDED) if text is not None else ():
        if row["week"] != name:
            raise KeptFileError(f"{path.name} has hours of another week. It is left out.")
        usd = [
            _read_number(path, value)
            for column, value in row.items()
            if column.endswith("_usd") and column not in _BESIDE_GPU_TIME
        ]
        counted = [_read_number(path, row.get(column) or "") for column in ("prompt_tokens", "generated_tokens")]
        begin = _read_number(path, row["hour_begin_unix_seconds"])
        if begin is None or len(found) >= _MOST_HOURS:
            raise KeptFileError(f"{path.name} is not a table of a week's hours. It is left out.")
        pools = _read_number(path, row.get("pools_usd") or "")
        found[round(begin)] = sum_known(usd), None if None in counted else sum_known(counted), pools
    return tuple(
        {at: value for at, values in found.items() if (value := values[column]) is not None} for column in range(3)
    )


def _read(path: Path, most: int) -> str | None:
    """The file's text; None where there is none."""
    try:
        if not path.is_file():
            if path.exists():
                raise KeptFileError(f"{path.name} is not a file. It is left out.")
            return None
        with path.open("rb") as file:
            content = file.read(most + 1)
    except OSError as error:
        raise KeptFileError(f"{path.name} cannot be read: {error.strerror}. It is left out.") from None
    if len(content) > most:
        raise KeptFileError(f"{path.name} is larger than {most // 2**20} MiB. It is left out.")
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise KeptFileError(f"{path.name} is not text. It is left out.") from None


def _list_rows(path: Path, text: str, needed: frozenset[str]) -> Iterator[dict[str, str]]:
    """Rows of as many cells as the heading has."""
    if not text.endswith("\n"):
        raise KeptFileError(f"{path.name} ends within a line: it is cut off. It is left out.")
    try:
        reader = csv.reader(io.StringIO(text), strict=True)
        columns = next(reader, [])
        if not needed <= set(columns):
            raise KeptFileError(f"{path.name} is not a review's table. It is left out.")
        for row in reader:
            if len(row) != len(columns):
                raise KeptFileError(
                    f"{path.name} has a row of {len(row)} cells under {len(columns)} headings. It is left out."
                )
            yield dict(zip(columns, row, strict=True))
    except csv.Error as error:
        # behind the dash is advice for programmers, which differs from Python to Python
        what = str(error).partition(" - ")[0]
        raise KeptFileError(f"{path.name} is not a table: {what}. It is left out.") from None


def _read_number(path: Path, text: str) -> float | None:
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not isfinite(value) or abs(value) > _LARGEST:
        raise KeptFileError(f"{path.name} has {text[:40]!r} where a number belongs. It is left out.")
    return value


# a quarter, with the week under review
WEEKS = 12


class Past(Struct, frozen=True):
    """What is known of the weeks before the one under review."""

    weeks: tuple[WeekSpend, ...] = ()  # each once, out of files or out of the store
    refused: tuple[str, ...] = ()  # files that were left out and why, in sentences


def list_weeks_before(week: Week, count: int = WEEKS - 1) -> Iterator[Week]:
    """The weeks before, the latest first. Of a span: from the week on in which it begins."""
    zone = ZoneInfo(week.zone)
    if week.is_span:
        year, number, _ = week.monday.isocalendar()
        week = week_of(year, number, zone)
        yield week
    for _ in range(count):
        week = week_before(week, zone)
        yield week


def read_past(reader: Reader, folder: Path, week: Week, sum_records: Callable[[Week, Usage], WeekSpend]) -> Past:
    """Reads the weeks before `week`: files of `folder`, then the records of what no file has. `sum_records`: what a week's records come
    to; it is asked week by week, because those of a large fleet do not go into memory together. A file that cannot be used is named, a
    record that cannot be read is named in `reader.missing`. Raises ApiError where Prometheus cannot be reached."""
    weeks, refused = [], []
    for one in list_weeks_before(week):
        found = None
        try:
            found = read_kept_week(folder, one, reader.asking.identity)
        except KeptFileError as error:
            refused.append(str(error))
        if found is None:
            usage = reader.attempt(f"hourly records of {one.name}", _read_records, reader, one)
            found = sum_records(one, usage) if usage is not None and not usage.empty else None
        if found is not None:
            weeks.append(found)
    return Past(tuple(weeks), tuple(refused))


def _read_records(reader: Reader, week: Week) -> Usage:
    reader.progress(f"{week.name}: hourly records")
    cost = reader.read_recorded_lines(names.COST, week)
    if not cost:
        return Usage()
    return Usage(
        cost=cost,
        gpu_seconds=reader.read_recorded_lines(names.GPU_SECONDS, week),
        energy_cost=reader.read_recorded_lines(names.ENERGY_COST, week),
        prompt_tokens=reader.read_recorded_lines(names.PROMPT, week),
        decode_tokens=reader.read_recorded_lines(names.DECODE, week),
    )
