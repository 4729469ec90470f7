"""Derived figures, worked out by hand beside each assertion; what signals mean by role; the table that makes them."""

from collections import Counter
from graphlib import CycleError
from itertools import permutations
from typing import Any

import pytest
from msgspec import structs

from llm_serving_exporter.catalogue import derived as names
from llm_serving_exporter.catalogue.health import TARGET_UP
from llm_serving_exporter.catalogue.roofline import ROOFLINE
from llm_serving_exporter.catalogue.spec import SERVING_LABELS
from llm_serving_exporter.derive import derive as deriving
from llm_serving_exporter.derive.batch import SIZE_MEAN
from llm_serving_exporter.derive.derive import DeriveSettings, derive
from llm_serving_exporter.derive.figures import Computed, Figure, figure, given, order_figures
from llm_serving_exporter.derive.kv import HIT_RATIO
from llm_serving_exporter.derive.lengths import follow_lengths
from llm_serving_exporter.derive.signals import Row, Series, gauge
from llm_serving_exporter.derive.table import ENGINE_ROWS, ROWS
from llm_serving_exporter.derive.window import advance_window, has_restarted
from llm_serving_exporter.model.derived import Derived, EngineDerived, Range
from llm_serving_exporter.model.hardware import Hardware, Parallel
from llm_serving_exporter.model.numbers import Histogram
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.snapshot import Absence, EngineSnapshot, Quality, Snapshot
from llm_serving_exporter.model.target import Role
from llm_serving_exporter.model.window import Spans, Window
from tests.support.builders.windows import MINUTE, engine, held, pages
from tests.support.models.roofs import H100, LLAMA_8B, served
from tests.support.rows import check_rows
from tests.support.signal_table import list_faults

# --- Derived figures, worked out by hand beside each assertion


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
    for place, shown in enumerate(engines):
        snapshot = Snapshot((shown,), "vllm", 0.0, place * seconds)
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


# --- Which signals mean what on a replica that does one phase only, and on a front end (facts runtimes-others 18)


MODEL = served(LLAMA_8B)
PREFILLS = {"phase_ceiling_tokens_per_second_prefill"}
DECODES = {
    "decode_ceiling_tokens_per_second", "decode_ceiling_ratio", "batch_ridge_size", "phase_ceiling_tokens_per_second_decode",
}  # fmt: skip


def derived(role: Role) -> Derived:
    # a context that is short enough for decode to have a ridge
    first = engine(decoded=0, steps=0, prompts=0, prefill=0, kv_cache_usage_ratio=0.002, kv_cache_capacity_tokens=1e5,
                   prefix_cache_queries=0.0, prefix_cache_hits=0.0)  # fmt: skip
    last = engine(decoded=6000, steps=1000, prompts=60, prefill=6000, finished=600, prompt=100, output=100, kv_cache_usage_ratio=0.002,
                  kv_cache_capacity_tokens=1e5, prefix_cache_queries=60_000.0, prefix_cache_hits=59_000.0)  # fmt: skip
    snapshots = tuple(Snapshot((one,), "any", at, at) for one, at in ((first, 0.0), (last, MINUTE)))
    settings = DeriveSettings(
        {"ttft": 2.0, "itl": 0.1, "e2e": 10.0}, hardware=Hardware(H100, Parallel(), 1.0), models={"m": MODEL}, role=role,
        lengths=follow_lengths({}, snapshots[-1]),
    )  # fmt: skip
    return derive(Window(snapshots), settings, None)


