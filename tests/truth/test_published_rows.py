"""Published measurements against our ceilings: facts model-math F and docs/accuracy.md.

Bytes per step within 2 % of the table's, shares of the ceilings as it prints them. Where ours differ by more, a test names the
input that explains it.
"""

import math

import pytest

from bench import accuracy
from bench.accuracy import CASES, REAL, Compared, compare
from llm_serving_exporter.derive.limiter import Judged, decide_limiter, gather_evidence, gather_rest
from llm_serving_exporter.derive.roof import Bound
from llm_serving_exporter.derive.work import kv_read_bytes, weight_read_bytes
from llm_serving_exporter.model.derived import BandwidthSource, Limiter
from llm_serving_exporter.model.hardware import Hardware
from llm_serving_exporter.model.numbers import Histogram
from llm_serving_exporter.model.snapshot import EngineSnapshot
from llm_serving_exporter.model.window import EngineWindow
from tests.support.builders.engine_roofline import roofline
from tests.support.models.points import Kind, Phase, Point, Source, points
from tests.support.models.rooflines import ROWS, Published, rows
from tests.support.rows import check_rows

NEAR = 0.02
NEMOTRON, *_ = rows("22")
_, GPT_J_64 = rows("23")


def printed(share: float, told: str) -> bool:
    """Whether a share is the printed percentage: within 2 % of it, or rounds to it."""
    half_a_digit = 0.5 * 10 ** -len(told.partition(".")[2])
    return abs(100 * share - float(told)) <= max(NEAR * float(told), half_a_digit)


def test_every_exact_row_is_here() -> None:
    listed = [1, 2, 3, 5, 6, 9, 16, 17, 18, 20, 22, 23, 25, 26, 27, 28, 31, 34]
    assert list(dict.fromkeys(int(row.row) for row in ROWS)) == listed


# --- bytes and share of the bandwidth -----------------------------------------------------------------------------------


@check_rows("row", [row for row in ROWS if not row.table_leaves_out_state], ids=str)
def test_bytes_per_step(row: Published) -> None:
    assert row.step_bytes / 1e9 == pytest.approx(row.told_gb, rel=NEAR)


@check_rows("row", [row for row in ROWS if not row.table_leaves_out_state], ids=str)
def test_share_of_the_bandwidth_ceiling(row: Published) -> None:
    assert printed(row.bandwidth_share, row.told_mbu), row.bandwidth_share


def test_row_22_leaves_the_recurrent_state_out() -> None:
    """49.1 MB a sequence, read and written by each step (facts B.9): 3 % of the bytes of a model that reads 3.2 GB."""
    assert NEMOTRON.state_bytes == 2 * 23 * (524_288 * 4 + 18_432 * 2)
    assert NEMOTRON.step_bytes / 1e9 == pytest.approx(3.333, abs=5e-4)
    told = NEMOTRON.step_bytes - NEMOTRON.state_bytes
    assert told / 1e9 == pytest.approx(NEMOTRON.told_gb, rel=NEAR)
    assert printed(NEMOTRON.bandwidth_share * told / NEMOTRON.step_bytes, NEMOTRON.told_mbu)
    assert not printed(NEMOTRON.bandwidth_share, NEMOTRON.told_mbu)


@check_rows("row", [row for row in ROWS if row.own_gb_per_second is not None], ids=str)
def test_bandwidth_that_the_measuring_program_printed(row: Published) -> None:
    """gpt-fast prints its rate times the bytes of parameters and buffers on a GPU, no KV: an account that is not ours."""
    weights = weight_read_bytes(row.roof, 1).expected / row.tensor
    assert row.tokens_per_second * weights / 1e9 == pytest.approx(row.own_gb_per_second, rel=0.01)


@pytest.mark.parametrize("row", rows("6"), ids=str)
def test_row_6_needs_the_lm_head_of_every_rank(row: Published) -> None:
    """Sharded as vLLM does it, the step would read 4 and 10 % less than gpt-fast reports."""
    copies = (row.tensor - 1) * 128256 * 8192 * 2
    assert row.roof.replicated_bytes * (row.tensor - 1) == copies
    assert (row.step_bytes - copies) / 1e9 < row.told_gb * (1 - 2 * NEAR)


@pytest.mark.parametrize("row", rows("20", "34"), ids=str)
def test_a_context_that_a_row_does_not_state_would_not_move_it(row: Published) -> None:
    """The table has their weights alone; 1,000 tokens of context stay within its 2 %."""
    assert kv_read_bytes(row.roof, 1000) < NEAR * row.step_bytes


# --- share of the FLOP/s ------------------------------------------------------------------------------------------------


@check_rows("row", [row for row in ROWS if row.told_mfu and not row.table_samples_prompts], ids=str)
def test_share_of_the_dense_rate(row: Published) -> None:
    assert printed(row.compute_share_of_stated_rate(), row.told_mfu), row.compute_share_of_stated_rate()


