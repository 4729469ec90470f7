"""What must hold for any input, a function for each door: they return where it holds, and raise where it does not.

None opens a socket to anywhere or reads the network, so that a fuzzer can call them thousands of times a second.
"""

from __future__ import annotations

import json
import logging
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from prometheus_client import CollectorRegistry

from llm_serving_exporter.commands.once import as_document_of, as_table
from llm_serving_exporter.daemon.store import Store
from llm_serving_exporter.errors import ConfigError, ExpositionError
from llm_serving_exporter.expose.collector import Setup, ViewCollector
from llm_serving_exporter.expose.encode import encode
from llm_serving_exporter.fetch.exposition import parse_text
from llm_serving_exporter.fetch.page import KnownPages, PageParser
from llm_serving_exporter.model.sample import FailureReason, Page, Refusal
from llm_serving_exporter.model.target import Target
from llm_serving_exporter.render.numbers import write_json
from llm_serving_exporter.render.sentences import UNSHOWN
from llm_serving_exporter.web.crowd import Limits
from llm_serving_exporter.web.exchange import Framing, Request, Response, make_answer
from llm_serving_exporter.web.pages.debug import answer_debug_targets
from llm_serving_exporter.web.pages.landing import render_landing
from tests.support.builders.configuration import load_text
from tests.support.builders.exposition_oracle import difference, oracle_samples
from tests.support.builders.pipelines import UNIX_START, make_pipeline

# folder of a door -> what once made something fail there
CORPUS = Path(__file__).parent / "corpus"
TEXT, OPENMETRICS = "text/plain; version=0.0.4", "application/openmetrics-text; version=1.0.0"
Wanted = Callable[[str], bool] | None
# what our own page may be asked as
ACCEPTED = ("text/plain;version=0.0.4", "application/openmetrics-text;version=1.0.0")


def check_page(body: bytes, *, asks_oracle: bool = True) -> None:
    """A page is refused by our parser, or read as prometheus_client reads it, where that one accepts it; and twice the same.

    `asks_oracle`: whether prometheus_client is asked, which takes three times as long as the rest.
    """
    for content_type in (TEXT, OPENMETRICS):
        openmetrics = content_type is OPENMETRICS
        parser = PageParser()
        samples, refused = None, None
        try:
            samples = parser.parse(_page(body, content_type))
        except ExpositionError as error:
            refused = error
        if samples is None:
            assert refused is not None
            assert refused.reason in (FailureReason.MALFORMED, FailureReason.TRUNCATED, FailureReason.TOO_MANY_SERIES)
            assert 0 <= refused.line <= body.count(b"\n") + 1
            assert openmetrics or "OpenMetrics" not in refused.cause
            continue
        again = parser.parse(_page(body, content_type))
        assert again.layout is samples.layout
        assert repr(again.values) == repr(samples.values)
        if not asks_oracle:
            continue
        text = body.decode()
        ours = parse_text(text, openmetrics=openmetrics)
        assert (ours.keys, repr(ours.values)) == (samples.layout.keys, repr(samples.values))
        try:
            theirs = oracle_samples(text, openmetrics=openmetrics)
        except Exception:  # it refuses with whatever it runs into
            continue
        if openmetrics and len(set(ours.keys)) < len(ours.keys):
            continue  # it drops a series that comes twice
        assert difference(ours, theirs) == ""


def check_successor(before: bytes, body: bytes, *, openmetrics: bool = False, wanted: Wanted = None) -> None:
    """A page after another one, and to a parser that shares what a third one knows, reads as it does alone: same samples, same refusal."""
    content_type = OPENMETRICS if openmetrics else TEXT
    alone = _outcome(PageParser(wanted), body, content_type)
    known = KnownPages()
    parser = PageParser(wanted, known=known)
    _outcome(parser, before, content_type)
    assert _outcome(PageParser(wanted, known=known), body, content_type) == alone
    assert _outcome(parser, body, content_type) == alone
    assert _outcome(parser, before, content_type) == _outcome(PageParser(wanted), before, content_type)


def _outcome(parser: PageParser, body: bytes, content_type: str) -> tuple[object, ...]:
    try:
        samples = parser.parse(_page(body, content_type))
    except ExpositionError as error:
        return error.line, error.reason, str(error)
    layout = samples.layout
    return layout.keys, repr(samples.values), layout.types, layout.names, layout.series_count


class _Server:
    """A server that shows one page after another and answers nothing else."""

    def __init__(self, now: list[float]) -> None:
        self.now = now
        self.body = b""

    def __call__(self, base_url: str, settings: Any, **clocks: Any) -> _Server:
        return self

    async def get_metrics(self, path: str) -> Page | Refusal:
        return _page(self.body, TEXT, self.now[0]) if path == "/metrics" else self._nothing()

    async def get_json(self, path: str, max_bytes: int = 0, timeout_seconds: float | None = None) -> Refusal:
        return self._nothing()

    async def get_any(self, path: str) -> Refusal:
        return self._nothing()

    def close(self) -> None:
        pass

    def _nothing(self) -> Refusal:
        return Refusal(FailureReason.STATUS, "the server answered with 404", 404, UNIX_START + self.now[0])


