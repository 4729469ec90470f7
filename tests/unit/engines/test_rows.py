"""The mechanism that every table runs on, column by column, on made-up runtimes."""

from __future__ import annotations

import pytest

from llm_serving_exporter.engines.json_answers import reading
from llm_serving_exporter.engines.mapping import Reads, Row, Runtime, Selector, selector
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.snapshot import Absence, EngineSnapshot, Quality
from tests.support.builders.snapshots import engine_of, snapshot_of
from tests.support.rows import check_rows


def runtime(*rows: Row, **columns: object) -> Runtime:
    return Runtime("made-up", "Made Up", rows, ("x_",), **columns)


def only(text: str, *rows: Row, **columns: object) -> EngineSnapshot:
    return engine_of(text, runtime=runtime(*rows, **columns))


TOKENS = "decode_tokens_total"
HISTOGRAM = Row("time_to_first_token_seconds", ("x_h",), reads=Reads.HISTOGRAM)
RUNNING = Row("requests_running", ("x_run",))


def test_selectors() -> None:
    assert selector("a:b_total") == Selector("a:b_total")
    assert selector('x{a="1|2", b=""}') == Selector("x", {"a": frozenset({"1", "2"}), "b": frozenset({""})})
    for bad in ("", "1x", "x{a=1}", "x{a}", 'x{a="1"', 'x{a="\\""}'):
        with pytest.raises(ValueError, match="x" if bad.startswith("x") else "not a sample name"):
            selector(bad)


def test_a_selector_takes_only_its_samples_and_an_empty_value_is_a_missing_label() -> None:
    text = 'x_n{k="in"} 1\nx_n{k="out"} 2\nx_n 4\n'
    assert only(text, Row(TOKENS, ('x_n{k="out"}',))).decode_tokens_total == 2
    assert only(text, Row(TOKENS, ('x_n{k="out|"}',))).decode_tokens_total == 6
    assert only(text, Row(TOKENS, ("x_n",))).decode_tokens_total == 7


def test_the_formula() -> None:
    text = "x_a 100\nx_b 40\nx_blocks 8\nx_size 16\nx_max 4\n"
    assert only(text, Row(TOKENS, ("x_a",), minus=("x_b",))).decode_tokens_total == 60
    assert only(text, Row(TOKENS, ("x_blocks",), times=("x_size",))).decode_tokens_total == 128
    assert only(text, Row(TOKENS, ("x_blocks",), over=("x_max",), scale=0.5)).decode_tokens_total == 1
    assert (
        only(text, Row(TOKENS, ("x_a",), minus=("x_b",), times=("x_size",), over=("x_max",))).decode_tokens_total == 240
    )


@pytest.mark.parametrize("column", ["minus", "times", "over"])
def test_a_part_that_is_not_there_voids_the_row(column: str) -> None:
    # of what is subtracted something suffices: a cache that is off has no hits
    parts = ("x_gone",) if column == "minus" else ("x_run", "x_gone")
    row = replace(Row(TOKENS, ("x_a",)), **{column: parts})
    snapshot = snapshot_of("x_a 1\nx_run 1\n", runtime=runtime(row, Row("requests_running", ("x_run",))))
    assert snapshot.engines[0].decode_tokens_total is None
    assert snapshot.absent[TOKENS] is Absence.NOT_EXPORTED


def test_over_zero_is_no_value() -> None:
    snapshot = snapshot_of("x_a 1\nx_max 0\n", runtime=runtime(Row(TOKENS, ("x_a",), over=("x_max",))))
    assert snapshot.absent[TOKENS] is Absence.INVALID


def test_a_part_of_the_same_engine_is_used_and_a_page_wide_one_for_all() -> None:
    text = 'x_n{e="0"} 2\nx_n{e="1"} 3\nx_size{e="0"} 10\nx_size{e="1"} 100\nx_all 7\n'
    rows = (Row(TOKENS, ("x_n",), times=("x_size",)), Row("requests_running", ("x_n",), times=("x_all",)))
    snapshot = snapshot_of(text, runtime=runtime(*rows, engine_labels=("e",)))
    by_engine = {engine.engine: engine for engine in snapshot.engines}
    assert (by_engine["0"].decode_tokens_total, by_engine["1"].decode_tokens_total) == (20, 300)
    assert (by_engine["0"].requests_running, by_engine["1"].requests_running) == (14, 21)


