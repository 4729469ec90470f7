"""Bytes and FLOPs of attention that picks, compresses, shares or crosses: against plain counts and what DeepSeek publishes of its own."""

import pytest

from llm_serving_exporter.derive.bandwidth import make_roof
from llm_serving_exporter.derive.planning import check_fit
from llm_serving_exporter.derive.roof import decode_ceiling, lacks, prefill_floor_seconds, ridge_batch
from llm_serving_exporter.derive.work import (
    Roof,
    kv_read_bytes,
    kv_stored_bytes,
    kv_token_bytes,
    prefill_flops,
    token_flops,
)
from llm_serving_exporter.model.hardware import Hardware, Parallel
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.shape import AttentionLayers, Indexer, Precision, Span
from llm_serving_exporter.model.snapshot import Absence
from tests.support.models.roofs import A100, FP8, H100, flat, roof, served, shape
from tests.support.models.shapes import shape_of
from tests.support.rows import check_rows

MILLION = 1_000_000
# fp8_ds_mla: bytes a token and layer that vLLM stores (models/deepseek_v2.py and deepseek_v4/attention.py) over elements
V3_2_BYTES, V4_BYTES = 656 / 576, 584 / 512
SPARSE = AttentionLayers(
    3, 20, 1, 12, 4, Span.SPARSE, top_entries=10, compress_ratio=2, indexer=Indexer(2, 7, 5), heads=1
)


def sparse(**changes: object) -> Roof:
    return roof(flat(0, FP8, form=shape((replace(SPARSE, **changes),))))


@check_rows(("context", "entries"), [(0, 0.0), (8, 4.0), (20, 10.0), (21, 10.0), (4000, 10.0)])
def test_reads_stop_at_what_is_picked_but_for_the_index(context: int, entries: float) -> None:
    """A third layer takes what the second picked; an entry stands for two tokens; KV at 2 bytes an element."""
    it = sparse()
    assert kv_read_bytes(it, context) == 3 * 20 * 2 * entries + 2 * 7 * context / 2
    # what is not picked stays
    assert kv_stored_bytes(it, context) == (3 * 20 * 2 + 2 * 7) * context / 2
    assert kv_token_bytes(it) == (3 * 20 * 2 + 2 * 7) / 2
    assert token_flops(it, context).get(Precision.BF16, 0.0) == 3 * 12 * entries
    assert token_flops(it, context).get(Precision.FP8, 0.0) == 2 * 5 * context / 2


def test_an_index_is_scored_at_bf16_where_there_is_no_fp8() -> None:
    it = roof(flat(0, FP8, form=shape((SPARSE,))), A100)
    assert token_flops(it, 100) == {Precision.BF16: 3 * 12 * 10 + 2 * 5 * 50}


@check_rows(("new", "prefix"), [(1, 0), (40, 0), (100, 0), (40, 25), (3, 200)])
def test_a_prompts_token_is_computed_the_cheaper_way(new: int, prefix: int) -> None:
    """Token by token: all entries at 4 FLOPs, or the 10 that are picked at 12; the index scores all."""
    looked = scored = 0.0
    for place in range(prefix + 1, prefix + new + 1):
        looked += min(4 * place / 2, 12 * 10)
        scored += 5 * place / 2
    found = prefill_flops(sparse(), new, prefix, 0)
    assert found[Precision.BF16] == pytest.approx(3 * looked)
    assert found[Precision.FP8] == pytest.approx(2 * scored)


def test_every_rank_keeps_the_keys_of_the_index() -> None:
    one, eight = roof(flat(0, form=shape((SPARSE,)))), roof(flat(0, form=shape((SPARSE,))), tensor=8)
    assert kv_read_bytes(eight, 4000) == 8 * kv_read_bytes(one, 4000)
    grouped = replace(SPARSE, kv_heads=4)
    with_heads = roof(flat(0, form=shape((grouped,))), tensor=4)
    # four KV heads are divided among four ranks, the one key of the index is not
    assert kv_token_bytes(with_heads) == (3 * 20 * 2 + 4 * 2 * 7) / 2


