"""Where an endpoint stands beside a metrics page."""

from __future__ import annotations

from llm_serving_exporter.engines.registry import RUNTIMES
from llm_serving_exporter.targets.page_source import place_beside
from tests.support.rows import check_rows

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
