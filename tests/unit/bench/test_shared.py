"""The OpenTelemetry Collector's configuration, as a peer: what it scrapes, where it sends it, where it tells of itself."""

from __future__ import annotations

import yaml

from bench.peers import configure_collector, scrape_config
from tests.support.yaml_text import load_yaml


def test_it_scrapes_what_prometheus_would_and_writes_where_vmagent_does() -> None:
    scrape = scrape_config(("127.0.0.1:80",), "20ms")
    made = load_yaml(yaml.safe_dump(configure_collector(scrape, "http://127.0.0.1:80/write", 8888)))
    assert made["receivers"]["prometheus"]["config"]["global"]["scrape_interval"] == "20ms"
    assert made["receivers"]["prometheus"]["config"]["scrape_configs"][0]["static_configs"] == [
        {"targets": ["127.0.0.1:80"]}
    ]
    assert made["exporters"]["prometheusremotewrite"]["endpoint"] == "http://127.0.0.1:80/write"
    assert made["service"]["pipelines"]["metrics"] == {
        "receivers": ["prometheus"],
        "exporters": ["prometheusremotewrite"],
    }
    reader = made["service"]["telemetry"]["metrics"]["readers"][0]["pull"]["exporter"]["prometheus"]
    assert reader == {"host": "127.0.0.1", "port": 8888}
