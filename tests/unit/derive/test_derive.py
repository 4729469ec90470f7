"""Derived figures, worked out by hand beside each assertion."""

import pytest

from llm_serving_exporter.derive.derive import DeriveSettings, derive
from llm_serving_exporter.derive.window import advance_window, has_restarted
from llm_serving_exporter.model.derived import Derived, EngineDerived
from llm_serving_exporter.model.hardware import Hardware
from llm_serving_exporter.model.numbers import Histogram
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.snapshot import Absence, EngineSnapshot, Quality, Snapshot
from llm_serving_exporter.model.window import Spans, Window


def itl(count: float) -> Histogram:
    return Histogram((0.01, 0.025), (count / 2, count), count, 0.012 * count)


FIRST = EngineSnapshot(
    "m", "0",
    prompt_tokens_total=1000.0, prefill_tokens_total=800.0, decode_tokens_total=500.0, prefix_cache_queries=1000.0, prefix_cache_hits=200.0,
    prefix_cache_query_tokens_total=1000.0, prefix_cache_hit_tokens_total=200.0, preemptions_total=3.0, engine_steps_total=100.0,
    requests_finished_total={"stop": 4.0, "length": 1.0, "abort": 1.0, "error": 0.0}, inter_token_latency_seconds=itl(400.0),
    time_to_first_token_seconds=Histogram((0.5, 2.5), (80.0, 90.0), 100.0, 60.0), requests_running=2.0, requests_waiting=0.0,
    batch_limit_requests=16.0, kv_cache_usage_ratio=0.25, kv_cache_capacity_tokens=8000.0,
)  # fmt: skip
LAST = replace(
    FIRST, prompt_tokens_total=4000.0, prefill_tokens_total=2000.0, decode_tokens_total=1100.0, prefix_cache_queries=4000.0,
    prefix_cache_hits=1100.0, preemptions_total=9.0, engine_steps_total=160.0, inter_token_latency_seconds=itl(940.0),
    time_to_first_token_seconds=Histogram((0.5, 2.5), (130.0, 145.0), 160.0, 150.0), requests_running=6.0, kv_cache_usage_ratio=0.75,
)  # fmt: skip
SETTINGS = DeriveSettings({"ttft": 2.5}, hardware=Hardware(gpus=2.0))


def over(
    *engines: EngineSnapshot,
    settings: DeriveSettings = SETTINGS,
    seconds: float = 10.0,
    previous: Derived | None = None,
) -> Derived:
    window: Window | None = None
    for place, engine in enumerate(engines):
        snapshot = Snapshot((engine,), "vllm", 0.0, place * seconds)
        window = advance_window(
            None if window and has_restarted(window.later, snapshot) else window, snapshot, Spans(60.0)
        )
    assert window is not None
    return derive(window, settings, previous)


def one(derived: Derived) -> EngineDerived:
    assert len(derived.engines) == 1
    return derived.engines[0]


def test_phases_apart() -> None:
    figures = one(over(FIRST, LAST))
    # (2000 - 800) / 10 s and (1100 - 500) / 10 s; two GPUs
    assert figures.phase_tokens_per_second == {"prefill": 120.0, "decode": 60.0}
    assert figures.phase_tokens_per_second_per_gpu == {"prefill": 60.0, "decode": 30.0}


def test_batch() -> None:
    figures = one(over(FIRST, LAST))
    assert figures.batch_size_mean == 540 / 60  # (940 - 400) inter-token events in (160 - 100) steps
    assert figures.batch_utilization_ratio == 4.0 / 16  # running 2 and 6


def test_kv() -> None:
    figures = one(over(FIRST, LAST))
    assert (figures.kv_cache_used_tokens, figures.kv_cache_free_tokens) == (6000.0, 2000.0)
    assert figures.prefix_cache_hit_ratio == 900 / 3000
    assert figures.context_tokens_mean == (2000 + 6000) / (2 + 6)
    assert figures.preemptions_per_second == 0.6


