"""What a collector's process sees of its machine: a clock that only the collector moves, one host name, one environment, no name server, no
driver of GPUs.

`fix_surroundings` comes before the first import of the product, which takes its clocks from `time` while it is imported.
"""

from __future__ import annotations

import ctypes
import os
import platform
import random
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

HOST = "host-1"
# 2026-11-20T04:13:20Z, as the golden pages have it
START = 1_795_148_000.0
# since the machine's start
_ELAPSED = 10_000.0
# of the environment that a developer has, what programs are found by
_KEPT = ("PATH", "HELM", "KUBECTL", "TMPDIR", "PYTHONPATH", "PYTHONPYCACHEPREFIX")
_SET = {"HOME": "/home/nobody-there", "TZ": "UTC", "LANG": "C.UTF-8", "COLUMNS": "100", "NO_COLOR": "1"}
_real_sleep = time.sleep


class StubClock:
    """Wall and elapsed time. `on_wait`: called when somebody has slept for a second or more, which takes no time."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.on_wait: Callable[[], object] = bool

    def wall(self) -> float:
        """Unix seconds."""
        return START + self.seconds

    def elapsed(self, _clock: int = 0) -> float:
        """Seconds since the machine's start, whichever clock is asked."""
        return _ELAPSED + self.seconds

    def sleep(self, seconds: float) -> None:
        """A short one is a look at what another thread does, and goes by real time."""
        if seconds < 1.0:
            _real_sleep(seconds)
            return
        self.seconds += seconds
        self.on_wait()


CLOCK = StubClock()


def fix_surroundings() -> None:
    """Puts all of that in the place of what the machine has. Raises RuntimeError where the product is imported already."""
    if any(name.startswith("llm_serving_") for name in sys.modules):
        raise RuntimeError("the product was imported before its surroundings were fixed")
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    os.environ.clear()
    os.environ.update(kept | _SET)
    time.tzset()
    ctypes.CDLL = _WithoutDriver
    stubs: dict[Any, dict[str, Any]] = {
        time: {"time": CLOCK.wall, "clock_gettime": CLOCK.elapsed, "sleep": CLOCK.sleep},
        socket: {"gethostname": lambda: HOST, "getfqdn": lambda name="": name or HOST, "getaddrinfo": _resolve},
        platform: {"python_version": lambda: "3.0.0"},
    }
    for module, names in stubs.items():
        for name, stub in names.items():
            setattr(module, name, stub)


def begin_part() -> None:
    """Every part begins at the same time and draws the same numbers, so that it is the same without those before it."""
    CLOCK.seconds, CLOCK.on_wait = 0.0, bool
    random.seed(0)


class _WithoutDriver(ctypes.CDLL):
    """Every library but NVML's: what that says is never the same twice."""

    def __init__(self, name: str | None, *more: Any, **named: Any) -> None:
        if name is not None and "nvidia-ml" in str(name):
            raise OSError(f"{name}: cannot open shared object file: No such file or directory")
        super().__init__(name, *more, **named)


_getaddrinfo = socket.getaddrinfo


def _resolve(host: Any, port: Any, *more: Any, **named: Any) -> Any:
    """Addresses and this machine's loopback resolve, no other name does: what a name server says is the network's."""
    text = host.decode() if isinstance(host, bytes) else host
    if text in (None, "", "localhost", HOST):
        return _getaddrinfo("127.0.0.1" if text else text, port, *more, **named)
    for family in (socket.AF_INET, socket.AF_INET6):
        with suppress(OSError):
            socket.inet_pton(family, text.partition("%")[0])
            return _getaddrinfo(host, port, *more, **named)
    raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
