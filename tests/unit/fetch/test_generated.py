"""Recorded, generated and damaged pages against the oracle: the same is read, the steady path never differs."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import llm_serving_simulator
from llm_serving_exporter.errors import ExpositionError
from llm_serving_exporter.fetch.exposition import parse_text
from llm_serving_exporter.fetch.page import PageParser
from llm_serving_exporter.model.sample import FailureReason, Layout, Page
from tests.fuzz.harness import check_page
from tests.support.builders.exposition_oracle import (
    archived_pages,
    as_openmetrics,
    difference,
    oracle_samples,
)
from tests.support.paths import ROOT
from tests.support.quick import keep_quick
from tests.support.rows import check_rows

# how long an example takes is the machine's matter, not the parser's

letters = "abyzAZ_"
names = st.text(letters + "019:", min_size=1, max_size=6).filter(lambda name: not name[0].isdigit())
label_names = st.text(letters + "019", min_size=1, max_size=5).filter(
    lambda name: not name[0].isdigit() and name[:2] != "__"  # the oracle refuses what is reserved for Prometheus itself
)
texts = st.one_of(st.text(st.characters(exclude_categories=["Cs"]), max_size=6), st.text('\\"n{}=, #\n', max_size=8))
values = st.one_of(
    st.floats().map(repr),
    st.integers(-(10**15), 10**15).map(str),
    st.sampled_from(["NaN", "+Inf", "-Inf", "Inf", "1e5", "1E-5", ".5", "5.", "+1", "-0", "1e400", "-nan", "infinity"]),
)


def escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


@st.composite
def series(draw: st.DrawFn, *, openmetrics: bool) -> str:
    gap = st.just("") if openmetrics else st.sampled_from(["", "", "", " ", "\t", " \t "])
    labels = draw(st.dictionaries(label_names, texts, max_size=3))
    pairs = [f'{draw(gap)}{name}{draw(gap)}={draw(gap)}"{escaped(value)}"' for name, value in labels.items()]
    if draw(st.integers(0, 4)) == 0:
        # a quoted name: anything but a name that the oracle would then read as something else
        quoted = draw(texts.filter(lambda text: text.strip() == text != "" and "{" not in text))
        return "{" + ",".join([f'"{escaped(quoted)}"', *pairs]) + draw(gap) + "}"
    name = draw(names)
    if not pairs:
        return name + draw(st.sampled_from(["", "{}"]))
    comma = "" if openmetrics else draw(st.sampled_from(["", "", ","]))
    return f"{name}{draw(gap)}{{{','.join(pairs)}{comma}{draw(gap)}}}"


@st.composite
def text_lines(draw: st.DrawFn) -> str:
    help_text = draw(st.text("ab \\n#{}='", max_size=8))
    kinds = st.sampled_from(["counter", "gauge", "histogram", "summary", "untyped"])
    match draw(st.integers(0, 9)):
        case 0:
            return draw(st.sampled_from(["", " ", "\t", "#", "# comment", "#TYPE x y", "  # EOF", "# HELP"]))
        case 1:
            return f"# HELP {draw(names)} {help_text}"
        case 2:
            return f"# TYPE {draw(names)} {draw(kinds)}"
        case _:
            gap, end = draw(st.sampled_from([" ", " ", "\t", "  "])), draw(st.sampled_from(["", "", " ", "\t"]))
            timestamp = draw(st.one_of(st.just(""), st.integers(-(2**50), 2**50).map(lambda number: f" {number}")))
            start = draw(st.sampled_from(["", "", " "]))
            return start + draw(series(openmetrics=False)) + gap + draw(values) + timestamp + end


text_pages = st.lists(text_lines(), min_size=1, max_size=8).map(lambda lines: "\n".join(lines) + "\n")


@st.composite
def openmetrics_pages(draw: st.DrawFn) -> str:
    """Families of one type each; no two share a name or the start of one, else the oracle sees a clash."""
    lines = []
    for number in range(draw(st.integers(0, 4))):
        kind = draw(st.sampled_from(["counter", "gauge", "unknown"]))
        name, suffix = f"{draw(names)}_{number}", "_total" if kind == "counter" else ""
        lines.append(f"# TYPE {name} {kind}")
        if draw(st.booleans()):
            lines.append(f"# HELP {name} {escaped(draw(texts)) or 'x'}")
        stamped = draw(st.booleans())
        label_sets = draw(st.lists(st.dictionaries(label_names, texts, max_size=2), max_size=3, unique_by=repr))
        for labels in label_sets:
            body = ",".join(f'{label}="{escaped(value)}"' for label, value in labels.items())
            value = draw(st.floats(0, allow_nan=False).map(repr) if kind == "counter" else values)
            stamp = f" {draw(st.integers(0, 2**31))}.{draw(st.integers(0, 999)):03}" if stamped else ""
            trace = draw(st.sampled_from(["", ' # {trace="1"} 0.5', " # {} 1 1.5"])) if kind == "counter" else ""
            lines.append(f"{name}{suffix}{{{body}}} {value}{stamp}{trace}")
    return "".join(line + "\n" for line in [*lines, "# EOF"])


@pytest.mark.hypothesis
def test_generated_text_pages_read_as_the_oracle_reads_them() -> None:
    given(text_pages)(compare_text)()


def compare_text(text: str) -> None:
    ours = parse_text(text, openmetrics=False)
    assert difference(ours, oracle_samples(text, openmetrics=False)) == ""
    assert ours.series_count == len(ours.keys)


@given(openmetrics_pages())
def test_generated_openmetrics_pages_read_as_the_oracle_reads_them(text: str) -> None:
    ours = parse_text(text, openmetrics=True)
    assert difference(ours, oracle_samples(text, openmetrics=True)) == ""


@pytest.mark.parametrize("openmetrics", [False, True])
@pytest.mark.hypothesis
def test_a_damaged_page_is_refused_or_read_as_the_oracle_reads_it(openmetrics: bool) -> None:
    given(data=st.data())(lambda data: compare_damaged(openmetrics, data))()


def compare_damaged(openmetrics: bool, data: st.DataObject) -> None:
    body = bytearray(data.draw(openmetrics_pages() if openmetrics else text_pages).encode())
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(body)))
        byte = data.draw(st.one_of(st.sampled_from(b' \n\t\r0159.eE+-_NaInf#{}"=,\\:'), st.integers(0, 255)))
        match data.draw(st.sampled_from(["replace", "delete", "insert", "cut"])):
            case "replace":
                body[at : at + 1] = bytes([byte])
            case "delete":
                del body[at : at + data.draw(st.integers(1, 5))]
            case "insert":
                body.insert(at, byte)
            case _:
                del body[at:]
    check_page(bytes(body))


# --- recorded pages of real servers ---


REPOSITORY = ROOT
ARCHIVES = sorted(
    path
    for folder in (REPOSITORY / "tests/captures", Path(llm_serving_simulator.__file__).parent / "recordings")
    for path in folder.glob("*.tar.xz")
    # what the load client counted, and single answers: no pages
    if not path.name.endswith(("-client.tar.xz", "-errors.tar.xz"))
)
ORACLE_PAGES_PER_ARCHIVE = 24  # at 5-10 ms a page


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
        ours = parse_text(text, openmetrics=False)
        assert ours.keys, name
        assert difference(ours, oracle_samples(text, openmetrics=False)) == "", name


@check_rows("archive", ARCHIVES, ids=lambda path: path.name)
def test_the_oracle_reads_the_same_written_as_openmetrics(archive: Path) -> None:
    name, body = list(archived_pages(archive))[-1]
    text = as_openmetrics(body.decode())
    ours = parse_text(text, openmetrics=True)
    assert len(ours.keys) >= 15, name  # llama.cpp's whole page
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
