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

from llm_serving_exporter.fetch.exposition import ParsedPage


@dataclass(frozen=True, slots=True)
class OracleSample:
    """`names`: the name it had on the wire is one of these; more than one only where the oracle renames counters."""

    names: tuple[str, ...]
    labels: tuple[tuple[str, str], ...]
    value: float


def oracle_samples(text: str, *, openmetrics: bool) -> list[OracleSample]:
    """The oracle's samples in page order. Errors: whatever the oracle raises, which is not only ValueError."""
    found = []
    for family in (read_openmetrics if openmetrics else read_text)(text):
        for sample in family.samples:
            names = (sample.name,)
            if family.type == "counter" and not openmetrics:
                # the text parser appends _total to a counter's samples where the family's name lacks it
                names = (sample.name, sample.name.removesuffix("_total"))
            found.append(OracleSample(names, tuple(sorted(sample.labels.items())), float(sample.value)))
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


def samples_of(page: ParsedPage) -> list[tuple[str, tuple[tuple[str, str], ...], float]]:
    """Name, labels and value of each sample, in page order, duplicates included."""
    return [(key.name, key.labels, value) for key, value in zip(page.keys, page.values, strict=True)]


def difference(ours: ParsedPage, theirs: list[OracleSample]) -> str:
    """The first sample that differs, in words; "" where both say the same."""
    if len(ours.keys) != len(theirs):
        return f"{len(ours.keys)} samples, the oracle has {len(theirs)}"
    for mine, other in zip(samples_of(ours), theirs, strict=True):
        name, labels, value = mine
        # NaN differs from itself; the oracle reads -0 as 0
        same = value == other.value or repr(value) == repr(other.value)
        if name not in other.names or labels != other.labels or not same:
            return f"{mine} is not {other}"
    return ""


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
