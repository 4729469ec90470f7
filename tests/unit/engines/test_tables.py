"""What has to hold for every built-in table: as written, at rest, with labels that nobody knows, on pages that strangers sent."""

import functools
import json
import re
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from llm_serving_exporter.docgen.runtimes import support
from llm_serving_exporter.docgen.tables import ORDER, read_tables
from llm_serving_exporter.engines.check import FIELDS, RUNTIME_NAME, faults, row_faults
from llm_serving_exporter.engines.detect import detect, labels_needed
from llm_serving_exporter.engines.mapping import (
    ERRORS,
    NOT_ADDITIVE,
    Aggregate,
    Fingerprint,
    Mark,
    PageKind,
    Reads,
    Row,
    Runtime,
)
from llm_serving_exporter.engines.registry import RUNTIMES
from llm_serving_exporter.errors import ConfigError
from llm_serving_exporter.fetch.page import PageParser
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.snapshot import EXPORTED_FIELDS, Absence, Quality, Snapshot
from llm_serving_exporter.model.target import Role
from tests.support.builders.golden_cases import CASES
from tests.support.builders.recordings import names, page
from tests.support.builders.snapshots import page_of, snapshot_of
from tests.support.paths import TESTS
from tests.support.rows import check_rows
from tests.support.servers.replica import readings

EACH = check_rows("runtime", RUNTIMES.values(), ids=list(RUNTIMES))


@EACH
def test_it_has_no_faults(runtime: Runtime) -> None:
    assert [str(fault) for fault in faults(runtime)] == []
    asked = [*runtime.endpoints, *runtime.polls]
    assert all(path.startswith("/") for path in (*(each.path for each in asked), *dict(runtime.shows)))


@EACH
def test_every_exported_field_has_a_row_or_a_reason(runtime: Runtime) -> None:
    if runtime.kind is PageKind.NONE or runtime.without_metrics:
        return  # one reason for all of them, as the exporter says it
    read = {row.field for row in runtime.rows}
    assert [field for field in EXPORTED_FIELDS if field not in read and not runtime.missing.get(field)] == []


@EACH
def test_it_speaks_of_fields_that_there_are(runtime: Runtime) -> None:
    assert {row.field for row in runtime.rows} | set(runtime.missing) <= {*FIELDS, ERRORS}


@EACH
def test_every_row_says_where_it_comes_from(runtime: Runtime) -> None:
    assert [row.field for row in runtime.rows if not row.source.startswith("https://")] == []


@EACH
def test_the_pages_that_it_was_held_against_are_there(runtime: Runtime) -> None:
    text = (files("llm_serving_exporter.engines") / "tables" / f"{runtime.name}.yml").read_text()
    assert text.count("\nrecorded: ") == 1  # also where it is none
    assert [name for name in runtime.recorded if name not in names()] == []
    assert bool(runtime.recorded) == bool(runtime.covered)


def test_the_compiled_tables_are_those_of_the_files() -> None:
    """Functions included: `make check` compares the text of the compiled file, which has none."""
    assert read_tables() == RUNTIMES


TABLE = "name: {}\nprefixes: a_\nrecorded: none\n"
ROW = "rows: [{field: requests_running, samples: a_running}]\n"


def test_tables_are_read_after_those_that_they_name(tmp_path: Path) -> None:
    (tmp_path / "fork.yml").write_text(f"{TABLE.format('fork')}based_on: base\n")
    (tmp_path / "late.yml").write_text(
        f"{TABLE.format('late')}rows: [{{field: requests_running, as: fork}}, {{field: requests_waiting, samples: a_w}}]\n"
    )
    (tmp_path / "base.yml").write_text(TABLE.format("base") + ROW)
    tables = read_tables(tmp_path, ("late", "fork", "base"))
    assert list(tables) == ["late", "fork", "base"]
    assert [row.field for row in tables["late"].rows] == ["requests_running", "requests_waiting"]
    assert tables["fork"].rows == tables["base"].rows == tables["late"].rows[:1]


