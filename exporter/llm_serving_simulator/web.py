"""An HTTP server of simulated engines: whatever a function answers, over threads and connections that end when it is closed."""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self

from llm_serving_exporter.model.record import Struct

# As vLLM 0.32 answers GET /metrics whatever the Accept header says (recorded in tests/captures).
METRICS_CONTENT_TYPE = "text/plain; version=1.0.0; charset=utf-8"
JSON_CONTENT_TYPE = "application/json"

# uvicorn, under vLLM, closes idle connections after 5 s (its default timeout_keep_alive).
KEEP_ALIVE_SECONDS = 5.0


class Answer(Struct, frozen=True):
    """One HTTP answer."""

    status: int  # code
    content_type: str | None  # None: an empty body without one
    body: bytes  # as sent


NOT_FOUND = Answer(404, JSON_CONTENT_TYPE, b'{"detail":"Not Found"}')
Respond = Callable[[str, str], Answer]


class SimServer:
    """Answers what `respond(method, path with query)` says, from several threads at once.

    Listens when made, on loopback unless told otherwise; port 0 takes a free one. Raises OSError where the address is
    taken. Use as a context manager or call `close()`, which ends every connection and thread.
    """

    def __init__(self, respond: Respond, host: str = "127.0.0.1", port: int = 0, name: str = "sim-server") -> None:
        self._server = _Server((host, port), respond)
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.1}, name=name, daemon=True
        )
        self._thread.start()
        where = f"[{host}]" if ":" in host else host
        self.url = f"http://{where}:{self._server.server_address[1]}"

    @property
    def port(self) -> int:
        """The port it listens on."""
        return int(self._server.server_address[1])

    def close(self) -> None:
        """Stop listening, end open connections, wait for the threads."""
        self._server.shutdown()
        self._server.end_connections()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Server(ThreadingHTTPServer):
    daemon_threads = False  # so that server_close waits for them
    request_queue_size = 64

    def __init__(self, address: tuple[str, int], respond: Respond) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self.respond = respond
        self._open: set[socket.socket] = set()
        self._open_lock = threading.Lock()
        super().__init__(address, _Handler)

    def process_request(self, request: socket.socket | tuple[bytes, socket.socket], client_address: object) -> None:
        assert isinstance(request, socket.socket)
        with self._open_lock:
            self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: socket.socket | tuple[bytes, socket.socket]) -> None:
        assert isinstance(request, socket.socket)
        with self._open_lock:
            self._open.discard(request)
        super().shutdown_request(request)

    def end_connections(self) -> None:
        with self._open_lock:
            for connection in self._open:
                try:
                    connection.shutdown(socket.SHUT_RDWR)
                except OSError:  # the client was quicker
                    continue

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that hangs up in the middle is no news here."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]  # typeshed: address of any family


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    timeout = KEEP_ALIVE_SECONDS
    disable_nagle_algorithm = True  # headers and body are two writes: Nagle would hold the second for 40 ms

    def do_GET(self) -> None:
        self._answer(self.server.respond("GET", self.path))

    def do_POST(self) -> None:
        # nothing that is posted has a body that matters; what comes must not be taken for the next request
        if self.headers.get("Content-Length", "0") != "0" or self.headers.get("Transfer-Encoding"):
            self.close_connection = True
        self._answer(self.server.respond("POST", self.path))

    def _answer(self, answer: Answer) -> None:
        self.send_response(answer.status)
        if answer.content_type is not None:
            self.send_header("Content-Type", answer.content_type)
        self.send_header("Content-Length", str(len(answer.body)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(answer.body)

    def version_string(self) -> str:
        return "uvicorn"

    def log_message(self, format: str, *args: object) -> None:
        """Silent: a page a second would drown everything else."""
