"""Files of bills, and the file that maps machines: which there are, how they are packed, and their rows."""

from __future__ import annotations

import bz2
import codecs
import csv
import glob
import gzip
import io
import json
import lzma
import os
import re
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from llm_serving_exporter.model.record import Struct
from llm_serving_exporter.settings.document import LARGEST_FILE_BYTES, read_bounded, read_document
from llm_serving_exporter.settings.keys import is_empty, type_name
from llm_serving_exporter.settings.problems import Node, Place, Scalar, listed
from llm_serving_review.bills.charge import BillError, Fault, LineError, normalise_resource

# --- Paths, folders and patterns of the settings -> the files of bills, each once, and of an export only its newest version.
#
# Clouds write an export again and again while a month runs. Where they keep the older ones, each stands in a folder of its own below that
# of the month:
#
# - AWS: BILLING_PERIOD=2026-11/<version>/ of Data Exports, 20261101-20261201/<version>/ of older reports
# (https://docs.aws.amazon.com/cur/latest/userguide/dataexports-export-delivery.html) - Azure: 20261101-20261130/<run>/
# (https://learn.microsoft.com/azure/cost-management-billing/costs/tutorial-improved-exports)
#
# FOCUS has no number of a line, so that two versions elsewhere cannot be told from two bills: the review says where a machine is billed
# for more hours than there are.


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
            fix = "Give a .csv, .csv.gz, .csv.zip or .parquet file, a folder of them, or a pattern."
            raise BillError(pattern, what, fix)
        found.update(dict.fromkeys(os.path.realpath(path) for path in here))
        if len(found) > MOST_FILES:
            raise BillError(pattern, f"there are more than {MOST_FILES:,} files", "Name the months you want.")
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


# --- How a file of a bill is packed and written -> its text. Programs say both in the first bytes, whatever the file is called.
#
# AWS writes reports as .gz or .zip (https://docs.aws.amazon.com/cur/latest/userguide/cur-create.html); people pack what they send on with
# bzip2 or xz; spreadsheets save "Unicode text" as UTF-16.


# in each file of Office Open XML (ECMA-376, part 2), such as .xlsx, which is a zip file
_WORKBOOK = "[Content_Types].xml"
# what damage is to the programs that unpack
DAMAGE = (EOFError, zlib.error, gzip.BadGzipFile, lzma.LZMAError, zipfile.BadZipFile)


def _open_zip(file: io.BufferedReader) -> Any:
    """The one file in it; folders and what macOS adds are none."""
    packed = zipfile.ZipFile(file)
    names = [one for one in packed.namelist() if not one.endswith("/") and not one.startswith("__MACOSX/")]
    if _WORKBOOK in names:
        raise LineError("", "the file is a workbook of a spreadsheet program", "Save it as CSV.")
    if len(names) != 1:
        raise LineError("", f"the zip file has {len(names):,} files in it, not one", "Unpack it, and give the folder.")
    try:
        return packed.open(names[0])
    except (RuntimeError, NotImplementedError):  # a password, or a way of packing that Python does not have
        raise LineError(
            "", "the zip file has a password or is packed in a way that is not read", "Unpack it."
        ) from None


# by their first bytes; of the formats' own definitions
_PACKINGS: tuple[tuple[bytes, Callable[[io.BufferedReader], Any]], ...] = (
    (b"\x1f\x8b", lambda file: gzip.GzipFile(fileobj=file, mode="rb")),
    (b"PK\x03\x04", _open_zip),
    (b"BZh", bz2.BZ2File),
    (b"\xfd7zXZ\x00", lzma.LZMAFile),
)
# that no library which is here can unpack
_NOT_READ = ((b"\x28\xb5\x2f\xfd", "zstd"), (b"\x04\x22\x4d\x18", "lz4"), (b"7z\xbc\xaf\x27\x1c", "7-Zip"))
# what a store packs for sending, some programs leave packed once more
_MOST_LAYERS = 2
# what is no UTF-8 is in names, which no sum needs
_ENCODINGS = ((codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))


