"""Families -> the text that Prometheus reads, as the client library writes it but for the digits of large and small numbers, several times
as fast.

The library checks the label names of every sample again and, for OpenMetrics, goes through each name letter by letter. Ours are checked
when the catalogue is made. What it is asked for (the Accept header) is still the library's to read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache

from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from llm_serving_exporter.catalogue.spec import Metric
from llm_serving_exporter.expose.lines import LineFamily, write_number
from llm_serving_exporter.expose.spool import Spool, join_text
from llm_serving_exporter.model.text import escape_label_value

# a page of at most so many bytes goes out as it is: that of four targets
LARGEST_WHOLE = 256 * 1024
_OPENMETRICS = "application/openmetrics-text"
_WEIGHT = re.compile(r";\s*q=([01](?:\.\d{0,3})?)\s*(?:;|$)", re.IGNORECASE)
_SUFFIX = {"counter": "_total", "info": "_info"}
_TEXT_TYPES = {"info": "gauge", "stateset": "gauge", "gaugehistogram": "histogram", "unknown": "untyped"}


def write_page(registry: Collector, accept: str) -> tuple[bytes | Spool, str]:
    """The page and its content type, as the Accept header asks for. A large page is compressed part by part."""
    theirs, content_type = _choose_encoder(accept)
    families = list(registry.collect())
    if not all(type(family) is LineFamily or _plain(family) for family in families):
        return theirs(_Collected(families)), content_type
    write = _list_openmetrics if content_type.startswith(_OPENMETRICS) else _list_text
    return join_text(write(families), LARGEST_WHOLE), content_type


def encode(registry: Collector, accept: str) -> tuple[bytes, str]:
    """As `write_page`, all of it as bytes."""
    page, content_type = write_page(registry, accept)
    return page if isinstance(page, bytes) else b"".join(page.read()), content_type


@lru_cache(maxsize=64)
def _choose_encoder(accept: str) -> tuple[Callable[[Collector], bytes], str]:
    try:
        return choose_encoder(_leave_out_less_wanted(accept))
    except Exception:  # noqa: BLE001  # the library raises TypeError for a version such as 1.0/x; who asks like that gets what everybody reads
        return choose_encoder("")


def _leave_out_less_wanted(accept: str) -> str:
    """The header without OpenMetrics where plain text is wanted more, or OpenMetrics not at all (RFC 9110, 12.4.2): the library takes
    OpenMetrics wherever it stands, and reads no weights."""
    ranges = [one.strip() for one in accept.split(",")]
    of_openmetrics = [one for one in ranges if one.lower().startswith(_OPENMETRICS)]
    weight = max(map(_read_weight, of_openmetrics), default=0.0)
    others = [one for one in ranges if one not in of_openmetrics]
    plain = max((_read_weight(one) for one in others if one.lower().startswith("text/plain")), default=0.0)
    return accept if weight > 0 and weight >= plain else ",".join(others)


def _read_weight(media_range: str) -> float:
    """How much it is wanted, 0 to 1; 1 where that is not said, or not in numbers."""
    found = _WEIGHT.search(media_range)
    return float(found[1]) if found else 1.0


def write_text(families: Iterable[Family]) -> bytes:
    """Prometheus' text format 0.0.4."""
    return _join(_list_text(families))


def write_openmetrics(families: Iterable[Family]) -> bytes:
    """OpenMetrics 1.0."""
    return _join(_list_openmetrics(families))


def _join(pieces: Iterable[str | Spool]) -> bytes:
    return b"".join([piece.encode() if isinstance(piece, str) else b"".join(piece.read()) for piece in pieces])


def _list_text(families: Iterable[Family]) -> list[str | Spool]:
    return _list_pieces(families, _text_header, _TEXT_HEADERS)


def _list_openmetrics(families: Iterable[Family]) -> list[str | Spool]:
    return [*_list_pieces(families, _openmetrics_header, _OPENMETRICS_HEADERS), "# EOF\n"]


def _list_pieces(
    families: Iterable[Family],
    write_header: Callable[[str, str, str], str],
    known: dict[Metric, str],
) -> list[str | Spool]:
    pieces = list[str | Spool]()
    for family in families:
        if isinstance(family, LineFamily):
            header = known.get(family.metric)
            if header is None:
                header = known[family.metric] = write_header(family.name, family.documentation, family.type)
            pieces.append(header)
            if family.spool is not None:
                pieces.append(family.spool)
            pieces += family.lines
        else:
            pieces.append(write_header(family.name, family.documentation, family.type))
            pieces += map(_line, family.samples)
    return pieces


@lru_cache(maxsize=1024)
def _text_header(family: str, documentation: str, kind: str) -> str:
    name = family + _SUFFIX.get(kind, "")
    return f"# HELP {name} {_help(documentation)}\n# TYPE {name} {_TEXT_TYPES.get(kind, kind)}\n"


@lru_cache(maxsize=1024)
def _openmetrics_header(family: str, documentation: str, kind: str) -> str:
    return f"# HELP {family} {escape_label_value(documentation)}\n# TYPE {family} {kind}\n"


# the catalogue's
_TEXT_HEADERS: dict[Metric, str] = {}
_OPENMETRICS_HEADERS: dict[Metric, str] = {}


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
    text = ",".join([f'{name}="{escape_label_value(label)}"' for name, label in sorted(sample.labels.items())])
    value = write_number(float(sample.value))
    return f"{sample.name}{{{text}}} {value}\n" if text else f"{sample.name} {value}\n"


def _help(documentation: str) -> str:
    return documentation.replace("\\", r"\\").replace("\n", r"\n")
