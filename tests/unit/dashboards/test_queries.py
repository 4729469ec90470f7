"""Every query of every dashboard, asked of a real Prometheus."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from llm_serving_alerts.settings_file import default_settings, read_settings
from llm_serving_dashboards.boards import build_dashboards
from tests.support.builders.default_boards import panels_of
from tests.support.builders.panelqueries import filled
from tests.support.quick import keep_quick
from tests.support.servers.prometheus_server import PrometheusServer


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrometheusServer]:
    with PrometheusServer(tmp_path_factory.mktemp("prometheus"), "global: {}\n") as server:
        yield server


IDENTITY = "identity_labels: [cluster, namespace]\nslo: {itl: {threshold: 100ms}, e2e: {threshold: 40s}}\n"


@pytest.mark.process
@pytest.mark.seam("Prometheus")
@pytest.mark.parametrize(
    "settings", keep_quick(["", IDENTITY], lambda text: text == IDENTITY), ids=["defaults", "more"]
)
def test_prometheus_takes_every_query(prometheus: PrometheusServer, tmp_path: Path, settings: str) -> None:
    path = tmp_path / "settings.yml"
    path.write_text(settings)
    found = read_settings(str(path))[0] if settings else default_settings()
    asked = 0
    for made in build_dashboards(found):
        document = made.document
        queries = [target["expr"] for one in panels_of(document) for target in one.get("targets", ())]
        for expression in (*queries, *(one["expr"] for one in document["annotations"]["list"])):
            answer = prometheus.get("/api/v1/query", query=filled(expression))
            assert answer.json()["status"] == "success", (made.board.uid, filled(expression), answer.text)
            asked += 1
    assert asked > 200