def open_text(file: io.BufferedReader) -> io.TextIOWrapper:
    """The text of a file, unpacked as it is read, with a byte order mark or without. Raises LineError and what DAMAGE lists."""
    raw = file
    for _ in range(_MOST_LAYERS):
        begin = raw.peek(8)[:8]
        for magic, name in _NOT_READ:
            if begin.startswith(magic):
                raise LineError("", f"the file is packed with {name}", "Unpack it, or pack it with gzip.")
        unpack = next((one for magic, one in _PACKINGS if begin.startswith(magic)), None)
        if unpack is None:
            break
        # of the interface of raw streams it has what a reader needs; a larger buffer loses more before a damage
        raw = io.BufferedReader(unpack(raw))
    start = raw.peek(2)[:2]
    encoding = next((name for mark, name in _ENCODINGS if start == mark), "utf-8-sig")
    return io.TextIOWrapper(raw, encoding=encoding, errors="replace", newline="")


# --- A CSV file, plain or packed -> its rows, one at a time. What is damaged is named by line; what stands before it is kept.


# a line of a bill has some kilobytes: a longer one is a file without line ends, or a quote that is never closed
LONGEST_LINE = 2**20
_LONGEST_CELL = 2**17
# between cells, where a program of another country or another kind wrote the file; no column's name has one of them
_DELIMITERS = ",;\t|"
Numbered = tuple[int, list[str]]
# line, what is wrong, what to do
_NoteAt = Callable[[int, str, str], None]


def find_delimiter(header: str) -> str:
    """What stands between the cells of a file, by its first line."""
    return max(_DELIMITERS, key=header.count)


def read_csv_rows(path: str, note: Callable[[Fault], None]) -> Iterator[Numbered]:
    """Rows of a CSV file with the number of the line that each ends on, the header first. Damage goes to `note` and ends the file, or the
    row alone. Raises BillError where the file cannot be opened."""

    def note_at(line: int, what: str, fix: str) -> None:
        note(Fault(path, line, "", what, fix))

    try:
        with open(path, "rb") as file:
            yield from _read_rows(file, note_at)
    except OSError as error:
        what = f"the file cannot be read: {error.strerror or error}"
        raise BillError(path, what, "Check its path and permissions.") from None
    except LineError as error:
        raise BillError(path, error.what, error.fix) from None


def _read_rows(file: io.BufferedReader, note_at: _NoteAt) -> Iterator[Numbered]:
    at = 0
    try:
        with open_text(file) as text:
            csv.field_size_limit(_LONGEST_CELL)
            lines = _bound_lines(text, note_at)
            head = next(lines, "")
            rows = csv.reader(chain([head], lines), delimiter=find_delimiter(head))
            while True:
                at = rows.line_num
                try:
                    row = next(rows)
                except StopIteration:
                    return
                except csv.Error:
                    note_at(rows.line_num, "a cell is not closed, or longer than 128 KiB", "Export the file again.")
                    continue
                # a spreadsheet writes empty lines with all of their commas
                if any(row):
                    yield rows.line_num, row
    except (*DAMAGE, OSError) as error:
        # of bzip2, damage is an OSError too, without a number
        if isinstance(error, OSError) and error.errno is not None:
            raise
        note_at(at + 1, "the packed file ends in the middle or is damaged", "Fetch it again.")


def _bound_lines(text: io.TextIOWrapper, note_at: _NoteAt) -> Iterator[str]:
    number = 0
    while line := text.readline(LONGEST_LINE):
        number += 1
        if len(line) == LONGEST_LINE:
            note_at(number, "the line is longer than 1 MiB", "Give a CSV file with a charge a line.")
            return
        yield line


# --- A Parquet file -> its rows as texts, batch by batch. Needs pyarrow, which comes with the extra bills-parquet.


# rows that are in memory at once
BATCH_ROWS = 8192