def check_ticks(bodies: Sequence[bytes]) -> None:
    """Pages one after the other through a target's whole pipeline: no tick fails inside, and what is published after the last is valid."""
    now = [0.0]
    server, store = _Server(now), Store()
    target = Target("fuzzed", "http://127.0.0.1:9", gpu_count=1)
    store.add_target(target)
    pipeline = make_pipeline(target, now, connect=server)
    registry = CollectorRegistry()
    setup = Setup(15.0, 15.0, "node", (), UNIX_START, "0", "3")
    registry.register(ViewCollector(store.view, lambda: setup, lambda: now[0]))
    try:
        for body in bodies:
            server.body = body
            now[0] += 5.0
            reading = pipeline.tick()
            assert reading.page.last is not None
            assert reading.page.last.reason is not FailureReason.INTERNAL, reading.page.last.detail
            assert reading.page.problem.isprintable()
            store.put_target(reading)
            pipeline.refresh_facts()
        check_published(registry, store, now[0])
    finally:
        pipeline.close()


def check_published(registry: CollectorRegistry, store: Store, at: float) -> None:
    """The series page is valid in both formats, documents for programs are JSON, and what people read shows every target."""
    for accept in ACCEPTED:
        published, content_type = encode(registry, accept)
        openmetrics = "openmetrics" in content_type
        parsed = parse_text(published.decode(), openmetrics=openmetrics)
        assert len(set(parsed.keys)) == len(parsed.keys), "a series is there twice"
        if not openmetrics:  # of values it wants there what Prometheus does not: whole numbers in buckets, say
            assert difference(parsed, oracle_samples(published.decode(), openmetrics=False)) == ""
    view = store.view()
    json.loads(answer_debug_targets(view, {}).body, parse_constant=_refuse_constant)
    for reading in view.targets:
        json.loads(write_json(as_document_of(reading)), parse_constant=_refuse_constant)
        assert as_table(reading)
    shown = render_landing(
        view,
        now_unix=UNIX_START + at,
        now_monotonic=at,
        stale_after_seconds=15.0,
        version="0",
        telemetry_path="/metrics",
    ).decode()
    assert UNSHOWN not in shown
    assert shown.endswith("</html>")


def _refuse_constant(name: str) -> Any:
    raise AssertionError(f"{name} is no JSON")


def check_configuration(text: bytes) -> None:
    """A configuration is taken, or refused with problems that each fit a line."""
    refused = None
    try:
        load_text(Path(_folder().name), text.decode("utf-8", "replace"))
    except ConfigError as error:
        refused = error
    if refused is not None:
        assert refused.problems
        for problem in refused.problems:
            said = str(problem)
            assert said.isprintable(), said
            assert len(said) < 3000


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="fuzzed-configuration-")  # gone with the process


def check_request(data: bytes) -> None:
    """Whatever a client sends, in however many pieces, is answered with whole HTTP/1.1 answers, or with nothing."""
    limits = Limits()
    whole, pieces = _answers([data], limits), _answers([data[at : at + 7] for at in range(0, len(data), 7)], limits)
    assert _without_dates(whole) == _without_dates(pieces)
    rest = whole
    while rest:
        head, end, rest = rest.partition(b"\r\n\r\n")
        assert end, head
        assert re.match(rb"HTTP/1\.1 [2-5]\d\d [ -~]+\r\n", head), head
        assert not re.search(rb"(?<!\r)\n|\r(?!\n)", head), head
        length = re.search(rb"\r\nContent-Length: (\d+)", head)
        assert length, head
        if b"X-Method: HEAD" not in head:
            rest = rest[int(length[1]) :]


def _answers(pieces: Iterable[bytes], limits: Limits) -> bytes:
    """What goes out for what comes in, until an answer ends the connection."""
    framing, answered = Framing(limits), b""
    for piece in pieces:
        framing.feed(piece)
        while (asked := framing.take_request()) is not None:
            answer = make_answer(asked, asked.refusal or _answer(asked.request))
            answered += answer.data
            if answer.closes:
                return answered
        framing.take_continue()
    return answered


def _without_dates(answers: bytes) -> bytes:
    return re.sub(rb"\r\nDate: [^\r]*", b"", answers)


def _answer(request: Request) -> Response:
    asked = parse_qs(request.query).get("target", [""])[0]
    body, content_type = encode(CollectorRegistry(), request.headers.get("accept", ""))
    headers = (("X-Method", "HEAD"),) if request.method == "HEAD" else ()
    return Response(200, content_type, body + asked.encode("utf-8", "replace")[:100] + b"x" * 2000, headers)


def _page(body: bytes, content_type: str, at: float = 0.0) -> Page:
    return Page(body, content_type, UNIX_START + at, at)


# door -> what must hold for any bytes that come in there
DOORS: dict[str, Callable[[bytes], None]] = {
    "pages": lambda body: (check_page(body), check_ticks([body, body]))[0],
    "configurations": check_configuration,
    "requests": check_request,
}


@contextmanager
def be_quiet() -> Iterator[None]:
    """A fuzzer's hundred thousand warnings help nobody."""
    log = logging.getLogger("llm_serving_exporter")
    before = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(before)
