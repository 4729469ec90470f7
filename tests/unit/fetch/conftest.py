"""A client of one server for tests, whose calls wait for the answer in the test's own thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from llm_serving_exporter.fetch.http import HttpClient, JsonAnswer
from llm_serving_exporter.fetch.waits import drive
from llm_serving_exporter.model.sample import Page, Refusal
from llm_serving_exporter.model.target import HttpSettings


class BlockingClient(HttpClient):
    """An `HttpClient` whose calls are not coroutines."""

    def get_metrics(self, path: str) -> Page | Refusal:
        return drive(super().get_metrics(path))

    def get_json(self, path: str, *args: Any, **more: Any) -> JsonAnswer | Refusal:
        return drive(super().get_json(path, *args, **more))

    def get_any(self, path: str) -> Page | Refusal:
        return drive(super().get_any(path))


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