@check_rows(
    ("role", "silent"),
    [
        (Role.UNIFIED, set()),
        (Role.PREFILL, {*DECODES, "slo_ttft", "slo_itl", "slo_e2e"}),
        (Role.DECODE, {*PREFILLS, "slo_ttft", "slo_e2e", "prefix_cache_hit_ratio"}),
        (
            Role.FRONTEND,
            {
                *PREFILLS, *DECODES, "bandwidth_ceiling_bytes_per_second", "bandwidth_ceiling_ratio_model", "bandwidth_ceiling_ratio_gpm",
                "bandwidth_ceiling_ratio_dcgm", "bandwidth_ceiling_ratio_runtime", "compute_ceiling_ratio", "phase_busy_ratio",
                "phase_busy_seconds_total", "phase_tokens_per_second_per_gpu", "phase_reference_seconds_per_token", "limiter",
                "gpu_memory_bytes_estimate", "batch_size_mean", "batch_utilization_ratio", "batch_limit_requests", "requests_running",
                "kv_cache_usage_ratio", "kv_cache_capacity_tokens", "kv_cache_used_tokens", "context_tokens_mean",
                "long_context_kv_share_ratio", "long_context_requests_fit",
            },
        ),
    ],
)  # fmt: skip
def test_what_a_role_does_not_have_is_absent_with_that_reason(role: Role, silent: set[str]) -> None:
    others = {signal for signal, why in derived(role).signals.items() if why is Absence.OTHER_ROLE}
    assert others == silent


def test_decode_of_a_prefill_replica_is_not_held_against_the_bandwidth_ceiling() -> None:
    unified, prefill = derived(Role.UNIFIED).engines[0].roofline, derived(Role.PREFILL).engines[0].roofline
    of_decode = (
        "decode_ceiling",
        "decode_ceiling_upper",
        "decode_ratio",
        "batch_ridge",
        "weights_ridge",
        "step_floor_seconds",
        "ridge_flops_per_byte",
    )
    for field in of_decode:
        assert getattr(unified, field) is not None, field
    # its compute and its memory traffic are its own
    own = {"prefill": unified.phase_ceiling["prefill"]}
    assert prefill == replace(unified, **dict.fromkeys(of_decode), phase_ceiling=own)


def test_what_a_replica_could_do_is_said_of_its_own_phase_only() -> None:
    both = derived(Role.UNIFIED).engines[0].roofline.phase_ceiling
    assert set(both) == {"prefill", "decode"}
    assert derived(Role.PREFILL).engines[0].roofline.phase_ceiling == {"prefill": both["prefill"]}
    assert derived(Role.DECODE).engines[0].roofline.phase_ceiling == {"decode": both["decode"]}
    assert derived(Role.FRONTEND).engines[0].roofline.phase_ceiling == {}


def test_the_users_first_token_is_counted_by_nobody_but_the_front_end_or_a_unified_replica() -> None:
    assert set(derived(Role.UNIFIED).engines[0].slo) == {"ttft", "itl"}
    assert set(derived(Role.PREFILL).engines[0].slo) == set()
    assert set(derived(Role.DECODE).engines[0].slo) == {"itl"}
    assert set(derived(Role.FRONTEND).engines[0].slo) == {"ttft", "itl"}


def test_hits_of_a_decode_replica_say_nothing_about_its_prefix_cache() -> None:
    assert derived(Role.UNIFIED).engines[0].prefix_cache_hit_ratio == pytest.approx(59 / 60)
    assert derived(Role.DECODE).engines[0].prefix_cache_hit_ratio is None


def test_a_front_end_has_no_roofline_and_no_verdict() -> None:
    found = derived(Role.FRONTEND)
    assert found.verdict is None
    assert found.engines[0].roofline.ratio == {}
    assert found.engines[0].busy is None
    assert found.engines[0].phase_tokens_per_second["decode"] == pytest.approx(6060 / MINUTE)


def test_a_front_end_has_lengths_but_no_cache_that_they_fill() -> None:
    unified, front = derived(Role.UNIFIED).engines[0].tail, derived(Role.FRONTEND).engines[0].tail
    assert unified.observed == 600
    assert unified.kv_share_ratio is not None
    assert unified.requests_fit["lower"] == pytest.approx(1e5 / (101 + 100))  # the upper edge of its bucket
    assert front == replace(unified, kv_share_ratio=None, requests_fit={})


@pytest.mark.parametrize("role", [Role.PREFILL, Role.DECODE])
def test_a_replica_of_one_phase_holds_the_whole_context(role: Role) -> None:
    assert derived(role).engines[0].tail == derived(Role.UNIFIED).engines[0].tail


