"""Geometry of models against exact counts, what holds for each of them, and the names of matrices as in the checkpoints."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_serving_exporter.errors import FactsError
from llm_serving_exporter.facts.architectures import geometry
from llm_serving_exporter.model.shape import Geometry, Part, Span
from tests.support.models.shapes import (
    Config,
    config_of,
    count,
    count_kv_read,
    count_layers,
    find_module,
    nested,
    odd,
    read_counts,
    read_odd,
    shape_of,
    whole_catalogue,
)
from tests.support.rows import check_rows

# those whose KV cache holds one latent for all heads
MULTI_HEAD_LATENT = {
    "axk1", "bailing_hybrid", "deepseek_ref", "deepseek_v2", "deepseek_v3", "deepseek_v32", "deepseek_v4", "dots3_note_text",
    "glm4_moe_lite", "glm_moe_dsa", "hy_v4", "kimi_k2", "kimi_linear", "longcat_flash", "minicpm3", "mistral4", "youtu",
}  # fmt: skip
# a table of parameters that no step multiplies by, and what is no Linear module
NO_MATRIX = ("conv1d", "conv", "A_log", "D", "dt_bias", "embeddings", "embed_tokens")


def paths(shape: Geometry, part: Part) -> set[str]:
    return {module.path for module in shape.modules if module.part is part}


@check_rows("name", read_counts)
def test_rows_of_the_catalogue(name: str) -> None:
    """Facts model-math B.8 and B.9, and transformers' own classes on the meta device; test_models has the parameters of every row."""
    expected, found = read_counts()[name], count(shape_of(name))
    assert {key: found[key] for key in expected} == expected
    assert (found["active"] == found["read"]) == (shape_of(name).tied and not shape_of(name).reads_unknown)


@check_rows("name", read_odd)
def test_small_models_as_transformers_counts_them(name: str) -> None:
    row = read_odd()[name]
    shape = geometry(row.config)
    found = {
        "parameters": shape.parameters_total,
        "active": shape.parameters_active,
        "read": shape.decode_read_parameters,
        "experts": [shape.experts_per_token, shape.experts],
        "full": count_layers(shape, Span.FULL),
        "sliding": count_layers(shape, Span.SLIDING),
    }
    assert {key: found[key] for key in row.counts} == row.counts
    if row.section == "decoders":
        assert sum(group.layers for group in shape.attention) == shape.layers == 5


@check_rows(
    "config",
    lambda: [*(row.config for row in read_odd().values()), *(entry.config for entry in whole_catalogue())],
    ids=lambda config: config["model_type"],
)
def test_what_holds_for_every_model(config: Config) -> None:
    shape = geometry(config)
    assert shape.mla == (shape.family in MULTI_HEAD_LATENT)
    assert len({(module.path, module.layers) for module in shape.modules}) == len(shape.modules)
    for module in shape.modules:
        assert module.matrix == module.rows * module.columns
        assert max(module.layers, default=0) < shape.layers
        assert ("{}" in module.path) == bool(module.layers)
    for group in (*shape.attention, *shape.recurrent):
        assert group.layers
    for group in shape.attention:
        assert group.heads >= group.kv_heads
        assert (group.top_entries is not None) == (group.span is Span.SPARSE)
        assert (group.window_tokens is not None) == (group.span in (Span.SLIDING, Span.CHUNKED))
    assert count_kv_read(shape, 1_000_000) >= count_kv_read(shape, 1_000)
    routed = [module for module in shape.modules if module.part is Part.EXPERT]
    assert {(module.copies, module.per_token) for module in routed} <= {(shape.experts, shape.experts_per_token)}
    # each layer with experts has a router that scores them all
    scoring = [module for module in shape.modules if module.part is Part.ROUTER and module.rows >= shape.experts]
    assert {layer for it in scoring for layer in it.layers} >= {layer for it in routed for layer in it.layers}
    if shape.encoder:
        assert not shape.tied
        assert shape.kv_elements_stored() == 0
        assert all(group.decode_flops == 0 for group in shape.attention)


