"""The file beside the cost reviews that says when they were made: written by the command, read by the exporter that publishes it.

Format, version 1: {"version": 1, "since_unix_seconds": 1.7e9, "last_run_unix_seconds": 1.7e9 or null,
"last_success_unix_seconds": 1.7e9 or null, "tried_since_unix_seconds": 1.7e9 or null,
"earlier_success_unix_seconds": [1.6e9, …], "sent": {"week": "2026-W46", "to": ["the webhook"]} or null}. Other keys are ignored on reading.
`since`: when the schedule was first known. `tried_since`: of the runs for one due time, the first that was started. `sent`: who has the
week's review although the run failed. `earlier_success`: the last ones before `last_success`, for a clock that is put back.
"""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import Any

from llm_serving_exporter.errors import ReviewRunsError
from llm_serving_exporter.files.written import sweep_leftovers, write_atomically
from llm_serving_exporter.model.record import Struct, replace
from llm_serving_exporter.state.json_values import LARGEST_FILE_BYTES, describe_cause, parse_unix_seconds

log = logging.getLogger("llm_serving_exporter.review")

NAME = "cost-review.json"
BAD_SUFFIX = ".bad"
VERSION = 1
# what two readings of one clock may differ by; a time further ahead was written while the clock was wrong
AHEAD_SECONDS = 60.0
# successes that are kept before the last one: a clock may be wrong for some weeks
MOST_EARLIER = 8


class Runs(Struct, frozen=True):
    """When cost reviews were made. Times are Unix seconds, None where it has not happened."""

    since: float  # when the schedule was first known
    last_run: float | None = None  # when a run was last started by the schedule, or ended
    last_success: float | None = None  # when a review was last made and sent
    sent_week: str = ""  # ISO week of a review that some receivers have and others do not; "" where there is none
    sent_to: tuple[str, ...] = ()  # the receivers that have the review of `sent_week`
    tried_since: float | None = None  # when the first of the runs for the last due time was started
    earlier_successes: tuple[float, ...] = ()  # the last ones before `last_success`, newest first

    def drop_future(self, now: float) -> Runs:
        """The same without times after `now`. The file keeps those, because it may be this clock that is wrong."""

        def past(when: float | None) -> float | None:
            return None if when is None or when > now + AHEAD_SECONDS else when

        past_runs = [when for one in (self.last_success, *self.earlier_successes) if (when := past(one)) is not None]
        return replace(
            self,
            since=past(self.since) or 0.0,
            last_run=past(self.last_run),
            last_success=max(past_runs, default=None),
            tried_since=past(self.tried_since),
        )


class _NotRunsError(ReviewRunsError):
    """The file's content is not review runs."""


def read_runs(folder: str) -> Runs | None:
    """What the file in the folder says; None where there is none yet. Raises ReviewRunsError."""
    path = Path(folder) / NAME
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST_FILE_BYTES + 1)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise ReviewRunsError(_unusable_message(path, f"cannot be read: {describe_cause(error)}")) from None
    try:
        if len(content) > LARGEST_FILE_BYTES:
            raise ValueError("it is too large")
        document = json.loads(content.decode("utf-8"))
        if not isinstance(document, dict) or document.get("version") != VERSION:
            raise ValueError(f"it is no object of version {VERSION}")
        since = parse_unix_seconds(document, "since_unix_seconds")
        if since is None:
            raise ValueError("since_unix_seconds is missing")
        return Runs(
            since,
            parse_unix_seconds(document, "last_run_unix_seconds"),
            parse_unix_seconds(document, "last_success_unix_seconds"),
            *_parse_sent(document.get("sent")),
            parse_unix_seconds(document, "tried_since_unix_seconds"),
            _parse_earlier(document.get("earlier_success_unix_seconds")),
        )
    except (ValueError, RecursionError) as error:
        raise _NotRunsError(_unusable_message(path, f"is not what a review leaves: {describe_cause(error)}")) from None


