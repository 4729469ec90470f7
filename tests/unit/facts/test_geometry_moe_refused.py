"""Configs of mixture-of-experts models that are refused: the message names the key, and no geometry is guessed."""

from __future__ import annotations

from typing import Any

import pytest

from llm_serving_exporter.errors import FactsError
from llm_serving_exporter.facts.architectures import geometry
from llm_serving_exporter.model.snapshot import Absence
from tests.support.models.moe_models import PUBLISHED, TABLE, Config
from tests.support.models.moe_odd import BASE, ODD
from tests.support.rows import check_rows


def refusal(config: Config) -> str:
    with pytest.raises(FactsError) as caught:
        geometry(config)
    assert caught.value.reason == Absence.ARCHITECTURE_UNKNOWN.value
    return str(caught.value)


def odd(name: str, **changes: Any) -> Config:
    model_type, fields, *_ = ODD[name]
    return {"model_type": model_type, **BASE, **fields, **changes}


@check_rows("key", ["hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size"])
@check_rows("name", ["Mixtral-8x7B", "Qwen3-30B-A3B", "DeepSeek-V3", "gpt-oss-20b"])
def test_missing_sizes_are_named(name: str, key: str) -> None:
    config = {field: value for field, value in TABLE[name][0].items() if field != key}
    assert f"({config['model_type']}): {key} is missing" in refusal(config)


@check_rows(
    ("config", "said"),
    [
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
        ({**PUBLISHED["DBRX"][0], "ffn_config": None}, "ffn_config is missing"),
        ({**PUBLISHED["DBRX"][0], "attn_config": {}}, "(dbrx): kv_n_heads is missing"),
        ({**PUBLISHED["DBRX"][0], "tie_word_embeddings": True}, "tie_word_embeddings is true"),
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
)  # fmt: skip
def test_what_cannot_be_read_is_named(config: Config, said: str) -> None:
    assert said in refusal(config)
