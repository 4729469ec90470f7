"""A recording served over HTTP as the server that it was recorded from.

python -m llm_serving_exporter.sim.replay --recording vllm-0.32.tar.xz --listen 127.0.0.1:8000 --speed 1
"""

from __future__ import annotations

import argparse
import signal
import socket
import sys
import threading
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType

from llm_serving_exporter.sim.recording import Recording, demo_recording
from llm_serving_exporter.sim.timeline import Pages, Stepped, Timeline

# As vLLM 0.32 answers GET /metrics whatever the Accept header says (recorded in tests/captures).
METRICS_CONTENT_TYPE = "text/plain; version=1.0.0; charset=utf-8"

# uvicorn, under vLLM, closes idle connections after 5 s (its default timeout_keep_alive).
KEEP_ALIVE_SECONDS = 5.0


class ReplayServer:
    """An HTTP server that answers as the recorded server did: /metrics, /version, /v1/models, /server_info, /health, else 404.

    Listens when made, on loopback unless told otherwise; port 0 takes a free one. Raises OSError where the address is
    taken. Use as a context manager or call `close()`, which ends every connection and thread.
    """

    def __init__(self, pages: Pages, recording: Recording, host: str = "127.0.0.1", port: int = 0) -> None:
        self._server = _Server((host, port), pages, recording)
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.1}, name="replay-server", daemon=True
        )
        self._thread.start()
        name = f"[{host}]" if ":" in host else host
        self.url = f"http://{name}:{self._server.server_address[1]}"

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

    def __enter__(self) -> ReplayServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class SteppedServer(ReplayServer):
    """A replay server whose page the test chooses: `show(n)`; with `advance`, every GET moves one page on."""

    def __init__(self, recording: Recording, advance: bool = False, host: str = "127.0.0.1", port: int = 0) -> None:
        self._stepped = Stepped(recording, advance)
        super().__init__(self._stepped, recording, host, port)

    def show(self, number: int) -> None:
        """Show page `number` from the next GET on. Raises KeyError where the recording has no such page."""
        self._stepped.show(number)


# the recorded servers ran with VLLM_SERVER_DEV_MODE=1, hence /server_info
_ENDPOINTS = (
    ("/version", "endpoints/version.body"),
    ("/v1/models", "endpoints/v1_models.body"),
    ("/server_info", "endpoints/server_info_config_format_json.body"),
)


class _Server(ThreadingHTTPServer):
    daemon_threads = False  # so that server_close waits for them
    request_queue_size = 64

    def __init__(self, address: tuple[str, int], pages: Pages, recording: Recording) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self.pages = pages
        self.fixed = {path: recording.members[name] for path, name in _ENDPOINTS if name in recording.members}
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
        path = self.path.partition("?")[0]
        if path == "/metrics":
            self._answer(200, METRICS_CONTENT_TYPE, self.server.pages.body())
        elif path == "/health":
            self._answer(200, None, b"")
        elif path in self.server.fixed:
            self._answer(200, "application/json", self.server.fixed[path])
        else:
            self._answer(404, "application/json", b'{"detail":"Not Found"}')

    def _answer(self, status: int, content_type: str | None, body: bytes) -> None:
        self.send_response(status)
        if content_type is not None:
            self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def version_string(self) -> str:
        return "uvicorn"

    def log_message(self, format: str, *args: object) -> None:
        """Silent: a page a second would drown everything else."""


def split_address(address: str) -> tuple[str, int]:
    """`host:port` or `:port` (loopback) as a pair. Raises ValueError on anything else."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"{address!r} is not host:port")
    return host.strip("[]") or "127.0.0.1", int(port)


def main(argv: Sequence[str] | None = None) -> int:
    """Serve a recording at its own pace until SIGINT or SIGTERM; prints the URL once it listens."""
    parser = argparse.ArgumentParser(prog="python -m llm_serving_exporter.sim.replay", description=main.__doc__)
    parser.add_argument("--recording", type=Path, help="archive (.tar.xz); default: the vLLM 0.32 run of the package")
    parser.add_argument("--listen", default="127.0.0.1:8000", metavar="HOST:PORT", help="default: %(default)s")
    parser.add_argument("--speed", type=float, default=1.0, help="times the recorded pace; default: %(default)s")
    args = parser.parse_args(argv)
    try:
        host, port = split_address(args.listen)
        recording = Recording.load(args.recording) if args.recording else demo_recording()
        timeline = Timeline(recording, speed=args.speed)
    except (ValueError, OSError) as error:
        parser.error(str(error))
    done = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: done.set())
    try:
        server = ReplayServer(timeline, recording, host, port)
    except OSError as error:
        parser.error(f"cannot listen on {args.listen}: {error.strerror}; choose another --listen")
    with server:
        sys.stdout.write(f"{server.url}\n")
        sys.stdout.flush()
        done.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
