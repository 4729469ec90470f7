"""The file beside the cost reviews that says when they were made: written by the command, read by the exporter that publishes it.

Format, version 1: {"version": 1, "since_unix_seconds": 1.7e9, "last_run_unix_seconds": 1.7e9 or null,
"last_success_unix_seconds": 1.7e9 or null, "tried_since_unix_seconds": 1.7e9 or null,
"sent": {"week": "2026-W46", "to": ["the webhook"]} or null}. Other keys are ignored on reading. `since`: when the schedule was first known.
`tried_since`: of the runs for one due time, the first that was started. `sent`: who has the week's review although the run failed.
"""

from __future__ import annotations

import json
import logging
import os
from dataclasses import dataclass, replace
from math import isfinite
from pathlib import Path
from typing import Any

from llm_serving_exporter.errors import ReviewRunsError
from llm_serving_exporter.files.written import write_atomically

log = logging.getLogger("llm_serving_exporter.review")

NAME = "cost-review.json"
BAD_SUFFIX = ".bad"
VERSION = 1
LARGEST_FILE_BYTES = 64 * 2**10
# what two readings of one clock may differ by; a time further ahead was written while the clock was wrong
AHEAD_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Runs:
    """Unix seconds; None where it has not happened. `last_run`: when one was last started by its schedule, or ended. `sent_to` have the
    review of `sent_week`, which others have yet to get."""

    since: float
    last_run: float | None = None
    last_success: float | None = None
    sent_week: str = ""
    sent_to: tuple[str, ...] = ()
    tried_since: float | None = None

    def at(self, now: float) -> Runs:
        """Without what would only happen after `now`: it is not known then, and the file keeps it, since it may be this clock that is
        wrong."""

        def past(when: float | None) -> float | None:
            return None if when is None or when > now + AHEAD_SECONDS else when

        return replace(
            self,
            since=past(self.since) or 0.0,
            last_run=past(self.last_run),
            last_success=past(self.last_success),
            tried_since=past(self.tried_since),
        )


class _NoRunsError(ReviewRunsError):
    """What stands in the file is none."""


def read(folder: str) -> Runs | None:
    """What stands in the folder's file; None where there is none yet. Raises ReviewRunsError."""
    path = Path(folder) / NAME
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST_FILE_BYTES + 1)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise ReviewRunsError(_unusable(path, f"cannot be read: {_cause(error)}")) from None
    try:
        if len(content) > LARGEST_FILE_BYTES:
            raise ValueError("it is too large")
        document = json.loads(content.decode("utf-8"))
        if not isinstance(document, dict) or document.get("version") != VERSION:
            raise ValueError(f"it is no object of version {VERSION}")
        since = _seconds(document, "since")
        if since is None:
            raise ValueError("since_unix_seconds is missing")
        return Runs(
            since,
            _seconds(document, "last_run"),
            _seconds(document, "last_success"),
            *_sent(document.get("sent")),
            _seconds(document, "tried_since"),
        )
    except (ValueError, RecursionError) as error:
        raise _NoRunsError(_unusable(path, f"is not what a review leaves: {error}")) from None


def begin(folder: str, now: float, due: float | None = None) -> Runs:
    """What stands there; where nothing does, that the schedule is known from now on. Raises ReviewRunsError.

    A file that is none is put aside. Then the review that was `due` last is asked for anew: it may not have been made.
    """
    since = now
    try:
        known = read(folder)
    except _NoRunsError as error:
        path = Path(folder) / NAME
        try:
            os.replace(path, f"{path}{BAD_SUFFIX}")
        except OSError as refused:
            raise ReviewRunsError(_unusable(path, f"cannot be put aside: {_cause(refused)}")) from None
        log.error("%s It was put aside as %s%s, a new one is begun.", error, NAME, BAD_SUFFIX)
        known, since = None, now if due is None else due
    if known is None:
        known = Runs(since)
        _write(folder, known)
    return known


def attempt(folder: str, at: float, due: float) -> None:
    """Notes a run for `due` before it is started, so that it counts whatever becomes of it. Raises ReviewRunsError."""
    known = read(folder) or Runs(at)
    seen = known.at(at)
    since = seen.tried_since
    if since is None or since < due:
        since = seen.last_run if seen.last_run is not None and seen.last_run >= due else at
    _write(folder, replace(known, last_run=at, tried_since=since))


def record(folder: str, at: float, *, succeeded: bool, week: str = "", sent_to: tuple[str, ...] = ()) -> None:
    """Notes a run that ended `at`. Of one that failed the last success stays, and who got the week's review all the same; `week` "": it
    came to none, and who has one stays as it is.

    Raises ReviewRunsError.
    """
    known = read(folder) or Runs(at)
    if succeeded:
        _write(folder, Runs(known.since, at, at))
        return
    known = replace(known, last_run=at)
    if week:
        before = known.sent_to if known.sent_week == week else ()
        known = replace(known, sent_week=week, sent_to=tuple(dict.fromkeys((*before, *sent_to))))
    _write(folder, known)


def _write(folder: str, runs: Runs) -> None:
    path = Path(folder) / NAME
    document = {
        "version": VERSION,
        "since_unix_seconds": runs.since,
        "last_run_unix_seconds": runs.last_run,
        "last_success_unix_seconds": runs.last_success,
        "tried_since_unix_seconds": runs.tried_since,
        "sent": {"week": runs.sent_week, "to": list(runs.sent_to)} if runs.sent_to else None,
    }
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, (json.dumps(document, indent=1) + "\n").encode())
    except (OSError, ValueError) as error:
        raise ReviewRunsError(_unusable(path, f"cannot be written: {_cause(error)}")) from None


def _seconds(document: dict[str, Any], what: str) -> float | None:
    value = document.get(f"{what}_unix_seconds")
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not (0 <= value < 1e15 and isfinite(value)):
        raise ValueError(f"{what}_unix_seconds is not a time in unix seconds")
    return float(value)


def _sent(found: Any) -> tuple[str, tuple[str, ...]]:
    if found is None:
        return "", ()
    if not isinstance(found, dict) or not isinstance(found.get("week"), str) or not isinstance(found.get("to"), list):
        raise ValueError("sent is no object with week and to")
    return found["week"], tuple(str(where) for where in found["to"])


def _unusable(path: Path, what: str) -> str:
    return f"the file of review runs {path} {what}. Check its folder and permissions, or remove it."


def _cause(error: Exception) -> str:
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error)
