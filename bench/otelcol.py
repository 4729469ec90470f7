"""The OpenTelemetry Collector as a peer: its Prometheus receiver reads a page, its remote-write exporter forwards it as vmagent does.

`scripts/setup.sh tools otelcol` builds one with these two parts and no others. That takes long, so it is no part of `make bench`.
"""

from __future__ import annotations

from pathlib import Path

import yaml

from bench.servers import Nginx, Program
from tests.support.servers.server_process import find_program

PROGRAM = "otelcol"
# of its own metrics: it writes once for each scrape (404 writes for 404 scrapes at 20 ms, version 0.165.0)
SCRAPES = "otelcol_exporter_prometheusremotewrite_sent_batches"


def otelcol(folder: Path, nginx: Nginx, config: Path, port: int) -> Program:
    """`config`: Prometheus' own, with what is to be scraped; `port`: where it says of itself what it does."""
    found = find_program(PROGRAM)
    if found is None:
        raise SystemExit(f"{PROGRAM} is missing; `scripts/setup.sh tools {PROGRAM}` builds it")
    own = folder / f"otelcol-{port}.yml"
    own.write_text(yaml.safe_dump(configure(yaml.safe_load(config.read_text()), f"{nginx.url}/write", port)))
    return Program(found, f"--config=file:{own}", ready_url=f"http://127.0.0.1:{port}/metrics")


def configure(scrape: object, write_url: str, port: int) -> dict[str, object]:
    """The collector's configuration: what is scraped goes to `write_url`; its own metrics are read at `port`."""
    own_metrics = {"pull": {"exporter": {"prometheus": {"host": "127.0.0.1", "port": port}}}}
    pipeline = {"receivers": ["prometheus"], "exporters": ["prometheusremotewrite"]}
    return {
        "receivers": {"prometheus": {"config": scrape}},
        "exporters": {"prometheusremotewrite": {"endpoint": write_url}},
        "service": {"telemetry": {"metrics": {"readers": [own_metrics]}}, "pipelines": {"metrics": pipeline}},
    }
