"""The signal table: its rows are sound, a figure is computed once and only when asked for, a circle is refused."""

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
from llm_serving_exporter.derive.signals import Row, Series, gauge
from llm_serving_exporter.derive.table import ENGINE_ROWS, ROWS
from llm_serving_exporter.model.derived import Derived, Range
from llm_serving_exporter.model.hardware import Hardware, Parallel
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.snapshot import Absence
from llm_serving_exporter.model.target import Role
from llm_serving_exporter.model.window import Window
from tests.support.builders.windows import engine, held, pages
from tests.support.models.roofs import H100, LLAMA_8B, served
from tests.support.rows import check_rows
from tests.support.signal_table import list_faults

WINDOW = pages(
    (engine(),), (engine(decoded=64_000.0, steps=1000.0, prompts=9.0, prefill=9000.0, **held(1000, 64)),), seconds=60.0
)
SETTINGS = DeriveSettings({"ttft": 2.0}, hardware=Hardware(H100, Parallel(), 1.0), models={"m": served(LLAMA_8B)})


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
    result = derive(WINDOW, SETTINGS, None)
    assert result.engines[0].series["bandwidth_ceiling_ratio"]["model",] > 0
    assert len(computed_figures) > 60
    assert set(computed_figures.values()) == {1}


def test_what_a_role_silences_is_not_computed_unless_another_figure_needs_it(
    computed_figures: Counter[Figure[Any]],
) -> None:
    derive(WINDOW, replace(SETTINGS, role=Role.FRONTEND), None)
    assert SIZE_MEAN.figure not in computed_figures
    derive(WINDOW, SETTINGS, None)
    assert computed_figures[SIZE_MEAN.figure] == 1


def test_the_order_of_the_rows_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(rows: tuple[Row[Any], ...]) -> list[Derived]:
        monkeypatch.setattr(deriving, "ENGINE_ROWS", rows)
        deriving._list_rows.cache_clear()
        deriving._order_rows.cache_clear()
        first = derive(Window(WINDOW.snapshots[:1]), SETTINGS, None)
        return [first, derive(WINDOW, SETTINGS, first)]

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
    result = derive(Window(WINDOW.snapshots[:1]), SETTINGS, None)
    assert result.signals["preemptions_per_second"] is not Absence.AVAILABLE
    assert names.PREEMPTIONS_PER_SECOND.name not in result.engines[0].series
