import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
import trustme

from llm_serving_exporter.settings.config import WebConfig
from llm_serving_exporter.web.exchange import Handler, Request, Response
from llm_serving_exporter.web.server import WebServer

MakeServer = Callable[..., WebServer]


def echo(request: Request) -> Response:
    return Response(200, "text/plain", f"{request.method} {request.path} {request.query}".encode())


def fails(_request: Request) -> Response:
    raise RuntimeError("the page's own fault")


ROUTES: dict[str, dict[str, Handler]] = {
    "/": {"GET": echo},
    "/big": {"GET": lambda _request: Response(200, "text/plain; version=1.0.0", b"llm_serving 1\n" * 20_000)},
    "/broken": {"GET": fails},
    "/-/reload": {"POST": echo, "PUT": echo},
}


@pytest.fixture
def make_server() -> Iterator[MakeServer]:
    """make_server(*addresses, routes=…, config_file=…, limits=…): a started server; the test's end stops it, threads and all."""
    made: list[WebServer] = []

    def make(
        *addresses: str,
        routes: Mapping[str, Mapping[str, Handler]] = ROUTES,
        config_file: str | None = None,
        **more: Any,
    ) -> WebServer:
        server = WebServer(
            WebConfig(listen_addresses=addresses or ("127.0.0.1:0",), config_file=config_file), routes, **more
        )
        made.append(server)
        server.start()
        return server

    yield make
    for server in made:
        server.stop()
    left = [thread.name for thread in threading.enumerate() if thread.name.startswith("web-")]
    assert left == []


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()
