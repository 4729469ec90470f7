"""Runs a drill: plan, baseline, loss, course, end."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import IO

from llm_serving_drill.course import RESTORE, TRIGGER, CommandRun, Course, Phase, Reading, Scope, Settings, Sighting
from llm_serving_drill.observer import Alertmanager, Grafana, Observer, Prometheus
from llm_serving_drill.plan import find_bound_reached, find_excess_loss, format_progress, make_plan
from llm_serving_drill.verdict import find_recovery, hold_is_over, judge
from llm_serving_exporter.clients.json_api import ApiError, JsonApi
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.render.numbers import span
from llm_serving_exporter.terminal import print_message

# --- The commands that lose and restore a node: no shell unless it is asked for, bounded in time and output, ended with all they started.


KEPT_OUTPUT_BYTES = 8 * 2**10
_LOOK_SECONDS = 0.05
_LAST_WORDS_SECONDS = 1.0
_END_SECONDS = 3.0


class Running:
    """A command that has been started; `poll`, `finish` and `stop` give its run once it has ended, always the same.

    `command`: as a shell would split it, run without one; with `shell` by /bin/sh. It has a process group of its own, so that a Ctrl-C
    meant for the drill does not reach it. `now`: Unix seconds, for the report. Raises nothing: what cannot start is a run with a problem.
    """

    def __init__(
        self, what: str, command: str, *, shell: bool, timeout_seconds: float, now: Callable[[], float]
    ) -> None:
        self._what, self._command, self._timeout_seconds = what, command, timeout_seconds
        self._began_unix_seconds, self._began = now(), time.monotonic()
        self._output = bytearray()
        self._done: CommandRun | None = None
        try:
            words = ["/bin/sh", "-c", command] if shell else shlex.split(command)
            self._process = subprocess.Popen(  # noqa: S603  # the user's own command is what is asked for
                words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, process_group=0
            )
        except (OSError, ValueError, IndexError) as error:
            cause = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            self._done = self._make_run(None, f"it cannot be started: {cause}")
            return
        assert self._process.stdout is not None
        self._reader = threading.Thread(target=_read, args=(self._process.stdout, self._output), daemon=True)
        self._reader.start()

    def poll(self) -> CommandRun | None:
        """None while it runs. One that runs too long is ended here."""
        if self._done is None:
            if self._process.poll() is not None:
                self._done = self._end_run("")
            elif time.monotonic() - self._began > self._timeout_seconds:
                return self.stop(f"it ran longer than {self._timeout_seconds:g} s")
        return self._done

    def finish(self) -> CommandRun:
        """Waits for its end, at most its timeout."""
        while (done := self.poll()) is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_LOOK_SECONDS)
        return done

    def stop(self, problem: str) -> CommandRun:
        """Ends it with all that it started, where it still runs; `problem` says why."""
        if self._done is None:
            for number in (signal.SIGTERM, signal.SIGKILL):
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._process.pid, number)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(_END_SECONDS)
                    break
            self._done = self._end_run(problem)
        return self._done

    def _end_run(self, problem: str) -> CommandRun:
        # what it left running in the background may hold the pipe open
        self._reader.join(_LAST_WORDS_SECONDS)
        return self._make_run(None if problem else self._process.returncode, problem)

    def _make_run(self, status: int | None, problem: str) -> CommandRun:
        output = bytes(self._output).decode("utf-8", errors="replace")
        took = time.monotonic() - self._began
        return CommandRun(self._what, self._command, self._began_unix_seconds, took, status, output, problem)


def _read(pipe: IO[bytes], output: bytearray) -> None:
    with pipe:
        while chunk := os.read(pipe.fileno(), 64 * 2**10):
            output += chunk
            del output[:-KEPT_OUTPUT_BYTES]


# --- The drill


_PROGRESS_SECONDS = 5.0
_MOST_NOTES = 50


class _BrokenOffError(Exception):
    """The drill ends here; the message says why."""


class Drill:
    """One drill of one model's replicas; `course` is all that is known so far.

    `apis`: by name, prometheus and where they are asked alertmanager and grafana. `stopping`: set where it is to end. `commands`: the
    trigger and what restores, None where there is none; they may take so many seconds each.
    """

    def __init__(
        self,
        scope: Scope,
        settings: Settings,
        apis: Mapping[str, JsonApi],
        stopping: threading.Event,
        commands: Mapping[str, str | None],
        *,
        shell: bool,
        timeout_seconds: float,
    ) -> None:
        self._scope, self._settings, self._stopping = scope, settings, stopping
        self._commands, self._shell, self._timeout_seconds = commands, shell, timeout_seconds
        self._prometheus = Prometheus(apis["prometheus"])
        self._alertmanager = Alertmanager(apis["alertmanager"]) if "alertmanager" in apis else None
        self._grafana = Grafana(apis["grafana"]) if "grafana" in apis else None
        self.course = Course(scope, settings, Phase.PLAN, alertmanager=self._alertmanager is not None)
        self._running: dict[str, Running] = {}
        self._began = time.monotonic()
        self._blind_since: float | None = None
        self._said: tuple[Phase, float] | None = None
        self._annotation: int | None = None

    def plan(self) -> Course:
        """Only asks what is known and what would be done. Raises ApiError."""
        self._observer = Observer(self._scope, self._settings, self._prometheus, self._alertmanager)
        forecast = self._observer.ask_forecast()
        plan = make_plan(forecast, self._settings)
        sightings = tuple(Sighting(name) for name in plan.alerts)
        self._change(forecast=forecast, plan=plan, sightings=sightings, end_unix_seconds=self._observer.now())
        return self.course

    def run(self) -> Course:
        """The whole drill. Whatever happens there is a course to report, and what was triggered has been restored."""
        try:
            self._run_phases()
        except (_BrokenOffError, ApiError) as error:
            self._change(broken_off=str(error))
        finally:
            self._end_drill()
        return self.course

    def _run_phases(self) -> None:
        plan, forecast = self.plan().plan, self.course.forecast
        assert plan is not None
        assert forecast is not None
        self._pause(0)
        if plan.refusals and not (self._settings.force and forecast.reading.ready is not None):
            raise _BrokenOffError("not begun: " + "; ".join(plan.refusals))
        self._change(phase=Phase.BASELINE)
        self._change(baseline=self._observer.measure_baseline(self._observer.now()))
        before = self._take_reading()
        if before is None or before.ready is None:
            raise _BrokenOffError("not begun: nothing says how many replicas are ready")
        self._change(before=before)
        self._pause(0)
        if self._settings.watch:
            self._watch_for_loss(before.ready)
        else:
            self._trigger_loss(before.ready)
        start, grafana = self.course.start_unix_seconds, self._grafana
        if grafana is not None and start is not None:
            with self._note_refusals():
                self._annotation = grafana.begin_annotation(start, f"node-loss drill: {self._scope.model_name}")
        self._measure_recovery()

    # the loss

    def _watch_for_loss(self, ready: float) -> None:
        """Waits until fewer replicas are ready than at the look before."""
        self._change(phase=Phase.WAITING)
        deadline = self._observer.now() + self._settings.loss_timeout_seconds
        while True:
            self._pause(self._settings.interval_seconds)
            reading, before = self._take_reading(), self.course.before
            assert before is not None
            if reading is not None and reading.ready is not None:
                if reading.ready < ready:
                    self._add_reading(reading)
                    self._change(start_unix_seconds=before.unix_seconds, lost_unix_seconds=reading.unix_seconds)
                    with self._note_refusals():  # else the one from before the waiting is left
                        self._change(baseline=self._observer.measure_baseline(before.unix_seconds))
                    return
                ready = reading.ready
                self._change(before=reading)
            self._require_loss_by(deadline)

    def _trigger_loss(self, ready: float) -> None:
        """Starts the command and looks on while it runs: a node may be gone long before its drain has ended."""
        self._change(phase=Phase.TRIGGER, start_unix_seconds=self._observer.now())
        self._start_command(TRIGGER)
        deadline = self._observer.now() + self._settings.loss_timeout_seconds
        while self.course.lost_unix_seconds is None:
            self._pause(self._settings.interval_seconds)
            ended = self._collect_runs()
            if TRIGGER not in self._running:
                self._change(phase=Phase.WAITING)
            reading = self._take_reading()
            if reading is not None:
                self._add_reading(reading)
                if reading.ready is not None and reading.ready < ready:
                    self._change(lost_unix_seconds=reading.unix_seconds)
                self._require_within_bounds(reading)
            if self.course.lost_unix_seconds is None:
                if ended is not None and not ended.good:
                    raise _BrokenOffError(f"the trigger command failed: {ended.failure}")
                self._require_loss_by(deadline)

    def _require_loss_by(self, deadline: float) -> None:
        if self._observer.now() > deadline:
            raise _BrokenOffError(f"no replica was lost within {span(self._settings.loss_timeout_seconds)}")

    # its course

    def _measure_recovery(self) -> None:
        """Until it has recovered and settled, or the time is up."""
        settings, start = self._settings, self.course.start_unix_seconds
        assert start is not None
        self._change(phase=Phase.LOST)
        while True:
            recovered = find_recovery(self.course).recovered_unix_seconds
            if recovered is not None and RESTORE not in self._running:
                self._change(phase=Phase.SETTLING)
                if self._observer.now() - recovered >= settings.settle_seconds:
                    self._change(phase=Phase.DONE)
                    return
            elif self.course.phase is Phase.SETTLING:
                self._change(phase=Phase.RESTORED if self._was_started(RESTORE) else Phase.LOST)
            if self._observer.now() - start > settings.bounds.duration_seconds:
                return
            if not self._was_started(RESTORE) and hold_is_over(self.course, self._observer.now()):
                self._restore_node()
                self._change(phase=Phase.RESTORED)
            self._pause(settings.interval_seconds)
            self._collect_runs()
            reading = self._take_reading()
            if reading is not None:
                self._add_reading(reading)
                self._require_within_bounds(reading)

    def _require_within_bounds(self, reading: Reading) -> None:
        before, plan = self.course.before, self.course.plan
        assert before is not None
        assert plan is not None
        reached = find_excess_loss(before, reading, plan.may_lose) or find_bound_reached(reading, self._settings.bounds)
        if reached and not self._settings.watch:
            raise _BrokenOffError(reached)
        # what is only watched does not end by looking away
        begin = "a bound was reached: "
        if reached and not any(note.startswith(begin) for note in self.course.notes):
            self._add_note(f"{begin}{reached}")

    # commands

    def _was_started(self, what: str) -> bool:
        return what in self._running or any(run.what == what for run in self.course.commands)

    def _start_command(self, what: str) -> None:
        """Nothing where the user gave none."""
        command = self._commands[what]
        if command is not None:
            print_message(f"{what}: {command}")
            self._running[what] = Running(
                what, command, shell=self._shell, timeout_seconds=self._timeout_seconds, now=self._observer.now
            )

    def _restore_node(self) -> None:
        """Stops a trigger that still runs: left alone it would undo what is restored now."""
        trigger = self._running.pop(TRIGGER, None)
        if trigger is not None:
            self._record_run(trigger.stop("it was still running when the loss was to end"))
        self._start_command(RESTORE)

    def _collect_runs(self) -> CommandRun | None:
        """Takes over what has ended; the last such."""
        ended = None
        for what, running in tuple(self._running.items()):
            if (run := running.poll()) is not None:
                del self._running[what]
                ended = run
                self._record_run(run)
        return ended

    def _record_run(self, run: CommandRun) -> None:
        self._change(commands=(*self.course.commands, run))
        print_message(f"{run.what}: ended after {span(run.took_seconds)}, {run.problem or f'status {run.status}'}")

    # the end

    def _end_drill(self) -> None:
        """Restores what was triggered, counts, marks the end."""
        start = self.course.start_unix_seconds
        if start is None:
            return
        end = self._observer.now()
        self._change(end_unix_seconds=end)
        if self._was_started(TRIGGER) and not self._was_started(RESTORE):
            self._restore_node()
        restore = self._running.pop(RESTORE, None)
        if restore is not None:
            self._record_run(restore.finish())
        with self._note_refusals("requests were not counted: "):
            self._change(counts=self._observer.count_events(start, end))
        if self._grafana is not None and self._annotation is not None:
            text = f"node-loss drill: {self._scope.model_name}, {judge(self.course).verdict}"
            with self._note_refusals():
                self._grafana.end_annotation(self._annotation, end, text)

    # looking

    def _take_reading(self) -> Reading | None:
        """One reading, with the alerts of that moment; None where Prometheus cannot be asked. Breaks off where that lasts too long, or
        where nothing says for as long how many replicas are ready."""
        observer, reading = self._observer, None
        why = "nothing says how many replicas are ready any more"
        try:
            reading = observer.take_reading()
        except ApiError as error:
            why = str(error)
        else:
            for see in (observer.see_firing, observer.see_received):
                with self._note_refusals():
                    self._change(sightings=see(self.course.sightings, reading.unix_seconds))
        if reading is not None and reading.ready is not None:
            self._blind_since = None
        else:
            self._bear_blindness(why)
        self._say_progress(reading)
        return reading

    def _bear_blindness(self, why: str) -> None:
        now, longest = self._observer.now(), self._settings.bounds.blind_seconds
        if self._blind_since is None:
            self._blind_since = now
            print_message(f"cannot see: {why}")
        elif now - self._blind_since > longest:
            raise _BrokenOffError(f"blind for longer than {span(longest)}: {why}")

    # small things

    def _pause(self, seconds: float) -> None:
        if self._stopping.wait(seconds):
            raise _BrokenOffError("interrupted")

    def _change(self, **changes: object) -> None:
        self.course = replace(self.course, **changes)  # type: ignore[arg-type]

    def _add_reading(self, reading: Reading) -> None:
        self._change(readings=(*self.course.readings, reading))

    @contextlib.contextmanager
    def _note_refusals(self, what: str = "") -> Iterator[None]:
        """The drill goes on where an API says no: that is a note, which `what` begins."""
        try:
            yield
        except ApiError as error:
            self._add_note(f"{what}{error}")

    def _add_note(self, text: str) -> None:
        if text not in self.course.notes and len(self.course.notes) < _MOST_NOTES:
            self._change(notes=(*self.course.notes, text))
            print_message(text)

    def _say_progress(self, reading: Reading | None) -> None:
        """A line at each change of phase, and every few seconds."""
        now, phase = time.monotonic(), self.course.phase
        if self._said is None or self._said[0] is not phase or now - self._said[1] >= _PROGRESS_SECONDS:
            self._said = phase, now
            print_message(format_progress(phase, reading, now - self._began))