def test_llama_module_by_module() -> None:
    """Names as in the checkpoint: quantisation configs are matched against them."""
    shape = shape_of("Llama-3.1-8B")
    layer = "model.layers.{}."
    assert {(item.path, item.part, item.rows, item.columns) for item in shape.modules if item.matrix} == {
        ("model.embed_tokens", Part.EMBEDDING, 128256, 4096),
        ("lm_head", Part.LM_HEAD, 128256, 4096),
        (layer + "self_attn.q_proj", Part.ATTENTION, 4096, 4096),
        (layer + "self_attn.k_proj", Part.ATTENTION, 1024, 4096),
        (layer + "self_attn.v_proj", Part.ATTENTION, 1024, 4096),
        (layer + "self_attn.o_proj", Part.ATTENTION, 4096, 4096),
        (layer + "mlp.gate_proj", Part.FFN, 14336, 4096),
        (layer + "mlp.up_proj", Part.FFN, 14336, 4096),
        (layer + "mlp.down_proj", Part.FFN, 4096, 14336),
    }
    (attention,) = shape.attention
    assert (attention.layers, attention.kv_elements, attention.kv_heads, attention.span) == (32, 2048, 8, Span.FULL)
    assert attention.decode_flops == attention.prefill_flops == 4 * 32 * 128  # facts B.10: query heads
    assert not find_module(shape, "model.embed_tokens").linear
    assert find_module(shape, "mlp.down_proj").layers == tuple(range(32))


@check_rows(
    "name",
    ["Jamba-v0.1", "Nemotron-3-Nano-30B-A3B", "Qwen3-Next-80B-A3B", "mamba-2.8b", "Mamba-Codestral-7B-v0.1", "Bamba-9B",
     "granite-4.0-h-small", "LFM2-1.2B"],
)  # fmt: skip
def test_only_projections_are_linear_modules(name: str) -> None:
    """Quantisers take Linear modules: no convolution, norm or table."""
    for module in shape_of(name).modules:
        last = module.path.rpartition(".")[2]
        assert module.linear != (last in NO_MATRIX or "norm" in last), module.path


@check_rows(
    ("name", "path", "rows", "columns"),
    [
        # fused and renamed ones
        ("Phi-4", "self_attn.qkv_proj", (40 + 2 * 10) * 128, 5120),
        ("Phi-4", "mlp.gate_up_proj", 2 * 17920, 5120),
        ("GPT-NeoX-20B", "gpt_neox.layers.{}.attention.query_key_value", 3 * 6144, 6144),
        ("DeepSeek-V2-Lite", "model.layers.{}.self_attn.q_proj", 16 * 192, 2048),
        ("DeepSeek-V2", "mlp.shared_experts.gate_proj", 2 * 1536, 5120),
        # queries and their gate
        ("Qwen3-Next-80B-A3B", "model.layers.{}.self_attn.q_proj", 2 * 16 * 256, 2048),
        # in a narrower space than the shared ones
        ("Nemotron-3-Super-120B-A12B", "backbone.layers.{}.mixer.experts.*.up_proj", 2688, 1024),
        ("Kimi-K3", "experts.*.w1", 3072, 3584),
        ("Kimi-K3", "shared_experts.gate_proj", 2 * 3072, 7168),
    ],
)
def test_matrices_have_the_names_and_sizes_of_the_checkpoint(name: str, path: str, rows: int, columns: int) -> None:
    module = find_module(shape_of(name), path)
    assert (module.rows, module.columns) == (rows, columns)


@check_rows(
    ("name", "path", "part"),
    [
        ("GPT-NeoX-20B", "embed_out", Part.LM_HEAD),
        ("DeepSeek-V2", "mlp.shared_experts.gate_proj", Part.FFN),
        ("Nemotron-3-Super-120B-A12B", "backbone.layers.{}.mixer.fc1_latent_proj", Part.FFN),
    ],
)
def test_what_a_matrix_is_to_a_step(name: str, path: str, part: Part) -> None:
    assert find_module(shape_of(name), path).part is part


def test_gpt_j_head_has_a_bias_and_gpt_2_positions_are_not_read() -> None:
    gptj = shape_of("GPT-J-6B")
    assert find_module(gptj, "lm_head.bias").vector == 50400
    assert gptj.decode_read_parameters == 6_050_882_784 - 50400 * 4096
    assert shape_of("GPT-2").decode_read_parameters == 124_439_808 - 1024 * 768


THREE = {"mlp.experts.*.gate_proj", "mlp.experts.*.up_proj", "mlp.experts.*.down_proj"}
SPARSE_BLOCK = {f"block_sparse_moe.experts.*.w{number}" for number in (1, 2, 3)}