def begin_runs(folder: str, now: float, due: float | None = None) -> Runs:
    """What the file says; where there is none, a new one, with the schedule known from `now` on. Raises ReviewRunsError.

    A file whose content cannot be used is renamed. The new one then begins at `due`, the last due time, so that its review is
    made: the old file cannot say whether it was.
    """
    since = now
    sweep_leftovers(Path(folder))
    try:
        runs = read_runs(folder)
    except _NotRunsError as error:
        path = Path(folder) / NAME
        try:
            os.replace(path, f"{path}{BAD_SUFFIX}")
        except OSError as refused:
            raise ReviewRunsError(_unusable_message(path, f"cannot be renamed: {describe_cause(refused)}")) from None
        log.error("%s It was renamed to %s%s, and a new one was started.", error, NAME, BAD_SUFFIX)
        runs, since = None, now if due is None else due
    if runs is None:
        runs = Runs(since)
        _write_runs(folder, runs)
    return runs


def record_attempt(folder: str, at: float, due: float) -> None:
    """Records a run for `due` before it starts, so that it counts however it ends. Raises ReviewRunsError."""
    runs = read_runs(folder) or Runs(at)
    seen = runs.drop_future(at)
    since = seen.tried_since
    if since is None or since < due:
        since = seen.last_run if seen.last_run is not None and seen.last_run >= due else at
    _write_runs(folder, replace(runs, last_run=at, tried_since=since))


def record_run(folder: str, at: float, *, succeeded: bool, week: str = "", sent_to: tuple[str, ...] = ()) -> None:
    """Records a run that ended `at`. Raises ReviewRunsError.

    After a failed run the last success stays, and `sent_to` says which receivers have the review of `week` all the same. `week`
    "": the run made no review, and the receivers stay as they are.
    """
    runs = read_runs(folder) or Runs(at)
    if succeeded:
        last = () if runs.last_success is None else (runs.last_success,)
        earlier = (*last, *runs.earlier_successes)[:MOST_EARLIER]
        _write_runs(folder, Runs(runs.since, at, at, earlier_successes=earlier))
        return
    runs = replace(runs, last_run=at)
    if week:
        before = runs.sent_to if runs.sent_week == week else ()
        runs = replace(runs, sent_week=week, sent_to=tuple(dict.fromkeys((*before, *sent_to))))
    _write_runs(folder, runs)


def _write_runs(folder: str, runs: Runs) -> None:
    path = Path(folder) / NAME
    document = {
        "version": VERSION,
        "since_unix_seconds": runs.since,
        "last_run_unix_seconds": runs.last_run,
        "last_success_unix_seconds": runs.last_success,
        "tried_since_unix_seconds": runs.tried_since,
        "earlier_success_unix_seconds": list(runs.earlier_successes),
        "sent": {"week": runs.sent_week, "to": list(runs.sent_to)} if runs.sent_to else None,
    }
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, (json.dumps(document, indent=1) + "\n").encode())
    except (OSError, ValueError) as error:
        raise ReviewRunsError(_unusable_message(path, f"cannot be written: {describe_cause(error)}")) from None


def _parse_sent(sent: Any) -> tuple[str, tuple[str, ...]]:
    if sent is None:
        return "", ()
    if not isinstance(sent, dict) or not isinstance(sent.get("week"), str) or not isinstance(sent.get("to"), list):
        raise ValueError("sent is no object with week and to")
    return sent["week"], tuple(str(where) for where in sent["to"])


def _parse_earlier(earlier: Any) -> tuple[float, ...]:
    if earlier is None:
        return ()
    if not isinstance(earlier, list):
        raise ValueError("earlier_success_unix_seconds is no list")
    times = (
        parse_unix_seconds({"earlier_success_unix_seconds": moment}, "earlier_success_unix_seconds")
        for moment in earlier
    )
    return tuple(when for when in times if when is not None)[:MOST_EARLIER]


def _unusable_message(path: Path, what: str) -> str:
    return f"the file of review runs {path} {what}. Check its folder and permissions, or remove it."
