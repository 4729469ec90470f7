"""Families -> the text that Prometheus reads, byte for byte as the client library writes it, several times as fast.

The library checks the label names of every sample again and, for OpenMetrics, goes through each name letter by letter. Ours are checked
when the catalogue is made. What it is asked for (the Accept header) is still the library's to read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample
from prometheus_client.utils import floatToGoString

from llm_serving_exporter.expose.labels import SeriesLabels, SharedLabels
from llm_serving_exporter.model.text import escape_label_value

_OPENMETRICS = "application/openmetrics-text"
_SUFFIX = {"counter": "_total", "info": "_info"}
_TEXT_TYPES = {"info": "gauge", "stateset": "gauge", "gaugehistogram": "histogram", "unknown": "untyped"}


def encode(registry: Collector, accept: str) -> tuple[bytes, str]:
    """The page and its content type, as the Accept header asks for."""
    theirs, content_type = _choose_encoder(accept)
    families = list(registry.collect())
    if not all(map(_plain, families)):
        return theirs(_Collected(families)), content_type
    write = write_openmetrics if content_type.startswith(_OPENMETRICS) else write_text
    return write(families), content_type


def _choose_encoder(accept: str) -> tuple[Callable[[Collector], bytes], str]:
    try:
        return choose_encoder(accept)
    except Exception:  # noqa: BLE001  # the library raises TypeError for a version such as 1.0/x; who asks like that gets what everybody reads
        return choose_encoder("")


def write_text(families: Iterable[Family]) -> bytes:
    """Prometheus' text format 0.0.4."""
    lines = []
    for family in families:
        name = family.name + _SUFFIX.get(family.type, "")
        lines.append(f"# HELP {name} {_help(family.documentation)}\n")
        lines.append(f"# TYPE {name} {_TEXT_TYPES.get(family.type, family.type)}\n")
        lines += map(_line, family.samples)
    return "".join(lines).encode()


def write_openmetrics(families: Iterable[Family]) -> bytes:
    """OpenMetrics 1.0."""
    lines = []
    for family in families:
        lines.append(f"# HELP {family.name} {escape_label_value(family.documentation)}\n")
        lines.append(f"# TYPE {family.name} {family.type}\n")
        lines += map(_line, family.samples)
    lines.append("# EOF\n")
    return "".join(lines).encode()


class _Collected(Collector):
    """Families that were collected already."""

    def __init__(self, families: list[Family]) -> None:
        self._families = families

    def collect(self) -> Iterable[Family]:
        return self._families


def _plain(family: Family) -> bool:
    """Whether nothing in it needs more than a name, labels and a value."""
    return (
        not family.unit
        and family.type != "gaugehistogram"
        and all(
            sample.timestamp is None
            and sample.exemplar is None
            and sample.native_histogram is None
            and not sample.name.endswith("_created")
            for sample in family.samples
        )
    )


def _line(sample: Sample) -> str:
    value = floatToGoString(sample.value)  # type: ignore[no-untyped-call]  # the library leaves it unannotated
    labels: object = sample.labels
    if isinstance(labels, (SharedLabels, SeriesLabels)):
        text = labels.as_text()
    else:
        text = ",".join([f'{name}="{escape_label_value(label)}"' for name, label in sorted(sample.labels.items())])
    return f"{sample.name}{{{text}}} {value}\n" if text else f"{sample.name} {value}\n"


def _help(documentation: str) -> str:
    return documentation.replace("\\", r"\\").replace("\n", r"\n")
