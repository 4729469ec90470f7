"""A CSV file, plain or packed with gzip -> its rows, one at a time. What is damaged is named by line; what stands before it is kept."""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from collections.abc import Iterator

from llm_serving_exporter.report.bills.charge import BillError, Fault

# a line of a bill has some kilobytes: a longer one is a file without line ends, or a quote that is never closed
LONGEST_LINE = 2**20
_LONGEST_CELL = 2**17
_GZIP = b"\x1f\x8b"
Numbered = tuple[int, list[str]]


class CsvRows:
    """Rows with the number of the line that each ends on, the header first. Damage goes to `faults` and ends the file, or the row alone."""

    def __init__(self, path: str) -> None:
        self._path = path
        # what is wrong with rows that are left out, since it was last asked for
        self.faults: list[Fault] = []

    def __iter__(self) -> Iterator[Numbered]:
        """Raises BillError where the file cannot be opened."""
        try:
            with open(self._path, "rb") as file:
                yield from self._read(_unpack(file))
        except OSError as error:
            raise BillError(
                Fault(self._path, 0, "", f"the file cannot be read: {error.strerror or error}", "Check its path and permissions.")
            ) from None  # fmt: skip

    def _read(self, raw: io.BufferedReader) -> Iterator[Numbered]:
        # with a byte order mark or without; what is no UTF-8 is in names, which no sum needs
        with io.TextIOWrapper(raw, encoding="utf-8-sig", errors="replace", newline="") as text:
            csv.field_size_limit(_LONGEST_CELL)
            rows = csv.reader(self._bounded(text))
            while True:
                try:
                    row = next(rows)
                except StopIteration:
                    return
                except csv.Error:
                    self._note(rows.line_num, "a cell is not closed, or longer than 128 KiB", "Export the file again.")
                    continue
                except (EOFError, zlib.error, gzip.BadGzipFile):
                    self._note(rows.line_num + 1, "the packed file ends in the middle or is damaged", "Fetch it again.")
                    return
                if row:
                    yield rows.line_num, row

    def _bounded(self, text: io.TextIOWrapper) -> Iterator[str]:
        number = 0
        while line := text.readline(LONGEST_LINE):
            number += 1
            if len(line) == LONGEST_LINE:
                self._note(number, "the line is longer than 1 MiB", "Give a CSV file with a charge a line.")
                return
            yield line

    def _note(self, line: int, what: str, fix: str) -> None:
        self.faults.append(Fault(self._path, line, "", what, fix))


def _unpack(file: io.BufferedReader) -> io.BufferedReader:
    packed = file.peek(2)[:2] == _GZIP
    # of the interface of raw streams it has what a reader needs
    return io.BufferedReader(gzip.GzipFile(fileobj=file), 2**18) if packed else file