def test_row_23_counts_logits_of_prompt_tokens() -> None:
    """28 % with the lm_head for all 128 prompt tokens; a server needs those of the last one only, and ours is 27.2 %."""
    assert GPT_J_64.compute_share_of_stated_rate() == pytest.approx(0.272, abs=5e-4)
    assert printed(GPT_J_64.compute_share_of_stated_rate(sample_prompts=True), GPT_J_64.told_mfu)


@check_rows("row", [row for row in ROWS if row.told_mfu], ids=str)
def test_attention_at_bf16_is_what_our_share_has_more(row: Published) -> None:
    """The table divides all FLOPs by the stated rate; ours has attention at BF16's. Row 31: 16 and 26 instead of 14 and 22 %."""
    more = row.compute_share - row.compute_share_of_stated_rate()
    assert 0 <= more < (0.035 if row.row == "31" else 0.004)
    assert (more == 0) == (row.stated == "bf16")


# --- what limits them ---------------------------------------------------------------------------------------------------


@check_rows("row", ROWS, ids=str)
def test_nothing_that_was_measured_lies_above_a_ceiling(row: Published) -> None:
    assert 0 < row.bandwidth_share < 0.75
    assert 0 < row.compute_share < 0.75
    assert row.tokens_per_second < row.ceiling.tokens_per_second


@check_rows("row", ROWS, ids=str)
def test_only_the_saturated_rows_decode_beyond_the_ridge(row: Published) -> None:
    assert row.ceiling.bound is (Bound.COMPUTE if row.row in ("26", "27", "28") else Bound.BANDWIDTH)


LIMITERS = {
    Limiter.BANDWIDTH: ("1", "2", "3", "5"),
    Limiter.COMPUTE: ("26", "27", "28"),
    Limiter.OVERHEAD: ("22", "34"),
}


@check_rows(
    ("row", "expected"), [(row, state) for state, numbers in LIMITERS.items() for row in rows(*numbers)], ids=str
)
def test_limiter(row: Published, expected: Limiter) -> None:
    """A replica that is always busy and queues nothing."""
    found = {
        "busy": 1.0, "requests_waiting": 0.0, "bandwidth": row.bandwidth_share, "compute": row.compute_share,
        "decode_slowdown": row.batch / row.tokens_per_second / row.ceiling.step_seconds,
    }  # fmt: skip
    assert decide_limiter(found) is expected


# --- the same through the counters of a server --------------------------------------------------------------------------

MINUTE = 60.0


def all_of(value: float, events: float) -> Histogram:
    """Events of one size."""
    return Histogram((math.floor(value), math.ceil(value + 0.5)), (0.0, events), events, value * events)


def minute(row: Published) -> EngineWindow:
    """What one replica of a row would have counted in a minute."""
    tokens = row.tokens_per_second * MINUTE
    requests, steps, each = tokens / row.output, tokens / row.batch, row.batch / row.tokens_per_second

    def at(share: float) -> EngineSnapshot:
        decoded = share * (tokens - requests)
        return EngineSnapshot(
            row.model, "0",
            prompt_tokens_total=share * requests * row.prompt,
            prefill_tokens_total=share * requests * row.prompt,
            decode_tokens_total=share * tokens,
            preemptions_total=0.0,
            engine_steps_total=share * steps,
            inter_token_latency_seconds=Histogram((each * 2,), (decoded,), decoded, decoded * each),
            time_to_first_token_seconds=Histogram((1.0,), (share * requests,), share * requests, share * requests),
            request_prompt_tokens=all_of(row.prompt, share * requests),
            request_generation_tokens=all_of(row.output, share * requests),
            requests_running=row.batch,
            requests_waiting=0.0,
        )  # fmt: skip

    return EngineWindow((at(0.0), at(1.0)), MINUTE)


@check_rows("row", [row for row in ROWS if row.prompt], ids=str)
def test_a_servers_counters_lead_to_the_same_shares(row: Published) -> None:
    """First tokens come out of prefill, so that 1 in `output` tokens is no decode step; KV that is written counts here. What activations
    move the table leaves out."""
    hardware = Hardware(row.roof.peaks, row.roof.parallel, row.tensor)
    found = roofline(minute(row), (), row.facts, hardware).roofline
    read = 1 - found.step_bytes["activations"] / sum(found.step_bytes.values())
    assert found.ratio[BandwidthSource.MODEL] * read == pytest.approx(row.bandwidth_share, rel=NEAR)
    assert found.compute_ratio == pytest.approx(row.compute_share, rel=NEAR)
    assert found.context.expected == pytest.approx(row.context, rel=NEAR)
    assert not found.causes