@check_rows(
    ("name", "experts", "routers"),
    [
        ("Mixtral-8x7B", SPARSE_BLOCK, {"block_sparse_moe.gate"}),
        ("Phi-3.5-MoE", SPARSE_BLOCK, {"block_sparse_moe.gate"}),
        ("DeepSeek-V3", THREE, {"mlp.gate"}),
        ("Qwen1.5-MoE-A2.7B", THREE, {"mlp.gate", "mlp.shared_expert_gate"}),
        ("gpt-oss-20b", {"mlp.experts.gate_up_proj", "mlp.experts.down_proj"}, {"mlp.router"}),
        ("Granite-3.0-3B-A800M", {"block_sparse_moe.input_linear", "block_sparse_moe.output_linear"}, {"block_sparse_moe.router.layer"}),
        ("Hunyuan-A13B", THREE, {"mlp.gate.wg"}),
    ],
)  # fmt: skip
def test_experts_are_named_as_in_the_checkpoints(name: str, experts: set[str], routers: set[str]) -> None:
    shape = shape_of(name)
    assert paths(shape, Part.EXPERT) == {f"model.layers.{{}}.{path}" for path in experts}
    assert paths(shape, Part.ROUTER) == {f"model.layers.{{}}.{path}" for path in routers}


@check_rows(
    ("config", "expert", "head"),
    [
        (nested("Llama-4-Maverick", "llama4"), "language_model.model.layers.{}.feed_forward.experts.gate_up_proj",
         "language_model.lm_head"),
        (nested("Kimi-K2.5", "kimi_k25"), "language_model.model.layers.{}.mlp.experts.*.gate_proj", "language_model.lm_head"),
        (nested("Qwen3-VL-235B-A22B", "qwen3_vl_moe"), "model.language_model.layers.{}.mlp.experts.gate_up_proj", "lm_head"),
        (nested("Qwen3.5-35B-A3B", "qwen3_5_moe"), "model.language_model.layers.{}.mlp.experts.*.gate_proj", "lm_head"),
        (config_of("Qwen3-Omni-30B-A3B"), "thinker.model.layers.{}.mlp.experts.*.gate_proj", "thinker.lm_head"),
        (config_of("GLM-4.5V"), "model.language_model.layers.{}.mlp.experts.*.gate_proj", "lm_head"),
    ],
    ids=["Llama-4-Maverick", "Kimi-K2.5", "Qwen3-VL", "Qwen3.5", "Qwen3-Omni", "GLM-4.5V"],
)  # fmt: skip
def test_multimodal_checkpoints_keep_the_language_part_below_a_root(config: Config, expert: str, head: str) -> None:
    shape = geometry(config)
    assert expert in paths(shape, Part.EXPERT)
    assert paths(shape, Part.LM_HEAD) == {head}
    assert "vision tower" in shape.left_out


def test_a_language_part_is_what_it_is_alone() -> None:
    """Qwen2-VL as published has all fields on one level."""
    for name, model_type in (("Llama-4-Scout", "llama4"), ("gemma-4-26B-A4B", "gemma4"), ("Qwen3.5-27B", "qwen3_5")):
        assert count(geometry(nested(name, model_type))) == count(shape_of(name))
    flat = {**config_of("Qwen2.5-7B"), "model_type": "qwen2_5_vl", "vision_config": {"depth": 32}}
    assert geometry(flat).parameters_total == shape_of("Qwen2.5-7B").parameters_total
    assert geometry({**flat, "tie_word_embeddings": True}).parameters_total == 7_615_616_512 - 152064 * 3584


@check_rows(
    ("name", "left_out"),
    [
        ("Llama-3.1-8B", ()),
        ("Gemma-3-27B", ("vision tower",)),
        ("Gemma-3n-E4B", ("vision tower", "audio tower")),
        ("DeepSeek-V3", ("MTP module",)),
        ("Kimi-K3", ("vision tower",)),
        ("Llama-3.2-11B-Vision", ("vision tower", "KV of images")),
        ("Nemotron-3-Super-120B-A12B", ("multi-token prediction layers",)),
        ("Qwen3.5-35B-A3B", ("vision tower", "multi-token prediction layers")),
    ],
)
def test_what_is_not_counted_is_named(name: str, left_out: tuple[str, ...]) -> None:
    assert set(shape_of(name).left_out) == set(left_out)