def test_latency_of_the_window() -> None:
    found = one(over(FIRST, LAST)).latency["ttft"]
    # 60 events: 50 up to 0.5 s, 5 up to 2.5 s, 5 beyond; 90 s together
    assert (found.events, found.mean_seconds) == (60.0, 1.5)
    assert (found.quantiles[0.5].value, found.quantiles[0.5].clipped) == (0.5, "bottom")
    assert found.quantiles[0.9].value == pytest.approx(0.5 + 2.0 * (54 - 50) / 5)
    assert (found.quantiles[0.99].value, found.quantiles[0.99].clipped) == (2.5, "top")
    assert over(FIRST, LAST).quality["latency_ttft"] is Quality.CLIPPED


def test_slo_counts_since_the_engine_started() -> None:
    counts = one(over(LAST)).slo
    assert (counts["ttft"].good, counts["ttft"].bad) == (145.0, 15.0)
    assert (counts["errors"].good, counts["errors"].bad) == (5.0, 0.0)


def test_a_threshold_between_edges_counts_at_the_edge_below() -> None:
    count = one(over(LAST, settings=DeriveSettings({"ttft": 2.0}))).slo["ttft"]
    assert (count.good, count.bad) == (130.0, 30.0)
    assert (count.configured_seconds, count.counted_seconds) == (2.0, 0.5)


def test_a_threshold_below_every_edge_cannot_be_counted() -> None:
    derived = over(LAST, settings=DeriveSettings({"ttft": 0.1}))
    assert "ttft" not in one(derived).slo
    assert derived.signals["slo_ttft"] is Absence.BELOW_BUCKETS


def test_errors_are_finished_by_error_and_never_aborts() -> None:
    count = one(over(replace(LAST, requests_finished_total={"stop": 10.0, "error": 2.0, "abort": 4.0}))).slo["errors"]
    assert (count.good, count.bad) == (10.0, 2.0)


def uncovered(*steps: tuple[float, float, float]) -> list[float]:
    """(5xx answers, rejections, finished by error) at each reading -> what is counted as uncovered."""
    previous, found = None, []
    for answered, rejected, failed in steps:
        engine = replace(
            LAST,
            requests_finished_total={"stop": 1.0, "error": failed},
            requests_rejected_total={"max_num_queued_reqs": rejected},
            http_responses_total={"2xx": 12.0, "5xx": answered},
        )
        previous = over(engine, previous=previous)
        errors = one(previous).server_errors
        found.append(errors.uncovered_total)
    return found


def test_5xx_answers_that_nothing_covers_are_counted_on_by_the_exporter() -> None:
    # what was there before the exporter is not its to count; then 10 answers of which 5 rejections and 2 errors cover 7
    assert uncovered((600.0, 0.0, 0.0), (610.0, 5.0, 2.0)) == [0.0, 3.0]


def test_a_counter_that_is_missing_for_a_moment_makes_no_answer_bad() -> None:
    """The 40 rejections cover 40 of the answers also after a page without them, and one that began again at 0 covers what it counts."""
    previous, found = None, []
    for answered, rejected in ((40.0, 40.0), (40.0, None), (41.0, 40.0), (41.0, 2.0), (43.0, 3.0)):
        engine = replace(
            LAST,
            requests_finished_total={"stop": 1.0},
            requests_rejected_total=None if rejected is None else {"max_num_queued_reqs": rejected},
            http_responses_total={"5xx": answered},
        )
        previous = over(engine, previous=previous)
        errors = one(previous).server_errors
        found.append(errors.uncovered_total)
    assert found == [0.0, 0.0, 1.0, 1.0, 2.0]


def test_a_rejection_is_booked_a_moment_before_its_answer() -> None:
    assert uncovered((0.0, 0.0, 0.0), (0.0, 4.0, 0.0), (4.0, 4.0, 0.0), (5.0, 4.0, 0.0)) == [0.0, 0.0, 0.0, 1.0]


