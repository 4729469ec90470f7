"""A label that no table knows, put on every runtime's own pages: what counts is added up, what does not add up is never summed."""

from __future__ import annotations

import functools
import re

from llm_serving_exporter.engines.detect import detect, labels_needed
from llm_serving_exporter.engines.mapping import NOT_ADDITIVE, Aggregate, Reads, Runtime
from llm_serving_exporter.engines.registry import RUNTIMES
from llm_serving_exporter.fetch.page import PageParser
from llm_serving_exporter.model.snapshot import Absence, Snapshot
from llm_serving_exporter.model.target import Role
from tests.support.builders.golden_cases import CASES
from tests.support.builders.snapshots import page_of, snapshot_of
from tests.support.paths import TESTS
from tests.support.rows import check_rows

FIELD = TESTS / "made/field"
ADDED = ("prompt_tokens_total", "prefill_tokens_total", "decode_tokens_total", "preemptions_total")
_SAMPLE = re.compile(r"^([A-Za-z_:][\w:]*)(?:\{(.*)\})? (\S+)(.*)$")


def label_twice(page: str, label: str, factor: float = 1.0, values: tuple[str, str] = ("a", "b")) -> str:
    """Every series twice, told apart by the label; the second's value times `factor`."""
    lines = []
    for line in page.splitlines():
        sample = _SAMPLE.match(line)
        if sample is None:
            lines.append(line)
            continue
        name, labels, value, rest = sample.groups()
        for each, times in zip(values, (1.0, factor), strict=True):
            told = ",".join(part for part in (labels, f'{label}="{each}"') if part)
            number = value if times == 1.0 else repr(float(value) * times)
            lines.append(f"{name}{{{told}}} {number}{rest}")
    return "\n".join(lines) + "\n"


@functools.cache
def list_pages() -> dict[str, tuple[Runtime, str]]:
    """The page of each golden that is in the text format and shows an engine, with its runtime."""
    found = {}
    for name, case in CASES.items():
        body = next(bytes(step[case.path]) for step in reversed(case.steps()) if case.path in step)
        runtime = detect(PageParser(labels_needed()).parse(page_of(body.decode())).layout).runtime
        if runtime is not None and runtime.role is not Role.FRONTEND and read(runtime, body.decode()).engines:
            found[name] = (runtime, body.decode())
    return found


def read(runtime: Runtime, text: str) -> Snapshot:
    return snapshot_of(text, None, runtime=runtime)


def test_there_are_pages_of_many_runtimes() -> None:
    assert len({runtime.name for runtime, _ in list_pages().values()}) >= 10


@check_rows("name", list_pages)
def test_what_counts_is_added_up_and_what_does_not_add_up_is_what_all_series_say(name: str) -> None:
    runtime, text = list_pages()[name]
    once, twice = read(runtime, text), read(runtime, label_twice(text, "stage_of_nobody"))
    assert [(one.model_name, one.engine) for one in twice.engines] == [
        (one.model_name, one.engine) for one in once.engines
    ]
    for one, two in zip(once.engines, twice.engines, strict=True):
        for field in ADDED:
            value = getattr(one, field)
            assert getattr(two, field) == (None if value is None else 2 * value), field
        for field in NOT_ADDITIVE:
            # a product of several series is refused where one of them is there twice, and what there may be one of only
            assert getattr(two, field) in (getattr(one, field), None), field
            if getattr(two, field) is None and getattr(one, field) is not None:
                duplicate = twice.absent[field] is Absence.DUPLICATE
                assert duplicate or twice.foreign_labels[field] == "stage_of_nobody"


