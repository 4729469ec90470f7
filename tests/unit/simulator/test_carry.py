"""Rounds of a recording joined: no counter ever falls, gauges stay, nothing restarts."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from llm_serving_simulator.replay import Carry, Line, sample_lines
from tests.support.builders.recordings import page, recording
from tests.support.rows import check_rows

LAST = 220


@pytest.fixture(scope="module")
def carry() -> Carry:
    return Carry(page("vllm-0.32", 0), page("vllm-0.32", LAST))


def values(body: bytes) -> dict[str, tuple[float, bool]]:
    """series -> (value, counts) by a reader of its own: the client library's parser."""
    found = {}
    for family in text_string_to_metric_families(body.decode()):
        for sample in family.samples:
            counts = family.type in {"counter", "histogram", "summary"} and not sample.name.endswith("_created")
            found[f"{sample.name}{sorted(sample.labels.items())}"] = (sample.value, counts)
    return found


def test_round_zero_is_the_recording(carry: Carry) -> None:
    assert carry.page(page("vllm-0.32", 60), 0) == page("vllm-0.32", 60)


@check_rows("round_number", [0, 1, 2, 41], shared=["carry"])
def test_no_counter_falls_at_the_seam_and_none_vanishes(carry: Carry, round_number: int) -> None:
    before = values(carry.page(page("vllm-0.32", LAST), round_number))
    after = values(carry.page(page("vllm-0.32", 0), round_number + 1))
    counters = {series for series, (_, counts) in before.items() if counts}
    assert len(counters) > 350
    assert counters == {series for series, (_, counts) in after.items() if counts}
    assert {series: after[series][0] for series in counters} == {series: before[series][0] for series in counters}


def test_no_counter_falls_within_a_later_round(carry: Carry) -> None:
    previous = values(carry.page(page("vllm-0.32", LAST), 0))
    for number in range(0, LAST + 1, 11):
        current = values(carry.page(page("vllm-0.32", number), 1))
        fallen = [s for s, (value, counts) in previous.items() if counts and current[s][0] < value]
        assert not fallen, f"page {number}"
        previous = current


def test_three_rounds_count_three_times_what_one_counts(carry: Carry) -> None:
    series = "vllm:generation_tokens_total[('engine', '0'), ('model_name', 'tiny-llama')]"
    one_round = values(page("vllm-0.32", LAST))[series][0] - values(page("vllm-0.32", 0))[series][0]
    assert one_round == 85832
    start = values(page("vllm-0.32", 0))[series][0]
    assert values(carry.page(page("vllm-0.32", LAST), 2))[series][0] - start == 3 * one_round


def test_gauges_and_times_stay_as_recorded(carry: Carry) -> None:
    recorded = values(page("vllm-0.32", 60))
    later = values(carry.page(page("vllm-0.32", 60), 5))
    gauges = {series for series, (_, counts) in recorded.items() if not counts}
    assert {s: later[s] for s in gauges} == {s: recorded[s] for s in gauges}
    assert sum("_created" in s for s in gauges) >= 40
    assert any(s.startswith("process_start_time_seconds") for s in gauges)


def test_a_counter_born_in_the_first_round_lives_on_with_its_created_time(carry: Carry) -> None:
    born = 'http_requests_total{handler="/v1/completions",method="POST",status="2xx"}'
    assert born.encode() not in page("vllm-0.32", 0)
    again = carry.page(page("vllm-0.32", 0), 1)
    last = {line.series: line.value for line in lines(page("vllm-0.32", LAST))}
    assert {line.series: line.value for line in lines(again)}[born] == last[born]
    created = born.replace("_total", "_created")
    assert {line.series: line.value for line in lines(again)}[created] == last[created]


def test_numbers_keep_the_style_of_the_server(carry: Carry) -> None:
    later = {line.series: line.value for line in lines(carry.page(page("vllm-0.32", LAST), 30))}
    tokens = later['vllm:generation_tokens_total{engine="0",model_name="tiny-llama"}']
    assert tokens == "2.660792e+06"  # 31 x 85832, as prometheus_client writes it
    assert later['vllm:num_preemptions_total{engine="0",model_name="tiny-llama"}'] == "1333.0"


def test_a_recording_with_a_restart_in_it_cannot_be_joined() -> None:
    run = recording("vllm-0.32-restart")
    with pytest.raises(ValueError, match="counters fall or vanish"):
        Carry(run.pages[10], run.pages[75])


def test_quantiles_and_open_metrics_created_do_not_count() -> None:
    text = b"""# TYPE s summary
s{quantile="0.5"} 3.0
s_sum 10.0
s_created 1.0
# TYPE g gauge
g 4.0
untyped_total 5.0
"""
    assert [line.counts for line in lines(text)] == [False, True, False, False, False]


def test_infinite_values_are_left_alone() -> None:
    text = b"# TYPE a_total counter\na_total +Inf\n"
    assert Carry(text, text).page(text, 3) == text


def lines(body: bytes) -> list[Line]:
    return [line for line in sample_lines(body) if isinstance(line, Line)]
