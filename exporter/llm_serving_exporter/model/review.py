"""The scheduled cost review: when it was due and when it ran."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ReviewRuns:
    """Unix seconds; None where that has not happened yet.

    `due`: when the first of those that were missed was due, else when it was last due; `last_run`: when it was last started by its
    schedule, or ended, whatever came of it; `last_success`: when it was last written, and sent where that is configured;
    `next_due`: when the next one is due.
    """

    due: float | None = None
    last_run: float | None = None
    last_success: float | None = None
    next_due: float | None = None
