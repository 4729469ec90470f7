"""How every command prints, and how it ends: broken pipes, signals, and errors as messages with an exit status.

Credentials in a URL that somebody gave, in whatever flag, are masked here, where every word comes by.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from llm_serving_exporter.errors import ConfigError, LLMServingExporterError
from llm_serving_exporter.model.text import hide_credentials

EXIT_OK, EXIT_FAILED, EXIT_USAGE, EXIT_INTERRUPTED = 0, 1, 2, 130
# what a shell adds to the number of the signal that ended a program
_ENDED_BY = 128


class Ended(KeyboardInterrupt):
    """SIGTERM or SIGHUP, raised where Ctrl-C raises KeyboardInterrupt, so that one handler restores what has to be restored."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


def print_line(text: str) -> bool:
    """Prints a line, or several, on standard output at once. False where they cannot be written; the command may go on.

    A reader that went away (`| head`) gets no message, a full disk does. Whatever is printed after that goes nowhere.
    """
    try:
        sys.stdout.write(f"{hide_credentials(text)}\n")
        sys.stdout.flush()
    except (OSError, ValueError) as error:
        # otherwise each further line, and the interpreter when it ends, would try again
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            words = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            print_message(f"error: the answer cannot be written: {words}")
        return False
    return True


def print_message(text: str, end: str = "\n") -> None:
    """Prints a message on standard error: an error, a warning, progress. A terminal that went away stops no command."""
    with suppress(OSError, ValueError):
        sys.stderr.write(f"{hide_credentials(text)}{end}")
        sys.stderr.flush()


def print_problems(error: ConfigError) -> None:
    """Prints each problem on a line of its own."""
    for problem in error.problems:
        print_message(f"error: {problem}")


def run_command(command: Callable[[], int]) -> int:
    """Runs a command and returns its exit status; an error of this package becomes a message.

    2 for ConfigError, 1 for any other LLMServingExporterError, 128 and the signal's number after SIGINT, SIGTERM or SIGHUP.
    """
    try:
        with _signals_raised():
            return command()
    except ConfigError as error:
        print_problems(error)
        return EXIT_USAGE
    except LLMServingExporterError as error:
        print_message(f"error: {error}")
        return EXIT_FAILED
    except Ended as ended:
        return _ENDED_BY + ended.number
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


@contextmanager
def _signals_raised() -> Iterator[None]:
    """SIGTERM and SIGHUP raise `Ended` in the main thread, as SIGINT raises KeyboardInterrupt."""

    def end(number: int, frame: FrameType | None) -> None:
        raise Ended(number)

    with _handled({signal.SIGTERM: end, **_unless_ignored(end)}):
        yield


@contextmanager
def ended_by_signal(reload: threading.Event | None = None) -> Iterator[threading.Event]:
    """An event that SIGINT, SIGTERM and SIGHUP set; afterwards the previous handlers are back. Main thread only, as signals are.

    `reload`: what SIGHUP sets instead, for a program that reads its configuration again.
    """
    ended = threading.Event()

    def end(number: int, frame: FrameType | None) -> None:
        ended.set()

    def read_again(number: int, frame: FrameType | None) -> None:
        if reload is not None:
            reload.set()

    hangup = _unless_ignored(end) if reload is None else {signal.SIGHUP: read_again}
    with _handled({signal.SIGINT: end, signal.SIGTERM: end, **hangup}):
        yield ended


_Handler = Callable[[int, FrameType | None], None]


def _unless_ignored(handler: _Handler) -> dict[signal.Signals, _Handler]:
    # nohup: the terminal may go
    return {} if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else {signal.SIGHUP: handler}


@contextmanager
def _handled(handlers: dict[signal.Signals, _Handler]) -> Iterator[None]:
    """Installs handlers and puts the previous ones back. Outside the main thread, where Python allows none, it installs none."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
