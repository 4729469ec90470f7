"""The file of drill results over time: read again when it changes; a bad or missing one keeps what it said last."""

from __future__ import annotations

import logging
import os

from llm_serving_exporter.errors import DrillResultsError
from llm_serving_exporter.model.drill import DrillResult
from llm_serving_exporter.state import drill_results

log = logging.getLogger("llm_serving_exporter.drill")


class DrillSource:
    """Holds what the file said last. Used by one thread at a time."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._results: tuple[DrillResult, ...] = ()
        self._stamp: tuple[int, ...] | None = None
        self._problem = ""

    def read(self) -> tuple[DrillResult, ...]:
        """The last good results, () where there have been none. Never raises; what is wrong is logged once."""
        problem = ""
        try:
            status = os.stat(self.path)
            # the last of them for a file that may be read since a chmod
            stamp = status.st_mtime_ns, status.st_size, status.st_ino, status.st_ctime_ns
            if stamp == self._stamp:
                return self._results
            self._stamp = stamp
            self._results = drill_results.read(self.path)
        except FileNotFoundError:
            self._stamp = None
            problem = f"there is no file of drill results {self.path}; the first drill makes it"
        except DrillResultsError as error:
            problem = str(error)
        except (OSError, ValueError) as error:
            self._stamp = None
            problem = f"the file of drill results {self.path} cannot be looked at: {error}"
        if problem and problem != self._problem:
            kept = f" {len(self._results)} results that it had before stay." if self._results else ""
            log.warning("%s%s", problem, kept)
        self._problem = problem
        return self._results