# --- The signal table: its rows are sound, a figure is computed once and only when asked for, a circle is refused


WINDOW = pages(
    (engine(),), (engine(decoded=64_000.0, steps=1000.0, prompts=9.0, prefill=9000.0, **held(1000, 64)),), seconds=60.0
)
TABLE_SETTINGS = DeriveSettings({"ttft": 2.0}, hardware=Hardware(H100, Parallel(), 1.0), models={"m": served(LLAMA_8B)})


def counted(into: Counter[Figure[Any]], one: Figure[Any], done: dict[Figure[Any], Figure[Any]]) -> Figure[Any]:
    """The figure with a count of how often it is computed, and its inputs likewise."""
    if one.compute is None:
        return one
    if one not in done:
        compute, inputs = one.compute, tuple(counted(into, part, done) for part in one.inputs)

        def computed(*values: Any) -> Any:
            into[one] += 1
            return compute(*values)

        done[one] = Figure(one.name, computed, inputs)
    return done[one]


@pytest.fixture
def computed_figures(monkeypatch: pytest.MonkeyPatch) -> Counter[Figure[Any]]:
    """How often each figure of the table was computed."""
    found: Counter[Figure[Any]] = Counter()
    done: dict[Figure[Any], Figure[Any]] = {}
    wrapped: dict[int, Row[Any]] = {}
    for row in ROWS:
        others = {
            name: counted(found, part, done)
            for name in ("quality", "cause", "fields_read")
            if (part := getattr(row, name)) is not None
        }
        wrapped[id(row)] = replace(row, figure=counted(found, row.figure, done), **others)
    rows = tuple(wrapped[id(row)] for row in ENGINE_ROWS)
    monkeypatch.setattr(deriving, "ENGINE_ROWS", rows)
    remembering = (deriving._list_rows, deriving._list_tick_rows, deriving._order_rows, deriving._order_tick_rows)
    for listed in remembering:  # what they remember is of the real rows
        listed.cache_clear()
    yield found
    for listed in remembering:
        listed.cache_clear()


def test_the_table_is_sound() -> None:
    assert list_faults() == []


def test_every_metric_of_an_engine_is_published_by_some_row() -> None:
    declared = {
        metric.name for metric in (*names.DERIVED, *ROOFLINE) if metric.labels[: len(SERVING_LABELS)] == SERVING_LABELS
    }
    assert {series.metric.name for row in ROWS for series in row.series} == declared


@check_rows(
    ("row", "fault"),
    [
        (HIT_RATIO, "prefix_cache_hit_ratio stands in two rows"),
        (gauge(names.CONTEXT_TOKENS_MEAN, HIT_RATIO.figure, fields=("requests_runing",)), "'requests_runing', which is no field"),
        (replace(HIT_RATIO, name="requests_running"), "requests_running is a field of the page"),
        (replace(HIT_RATIO, name="new", explained_by="requests_waiting"), "new is explained by 'requests_waiting'"),
        (replace(HIT_RATIO, name="new", series=(Series(TARGET_UP),)), "labels that target_up does not declare"),
        (replace(HIT_RATIO, name="new", series=(Series(names.BATCH_SIZE_MEAN, ("prefill",)),)), "labels that batch_size_mean"),
        (
            replace(HIT_RATIO, name="new", series=(Series(replace(names.BATCH_SIZE_MEAN, name="batch_size_median")),)),
            "batch_size_median, which the catalogue does not list",
        ),
        (replace(HIT_RATIO, name=""), "has no name, so its reasons are never shown"),
    ],
)  # fmt: skip
def test_a_fault_of_a_row_is_named(row: Row[Any], fault: str) -> None:
    assert any(fault in found for found in list_faults((*ROWS, row)))


def test_a_figure_is_computed_at_most_once_for_an_engine_whoever_asks(computed_figures: Counter[Figure[Any]]) -> None:
    result = derive(WINDOW, TABLE_SETTINGS, None)
    assert result.engines[0].series["bandwidth_ceiling_ratio"]["model",] > 0
    assert len(computed_figures) > 60
    assert set(computed_figures.values()) == {1}