def facts(name: str, kv_bytes: float) -> Roof:
    return roof(served(shape_of(name), FP8, kv_bytes))


@pytest.mark.parametrize(
    ("name", "kv_share", "flops_share"), [("DeepSeek-V4-Pro", 0.10, 0.27), ("DeepSeek-V4-Flash", 0.07, 0.10)]
)
def test_deepseek_v4_against_v3_2_at_a_million_tokens(name: str, kv_share: float, flops_share: float) -> None:
    """Its report (arXiv 2606.19348): V4-Pro needs 27 % of the FLOPs of a token and 10 % of the KV cache of V3.2, V4-Flash 10 % and 7 %.

    Its own index is in FP4, which halves the bytes of a key and the cost of scoring it; vLLM keeps it in FP8 unless told otherwise.
    """
    ours, theirs = facts(name, V4_BYTES), facts("DeepSeek-V3.2", V3_2_BYTES)
    kept = kv_stored_bytes(ours, MILLION) / kv_stored_bytes(theirs, MILLION)
    assert kv_share < kept < kv_share * 1.2
    work = sum(token_flops(ours, MILLION).values()) / sum(token_flops(theirs, MILLION).values())
    assert flops_share - 0.01 < work < flops_share + 0.03


def test_deepseek_v3_2_reads_little_of_a_long_context_but_its_index() -> None:
    it = facts("DeepSeek-V3.2", V3_2_BYTES)
    assert kv_read_bytes(it, 128_000) == pytest.approx(61 * (656 * 2048 + 132 * 128_000))
    assert kv_stored_bytes(it, 128_000) == pytest.approx(61 * (656 + 132) * 128_000)


def test_shared_kv_is_read_by_each_layer_and_kept_once() -> None:
    it = roof(served(shape_of("Gemma-3n-E4B")))
    token = 2 * 2 * 256 * 2
    assert kv_read_bytes(it, 100) == 35 * token * 100
    assert kv_stored_bytes(it, 100) == 20 * token * 100
    assert kv_token_bytes(it) == 20 * token
    # a window is one for both
    assert kv_read_bytes(it, 4096) == token * (7 * 4096 + 28 * 512)


def test_cross_attention_reads_an_encoder_whatever_the_context() -> None:
    unknown = roof(served(shape_of("Llama-3.2-11B-Vision")))
    own, cross = unknown.model.geometry.attention
    known = roof(flat(0, form=shape((own, replace(cross, encoder_tokens=1600)))))
    image = 8 * 2 * 8 * 128 * 2 * 1600
    for context in (0, 5000):
        assert kv_read_bytes(known, context) - kv_read_bytes(unknown, context) == image
        assert kv_stored_bytes(known, context) - kv_stored_bytes(unknown, context) == image
    assert kv_token_bytes(known) == kv_token_bytes(unknown)
    assert token_flops(known, 0)[Precision.BF16] == 8 * 4 * 32 * 128 * 1600
    assert prefill_flops(known, 7, 0, 0)[Precision.BF16] == 7 * 8 * 4 * 32 * 128 * 1600 + 32 * 4 * 32 * 128 * 28


def test_what_a_step_reads_unknown_leaves_weights_and_fit() -> None:
    form = replace(shape_of("DeepSeek-V3.2"), reads_unknown="no formula says what its attention reads")
    it = roof(served(form, FP8))
    assert decode_ceiling(it, 1, 1000) is None
    assert ridge_batch(it, 1000) is None
    assert prefill_floor_seconds(it, 1000) is None
    (lack,) = lacks(it)
    assert lack.reason is Absence.ARCHITECTURE_UNKNOWN
    assert "no formula says what its attention reads" in lack.sentence
    fit = check_fit(roof(served(form, FP8), tensor=8), 141e9, context_tokens=1000)
    assert fit.fits
    assert fit.weight_bytes == pytest.approx(form.parameters_total)
    assert make_roof(it.model, Hardware(peaks=H100, parallel=Parallel())) is Absence.ARCHITECTURE_UNKNOWN
