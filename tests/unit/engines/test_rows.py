"""The mechanism that every table runs on, on made-up runtimes: columns, versions, command lines, JSON answers, formulas."""

import json
from collections.abc import Sequence
from math import inf, nan

import pytest

from llm_serving_exporter.engines.apply import Overrides
from llm_serving_exporter.engines.arguments import find_batch_limit, read_arguments
from llm_serving_exporter.engines.check import formula
from llm_serving_exporter.engines.json_answers import LARGEST, MOST_WHOLE, listed, mapping, number, reading, text, whole
from llm_serving_exporter.engines.mapping import (
    Aggregate,
    Reads,
    Row,
    Runtime,
    Selector,
    parse_version,
    satisfies,
    selector,
)
from llm_serving_exporter.engines.plan import MAX_ENGINES
from llm_serving_exporter.engines.registry import RUNTIMES
from llm_serving_exporter.engines.rows import MAX_LABEL_VALUES
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.snapshot import Absence, EngineSnapshot, Quality, ServerFacts
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


# --- what `check-config` and docs/runtimes.md say that a row reads ---


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


# --- what is taken from a JSON answer, and what is not ---


# 400 digits: json.loads makes a whole number of them, which no float holds
HUGE = json.loads("9" * 400)


@pytest.mark.parametrize("value", [1, 7, MOST_WHOLE])
def test_whole_numbers(value: int) -> None:
    assert whole(value) == value


@check_rows("value", [0, -1, MOST_WHOLE + 1, HUGE, -HUGE, True, False, 1.0, nan, inf, "1", None, [1], {}])
def test_what_is_no_whole_number(value: object) -> None:
    assert whole(value) is None


@check_rows("value", [0, -1, 1.5, -1.5, MOST_WHOLE, 10**18, -(10**18), LARGEST])
def test_numbers(value: float) -> None:
    found = number(value)
    assert (found, type(found)) == (value, float)


@check_rows("value", [10**18 + 1, HUGE, -HUGE, 1e19, 1e308, nan, inf, -inf, True, False, "1", None, [], {}])
def test_what_is_no_number(value: object) -> None:
    assert number(value) is None


def test_texts() -> None:
    assert text("a" * 300) == "a" * 200
    assert text("a" * 300, 3) == "aaa"
    assert text("a\nb\ud800") == "a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}"
    for other in ("", None, 3, True, ["a"], {"a": 1}):
        assert text(other) is None


def test_objects_and_lists() -> None:
    assert mapping({"a": 1}) == {"a": 1}
    assert listed([1, 2, 3], 2) == [1, 2]
    for other in (None, 3, True, "ab", 1.5):
        assert mapping(other) == {}
        assert listed(other, 2) == []
    assert mapping([1]) == {}
    assert listed({"a": 1}, 2) == []


# --- versions as servers write them, and the clauses of a table that they satisfy ---


@check_rows(
    ("text", "version"),
    [
        ("0.32.0", (0, 32, 0)), ("v0.9.1", (0, 9, 1)), ("0.33.1rc1.dev5+gabc", (0, 33, 1)), ("dev", None),
        (None, None), ("", None),
    ],
)  # fmt: skip
def test_versions(text: str | None, version: tuple[int, ...] | None) -> None:
    assert parse_version(text) == version


@check_rows(
    ("version", "versions", "holds"),
    [
        ((0, 9), ">=0.9.0", True), ((0, 8, 5), ">=0.9", False), ((0, 9, 1), ">=0.9,<0.9.2", True), ((0, 9, 2), ">=0.9,<0.9.2", False),
        ((1, 0), "", True), ((0, 10), "<=0.10.0", True), ((0, 10, 1), ">0.10", True),
    ],
)  # fmt: skip
def test_version_clauses(version: tuple[int, ...], versions: str, holds: bool) -> None:
    assert satisfies(version, versions) is holds


def test_a_clause_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match=r"not a version clause: '~=0\.9'"):
        satisfies((0, 9), "~=0.9")


# --- what an engine's command line says of its batch limit ---


def limit(runtime: str, words: Sequence[str]) -> int | None:
    return find_batch_limit(RUNTIMES[runtime], read_arguments(words, RUNTIMES.values()))


@check_rows(
    ("runtime", "line", "expected"),
    [
        ("vllm", "vllm serve m --max-num-seqs 256 --port 8000", 256), ("vllm", "vllm serve m --max-num-seqs=256", 256),
        ("vllm", "vllm serve m --max_num_seqs 64", 64), ("vllm", "vllm serve m --max-num-seqs 8 --max-num-seqs 16", 16),
        ("vllm", "vllm serve m", None), ("vllm", "vllm serve m --max-num-seqs", None), ("vllm", "vllm serve m --max-num-seqs 0", None),
        ("vllm", "vllm serve m --max-num-seqs $(SEQS)", None), ("vllm", "vllm serve m --max-num-seqs auto", None),
        ("vllm", "vllm serve m --max-num-seqs -1", None), ("vllm", "vllm serve m --max-running-requests 9", None),
        ("sglang", "python -m sglang.launch_server --max-running-requests 128 --tp 2", 128),
        ("sglang", "python -m sglang.launch_server --max-running-requests 128 --dp-size 2 --enable-dp-attention", None),
        ("sglang", "python -m sglang.launch_server --max-num-seqs 128", None),
        ("trtllm", "trtllm-serve m --max_batch_size 512 --tp_size 4", 512), ("trtllm-json", "trtllm-serve m --max_batch_size 512", 512),
        ("trtllm", "trtllm-serve m --max_batch_size 512 --pp_size 2", None),
        ("llamacpp", "llama-server -m m.gguf -np 4", 4), ("llamacpp", "llama-server --parallel 8 -m m.gguf", 8),
        ("llamacpp", "llama-server -np 4 --parallel 8", None),
        ("lmdeploy", "lmdeploy serve api_server m --max-batch-size 128", 128), ("tgi", "text-generation-router --max-batch-size 32", 32),
        ("tei", "text-embeddings-router --max-batch-requests 4", 4), ("mistralrs", "mistralrs-server --max-seqs 16 plain", 16),
        ("lightllm", "python -m lightllm.server.api_server --running_max_req_size 1000", 1000),
        ("dynamo-worker", "python -m dynamo.vllm --model m --max-num-seqs 48", 48), ("ray-vllm", "ray start --max-num-seqs 48", None),
        ("ollama", "ollama serve --max-num-seqs 48", None),
    ],
)  # fmt: skip
def test_flags_of_each_engine(runtime: str, line: str, expected: int | None) -> None:
    assert limit(runtime, line.split()) == expected