def test_what_a_role_silences_is_not_computed_unless_another_figure_needs_it(
    computed_figures: Counter[Figure[Any]],
) -> None:
    derive(WINDOW, replace(TABLE_SETTINGS, role=Role.FRONTEND), None)
    assert SIZE_MEAN.figure not in computed_figures
    derive(WINDOW, TABLE_SETTINGS, None)
    assert computed_figures[SIZE_MEAN.figure] == 1


def test_the_order_of_the_rows_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(rows: tuple[Row[Any], ...]) -> list[Derived]:
        monkeypatch.setattr(deriving, "ENGINE_ROWS", rows)
        deriving._list_rows.cache_clear()
        deriving._order_rows.cache_clear()
        first = derive(Window(WINDOW.snapshots[:1]), TABLE_SETTINGS, None)
        return [first, derive(WINDOW, TABLE_SETTINGS, first)]

    try:
        straight, reversed_ = run(ENGINE_ROWS), run(ENGINE_ROWS[::-1])
    finally:
        monkeypatch.undo()
        deriving._list_rows.cache_clear()
        deriving._order_rows.cache_clear()
    assert reversed_ == straight
    assert straight[1].engines[0].busy is not None


def test_a_figure_that_nobody_asks_for_is_not_computed() -> None:
    asked: list[str] = []
    base: Figure[float] = given("base")
    double = figure(lambda value: asked.append("double") or 2 * value, base)
    other = figure(lambda value: asked.append("other") or value, double)
    found = Computed({base: 2.0})
    assert asked == []
    assert found.value(double) == found.value(double) == 4.0
    assert asked == ["double"]
    assert found.value(other) == 4.0
    assert asked == ["double", "other"]


def test_what_was_not_handed_in_is_named() -> None:
    missing: Figure[float] = given("thresholds")
    with pytest.raises(LookupError, match="the figure 'thresholds' was not handed in"):
        Computed({}).value(figure(abs, missing))


def test_an_order_has_each_figure_after_its_inputs() -> None:
    base: Figure[float] = given("base")
    first = figure(abs, base)
    second = figure(abs, first)
    third = figure(max, first, second)
    for wanted in permutations((first, second, third)):
        assert order_figures(wanted) == (first, second, third)


def test_a_circle_is_refused() -> None:
    first: Figure[float] = figure(abs, given("base"))
    second = figure(abs, first)
    # it cannot be written down; by force it is found
    structs.force_setattr(first, "inputs", (second,))
    with pytest.raises(CycleError):
        order_figures([second])


@check_rows(
    ("series", "value", "samples"),
    [
        (Series(names.PREEMPTIONS_PER_SECOND), 0.5, {(): 0.5}),
        (Series(names.PHASE_TOKENS_PER_SECOND, ("decode",)), 0.5, {("decode",): 0.5}),
        (Series(names.PHASE_TOKENS_PER_SECOND), {"decode": 1.0, "prefill": 2.0}, {("decode",): 1.0, ("prefill",): 2.0}),
        (Series(names.LONG_CONTEXT_KV_SHARE), Range(1.0, 2.0, 3.0), {("lower",): 1.0, ("expected",): 2.0, ("upper",): 3.0}),
        (Series(names.WINDOW_LATENCY_SECONDS, ("ttft",)), {"p50": 1.0}, {("ttft", "p50"): 1.0}),
        (Series(names.BATCH_SIZE_MEAN, part=lambda value: None), 0.5, {}),
    ],
)  # fmt: skip
def test_how_a_value_becomes_series(series: Series, value: object, samples: dict[tuple[str, ...], float]) -> None:
    assert series.samples(value) == samples


def test_a_row_without_a_value_is_absent_and_never_0() -> None:
    result = derive(Window(WINDOW.snapshots[:1]), TABLE_SETTINGS, None)
    assert result.signals["preemptions_per_second"] is not Absence.AVAILABLE
    assert names.PREEMPTIONS_PER_SECOND.name not in result.engines[0].series
