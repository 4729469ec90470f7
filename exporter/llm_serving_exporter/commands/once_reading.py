"""How `once` reads its targets: two samples of each, side by side, so that many take no longer than the slowest."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable
from typing import TextIO

from llm_serving_exporter.clock import elapsed_seconds
from llm_serving_exporter.model.reading import PageReading, TargetReading
from llm_serving_exporter.model.text import count_nouns
from llm_serving_exporter.targets.host import HostedTarget, TargetHost

log = logging.getLogger("llm_serving_exporter.once")

# read at the same time; each is a thread that waits for its server
MOST_AT_ONCE = 64
# targets whose samples are no further apart share a pass over the GPUs
PASS_LASTS_SECONDS = 1.0
PROGRESS_EVERY_SECONDS = 0.5


class GpuPasses:
    """Passes over this node's GPUs for targets that are read in threads of their own: one at a time, shared where it is fresh."""

    def __init__(self, host: TargetHost) -> None:
        self._host = host
        self._lock = threading.Lock()
        self._count, self._ended = 0, 0.0

    def read(self, used: int = 0) -> int:
        """Sees to it that there is a pass of now, after the one with the number `used`; its number."""
        with self._lock:
            if self._count <= used or elapsed_seconds() - self._ended > PASS_LASTS_SECONDS:
                self._host.gpus.read_kubelet()
                self._host.read_gpus()
                self._host.gpus.read_dcgm()
                self._count, self._ended = self._count + 1, elapsed_seconds()
            return self._count


def read_twice(
    hosted: HostedTarget, gpus: GpuPasses, wait_seconds: float, wait: Callable[[float], None] = time.sleep
) -> TargetReading:
    """Two ticks `wait_seconds` apart, so that rates exist. One tick where the first fails. The GPUs are read before each."""
    used = gpus.read()
    reading = hosted.tick()
    hosted.refresh_facts()
    if reading.page.up:
        wait(wait_seconds)
        gpus.read(used)
        reading = hosted.tick()
    return reading


def read_all(host: TargetHost, wait_seconds: float, progress: TextIO) -> list[TargetReading]:
    """The readings of all the host's targets, in the order in which they were added. On a terminal, how far it is, on `progress`.

    A target whose reading fails for a fault of our own has that for its problem, and the others are read all the same.
    """
    targets, gpus = list(host.targets.values()), GpuPasses(host)
    readings = [TargetReading(hosted.target) for hosted in targets]
    todo: queue.SimpleQueue[int] = queue.SimpleQueue()
    for place in range(len(targets)):
        todo.put(place)
    done = threading.Semaphore(0)

    def work() -> None:
        while True:
            try:
                place = todo.get_nowait()
            except queue.Empty:
                return
            readings[place] = _read_isolated(targets[place], gpus, wait_seconds)
            done.release()

    for _ in range(min(len(targets), MOST_AT_ONCE)):
        # an interrupted command does not wait for servers that hang
        threading.Thread(target=work, name="once", daemon=True).start()
    what = targets[0].target.name if len(targets) == 1 else count_nouns(len(targets), "target")
    _await(done, len(targets), what, progress)
    return readings


def _read_isolated(hosted: HostedTarget, gpus: GpuPasses, wait_seconds: float) -> TargetReading:
    try:
        return read_twice(hosted, gpus, wait_seconds)
    except Exception as error:
        log.exception("target=%s: reading it failed; this is a bug, please report it", hosted.target.name)
        problem = f"internal error ({type(error).__name__}); see the log"
        return TargetReading(hosted.target, page=PageReading(up=False, problem=problem))


def _await(done: threading.Semaphore, count: int, what: str, progress: TextIO) -> None:
    """Until `count` targets are done, with a line that says how many are on a terminal."""
    on_terminal, begun, finished = progress.isatty(), elapsed_seconds(), 0
    while finished < count:
        if done.acquire(timeout=PROGRESS_EVERY_SECONDS):
            finished += 1
        elif on_terminal:
            of = "" if count == 1 else f", {finished} done"
            progress.write(f"\rreading {what}: two samples{of}, {elapsed_seconds() - begun:.0f} s ")
            progress.flush()
    if on_terminal:
        progress.write("\r\x1b[K")
