"""The weeks before: from the tables that earlier reviews left in their folder, else from the rule pack's hourly records.

Counters are never asked for them: beyond the store's retention they have nothing, and what is left of them would look like a small week.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from math import fsum, isfinite
from pathlib import Path
from zoneinfo import ZoneInfo

from llm_serving_exporter.errors import LLMServingExporterError
from llm_serving_exporter.model.record import Struct, field
from llm_serving_review.evidence import names
from llm_serving_review.evidence.fetch import Reader
from llm_serving_review.evidence.usage import Usage
from llm_serving_review.evidence.week import Week, week_before, week_of

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
# amounts by hour that are no phase of GPU time
_BESIDE_GPU_TIME = frozenset({"electricity_usd", "unused_commitments_usd", "pools_usd"})


class KeptFileError(LLMServingExporterError):
    """A file of an earlier review that cannot be used. The message names it and says what is wrong."""


class KeptHour(Struct, frozen=True):
    """One hour of an earlier review."""

    usd: float | None  # GPU time; None where nothing was known
    tokens: (
        float | None
    )  # prompt as sent and generated; None where nothing was known, or the file is of a version that did not say
    # what pools add to GPU time, mostly less than nothing; None without pools, or where the file is of a version that did not say
    pools_usd: float | None = None


class KeptWeek(Struct, frozen=True):
    """What an earlier review found. None: it did not know, or did not say."""

    file: str
    paid_usd: float  # GPU time, unused commitments and electricity
    gpu_usd: float | None  # GPU time alone
    tokens: float | None  # prompt as sent and generated
    usd_per_million: float | None  # over all tokens
    hours_seen: float | None  # hours of the week that are in the figures
    missing_usd: float | None  # estimated cost of gaps, in no other figure
    # settings that decide what a week is: timezone, identity_labels
    settings: Mapping[str, str] = field(default_factory=dict)
    hours: Mapping[int, KeptHour] = field(default_factory=dict)  # by the Unix second at which the hour begins


def read_kept_week(folder: Path, name: str) -> KeptWeek | None:
    """The week of that name; None where there is no file of it. Raises KeptFileError for one that cannot be used."""
    path = folder / f"cost-{name}.csv"
    text = _read(path, MOST_BYTES)
    if text is None:
        return None
    figures: dict[tuple[str, str, str], float | None] = {}
    settings: dict[str, str] = {}
    for row in _list_rows(path, text, _NEEDED):
        if row["week"] != name or row["model_name"]:
            continue
        if row["section"] == "settings":
            settings[row["item"]] = row["label_value"]
        elif not row["label"]:
            figures[row["section"], row["item"], row["phase"]] = _read_number(path, row["value"])
    paid = figures.get(("invoice", "sum", ""))
    if paid is None:
        raise KeptFileError(
            f"{path.name} has no sum of {name}: it is not a review's table, or is cut off. It is left out."
        )
    prompt, generated = (figures.get(("tokens", item, "")) for item in ("prompt_as_sent", "decode"))
    return KeptWeek(
        path.name,
        paid,
        figures.get(("spend", "gpu_time", "")),
        None if prompt is None or generated is None else prompt + generated,
        figures.get(("unit_cost", "million_tokens", "blended")),
        figures.get(("month", "hours_seen", "")),
        figures.get(("gaps", "missing_estimate", "")),
        settings,
        _read_hours(folder / f"cost-{name}-hours.csv", name),
    )


def _read_hours(path: Path, name: str) -> dict[int, KeptHour]:
    text = _read(path, MOST_HOURS_BYTES)
    if text is None:
        return {}
    found: dict[int, KeptHour] = {}
    for row in _list_rows(path, text, _HOURS_NEEDED):
        if row["week"] != name:
            raise KeptFileError(f"{path.name} has hours of another week. It is left out.")
        parts = [
            _read_number(path, value)
            for column, value in row.items()
            if column.endswith("_usd") and column not in _BESIDE_GPU_TIME
        ]
        known = [value for value in parts if value is not None]
        counted = [_read_number(path, row.get(column) or "") for column in ("prompt_tokens", "generated_tokens")]
        begin = _read_number(path, row["hour_begin_unix_seconds"])
        if begin is None or len(found) >= _MOST_HOURS:
            raise KeptFileError(f"{path.name} is not a table of a week's hours. It is left out.")
        tokens = None if None in counted else fsum(value for value in counted if value is not None)
        pools = _read_number(path, row.get("pools_usd") or "")
        found[round(begin)] = KeptHour(fsum(known) if known else None, tokens, pools)
    return found


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


class RecordedWeek(Struct, frozen=True):
    """A week as the hourly records have it: without prices, commitments and gaps."""

    week: Week  # its hours
    usage: Usage  # spend, GPU time, electricity and tokens; other quantities are empty


class Past(Struct, frozen=True):
    """What is known of the weeks before the one under review. A week is in one of the two, or in neither."""

    kept: Mapping[str, KeptWeek] = field(default_factory=dict)  # by the week's name, out of files
    recorded: Mapping[str, RecordedWeek] = field(default_factory=dict)  # by the week's name, out of the store
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


def read_past(reader: Reader, folder: Path, week: Week) -> Past:
    """Reads the weeks before `week`: files of `folder`, then the records of what no file has. A file that cannot be used is named, a record
    that cannot be read is named in `reader.missing`. Raises ApiError where Prometheus cannot be reached."""
    kept: dict[str, KeptWeek] = {}
    recorded: dict[str, RecordedWeek] = {}
    refused = []
    for one in list_weeks_before(week):
        try:
            found = read_kept_week(folder, one.name)
        except KeptFileError as error:
            refused.append(str(error))
            found = None
        if found is not None:
            kept[one.name] = found
        else:
            usage = reader.attempt(f"hourly records of {one.name}", _read_records, reader, one)
            if usage is not None and not usage.empty:
                recorded[one.name] = RecordedWeek(one, usage)
    return Past(kept, recorded, tuple(refused))


def _read_records(reader: Reader, week: Week) -> Usage:
    reader.progress(f"{week.name}: hourly records")
    cost = reader.recorded_lines(names.COST, week)
    if not cost:
        return Usage()
    return Usage(
        cost=cost,
        gpu_seconds=reader.recorded_lines(names.GPU_SECONDS, week),
        energy_cost=reader.recorded_lines(names.ENERGY_COST, week),
        prompt_tokens=reader.recorded_lines(names.PROMPT, week),
        decode_tokens=reader.recorded_lines(names.DECODE, week),
    )