@pytest.mark.parametrize("row", rows(*LIMITERS[Limiter.COMPUTE]), ids=str)
def test_limiter_of_saturated_replicas_by_their_counters(row: Published) -> None:
    """Prefill and slow steps among the evidence, as a live server has them: half of the work is prefill, just below what is called
    interference. Their decode would be compute-bound without it."""
    window, hardware = minute(row), Hardware(row.roof.peaks, row.roof.parallel, row.tensor)
    judged = [Judged(window, roofline(window, (), row.facts, hardware).roofline, window)]
    found = {**gather_evidence(judged), **gather_rest(judged)}
    assert found["prefill_busy"] == pytest.approx(0.499, abs=5e-4)
    assert found["decode_slowdown"] > 3
    assert decide_limiter(found) is Limiter.COMPUTE


# --- docs/accuracy.md: published figures at known batch, context and layout beside our bounds ---


@pytest.fixture(scope="module")
def everything() -> tuple[Compared, ...]:
    return compare()


@pytest.fixture(scope="module")
def real(everything: tuple[Compared, ...]) -> tuple[Compared, ...]:
    return tuple(one for one in everything if one.point.source.kind in REAL)


def test_nothing_real_is_above_the_upper_bound(real: tuple[Compared, ...]) -> None:
    assert {str(one.point): one.of_upper for one in real if not 0 < one.of_upper <= 1} == {}


def test_exactly_what_is_above_the_expected_value_is_explained(everything: tuple[Compared, ...]) -> None:
    above = {str(one.point) for one in everything if one.of_expected > 1}
    assert above == {str(one.point) for one in everything if one.point.above}
    assert {
        str(one.point): one.point.above for one in everything if one.point.above and len(one.point.above) <= 40
    } == {}


def test_the_upper_bound_is_not_below_the_expected_value(everything: tuple[Compared, ...]) -> None:
    assert [str(one.point) for one in everything if one.bounds.upper < one.bounds.expected * (1 - 1e-9)] == []


def test_the_points_reach_far(real: tuple[Compared, ...]) -> None:
    """Single GPU to expert parallel, 1K to 128K of context, BF16 to FP4, prefill and decode."""
    found = [one.point for one in real]
    assert len(found) >= 50
    assert sum(one.source.kind is Kind.MEASURED for one in found) >= 50
    for phase, least, most in ((Phase.DECODE, 1024, 120_000), (Phase.PREFILL, 1024, 120_000)):
        tokens = [one.context if phase is Phase.DECODE else one.prompt for one in found if one.phase is phase]
        assert min(tokens) <= least < most <= max(tokens)
    assert {one.gpus for one in found} >= {1, 2, 4, 8}
    assert {"bf16", "fp8", "nvfp4", "checkpoint", "q4_0"} <= {one.weight_format for one in found}
    assert min(one.batch for one in found) == 1
    assert max(one.batch for one in found) >= 1000


def test_every_row_of_the_exact_table_is_a_point() -> None:
    taken = [point.row for point in points() if point.row is not None]
    assert sorted(map(str, taken)) == sorted(map(str, ROWS))


def test_no_point_stands_twice() -> None:
    names = [f"{point} {point.rate}" for point in points()]
    assert len(names) == len(set(names))


@check_rows("source", dict.fromkeys(point.source for point in points()), ids=lambda source: source.key)
def test_sources_say_where_when_and_how(source: Source) -> None:
    assert source.url.startswith("https://")
    assert source.title
    assert source.version
    assert source.date[:2] == "20"
    assert bool(source.call) == (source.kind is not Kind.MEASURED)
    assert bool(source.inputs) == (source.kind is Kind.MEASURED)


@check_rows("point", points(), ids=str)
def test_a_point_states_its_batch_its_tokens_and_one_figure(point: Point) -> None:
    assert bool(point.tokens_per_second) != bool(point.seconds)
    assert point.batch >= 1
    assert (point.prompt > point.prefix >= 0) == (point.phase is Phase.PREFILL)
    assert not (point.context and point.phase is Phase.PREFILL)
    # experts are spread over GPUs that there are
    assert (point.tp * point.dp) % point.ep == 0


def test_each_real_point_stands_in_one_case(real: tuple[Compared, ...]) -> None:
    for one in real:
        assert sum(belongs(one.point) for _, belongs in CASES) == 1, one.point


def test_marks_that_are_gone_are_named() -> None:
    with pytest.raises(ValueError, match="must be there once"):
        accuracy.fill_block("no marks", "shares", iter(()))


def test_a_file_that_keeps_the_rest_in_q8_0_is_as_large_as_llama_bench_says() -> None:
    """The forum's table says 59.02 GiB; the checkpoint's own 16-bit matrices would make it 60.8."""
    weighed = {one.roof.model.weight_bytes for one in points() if one.source.key == "spark-mxfp4"}
    assert [bytes_ / 2**30 for bytes_ in weighed] == [pytest.approx(59.02, rel=0.003)]
