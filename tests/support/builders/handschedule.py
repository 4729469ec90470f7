"""A daemon's schedule that a test drives: jobs run in the test's own thread when it moves the clock, in the order in which they are due."""

from dataclasses import dataclass

from llm_serving_exporter.daemon.timetable import Run
from llm_serving_exporter.fetch.waits import drive
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