def test_rejections_inside_streams_never_take_a_real_5xx_back() -> None:
    # 514 rejections that were sent as HTTP 200 cover nothing that was counted before them
    assert uncovered((0.0, 0.0, 0.0), (600.0, 0.0, 0.0), (600.0, 514.0, 0.0), (600.0, 514.0, 0.0)) == [
        0.0,
        600.0,
        600.0,
        600.0,
    ]


def test_what_rejections_inside_streams_cover_too_much_does_not_hide_the_errors_of_later() -> None:
    """An overload that left 514 rejections without a 5xx is over; the next hundred 5xx are errors, every one."""
    found = uncovered((0.0, 0.0, 0.0), (9728.0, 10_242.0, 0.0), (9728.0, 10_242.0, 0.0), (9828.0, 10_242.0, 0.0))
    assert found == [0.0, 0.0, 0.0, 100.0]


def test_http_errors_that_name_no_model_are_covered_by_all_models_of_the_server() -> None:
    """Dynamo's failures_total has no model label: 1,000 rejections and 7 errors are not errors of a model without name."""

    def engines(rejected: float, failed: float) -> tuple[EngineSnapshot, ...]:
        return (
            EngineSnapshot("", "0", http_responses_total={"5xx": rejected + failed}),
            EngineSnapshot(
                "a", "0", requests_finished_total={"error": failed}, requests_rejected_total={"overloaded": rejected}
            ),
            EngineSnapshot("b", "0", requests_finished_total={"error": 0.0}),
        )

    window, result = None, None
    for tick, counted in enumerate(((0.0, 0.0), (1000.0, 7.0), (1000.0, 7.0))):
        snapshot = Snapshot(engines(*counted), "any", 1e9 + tick, 10.0 * tick)
        window = advance_window(window, snapshot, Spans(60.0))
        result = derive(window, DeriveSettings(), result)
    totals = {one.model_name: one.server_errors.uncovered_total for one in result.engines if one.server_errors}
    assert totals == {"": 0.0}


def test_http_errors_of_a_data_parallel_server_are_counted_once() -> None:
    def engines(answered: float) -> tuple[EngineSnapshot, ...]:
        return (
            EngineSnapshot("m", "", http_responses_total={"5xx": answered}),
            EngineSnapshot("m", "0", requests_finished_total={"stop": 1.0, "error": answered / 4}),
            EngineSnapshot("m", "1", requests_finished_total={"stop": 2.0, "error": 0.0}),
        )

    first = derive(Window((Snapshot(engines(0.0), "vllm", 0.0, 0.0),)), SETTINGS, None)
    second = derive(Window((Snapshot(engines(4.0), "vllm", 0.0, 5.0),)), SETTINGS, first)
    assert sum(engine.slo["errors"].bad for engine in second.engines if "errors" in engine.slo) == 1.0
    assert [engine.server_errors.uncovered_total for engine in second.engines if engine.server_errors] == [3.0]


def test_usage_above_one_is_exported_as_it_is_and_suspect() -> None:
    derived = over(replace(LAST, kv_cache_usage_ratio=1.7))
    assert one(derived).kv_cache_used_tokens == 1.7 * 8000.0
    assert derived.quality["kv_cache_usage_ratio"] is Quality.SUSPECT
    assert derived.quality["kv_cache_used_tokens"] is Quality.SUSPECT


def test_more_found_than_looked_up_is_shown_and_suspect() -> None:
    """Dynamo's frontend books a prompt with its first token and what of it was cached at its end."""
    derived = over(FIRST, replace(LAST, prefix_cache_queries=1100.0, prefix_cache_hits=1100.0))
    assert one(derived).prefix_cache_hit_ratio == 9.0
    assert derived.quality["prefix_cache_hit_ratio"] is Quality.SUSPECT
    assert "prefix_cache_hit_ratio" not in over(FIRST, LAST).quality