@check_rows("outer", [None, True, False])
@check_rows("inner", [None, True, False])
def test_tie_flag_on_either_level(outer: bool | None, inner: bool | None) -> None:
    """The language part's own word first, then the outer config's, then the class default (untied for Mistral)."""
    config = nested("Mistral-Small-24B", "mistral3", tie_word_embeddings=inner)
    assert geometry({**config, "tie_word_embeddings": outer}).tied == (inner if inner is not None else bool(outer))


@pytest.mark.parametrize(
    ("config", "total"),
    [
        # transformers 5.24.0's Qwen3VLMoeForConditionalGeneration and Qwen2_5OmniThinkerForConditionalGeneration without their towers, as
        # their config classes are saved: the language part's class default says tied, and the outer one is what counts
        ({"model_type": "qwen3_vl_moe", "text_config": {"model_type": "qwen3_vl_moe_text", "tie_word_embeddings": True}}, 13_485_121_536),
        ({"model_type": "qwen2_5_omni_thinker", "text_config": {"model_type": "qwen2_5_omni_text", "tie_word_embeddings": True}},
         7_615_616_512),
    ],
)  # fmt: skip
def test_transformers_5_unties_a_language_part_from_outside(config: Config, total: int) -> None:
    outside = {"tie_word_embeddings": False, "transformers_version": "5.24.0"}
    assert geometry({**config, **outside}).parameters_total == total
    # of version 4 the language part's own word counts, as does version 5's that it is not tied
    tied = geometry({**config, **outside, "transformers_version": "4.57.1"})
    assert tied.tied
    assert tied.parameters_total < total
    own = {**config["text_config"], "tie_word_embeddings": False}
    assert geometry({**config, "text_config": own, "tie_word_embeddings": True}).parameters_total == total


# --- as their makers count them


GROK = {"hidden_size": 6144, "intermediate_size": 32768, "num_hidden_layers": 64, "num_attention_heads": 48, "num_key_value_heads": 8,
        "vocab_size": 131072, "num_local_experts": 8, "num_experts_per_tok": 2}  # fmt: skip
LING = {"model_type": "bailing_moe", "use_bias": False, "use_qkv_bias": False, "hidden_size": 2048, "num_attention_heads": 16,
        "num_key_value_heads": 4, "head_dim": 128}  # fmt: skip
MINIMAX_TEXT_01 = {
    "model_type": "minimax_text_01", "hidden_size": 6144, "intermediate_size": 9216, "num_hidden_layers": 80, "num_attention_heads": 64,
    "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 200064, "num_local_experts": 32, "num_experts_per_tok": 2,
    "attn_type_list": [*[0] * 7, 1] * 10,
}  # fmt: skip


@check_rows(
    ("config", "total", "tolerance", "read"),
    [
        # published: 316B without the vision tower, 38B activated
        ({"model_type": "step3_vl", "text_config": {"model_type": "step3_text"}}, 316e9, 2e-3, 38e9),
        # published: 456B, 45.9B activated, tables of the vocabulary not counted
        (MINIMAX_TEXT_01, 456e9, 1e-3, 45.9e9 + 200_064 * 6144),
        # published: 314B, 86B activated; its sizes make 0.5 % more
        ({"model_type": "grok-1", **GROK}, 314e9, 6e-3, None),
        # counted tensor by tensor in its repository's discussion 6: 269,515,497,472, 115,019,056,768 of them activated
        ({"model_type": "git", "architectures": ["Grok1ForCausalLM"], **GROK, "hidden_size": 8192, "num_attention_heads": 64,
          "head_dim": 128, "moe_intermediate_size": 16384, "residual_moe": True, "tie_word_embeddings": False},
         269_515_497_472, 1e-9, 115_019_056_768 - 131_072 * 8192),
        # table 1 of its report (arXiv 2607.24653): 2.78T parameters, 401M of them in the vision tower, 104.2B activated
        (config_of("Kimi-K3"), 2.78e12 - 401e6, 1e-3, 104.2e9),
        # published: 16.26B, 1.43B activated; 16.8B, 2.75B activated; sizes as remembered
        ({**LING, "num_hidden_layers": 20, "num_experts": 256, "num_experts_per_tok": 8, "moe_intermediate_size": 512,
          "num_shared_experts": 1, "first_k_dense_replace": 1, "intermediate_size": 5120, "vocab_size": 157184, "use_qk_norm": True},
         16.26e9, 1e-3, 1.43e9 - 157184 * 2048),
        ({**LING, "num_hidden_layers": 28, "num_experts": 64, "num_experts_per_tok": 6, "moe_intermediate_size": 1408,
          "num_shared_experts": 2, "first_k_dense_replace": 0, "intermediate_size": 5632, "vocab_size": 126464},
         16.8e9, 1e-3, 2.75e9 - 126464 * 2048),
    ],
    ids=["Step 3", "MiniMax-Text-01", "Grok 1", "Grok 2", "Kimi K3", "Ling-mini-2.0", "Ling-lite"],
)  # fmt: skip
def test_families_without_a_class(config: Config, total: float, tolerance: float, read: float | None) -> None:
    shape = geometry(config)
    assert shape.parameters_total == pytest.approx(total, rel=tolerance)
    if read is not None:
        assert shape.decode_read_parameters == pytest.approx(read, rel=max(tolerance, 3e-3))


