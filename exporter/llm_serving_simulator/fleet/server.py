"""A fleet over HTTP: each replica on a port of its own, in real time or faster."""

from __future__ import annotations

import json
import logging
import socket
import threading
import time
from types import TracebackType
from typing import Self

from llm_serving_exporter.errors import ListenError
from llm_serving_simulator.fleet.clock import ScaledClock
from llm_serving_simulator.fleet.control import control
from llm_serving_simulator.fleet.endpoints import side_answers
from llm_serving_simulator.fleet.fleet import Fleet
from llm_serving_simulator.fleet.replica import Replica, ReplicaState
from llm_serving_simulator.ports import port_named
from llm_serving_simulator.web import JSON_CONTENT_TYPE, METRICS_CONTENT_TYPE, NOT_FOUND, Answer, Respond, SimServer

log = logging.getLogger("llm_serving_exporter.sim")

_HOST = "127.0.0.1"
# how often the fleet is moved on when nobody asks: events and pages come with it, so it need not be fine
_TICK_SECONDS = 0.1

# in words that the exporter takes for loading
_LOADING = Answer(503, JSON_CONTENT_TYPE, b'{"detail":"The model is loading"}')


class FleetServer:
    """Serves a fleet on loopback: a port a replica, fixed for its life, and a control port (see `control`).

    Simulated time is `clock`'s; by default it goes on from the fleet's present, `speed` times as fast as real time. Where the fleet has no
    epoch, its present is now. A replica whose node is lost, or that is stopped or cut off, refuses connections; one that loads answers 503;
    a hung one answers. `first_port`: of the first replica, the others follow; 0 takes free ones. `lock` is held by whoever uses the fleet.
    `real_wall`: pages tell the real time of a start, for a Prometheus whose clock does not run faster.
    Raises ListenError where a port is taken. Use as a context manager or call `close()`.
    """

    def __init__(
        self,
        fleet: Fleet,
        speed: float = 1.0,
        *,
        clock: ScaledClock | None = None,
        first_port: int = 0,
        control_port: int = 0,
        real_wall: bool = False,
    ) -> None:
        self.fleet = fleet
        self.clock = clock or ScaledClock(speed, fleet.epoch_unix_seconds or None, fleet.now_seconds)
        fleet.epoch_unix_seconds = self.clock.epoch_unix_seconds
        if real_wall:
            fleet.unix_speed = self.clock.speed
            fleet.epoch_unix_seconds = time.time() - fleet.now_seconds / fleet.unix_speed
        self.lock = threading.RLock()
        self._stopping = threading.Event()
        self._doors: dict[str, _Door] = {}
        self._control: SimServer | None = None
        self._thread = threading.Thread(target=self._run, name="fleet", daemon=True)
        try:
            for number, replica in enumerate(fleet.replicas.values()):
                port = first_port + number if first_port else 0
                with port_named("--port", port):
                    self._doors[replica.name] = _Door(self._respond(replica), port, replica.name)
            with port_named("--control-port", control_port):
                self._control = SimServer(self._controlled, _HOST, control_port, "fleet-control")
        except ListenError:
            self.close()
            raise
        self._thread.start()

    @property
    def control_url(self) -> str:
        """Where it is controlled."""
        assert self._control is not None
        return self._control.url

    def url(self, name: str) -> str:
        """A replica's server, whether it listens or not. Raises KeyError."""
        return self._doors[name].url

    def advance(self) -> Fleet:
        """The fleet, moved on to now. To be called and used while `lock` is held."""
        self.fleet.advance(self.clock.monotonic())
        for name in self.fleet.replicas:
            self._doors[name].want_open = self._listens(name)
        return self.fleet

    def _listens(self, name: str) -> bool:
        gone = self.fleet.replica(name).state in (ReplicaState.STOPPED, ReplicaState.DOWN)
        return not gone and name not in self.fleet.unreachable

    def close(self) -> None:
        """Ends every server and thread."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()
        if self._control is not None:
            self._control.close()
        for door in self._doors.values():
            door.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _run(self) -> None:
        while not self._stopping.wait(_TICK_SECONDS):
            try:
                with self.lock:
                    self.advance()
                self._move_doors()
            except Exception:
                log.exception("the simulated fleet stands still; this is a bug, please report it")
                return

    def _move_doors(self) -> None:
        """Not while the lock is held: a door that closes waits for answers that need it."""
        for door in self._doors.values():
            try:
                door.move()
            except OSError as error:  # tried again at the next tick
                log.warning("%s does not listen yet: %s", door.url, error.strerror)

    def _respond(self, replica: Replica) -> Respond:
        def respond(method: str, path: str) -> Answer:
            path = path.partition("?")[0]
            with self.lock:
                self.advance()
                if method != "GET" or replica.state in (ReplicaState.STOPPED, ReplicaState.DOWN):
                    return NOT_FOUND
                if replica.engine is None:
                    return _LOADING
                if path == "/metrics":
                    page = self.fleet.page(replica.name)
                    assert page is not None
                    return Answer(200, METRICS_CONTENT_TYPE, page)
                if path == "/health":
                    return Answer(200, None, b"")
                started = self.fleet.unix_seconds(replica.started_seconds)
                body = side_answers(replica.spec.engine, started).get(path)
                return NOT_FOUND if body is None else Answer(200, JSON_CONTENT_TYPE, body)

        return respond

    def _controlled(self, method: str, path: str) -> Answer:
        with self.lock:
            status, document = control(self.advance(), self._urls(), method, path)
            self.advance()
        if method == "POST" and status == 200:
            self._move_doors()
        return Answer(status, JSON_CONTENT_TYPE, json.dumps(document, allow_nan=False).encode())

    def _urls(self) -> dict[str, str]:
        return {name: door.url for name, door in self._doors.items()}


class _Door:
    """A port that is listened on or not, and nobody else's in between."""

    def __init__(self, respond: Respond, port: int, name: str) -> None:
        self._respond, self._name = respond, name
        self.want_open = True
        self._lock = threading.Lock()
        self._closed = False
        # bound and never listened on: connections are refused while the server is shut, and the port stays ours
        self._held = socket.socket(socket.AF_INET)
        self._held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._held.bind((_HOST, port))
            self._port = int(self._held.getsockname()[1])
            self._server: SimServer | None = SimServer(respond, _HOST, self._port, f"fleet-{name}")
        except (OSError, OverflowError):  # the latter beyond the last port
            self._held.close()
            raise
        self.url = f"http://{_HOST}:{self._port}"

    def move(self) -> None:
        """Opens or shuts it as is wanted."""
        with self._lock:
            if self._closed or self.want_open == (self._server is not None):
                return
            if self._server is None:
                self._server = SimServer(self._respond, _HOST, self._port, f"fleet-{self._name}")
            else:
                self._server.close()
                self._server = None

    def close(self) -> None:
        """Gives the port back."""
        with self._lock:
            self._closed = True
            if self._server is not None:
                self._server.close()
                self._server = None
            self._held.close()