def test_what_is_wrong_with_files_of_tables_is_said_of_all(tmp_path: Path) -> None:
    (tmp_path / "egg.yml").write_text(f"{TABLE.format('egg')}based_on: hen\n")
    (tmp_path / "hen.yml").write_text(f"{TABLE.format('hen')}based_on: egg\n")
    (tmp_path / "new.yml").write_text(TABLE.format("new") + ROW)
    (tmp_path / "bad.yml").write_text(TABLE.format("bad") + ROW.replace("running", "runing"))
    with pytest.raises(ConfigError) as caught:
        read_tables(tmp_path, ("egg", "hen", "bad", "gone"))
    assert [str(problem).removeprefix(f"{tmp_path}/") for problem in caught.value.problems] == [
        "gone.yml: the file does not exist. Check the path.",
        'bad.yml: rows[0].field: there is no field "requests_runing". Did you mean requests_running?',
        "egg.yml: the table is based on itself, by way of others.",
        "hen.yml: the table is based on itself, by way of others.",
        "new.yml: the table has no place in the support matrix. Add new to ORDER of docgen/tables.py.",
    ]


def test_a_compiled_table_shares_rows_with_others() -> None:
    vllm = {id(row) for row in RUNTIMES["vllm"].rows}
    assert sum(id(row) in vllm for row in RUNTIMES["dynamo-worker"].rows) == len(vllm)


@EACH
def test_it_can_be_told_from_others_or_has_to_be_named(runtime: Runtime) -> None:
    """A page of nothing but generic names is nobody's."""
    assert all(one.all_of for one in runtime.fingerprints)
    if runtime.kind is PageKind.METRICS and runtime.prefixes:
        assert runtime.fingerprints or runtime.shows


@check_rows("family", ["vllm:brand_new_total", "llamacpp:gpu_memory_bytes", "trtllm_new"])
def test_a_new_family_is_noticed(family: str) -> None:
    (runtime,) = [
        RUNTIMES[name] for name in ("vllm", "llamacpp", "trtllm") if family.startswith(RUNTIMES[name].prefixes)
    ]
    assert snapshot_of(f"# TYPE {family} counter\n{family} 1\n", runtime=runtime).unmapped_families == (family,)


def test_names_are_given_once() -> None:
    assert tuple(RUNTIMES) == ORDER
    assert all(RUNTIME_NAME.fullmatch(name) and name == runtime.name for name, runtime in RUNTIMES.items())
    titles = [runtime.title for runtime in RUNTIMES.values()]
    assert sorted(set(titles)) == sorted(titles)


@check_rows(
    ("name", "field", "cell"),
    [
        ("vllm", "decode_tokens_total", "exact"),
        ("vllm", "batch_limit_requests", "exact *"),  # by an endpoint that is seldom switched on
        ("vllm", "requests_rejected_total", "exact *"),  # since 0.32
        ("trtllm", "decode_tokens_total", "lagging *"),  # since 1.3, the table from 1.1
        ("trtllm", "time_to_first_token_seconds", "lagging"),
        ("tgi", "prefill_tokens_total", "approx."),
        ("tgi", "preemptions_total", ""),
    ],
)
def test_the_support_matrix_promises_no_more_than_the_oldest_version_has(name: str, field: str, cell: str) -> None:
    assert support(RUNTIMES[name], field) == cell


# --- the check of a table, beyond what the keys of a file say of themselves ---


SOUND = Runtime(
    "acme",
    "ACME Serve",
    (Row("decode_tokens_total", ("acme_tokens_total",)), Row("requests_running", ("acme_running",))),
    prefixes=("acme_",),
    fingerprints=(Fingerprint((Mark("acme_tokens_total"),)),),
)


def said(**changes: Any) -> list[str]:
    return [str(fault) for fault in faults(replace(SOUND, **changes))]


def test_a_sound_table_has_no_faults() -> None:
    assert said() == []


@check_rows(
    ("changes", "expected"),
    [
        ({"name": "Acme"}, 'name: "Acme" is not a name for a runtime. Write lower-case words with dashes, as in acme-serve.'),
        ({"paths": ()}, "paths: there is no path. Write the path of its metrics page, as in [/metrics]."),
        ({"kind": PageKind.JSON}, "read_page: read_page and a page of kind json belong together."),
        ({"read_page": lambda answer: ()}, "read_page: read_page and a page of kind json belong together."),
        ({"missing": {"zebra": "never"}}, "missing.zebra: there is no such field. docs/mapping.md lists the fields."),
        ({"missing": {"requests_running": "never"}}, "missing.requests_running: the field has a row. Keep one of them."),
        (
            {"fingerprints": (Fingerprint(()),)},
            "fingerprints[0]: it names nothing that has to be on the page. Write what only this runtime has on its page.",
        ),
        (
            {"default_edges": {"ttft": (float("nan"),)}},
            "default_edges.ttft: the edges are not positive and ascending. Write seconds, the smallest first.",
        ),
    ],
)  # fmt: skip
def test_a_fault_of_a_runtime(changes: dict[str, Any], expected: str) -> None:
    assert said(**changes) == [expected]


