"""Recorded pages of real servers: the oracle reads the same, and the steady path the same as the strict parser."""

from __future__ import annotations

from pathlib import Path

import pytest

import llm_serving_simulator
from llm_serving_exporter.errors import ExpositionError
from llm_serving_exporter.fetch.exposition import parse_text
from llm_serving_exporter.fetch.page import PageParser
from llm_serving_exporter.model.sample import FailureReason, Layout, Page
from tests.support.builders.exposition_oracle import archived_pages, as_openmetrics, difference, oracle_samples
from tests.support.paths import ROOT
from tests.support.quick import keep_quick
from tests.support.rows import check_rows

REPOSITORY = ROOT
ARCHIVES = sorted(
    path
    for folder in (REPOSITORY / "tests/captures", Path(llm_serving_simulator.__file__).parent / "recordings")
    for path in folder.glob("*.tar.xz")
    # what the load client counted, and single answers: no pages
    if not path.name.endswith(("-client.tar.xz", "-errors.tar.xz"))
)
ORACLE_PAGES_PER_ARCHIVE = 40  # at 5-10 ms a page


def page(body: bytes) -> Page:
    return Page(body, "text/plain; version=0.0.4", 0.0, 0.0)


def wanted(name: str) -> bool:
    return name.startswith("vllm:") and not name.endswith("_created")


def test_there_are_recordings() -> None:
    assert len(ARCHIVES) >= 2


# of many pages
LARGE = {
    f"{name}.tar.xz"
    for name in ("vllm-0.32", "vllm-0.32-mfu", "vllm-0.32-dp2", "vllm-0.32-restart", "dynamo-1.6.1-frontend")
}
QUICK_FIRST = keep_quick(ARCHIVES, lambda path: path.name not in LARGE)


@check_rows("archive", QUICK_FIRST, ids=lambda path: path.name)
def test_the_oracle_reads_the_same(archive: Path) -> None:
    pages = list(archived_pages(archive))
    assert pages
    for name, body in pages[:: -(-len(pages) // ORACLE_PAGES_PER_ARCHIVE)]:
        text = body.decode()
        ours = parse_text(text, openmetrics=False).samples
        assert ours, name
        assert difference(ours, oracle_samples(text, openmetrics=False)) == "", name


@check_rows("archive", ARCHIVES, ids=lambda path: path.name)
def test_the_oracle_reads_the_same_written_as_openmetrics(archive: Path) -> None:
    name, body = list(archived_pages(archive))[-1]
    text = as_openmetrics(body.decode())
    ours = parse_text(text, openmetrics=True).samples
    assert len(ours) >= 15, name  # llama.cpp's whole page
    assert difference(ours, oracle_samples(text, openmetrics=True)) == "", name


# Pages that the oracle cannot read, and what we make of them.


def test_vllm_openmetrics_page_is_read_where_the_oracle_sees_a_clash() -> None:
    # vLLM 0.32 on /metrics/ with an OpenMetrics Accept header: `:` escaped in sample names only, so that every sample
    # opens a family of its own and two counters' families clash
    text = """# HELP vllm:prompt_tokens Tokens.
# TYPE vllm:prompt_tokens counter
vllm_prompt_tokens_total{engine="0"} 5137.0
vllm_prompt_tokens_created{engine="0"} 1.7951475236527116e+09
# HELP vllm:prompt_tokens_by_source Tokens.
# TYPE vllm:prompt_tokens_by_source counter
vllm_prompt_tokens_by_source_total{engine="0",source="local_compute"} 4000.0
vllm_prompt_tokens_by_source_total{engine="0",source="local_cache_hit"} 1137.0
vllm_prompt_tokens_by_source_created{engine="0",source="local_compute"} 1.7951475236527116e+09
vllm_prompt_tokens_by_source_total{engine="1",source="local_compute"} 0.0
# EOF
"""
    with pytest.raises(ValueError, match="Clashing name: vllm_prompt_tokens_by_source_total"):
        oracle_samples(text, openmetrics=True)
    assert parse_text(text, openmetrics=True).values[:2] == (5137.0, 1.7951475236527116e09)


def test_llamacpp_answer_while_loading_is_no_page() -> None:
    text = '{"error":{"message":"Loading model","type":"unavailable_error","code":503}}'
    with pytest.raises(ValueError, match="Invalid labels"):
        oracle_samples(text, openmetrics=False)
    for body, reason in ((text, FailureReason.TRUNCATED), (text + "\n", FailureReason.MALFORMED)):
        with pytest.raises(ExpositionError) as caught:
            parse_text(body, openmetrics=False)
        assert (caught.value.line, caught.value.reason) == (1, reason)


@check_rows("archive", QUICK_FIRST, ids=lambda path: path.name)
@check_rows("choice", [None, wanted], ids=["all", "wanted"])
def test_consecutive_pages_read_as_the_strict_parser_reads_each(archive: Path, choice: None) -> None:
    parser = PageParser(choice)
    last: Layout | None = None
    for name, body in archived_pages(archive):
        samples = parser.parse(page(body))
        strict = parse_text(body.decode(), openmetrics=False, wanted=choice)
        layout = samples.layout
        assert repr(samples.values) == repr(strict.values), name
        assert (layout.keys, layout.types, layout.names) == (strict.keys, strict.types, strict.names), name
        assert layout.series_count == strict.series_count, name
        same = last is not None and (last.keys, last.types, last.names, last.series_count) == (
            layout.keys,
            layout.types,
            layout.names,
            layout.series_count,
        )
        assert (layout is last) == same, name
        last = layout


@check_rows("archive", ARCHIVES, ids=lambda path: path.name)
def test_no_cut_of_a_recorded_page_is_taken_for_a_page(archive: Path) -> None:
    name, body = list(archived_pages(archive))[-1]
    for end in range(len(body) - 1, 0, -max(1, len(body) // 40)):
        if body[end - 1 : end] == b"\n":
            continue  # ends with a line: nothing in the text format tells it from a whole page
        with pytest.raises(ExpositionError) as caught:
            PageParser().parse(page(body[:end]))
        assert caught.value.reason == FailureReason.TRUNCATED, (name, end)
        assert caught.value.line == body[:end].count(b"\n") + 1
