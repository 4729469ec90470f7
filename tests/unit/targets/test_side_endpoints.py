"""Where an endpoint stands beside a metrics page, and how long it may take."""

from collections.abc import Callable

import pytest

from llm_serving_exporter.engines.registry import RUNTIMES
from llm_serving_exporter.model.target import HttpSettings
from llm_serving_exporter.targets.page_source import SHORTEST_TIMEOUT_SECONDS, place_beside
from tests.support.builders.lying_pages import Server
from tests.support.builders.recordings import recording
from tests.support.rows import check_rows
from tests.support.servers.driven_exporter import DrivenExporter

VLLM = RUNTIMES["vllm"]


@check_rows(
    ("page", "endpoint", "expected"),
    [
        ("/metrics", "/version", "/version"),
        ("/vllm/metrics", "/version", "/vllm/version"),
        ("/metrics?model=a", "/version", "/version?model=a"),
        ("/metrics", "/server_info?config_format=json", "/server_info?config_format=json"),
        ("/metrics?model=a", "/server_info?config_format=json", "/server_info?config_format=json&model=a"),
    ],
)
def test_an_endpoint_has_the_prefix_and_the_query_of_the_page(page: str, endpoint: str, expected: str) -> None:
    assert place_beside(VLLM, page, endpoint) == expected


@pytest.mark.parametrize(
    ("page_seconds", "endpoint_seconds"), [(4.0, 1.0), (2.0, 2.0), (5.0, SHORTEST_TIMEOUT_SECONDS)]
)
def test_an_endpoint_may_take_what_the_interval_leaves_beside_the_page(
    page_seconds: float, endpoint_seconds: float
) -> None:
    server = Server({"/metrics": recording("vllm-0.32-mfu").pages[20]})
    given: set[float] = set()

    def connect(base_url: str, settings: HttpSettings, **clocks: Callable[[], float]) -> object:
        given.add(settings.timeout_seconds)
        return server.connect(base_url, settings, **clocks)

    http = HttpSettings(timeout_seconds=page_seconds)
    with DrivenExporter("http://one", connect=connect, interval_seconds=5.0, http=http) as exporter:
        exporter.tick()
        exporter.tick()
    assert given == {page_seconds, endpoint_seconds}
