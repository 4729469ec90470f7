"""The instant of a page for people, and how old what it shows is."""

from __future__ import annotations

from llm_serving_exporter.model.reading import TargetReading
from llm_serving_exporter.render.numbers import span


class Clock:
    """The instant of the page, and from when on a reading is too old to be shown."""

    def __init__(self, unix: float, monotonic: float, stale_after_seconds: float) -> None:
        self.unix, self.monotonic = unix, monotonic
        self._stale_after_seconds = stale_after_seconds

    def fresh(self, reading: TargetReading) -> bool:
        """Whether its figures are shown."""
        return reading.page.is_fresh(self.monotonic, self._stale_after_seconds)

    def page_age(self, reading: TargetReading) -> str:
        """How long ago the last good page came; "" where none did."""
        if reading.page.snapshot is None:
            return ""
        return span(max(0.0, self.monotonic - reading.page.snapshot.monotonic_seconds))

    def ago(self, unix: float) -> str:
        """How long ago an instant of the wall clock was."""
        return span(max(0.0, self.unix - unix))
