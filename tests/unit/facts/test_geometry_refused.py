"""Configs that are refused: the message names the key, and no geometry is guessed."""

import math
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_serving_exporter.errors import FactsError
from llm_serving_exporter.facts.architectures import geometry
from llm_serving_exporter.model.snapshot import Absence
from tests.support.models.shapes import Config, config_of, count_kv_read, odd, read_odd, whole_catalogue
from tests.support.rows import check_rows

LLAMA, MISTRAL = config_of("Llama-3.1-8B"), config_of("Mistral-7B-v0.1")
SIZES = ["hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size"]
# any family by its smallest config
SMALL = {"hidden_size": 120, "num_hidden_layers": 5, "num_attention_heads": 6, "num_key_value_heads": 3, "intermediate_size": 210,
         "vocab_size": 1003}  # fmt: skip
BERT, XLM, MODERNBERT = config_of("bge-base-en-v1.5"), config_of("bge-m3"), config_of("ModernBERT-base")
NOMIC = odd("nomic-1.5")
JAMBA, NANO, NEXT = config_of("Jamba-v0.1"), config_of("Nemotron-3-Nano-30B-A3B"), config_of("Qwen3-Next-80B-A3B")


def refusal(config: Config) -> str:
    with pytest.raises(FactsError) as caught:
        geometry(config)
    assert caught.value.reason == Absence.ARCHITECTURE_UNKNOWN.value
    return str(caught.value)


# --- sizes


@check_rows("key", SIZES)
@check_rows("value", [None, -1, 0, True, 4096.0, "4096", [4096], 1 << 60, float("nan")])
def test_a_size_that_is_missing_or_no_size_names_its_key(key: str, value: object) -> None:
    message = refusal({**LLAMA, key: value})
    assert key in message
    assert "config.json (llama)" in message


@check_rows(
    ("name", "keys"),
    [
        ("Mistral-7B-v0.1", SIZES),
        *((name, [*SIZES[:3], SIZES[4]]) for name in ("Mixtral-8x7B", "Qwen3-30B-A3B", "DeepSeek-V3", "gpt-oss-20b")),
    ],
)
def test_a_key_that_is_absent_is_not_taken_from_the_class_defaults_of_a_whole_config(
    name: str, keys: list[str]
) -> None:
    for key in keys:
        config = {field: value for field, value in config_of(name).items() if field != key}
        assert f"({config['model_type']}): {key} is missing" in refusal(config)


def test_a_billion_layers_are_refused_before_anything_grows() -> None:
    assert "num_hidden_layers is 1000000000, more than 4096" in refusal({**LLAMA, "num_hidden_layers": 10**9})
    assert "n_layer is 1000000000" in refusal({**config_of("GPT-2"), "n_layer": 10**9})


def test_nested_too_deep_is_refused_not_a_crash() -> None:
    config: Config = dict(LLAMA)
    for _ in range(5000):
        config = {"text_config": config}
    assert "text_config" in refusal(config)


# --- what is no model with a formula


@check_rows("model_type", ["mamba9", "", None, 7, "t5", "whisper", ["llama"]])
def test_an_architecture_without_a_formula_is_refused(model_type: object) -> None:
    assert "model_type" in refusal({**LLAMA, "model_type": model_type})


@check_rows(
    # as SpecForge, AngelSlim, vLLM and z-lab name them; the model_type is that of the model that is drafted for
    "named",
    ["LlamaForCausalLMEagle3", "EagleLlamaForCausalLM", "MedusaModel", "DeepSeekMTPModel", "DFlashDraftModel"],
)
def test_what_drafts_for_another_model_is_no_model_of_its_type(named: str) -> None:
    """An EAGLE-3 head of 2560 with one layer has 202,700,416 parameters, which no formula of Llama gives."""
    message = refusal({**LLAMA, "num_hidden_layers": 1, "draft_vocab_size": 32000, "architectures": [named]})
    assert f"architectures is '{named}', which drafts for another model" in message


# --- fields that contradict, and forms without a formula


