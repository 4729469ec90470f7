"""Which page of a recording is shown now: at its own pace for ever, or page by page as a test says."""

from __future__ import annotations

import threading
import time
from bisect import bisect_right
from collections.abc import Callable
from typing import Protocol

from llm_serving_exporter.model.record import Struct
from llm_serving_simulator.carry import Carry
from llm_serving_simulator.recording import Recording


class Position(Struct, frozen=True):
    """Where a replay is."""

    round_number: int  # 0, 1, 2 …
    page_number: int  # of the page shown
    seconds_into_page: float  # how long that page has been shown, in recorded seconds


class Pages(Protocol):
    """What a replay server shows."""

    def body(self) -> bytes:
        """The page for one GET of now."""
        ...


class Stepped:
    """Pages as a test chooses them, as recorded. With `advance`, every GET shows the next page, the last one stays."""

    def __init__(self, recording: Recording, advance: bool = False) -> None:
        self._recording = recording
        self._numbers = tuple(recording.pages)
        self._advance = advance
        self._index = 0
        self._lock = threading.Lock()

    def show(self, number: int) -> None:
        """Show page `number` from the next GET on. Raises KeyError where the recording has no such page."""
        if number not in self._recording.pages:
            raise KeyError(number)
        with self._lock:
            self._index = self._numbers.index(number)

    def body(self) -> bytes:
        """The page chosen; then one further, where it advances."""
        with self._lock:
            number = self._numbers[self._index]
            if self._advance:
                self._index = min(self._index + 1, len(self._numbers) - 1)
        return self._recording.pages[number]


class Timeline:
    """A recording played at its own pace, or `speed` times it, for ever. Starts when it is made.

    Shows the last page recorded at or before the moment; after the last page's second the next round begins, with
    counters going on where they were. Raises ValueError where the recording's server restarted within it
    or the recording does not say when its pages were fetched.
    """

    def __init__(self, recording: Recording, clock: Callable[[], float] = time.monotonic, speed: float = 1.0) -> None:
        numbers = tuple(recording.pages)
        times = recording.timestamps
        if len(numbers) < 2 or not times.keys() >= set(numbers):
            raise ValueError(f"{recording.path}: a timeline needs two pages and when each was recorded")
        first = numbers[0]
        self._recording = recording
        self._numbers = numbers
        self._offsets = tuple(times[number] - times[first] for number in numbers)
        # the last page is shown as long as a page is on average
        self._round_seconds = self._offsets[-1] * len(numbers) / (len(numbers) - 1)
        self._carry = Carry(recording.pages[first], recording.pages[numbers[-1]])
        self._clock = clock
        self._speed = speed
        self._started = clock()
        self._rendered: tuple[tuple[int, int], bytes] | None = None

    @property
    def recording(self) -> Recording:
        """What is played."""
        return self._recording

    @property
    def round_seconds(self) -> float:
        """How long one round takes, in recorded seconds."""
        return self._round_seconds

    def page_seconds(self) -> tuple[tuple[int, float], ...]:
        """Every page's number and for how many recorded seconds it is shown."""
        ends = (*self._offsets[1:], self._round_seconds)
        return tuple(
            (number, end - start) for number, start, end in zip(self._numbers, self._offsets, ends, strict=True)
        )

    def position(self) -> Position:
        """Where the replay is now."""
        elapsed = max(0.0, self._clock() - self._started) * self._speed
        round_number, within = divmod(elapsed, self._round_seconds)
        index = bisect_right(self._offsets, within) - 1
        return Position(int(round_number), self._numbers[index], within - self._offsets[index])

    def body(self) -> bytes:
        """The page of now."""
        at = self.position()
        key = (at.round_number, at.page_number)
        rendered = self._rendered  # one attribute read: another thread may replace it meanwhile, both are right
        if rendered is None or rendered[0] != key:
            page = self._carry.page(self._recording.pages[at.page_number], at.round_number)
            self._rendered = rendered = (key, page)
        return rendered[1]
