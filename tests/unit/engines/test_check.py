"""The check of a table: what only code can write. What a configuration can is in tests/unit/settings/bad/runtime-*.yml."""

from __future__ import annotations

from typing import Any

from llm_serving_exporter.engines.check import faults, row_faults
from llm_serving_exporter.engines.mapping import (
    Aggregate,
    Endpoint,
    Fingerprint,
    Mark,
    PageKind,
    Poll,
    Reads,
    Row,
    Runtime,
)
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.snapshot import Quality
from tests.support.rows import check_rows

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
        ({"name": "a" * 64}, f'name: "{"a" * 64}" is not a name for a runtime. Write lower-case words with dashes, as in acme-serve.'),
        ({"title": " "}, "title: the title is empty. Write the product's name."),
        ({"paths": ()}, "paths: there is no path. Write the path of its metrics page, as in [/metrics]."),
        ({"paths": ("metrics",)}, 'paths[0]: "metrics" is not a path. Write one that starts with /, as in /metrics.'),
        ({"kind": PageKind.JSON}, "read_page: read_page and a page of kind json belong together."),
        ({"read_page": lambda answer: ()}, "read_page: read_page and a page of kind json belong together."),
        ({"significant_digits": 18}, "significant_digits: 18 is out of range. Write 1 to 17."),
        (
            {"endpoints": (Endpoint("version", lambda answer, facts: facts, ("it",)),)},
            'endpoints[0]: "version" is not a path. Write one that starts with /.',
        ),
        ({"polls": (Poll("props", lambda answer: (), "it"),)}, 'polls[0]: "props" is not a path. Write one that starts with /.'),
        ({"shows": (("version", lambda answer: True),)}, 'shows[0]: "version" is not a path. Write one that starts with /.'),
        ({"missing": {"zebra": "never"}}, "missing.zebra: there is no such field. docs/mapping.md lists the fields."),
        ({"missing": {"requests_running": "never"}}, "missing.requests_running: the field has a row. Keep one of them."),
        ({"missing": {"requests_waiting": ""}}, "missing.requests_waiting: the reason is empty. Write why the runtime cannot give it."),
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
        (Row("requests_running", ("acme",), quality=Quality.CLIPPED), ["quality"]),
        (Row("requests_running", ("acme",), multiprocess_quality=Quality.SUSPECT), ["multiprocess_quality"]),
        (Row("requests_running", ("acme",), multiprocess_quality=Quality.SLOW), ["refresh"]),
        # a gauge that freezes says with that how slow it is: as slow as requests end
        (Row("requests_running", ("acme",), quality=Quality.SLOW, freezes=True), []),
        (Row("requests_running", ("acme",), quality=Quality.LAGGING, refresh_seconds=10.0), []),
        (Row("requests_running", ("acme",), born_at_first_event=True), []),
        (Row("preemptions_total", ("acme",), born_at_first_event=True), ["born_at_first_event"]),
        (Row("requests_running", ("acme",), refresh_seconds=float("inf"), quality=Quality.SLOW), ["refresh"]),
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
