"""The client of one server for tests: its calls wait for the answer in the test's own thread."""

from __future__ import annotations

from typing import Any

from llm_serving_exporter.fetch.http import HttpClient, JsonAnswer
from llm_serving_exporter.fetch.waits import drive
from llm_serving_exporter.model.sample import Page, Refusal


class BlockingClient(HttpClient):
    """An `HttpClient` whose calls are not coroutines."""

    def get_metrics(self, path: str) -> Page | Refusal:
        return drive(super().get_metrics(path))

    def get_json(self, path: str, *args: Any, **more: Any) -> JsonAnswer | Refusal:
        return drive(super().get_json(path, *args, **more))

    def get_any(self, path: str) -> Page | Refusal:
        return drive(super().get_any(path))
