"""What `check-config` and docs/runtimes.md say that a row reads."""

from __future__ import annotations

from llm_serving_exporter.engines.check import formula
from llm_serving_exporter.engines.mapping import Aggregate, Reads, Row
from tests.support.rows import check_rows

FIELD = "decode_tokens_total"


@check_rows(
    ("row", "says"),
    [
        (Row(FIELD, ("a", "b")), "a + b"),
        (Row(FIELD, ("a", "b"), scale=1e-6), "(a + b) × 1e-06"),
        (Row(FIELD, ("a", "b"), times=("c",), over=("d", "e")), "(a + b) × c / (d + e)"),
        (Row(FIELD, ("a",), minus=("b", "c")), "a - (b + c)"),
        (Row(FIELD, ("a",), minus=("b",), over=("c",)), "(a - b) / c"),
        (Row(FIELD, ("a",), minus=("b",), times_label=("info", "size")), "a - b × info{size}"),
        (Row(FIELD, ("a", "b"), times_label=("info", "size")), "(a + b) × info{size}"),
        (Row(FIELD, ("a",), aggregate=Aggregate.MAX), "largest a"),
        (Row(FIELD, ("a",), aggregate=Aggregate.ONE), "only a"),
        (Row(FIELD, ("a",), where={"source": frozenset({"local", ""})}), "a, source none or local"),
        (Row(FIELD, ("a",), when=("info", "cache", "off")), 'a, when info{cache="off"}'),
        (Row(FIELD, ("a",), unless=("info", "cache", "off")), 'a, unless info{cache="off"}'),
        (Row(FIELD, ("a",), over=("b",), agrees="c"), "a / b, where c says the same"),
        (Row("requests_finished_total", ("a", "b"), by="why", named={"b": "error"}), "a + b as error, by why"),
        (Row("e2e_request_latency_seconds", ("a",), Reads.HISTOGRAM, scale=0.001), "histogram a × 0.001"),
        (Row("e2e_request_latency_seconds", ("sum", "count"), Reads.MEAN), "mean sum / count"),
        (
            Row("kv_cache_capacity_tokens", ("info",), Reads.LABELS, labels=("blocks", "size"), shared_by_engines=True),
            "label blocks × size of info / engines on the page",
        ),
        (Row("kv_cache_dtype", ("info",), Reads.TEXT, labels=("dtype",)), "label dtype of info"),
    ],
)
def test_a_row_in_words(row: Row, says: str) -> None:
    assert formula(row) == says


def test_what_stands_on_the_page_can_be_marked() -> None:
    row = Row(FIELD, ("a",), minus=("b",), times_label=("info", "size"), when=("info", "cache", "off"))
    assert formula(row, lambda text: f"<{text}>") == '<a> - <b> × <info{size}>, when <info{cache="off"}>'
