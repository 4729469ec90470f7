"""The commands that lose and restore a node: no shell unless it is asked for, bounded in time and output, ended with all they started."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from typing import IO

from llm_serving_drill.course import CommandRun

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