def test_the_part_of_another_engine_is_nobodys() -> None:
    text = "".join(f'x_n{{e="{engine}"}} 2\n' for engine in "012") + 'x_size{e="0"} 10\nx_size{e="1"} 100\n'
    row = Row(TOKENS, ("x_n",), times=("x_size",))
    snapshot = snapshot_of(text, runtime=runtime(row, engine_labels=("e",)))
    assert snapshot.engines == ()
    assert snapshot.absent[TOKENS] is Absence.INPUT_MISSING


def test_a_part_that_stands_there_twice_voids_the_row() -> None:
    rows = (Row(TOKENS, ("x_a",), minus=("x_b",)), Row("requests_running", ("x_a",)))
    snapshot = snapshot_of("x_a 100\nx_b 10\nx_b 10\n", runtime=runtime(*rows))
    assert (snapshot.engines[0].decode_tokens_total, snapshot.engines[0].requests_running) == (None, 100)
    assert snapshot.absent[TOKENS] is Absence.DUPLICATE


def test_two_samples_that_should_agree() -> None:
    row = Row("kv_cache_usage_ratio", ("x_used",), over=("x_max",), agrees="x_fraction")
    good = snapshot_of("x_used 5\nx_max 10\nx_fraction 0.51\n", runtime=runtime(row))
    assert good.engines[0].kv_cache_usage_ratio == 0.5
    near = snapshot_of("x_used 5\nx_max 10\nx_fraction 0.53\n", runtime=runtime(row))
    assert near.absent["kv_cache_usage_ratio"] is Absence.INCONSISTENT
    bad = snapshot_of("x_used 1\nx_max 6239\nx_fraction 0.4875\n", runtime=runtime(row))
    assert bad.engines[0].kv_cache_usage_ratio is None
    assert bad.absent["kv_cache_usage_ratio"] is Absence.INCONSISTENT


RANKS = """x_n{dp="0",tp="0",m="a"} 5
x_n{dp="0",tp="1",m="a"} 5
x_n{dp="0",tp="0",m="b"} 7
x_n{dp="1",tp="2",m="a"} 20
x_n{dp="1",tp="3",m="a"} 21
"""


def test_ranks_tell_one_value_several_times() -> None:
    """5 and 5 of one mode are 5, plus 7 of the other; of ranks that differ by a scrape's delay the largest counts."""
    snapshot = snapshot_of(RANKS, runtime=runtime(Row(TOKENS, ("x_n",)), engine_labels=("dp",), rank_labels=("tp",)))
    assert {engine.engine: engine.decode_tokens_total for engine in snapshot.engines} == {"0": 12, "1": 21}


def test_ranks_of_a_labelled_counter_and_of_a_gauge_by_max() -> None:
    found = only(RANKS, Row("requests_finished_total", ("x_n",), by="m"), rank_labels=("tp", "dp"))
    assert found.requests_finished_total == {"a": 21, "b": 7}


def test_of_a_histogram_the_lowest_rank_counts_in_all_its_parts() -> None:
    def of(rank: str, count: int) -> str:
        buckets = f'x_h_bucket{{le="1",tp="{rank}"}} 1\nx_h_bucket{{le="+Inf",tp="{rank}"}} {count}\n'
        return f'{buckets}x_h_sum{{tp="{rank}"}} {count}\nx_h_count{{tp="{rank}"}} {count}\n'

    row = Row("time_to_first_token_seconds", ("x_h",), reads=Reads.HISTOGRAM)
    histogram = only(of("10", 9) + of("2", 3), row, rank_labels=("tp",)).time_to_first_token_seconds
    assert (histogram.cumulative, histogram.count, histogram.sum) == ((1.0,), 3.0, 3.0)


