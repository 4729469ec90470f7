"""A real Prometheus scrapes the real daemon for a minute of a recorded run: what it stored is what the engine counted."""

import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.builders.recordings import recording
from tests.support.builders.snapshots import engine_of
from tests.support.servers.exporter_process import Exporter
from tests.support.servers.prometheus_server import PrometheusServer
from tests.support.servers.stepped import SteppedServer
from tests.support.waiting import wait_until

pytestmark = pytest.mark.e2e

# into and through the saturated phase; the engine's pages are a second apart
FIRST, LAST = 41, 91
COUNTERS = (
    "prompt_tokens_total", "prefill_tokens_total", "decode_tokens_total", "prefix_cache_query_tokens_total", "preemptions_total",
    "engine_steps_total",
)  # fmt: skip


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, list[dict[str, Any]]]]:
    """Raw samples by query, after a minute."""
    folder = tmp_path_factory.mktemp("prometheus")
    with SteppedServer(recording("vllm-0.32")) as engine:
        engine.show(FIRST)
        with Exporter("--target", engine.url, "--scrape.interval", "1s") as exporter:
            exporter.until(lambda page: bool(page.series("target_up")) and page.total("target_up") == 1, "target_up 1")
            address = exporter.url.removeprefix("http://")
            config = (
                "global: {scrape_interval: 2s}\n"
                f"scrape_configs: [{{job_name: llm-serving, static_configs: [{{targets: ['{address}']}}]}}]\n"
            )
            with PrometheusServer(folder, config) as prometheus:
                wait_until(
                    lambda: prometheus.query("llm_serving_decode_tokens_total"), "the first sample in Prometheus"
                )
                for number in range(FIRST, LAST + 1):
                    engine.show(number)
                    time.sleep(1.0)
                # all counters of a page are of one scrape
                ended = engine_of(recording("vllm-0.32").pages[LAST].decode()).engine_steps_total
                wait_until(
                    lambda: (
                        [float(one["value"][1]) for one in prometheus.query("llm_serving_engine_steps_total")]
                        == [ended]
                    ),
                    "the last page in Prometheus",
                )
                queries = {name: prometheus.query(f"llm_serving_{name}[5m]") for name in COUNTERS}
                queries["up"] = prometheus.query("up[5m]")
                queries["quantile"] = prometheus.query(
                    "histogram_quantile(0.99, sum by (le) (increase(llm_serving_time_to_first_token_seconds_bucket[50s])))"
                )
                yield queries


@pytest.mark.parametrize("name", COUNTERS)
def test_last_minus_first_is_the_engines(stored: dict[str, list[dict[str, Any]]], name: str) -> None:
    run = recording("vllm-0.32")
    first, last = (getattr(engine_of(run.pages[number].decode()), name) for number in (FIRST, LAST))
    (series,) = stored[name]
    values = [float(value) for _, value in series["values"]]
    assert len(values) >= 20
    assert values[-1] - values[0] == last - first
    assert values == sorted(values)
    assert (last - first > 0) or name == "preemptions_total"


def test_every_scrape_went_well(stored: dict[str, list[dict[str, Any]]]) -> None:
    (series,) = stored["up"]
    assert {value for _, value in series["values"]} == {"1"}


def test_buckets_are_good_for_promql(stored: dict[str, list[dict[str, Any]]]) -> None:
    (series,) = stored["quantile"]
    # the client's p99 of the saturated phase lies between 2.5 and 5 s (tests/truth)
    assert 1.0 < float(series["value"][1]) <= 5.0
