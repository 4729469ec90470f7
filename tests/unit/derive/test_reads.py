"""Bytes of a step and of a sequence against facts model-math B.9, D.3."""

import pytest

from llm_serving_exporter.derive.work import (
    kv_read_bytes,
    kv_stored_bytes,
    kv_token_bytes,
    weight_held_bytes,
    weight_read_bytes,
)
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.shape import AttentionLayers, RecurrentLayers, Span
from tests.support.models.roofs import (
    A100,
    DEEPSEEK_V3,
    FP8,
    GEMMA_3_27B,
    GPT_OSS,
    LLAMA_70B,
    MISTRAL,
    flat,
    roof,
    served,
    shape,
)
from tests.support.rows import check_rows


@pytest.mark.parametrize(
    ("attention", "told"),
    [(GPT_OSS, (42.5, 306.7, 1212.7, 4836.6)), (GEMMA_3_27B, (520.1, 1107.3, 3120.6, 11173.6)),
     (MISTRAL, (134.2, 536.9, 536.9, 536.9))],
    ids=["gpt-oss-120b", "Gemma-3-27B", "Mistral-7B-v0.1"],
)  # fmt: skip
def test_kv_read_with_windows(attention: tuple[AttentionLayers, ...], told: tuple[float, ...]) -> None:
    """Facts B.9, in MB at 1, 8, 32 and 128 Ki tokens; what is stored is the same."""
    it = roof(flat(0, form=shape(attention)))
    for context, megabytes in zip((1024, 8192, 32768, 131072), told, strict=True):
        assert kv_read_bytes(it, context) / 1e6 == pytest.approx(megabytes, abs=0.06)
        assert kv_stored_bytes(it, context) == kv_read_bytes(it, context)


def test_chunked_layers_store_and_read_at_most_a_chunk() -> None:
    it = roof(flat(0, form=shape((AttentionLayers(36, 2048, 8, 0, 0, Span.CHUNKED, 8192),))))
    assert kv_stored_bytes(it, 100_000) == 36 * 2048 * 2 * 8192
    assert kv_read_bytes(it, 100_000) == 36 * 2048 * 2 * 8192
    assert kv_read_bytes(it, 1000) == 36 * 2048 * 2 * 1000


@check_rows(("tensor", "copies"), [(1, 1), (4, 1), (8, 1), (16, 2), (32, 4)])
def test_ranks_beyond_the_kv_heads_hold_copies(tensor: int, copies: int) -> None:
    it = roof(served(LLAMA_70B), tensor=tensor)
    assert kv_read_bytes(it, 1000) == copies * 1000 * 327_680
    assert kv_stored_bytes(it, 1000) == copies * 1000 * 327_680


def test_every_rank_holds_the_latent_of_mla() -> None:
    """70,272 bytes a token (B.8), on each of 8 ranks."""
    assert kv_token_bytes(roof(flat(0, form=shape(DEEPSEEK_V3)))) == 70_272
    assert kv_token_bytes(roof(flat(0, form=shape(DEEPSEEK_V3)), tensor=8)) == 8 * 70_272


@pytest.mark.parametrize(
    ("state", "state_bytes", "told"),
    [(RecurrentLayers(23, 524_288, 18_432), 4.0, 49.1), (RecurrentLayers(36, 524_288, 8192 * 3), 4.0, 77.3),
     (RecurrentLayers(36, 524_288, 8192 * 3), 2.0, 39.5)],
    ids=["Nemotron-3-Nano", "Qwen3-Next", "Qwen3-Next, state in bf16"],
)  # fmt: skip
def test_recurrent_state_is_stored_once_and_read_and_written(
    state: RecurrentLayers, state_bytes: float, told: float
) -> None:
    """Facts B.9: MB a sequence, whatever the context."""
    it = roof(replace(flat(0, form=shape((), (state,))), state_bytes_per_element=state_bytes))
    assert kv_stored_bytes(it, 0) / 1e6 == pytest.approx(told, abs=0.06)
    assert kv_read_bytes(it, 100_000) == 2 * kv_stored_bytes(it, 100_000)


@pytest.mark.parametrize(("tensor", "told"), [(1, 139.006), (4, 145.3), (8, 153.7)])
def test_replicated_lm_head_as_gpt_fast_has_it(tensor: int, told: float) -> None:
    """Facts D.3: Llama-3.1-70B bf16 reads its lm_head of 2.101 GB on each rank; F row 6: 36.33 and 19.22 GB a GPU."""
    it = roof(served(LLAMA_70B), A100, tensor, replicated_bytes=128_256 * 8192 * 2)
    assert weight_read_bytes(it, 1).expected / 1e9 == pytest.approx(told, abs=0.06)
    assert weight_held_bytes(it) == LLAMA_70B.parameters_total * 2 + (tensor - 1) * 128_256 * 8192 * 2


def test_a_step_without_tokens_to_sample_leaves_the_lm_head_alone() -> None:
    it = roof(served(LLAMA_70B))
    whole, partly = weight_read_bytes(it, 512), weight_read_bytes(it, 512, sampled=False)
    assert whole.expected - partly.expected == 128_256 * 8192 * 2
    assert whole.lower == whole.upper


def test_experts_held_by_an_engine_are_its_part() -> None:
    model = flat(1e9, FP8, shape(experts=256, per_token=8), expert_parameters=1e6)
    assert weight_held_bytes(roof(model)) == 1e9 + 256e6
    assert weight_held_bytes(roof(model, sharing=8)) == 1e9 + 32e6