@check_rows(
    ("script", "expected"),
    [
        ("exec vllm serve m --max-num-seqs 96 --port 8000", 96), ("vllm serve m --max-num-seqs='96'; sleep 9", 96),
        ("(vllm serve a --max-num-seqs 8 --port 1 &) ; vllm serve b --max-num-seqs 16", None),
        ("(vllm serve a --max-num-seqs 16 --port 1 &) ; vllm serve b --max-num-seqs 16", 16),
        ("vllm serve m \\\n  --max-num-seqs 96\\\n  --port 8000", 96), ("vllm serve m --max-num-seqs ${SEQS:-256}", None),
    ],
)  # fmt: skip
def test_inside_the_text_of_a_shell(script: str, expected: int | None) -> None:
    assert limit("vllm", ["/bin/sh", "-c", script]) == expected


def test_nothing_but_known_flags_and_numbers_is_taken_out_of_a_command_line() -> None:
    words = [
        "vllm", "serve", "m", "--api-key", "s3cret", "--max-num-seqs", "256", "--hf-token=s3cret", "--max-batch-size",
        "s3cret",
    ]  # fmt: skip
    assert read_arguments(words, RUNTIMES.values()) == (("--max-batch-size", ""), ("--max-num-seqs", "256"))


def test_a_command_line_without_an_end_costs_no_more_than_a_long_one() -> None:
    assert limit("vllm", ["x"] * 100_000 + ["--max-num-seqs", "8"]) is None


# --- what a page may make of labels that come from outside: so much, and no more ---


def test_reasons_without_end_are_bounded_and_those_that_are_counted_are_counted_on() -> None:
    finished = Runtime("made-up", "Made Up", (Row("requests_finished_total", ("x_done",), by="why"),), ("x_",))
    reasons = "".join(f'x_done{{why="reason-{number}"}} {number}\n' for number in range(100))
    again = 'x_done{why="reason-3",zone="b"} 1000\n'
    found = engine_of(reasons + again, runtime=finished).requests_finished_total
    assert found == {f"reason-{number}": number + 1000 * (number == 3) for number in range(MAX_LABEL_VALUES)}
    assert MAX_LABEL_VALUES == 32


def test_engines_without_end_are_bounded_and_those_that_are_kept_have_all_their_fields() -> None:
    rows = (Row("requests_running", ("x_run",)), Row("requests_waiting", ("x_wait",)))
    many = Runtime("made-up", "Made Up", rows, ("x_",), engine_labels=("e",))
    text = "".join(f'x_{name}{{e="{engine}"}} 1\n' for name in ("run", "wait") for engine in range(1500))
    engines = snapshot_of(text, runtime=many).engines
    assert len(engines) == MAX_ENGINES == 1024
    assert all((engine.requests_running, engine.requests_waiting) == (1, 1) for engine in engines)


# --- what is known of an engine beyond its page: whose limits, and when they are taken for another's ---


PAGE = 'vllm:num_requests_running{{engine="0",model_name="{}"}} 1\n'


@check_rows(
    ("model", "contexts", "expected"),
    [
        ("a", {"a": 4096, "b": 8192}, 4096),
        # listed under another name: its only if there is one context
        ("third", {"a": 4096}, 4096),
        ("third", {"a": 4096, "b": 4096}, 4096),
        ("third", {"a": 4096, "b": 8192}, None),
        ("third", {}, None),
    ],
)
def test_the_context_of_a_model_is_its_own_or_the_only_one(
    model: str, contexts: dict[str, int], expected: int | None
) -> None:
    facts = ServerFacts(version="0.32.0", context_limit_tokens=contexts)
    (engine,) = snapshot_of(PAGE.format(model), facts=facts).engines
    assert engine.context_limit_tokens == expected
    (engine,) = snapshot_of(PAGE.format(model), facts=facts, overrides=Overrides(context_limit_tokens=512)).engines
    assert engine.context_limit_tokens == 512


def test_a_row_by_key_is_multiplied_by_a_label_as_others_are() -> None:
    text = 'x_info{size="16"} 1\nx_done{why="stop"} 2\nx_done{why="length"} 3\n'
    row = Row("requests_finished_total", ("x_done",), by="why", times_label=("x_info", "size"))
    assert only(text, row).requests_finished_total == {"stop": 32.0, "length": 48.0}