def test_two_attentions_and_experts_that_do_nothing_in_longcat() -> None:
    """transformers' class counts 741,053,585,408: it keeps rows of gate and up for the 256 experts that do nothing in each of 28 layers.

    Published: 560B, 18.6B to 31.3B activated, 27B in the mean.
    """
    shape = shape_of("LongCat-Flash")
    assert shape.parameters_total == 741_053_585_408 - 28 * 256 * 2 * 2048 * 6144 == 560_664_958_976
    assert shape.decode_read_parameters == pytest.approx(27e9, rel=0.01)
    assert sum(group.layers for group in shape.attention) == 2 * 28
    # 12 of 768 are picked, of which 512 are experts
    assert (shape.experts, shape.experts_per_token) == (512, 8)
    assert find_module(shape, "router.classifier").rows == 768


def test_each_layer_of_nemotron_super_is_as_listed() -> None:
    """Composed layer by layer of transformers 5.23.0's LlamaAttention and LlamaMLP on the meta device: 49,867,145,216."""
    shape = shape_of("Llama-3_3-Nemotron-Super-49B-v1")
    assert shape.parameters_total == shape.parameters_active == 49_867_145_216
    (group,) = shape.attention
    assert (group.layers, group.kv_heads) == (49, 8)
    assert find_module(shape, "input_layernorm").places == 49
    widths = {module.rows for module in shape.modules if module.path.endswith("mlp.up_proj")}
    assert widths == {2816, 5632, 7168, 14336, 17920, 28672}


# --- which layers have experts, and other ways to say the same


@check_rows(
    ("changes", "sparse"),
    [
        ({}, (0, 1, 2, 3, 4, 5)),
        ({"decoder_sparse_step": 2}, (1, 3, 5)),
        ({"decoder_sparse_step": 2, "mlp_only_layers": [3, 4]}, (1, 5)),
        ({"mlp_only_layers": [0]}, (1, 2, 3, 4, 5)),
    ],
)
@check_rows("model_type", ["qwen2_moe", "qwen3_moe"])
def test_which_layers_of_qwen_have_experts(model_type: str, changes: Config, sparse: tuple[int, ...]) -> None:
    base = {"hidden_size": 96, "intermediate_size": 70, "num_attention_heads": 6, "vocab_size": 101}
    shape = geometry({"model_type": model_type, **base, "num_hidden_layers": 6, "num_key_value_heads": 2, **changes})
    assert find_module(shape, "model.layers.{}.mlp.experts.*.up_proj").layers == sparse
    dense = tuple(layer for layer in range(6) if layer not in sparse)
    assert {module.layers for module in shape.modules if module.path.endswith(".mlp.up_proj")} == (
        {dense} if dense else set()
    )


@check_rows(("frequency", "sparse"), [(1, (2, 3, 4, 5, 6)), (2, (2, 4, 6)), (3, (3, 6))])
def test_moe_layer_freq_of_deepseek(frequency: int, sparse: tuple[int, ...]) -> None:
    config = odd("v2-odd", num_hidden_layers=7, moe_layer_freq=frequency)
    assert find_module(geometry(config), "model.layers.{}.mlp.gate").layers == sparse


