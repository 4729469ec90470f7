"""Tenants out of a real Prometheus: a pair of exporters reads the gateway, one of them restarts, and each token counts once."""

from __future__ import annotations

from pathlib import Path

import pytest

from llm_serving_review.settings.settings import Settings
from tests.support.builders.costfortnight import HOUR, TICK, Fortnight, Target, blocks
from tests.support.builders.reviews import MONDAY, review_week
from tests.support.servers.prometheus_server import PrometheusServer

# tokens a tick, of prompts and generated
TENANTS = {"search": (900.0, 100.0), "ads": (300.0, 300.0)}
COUNTERS = ("llm_serving_tenant_prompt_tokens_total", "llm_serving_tenant_decode_tokens_total")


@pytest.mark.e2e
def test_a_pair_of_exporters_and_a_restart_count_once(tmp_path: Path) -> None:
    week = Fortnight(MONDAY, (Target("vllm-0", "llama", "red", "n1", "H100", 1, "on-demand", 4.0),))
    for number in range(2):
        for tenant, tokens in TENANTS.items():
            labels = {"target": "gateway", "model_name": "llama", "role": "frontend", "tenant": tenant, "kind": "team"}
            labels |= {"job": "exporters", "instance": f"exporter-{number}:10077"}
            ticks = round(168 * HOUR / TICK)
            for name, step in zip(COUNTERS, tokens, strict=True):
                for tick in range(ticks + 1):
                    # the second one is restarted at noon of Wednesday, and begins at 0
                    since = tick - ticks * 60 // 168 if number and tick >= ticks * 60 // 168 else tick
                    week.put(name, tick * TICK / HOUR, since * step, **labels)
    folder = tmp_path / "data"
    blocks(week.text, folder)
    with PrometheusServer(tmp_path, "global: {}\n") as server:
        found = review_week(server, Settings()).tenants
    assert found is not None
    rows = {row.tenant: row for row in found.rows}
    assert set(rows) == set(TENANTS)
    for tenant, (prompt, decode) in TENANTS.items():
        # increase() extrapolates to the edges of each hour
        assert rows[tenant].prompt_tokens == pytest.approx(prompt * 168 * HOUR / TICK, rel=0.005)
        assert rows[tenant].decode_tokens == pytest.approx(decode * 168 * HOUR / TICK, rel=0.005)
    # three quarters of the prompts, a quarter of what is generated
    assert rows["search"].prefill_usd == pytest.approx(3 * rows["ads"].prefill_usd, rel=1e-3)
    assert rows["ads"].decode_usd == pytest.approx(3 * rows["search"].decode_usd, rel=1e-3)
