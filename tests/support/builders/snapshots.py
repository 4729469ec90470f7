"""Snapshots from page text through the real parser and normaliser, for unit tests."""

from llm_serving_exporter.engines.apply import Normaliser, Overrides, wanted_by
from llm_serving_exporter.engines.json_answers import Joiner
from llm_serving_exporter.engines.mapping import Readings, Runtime
from llm_serving_exporter.engines.registry import RUNTIMES
from llm_serving_exporter.fetch.page import PageParser
from llm_serving_exporter.model.sample import Page
from llm_serving_exporter.model.snapshot import EngineSnapshot, ServerFacts, Snapshot

VLLM = RUNTIMES["vllm"]


def page_of(text: str, at: float = 0.0, content_type: str = "text/plain") -> Page:
    body = text.encode()
    return Page(body, content_type, 1_795_000_000.0 + at, at)


def snapshot_of(
    text: str,
    version: str | None = "0.32.0",
    overrides: Overrides | None = None,
    at: float = 0.0,
    facts: ServerFacts | None = None,
    content_type: str = "text/plain",
    runtime: Runtime = VLLM,
    polled: Readings = (),
) -> Snapshot:
    """`polled`: samples that the runtime's side endpoints gave."""
    page = page_of(text, at, content_type)
    samples = Joiner().join(PageParser(wanted_by(runtime)).parse(page), polled)
    return Normaliser(runtime, facts or ServerFacts(version=version), overrides or Overrides()).apply(samples, page)


def engine_of(text: str, version: str | None = "0.32.0", runtime: Runtime = VLLM) -> EngineSnapshot:
    snapshot = snapshot_of(text, version, runtime=runtime)
    assert len(snapshot.engines) == 1
    return snapshot.engines[0]