@check_rows("name", list_pages)
def test_where_the_series_differ_the_field_is_absent_with_the_labels_name(name: str) -> None:
    runtime, text = list_pages()[name]
    once, twice = read(runtime, text), read(runtime, label_twice(text, "stage_of_nobody", 0.5))
    stated = {row.field for row in runtime.rows if row.aggregate in (Aggregate.MAX, Aggregate.ONE)}
    for one, two in zip(once.engines, twice.engines, strict=True):
        for field in NOT_ADDITIVE - stated:
            value = getattr(one, field)
            if not isinstance(value, float) or value == 0 or runtime_says_it_in_labels(runtime, field):
                continue
            assert getattr(two, field) is None, (field, value, getattr(two, field))
            assert twice.absent[field] is Absence.INCONSISTENT, field
            assert twice.foreign_labels[field] == "stage_of_nobody"


def runtime_says_it_in_labels(runtime: Runtime, field: str) -> bool:
    """Labels of an info series are the same twice, whatever its value."""
    return any(row.field == field and (row.reads is not Reads.VALUE or row.times_label) for row in runtime.rows)


REPLICAS = (
    "instance",
    "pod",
    "exported_pod",
    "k8s_pod_name",
    "kubernetes_pod_name",
    "service_instance_id",
    "replica",
    "HostName",
)


@check_rows("label", REPLICAS)
@check_rows("name", [name for name in CASES if name.startswith(("vllm-0.32-s", "sglang-0.5.23-s", "tgi", "lmdeploy"))])
def test_a_label_that_names_replicas_makes_engines(name: str, label: str) -> None:
    runtime, text = list_pages()[name]
    once, twice = read(runtime, text), read(runtime, label_twice(text, label, values=("x", "y")))
    (one,) = (engine for engine in once.engines if engine.is_engine)
    engines = [engine for engine in twice.engines if engine.is_engine]
    assert [engine.engine for engine in engines] == [f"x/{one.engine}", f"y/{one.engine}"]
    for engine in engines:
        for field in (*ADDED, *NOT_ADDITIVE):
            assert getattr(engine, field) == getattr(one, field), field


# --- a counter whose name lacks _total --------------------------------------------------------------------------------------


def drop_total(page: str) -> str:
    """Counters under their names without the suffix, by their TYPE; histograms and gauges keep theirs."""
    types = dict(re.findall(r"^# TYPE (\S+) (\w+)", page, re.MULTILINE))
    counters = {name for name, told in types.items() if told == "counter" and name.endswith("_total")}
    lines = []
    for line in page.splitlines():
        name = re.match(r"(?:# (?:TYPE|HELP) )?([A-Za-z_:][\w:]*)", line)
        if name and name[1] in counters:
            line = line.replace(name[1], name[1].removesuffix("_total"), 1)
        lines.append(line)
    return "\n".join(lines) + "\n"


@check_rows("name", list_pages)
def test_a_counter_is_read_without_its_suffix_where_its_type_says_counter(name: str) -> None:
    runtime, text = list_pages()[name]
    assert read(runtime, drop_total(text)).engines == read(runtime, text).engines


def test_a_gauge_of_the_bare_name_is_no_counter() -> None:
    text = drop_total(list_pages()["vllm-0.32-saturated"][1])
    gauges = re.sub(r"^(# TYPE vllm:\S+) counter$", r"\1 gauge", text, flags=re.MULTILINE)
    (engine,) = read(RUNTIMES["vllm"], gauges).engines
    assert engine.prompt_tokens_total is engine.decode_tokens_total is None


def test_llm_ds_simulator_counts_what_its_client_sent() -> None:
    """Two pages of it around 20 requests of 556 prompt tokens, 348 generated and none cached; 60 with 1,916 in all."""
    before, after = (
        read(RUNTIMES["vllm"], (FIELD / f"simulator-no-total-{which}.prom").read_text()).engines[0]
        for which in ("before", "after")
    )
    assert (after.prefix_cache_query_tokens_total, after.prefix_cache_hit_tokens_total) == (1916, 0)
    for field, told in (
        ("prefix_cache_query_tokens_total", 556),
        ("prefill_tokens_total", 556),
        ("decode_tokens_total", 348),
    ):
        assert getattr(after, field) - getattr(before, field) == told, field
