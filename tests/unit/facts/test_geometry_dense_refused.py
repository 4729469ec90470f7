"""What is no sensible dense config is refused with the key's name; and what holds for every config that is accepted."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_serving_exporter.errors import FactsError
from llm_serving_exporter.facts.architectures import geometry
from llm_serving_exporter.facts.families import dense
from llm_serving_exporter.model.snapshot import Absence
from tests.support.models.dense_models import LLAMA_8B, MISTRAL_7B, PUBLISHED
from tests.support.models.dense_odd import BASE
from tests.support.rows import check_rows


def refusal(config: dict[str, Any]) -> str:
    with pytest.raises(FactsError) as caught:
        geometry(config)
    assert caught.value.reason == Absence.ARCHITECTURE_UNKNOWN.value
    return str(caught.value)


@check_rows("key", ["hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size"])
@check_rows("value", [None, -1, 0, True, 4096.0, "4096", [4096], 1 << 60, float("nan")])
def test_a_size_that_is_missing_or_no_size_names_its_key(key: str, value: object) -> None:
    message = refusal({**LLAMA_8B, key: value})
    assert key in message
    assert "config.json (llama)" in message


def test_a_key_that_is_absent_is_not_taken_from_the_class_defaults_of_a_whole_config() -> None:
    for key in ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size"):
        config = {name: value for name, value in MISTRAL_7B.items() if name != key}
        assert f"{key} is missing" in refusal(config)


def test_a_billion_layers_are_refused_before_anything_grows() -> None:
    assert "num_hidden_layers is 1000000000, more than 4096" in refusal({**LLAMA_8B, "num_hidden_layers": 10**9})
    assert "n_layer is 1000000000" in refusal({**PUBLISHED["GPT-2"][0], "n_layer": 10**9})


@check_rows("model_type", ["mamba9", "", None, 7, "t5", "whisper", ["llama"]])
def test_an_architecture_without_a_formula_is_refused(model_type: object) -> None:
    assert "model_type" in refusal({**LLAMA_8B, "model_type": model_type})


@check_rows(
    ("changes", "key"),
    [
        ({"num_key_value_heads": 5}, "num_key_value_heads"),
        ({"num_key_value_heads": True}, "num_key_value_heads"),
        ({"head_dim": 0}, "head_dim"),
        ({"hidden_size": 16}, "hidden_size"),
        ({"attention_bias": "yes"}, "attention_bias"),
        ({"tie_word_embeddings": 1}, "tie_word_embeddings"),
        ({"layer_types": ["full_attention"]}, "layer_types"),
        ({"layer_types": "full_attention"}, "layer_types"),
        ({"layer_types": ["mamba"] * 32}, "layer_types"),
        ({"layer_types": [["full_attention"]] * 32}, "layer_types"),
        ({"layer_types": ["sliding_attention"] * 32}, "sliding_window"),
        ({"sliding_window": 4096}, "sliding_window"),
    ],
)
def test_fields_that_contradict_are_refused(changes: dict[str, Any], key: str) -> None:
    assert key in refusal({**LLAMA_8B, **changes})


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
def test_a_key_that_would_change_the_shape_is_not_passed_over(model_type: str, changes: dict[str, Any]) -> None:
    (key,) = changes
    config = {"model_type": model_type, **BASE}
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
    config = {"model_type": model_type, **BASE}
    assert geometry({**config, key: value}) == geometry(config)


@check_rows(
    ("name", "changes"),
    [
        ("MPT-7B", {"no_bias": False}),
        ("MPT-7B", {"attn_config": {"attn_type": "grouped_query_attention"}}),
        ("MPT-7B", {"attn_config": {"alibi": False}}),
        ("OPT-6.7B", {"layer_norm_elementwise_affine": False}),
        ("Falcon-40B", {"num_kv_heads": 7}),
        ("GPT-2", {"add_cross_attention": True}),
        ("GPT-Neo-2.7B", {"attention_layers": ["global"]}),
    ],
)
def test_forms_of_classic_models_without_a_formula(name: str, changes: dict[str, Any]) -> None:
    (key,) = changes
    assert key in refusal({**PUBLISHED[name][0], **changes})


def test_nested_too_deep_is_refused_not_a_crash() -> None:
    config: dict[str, Any] = dict(LLAMA_8B)
    for _ in range(5000):
        config = {"text_config": config}
    assert "text_config" in refusal(config)


anything = (
    st.none()
    | st.booleans()
    | st.integers(-5, 1 << 45)
    | st.floats()
    | st.text(max_size=3)
    | st.just([1])
    | st.just({})
)


@given(
    model_type=st.sampled_from(sorted(dense.FAMILIES)),
    fields=st.dictionaries(st.sampled_from([
        *BASE, "head_dim", "tie_word_embeddings", "layer_types", "sliding_window", "use_sliding_window",
            "sliding_window_pattern", "attention_bias",
        "n_embd", "n_layer", "n_head", "n_positions", "attn_config", "num_layers", "num_heads", "attention_layers",
            "num_kv_heads", "no_rope_layers",
    ]), anything),
)  # fmt: skip
def test_no_config_gets_more_than_a_refusal(model_type: str, fields: dict[str, Any]) -> None:
    try:
        shape = geometry({**BASE, **fields, "model_type": model_type})
    except FactsError:
        return
    assert shape.parameters_total > 0
    assert shape.kv_elements_read(1e6) <= shape.kv_elements_stored() * 1e6


LIKE_LLAMA = [
    "llama",
    "mistral",
    "qwen2",
    "qwen3",
    "gemma2",
    "gemma3_text",
    "phi3",
    "cohere2",
    "olmo3",
    "starcoder2",
    "baichuan",
    "internlm2",
]


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
    config: dict[str, Any] = {
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
    assert 0 <= shape.kv_elements_read(short) <= shape.kv_elements_read(long)
    assert shape.kv_elements_read(long) <= shape.kv_elements_stored() * long * (1 + 1e-12)


@check_rows(
    # as SpecForge, AngelSlim, vLLM and z-lab name them; the model_type is that of the model that is drafted for
    "named",
    ["LlamaForCausalLMEagle3", "EagleLlamaForCausalLM", "MedusaModel", "DeepSeekMTPModel", "DFlashDraftModel"],
)
def test_what_drafts_for_another_model_is_no_model_of_its_type(named: str) -> None:
    """An EAGLE-3 head of 2560 with one layer has 202,700,416 parameters, which no formula of Llama gives."""
    message = refusal({**LLAMA_8B, "num_hidden_layers": 1, "draft_vocab_size": 32000, "architectures": [named]})
    assert f"architectures is '{named}', which drafts for another model" in message
