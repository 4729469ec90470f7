"""A running LiteLLM: what its users asked of it is counted exactly, and what the exporter asks itself is not.

`LITELLM_URL=http://127.0.0.1:4000 LITELLM_KEY=sk-… LITELLM_MODEL=fake pytest -m live tests/live`. Nobody else may use the proxy meanwhile.
The model may be one of `mock_response`; of `litellm_settings`, `callbacks` must have `prometheus`, and `require_auth_for_metrics_endpoint`
be false. Passed last with 1.108.7.
"""

from __future__ import annotations

import os
import time

import pytest
import requests

from llm_serving_exporter.model.reading import TargetReading
from llm_serving_exporter.model.target import Target
from llm_serving_exporter.settings.config import Config
from llm_serving_exporter.targets.host import TargetHost
from tests.support.waiting import PATIENCE_SECONDS, wait_until

URL = os.environ.get("LITELLM_URL", "")
MODEL = os.environ.get("LITELLM_MODEL", "fake")
pytestmark = [pytest.mark.live, pytest.mark.skipif(not URL, reason="no LITELLM_URL says where a LiteLLM runs")]


def ask(model: str) -> requests.Response:
    return requests.post(
        f"{URL}/v1/chat/completions",
        headers={"Authorization": f"Bearer {os.environ.get('LITELLM_KEY', '')}"},
        json={"model": model, "messages": [{"role": "user", "content": "one two three"}]},
        timeout=PATIENCE_SECONDS,
    )


def count(reading: TargetReading) -> tuple[float, float, float]:
    """Finished requests, prompt tokens and generated tokens since the start of the proxy."""
    assert reading.page.snapshot is not None
    found = reading.page.snapshot.engines
    finished = sum(sum((engine.requests_finished_total or {}).values()) for engine in found)
    prompt = sum(engine.prompt_tokens_total or 0.0 for engine in found)
    return finished, prompt, sum(engine.decode_tokens_total or 0.0 for engine in found)


def test_what_users_asked_is_counted_and_what_we_ask_is_not() -> None:
    host = TargetHost(Config(targets=()), monotonic=time.monotonic, wall=time.time)
    proxy = host.add_target(Target("proxy", URL))
    try:
        before = count(proxy.tick())
        used = [ask(MODEL).json()["usage"] for _ in range(20)]
        expected = (
            before[0] + len(used),
            before[1] + sum(one["prompt_tokens"] for one in used),
            before[2] + sum(one["completion_tokens"] for one in used),
        )
        # it books an answer after it has sent it
        wait_until(lambda: count(proxy.tick()) == expected, "the counts of twenty requests")
        for _ in range(5):
            proxy.refresh_facts()  # it refuses these without a key, and counts them
            proxy.tick()
        assert count(proxy.tick()) == expected
        assert proxy.tick().server.runtime == "litellm"
    finally:
        host.close()
