"""A server that speaks TLS alone, over real sockets, and hangs up on plain HTTP before it says a byte, as uvicorn does."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading

import trustme

from tests.support.servers.replica import Routes, find_answer
from tests.support.waiting import PATIENCE_SECONDS

_HELLO = b"\x16"  # RFC 8446, 5.1: the first byte of a client's hello


class TlsReplica:
    """Answers GETs by its routes over TLS; `authority` signs its certificate. `plain`: connections that it hung up on; `hellos`: others."""

    def __init__(self, routes: Routes, authority: trustme.CA) -> None:
        self.routes = routes
        self.plain, self.hellos = 0, 0
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("127.0.0.1").configure_cert(self._context)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> TlsReplica:
        return self

    def __exit__(self, *exc: object) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                sock, _ = self._listener.accept()
                sock.settimeout(PATIENCE_SECONDS)
                threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock: socket.socket) -> None:
        with contextlib.suppress(OSError), sock:
            if sock.recv(1, socket.MSG_PEEK) != _HELLO:
                sock.recv(65536)
                self.plain += 1
                return
            self.hellos += 1
            with self._context.wrap_socket(sock, server_side=True) as secure:
                while request := secure.recv(65536):
                    status, kind, body = find_answer(self.routes.get(request.split()[1].decode().partition("?")[0]))
                    head = f"HTTP/1.1 {status} x\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
                    secure.sendall(head.encode() + body)
