"""A server whose answers a test chooses, over real HTTP, and the real host reading it tick by tick.

`readings([{"/metrics": page}, …], runtime="sglang")` reads one step a tick, ten seconds apart, and gives the reading after each.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from http.server import ThreadingHTTPServer
from typing import Any

from llm_serving_exporter.engines.mapping import Runtime
from llm_serving_exporter.model.reading import TargetReading
from llm_serving_exporter.model.target import Target
from llm_serving_exporter.settings.config import Config, TenantsConfig
from llm_serving_exporter.targets.host import TargetHost
from tests.support.builders.procfolders import quiet_machine
from tests.support.servers.http_server import QuietHandler
from tests.support.waiting import PATIENCE_SECONDS

# a body (JSON where it looks like it, else text/plain), or (status, content type, body)
Answer = bytes | str | tuple[int, str, bytes]
Routes = Mapping[str, Answer]
NO_TENANTS = TenantsConfig()
UNIX_START = 1_795_148_000.0


class Replica:
    """Answers GETs: a route with a query wins over the path alone; what has no route is a 404. `asked`: every path, query included.

    `refuse` makes it go away, `show` come back at the same address.
    """

    def __init__(self, routes: Routes | None = None) -> None:
        self.routes: Routes = routes or {}
        self.asked: list[str] = []
        replica = self

        class Handler(QuietHandler):
            protocol_version = "HTTP/1.1"
            timeout = PATIENCE_SECONDS
            disable_nagle_algorithm = True  # headers and body are two writes: Nagle would hold the second for 40 ms

            def do_GET(self) -> None:
                if not replica._listening:
                    self.close_connection = True  # one that was kept open dies with the server
                    return
                replica.asked.append(self.path)
                answer = replica.routes.get(self.path, replica.routes.get(self.path.partition("?")[0]))
                status, content_type, body = find_answer(answer)
                self.answer(status, body, content_type)

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            block_on_close = False

        self._make = lambda port: Server(("127.0.0.1", port), Handler)
        self._listening = False
        self._listen(0)
        self._port = int(self._server.server_address[1])
        self.url = f"http://127.0.0.1:{self._port}"

    def _listen(self, port: int) -> None:
        self._server = self._make(port)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.002,), daemon=True)
        self._thread.start()
        self._listening = True

    def show(self, routes: Routes) -> None:
        self.routes = routes
        if not self._listening:
            self._listen(self._port)

    def refuse(self) -> None:
        if self._listening:
            self._listening = False
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()

    def close(self) -> None:
        self.refuse()

    def __enter__(self) -> Replica:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def find_answer(answer: Answer | None) -> tuple[int, str, bytes]:
    if answer is None:
        return 404, "application/json", b'{"detail":"Not Found"}'
    if isinstance(answer, tuple):
        return answer
    body = answer.encode() if isinstance(answer, str) else answer
    return 200, "application/json" if body[:1] in (b"{", b"[") else "text/plain; version=0.0.4", body


def readings(
    steps: Sequence[Routes | None],
    *,
    seconds: float = 10.0,
    window_seconds: float = 60.0,
    runtimes: Sequence[Runtime] = (),
    replica: Replica | None = None,
    tenants: TenantsConfig = NO_TENANTS,
    **target: Any,
) -> list[TargetReading]:
    """One reading a step; at a step that is None the server refuses. `target`: settings of the Target beyond its name and URL; `runtimes`:
    tables beside the built-in ones; `tenants`: how tenants are counted. The machine has no processes: whose they are is asked elsewhere."""
    server = replica or Replica()
    now = [0.0]
    config = Config(targets=(), runtimes=tuple(runtimes), window_seconds=window_seconds, tenants=tenants)
    host = TargetHost(config, monotonic=lambda: now[0], wall=lambda: UNIX_START + now[0], proc_root=quiet_machine())
    hosted = host.add_target(Target("replica-0", server.url, **target))
    found = []
    try:
        for routes in steps:
            if routes is None:
                server.refuse()
            else:
                server.show(routes)
            now[0] += seconds
            found.append(hosted.tick())
            hosted.refresh_facts()
    finally:
        host.close()
        if replica is None:
            server.close()
    return found
