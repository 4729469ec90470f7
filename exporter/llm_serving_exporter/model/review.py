"""The scheduled cost review: when it was due and when it ran."""

from __future__ import annotations

from llm_serving_exporter.model.record import Struct


class ReviewRuns(Struct, frozen=True):
    """Times of the scheduled cost review in Unix seconds. None: that has not happened yet."""

    due: float | None = None  # when the first of the missed runs was due; where none was missed, when it was last due
    last_run: float | None = None  # when its schedule last started it, or when it ended, whatever the outcome
    last_success: float | None = None  # when it was last written, and sent where that is configured
    next_due: float | None = None  # None: the schedule names no time within a year
