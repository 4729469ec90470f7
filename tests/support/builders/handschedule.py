"""A daemon's schedule that a test drives: jobs run in the test's own thread when it moves the clock, in the order in which they are due."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from llm_serving_exporter.daemon.jobs import Daemon
from llm_serving_exporter.daemon.timetable import Run
from llm_serving_exporter.fetch.waits import drive
from llm_serving_exporter.gpus.source import GpuSource
from llm_serving_exporter.settings.config import Config
from tests.support.servers.driven_exporter import HandClock


@dataclass
class _Job:
    seconds: float
    run: Run
    due: float


class HandSchedule:
    """A `daemon.schedule.Schedule`. What a job raises comes out of `advance`."""

    def __init__(self, clock: HandClock) -> None:
        self._clock = clock
        self.jobs: dict[str, _Job] = {}

    def start(self) -> None:
        """Nothing runs before `advance`."""

    def stop(self) -> None:
        self.jobs = {}

    def every(
        self, name: str, seconds: float, job: Run, delay_seconds: float = 0.0, phase_seconds: float | None = None
    ) -> None:
        self.jobs[name] = _Job(seconds, job, self._clock.seconds + delay_seconds)

    def cancel(self, name: str) -> None:
        self.jobs.pop(name, None)

    def advance(self, seconds: float) -> None:
        """Moves the clock on and runs every job that becomes due meanwhile, as often as it does."""
        end = self._clock.seconds + seconds
        while due := [job for job in self.jobs.values() if job.due <= end]:
            job = min(due, key=lambda one: one.due)
            self._clock.seconds = max(self._clock.seconds, job.due)
            job.due += job.seconds
            running = job.run()
            if running is not None:
                drive(running)
        self._clock.seconds = end


class Driven:
    """A daemon whose jobs run when the test moves the clock."""

    def __init__(
        self,
        config: Config,
        load: Callable[[], Config] | None = None,
        gpu_source: Callable[[Config], GpuSource | None] = lambda _config: None,
    ) -> None:
        self.clock = HandClock()
        self.schedule = HandSchedule(self.clock)
        clocks = {"monotonic": self.clock.monotonic, "wall": self.clock.wall}
        self.daemon = Daemon(config, load or (lambda: config), gpu_source, schedule=self.schedule, **clocks)

    def __enter__(self) -> Self:
        self.daemon.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.daemon.stop()

    def after(self, seconds: float) -> Daemon:
        """The daemon once every job that becomes due in so many seconds has run."""
        self.schedule.advance(seconds)
        return self.daemon