@check_rows(
    ("config", "changes"),
    [
        (LLAMA, {"num_key_value_heads": 5}), (LLAMA, {"num_key_value_heads": True}), (LLAMA, {"head_dim": 0}),
        (LLAMA, {"hidden_size": 16}), (LLAMA, {"attention_bias": "yes"}), (LLAMA, {"tie_word_embeddings": 1}),
        (LLAMA, {"layer_types": ["full_attention"]}), (LLAMA, {"layer_types": "full_attention"}),
        (LLAMA, {"layer_types": ["mamba"] * 32}), (LLAMA, {"layer_types": [["full_attention"]] * 32}),
        (LLAMA, {"sliding_window": 4096}),
        (config_of("MPT-7B"), {"no_bias": False}),
        (config_of("MPT-7B"), {"attn_config": {"attn_type": "grouped_query_attention"}}),
        (config_of("MPT-7B"), {"attn_config": {"alibi": False}}),
        (config_of("OPT-6.7B"), {"layer_norm_elementwise_affine": False}),
        (config_of("Falcon-40B"), {"num_kv_heads": 7}),
        (config_of("GPT-2"), {"add_cross_attention": True}),
        (config_of("GPT-Neo-2.7B"), {"attention_layers": ["global"]}),
        (JAMBA, {"attn_layer_period": None}), (JAMBA, {"attn_layer_offset": 8}), (JAMBA, {"num_experts_per_tok": 17}),
        (JAMBA, {"mamba_dt_rank": "large"}), (JAMBA, {"mamba_inner_layernorms": False}), (JAMBA, {"attention_bias": True}),
        (JAMBA, {"num_key_value_heads": 5}),
        (NANO, {"hybrid_override_pattern": "MX"}), (NANO, {"hybrid_override_pattern": ""}), (NANO, {"hybrid_override_pattern": None}),
        (NANO, {"num_hidden_layers": 51}), (NANO, {"n_shared_experts": 2}), (NANO, {"tie_word_embeddings": True}),
        (NANO, {"attention_bias": True}), (NANO, {"mlp_bias": True}),
        (NEXT, {"layer_types": ["full_attention"]}), (NEXT, {"layer_types": ["sliding_attention"] * 48}),
        (NEXT, {"mlp_only_layers": [48]}), (NEXT, {"mlp_only_layers": [["0"]]}), (NEXT, {"attn_output_gate": False}),
        (config_of("Mamba-Codestral-7B-v0.1"), {"num_heads": 127}),
        (config_of("granite-4.0-h-small"), {"layer_types": None}),
        (config_of("LFM2-1.2B"), {"block_ffn_dim_multiplier": math.inf}),
        (config_of("mamba-2.8b"), {"num_hidden_layers": 10**6}),
        (BERT, {"position_embedding_type": "relative_key"}), (XLM, {"feed_forward_type": "mlp"}), (BERT, {"is_decoder": True}),
        (BERT, {"num_attention_heads": 7}), (BERT, {"type_vocab_size": None}), (BERT, {"max_position_embeddings": -1}),
        (NOMIC, {"num_experts": 8}), (NOMIC, {"mlp_fc1_bias": True}), (NOMIC, {"activation_function": "gelu"}),
        (NOMIC, {"architectures": ["NomicBertForSequenceClassification"]}),
        (MODERNBERT, {"layer_types": ["full_attention"]}), (MODERNBERT, {"num_attention_heads": 5}),
    ],
)  # fmt: skip
def test_what_is_not_covered_is_refused_with_its_key(config: Config, changes: Config) -> None:
    (key,) = changes
    assert f"{key} " in refusal({**config, **changes})


