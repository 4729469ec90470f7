"""Sections of a page: what is written by a layout is what was added, whatever was written by it before."""

from __future__ import annotations

from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse

from llm_serving_exporter.catalogue import cost, derived, gpu, serving
from llm_serving_exporter.catalogue.spec import Metric
from llm_serving_exporter.expose.encode import write_openmetrics
from llm_serving_exporter.expose.families import Families, SharedLabels, find_layout
from llm_serving_exporter.model.numbers import Histogram
from tests.support.rows import check_rows

TTFT = next(metric for metric in serving.HISTOGRAMS if metric.name == "time_to_first_token_seconds")
TOKENS = next(metric for metric in serving.COUNTERS if metric.name == "decode_tokens_total")
RUNNING = next(metric for metric in serving.GAUGES if metric.name == "requests_running")
FINISHED = next(metric for metric in serving.COUNTERS if metric.name == "requests_finished_total")
SPENT = cost.COST

Found = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def read(families: Families) -> Found:
    """What a reader of OpenMetrics makes of the page."""
    text = write_openmetrics(families).decode()
    samples = [sample for family in parse(text) for sample in family.samples]
    found = {(sample.name, tuple(sorted(sample.labels.items()))): sample.value for sample in samples}
    assert len(found) == len(samples)
    return found


