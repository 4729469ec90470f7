"""Listening where there is room: the asked port, else the next free one."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable
from typing import TypeVar

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


def require_free(host: str, port: int) -> int:
    """The port, where a listener can have it now (for a program that binds it itself). Raises OSError where not."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((host, port))
        probe.listen()
        return int(probe.getsockname()[1])


def find_free_address(host: str, asked: int) -> str:
    """host:port with the asked port, or the next one that is free. Raises OSError where none is."""
    found = on_next_free_port(lambda candidate: require_free(host, candidate), asked)
    return f"[{host}]:{found}" if ":" in host else f"{host}:{found}"


def explain_moved(what: str, asked: int, url: str) -> str | None:
    """What to say where something does not listen on the port that was asked for; None where it does."""
    found = int(url.rpartition(":")[2])
    return f"port {asked} is in use: {what} takes {found}" if asked and found != asked else None