def test_an_edge_that_some_series_lack_is_no_edge_of_their_sum() -> None:
    def of(series: str, *buckets: tuple[str, int]) -> str:
        lines = [f'x_h_bucket{{m="{series}",le="{edge}"}} {count}\n' for edge, count in (*buckets, ("+Inf", 6))]
        return "".join(lines) + f'x_h_sum{{m="{series}"}} 9\nx_h_count{{m="{series}"}} 6\n'

    text = of("a", ("1", 1), ("2", 5)) + of("b", ("1", 1))  # 2 up to 1, 5 up to 2: ascending all the same
    snapshot = snapshot_of(text + "x_run 1\n", runtime=runtime(HISTOGRAM, RUNNING))
    assert snapshot.engines[0].time_to_first_token_seconds is None
    assert snapshot.absent["time_to_first_token_seconds"] is Absence.INVALID


@check_rows(("bucket", "count"), [(8, 5), (8, 7.9), (8, "NaN"), (8, "+Inf"), ("NaN", 9)])
def test_a_bucket_and_a_count_that_cannot_both_be_are_no_histogram(bucket: object, count: object) -> None:
    text = f'x_h_bucket{{le="1"}} {bucket}\nx_h_bucket{{le="+Inf"}} {count}\nx_h_sum 3\nx_h_count {count}\nx_run 1\n'
    snapshot = snapshot_of(text, runtime=runtime(HISTOGRAM, RUNNING))
    assert snapshot.engines[0].time_to_first_token_seconds is None
    assert snapshot.absent["time_to_first_token_seconds"] is Absence.IMPLAUSIBLE


def test_series_that_are_not_to_be_read_at_all() -> None:
    text = 'x_n{pp="0"} 1\nx_n{pp="1"} 10\nx_n 100\n'
    assert only(text, Row(TOKENS, ("x_n",)), only={"pp": frozenset({"0", ""})}).decode_tokens_total == 101


def test_milliseconds_become_seconds_edges_and_all() -> None:
    text = 'x_h_bucket{le="100"} 1\nx_h_bucket{le="2500"} 2\nx_h_bucket{le="+Inf"} 3\nx_h_sum 4000\nx_h_count 3\n'
    row = Row("time_to_first_token_seconds", ("x_h",), reads=Reads.HISTOGRAM, scale=1e-3)
    histogram = only(text, row).time_to_first_token_seconds
    assert (histogram.edges, histogram.cumulative, histogram.count, histogram.sum) == ((0.1, 2.5), (1, 2), 3, 4.0)
    unsound = only(text, replace(row, sum_is_sound=False)).time_to_first_token_seconds
    assert (unsound.sum, unsound.mean(), unsound.count) == (None, None, 3)


def test_a_sum_and_a_count_are_a_histogram_without_buckets() -> None:
    row = Row("e2e_request_latency_seconds", ("x_us", "x_done"), reads=Reads.MEAN, scale=1e-6)
    histogram = only("x_us 3e6\nx_done 4\n", row).e2e_request_latency_seconds
    assert (histogram.edges, histogram.count, histogram.sum, histogram.mean()) == ((), 4, 3.0, 0.75)
    assert histogram.quantile(0.99) is None


@check_rows("blocks", ["0", "-8", "NaN", "+Inf", "1_0", "None", ""])
def test_a_label_that_is_no_positive_number_is_no_factor(blocks: str) -> None:
    # "None" is vLLM's num_gpu_blocks before 0.9.0 (facts runtimes-vllm-sglang 1.2)
    labelled = Row("kv_cache_capacity_tokens", ("x_info",), reads=Reads.LABELS, labels=("blocks", "size"))
    text = f'x_info{{blocks="{blocks}",size="16"}} 1\nx_run 1\n'
    snapshot = snapshot_of(text, runtime=runtime(labelled, RUNNING))
    assert snapshot.engines[0].kv_cache_capacity_tokens is None
    assert snapshot.absent["kv_cache_capacity_tokens"] is Absence.NOT_EXPORTED
    assert only(text.replace(f'"{blocks}"', '"8"', 1), labelled).kv_cache_capacity_tokens == 128


