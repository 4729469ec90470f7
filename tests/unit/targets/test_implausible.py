"""What a target's page says and cannot be true: counted, logged once, and out of everything that outlives a page."""

import logging

import pytest

from llm_serving_exporter.settings.config import Config
from tests.support.builders.lying_pages import KNOWN, PRICES, Server, change_samples
from tests.support.builders.recordings import page
from tests.support.servers.driven_exporter import DrivenExporter

BEFORE, AFTER = page("vllm-0.32", 50), page("vllm-0.32", 60)
USAGE = "vllm:kv_cache_usage_perc"
REJECTED = 'vllm:request_rejected_total{engine="0",model_name="tiny-llama",reason="queue_full"}'


def test_each_page_is_counted_and_the_first_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    server = Server({"/metrics": change_samples(AFTER, USAGE, lambda _: "1e15")})
    with DrivenExporter("http://lying", connect=server.connect) as exporter, caplog.at_level(logging.WARNING):
        for _ in range(3):
            (reading,) = exporter.tick()
        assert reading.page.implausible_total == {"kv_cache_usage_ratio": 3}
        said = [record.getMessage() for record in caplog.records if "cannot be true" in record.getMessage()]
        assert said == ["target=replica-0: kv_cache_usage_ratio is left out, it cannot be true: 1e+15"]
        server.routes = {"/metrics": AFTER}
        (reading,) = exporter.tick()
        assert reading.page.snapshot.left_out == ()
        assert exporter.scrape().value("implausible_values_total", signal="kv_cache_usage_ratio") == 3


def test_a_figure_that_cannot_be_is_left_out_with_its_reason() -> None:
    server = Server({"/metrics": BEFORE})
    with DrivenExporter("http://lying", connect=server.connect) as exporter:
        exporter.tick()
        lying = change_samples(AFTER, "vllm:prefix_cache_queries_total", lambda _: 1e6)
        server.routes = {"/metrics": change_samples(lying, "vllm:prefix_cache_hits_total", lambda _: 287e6)}
        (reading,) = exporter.tick()
        found = exporter.scrape()
    assert reading.page.derived.engines[0].prefix_cache_hit_ratio is None
    assert found.value("signal_available", signal="prefix_cache_hit_ratio", reason="implausible") == 0
    assert found.value("implausible_values_total", signal="prefix_cache_hit_ratio") == 1


def test_a_ratio_above_1_goes_out_and_is_suspect() -> None:
    server = Server({"/metrics": BEFORE})
    with DrivenExporter("http://lying", connect=server.connect) as exporter:
        exporter.tick()
        lying = change_samples(AFTER, "vllm:prefix_cache_queries_total", lambda _: 1e6)
        server.routes = {"/metrics": change_samples(lying, "vllm:prefix_cache_hits_total", lambda _: 2e6)}
        exporter.tick()
        found = exporter.scrape()
    assert found.value("prefix_cache_hit_ratio") == pytest.approx(2.0, abs=0.1)
    assert found.value("signal_quality", signal="prefix_cache_hit_ratio", quality="suspect") == 1


def test_no_lie_costs_money() -> None:
    """Of two targets that work alike, the one that lies for a page has cost no more than the other."""

    def spend(*pages: bytes) -> float:
        server = Server({"/metrics": BEFORE})
        config = Config(targets=(), prices=PRICES)
        with DrivenExporter("http://lying", config=config, connect=server.connect, **KNOWN) as exporter:
            for body in (BEFORE, BEFORE, AFTER, *pages, AFTER):
                server.routes = {"/metrics": body}
                exporter.tick()
            found = exporter.scrape()
        return found.total("cost_usd_total") + found.total("prefix_cache_savings_usd_total")

    cached = "vllm:prompt_tokens_by_source_total", "vllm:prefix_cache_hits_total"
    honest = spend(AFTER)
    assert honest > 0
    for value in ("1e308", "+Inf", "NaN"):
        lying = AFTER
        for name in (*cached, "vllm:generation_tokens_total", "vllm:prompt_tokens_total"):
            lying = change_samples(lying, name, lambda _, value=value: value)
        assert spend(lying) == pytest.approx(honest)