def test_shared_experts_are_passed_by_every_token() -> None:
    shape = shape_of("DeepSeek-V2")
    assert find_module(shape, "mlp.shared_experts.gate_proj").layers == tuple(range(1, 60))
    assert find_module(shape, "mlp.gate_proj").layers == (0,)


def test_queries_without_a_rank_come_from_one_matrix() -> None:
    assert not any("q_a_proj" in it.path or "q_b_proj" in it.path for it in shape_of("DeepSeek-V2-Lite").modules)
    # absent is not null: the class then has its default rank
    config = {key: value for key, value in config_of("DeepSeek-V2-Lite").items() if key != "q_lora_rank"}
    assert find_module(geometry(config), "self_attn.q_a_proj").rows == 1536


@check_rows(
    ("name", "key", "alias"),
    [
        ("mixtral-odd", "num_local_experts", "num_experts"),
        ("qwen3-odd", "num_experts", "num_local_experts"),
        ("v3-odd", "n_routed_experts", "num_local_experts"),
        ("ernie-odd", "moe_k", "num_experts_per_tok"),
    ],
)
def test_an_alias_goes_before_the_class_default(name: str, key: str, alias: str) -> None:
    renamed = {alias if field == key else field: value for field, value in odd(name).items()}
    assert geometry(renamed) == geometry(odd(name))


def test_hunyuan_lists_that_say_the_same_for_each_layer_are_one_number() -> None:
    plain = {**config_of("Hunyuan-A13B"), "moe_topk": 8, "moe_intermediate_size": 3072, "num_shared_expert": 1}
    assert geometry(plain) == shape_of("Hunyuan-A13B")


@check_rows("model_type", ["mimo", "dots_ocr", "keye", "KeyeVL1_5", "phi4mm", "internlm", "xverse", "aquila", "orion"])
def test_families_with_code_of_their_own_are_rows(model_type: str) -> None:
    config = odd("mixtral-odd", model_type=model_type, sliding_window=None, num_local_experts=None, head_dim=None)
    shape = geometry({**config, "num_experts_per_tok": None, "bias": True if model_type == "internlm" else None})
    biased = {
        module.path.rpartition(".")[2] for module in shape.modules if module.vector and module.part is Part.ATTENTION
    }
    qwen2 = {"q_proj", "k_proj", "v_proj"}
    assert biased == {"mimo": qwen2, "dots_ocr": qwen2, "internlm": {*qwen2, "o_proj"}}.get(model_type, set())


SMALL = {"hidden_size": 96, "intermediate_size": 70, "num_attention_heads": 6, "vocab_size": 101, "num_hidden_layers": 2,
         "num_key_value_heads": 2}  # fmt: skip


@check_rows(("version", "biased"), [(2.6, True), ("4.5", False), (4, False)])
def test_minicpm_v_names_its_language_model_by_a_version(version: object, biased: bool) -> None:
    shape = geometry({"model_type": "minicpmv", "version": version, **SMALL})
    assert any(module.vector for module in shape.modules if module.part is Part.ATTENTION) is biased


@check_rows(
    ("named", "family"),
    [("LlamaForCausalLM", "llama"), ("TeleChat3ForCausalLM", "llama"), ("Qwen3ForCausalLM", "qwen3")],
)
def test_a_class_that_engines_know_goes_for_an_unknown_model_type(named: str, family: str) -> None:
    config = {**SMALL, "architectures": [named]}
    assert geometry({**config, "model_type": "other"}).modules == geometry({**config, "model_type": family}).modules
    with pytest.raises(FactsError, match="model_type is 'other'"):
        geometry({**config, "model_type": "other", "architectures": ["OtherForCausalLM"]})


def test_experts_for_images_are_kept_and_not_read() -> None:
    shape = geometry({"model_type": "ernie4_5_vl_moe", "text_config": {"model_type": "ernie4_5_vl_moe_text"}})
    kept = sum(module.parameters for module in shape.modules if module.part is Part.ENCODER_ONLY)
    assert kept == 27 * (64 * 2560 + 64 + 3 * 64 * 512 * 2560)
    assert (shape.experts, shape.experts_per_token) == (64, 6)


def test_embeddings_for_each_layer_are_looked_up_and_not_read() -> None:
    shape = shape_of("Gemma-3n-E4B")
    table = find_module(shape, "embed_tokens_per_layer")
    assert (table.part, table.parameters) == (Part.EMBEDDING, 262_144 * 35 * 256)
    assert shape.parameters_total - shape.decode_read_parameters == table.parameters


