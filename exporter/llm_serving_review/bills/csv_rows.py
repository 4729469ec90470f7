"""A CSV file, plain or packed -> its rows, one at a time. What is damaged is named by line; what stands before it is kept."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from itertools import chain

from llm_serving_review.bills.charge import BillError, Fault
from llm_serving_review.bills.packing import DAMAGE, PackingError, open_text

# a line of a bill has some kilobytes: a longer one is a file without line ends, or a quote that is never closed
LONGEST_LINE = 2**20
_LONGEST_CELL = 2**17
# between cells, where a program of another country or another kind wrote the file; no column's name has one of them
_DELIMITERS = ",;\t|"
Numbered = tuple[int, list[str]]


def find_delimiter(header: str) -> str:
    """What stands between the cells of a file, by its first line."""
    return max(_DELIMITERS, key=header.count)


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
                yield from self._read(file)
        except OSError as error:
            raise BillError(
                Fault(self._path, 0, "", f"the file cannot be read: {error.strerror or error}", "Check its path and permissions.")
            ) from None  # fmt: skip
        except PackingError as error:
            raise BillError(Fault(self._path, 0, "", error.what, error.fix)) from None

    def _read(self, file: io.BufferedReader) -> Iterator[Numbered]:
        at = 0
        try:
            with open_text(file) as text:
                csv.field_size_limit(_LONGEST_CELL)
                lines = self._bounded(text)
                head = next(lines, "")
                rows = csv.reader(chain([head], lines), delimiter=find_delimiter(head))
                while True:
                    at = rows.line_num
                    try:
                        row = next(rows)
                    except StopIteration:
                        return
                    except csv.Error:
                        self._note(
                            rows.line_num, "a cell is not closed, or longer than 128 KiB", "Export the file again."
                        )
                        continue
                    # a spreadsheet writes empty lines with all of their commas
                    if any(row):
                        yield rows.line_num, row
        except (*DAMAGE, OSError) as error:
            # of bzip2, damage is an OSError too, without a number
            if isinstance(error, OSError) and error.errno is not None:
                raise
            self._note(at + 1, "the packed file ends in the middle or is damaged", "Fetch it again.")

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
