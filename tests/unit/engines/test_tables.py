"""What has to hold for every built-in table."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import pytest

from llm_serving_exporter.docgen.runtimes import support
from llm_serving_exporter.docgen.tables import ORDER, read_tables
from llm_serving_exporter.engines.check import FIELDS, RUNTIME_NAME, faults
from llm_serving_exporter.engines.mapping import ERRORS, PageKind, Runtime
from llm_serving_exporter.engines.registry import RUNTIMES
from llm_serving_exporter.errors import ConfigError
from llm_serving_exporter.model.snapshot import EXPORTED_FIELDS
from tests.support.builders.recordings import names
from tests.support.rows import check_rows

EACH = check_rows("runtime", RUNTIMES.values(), ids=list(RUNTIMES))


@EACH
def test_it_has_no_faults(runtime: Runtime) -> None:
    assert [str(fault) for fault in faults(runtime)] == []


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