@check_rows(
    ("config", "message"),
    [
        # another key than the changed one is at fault
        ({**LLAMA, "layer_types": ["sliding_attention"] * 32}, "sliding_window"),
        ({**config_of("Bamba-9B"), "mamba_d_head": 63}, "mamba_n_heads"),
        ({**config_of("LFM2-1.2B"), "full_attn_idxs": None}, "layer_types"),
        ({**config_of("NV-Embed-v2"), "latent_attention_config": 8}, "latent_attention_config is not an object"),
        # more experts passed than there are
        (odd("mixtral-odd", num_experts_per_tok=6), "num_experts_per_tok is 6, more than the 5 experts"),
        (odd("hunyuan-odd", moe_topk=6), "moe_topk is 6, more than the 5 experts"),
        (odd("ernie-odd", moe_k=8), "moe_k is 8, more than the 7 experts"),
        # no sensible values
        (odd("mixtral-odd", num_local_experts=0), "num_local_experts is 0, not a whole number"),
        (odd("qwen3-odd", moe_intermediate_size=1.5), "moe_intermediate_size is 1.5, not a whole number"),
        (odd("v3-odd", kv_lora_rank=None), "kv_lora_rank is missing"),
        (odd("v2-odd", n_routed_experts=None), "n_routed_experts is missing"),
        (odd("mixtral-odd", num_key_value_heads=4), "num_key_value_heads is 4, which does not divide the 6 heads"),
        (odd("qwen2-odd", mlp_only_layers=[7]), "mlp_only_layers has 7, not the index of one of 7 layers"),
        (odd("qwen3-odd", decoder_sparse_step=8), "num_experts is 9, but no layer has experts"),
        (odd("v2-odd", first_k_dense_replace=5), "n_routed_experts is 7, but no layer has experts"),
        (odd("lite-odd", mlp_layer_types=["dense"] * 4), "mlp_layer_types has 4 entries for 5 layers"),
        (odd("lite-odd", mlp_layer_types=["dense"] * 4 + ["other"]), "mlp_layer_types has 'other'"),
        (odd("v3-odd", moe_layer_freq=[0, 1, 1, 1]), "moe_layer_freq has 4 entries for 5 layers"),
        (odd("llama4-listed", no_rope_layers=[1, 0]), "no_rope_layers has 2 entries for 4 layers"),
        (odd("llama4-listed", moe_layers=[4]), "moe_layers has 4"),
        # a class default is not taken for a null
        (odd("llama4-odd", no_rope_layers=None, no_rope_layer_interval=None, layer_types=None), "no_rope_layer_interval is missing"),
        ({"model_type": "minimax_m3_vl", "text_config": {
            "model_type": "minimax_m3", "sparse_attention_config": {"sparse_attention_freq": [1] * 60, "sparse_block_size": None},
        }}, "sparse_block_size is missing"),
        ({"model_type": "gemma3n", "text_config": {"model_type": "gemma3n_text", "hidden_size_per_layer_input": 0}},
         "hidden_size_per_layer_input is 0, not a whole number of at least 1"),
        (odd("llama4-odd", layer_types=["sliding_attention"] * 7), "layer_types has 'sliding_attention'"),
        (odd("gpt-oss-odd", layer_types=["full_attention"]), "layer_types has 1 entries for 5 layers"),
        (odd("hunyuan-odd", moe_topk=[2, 2, 1, 2, 2]), "moe_topk is a list whose layers are not all the same"),
        (odd("hunyuan-odd", num_experts=[]), "num_experts is a list whose layers are not all the same"),
        ({**config_of("DBRX"), "ffn_config": None}, "ffn_config is missing"),
        ({**config_of("DBRX"), "attn_config": {}}, "(dbrx): kv_n_heads is missing"),
        ({**config_of("DBRX"), "tie_word_embeddings": True}, "tie_word_embeddings is true"),
        # combinations without a formula
        (odd("mixtral-odd", attention_bias=True), "attention_bias is True, for which there is no formula"),
        (odd("v2-odd", mlp_bias=True), "mlp_bias is True, for which there is no formula"),
        (odd("v3-odd", index_topk=2048), "index_topk is 2048, for which there is no formula"),
        (odd("v2-odd", use_mla=False), "kv_lora_rank is 14, for which there is no formula"),
        (odd("ernie-odd", use_bias=True), "use_bias is True, for which there is no formula"),
        (odd("hunyuan-odd", use_cla=True), "use_cla is True, for which there is no formula"),
        (odd("hunyuan-odd", moe_layer_num_skipped=1), "moe_layer_num_skipped is 1, for which there is no formula"),
        (odd("qwen3-odd", n_shared_experts=1), "n_shared_experts is 1, for which there is no formula"),
        (odd("qwen3-odd", use_sliding_window=True, sliding_window=64), "sliding_window is 64"),
        (odd("minimax-odd", use_qk_norm=False), "use_qk_norm is false"),
    ],
    ids=lambda value: value if isinstance(value, str) else value["model_type"],
)  # fmt: skip
def test_what_cannot_be_read_is_named(config: Config, message: str) -> None:
    assert message in refusal(config)


