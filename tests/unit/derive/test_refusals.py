"""What engines refuse to start, as their sources have it."""

from llm_serving_exporter.derive.planning import list_refusals
from llm_serving_exporter.facts.architectures import geometry
from llm_serving_exporter.model.hardware import Parallel
from llm_serving_exporter.model.record import replace
from tests.support.models.roofs import BF16, DEEPSEEK_V3, FP8, H100, H200, INT4, LLAMA_70B, flat, served, shape
from tests.support.rows import check_rows

T4 = replace(H100, name="T4", compute_capability=(7, 5))
LLAMA = replace(served(LLAMA_70B, FP8), context_limit_tokens=131_072)
# 40 heads, 10 KV heads
PHI_4 = served(
    geometry(
        {
            "model_type": "phi3", "hidden_size": 5120, "num_hidden_layers": 40, "num_attention_heads": 40, "num_key_value_heads": 10,
            "intermediate_size": 17920, "vocab_size": 100352, "tie_word_embeddings": False,
        }
    ),
    FP8,
)  # fmt: skip
MLA = flat(1e9, FP8, replace(shape(DEEPSEEK_V3), mla=True))


@check_rows("tensor", [1, 2, 4, 8, 16, 32, 64])
def test_sixty_four_heads_spread_over_any_power_of_two(tensor: int) -> None:
    assert list_refusals(LLAMA, H100, Parallel(tensor), 4096) == ()


@check_rows("tensor", [3, 6, 7, 128])
def test_heads_that_do_not_divide(tensor: int) -> None:
    (said,) = list_refusals(LLAMA, H100, Parallel(tensor), 4096)
    assert f"{tensor} does not divide" in said
    assert "64 attention heads" in said


def test_kv_heads_that_spread_unevenly() -> None:
    assert list_refusals(PHI_4, H100, Parallel(2), 4096) == ()
    (said,) = list_refusals(PHI_4, H100, Parallel(4), 4096)
    assert said.startswith("10 KV heads do not spread evenly over 4")


def test_decode_context_parallelism_only_cuts_what_is_kept_several_times() -> None:
    """vLLM: the tensor-parallel size over the KV heads at most; MLA keeps one latent, so that any is right."""
    assert list_refusals(LLAMA, H100, Parallel(16, context=2), 4096) == ()
    assert "no more than that" in list_refusals(LLAMA, H100, Parallel(16, context=4), 4096)[0]
    assert "refuses decode context" in list_refusals(LLAMA, H100, Parallel(8, context=2), 4096)[0]
    assert list_refusals(MLA, H200, Parallel(8, context=8), 4096) == ()


def test_a_context_beyond_the_models() -> None:
    assert list_refusals(LLAMA, H100, Parallel(8), 131_072) == ()
    (said,) = list_refusals(LLAMA, H100, Parallel(8), 131_073)
    assert "131072" in said


def test_bf16_on_a_card_without_it() -> None:
    (said,) = list_refusals(served(LLAMA_70B, BF16), T4, Parallel(8), 4096)
    assert "--dtype fp16" in said
    assert list_refusals(served(LLAMA_70B, INT4), T4, Parallel(8), 4096) == ()
    assert list_refusals(served(LLAMA_70B, BF16), H100, Parallel(8), 4096) == (), "no capability is known of it"
