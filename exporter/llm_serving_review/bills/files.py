"""Paths, folders and patterns of the settings -> the files of bills, each once, and of an export only its newest version.

Clouds write an export again and again while a month runs. Where they keep the older ones, each stands in a folder of its own below that of
the month:

- AWS: BILLING_PERIOD=2026-11/<version>/ of Data Exports, 20261101-20261201/<version>/ of older reports
  (https://docs.aws.amazon.com/cur/latest/userguide/dataexports-export-delivery.html)
- Azure: 20261101-20261130/<run>/ (https://learn.microsoft.com/azure/cost-management-billing/costs/tutorial-improved-exports)

FOCUS has no number of a line, so that two versions elsewhere cannot be told from two bills: the review says where a machine is billed for
more hours than there are.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from llm_serving_exporter.model.record import Struct
from llm_serving_review.bills.charge import BillError, Fault

MOST_FILES = 10_000
_BILLS = (".csv", ".csv.gz", ".csv.bz2", ".csv.xz", ".csv.zip", ".csv.zst", ".tsv", ".parquet")
_PERIOD = re.compile(r"(?:billing_period=\d{4}-\d{2}|\d{8}-\d{8})", re.IGNORECASE)
# a version's name that says when it was written
_TIMED = re.compile(r"\d{8}")


class BillFiles(Struct, frozen=True):
    """What is read."""

    paths: tuple[str, ...]  # in the order of their names
    older: tuple[str, ...] = ()  # older versions of exports, whose files are left out


def find_bill_files(patterns: Iterable[str]) -> BillFiles:
    """The files of paths, folders (with all below them) and patterns such as bills/2026-*.csv. Raises BillError where one has none."""
    found: dict[str, None] = {}
    for pattern in patterns:
        here = sorted(_find(pattern))
        if not here:
            what = (
                "the folder has no bill" if os.path.isdir(pattern) else "no file has this name" if not glob.has_magic(pattern)
                else "no file fits this pattern"
            )  # fmt: skip
            raise BillError(
                Fault(
                    pattern,
                    0,
                    "",
                    what,
                    "Give a .csv, .csv.gz, .csv.zip or .parquet file, a folder of them, or a pattern.",
                )
            )
        found.update(dict.fromkeys(os.path.realpath(path) for path in here))
        if len(found) > MOST_FILES:
            raise BillError(
                Fault(pattern, 0, "", f"there are more than {MOST_FILES:,} files", "Name the months you want.")
            )
    return _drop_older(tuple(found))


def _find(pattern: str) -> Iterable[str]:
    if os.path.isfile(pattern):
        # one that is named is read, whatever it is called
        yield pattern
        return
    for path in glob.iglob(pattern, recursive=True):
        if os.path.isdir(path):
            yield from (
                str(one) for one in Path(path).rglob("*") if one.name.lower().endswith(_BILLS) and one.is_file()
            )
        elif os.path.isfile(path):
            yield path


def _drop_older(paths: Sequence[str]) -> BillFiles:
    versions: dict[str, dict[str, list[str]]] = {}
    for path in paths:
        folder = os.path.dirname(path)
        if _PERIOD.fullmatch(os.path.basename(os.path.dirname(folder))):
            versions.setdefault(os.path.dirname(folder), {}).setdefault(folder, []).append(path)
    older = [
        folder for of_period in versions.values() for folder in sorted(of_period) if folder != _find_newest(of_period)
    ]
    left_out = set(older)
    return BillFiles(tuple(path for path in paths if os.path.dirname(path) not in left_out), tuple(older))


def _find_newest(versions: dict[str, list[str]]) -> str:
    """By names that say when, else by when their files were written."""
    if all(_TIMED.match(os.path.basename(folder)) for folder in versions):
        return max(versions, key=os.path.basename)
    return max(versions, key=lambda folder: (max(os.path.getmtime(path) for path in versions[folder]), folder))