def name(metric: Metric, suffix: str = "", **labels: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    return metric.full_name + suffix, tuple(sorted(labels.items()))


TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\N{REPLACEMENT CHARACTER}"), max_size=8)
# of which each is read back as it was
NUMBERS = st.floats(0, 1e14, allow_nan=False)


@given(
    st.dictionaries(st.sampled_from(["target", "a", "z"]), TEXTS, min_size=1),
    st.dictionaries(TEXTS, NUMBERS, max_size=5),
    st.dictionaries(st.tuples(TEXTS, TEXTS, TEXTS), NUMBERS, max_size=5),
    st.one_of(st.none(), st.floats(0, 1e6)),
    NUMBERS,
)
def test_any_labels_and_any_numbers_are_read_back_as_they_were(
    labels: dict[str, str],
    by_reason: dict[str, float],
    by_phase: dict[tuple[str, str, str], float],
    running: float | None,
    tokens: float,
) -> None:
    shared, families = SharedLabels(labels), Families()
    families.add_value(RUNNING, shared, running)
    families.add_by_label(FINISHED, shared, "reason", by_reason)
    families.add_value(TOKENS, shared, tokens, engine="0")
    families.add_histogram(TTFT, shared, Histogram((0.5, 1.0), (1.0, 2.0), 3.0, 4.5))
    families.add_values(SPENT, shared, ("phase", "rate", "method"), by_phase.keys(), by_phase.values())
    # a section of its own, with lines of a family that is there already
    families.write_section()
    families.add_value(TOKENS, shared, tokens, engine="1")

    def of(text: str) -> str:
        return text.replace("\0", "\N{REPLACEMENT CHARACTER}")

    base = {key: of(value) for key, value in labels.items()}
    expected: Found = {
        name(TOKENS, **base, engine="0"): tokens,
        name(TOKENS, **base, engine="1"): tokens,
        name(TTFT, "_bucket", **base, le="0.5"): 1.0,
        name(TTFT, "_bucket", **base, le="1.0"): 2.0,
        name(TTFT, "_bucket", **base, le="+Inf"): 3.0,
        name(TTFT, "_count", **base): 3.0,
        name(TTFT, "_sum", **base): 4.5,
    }
    if running is not None:
        expected[name(RUNNING, **base)] = running
    expected |= {name(FINISHED, **base, reason=of(reason)): number for reason, number in by_reason.items()}
    expected |= {
        name(SPENT, **base, phase=of(phase), rate=of(rate), method=of(method)): number
        for (phase, rate, method), number in by_phase.items()
    }
    assert read(families) == expected


@check_rows("wrong", [nan, inf, -inf, -1.0])
def test_what_cannot_be_is_left_out_from_among_the_others(wrong: float) -> None:
    one, other, families = SharedLabels({"target": "a"}), SharedLabels({"target": "b"}), Families()
    families.add_value(TOKENS, one, 5.0)
    families.add_histogram(TTFT, one, Histogram((0.5,), (1.0,), 2.0, None))
    families.add_by_label(FINISHED, one, "reason", {"stop": 1.0, "length": wrong, "abort": 3.0})
    families.add_value(RUNNING, other, wrong)
    families.add_value(TOKENS, other, 6.0)
    assert read(families) == {
        name(TOKENS, target="a"): 5.0,
        name(TTFT, "_bucket", target="a", le="0.5"): 1.0,
        name(TTFT, "_bucket", target="a", le="+Inf"): 2.0,
        name(FINISHED, target="a", reason="stop"): 1.0,
        name(FINISHED, target="a", reason="abort"): 3.0,
        name(TOKENS, target="b"): 6.0,
    }
    assert families.left_out == {("a", "requests_finished_total"): 1, ("b", "requests_running"): 1}


def test_targets_that_differ_in_their_labels_share_a_layout() -> None:
    def page(target: str, number: float) -> Found:
        shared, families = SharedLabels({"target": target}), Families()
        families.add_value(RUNNING, shared.with_labels(model_name=f"model of {target}"), number)
        families.add_by_label(FINISHED, shared, "reason", {"stop": number})
        return read(families)

    page("first", 1.0)
    made = find_layout.cache_info().misses
    for number in range(20):
        target = f"target-{number}"
        assert page(target, number) == {
            name(RUNNING, target=target, model_name=f"model of {target}"): number,
            name(FINISHED, target=target, reason="stop"): number,
        }
    assert find_layout.cache_info().misses == made


def test_a_label_that_changes_each_time_is_written_and_kept_for_a_while_only() -> None:
    shared, most = SharedLabels({"target": "a"}), find_layout.cache_info().maxsize
    assert most is not None
    assert most <= 256
    for number in range(2000):
        families = Families()
        families.add_by_label(FINISHED, shared, "reason", {f"reason-{number}": 1.0})
        assert read(families) == {name(FINISHED, target="a", reason=f"reason-{number}"): 1.0}
    assert find_layout.cache_info().currsize <= most


def test_a_metric_that_comes_back_stands_in_one_family() -> None:
    families = Families()
    for number in range(3):
        shared = SharedLabels({"gpu": f"GPU-{number}"})
        families.add_value(gpu.GPU_UP, shared, number % 2 == 0)
        families.add_value(gpu.GPU_POWER, shared, 100 + number)
    families.write_section()
    families.add_value(gpu.GPU_UP, SharedLabels({"gpu": "GPU-3"}), 1)
    assert [family.name for family in families] == [gpu.GPU_UP.full_name, gpu.GPU_POWER.full_name]
    assert read(families)[name(gpu.GPU_UP, gpu="GPU-1")] == 0.0
    assert len(read(families)) == 7


def test_nothing_added_is_no_page() -> None:
    families = Families()
    families.add_value(RUNNING, SharedLabels({}), None)
    families.add_elements(SharedLabels({"target": "a"}), (), ())
    families.add_by_label(derived.SLO_EVENTS, SharedLabels({}), "slo", {})
    families.write_section()
    assert read(families) == {}


@pytest.mark.parametrize("values", [(1.0,), (1.0, 2.0, 3.0)])
def test_numbers_that_are_not_as_many_as_their_series_stand_behind_no_name(values: tuple[float, ...]) -> None:
    families, shared = Families(), SharedLabels({"target": "a"})
    families.add_values(FINISHED, shared, ("reason",), [("stop",), ("length",)], values)
    families.add_value(RUNNING, shared, 7.0)
    with pytest.raises(ValueError, match="numbers for 3 series"):
        families.write_section()
    families.add_value(RUNNING, shared, 8.0)
    assert read(families) == {name(RUNNING, target="a"): 8.0}