def test_a_server_without_a_page_of_its_own_needs_neither_rows_nor_prefixes() -> None:
    assert said(kind=PageKind.NONE, rows=(), prefixes=(), fingerprints=()) == []


def test_a_page_without_prefixes_needs_a_sample_that_only_it_has() -> None:
    assert said(prefixes=()) == []
    generic = Row("http_responses_total", ("http_requests_total",), by="status")
    assert [text.split(":")[0] for text in said(prefixes=(), rows=(generic,))] == ["prefixes"]


def test_a_generic_mark_beside_one_of_its_own_is_no_fault() -> None:
    both = Fingerprint((Mark("http_requests_total"), Mark("acme_tokens_total")))
    assert said(fingerprints=(both,)) == []
    assert len(said(fingerprints=(replace(both, all_of=both.all_of[:1]),))) == 1


def test_a_gauge_is_born_later_only_where_counters_are() -> None:
    rows = (SOUND.rows[0], replace(SOUND.rows[1], born_at_first_event=True))
    assert said(rows=rows, born_at_first_event=True) == []
    (fault,) = said(rows=rows)
    assert fault.startswith("rows[1].born_at_first_event: it has no effect where counters are there from the start")


def test_rows_that_differ_in_texts_only_are_the_same() -> None:
    again = replace(SOUND.rows[0], caveat="another", source="https://example.com")
    assert said(rows=(*SOUND.rows, again)) == ["rows[2]: an earlier row reads the same. Remove it."]
    assert said(rows=(*SOUND.rows, replace(again, versions=">=2"))) == []


@check_rows(
    ("row", "places"),
    [
        (Row("model_name", ("acme",)), ["field"]),
        (Row("requests_running", ("acme",), multiprocess_quality=Quality.SLOW), ["refresh"]),
        # a gauge that freezes says with that how slow it is: as slow as requests end
        (Row("requests_running", ("acme",), quality=Quality.SLOW, freezes=True), []),
        (Row("requests_running", ("acme",), quality=Quality.LAGGING, refresh_seconds=10.0), []),
        (Row("requests_running", ("acme",), born_at_first_event=True), []),
        (Row("preemptions_total", ("acme",), born_at_first_event=True), ["born_at_first_event"]),
        (Row("requests_running", ("acme",), scale=float("nan")), ["scale"]),
        (Row("decode_tokens_live", ("acme",), may_fall=True), []),
        (Row("role", ("acme",), Reads.TEXT, labels=("role",), rename={"p": "prefill"}), []),
        (Row("requests_finished_total", ("a", "b"), named={"a": "stop", "b": "error"}), []),
        (Row("requests_finished_total", ("a", "b"), by="why", named={"b": "error"}), []),
        (Row("kv_cache_usage_ratio", ("a",), over=("b",), agrees="c"), []),
        (Row("kv_cache_capacity_tokens", ("a",), times=("b",), aggregate=Aggregate.MAX), ["aggregate"]),
    ],
)  # fmt: skip
def test_a_fault_of_a_row(row: Row, places: list[str]) -> None:
    assert [str(fault.path[0]) for fault in row_faults(row)] == places


# --- A page of a server that has worked on nothing yet ---


DYNAMO = RUNTIMES["dynamo-worker"]
SGLANG = RUNTIMES["sglang"]
TRTLLM = RUNTIMES["trtllm"]

RUNS = {"sglang-0.5.23": SGLANG, "trtllm-050f80de": TRTLLM, "dynamo-1.6.1-worker": DYNAMO}
WORK = (
    "prompt_tokens_total", "prefill_tokens_total", "decode_tokens_total", "requests_finished_total",
    "e2e_request_latency_seconds",
)  # fmt: skip
GAUGES = ("requests_running", "requests_waiting", "kv_cache_usage_ratio")


def read_at_rest(run: str, number: int, version: str | None = None, *, without: str = "", more: str = "") -> Snapshot:
    """The recorded page, without the lines of families that match, with more at its end."""
    lines = page(run, number).decode().splitlines(keepends=True)
    kept = [line for line in lines if not (without and re.match(rf"(# \w+ )?({without})", line))]
    return snapshot_of("".join(kept) + more, version, runtime=RUNS[run])


def reasons(snapshot: Snapshot, *fields: str) -> set[Absence | None]:
    return {snapshot.absent.get(field) for field in fields}


