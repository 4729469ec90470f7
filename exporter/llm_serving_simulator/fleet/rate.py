"""Arrival rates over time: a base, the hours of a day, steps and bursts."""

from __future__ import annotations

import math
from typing import Protocol

from llm_serving_exporter.model.record import Struct, field

DAY_SECONDS = 86_400.0


class Rate(Protocol):
    """Requests/s as a function of simulated seconds."""

    def requests_per_second(self, seconds: float) -> float:
        """The rate then."""
        ...

    @property
    def highest(self) -> float:
        """No rate is above it."""
        ...


class Daily(Struct, frozen=True):
    """A sine over the day around 1, and another level at the weekend."""

    amplitude: float = 0.0  # 0-1
    peak_hour: float = 14.0
    weekend: float = 1.0  # factor on Saturday and Sunday
    begins_seconds: float = 0.0  # from Monday 0:00 to the beginning of simulated time

    def factor(self, seconds: float) -> float:
        """What the base rate is multiplied with then."""
        day, hour = divmod((seconds + self.begins_seconds) / 3600.0, 24.0)
        wave = 1.0 + self.amplitude * math.cos(2 * math.pi * (hour - self.peak_hour) / 24.0)
        return wave * (self.weekend if int(day) % 7 >= 5 else 1.0)


class Step(Struct, frozen=True):
    """From a time on, until the next step, the rate has a factor."""

    at_seconds: float  # of the scenario
    factor: float  # of the rate


class Burst(Struct, frozen=True):
    """For a while the rate has a factor."""

    at_seconds: float  # of the scenario
    for_seconds: float  # how long
    factor: float  # of the rate
    every_seconds: float | None = None  # how often it repeats; None: once

    def holds(self, seconds: float) -> bool:
        """Whether it is on then."""
        since = seconds - self.at_seconds
        if since < 0:
            return False
        return (since if self.every_seconds is None else since % self.every_seconds) < self.for_seconds


class Profile(Struct, frozen=True):
    """base x day x step x bursts, in requests/s."""

    base: float  # requests/s
    daily: Daily = field(default_factory=Daily)  # the day's course
    steps: tuple[Step, ...] = ()  # in order of time
    bursts: tuple[Burst, ...] = ()  # those under way multiply

    def requests_per_second(self, seconds: float) -> float:
        """The rate then."""
        rate = self.base * self.daily.factor(seconds)
        stepped = 1.0
        for step in self.steps:
            if step.at_seconds > seconds:
                break
            stepped = step.factor
        for burst in self.bursts:
            if burst.holds(seconds):
                rate *= burst.factor
        return rate * stepped

    @property
    def highest(self) -> float:
        """No rate is above it."""
        # before the first step the factor is 1
        rate = self.base * (1.0 + self.daily.amplitude) * max(1.0, self.daily.weekend)
        rate *= max((1.0, *(step.factor for step in self.steps)))
        for burst in self.bursts:
            rate *= max(1.0, burst.factor)
        return rate
