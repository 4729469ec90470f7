"""A server program as a child process: a temporary folder, a log, ready before it is used, gone when closed."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path

from llm_serving_exporter.files.leftovers import make_held_folder
from llm_serving_simulator.ports import on_next_free_port, require_free

_READY_SECONDS = 15.0
_STOP_SECONDS = 3.0
# between the look for a free port and the program's own bind, another program may take the port
_TRIES = 3
_PORT_TAKEN = "address already in use"


class ChildError(Exception):
    """The program did not come up; the message carries its last words."""


class Child:
    """A program that answers GET `ready_path` on a loopback port, the asked one or the next free one (0: any).

    `prepare(folder, address)` writes its files into the folder and returns its command; address is "127.0.0.1:PORT". It has a process
    group of its own, so that a Ctrl-C meant for its parent does not reach it first, and is ended by its pid. Raises ChildError where it
    does not become ready or `cancelled` is set meanwhile, OSError where no port is free or it cannot be started.
    """

    def __init__(
        self,
        name: str,
        prepare: Callable[[Path, str], Sequence[str]],
        port: int = 0,
        cancelled: threading.Event | None = None,
        ready_path: str = "/-/ready",
        ready_seconds: float = _READY_SECONDS,
    ) -> None:
        self._ready_path, self._ready_seconds = ready_path, ready_seconds
        self._held: int | None
        self._folder, self._held = make_held_folder("llm-serving-demo-")
        self._log = self._folder / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None
        try:
            for tries_left in reversed(range(_TRIES)):
                try:
                    self._start(prepare, port, cancelled or threading.Event())
                    break
                except ChildError as error:
                    if not tries_left or _PORT_TAKEN not in str(error).lower():
                        raise
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int | None:
        """Its process id while it runs."""
        return self._process.pid if self._process is not None else None

    def close(self) -> None:
        """End it, by force after three seconds, and remove its folder."""
        process, self._process = self._process, None
        if process is not None:
            process.terminate()
            try:
                process.wait(timeout=_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)
        held, self._held = self._held, None
        if held is not None:
            os.close(held)

    def _start(self, prepare: Callable[[Path, str], Sequence[str]], port: int, cancelled: threading.Event) -> None:
        chosen = on_next_free_port(lambda candidate: require_free("127.0.0.1", candidate), port)
        self.url = f"http://127.0.0.1:{chosen}"
        command = prepare(self._folder, f"127.0.0.1:{chosen}")
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(  # noqa: S603  # a program found on PATH, arguments of ours, no shell
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                process_group=0,
                pass_fds=()
                if self._held is None
                else (self._held,),  # if its parent is killed, it still holds its folder
            )
        self._wait_until_ready(self._process, cancelled)

    def _wait_until_ready(self, process: subprocess.Popen[bytes], cancelled: threading.Event) -> None:
        deadline = time.monotonic() + self._ready_seconds
        while time.monotonic() < deadline:
            if process.poll() is not None:
                break
            try:
                with urllib.request.urlopen(f"{self.url}{self._ready_path}", timeout=1):  # noqa: S310  # http on loopback
                    return
            except (urllib.error.URLError, OSError):
                if cancelled.wait(0.1):
                    raise ChildError("cancelled") from None
        words = self._log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        raise ChildError(words[-1] if words else f"not ready after {self._ready_seconds:.0f} s")
