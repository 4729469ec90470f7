"""A client of one server for tests, whose calls wait for the answer in the test's own thread; servers that are asked once."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from llm_serving_exporter.fetch.http import HttpClient, JsonAnswer
from llm_serving_exporter.fetch.waits import drive
from llm_serving_exporter.model.sample import Page, Refusal
from llm_serving_exporter.model.target import HttpSettings
from tests.support.servers.faultserver import Behaviour, FaultServer, Request


class BlockingClient(HttpClient):
    """An `HttpClient` whose calls are not coroutines."""

    def get_metrics(self, path: str = "/metrics") -> Page | Refusal:
        return drive(super().get_metrics(path))

    def get_json(self, path: str, *args: Any, **more: Any) -> JsonAnswer | Refusal:
        return drive(super().get_json(path, *args, **more))

    def get_any(self, path: str) -> Page | Refusal:
        return drive(super().get_any(path))

    def page(self, path: str = "/metrics") -> Page:
        """The metrics page, which there must be."""
        got = self.get_metrics(path)
        assert isinstance(got, Page), got
        return got

    def refusal(self, path: str = "/metrics") -> Refusal:
        """Why there is no metrics page."""
        got = self.get_metrics(path)
        assert isinstance(got, Refusal)
        return got


MakeClient = Callable[..., BlockingClient]


@pytest.fixture
def make_client() -> Iterator[MakeClient]:
    """make_client(url, clocks={}, **settings): a client that the test's end closes; its deadline is generous."""
    made: list[BlockingClient] = []

    def make(url: str, clocks: dict[str, Any] | None = None, **settings: Any) -> BlockingClient:
        made.append(BlockingClient(url, HttpSettings(**{"timeout_seconds": 20.0, **settings}), **(clocks or {})))
        return made[-1]

    yield make
    for client in made:
        client.close()


@pytest.fixture
def client_of(make_client: MakeClient) -> Callable[..., Any]:
    """with client_of(behaviour, tls=None, clocks={}, **settings) as (server, client): a server that behaves so, and a client of it."""

    @contextmanager
    def serve(behaviour: Behaviour, *, tls: ssl.SSLContext | None = None, **settings: Any) -> Iterator[Any]:
        with FaultServer(behaviour, tls=tls) as server:
            yield server, make_client(server.url, **settings)

    return serve


class Once:
    """Servers that are asked for a metrics page once, each by a client of its own, which is made with the rest of the settings."""

    def __init__(self, make: MakeClient) -> None:
        self._make = make
        self.requests: list[Request] = []  # of the last one
        self.connections = 0  # likewise

    def _ask(self, behaviour: Behaviour, tls: ssl.SSLContext | None, ask: Callable[..., Any], settings: Any) -> Any:
        with FaultServer(behaviour, tls=tls) as server:
            try:
                return ask(self._make(server.url, **settings))
            finally:
                self.requests, self.connections = server.requests, server.connections

    def page(
        self, behaviour: Behaviour, path: str = "/metrics", *, tls: ssl.SSLContext | None = None, **settings: Any
    ) -> Page:
        return self._ask(behaviour, tls, lambda client: client.page(path), settings)

    def refusal(
        self, behaviour: Behaviour, path: str = "/metrics", *, tls: ssl.SSLContext | None = None, **settings: Any
    ) -> Refusal:
        return self._ask(behaviour, tls, lambda client: client.refusal(path), settings)


@pytest.fixture
def once(make_client: MakeClient) -> Once:
    return Once(make_client)