# --- by the closed form


sizes = st.integers(1, 300)


@given(
    h=sizes, layers=st.integers(2, 9), q=st.integers(1, 9), c=sizes, r=sizes, n=sizes, v=sizes, rank=st.none() | sizes,
    i=sizes, mi=sizes, vocabulary=sizes, experts=st.integers(1, 40), shared=st.integers(0, 3), data=st.data(),
)  # fmt: skip
def test_any_latent_mixture(
    h: int, layers: int, q: int, c: int, r: int, n: int, v: int, rank: int | None,
    i: int, mi: int, vocabulary: int, experts: int, shared: int, data: st.DataObject,
) -> None:  # fmt: skip
    k = data.draw(st.integers(1, experts))
    first = data.draw(st.integers(0, layers - 1))
    shape = geometry({
        "model_type": "deepseek_v3", "hidden_size": h, "num_hidden_layers": layers, "num_attention_heads": q, "kv_lora_rank": c,
        "qk_rope_head_dim": r, "qk_nope_head_dim": n, "v_head_dim": v, "q_lora_rank": rank, "intermediate_size": i,
        "moe_intermediate_size": mi, "vocab_size": vocabulary, "n_routed_experts": experts, "num_experts_per_tok": k,
        "n_shared_experts": shared, "first_k_dense_replace": first,
    })  # fmt: skip
    query = h * q * (n + r) if rank is None else h * rank + rank + rank * q * (n + r)
    attention = query + h * (c + r) + c + c * q * (n + v) + q * v * h

    def by_experts(passed: int) -> int:
        sparse = h * experts + (passed + shared) * 3 * h * mi
        return 2 * vocabulary * h + h + layers * (attention + 2 * h) + first * 3 * h * i + (layers - first) * sparse

    assert shape.parameters_total == by_experts(experts)
    assert shape.parameters_active == by_experts(k)
    assert shape.decode_read_parameters == by_experts(k) - vocabulary * h
    assert shape.kv_elements_stored() == layers * (c + r)


LIKE_LLAMA = [
    "llama", "mistral", "qwen2", "qwen3", "gemma2", "gemma3_text", "phi3", "cohere2", "olmo3", "starcoder2", "baichuan", "internlm2",
]  # fmt: skip


@given(
    model_type=st.sampled_from(LIKE_LLAMA), head_size=st.integers(1, 128), kv_heads=st.integers(1, 8), shared=st.integers(1, 8),
    layers=st.integers(1, 40), intermediate=st.integers(1, 9999), vocabulary=st.integers(1, 300_000), tied=st.booleans(),
    window=st.none() | st.integers(1, 5000), contexts=st.lists(st.floats(0, 1e7), min_size=2, max_size=2),
)  # fmt: skip
def test_counts_add_up_and_reads_grow_with_context(
    model_type: str, head_size: int, kv_heads: int, shared: int, layers: int, intermediate: int, vocabulary: int, tied: bool,
    window: int | None, contexts: list[float],
) -> None:  # fmt: skip
    heads = kv_heads * shared if model_type != "baichuan" else kv_heads
    config: Config = {
        "model_type": model_type, "hidden_size": heads * head_size, "num_hidden_layers": layers, "num_attention_heads": heads,
        "num_key_value_heads": kv_heads, "head_dim": head_size, "intermediate_size": intermediate, "vocab_size": vocabulary,
        "tie_word_embeddings": tied,
    }  # fmt: skip
    if model_type in ("mistral", "gemma2", "gemma3_text", "phi3", "cohere2", "olmo3"):
        config["sliding_window"] = window if window or model_type in ("mistral", "phi3") else 512
    shape = geometry(config)
    assert shape.parameters_total == shape.parameters_active >= shape.decode_read_parameters > 0
    assert shape.tied == tied
    assert shape.parameters_total - shape.decode_read_parameters == (0 if tied else vocabulary * heads * head_size)
    assert sum(group.layers for group in shape.attention) == layers
    assert shape.kv_elements_stored() == layers * 2 * kv_heads * head_size
    short, long = sorted(contexts)
    assert 0 <= count_kv_read(shape, short) <= count_kv_read(shape, long)
    assert count_kv_read(shape, long) <= shape.kv_elements_stored() * long * (1 + 1e-12)
