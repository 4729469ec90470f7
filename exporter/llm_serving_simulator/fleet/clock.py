"""A clock that runs faster than the wall: what an exporter must be given beside a fleet that does."""

from __future__ import annotations

import time
from collections.abc import Callable


class ScaledClock:
    """Simulated seconds, `speed` to a real one, `begin_seconds` at the moment it is made.

    `monotonic` and `wall` are for the exporter's pipeline: rates that it works out are then per simulated second, timeouts of its requests
    `speed` times shorter than they say. `epoch_unix_seconds`: what `wall` shows at simulated second 0; by default it shows the time now.
    """

    def __init__(
        self,
        speed: float = 1.0,
        epoch_unix_seconds: float | None = None,
        begin_seconds: float = 0.0,
        real_monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        if not speed > 0:
            raise ValueError("the speed must be above 0")
        self.speed = speed
        self.epoch_unix_seconds = time.time() - begin_seconds if epoch_unix_seconds is None else epoch_unix_seconds
        self._real = real_monotonic
        self._begin_seconds, self._began = begin_seconds, real_monotonic()

    def monotonic(self) -> float:
        """Simulated seconds."""
        return self._begin_seconds + (self._real() - self._began) * self.speed

    def wall(self) -> float:
        """Simulated unix time."""
        return self.epoch_unix_seconds + self.monotonic()

    def real_seconds(self, simulated_seconds: float) -> float:
        """How long so many simulated seconds really take."""
        return simulated_seconds / self.speed
