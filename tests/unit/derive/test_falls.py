"""Counters that fall: with their engine, or by themselves."""

from llm_serving_exporter.derive.window import (
    are_of_a_restart,
    find_falls,
    forget_fallen,
    leave_out_fallen,
    read_counts,
)
from llm_serving_exporter.model.numbers import Histogram
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.snapshot import Absence, EngineSnapshot, Snapshot
from llm_serving_exporter.model.window import Spans, Window
from tests.support.rows import check_rows

LATENCY = Histogram((1.0, 2.0), (3.0, 5.0), 6.0, 9.0)
ENGINE = EngineSnapshot(
    "m",
    "0",
    decode_tokens_total=100.0,
    prompt_tokens_total=50.0,
    preemptions_total=0.0,
    prefix_cache_queries=70.0,
    requests_finished_total={"stop": 5.0, "error": 1.0},
    e2e_request_latency_seconds=LATENCY,
)


def page(engine: EngineSnapshot = ENGINE, seconds: float = 0.0) -> Snapshot:
    return Snapshot((engine,), "vllm", 1e9 + seconds, seconds)


def fall(engine: EngineSnapshot) -> set[str]:
    earlier, later = page(), page(engine, 5.0)
    return {field for _, _, field in find_falls(earlier, later, read_counts(earlier), read_counts(later))}


@check_rows(
    ("after", "fallen"),
    [
        ({"decode_tokens_total": 99.0}, "decode_tokens_total"),
        ({"prefix_cache_queries": 1.0}, "prefix_cache_queries"),
        ({"requests_finished_total": {"stop": 6.0, "error": 0.0}}, "requests_finished_total"),
        ({"e2e_request_latency_seconds": replace(LATENCY, sum=8.9)}, "e2e_request_latency_seconds"),
        ({"e2e_request_latency_seconds": replace(LATENCY, count=5.0)}, "e2e_request_latency_seconds"),
        ({"e2e_request_latency_seconds": replace(LATENCY, cumulative=(2.0, 5.0))}, "e2e_request_latency_seconds"),
    ],
)
def test_what_falls_is_found(after: dict[str, object], fallen: str) -> None:
    assert fall(replace(ENGINE, **after)) == {fallen}


@check_rows(
    "after",
    [
        {},
        {"decode_tokens_total": 100.0},
        {"decode_tokens_total": None},
        {"requests_finished_total": {"stop": 5.0}},
        {"e2e_request_latency_seconds": replace(LATENCY, sum=None)},
        {"e2e_request_latency_seconds": Histogram((1.0,), (1.0,), 6.0, 9.0)},  # other edges
    ],
)
def test_what_does_not_fall_is_not(after: dict[str, object]) -> None:
    assert fall(replace(ENGINE, **after)) == set()


def of_a_restart(**after: object) -> bool:
    earlier, later = page(), page(replace(ENGINE, **after), 5.0)
    known, now = read_counts(earlier), read_counts(later)
    return are_of_a_restart(find_falls(earlier, later, known, now), known, now)


def test_a_restart_takes_half_of_what_had_been_counted_with_it() -> None:
    assert not of_a_restart(decode_tokens_total=1.0)
    # two of four; what stood at 0 and what is not published have no say
    assert of_a_restart(decode_tokens_total=1.0, prompt_tokens_total=1.0)
    assert not of_a_restart(decode_tokens_total=1.0, prefix_cache_queries=1.0)


def test_what_falls_is_left_out_and_nothing_is_subtracted_across_it() -> None:
    key = ("m", "0", "decode_tokens_total")
    before, other = page(), page(replace(ENGINE, engine="1"), 0.0)
    window = Window((replace(before, engines=(*before.engines, *other.engines)),), (), Spans(60.0))
    later = page(replace(ENGINE, decode_tokens_total=7.0), 5.0)
    left = leave_out_fallen(later, frozenset({key}), read_counts(before))
    assert left.engines[0].decode_tokens_total is None
    assert left.engines[0].prompt_tokens_total == 50.0
    assert left.absent == {"decode_tokens_total": Absence.IMPLAUSIBLE}
    assert [one[:3] for one in left.left_out] == [key]
    assert "from 100" in left.left_out[0].what
    kept = forget_fallen(window, frozenset({key})).later.engines
    assert [one.decode_tokens_total for one in kept] == [None, 100.0]


def test_what_was_yet_to_be_born_before_the_fall_does_not_count_from_0_after_it() -> None:
    unborn = replace(page(replace(ENGINE, decode_tokens_total=None)), still_zero=frozenset({"decode_tokens_total"}))
    window = forget_fallen(Window((unborn,), (), Spans(60.0)), frozenset({("m", "0", "decode_tokens_total")}))
    assert window.later.still_zero == frozenset()


def test_a_histogram_whose_sum_fell_has_no_gain() -> None:
    grown = Histogram((1.0, 2.0), (4.0, 6.0), 7.0, 10.0)
    assert grown.since(LATENCY) == Histogram((1.0, 2.0), (1.0, 1.0), 1.0, 1.0)
    assert replace(grown, sum=8.0).since(LATENCY) is None
