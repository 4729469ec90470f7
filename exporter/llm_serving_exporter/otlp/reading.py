"""A family of the page -> its series, as OTLP counts them: one number, or one histogram, for each set of labels."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from enum import Enum
from functools import lru_cache
from typing import Protocol, runtime_checkable
from urllib.parse import urlsplit

from prometheus_client.metrics_core import Metric as Family

from llm_serving_exporter.model.numbers import Histogram, add_up
from llm_serving_exporter.model.reading import TargetReading
from llm_serving_exporter.model.record import Struct, field
from llm_serving_exporter.model.snapshot import Absence, EngineSnapshot, Quality
from llm_serving_exporter.model.target import Role

_PAIR = r'\w+="(?:[^"\\]|\\.)*"'
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_ESCAPE = re.compile(r"\\(.)")
# labels before `le`, that, labels behind it
_CUT = re.compile(rf'((?:{_PAIR},)*)le="([^"]*)"(.*)')

# names and values, by name; a label whose value is "" is none, as in Prometheus
Labels = tuple[tuple[str, str], ...]


class Form(Enum):
    """What a family is to OTLP."""

    SUM = "sum"  # monotonic and cumulative
    GAUGE = "gauge"
    HISTOGRAM = "histogram"  # cumulative, with explicit bounds


class Buckets(Struct):
    """One histogram."""

    cumulative: dict[float, float] = field(default_factory=dict)  # events at or below each finite bound
    count: float = 0.0  # all events
    sum: float | None = None  # None: the engine's is not of what was observed


Value = float | Buckets


class Reading(Struct, frozen=True):
    """One family at one moment."""

    name: str  # as on the page, a counter's with `_total`, an info's with `_info`
    help: str  # of the catalogue
    form: Form  # which kind of metric it becomes
    values: dict[Labels, Value]  # of a gauge or sum a number, of a histogram Buckets


@runtime_checkable
class Written(Protocol):
    """A family that is text already: lines of NAME{LABELS} NUMBER, each of them whole, labels in order."""

    def read_text(self) -> str:
        """All its lines."""
        ...


def read_family(family: Family) -> Reading:
    """The series of a family of prometheus_client. Those of `_created` are left out: a data point has a start time."""
    if family.type == "histogram":
        return Reading(family.name, family.documentation, Form.HISTOGRAM, _read_histograms(family))
    form, suffix = (Form.SUM, "_total") if family.type == "counter" else (Form.GAUGE, "")
    name = family.name + (suffix or ("_info" if family.type == "info" else ""))
    values: dict[Labels, Value] = {
        labels: number for sample, labels, _, number in _list_samples(family) if sample == name
    }
    return Reading(name, family.documentation, form, values)


def _read_histograms(family: Family) -> dict[Labels, Value]:
    found: dict[Labels, Value] = {}
    buckets, total, count = f"{family.name}_bucket", f"{family.name}_sum", f"{family.name}_count"
    for name, labels, edge, number in _list_samples(family):
        one = found.get(labels)
        if one is None:
            one = found[labels] = Buckets()
        assert isinstance(one, Buckets)
        if name == total:
            one.sum = number
        elif name == count or edge == "+Inf":
            one.count = number
        elif name == buckets:
            one.cumulative[float(edge)] = number
    return found


def _list_samples(family: Family) -> Iterator[tuple[str, Labels, str, float]]:
    """Name, labels but `le`, that label ("": none), and value of each sample. Of text no object is made for each of them."""
    if not isinstance(family, Written):
        for sample in family.samples:
            edge = sample.labels.get("le", "")
            labels = tuple(sorted((name, text) for name, text in sample.labels.items() if text and name != "le"))
            yield sample.name, labels, edge, float(sample.value)
        return
    has_edges = family.type == "histogram"
    before, behind, bucket, shared = "\0", "", "", _read_labels("")
    for line in family.read_text().split("\n")[:-1]:
        # the buckets of one histogram differ in their edge alone
        if line.startswith(before):
            edge, _, rest = line[len(before) :].partition('"')
            if rest.startswith(behind):
                yield bucket, shared, edge, float(rest[len(behind) :])
                continue
        start, _, number = line.rpartition(" ")
        name, _, text = start.partition("{")
        if not has_edges or (cut := _CUT.match(text)) is None:
            yield name, _read_labels(text), "", float(number)
            continue
        before, behind = f'{name}{{{cut[1]}le="', f"{cut[3]} "
        bucket, shared = name, _read_labels(cut[1] + cut[3].removeprefix(","))
        yield bucket, shared, cut[2], float(number)


@lru_cache(maxsize=4096)
def _read_labels(text: str) -> Labels:
    """Of what follows the brace. Most series of a target share their labels."""
    found = _LABEL.findall(text)
    if "\\" in text:
        found = [(name, _ESCAPE.sub(_unescape, label)) for name, label in found]
    return tuple([pair for pair in found if pair[1]])


def _unescape(found: re.Match[str]) -> str:
    return "\n" if found[1] == "n" else found[1]


# --- `gen_ai.server.*` of OpenTelemetry's semantic conventions, out of the engines' own histograms.
#
# Facts: semantic-conventions 1.41.1, docs/gen-ai/gen-ai-metrics.md, "Generative AI model server metrics": in development. That is the last
# version which has them. They moved to a repository of their own, semantic-conventions-genai, whose changelog knew no release when this
# was written.


SCHEMA_URL = "https://opentelemetry.io/schemas/1.41.1"
GEN_AI_PREFIX = "gen_ai."
GEN_AI_UNIT = "s"

_PORTS = {"http": 80, "https": 443}
# ends of a request that are no error: those that the answer wanted, and that a client went away
_NO_ERRORS = frozenset({"stop", "length", "success", "repetition", "abort"})
_NOT_ITS_REQUESTS = {
    Role.FRONTEND: "a front door counts the requests of the engines behind it once more, and their provider is not known here",
    Role.PREFILL: "of a prefill/decode split each engine sees a part of a request",
    Role.DECODE: "of a prefill/decode split each engine sees a part of a request",
}
_DURATION = "e2e_request_latency_seconds"
# metric -> the field that it is made of, and what is said of it
_METRICS = {
    "gen_ai.server.request.duration": (_DURATION, "Time from a request's arrival to its last token."),
    "gen_ai.server.time_per_output_token": (
        "time_per_output_token_seconds",
        "Mean time per output token of a request after its first.",
    ),
    "gen_ai.server.time_to_first_token": (
        "time_to_first_token_seconds",
        "Time from a request's arrival to its first token.",
    ),
}


class ServerMetrics(Struct, frozen=True):
    """What can be said of some targets in the words of the conventions, and what cannot."""

    readings: tuple[Reading, ...]  # one of each metric that some engine has
    # (metric, name of the target) -> why it is not sent, as the end of a sentence
    left_out: dict[tuple[str, str], str] = field(default_factory=dict)


def read_server_metrics(targets: Iterable[TargetReading], operation: str) -> ServerMetrics:
    """The metrics of targets whose last page may still be shown. `operation`: what all their requests are, such as chat.

    Required attributes are always there: a metric of an engine for which one is not known is left out.
    """
    values: dict[str, dict[Labels, Value]] = {name: {} for name in _METRICS}
    left_out = {}
    for reading in targets:
        for name, (source, _) in _METRICS.items():
            found, why = dict(_read_engines(reading, source, operation)), _refuse_target(reading, source)
            if not why and found:
                values[name] |= found
            elif why or not _is_awaited(reading, source):
                left_out[name, reading.target.name] = (
                    why or reading.server.missing.get(source) or "the page does not have it"
                )
    readings = (Reading(name, _METRICS[name][1], Form.HISTOGRAM, found) for name, found in values.items() if found)
    return ServerMetrics(tuple(readings), left_out)


def _read_engines(reading: TargetReading, source: str, operation: str) -> Iterator[tuple[Labels, Value]]:
    for engine in reading.page.snapshot.engines if reading.page.snapshot is not None else ():
        histogram = getattr(engine, source)
        if histogram is not None:
            yield _name_series(reading, engine, operation), _make_buckets(histogram)


def _name_series(reading: TargetReading, engine: EngineSnapshot, operation: str) -> Labels:
    """The attributes of the conventions, and of the catalogue those that tell engines apart."""
    url = urlsplit(reading.target.url)
    model = engine.model_name or reading.server.model_name
    found = {
        "gen_ai.operation.name": operation,
        # none of the listed ones is a server of one's own; then a word of one's own may be used
        "gen_ai.provider.name": reading.server.runtime,
        # engines keep one histogram for all names that a model is served under, and answer with the first
        "gen_ai.request.model": model,
        "gen_ai.response.model": model,
        "server.address": url.hostname or "",
        "server.port": str(url.port or _PORTS.get(url.scheme, 0)),
        "target": reading.target.name,
        "engine": engine.engine,
    }
    return tuple(sorted((name, text) for name, text in found.items() if text))


def _make_buckets(histogram: Histogram) -> Buckets:
    return Buckets(dict(zip(histogram.edges, histogram.cumulative, strict=True)), histogram.count, histogram.sum)


def _refuse_target(reading: TargetReading, source: str) -> str:
    """Why nothing that the page has of this is what the conventions mean; "": it is."""
    if reading.role in _NOT_ITS_REQUESTS:
        return _NOT_ITS_REQUESTS[reading.role]
    if not reading.server.runtime:
        return "gen_ai.provider.name is not known before the first page"
    if reading.page.snapshot is not None and reading.page.snapshot.quality.get(source) is Quality.APPROXIMATE:
        return "what the engine measures is not quite this"
    return _refuse_duration(reading) if source == _DURATION else ""


def _refuse_duration(reading: TargetReading) -> str:
    """error.type is required of what ended in an error, and engines keep one histogram for all: sent while there was no error."""
    engines = reading.page.snapshot.engines if reading.page.snapshot is not None else ()
    ends = [one.requests_finished_total for one in engines if getattr(one, _DURATION) is not None]
    if reading.page.snapshot is not None and (not reading.page.snapshot.errors_counted or None in ends):
        return "error.type is not known: the page does not count requests that ended in an error"
    errors = add_up(count for one in ends if one is not None for why, count in one.items() if why not in _NO_ERRORS)
    if errors > 0:
        return "error.type is not known: some requests ended in an error since the engine's start, and its histogram does not say which"
    return ""


def _is_awaited(reading: TargetReading, source: str) -> bool:
    """Whether it comes with the first request."""
    return reading.page.snapshot is not None and reading.page.snapshot.absent.get(source) is Absence.IDLE
