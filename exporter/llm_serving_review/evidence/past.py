"""The weeks before: from the tables that earlier reviews left in their folder, else from the rule pack's hourly records.

Counters are never asked for them: beyond the store's retention they have nothing, and what is left of them would look like a small week.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from zoneinfo import ZoneInfo

from llm_serving_exporter.model.record import Struct, field
from llm_serving_review.evidence import names
from llm_serving_review.evidence.fetch import Reader
from llm_serving_review.evidence.kept_files import KeptFileError, KeptWeek, read_kept_week
from llm_serving_review.evidence.usage import Usage
from llm_serving_review.evidence.week import Week, week_before, week_of

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
