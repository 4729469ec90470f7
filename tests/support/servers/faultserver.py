"""A raw-socket HTTP server on 127.0.0.1 that misbehaves on request, for tests of whatever reads it.

    with FaultServer({"/metrics": page(b"up 1\\n"), "/slow": drip(b"up 1\\n", interval_seconds=0.1)}) as server:
        fetch(f"{server.url}/metrics")
        server.behave("/metrics", silent())      # from now on
        assert server.connections == 1

A behaviour is a function of one `Exchange` (the request, and the means to answer it); it returns True to keep the
connection open for another request. Every wait inside it ends when the server stops, so leaving the context is quick
and leaves no thread and no socket behind. `FaultServer(behaviour)` gives the same behaviour to every path;
unknown paths get a 404. The behaviours are in `tests.support.servers.faultbehaviours`.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tests.support.servers.faultbehaviours import head, status
from tests.support.waiting import PATIENCE_SECONDS


@dataclass(frozen=True)
class Request:
    """A request as it came. `headers`: names in lower case, the last of equal ones; `raw`: the head as sent."""

    method: str
    target: str
    headers: dict[str, str]
    raw: bytes

    @property
    def path(self) -> str:
        return self.target.partition("?")[0]


@dataclass(frozen=True)
class Exchange:
    """One request and the connection that it came over. `nth` counts the requests of this connection from 1."""

    request: Request
    nth: int
    _sock: socket.socket
    _stopping: threading.Event

    def send(self, data: bytes) -> None:
        self._sock.sendall(data)

    def wait(self, seconds: float) -> bool:
        """Wait; True if the server stops meanwhile."""
        return self._stopping.wait(seconds)

    def wait_for_hang_up(self) -> None:
        """Until the client closes, or the server stops."""
        with contextlib.suppress(OSError):
            while self._sock.recv(4096):
                pass

    def reset(self) -> None:
        """Make the coming close a TCP reset instead of an orderly end."""
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


Behaviour = Callable[[Exchange], bool]


class FaultServer:
    """The server; a context manager. `address_family` AF_INET6 listens on ::1."""

    def __init__(
        self,
        routes: Behaviour | Mapping[str, Behaviour],
        *,
        tls: ssl.SSLContext | None = None,
        address_family: socket.AddressFamily = socket.AF_INET,
    ) -> None:
        self._default = routes if callable(routes) else status(404, b"not found\n")
        self._routes = {} if callable(routes) else dict(routes)
        self._tls = tls
        self._family = address_family
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._sockets: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._connections = 0
        self._requests: list[Request] = []
        self._changed = threading.Condition(self._lock)
        self._open = 0

    def __enter__(self) -> FaultServer:
        host = "::1" if self._family == socket.AF_INET6 else "127.0.0.1"
        self._listener = socket.create_server((host, 0), family=self._family, backlog=128)
        self._listener.settimeout(0.05)
        self.port: int = self._listener.getsockname()[1]
        self.authority = f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"
        self.url = f"{'https' if self._tls else 'http'}://{self.authority}"
        self._acceptor = threading.Thread(target=self._accept, name="faultserver-accept")
        self._acceptor.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stopping.set()
        with contextlib.suppress(OSError):  # wakes accept() on Linux; elsewhere its timeout does
            self._listener.shutdown(socket.SHUT_RDWR)
        self._acceptor.join(PATIENCE_SECONDS)
        self._listener.close()
        with self._lock:
            for sock in self._sockets:
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(PATIENCE_SECONDS)
            assert not thread.is_alive(), "a connection of the fault server does not end"

    def behave(self, path: str, behaviour: Behaviour) -> None:
        """From the next request on, answer `path` like this."""
        with self._lock:
            self._routes[path] = behaviour

    @property
    def connections(self) -> int:
        """Connections accepted so far."""
        with self._lock:
            return self._connections

    @property
    def requests(self) -> list[Request]:
        """Requests seen so far, in order."""
        with self._lock:
            return list(self._requests)

    def wait_until_idle(self) -> None:
        """Until every connection so far has ended on the server's side (at most half a minute)."""
        with self._changed:
            assert self._changed.wait_for(lambda: self._open == 0, PATIENCE_SECONDS), "connections stay open"

    def wait_for_requests(self, count: int) -> None:
        """Until this many requests have come in all (at most half a minute)."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self._requests) >= count, PATIENCE_SECONDS), "requests missing"

    def _accept(self) -> None:
        while not self._stopping.is_set():
            try:
                sock, _ = self._listener.accept()
            except TimeoutError:
                continue
            except OSError:
                return
            sock.settimeout(PATIENCE_SECONDS)
            thread = threading.Thread(target=self._serve, args=(sock,), name="faultserver-connection")
            with self._lock:
                self._connections += 1
                self._open += 1
                self._sockets.add(sock)
                self._threads = [t for t in self._threads if t.is_alive()]
                self._threads.append(thread)
                thread.start()

    def _serve(self, plain: socket.socket) -> None:
        sock: socket.socket = plain
        # The client hanging up, at any moment, is what many tests want; it ends the connection and nothing else.
        with contextlib.suppress(OSError, ValueError):
            if self._tls is not None:
                sock = self._tls.wrap_socket(plain, server_side=True, do_handshake_on_connect=False)
                self._swap(plain, sock)  # so that stopping can interrupt the handshake
                sock.do_handshake()
            self._converse(sock)
        with self._changed:
            self._sockets.discard(sock)
            self._open -= 1
            plain.close()
            sock.close()
            self._changed.notify_all()

    def _swap(self, old: socket.socket, new: socket.socket) -> None:
        with self._lock:
            self._sockets.discard(old)
            self._sockets.add(new)

    def _converse(self, sock: socket.socket) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        pending, nth, keep = b"", 0, True
        while keep and not self._stopping.is_set():
            while b"\r\n\r\n" not in pending:
                data = sock.recv(65536)
                if not data:
                    return
                pending += data
                if pending[:1] == b"\x16":  # a TLS ClientHello; HTTP servers take it for a bad request
                    sock.sendall(head(400, "text/plain", "Connection: close"))
                    return
            raw, _, pending = pending.partition(b"\r\n\r\n")
            request, nth = _parse(raw), nth + 1
            with self._lock:
                self._requests.append(request)
                self._changed.notify_all()
                behaviour = self._routes.get(request.path, self._default)
            keep = behaviour(Exchange(request, nth, sock, self._stopping))


def _parse(raw: bytes) -> Request:
    first, *lines = raw.decode("latin-1").split("\r\n")
    method, target, _ = first.split(" ", 2)
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return Request(method, target, headers, raw)
