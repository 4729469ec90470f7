"""Engines of pods: each listens on a loopback address of its own and serves a recorded vLLM page whose counters go on."""

import re
import threading
import time
from http.server import ThreadingHTTPServer

from tests.support.builders.recordings import page
from tests.support.servers.http_server import QuietHandler

MODEL = "tiny-llama"
TOKENS_PER_SECOND = 1000.0
# under load: requests run and wait
_LOADED_PAGE = 60
_MOVING = re.compile(
    rb"^((?:vllm:generation_tokens_total|vllm:prompt_tokens_total|process_start_time_seconds)(?:\{[^}]*\})?) [0-9.e+-]+$",
    re.MULTILINE,
)


class PodEngine:
    """Listens from `start` to `stop` at `address`:`port`. `served`: the generated tokens of each page so far.

    `credentials`: the different Authorization headers that requests came with, "" for none.
    """

    def __init__(self, address: str, port: int, model: str = MODEL) -> None:
        self.address, self.port = address, port
        self._page = page("vllm-0.32", _LOADED_PAGE).replace(b"tiny-llama", model.encode())
        self.served: list[float] = []
        self.credentials: set[str] = set()
        self._server: ThreadingHTTPServer | None = None

    @property
    def url(self) -> str:
        return f"http://{self.address}:{self.port}"

    def start(self) -> None:
        self._began, self._began_unix = time.monotonic(), time.time()
        engine = self

        class Handler(QuietHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_GET(self) -> None:
                engine.credentials.add(self.headers.get("Authorization", ""))
                if self.path != "/metrics":
                    self.answer(404, b"{}")
                elif engine._server is None:
                    # one that was kept open dies with the process
                    self.close_connection = True
                else:
                    self.answer(200, engine._write_page(), "text/plain; version=0.0.4")

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            block_on_close = False

        self._server = Server((self.address, self.port), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """May be called twice."""
        server, self._server = self._server, None
        if server is not None:
            server.shutdown()
            server.server_close()
            self._thread.join()

    def _write_page(self) -> bytes:
        generated = float(int((time.monotonic() - self._began) * TOKENS_PER_SECOND))
        values = {
            b"vllm:generation_tokens_total": generated,
            b"vllm:prompt_tokens_total": 2 * generated,
            b"process_start_time_seconds": self._began_unix,
        }
        text = _MOVING.sub(lambda found: b"%s %r" % (found[1], values[found[1].partition(b"{")[0]]), self._page)
        self.served.append(generated)
        return text
