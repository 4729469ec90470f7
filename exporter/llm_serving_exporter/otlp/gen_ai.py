"""`gen_ai.server.*` of OpenTelemetry's semantic conventions, out of the engines' own histograms.

Facts: semantic-conventions 1.41.1, docs/gen-ai/gen-ai-metrics.md, "Generative AI model server metrics": in development. That is the last
version which has them. They moved to a repository of their own, semantic-conventions-genai, whose changelog knew no release when this was
written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from urllib.parse import urlsplit

from llm_serving_exporter.model.numbers import Histogram, add_up
from llm_serving_exporter.model.reading import TargetReading
from llm_serving_exporter.model.record import Struct, field
from llm_serving_exporter.model.snapshot import Absence, EngineSnapshot, Quality
from llm_serving_exporter.model.target import Role
from llm_serving_exporter.otlp.reading import Buckets, Form, Labels, Reading, Value

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
                left_out[name, reading.target.name] = why or reading.missing.get(source) or "the page does not have it"
    readings = (Reading(name, _METRICS[name][1], Form.HISTOGRAM, found) for name, found in values.items() if found)
    return ServerMetrics(tuple(readings), left_out)


def _read_engines(reading: TargetReading, source: str, operation: str) -> Iterator[tuple[Labels, Value]]:
    for engine in reading.snapshot.engines if reading.snapshot is not None else ():
        histogram = getattr(engine, source)
        if histogram is not None:
            yield _name_series(reading, engine, operation), _make_buckets(histogram)


def _name_series(reading: TargetReading, engine: EngineSnapshot, operation: str) -> Labels:
    """The attributes of the conventions, and of the catalogue those that tell engines apart."""
    url = urlsplit(reading.target.url)
    model = engine.model_name or reading.model_name
    found = {
        "gen_ai.operation.name": operation,
        # none of the listed ones is a server of one's own; then a word of one's own may be used
        "gen_ai.provider.name": reading.runtime,
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
    if not reading.runtime:
        return "gen_ai.provider.name is not known before the first page"
    if reading.snapshot is not None and reading.snapshot.quality.get(source) is Quality.APPROXIMATE:
        return "what the engine measures is not quite this"
    return _refuse_duration(reading) if source == _DURATION else ""


def _refuse_duration(reading: TargetReading) -> str:
    """error.type is required of what ended in an error, and engines keep one histogram for all: sent while there was no error."""
    engines = reading.snapshot.engines if reading.snapshot is not None else ()
    ends = [one.requests_finished_total for one in engines if getattr(one, _DURATION) is not None]
    if reading.snapshot is not None and (not reading.snapshot.errors_counted or None in ends):
        return "error.type is not known: the page does not count requests that ended in an error"
    errors = add_up(count for one in ends if one is not None for why, count in one.items() if why not in _NO_ERRORS)
    if errors > 0:
        return "error.type is not known: some requests ended in an error since the engine's start, and its histogram does not say which"
    return ""


def _is_awaited(reading: TargetReading, source: str) -> bool:
    """Whether it comes with the first request."""
    return reading.snapshot is not None and reading.snapshot.absent.get(source) is Absence.IDLE
