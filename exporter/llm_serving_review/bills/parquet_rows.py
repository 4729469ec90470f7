"""A Parquet file -> its rows as texts, batch by batch. Needs pyarrow, which comes with the extra bills-parquet."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from llm_serving_review.bills.charge import BillError, Fault
from llm_serving_review.bills.csv_rows import Numbered

# rows that are in memory at once
BATCH_ROWS = 8192


class ParquetRows:
    """Rows with their numbers, as a CSV file would have them: the header first."""

    def __init__(self, path: str) -> None:
        self._path = path
        # as CSV files have them
        self.faults: list[Fault] = []

    def __iter__(self) -> Iterator[Numbered]:
        """Raises BillError where the file cannot be opened, or nothing can read it."""
        try:
            import pyarrow
            from pyarrow import parquet
        except ImportError:
            raise BillError(
                Fault(
                    self._path, 0, "", "nothing is installed that reads Parquet",
                    "Install llm-serving-exporter[bills-parquet], or export as CSV.",
                )
            ) from None  # fmt: skip
        number = 1
        try:
            with parquet.ParquetFile(self._path, memory_map=False, pre_buffer=False) as file:
                yield number, list(file.schema_arrow.names)
                for batch in file.iter_batches(BATCH_ROWS, use_threads=False):
                    columns = [_write_column(column.to_pylist()) for column in batch.columns]
                    for cells in zip(*columns, strict=True):
                        number += 1
                        yield number, list(cells)
        except (pyarrow.ArrowException, OSError, ValueError) as error:
            fault = Fault(self._path, 0, "", f"the Parquet file is damaged: {_first_line(error)}", "Fetch it again.")
            if number == 1:
                raise BillError(fault) from None
            self.faults.append(fault)


def _write_column(values: list[Any]) -> list[str]:
    return [value if type(value) is str else _write(value) for value in values]


def _write(value: Any) -> str:
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


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0][:200]
