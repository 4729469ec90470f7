"""Prometheus 3 as the receiver: it stores what a scrape of the page would have stored, and the shipped rules find the same."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from copy import copy
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.parser import text_string_to_metric_families

from llm_serving_exporter.expose.encode import encode
from llm_serving_exporter.model.target import Target
from llm_serving_exporter.otlp.sender import Sender
from llm_serving_exporter.settings.config import OtlpConfig
from tests.support.builders.golden_cases import MAIN
from tests.support.builders.golden_pages import golden_registry
from tests.support.builders.recordings import recording
from tests.support.builders.snapshots import snapshot_of
from tests.support.builders.target_readings import make_reading
from tests.support.paths import ROOT, TESTS
from tests.support.servers.prometheus_server import PrometheusServer
from tests.support.servers.server_process import find_program, program
from tests.support.waiting import PATIENCE_SECONDS, wait_until
from tests.support.yaml_text import load_yaml
from tests.unit.otlp.test_sender import canonical, read_page

PATH = "/api/v1/otlp/v1/metrics"
RESOURCE = {"service.name": "exporter", "service.instance.id": "host:1"}
STRATEGIES = (
    "UnderscoreEscapingWithSuffixes", "UnderscoreEscapingWithoutSuffixes", "NoUTF8EscapingWithSuffixes", "NoTranslation",
)  # fmt: skip
STEPS, STEP_SECONDS = 24, 15

pytestmark = pytest.mark.skipif(
    find_program("prometheus3") is None,
    reason="no prometheus3 on PATH; `make test-prometheus3` builds it where Go is installed",
)


def receiving(folder: Path, strategy: str = STRATEGIES[0]) -> PrometheusServer:
    config = f"otlp: {{translation_strategy: {strategy}}}\n"
    return PrometheusServer(folder, config, "--web.enable-otlp-receiver", name="prometheus3")


def bare(metric: dict[str, str]) -> frozenset[tuple[str, str]]:
    """Its labels without those that say which exporter it came from; the edge of a bucket as a number, which OTLP sends."""
    return frozenset(
        (name, str(float(text)) if name == "le" else text)
        for name, text in metric.items()
        if name not in ("job", "instance", "__name__")
    )


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_it_stores_the_page_under_its_names(strategy: str, tmp_path: Path) -> None:
    registry = golden_registry(MAIN)
    with receiving(tmp_path / "otlp", strategy) as prometheus:
        sender = Sender(OtlpConfig(prometheus.url, PATH), registry.collect, RESOURCE.items())
        assert sender.send()
        found = {
            (one["metric"]["__name__"], bare(one["metric"])): float(one["value"][1])
            for one in prometheus.query('{job="exporter",instance="host:1"}')
        }
        sender.close()
    assert canonical(found) == canonical(read_page(encode(registry, "text/plain")[0].decode()))


def test_a_series_that_has_gone_is_stale_at_once(tmp_path: Path) -> None:
    first, then = grow(0), [family for family in grow(0) if family.name.startswith("llm_serving_target")]
    shown = [first, then]
    now = time.time() - 20
    with receiving(tmp_path / "otlp") as prometheus:
        times = iter((now - 1, now, now + 15))
        sender = Sender(OtlpConfig(prometheus.url, PATH), lambda: shown.pop(0), (), wall=lambda: next(times))
        assert sender.send()
        assert sender.send()
        sender.close()
        for name in ("decode_tokens_total", "time_to_first_token_seconds_bucket", "requests_running"):
            assert prometheus.query(f"last_over_time(llm_serving_{name}[5m])")
            assert prometheus.query(f"llm_serving_{name}") == []
        assert prometheus.query("llm_serving_target_up")


def test_whoever_closes_leaves_nothing_that_looks_alive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llm_serving_exporter.otlp.sender._CLOSE_SECONDS", PATIENCE_SECONDS)
    with receiving(tmp_path / "otlp") as prometheus:
        sender = Sender(OtlpConfig(prometheus.url, PATH, interval_seconds=0.1), read_golden, ())
        sender.start()
        wait_until(lambda: prometheus.query("llm_serving_requests_running"), "the series")
        sender.close()
        assert prometheus.query("last_over_time(llm_serving_requests_running[5m])")
        for name in ("requests_running", "decode_tokens_total", "time_to_first_token_seconds_bucket", "target_info"):
            assert prometheus.query(f"llm_serving_{name}") == []


def test_the_names_of_the_conventions_are_stored_beside_ours(tmp_path: Path) -> None:
    snapshot = snapshot_of(recording("vllm-0.32-mfu").pages[60].decode())
    reading = make_reading(Target("a", "http://engine-1:8000"), runtime="vllm", snapshot=snapshot)
    with receiving(tmp_path / "otlp") as prometheus:
        config = OtlpConfig(prometheus.url, PATH, gen_ai_operation="chat")
        sender = Sender(config, tuple, RESOURCE.items(), targets=lambda: [reading])
        assert sender.send()
        sender.close()
        (found,) = prometheus.query("gen_ai_server_time_to_first_token_seconds_count")
        asked = "histogram_quantile(0.9, gen_ai_server_request_duration_seconds_bucket)"
        assert float(prometheus.query(asked)[0]["value"][1]) > 0
    assert bare(found["metric"]) == {
        ("gen_ai_operation_name", "chat"), ("gen_ai_provider_name", "vllm"), ("gen_ai_request_model", "tiny-llama"),
        ("gen_ai_response_model", "tiny-llama"), ("server_address", "engine-1"), ("server_port", "8000"), ("target", "a"), ("engine", "0"),
    }  # fmt: skip


@cache
def read_golden() -> list[Family]:
    return list(text_string_to_metric_families((TESTS / "golden" / f"{MAIN}.prom").read_text()))


def grow(step: int) -> list[Family]:
    """The page of the main recording, its counters grown by as many hundredths as there are steps."""
    families = [copy(family) for family in read_golden()]
    for family in families:
        if family.type in ("counter", "histogram"):
            family.samples = [one._replace(value=one.value * (100 + step)) for one in family.samples]
    return families


def write_labels(labels: dict[str, str]) -> str:
    return ",".join(f'{name}="{text}"' for name, text in labels.items())


def list_expressions() -> Iterator[str]:
    for path in sorted((ROOT / "alerts/rendered").glob("*.yml")):
        for group in (load_yaml(path.read_text()) or {}).get("groups", ()):
            for rule in group["rules"]:
                yield rule["expr"]


def test_the_shipped_rules_find_the_same_as_in_a_scrape(tmp_path: Path) -> None:
    end = int(time.time()) - 60
    times = [end - STEP_SECONDS * left for left in reversed(range(STEPS))]
    lines = [
        f"{one.name}{{{write_labels(one.labels)}}} {one.value!r} {at}"
        for step, at in enumerate(times)
        for family in grow(step)
        for one in family.samples
    ]
    page, data = tmp_path / "page", tmp_path / "scraped" / "data"
    page.write_text("\n".join([*lines, "# EOF", ""]))
    command = [program("promtool"), "tsdb", "create-blocks-from", "openmetrics", str(page), str(data)]
    subprocess.run(command, check=True, capture_output=True)
    with PrometheusServer(tmp_path / "scraped", "scrape_configs: []\n", name="prometheus3") as scraped:
        before = [ask(scraped, expression, end) for expression in list_expressions()]
    with receiving(tmp_path / "otlp") as prometheus:
        shown, clock = iter(range(STEPS)), iter([times[0], *times])
        sender = Sender(OtlpConfig(prometheus.url, PATH), lambda: grow(next(shown)), (), wall=lambda: next(clock))
        assert all(sender.send() for _ in times)
        sender.close()
        after = [ask(prometheus, expression, end) for expression in list_expressions()]
    assert sum(map(bool, before)) > 40  # others ask for records, of which neither has any
    assert [one for one in zip(list_expressions(), before, after, strict=True) if one[1] != one[2]] == []


def ask(prometheus: PrometheusServer, expression: str, at: int) -> dict[frozenset[tuple[str, str]], Any]:
    found = prometheus.get("/api/v1/query", query=expression, time=str(at)).json()["data"]["result"]
    return {bare(one["metric"]): pytest.approx(float(one["value"][1]), rel=1e-9, nan_ok=True) for one in found}
