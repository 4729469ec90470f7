"""What a real Prometheus stores of one page under each convention is what `Convention.store` says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.builders.namespaced_fleet import EXPORTERS, NamespacedFleet
from tests.support.conventions import CONVENTIONS, Convention
from tests.support.servers.http_server import QuietHandler, serve
from tests.support.servers.prometheus_server import PrometheusServer
from tests.support.waiting import wait_until

NODE = "node-4"
PLACE = EXPORTERS[NODE]
# a label that is empty here and the scrape's there, one that is renamed twice, one that is there under both names
ODD = {
    "namespace": "llm", "pod": "", "node": "a", "exported_node": "b", "endpoint": "x", "role": "decode", "prometheus": "", "own": "1",
}  # fmt: skip


def page() -> tuple[str, list[tuple[str, dict[str, str]]]]:
    """An exporter's page as text, and its series."""
    wanted = {
        f"llm_serving_{name}"
        for name in ("target_info", "target_node_info", "target_state", "gpu_up", "expected_replicas")
    }
    written = [
        (name, dict(labels))
        for place, (name, labels, _) in NamespacedFleet(("team",), wanted).write(1)
        if place == PLACE
    ]
    written.append(("llm_serving_odd", ODD))
    lines = []
    for name, labels in written:
        shown = ",".join(f'{label}="{value}"' for label, value in labels.items())
        lines.append(f"{name}{{{shown}}} 1\n")
    return "".join(lines), written


def scrape(number: int, one: Convention, address: str) -> dict[str, Any]:
    static = {"targets": [address], "labels": {**one.of_target(PLACE), "case": one.name}}
    found: dict[str, Any] = {"job_name": f"job-{number}", "honor_labels": one.honor, "static_configs": [static]}
    if one.enforced:
        enforced = [{"target_label": "namespace", "replacement": PLACE.fill(one.enforced)}]
        found |= {"relabel_configs": enforced, "metric_relabel_configs": enforced}
    return found


@pytest.mark.process
def test_what_is_stored_is_what_is_said(tmp_path: Path) -> None:
    text, written = page()

    class Page(QuietHandler):
        def do_GET(self) -> None:
            self.answer(200, text.encode(), "text/plain; version=0.0.4")

    with serve(Page) as url:
        scrapes = [scrape(number, one, url.removeprefix("http://")) for number, one in enumerate(CONVENTIONS)]
        config = yaml.safe_dump({"global": {"scrape_interval": "1s"}, "scrape_configs": scrapes})
        with PrometheusServer(tmp_path, config) as prometheus:
            count = f"count(count by (case) (llm_serving_odd)) == {len(CONVENTIONS)}"
            wait_until(lambda: prometheus.query(count), "a scrape by each convention")
            found = [sample["metric"] for sample in prometheus.query('{__name__=~"llm_serving_.+"}')]
    for one in CONVENTIONS:
        expected = [{"__name__": name, "case": one.name} | one.store(labels, PLACE) for name, labels in written]
        stored = [labels for labels in found if labels["case"] == one.name]
        assert sorted(map(sorted, map(dict.items, stored))) == sorted(map(sorted, map(dict.items, expected))), one.name
    assert any("exported_exported_node" in labels for labels in found)
