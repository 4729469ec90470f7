"""`per_layer_config`, as transformers 5.24.0 writes it on saving, and the counts of its classes on the meta device."""

from __future__ import annotations

from typing import Any

import pytest

from llm_serving_exporter.errors import FactsError
from llm_serving_exporter.facts.architectures import geometry
from llm_serving_exporter.model.shape import Span
from tests.support.models.shapes import Config
from tests.support.rows import check_rows

FULL = [f"{layer:02}" for layer in range(5, 60, 6)]
# Gemma-4-31B's text_config with global_head_dim 512 and num_global_key_value_heads 4, saved by Gemma4TextConfig: both keys are gone
GEMMA_4_31B: Config = {
    "model_type": "gemma4_text", "hidden_size": 5376, "intermediate_size": 21504, "num_hidden_layers": 60, "num_attention_heads": 32,
    "num_key_value_heads": 16, "head_dim": 256, "attention_k_eq_v": True, "hidden_size_per_layer_input": 0, "vocab_size": 262144,
    "sliding_window": 1024, "num_kv_shared_layers": 0, "tie_word_embeddings": True,
    "layer_types": ["sliding_attention"] * 60,
    "per_layer_config": {layer: {"head_dim": 512, "num_key_value_heads": 4} for layer in FULL},
}  # fmt: skip
for _layer in FULL:
    GEMMA_4_31B["layer_types"][int(_layer)] = "full_attention"
# Dots3NoteTextConfig's own defaults with six layers and eight experts
DOTS_3: Config = {
    "model_type": "dots3_note_text", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 6, "num_attention_heads": 4,
    "num_key_value_heads": 4, "head_dim": 256, "vocab_size": 512, "moe_intermediate_size": 32, "n_routed_experts": 8,
    "num_experts_per_tok": 2, "n_shared_experts": 1, "shared_experts_intermediate_size": 1536, "q_lora_rank": 32, "kv_lora_rank": 512,
    "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "sliding_window": 512, "attention_bias": False,
    "layer_types": ["indexed_attention", "indexed_attention", *["sliding_attention"] * 3, "indexed_attention"],
    "mlp_layer_types": ["dense", *["sparse"] * 5],
    "per_layer_config": {
        layer: {"kv_lora_rank": 48, "num_attention_heads": 2, "num_key_value_heads": 2, "q_lora_rank": 1024, "qk_nope_head_dim": 192}
        for layer in ("2", "3", "4")
    },
}  # fmt: skip


def changed(config: Config, **changes: Any) -> Config:
    return {**config, **changes}


def test_gemma_4_saved_again_has_the_full_layers_heads_of_its_override() -> None:
    shape = geometry(GEMMA_4_31B)
    assert shape.parameters_total == 30_697_345_280
    (full,) = [group for group in shape.attention if group.span is Span.FULL]
    assert (full.layers, full.kv_heads, full.kv_elements) == (10, 4, 2 * 4 * 512)


def test_what_every_layer_states_is_the_same_as_what_only_the_others_state() -> None:
    """`serialize_explicit_per_layer_config`."""
    explicit = {
        f"{layer:02}": {"head_dim": 512, "num_key_value_heads": 4}
        if f"{layer:02}" in FULL
        else {"head_dim": 256, "num_key_value_heads": 16}
        for layer in range(60)
    }
    assert geometry(changed(GEMMA_4_31B, per_layer_config=explicit)) == geometry(GEMMA_4_31B)


def test_an_empty_override_means_layers_that_are_all_alike() -> None:
    """Gemma4TextConfig with global_head_dim equal to head_dim, 16, writes {}."""
    small = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 6, "num_attention_heads": 4, "num_key_value_heads": 4,
             "head_dim": 16, "vocab_size": 512, "attention_k_eq_v": False, "per_layer_config": {},
             "layer_types": ["sliding_attention"] * 5 + ["full_attention"]}  # fmt: skip
    assert geometry(changed(GEMMA_4_31B, **small)).parameters_total == 280_320


def test_dots_3_saved_again_has_the_sliding_layers_sizes_of_its_override() -> None:
    assert geometry(DOTS_3).parameters_total == 6_438_192


def test_gemma_4_unified_has_no_embedding_for_each_layer() -> None:
    """Gemma4UnifiedTextConfig's defaults; Gemma4TextConfig's have one: 5,077,177,856 parameters."""
    config = {"model_type": "gemma4_unified", "text_config": {"model_type": "gemma4_unified_text"}}
    assert geometry(config).parameters_total == 3_010_758_400


@check_rows(
    ("config", "named"),
    [
        # any class of transformers 5 takes it
        ({"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4,
          "vocab_size": 512, "per_layer_config": {"3": {"intermediate_size": 64}}}, "gives layer 3 sizes of its own"),
        (changed(GEMMA_4_31B, per_layer_config={"03": {"head_dim": 512}}), "gives layer 3 other sizes"),
        (changed(GEMMA_4_31B, per_layer_config={"05": {"head_dim": 512}}), "other sizes than the full_attention layers"),
        (changed(GEMMA_4_31B, per_layer_config={layer: {"intermediate_size": 64} for layer in FULL}), "intermediate_size"),
        (changed(GEMMA_4_31B, per_layer_config={"99": {"head_dim": 512}}), "gives layer 99 other sizes"),
        (changed(GEMMA_4_31B, per_layer_config={"ü": {"head_dim": 512}}), "gives layer"),
        (changed(GEMMA_4_31B, per_layer_config=[{"head_dim": 512}]), "is not a mapping"),
        (changed(GEMMA_4_31B, per_layer_config={"05": 512}), "has no mapping for layer 05"),
        (changed(GEMMA_4_31B, per_layer_config={"05": {"head_dim": "512"}}), "per_layer_config"),
        (changed(GEMMA_4_31B, layer_types=None), "layer_types is missing"),
    ],
)  # fmt: skip
def test_an_override_that_no_formula_reads_is_refused_by_name(config: Config, named: str) -> None:
    with pytest.raises(FactsError, match=named) as refused:
        geometry(config)
    assert refused.value.reason == "architecture_unknown"


def test_an_override_that_changes_nothing_refuses_no_family() -> None:
    config = {"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4,
              "vocab_size": 512}  # fmt: skip
    for nothing in ({}, {"3": {"intermediate_size": 128}}, None):
        assert geometry({**config, "per_layer_config": nothing}) == geometry(config)
