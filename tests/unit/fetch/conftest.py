from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from llm_serving_exporter.model.target import HttpSettings
from tests.support.servers.blocking_client import BlockingClient

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
