"""What prometheus_client's parsers make of a page, and where pages come from: the oracle of the parse stage's tests."""

import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from unittest.mock import patch

from prometheus_client import parser
from prometheus_client.core import Metric
from prometheus_client.openmetrics import parser as openmetrics_parser
from prometheus_client.openmetrics.exposition import ALLOWUTF8, generate_latest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families as read_text
from prometheus_client.registry import Collector, CollectorRegistry

from llm_serving_exporter.fetch.exposition import ParsedSample


@dataclass(frozen=True, slots=True)
class OracleSample:
    """`names`: the name it had on the wire is one of these; more than one only where the oracle renames counters."""

    names: tuple[str, ...]
    labels: tuple[tuple[str, str], ...]
    value: float
    timestamp_seconds: float | None


def oracle_samples(text: str, *, openmetrics: bool) -> list[OracleSample]:
    """The oracle's samples in page order. Errors: whatever the oracle raises, which is not only ValueError."""
    found = []
    for family in (read_openmetrics if openmetrics else read_text)(text):
        for sample in family.samples:
            names = (sample.name,)
            if family.type == "counter" and not openmetrics:
                # the text parser appends _total to a counter's samples where the family's name lacks it
                names = (sample.name, sample.name.removesuffix("_total"))
            timestamp = None if sample.timestamp is None else float(sample.timestamp)
            found.append(OracleSample(names, tuple(sorted(sample.labels.items())), float(sample.value), timestamp))
    return found


@contextmanager
def remembered_labels() -> Iterator[None]:
    """While it lasts, prometheus_client's parsers read the same text between two braces once only: two thirds of its time.

    It returns what it would have returned; what it refuses it refuses each time.
    """
    read = lru_cache(20_000)(parser.parse_labels)

    def reread(text: str, openmetrics: bool = False) -> dict[str, str]:
        return dict(read(text, openmetrics))

    with patch.object(parser, "parse_labels", reread), patch.object(openmetrics_parser, "parse_labels", reread):
        yield


def difference(ours: tuple[ParsedSample, ...], theirs: list[OracleSample]) -> str:
    """The first sample that differs, in words; "" where both say the same."""
    if len(ours) != len(theirs):
        return f"{len(ours)} samples, the oracle has {len(theirs)}"
    for mine, other in zip(ours, theirs, strict=True):
        same = mine.name in other.names and mine.labels == other.labels
        if not (same and _same(mine.value, other.value) and _same(mine.timestamp_seconds, other.timestamp_seconds)):
            return f"{mine} is not {other}"
    return ""


def _same(mine: float | None, other: float | None) -> bool:
    if mine is None or other is None:
        return mine is other
    # repr tells -0.0 from 0.0 and makes NaN equal; the oracle splits a timestamp into whole seconds and nanoseconds
    return repr(mine) == repr(other) or abs(mine - other) <= 1e-15 * abs(other)


class _Families(Collector):
    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> list[Metric]:
        return self._families


def as_openmetrics(text: str) -> str:
    """A page of the text format as the client library writes it in OpenMetrics, less what that format cannot hold."""
    registry = CollectorRegistry()
    # a gauge family x_created, as the text format has them, clashes with the counter x
    registry.register(_Families([family for family in read_text(text) if not family.name.endswith("_created")]))
    # without escaping: the default writes `vllm:x` in the TYPE line and `vllm_x` in the samples
    return generate_latest(registry, ALLOWUTF8).decode()


def archived_pages(archive: Path) -> Iterator[tuple[str, bytes]]:
    """(member name, body) of every recorded page of an archive, in order."""
    with tarfile.open(archive) as opened:
        for member in opened:
            if member.name.endswith(".prom"):
                body = opened.extractfile(member)
                yield member.name, body.read()
