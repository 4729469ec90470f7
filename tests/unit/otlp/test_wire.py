"""Points and labels that are written and read by hand, held against OpenTelemetry's own messages and the client library's samples."""

from __future__ import annotations

import math

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import Gauge, Histogram
from prometheus_client.metrics_core import Metric as Family

from llm_serving_exporter.catalogue import BY_NAME
from llm_serving_exporter.expose.families import Families, SharedLabels
from llm_serving_exporter.model.numbers import Histogram as Observed
from llm_serving_exporter.otlp.messages import write_histogram, write_number
from llm_serving_exporter.otlp.reading import Labels, read_family
from tests.support.builders.golden_cases import MAIN
from tests.support.builders.golden_pages import golden_registry
from tests.support.rows import check_rows

NOW = 1_795_000_000_000_000_001
HOSTILE = ('a,le="', 'le="0.5",x="', "\\", '"', "a\nb", "a\\nb", "{}", "a b", "日本", "", "x" * 300)
ENDED = 1


def labels_of(point: object) -> Labels:
    return tuple((one.key, one.value.string_value) for one in point.attributes)


@check_rows("text", HOSTILE)
@check_rows("value", [0.0, -1.5, 1e300, math.inf, math.nan, None])
def test_a_number_is_read_as_it_was_meant(text: str, value: float | None) -> None:
    labels = (("model_name", text), ("target", "a"))
    (point,) = Gauge.FromString(write_number(labels, 7, NOW, value)).data_points
    assert labels_of(point) == labels
    assert (point.start_time_unix_nano, point.time_unix_nano, point.flags) == (7, NOW, ENDED if value is None else 0)
    assert point.WhichOneof("value") == (None if value is None else "as_double")
    assert point.as_double == pytest.approx(value or 0.0, nan_ok=True)


@pytest.mark.parametrize(
    ("bounds", "counts", "total", "ended"),
    [([0.5, 1.0], [1, 2**40, 3], 7.5, False), ([], [5], None, False), ([0.1] * 200, [0] * 201, 0.0, True)],
)
def test_a_histogram_is_read_as_it_was_meant(
    bounds: list[float], counts: list[int], total: float | None, ended: bool
) -> None:
    written = write_histogram((("a", "b"),), 0, NOW, bounds, counts, total, ended=ended)
    (point,) = Histogram.FromString(written * 1).data_points
    assert (list(point.explicit_bounds), list(point.bucket_counts), point.count) == (bounds, counts, sum(counts))
    assert (point.HasField("sum"), point.sum, point.flags) == (total is not None, total or 0.0, ENDED if ended else 0)


class Sampled:
    """A family that shows its samples alone, as those of the client library do."""

    def __init__(self, family: Family) -> None:
        self.name, self.type, self.documentation = family.name, family.type, family.documentation
        self.samples = family.samples


def test_text_is_read_as_the_client_librarys_samples_are() -> None:
    families = list(golden_registry(MAIN).collect())
    assert len(families) > 50
    for family in families:
        assert read_family(family) == read_family(Sampled(family))


@check_rows("text", HOSTILE)
def test_a_label_may_say_anything(text: str) -> None:
    families = Families()
    names = {"engine": text, "model_name": "m", "role": text, "target": "a"}
    first, other = SharedLabels(names), SharedLabels({**names, "target": "b"})
    histogram = Observed((0.5, 1.0), (1.0, 2.0), 3.0, 4.5)
    for labels in (first, other):
        families.add_histogram(BY_NAME["time_to_first_token_seconds"], labels, histogram)
        families.add_value(BY_NAME["requests_running"], labels, 3)
    for family in families:
        reading = read_family(family)
        assert reading == read_family(Sampled(family))
        shown = {name: label for name, label in names.items() if label}
        assert [dict(labels) for labels in reading.values] == [shown, {**shown, "target": "b"}]