def test_what_is_made_from_a_lagging_signal_lags() -> None:
    snapshots = tuple(
        Snapshot(
            (engine,),
            "vllm",
            0.0,
            at,
            quality={"prefill_tokens_total": Quality.APPROXIMATE, "time_to_first_token_seconds": Quality.LAGGING},
        )
        for engine, at in ((FIRST, 0.0), (LAST, 10.0))
    )
    derived = derive(Window(snapshots), SETTINGS, None)
    assert derived.quality["phase_tokens_per_second_prefill"] is Quality.APPROXIMATE
    assert derived.quality["phase_tokens_per_second_per_gpu"] is Quality.APPROXIMATE
    assert derived.quality["slo_ttft"] is Quality.LAGGING
    assert derived.quality["latency_ttft"] is Quality.CLIPPED
    assert "phase_tokens_per_second_decode" not in derived.quality


def test_one_reading_gives_no_rates_and_says_so() -> None:
    derived = over(LAST)
    assert one(derived).phase_tokens_per_second == {}
    assert one(derived).preemptions_per_second is None
    for signal in (
        "phase_tokens_per_second_prefill",
        "latency_ttft",
        "preemptions_per_second",
        "prefix_cache_hit_ratio",
        "batch_size_mean",
    ):
        assert derived.signals[signal] is Absence.WARMING_UP, signal


def test_nothing_happened_is_idle_not_zero() -> None:
    derived = over(replace(LAST, requests_running=0.0), replace(LAST, requests_running=0.0))
    figures = one(derived)
    assert figures.phase_tokens_per_second == {
        "prefill": 0.0,
        "decode": 0.0,
    }  # counters that stand still are a real zero
    assert figures.batch_utilization_ratio == 0.0
    for signal in ("latency_ttft", "latency_itl", "prefix_cache_hit_ratio", "batch_size_mean", "context_tokens_mean"):
        assert derived.signals[signal] is Absence.IDLE, signal


def test_a_missing_input_hands_on_its_reason() -> None:
    bare = EngineSnapshot("m", "0", decode_tokens_total=1.0)
    absent = {"engine_steps_total": Absence.INVALID, "prefill_tokens_total": Absence.VERSION_UNKNOWN}
    derived = derive(Window((Snapshot((bare,), "vllm", 0.0, 0.0, absent=absent),)), DeriveSettings(), None)
    assert derived.signals["engine_steps_total"] is Absence.INVALID
    assert derived.signals["phase_tokens_per_second_prefill"] is Absence.VERSION_UNKNOWN
    assert derived.signals["batch_limit_requests"] is Absence.NOT_CONFIGURED
    assert derived.signals["batch_utilization_ratio"] is Absence.NOT_CONFIGURED
    assert derived.signals["kv_cache_used_tokens"] is Absence.NOT_EXPORTED
    assert derived.signals["phase_tokens_per_second_per_gpu"] is Absence.GPUS_UNKNOWN
    assert derived.signals["slo_ttft"] is Absence.NOT_CONFIGURED


def test_a_signal_is_available_where_any_engine_has_it() -> None:
    engines = (
        EngineSnapshot("m", "0"),
        EngineSnapshot("m", "1", requests_running=1.0, kv_cache_usage_ratio=0.5, kv_cache_capacity_tokens=10.0),
    )
    for order in (engines, engines[::-1]):
        derived = derive(Window((Snapshot(order, "vllm", 0.0, 0.0),)), SETTINGS, None)
        assert derived.signals["requests_running"] is Absence.AVAILABLE
        assert derived.signals["kv_cache_used_tokens"] is Absence.AVAILABLE


def test_a_restart_gives_no_negative_rate() -> None:
    restarted = replace(FIRST, decode_tokens_total=7.0, prefill_tokens_total=9.0)
    figures = one(over(FIRST, LAST, restarted))
    assert figures.phase_tokens_per_second == {}