@check_rows(
    ("model_type", "changes"),
    [
        ("mistral", {"attention_bias": True}),
        ("qwen2", {"mlp_bias": True}),
        ("llama", {"qk_layernorm": True}),
        ("llama", {"num_local_experts": 8}),
        ("llama", {"kv_lora_rank": 512}),
        ("llama", {"block_configs": [{"attention": {"no_op": True}}]}),
        ("phi3", {"cross_attention_layers": [3]}),
        ("stablelm", {"head_dim": 64}),
        ("gpt_neox", {"head_dim": 64}),
    ],
)
def test_a_key_that_would_change_the_shape_is_not_passed_over(model_type: str, changes: Config) -> None:
    (key,) = changes
    config = {"model_type": model_type, **SMALL}
    assert geometry(config).parameters_total > 0
    assert key in refusal({**config, **changes})
    assert geometry({**config, key: None}) == geometry(config)


@check_rows(
    ("model_type", "key"),
    [
        ("qwen2", "attention_bias"),
        ("qwen2_5_vl", "attention_bias"),
        ("qwen3", "use_qk_norm"),
        ("gemma3_text", "use_qk_norm"),
    ],
)
@check_rows("value", [True, False])
def test_what_every_model_of_a_family_has_may_be_said(model_type: str, key: str, value: bool) -> None:
    """Engines and transformers read no such key for these families: the biases and norms are there either way."""
    config = {"model_type": model_type, **SMALL}
    assert geometry({**config, key: value}) == geometry(config)


ANYTHING = st.one_of(
    st.none(), st.booleans(), st.integers(-5, 5), st.integers(-5, 1 << 70), st.floats(), st.text(max_size=3), st.just("auto"),
    st.lists(st.integers(-1, 5) | st.text(max_size=2) | st.just([1]), max_size=4),
    st.dictionaries(st.text(max_size=2), st.none() | st.integers(), max_size=2),
)  # fmt: skip
# keys that a config may have beside those of its small model
OTHER_KEYS = [
    "head_dim", "tie_word_embeddings", "layer_types", "sliding_window", "use_sliding_window", "sliding_window_pattern", "attention_bias",
    "n_embd", "n_layer", "n_head", "attn_config", "num_layers", "num_heads", "attention_layers", "num_kv_heads", "no_rope_layers",
]  # fmt: skip


@given(data=st.data())
def test_no_config_gets_more_than_a_refusal(data: st.DataObject) -> None:
    config = data.draw(st.sampled_from([row.config for row in read_odd().values()]))
    keys = data.draw(
        st.sets(st.sampled_from([*sorted({*config} - {"model_type"}), *OTHER_KEYS]), min_size=1, max_size=3)
    )
    try:
        shape = geometry({**config, **{key: data.draw(ANYTHING, key) for key in sorted(keys)}})
    except FactsError:
        return
    assert shape.parameters_total >= shape.parameters_active > 0
    if all(group.kept for group in shape.attention):
        assert count_kv_read(shape, 1e6) <= shape.kv_elements_stored() * 1e6


@check_rows("odd_element", [{}, [0], None, "x", 1.5])
def test_a_list_with_something_else_in_it_gets_no_more_than_a_refusal(odd_element: object) -> None:
    configs = {row.config.get("model_type"): row.config for row in whole_catalogue()}
    configs |= {(name, "small"): row.config for name, row in read_odd().items()}
    changed = [
        {**config, key: [*value[:-1], odd_element]}
        for config in configs.values()
        for key, value in config.items()
        if isinstance(value, list) and value
    ]
    # MiniMax's and DeepSeek-V4's layers, kinds of layers, drafts
    assert len(changed) > 10
    for config in changed:
        with suppress(FactsError):
            assert geometry(config).parameters_total > 0