def test_keys_from_names_and_from_labels() -> None:
    row = Row(
        "requests_finished_total",
        ("x_ok", "x_bad"),
        by="why",
        named={"x_ok": "success"},
        rename={"overloaded": "", "generation": "error"},
    )
    text = 'x_ok 5\nx_bad{why="generation"} 2\nx_bad{why="overloaded"} 9\nx_bad{why="odd"} 1\n'
    assert only(text, row).requests_finished_total == {"success": 5, "error": 2, "odd": 1}
    # counters that are born with their first event: any of the names suffices
    assert only('x_bad{why="odd"} 1\n', row).requests_finished_total == {"odd": 1}


REPLICAS = """x_run{model="a",replica="r1",e="0"} 1
x_run{model="a",replica="r2",e="0"} 2
x_run{model="b",replica="r3",e="0"} 3
x_n_total{model="a",replica="r1",e="0"} 10
x_n_total{model="a",replica="r2",e="0"} 20
x_n_total{model="b",replica="r3",e="0"} 30
x_n_total{model="a",replica="dead",e="0"} 999
"""


def test_replicas_of_one_page_are_engines_and_dead_ones_are_left_out() -> None:
    rows = (Row(TOKENS, ("x_n_total",)), Row("requests_running", ("x_run",)))
    columns = {"model_labels": ("model",), "engine_labels": ("e",), "replica_label": "replica", "living": "x_run"}
    snapshot = snapshot_of(REPLICAS, runtime=runtime(*rows, **columns))
    found = {(one.model_name, one.engine): one.decode_tokens_total for one in snapshot.engines}
    assert found == {("a", "r1/0"): 10, ("a", "r2/0"): 20, ("b", "r3/0"): 30}


@pytest.mark.parametrize("name", ["y:n_total", "y_n_total", "ray_y_n_total"])
def test_other_spellings_of_a_prefix(name: str) -> None:
    row = Row(TOKENS, ("y:n_total",))
    spelt = Runtime("made-up", "Made Up", (row,), ("y:",), respelt=(("y:", "ray_y_"),))
    assert engine_of(f"{name} 4\n", runtime=spelt).decode_tokens_total == 4


def test_the_first_label_of_identity_that_a_series_has() -> None:
    text = 'x_n{model_name="m",e="0"} 1\nx_run{model="m",rank="0"} 2\n'
    rows = (Row(TOKENS, ("x_n",)), Row("requests_running", ("x_run",)))
    one = only(text, *rows, model_labels=("model_name", "model"), engine_labels=("rank", "e"))
    assert (one.decode_tokens_total, one.requests_running) == (1, 2)


def test_polled_samples_are_read_like_the_pages() -> None:
    rows = (Row(TOKENS, ("x_n",)), Row("decode_tokens_live", ("x_n", "slots:decoding"), may_fall=True))
    snapshot = snapshot_of("x_n 10\n", runtime=runtime(*rows), polled=(reading("slots:decoding", 3.0),))
    assert (snapshot.engines[0].decode_tokens_total, snapshot.engines[0].decode_tokens_live) == (10, 13)
    assert snapshot.may_fall == {"decode_tokens_live"}


def test_quality_refresh_and_freezing_are_those_of_the_rows_that_were_used() -> None:
    rows = (
        Row(TOKENS, ("x_new",), quality=Quality.LIVE),
        Row(TOKENS, ("x_old",), quality=Quality.LAGGING),
        Row("requests_running", ("x_run",), quality=Quality.SLOW, refresh_seconds=10.0),
        Row("requests_waiting", ("x_wait",), quality=Quality.SLOW, freezes=True),
    )
    snapshot = snapshot_of("x_old 1\nx_run 1\n", runtime=runtime(*rows))
    assert snapshot.quality == {TOKENS: Quality.LAGGING, "requests_running": Quality.SLOW}
    assert (snapshot.refreshed_every, snapshot.freezes) == ({"requests_running": 10.0}, frozenset())


def test_summaries_are_no_histograms() -> None:
    text = '# TYPE x_h summary\nx_h{quantile="0.5"} 1\nx_h_sum 4\nx_h_count 2\n'
    row = Row("time_to_first_token_seconds", ("x_h",), reads=Reads.HISTOGRAM)
    snapshot = snapshot_of(text, runtime=runtime(row))
    assert all(engine.time_to_first_token_seconds is None for engine in snapshot.engines)