@pytest.mark.parametrize("run", RUNS)
def test_all_that_comes_with_work_is_waited_for(run: str) -> None:
    assert reasons(read_at_rest(run, 0), *WORK) == {Absence.IDLE}


@pytest.mark.parametrize("version", [None, "0.5.23"])
def test_counters_of_the_prefix_cache_that_stand_at_0_from_the_start_are_no_work(version: str | None) -> None:
    sglang = read_at_rest("sglang-0.5.23", 0, version)
    (engine,) = sglang.engines
    assert (engine.prefix_cache_query_tokens_total, engine.prefix_cache_hit_tokens_total) == (0, 0)
    assert reasons(sglang, *WORK, "engine_steps_total", "inter_token_latency_seconds") == {Absence.IDLE}
    (engine,) = read_at_rest("trtllm-050f80de", 0).engines
    assert engine.cached_prompt_tokens_total == 0


def test_http_answers_are_no_work() -> None:
    """The first request was refused as a mistake of the client's."""
    mistake = 'sglang:http_responses_total{endpoint="/generate",method="POST",status_code="400"} 1.0\n'
    snapshot = read_at_rest("sglang-0.5.23", 0, more=mistake)
    assert snapshot.engines[0].http_responses_total == {"4xx": 1}
    assert reasons(snapshot, *WORK) == {Absence.IDLE}


@pytest.mark.parametrize(
    "first",
    [
        'sglang:realtime_tokens_total{model_name="m",mode="prefill_compute"} 5\n',
        'sglang:num_requests_total{model_name="m"} 1\n',
        'sglang:queue_time_seconds_count{model_name="m"} 1\n',
    ],
)
def test_with_the_first_work_what_is_missing_is_not_waited_for_any_more(first: str) -> None:
    snapshot = read_at_rest("sglang-0.5.23", 0, more=first)
    assert reasons(snapshot, "prompt_tokens_total", "e2e_request_latency_seconds") == {Absence.NOT_EXPORTED}


@check_rows(
    ("run", "number", "families", "field"),
    [
        ("sglang-0.5.23", 46, "sglang:request_time_per_output_token", "time_per_output_token_seconds"),
        ("sglang-0.5.23", 46, "sglang:cuda_graph_passes", "engine_steps_total"),
        ("sglang-0.5.23", 46, "sglang:num_running_reqs", "requests_running"),
        ("trtllm-050f80de", 46, "trtllm_request_prefill_time", "request_prefill_time_seconds"),
        ("trtllm-050f80de", 160, "trtllm_num_requests_running", "requests_running"),
        ("trtllm-050f80de", 160, "trtllm_kv_cache_max_blocks", "kv_cache_capacity_tokens"),
    ],
)
def test_what_a_server_at_work_lacks_it_does_not_export(run: str, number: int, families: str, field: str) -> None:
    assert getattr(read_at_rest(run, number).engines[0], field) is not None
    assert read_at_rest(run, number, without=families).absent[field] is Absence.NOT_EXPORTED


def test_what_its_version_lacks_is_not_waited_for() -> None:
    snapshot = read_at_rest("sglang-0.5.23", 0, "0.5.10")
    assert snapshot.absent["time_per_output_token_seconds"] is Absence.NOT_EXPORTED
    assert reasons(snapshot, *WORK) == {Absence.IDLE}
    # nor what no row reads, whatever the version
    assert (
        read_at_rest("sglang-0.5.23", 0).absent.get("request_decode_time_seconds", Absence.NOT_EXPORTED)
        is Absence.NOT_EXPORTED
    )


def test_a_counter_that_is_there_and_cannot_be_read_keeps_its_reason_and_says_that_there_was_work() -> None:
    twice = 'sglang:num_requests_total{model_name="m"} 1\n' * 2
    snapshot = read_at_rest("sglang-0.5.23", 0, more=twice)
    assert snapshot.absent["requests_finished_total"] is Absence.DUPLICATE
    assert snapshot.absent["e2e_request_latency_seconds"] is Absence.NOT_EXPORTED


def test_gauges_that_are_born_with_the_first_request_are_waited_for_too() -> None:
    snapshot = read_at_rest("trtllm-050f80de", 0)
    assert reasons(snapshot, *GAUGES, "batch_limit_requests", "kv_cache_capacity_tokens") == {Absence.IDLE}
    # a label of a series that is there from the start: it is not set, and no request sets it
    assert snapshot.absent["context_limit_tokens"] is Absence.NOT_EXPORTED
    # SGLang's where they are set with the first batch
    assert reasons(
        read_at_rest("sglang-0.5.23", 0, without="sglang:(num_|token_usage|full_token_usage|pending)"), *GAUGES
    ) == {Absence.IDLE}
    # five families were all that 1.1 had
    assert reasons(read_at_rest("trtllm-050f80de", 0, "1.1.0"), *GAUGES) == {Absence.NOT_EXPORTED}