def read_parquet_rows(path: str, note: Callable[[Fault], None]) -> Iterator[Numbered]:
    """Rows of a Parquet file, as a CSV file would have them. Raises BillError where nothing can read it."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        fix = "Install llm-serving-exporter[bills-parquet], or export as CSV."
        raise BillError(path, "nothing is installed that reads Parquet", fix) from None
    number = 1
    try:
        with parquet.ParquetFile(path, memory_map=False, pre_buffer=False) as file:
            yield number, list(file.schema_arrow.names)
            for batch in file.iter_batches(BATCH_ROWS, use_threads=False):
                columns = [map(_write, column.to_pylist()) for column in batch.columns]
                for cells in zip(*columns, strict=True):
                    number += 1
                    yield number, list(cells)
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        first_line = (str(error) or type(error).__name__).splitlines()[0][:200]
        damage = BillError(path, f"the Parquet file is damaged: {first_line}", "Fetch it again.")
        if number == 1:
            raise damage from None
        note(damage.fault)


def _write(value: Any) -> str:
    if type(value) is str:
        return value
    if value is None:
        return ""
    if isinstance(value, datetime):
        return (value if value.tzinfo is not None else value.replace(tzinfo=UTC)).isoformat()
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, list) and all(isinstance(one, tuple) and len(one) == 2 for one in value):
        # a map
        return json.dumps({str(key): "" if one is None else str(one) for key, one in value})
    if isinstance(value, dict):
        return json.dumps(value, default=str)
    return str(value)


# --- The mapping file: machines as a bill names them -> what was metered on them. CSV with a line of headers, or YAML.


# what a machine can be mapped to, the most telling first
LABELS = ("target", "node", "workload", "model_name")
_RESOURCE = "resource"
_MOST_ENTRIES = 50_000
_EXAMPLE = "Write resource,target in its first line and a machine in each other."


class Found(NamedTuple):
    """One thing that was metered."""

    label: str  # one of LABELS
    value: str  # the label's value


def read_mapping_file(path: str, place: Place) -> Mapping[str, tuple[Found, ...]] | None:
    """What each machine is mapped to, by `normalise_resource`; a machine may stand in several lines. None where the file cannot be used,
    which is then reported."""
    at = Place(path, "", place.problems)
    before = len(at.problems)
    entries = _read_csv(path, at) if path.lower().endswith(".csv") else _read_yaml(read_document(path, at), at)
    found: dict[str, dict[Found, None]] = {}
    for number, (resource, one) in enumerate(entries):
        if number >= _MOST_ENTRIES:
            at.refuse(f"there are more than {_MOST_ENTRIES:,} machines", "Map nodes by tags instead.")
            break
        found.setdefault(normalise_resource(resource), {})[one] = None
    if len(at.problems) == before and not found:
        at.refuse("the file maps no machine", _EXAMPLE)
    return None if len(at.problems) > before else {resource: tuple(ones) for resource, ones in found.items()}


def _read_csv(path: str, at: Place) -> Iterator[tuple[str, Found]]:
    try:
        text = read_bounded(Path(path))
        if len(text) > LARGEST_FILE_BYTES:
            at.refuse("the file is larger than 1 MiB", "Map nodes by tags instead.")
            return
        lines = text.splitlines(keepends=True)
        rows = csv.reader(lines, delimiter=find_delimiter(lines[0] if lines else ""))
        header = [name.strip().lower() for name in next(rows, [])]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        cause = error.strerror if isinstance(error, OSError) and error.strerror else "it is not CSV in UTF-8"
        at.refuse(f"the file cannot be read: {cause}", "Check its path and how it was saved.")
        return
    labels = [(header.index(label), label) for label in LABELS if label in header]
    if _RESOURCE not in header or not labels:
        at.refuse(f"the headers must be {_RESOURCE} and one of {listed(LABELS)}", _EXAMPLE)
        return
    position = header.index(_RESOURCE)
    try:
        for row in rows:
            if not any(row):
                continue
            cells = [cell.strip() for cell in row] + [""] * (len(header) - len(row))
            one = next((Found(label, cells[index]) for index, label in labels if cells[index]), None)
            if not cells[position] or one is None:
                at.refuse(
                    f"line {rows.line_num} has no {_RESOURCE if not cells[position] else listed(LABELS)}", _EXAMPLE
                )
                return
            yield cells[position], one
    except csv.Error as error:
        # behind the dash is advice for programmers, which differs from Python to Python
        at.refuse(f"line {rows.line_num} is not CSV: {str(error).partition(' - ')[0]}", _EXAMPLE)


def _read_yaml(node: Node | None, at: Place) -> Iterator[tuple[str, Found]]:
    if node is None or is_empty(node):
        return
    if not isinstance(node, dict):
        at.refuse(f"must be a mapping (machine: what runs there), not {type_name(node)}", "Write i-0abc: {target: …}.")
        return
    for resource, content in node.items():
        here = at.key(resource)
        if not isinstance(content, dict) or not content or not set(content) <= set(LABELS):
            here.refuse(f"must be a mapping with {listed(LABELS)}", "Write i-0abc: {target: …}.")
            continue
        label = next(label for label in LABELS if label in content)
        named = content[label]
        values = named if isinstance(named, list) else [named]
        for one in values:
            if isinstance(one, Scalar) and one.text:
                yield resource, Found(label, one.text)
            else:
                here.key(label).refuse(f"must be a name, not {type_name(one)}", "Write a name, or a list of names.")
