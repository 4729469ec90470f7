"""What the benches share: command line, threads, fresh processes, figures and tables.

It imports little, so that a bench in a fresh process measures what it is about.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import platform
import resource
import statistics
import sys
import sysconfig
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime


def say(text: str) -> None:
    print(text, flush=True)


def make_parser(name: str, doc: str | None) -> argparse.ArgumentParser:
    return argparse.ArgumentParser(
        prog=f"python -m bench.{name}", description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )


def require_bytecode() -> None:
    """Modules that are compiled at each start leave 8 to 15 MB behind, and take the time."""
    if sys.dont_write_bytecode:
        raise SystemExit("PYTHONDONTWRITEBYTECODE is set: compiling at start leaves memory behind. Unset it.")


def describe_machine() -> str:
    """The day, the cores and which Python this is: built with the optimisations that distributions build it with, or not."""
    optimised = "--enable-optimizations" in (sysconfig.get_config_var("CONFIG_ARGS") or "")
    python = f"CPython {platform.python_version()}, built {'with' if optimised else 'without'} optimisations"
    return f"{datetime.now(UTC):%Y-%m-%d}, {os.cpu_count()} cores, {platform.machine()}, {python}"


@contextmanager
def repeat(every_seconds: float, act: Callable[[], object], *, at_once: bool = False) -> Iterator[None]:
    """Has `act` called in a thread every so many seconds, as long as it takes less; the first time then, or at once."""
    stopping = threading.Event()

    def run() -> None:
        following = time.monotonic() + (0.0 if at_once else every_seconds)
        while not stopping.wait(max(0.0, following - time.monotonic())):
            following = time.monotonic() + every_seconds
            act()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join()


def wait_until(
    holds: Callable[[], bool], seconds: float, problem: Callable[[], str], pause_seconds: float = 0.1
) -> None:
    """Raises SystemExit with the problem where it does not hold within so many seconds."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            raise SystemExit(problem())
        time.sleep(pause_seconds)


def run_fresh(measure: Callable[..., None], *arguments: object) -> None:
    """Calls it in a process of its own, whose highest resident memory is that of nothing else. Raises SystemExit where it fails."""
    process = multiprocessing.get_context("spawn").Process(target=measure, args=arguments)
    process.start()
    process.join()
    if process.exitcode:
        raise SystemExit(f"{measure.__name__} ended with {process.exitcode}")


def raise_file_limit() -> None:
    """This process may open as many files as anybody lets it."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)


def quantile(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def describe_high(values: Sequence[float], unit: str, digits: int) -> str:
    """The median and the highest hundredth."""
    return f"p50 {statistics.median(values):.{digits}f} {unit}, p99 {quantile(values, 0.99):.{digits}f} {unit}"


def spread(values: Sequence[float], unit: str, digits: int = 2) -> str:
    middle = f"{statistics.median(values):.{digits}f} {unit}"
    return middle if len(values) < 2 else f"{middle} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def write_table(heads: Sequence[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    yield f"| {' | '.join(heads)} |"
    yield "|" + "---|" * len(heads)
    for row in rows:
        yield f"| {' | '.join(row)} |"


def print_table(heads: Sequence[str], rows: Iterable[Iterable[str]]) -> None:
    say("")
    for line in write_table(heads, rows):
        say(line)