def test_errors_may_be_told_apart_by_what_is_waited_for() -> None:
    assert read_at_rest("trtllm-050f80de", 0).errors_counted
    assert not read_at_rest("trtllm-050f80de", 0, "1.1.0").errors_counted


def test_a_table_that_counts_no_work_is_at_rest_while_it_has_counted_nothing() -> None:
    rows = tuple(
        row for row in TRTLLM.rows if row.field in ("http_responses_total", "cached_prompt_tokens_total", *GAUGES)
    )
    table = Runtime("made-up", "Made Up", rows, ("trtllm_",), born_at_first_event=True)
    info = 'trtllm_num_requests_waiting{model_name="m"} 0\n'
    assert snapshot_of(info, None, runtime=table).absent["http_responses_total"] is Absence.IDLE
    counted = f"{info}trtllm_prompt_cached_tokens_total 0\n"
    assert snapshot_of(counted, None, runtime=table).absent["http_responses_total"] is Absence.NOT_EXPORTED


# --- A label that no table knows, put on every runtime's own pages ---


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
    "instance", "pod", "exported_pod", "k8s_pod_name", "kubernetes_pod_name", "service_instance_id", "replica",
    "HostName",
)  # fmt: skip


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


# --- pages that strangers sent ---


def sent_page(name: str) -> str:
    return (FIELD / f"{name}.prom").read_text()


def test_two_replicas_on_a_page_of_federate_are_two_engines() -> None:
    found = readings([{"/metrics": sent_page("federate-two-replicas")}])[0].page.snapshot
    assert {
        one.engine: (one.requests_running, one.kv_cache_usage_ratio, one.kv_cache_capacity_tokens)
        for one in found.engines
    } == {"chat-0/0": (8, 0.25, 320_000), "chat-1/0": (3, 0.60, 320_000)}


def test_two_deployments_behind_a_front_end_have_the_limit_that_both_state() -> None:
    text = sent_page("dynamo-two-namespaces")
    found = readings([{"/metrics": text}])[0].page.snapshot
    assert [one.context_limit_tokens for one in found.engines] == [32_768]
    other = re.sub(r'(context_length\{dynamo_namespace="green".*\}) \S+', r"\1 65536", text)
    assert other != text
    reading = readings([{"/metrics": other}])[0]
    assert reading.page.snapshot.absent["context_limit_tokens"] is Absence.INCONSISTENT
    assert "dynamo_namespace" in reading.server.missing["context_limit_tokens"]


def test_the_kv_cache_of_a_hybrid_model_is_not_its_fullest_pool() -> None:
    reading = readings([{"/metrics": sent_page("sglang-hybrid-state-pool")}], runtime="sglang")[0]
    (engine,), (derived,) = reading.page.snapshot.engines, reading.page.derived.engines
    assert (engine.kv_cache_usage_ratio, engine.state_cache_usage_ratio) == (0.12, 0.92)
    assert derived.kv_cache_used_tokens == 120_000
    assert derived.context_tokens_mean == derived.kv_cache_tokens_per_request == 2000


PARALLEL = {"tensor_parallel_size": 4, "decode_context_parallel_size": 4, "prefill_context_parallel_size": 2}


@pytest.mark.parametrize(
    ("more", "capacity"),
    [
        ({}, 20_000 * 16 * 4 * 2),
        ({"attention_context_parallel_size": 1}, 20_000 * 16 * 4 * 2),
        ({"attention_context_parallel_size": 2}, None),
    ],
)
def test_a_capacity_has_every_factor_or_is_absent(more: dict[str, int], capacity: int | None) -> None:
    info = json.dumps({"vllm_config": {"parallel_config": {**PARALLEL, **more}}})
    text = sent_page("prefill-context-parallel").replace("process_start_time_seconds @START\n", "")
    routes = {"/metrics": text, "/server_info": info, "/version": json.dumps({"version": "0.21.0"})}
    found = readings([routes, routes])[-1]
    (engine,) = found.page.snapshot.engines
    assert engine.kv_cache_capacity_tokens == capacity
    if capacity is None:
        assert found.page.snapshot.absent["kv_cache_capacity_tokens"] is Absence.LAYOUT_UNREAD
