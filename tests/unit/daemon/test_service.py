"""The web server and the jobs together."""

import pytest

from llm_serving_exporter.daemon.service import Service
from llm_serving_exporter.model.target import Target
from llm_serving_exporter.settings.config import Config, GpuConfig, WebConfig
from llm_serving_exporter.web.server import WebServer


def test_whoever_asks_first_finds_every_target(monkeypatch: pytest.MonkeyPatch) -> None:
    config = Config(
        targets=(Target("a", "http://127.0.0.1:9"), Target("b", "http://127.0.0.1:9")),
        gpu=GpuConfig(enabled=False),
        web=WebConfig(listen_addresses=("127.0.0.1:0",)),
    )
    service = Service(config, lambda: config, lambda _config: None)
    known: list[str] = []
    monkeypatch.setattr(
        WebServer, "start", lambda _self: known.extend(one.target.name for one in service.daemon.store.view().targets)
    )
    try:
        service.start()
    finally:
        service.close()
    assert known == ["a", "b"]
