"""Generated pages and damaged pages against the oracle."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_serving_exporter.errors import ExpositionError
from llm_serving_exporter.fetch.exposition import parse_text
from llm_serving_exporter.fetch.page import PageParser
from llm_serving_exporter.model.sample import FailureReason, Page, Samples
from tests.support.builders.exposition_oracle import OracleSample, difference, oracle_samples

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
    assert difference(ours.samples, oracle_samples(text, openmetrics=False)) == ""
    assert ours.series_count == len(ours.samples)


@given(openmetrics_pages())
def test_generated_openmetrics_pages_read_as_the_oracle_reads_them(text: str) -> None:
    ours = parse_text(text, openmetrics=True)
    assert difference(ours.samples, oracle_samples(text, openmetrics=True)) == ""


def attempt(body: bytes, content_type: str) -> tuple[Samples, None] | tuple[None, ExpositionError]:
    try:
        return PageParser().parse(Page(body, content_type, 0.0, 0.0)), None
    except ExpositionError as error:
        return None, error


def reading(text: str, openmetrics: bool) -> list[OracleSample] | None:
    """What the oracle makes of a page, None where it refuses; it refuses with whatever exception it runs into."""
    try:
        return oracle_samples(text, openmetrics=openmetrics)
    except Exception:
        return None


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
    kind = "application/openmetrics-text" if openmetrics else "text/plain"
    samples, refusal = attempt(bytes(body), kind)
    if samples is None:
        assert refusal.reason in (FailureReason.MALFORMED, FailureReason.TRUNCATED)
        assert 0 <= refusal.line <= body.count(b"\n") + 1
        assert openmetrics or "OpenMetrics" not in refusal.cause
        return
    text = body.decode()
    ours = parse_text(text, openmetrics=openmetrics)
    assert repr(samples.values) == repr(ours.values)
    theirs = reading(text, openmetrics)
    if theirs is None:
        return
    if openmetrics and len(set(ours.keys)) < len(ours.keys):
        return  # the oracle drops a series that comes twice
    assert difference(ours.samples, theirs) == "", text
