"""Values of the options of `demo` and `simulate`, and listening where there is room."""

from __future__ import annotations

import argparse
import errno
import re
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from llm_serving_exporter.errors import ListenError
from llm_serving_exporter.settings import kinds
from llm_serving_exporter.settings.flags import duration_once_bare
from llm_serving_exporter.settings.problems import InvalidValueError
from llm_serving_exporter.terminal import print_line
from llm_serving_exporter.web.listen import name_cause, split_address

# --- Listening where there is room: the asked port, else the next free one; and saying which port cannot be had.


T = TypeVar("T")

_TRIES = 50


def on_next_free_port(start: Callable[[int], T], port: int, tries: int = _TRIES) -> T:
    """`start(port)`, or with the next port up while the one before is in use; port 0 is passed on as it is.

    Raises the last OSError where none of `tries` ports is free, and any other error of `start` at once.
    """
    candidates = range(port, min(port + tries, 65536)) if port else range(1)
    for candidate in candidates:
        try:
            return start(candidate)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or candidate == candidates[-1]:
                raise
    raise AssertionError("unreachable: the last candidate returns or raises")


@contextmanager
def port_named(flag: str, port: int, host: str = "127.0.0.1") -> Iterator[None]:
    """What is done within listens on this port: an OSError becomes a ListenError with the address, the cause and the flag to change."""
    try:
        yield
    except (OSError, OverflowError) as error:
        where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        cause = name_cause(error) if isinstance(error, OSError) else "ports end at 65535"
        raise ListenError(f"cannot listen on {where}: {cause}; choose another port with {flag}") from error


def require_free(host: str, port: int) -> int:
    """The port, where a listener can have it now (for a program that binds it itself). Raises OSError where not."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((host, port))
        probe.listen()
        return int(probe.getsockname()[1])


def find_free_port(host: str, asked: int, flag: str) -> int:
    """The asked port, or the next one that is free. Raises ListenError, which names the flag, where none can be had."""
    with port_named(flag, asked, host):
        return on_next_free_port(lambda candidate: require_free(host, candidate), asked)


def find_free_address(host: str, asked: int, flag: str) -> str:
    """The same as host:port."""
    port = find_free_port(host, asked, flag)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def say_moved(what: str, asked: int, url: str) -> None:
    """Tells the user where something does not listen on the port that was asked for."""
    taken = int(url.rpartition(":")[2])
    if asked and taken != asked:
        print_line(f"port {asked} is in use: {what} takes {taken}")


# --- Values of the options of `demo` and `simulate`. Each raises ArgumentTypeError.


_PROMETHEUS_PORT = 9090


def add_listening(parser: argparse.ArgumentParser, exporter: str) -> None:
    """Adds what both demos have: where the exporter listens (default host:port in words), Prometheus, and when it ends."""
    parser.add_argument(
        "--web.listen-address",
        dest="listen_addresses",
        type=address,
        action="append",
        metavar="HOST:PORT",
        help=f"where the exporter listens (default {exporter}); repeatable",
    )
    parser.add_argument("--prometheus-port", type=port, default=_PROMETHEUS_PORT, metavar="PORT")
    parser.add_argument("--no-prometheus", action="store_true", help="start none even where one is installed")
    parser.add_argument(
        "--duration", type=duration_once_bare("--duration"), metavar="10m", help="end by itself after this long"
    )


def address(text: str) -> tuple[str, int]:
    """Option value host:port, as the daemon's --web.listen-address: the host is "" for every interface."""
    try:
        return split_address(kinds.LISTEN_ADDRESS.parse(text))
    except InvalidValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def port(text: str) -> int:
    """Option value: a port, 0 for a free one."""
    if not re.fullmatch(r"[0-9]{1,5}", text) or int(text) > 65535:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a port (0-65535). Write one such as 8000, or 0 for a free one."
        )
    return int(text)


def speed(text: str) -> float:
    """Option value: how many times as fast."""
    if not re.fullmatch(r"\d+(\.\d+)?", text) or not 0.01 <= float(text) <= 1000:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0.01 to 1000. Write one such as 10.")
    return float(text)
