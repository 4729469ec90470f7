"""Our encoder against the client library's, byte for byte."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Gauge, ProcessCollector
from prometheus_client.exposition import choose_encoder
from prometheus_client.exposition import generate_latest as their_text
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.openmetrics.exposition import generate_latest as their_openmetrics
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from llm_serving_exporter.expose.encode import encode, write_openmetrics, write_text
from tests.support.rows import check_rows
from tests.unit.test_golden import CASES, GOLDEN

# what Prometheus 2.42 and 3 send, curl, and a client that wants a quoted form of names
ACCEPTS = (
    "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4",
    "text/plain;version=0.0.4", "*/*", "", "application/openmetrics-text", "text/plain;version=1.0.0;escaping=underscores",
)  # fmt: skip


class Fixed(Collector):
    def __init__(self, *families: Family) -> None:
        self.families = families

    def collect(self) -> Iterable[Family]:
        return self.families


@check_rows("name", CASES)
def test_every_golden_page_is_what_the_library_writes(name: str) -> None:
    families = list(text_string_to_metric_families((GOLDEN / f"{name}.prom").read_text()))
    for family in families:  # the parser keeps a counter's name with its suffix off, and an info's as a gauge's
        family.type = "unknown" if family.type == "untyped" else family.type
    assert write_text(families) == their_text(Fixed(*families))
    assert write_openmetrics(families) == their_openmetrics(Fixed(*families))


@given(
    st.text(max_size=20),
    st.dictionaries(st.sampled_from(["zone", "gpu", "model_name", "a"]), st.text(max_size=12), max_size=4),
    st.floats(),
)
def test_any_text_and_any_number(documentation: str, labels: dict[str, str], value: float) -> None:
    gauge, counter, info = (
        GaugeMetricFamily("g", documentation), CounterMetricFamily("c", documentation), InfoMetricFamily("i", documentation),
    )  # fmt: skip
    for family, name in ((gauge, "g"), (counter, "c_total"), (info, "i_info")):
        family.add_sample(name, labels, value)
    together = Fixed(gauge, counter, info)
    assert write_text(together.collect()) == their_text(together)
    assert write_openmetrics(together.collect()) == their_openmetrics(together)


@check_rows("accept", ACCEPTS)
def test_what_is_asked_for_is_what_the_library_would_send(accept: str) -> None:
    registry = CollectorRegistry()
    registry.register(Fixed(GaugeMetricFamily("g", "a gauge", 1.5)))
    theirs, content_type = choose_encoder(accept)
    assert encode(registry, accept) == (theirs(registry), content_type)


@check_rows(
    ("accept", "is_openmetrics"),
    [
        ("application/openmetrics-text;version=1.0.0;q=0, text/plain", False),
        ("application/openmetrics-text;q=0", False),
        ("text/plain;version=0.0.4;q=0.9,application/openmetrics-text;version=1.0.0;q=0.1", False),
        ("application/openmetrics-text;version=1.0.0;q=0.5;escaping=underscores,text/plain;q=0.5", True),
        ("text/plain;q=0.3,application/openmetrics-text;version=1.0.0", True),
        ("text/plain;q=0.3,application/openmetrics-text;version=1.0.0;q=many", True),
        ("*/*,application/openmetrics-text;version=1.0.0;q=0.1", True),
    ],
)
def test_weights_count(accept: str, is_openmetrics: bool) -> None:  # a row of the table
    """RFC 9110, 12.4.2: what has the weight 0 is not acceptable."""
    registry = CollectorRegistry()
    registry.register(Fixed(GaugeMetricFamily("g", "a gauge", 1.5)))
    body, content_type = encode(registry, accept)
    assert content_type.startswith("application/openmetrics-text" if is_openmetrics else "text/plain")
    assert body.endswith(b"# EOF\n") is is_openmetrics


@pytest.mark.parametrize("accept", ACCEPTS[:3])
def test_what_is_not_plain_is_left_to_the_library(accept: str) -> None:
    """A `_created` sample and a unit, neither of which the exporter makes."""
    registry = CollectorRegistry()
    Counter("requests", "with its time of birth", registry=registry).inc()
    Gauge("size", "with a unit", unit="bytes", registry=registry).set(3)
    assert encode(registry, accept)[0] == choose_encoder(accept)[0](registry)


def test_the_exporters_own_process_series_are_there() -> None:
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    assert b"\nprocess_resident_memory_bytes " in encode(registry, "")[0]
