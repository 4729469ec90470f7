"""What the commands of this package share: values of their options, lines, and how they end."""

from __future__ import annotations

import argparse
import os
import re
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from llm_serving_exporter.sim.replay import split_address


@contextmanager
def ended_by_signal() -> Iterator[threading.Event]:
    """An event that SIGINT, SIGTERM and SIGHUP set; the handlers before are put back. Main thread only, as signals are."""
    ended = threading.Event()

    def end(number: int, frame: FrameType | None) -> None:
        ended.set()

    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup: the terminal may go
        numbers.append(signal.SIGHUP)
    before = {number: signal.signal(number, end) for number in numbers}
    try:
        yield ended
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def address(text: str) -> tuple[str, int]:
    """Option value host:port. Raises ArgumentTypeError, as those below."""
    try:
        return split_address(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def port(text: str) -> int:
    """Option value: a port, 0 for a free one."""
    if not text.isdigit() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port (0-65535)")
    return int(text)


def speed(text: str) -> float:
    """Option value: how many times as fast."""
    if not re.fullmatch(r"\d+(\.\d+)?", text) or not 0.01 <= float(text) <= 1000:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0.01 to 1000")
    return float(text)


def seconds(text: str) -> float:
    """Option value: 10s, 5m or 1h in seconds."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(s|m|h)?", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration such as 10s, 5m or 1h")
    return float(match[1]) * {"s": 1, "m": 60, "h": 3600}[match[2] or "s"]


def say(text: str) -> None:
    """One line, at once. A reader that went away (`| head`) ends nothing: what is served may still be wanted."""
    try:
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()
    except BrokenPipeError:
        # else each further line, and the interpreter when it ends, would try once more
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
