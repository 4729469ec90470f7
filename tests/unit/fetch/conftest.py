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
    """Servers that are asked for a metrics page once, each by a client of its own, made as by `client_of`."""

    def __init__(self, client_of: Callable[..., Any]) -> None:
        self._client_of = client_of
        self.requests: list[Request] = []  # of the last one
        self.connections = 0  # likewise

    def get(self, behaviour: Behaviour, path: str = "/metrics", **settings: Any) -> Page | Refusal:
        with self._client_of(behaviour, **settings) as (server, client):
            got: Page | Refusal = client.get_metrics(path)
            self.requests, self.connections = server.requests, server.connections
        return got

    def page(self, *asked: Any, **settings: Any) -> Page:
        got = self.get(*asked, **settings)
        assert isinstance(got, Page), got
        return got

    def refusal(self, *asked: Any, **settings: Any) -> Refusal:
        got = self.get(*asked, **settings)
        assert isinstance(got, Refusal)
        return got


@pytest.fixture
def once(client_of: Callable[..., Any]) -> Once:
    return Once(client_of)
