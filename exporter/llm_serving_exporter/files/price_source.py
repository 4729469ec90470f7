"""The price file over time: read again when it changes; one that cannot be used changes nothing."""

from __future__ import annotations

import logging
import os

from llm_serving_exporter.config.prices import read_prices
from llm_serving_exporter.errors import Problem
from llm_serving_exporter.model.prices import PriceBook
from llm_serving_exporter.schema.problems import Place

log = logging.getLogger("llm_serving_exporter.prices")


class PriceSource:
    """Holds what the file said last. Used by one thread at a time. `good`: whether the file as it stands now is the one in use."""

    def __init__(self, path: str, book: PriceBook | None) -> None:
        self.path, self.book = path, book
        self.good = True
        self._stamp: tuple[int, ...] | None = None

    def read(self) -> bool:
        """Whether anything is otherwise than at the last look; `book` and `good` say what. Never raises; what is wrong is logged once."""
        try:
            status = os.stat(self.path)
            stamp: tuple[int, ...] = (status.st_mtime_ns, status.st_size, status.st_ino, status.st_ctime_ns)
        except (OSError, ValueError):
            stamp = ()
        if stamp == self._stamp:
            return False
        self._stamp = stamp
        problems: list[Problem] = []
        found = read_prices(self.path, Place(self.path, "", problems))
        before = self.book, self.good
        self.book, self.good = found or self.book, not problems
        for problem in problems:
            log.error("the price file was not reloaded, its last good prices stay: %s", problem)
        if found is not None and found != before[0]:
            log.info("price file reloaded, %d prices", len(found.statements))
        return (self.book, self.good) != before
