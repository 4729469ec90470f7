"""Small decoders of further families with odd sizes and their switches flipped, as transformers 5.23.0 counts them on the meta device.

`LATER`: model_type, changes to `BASE`, then parameters, those that one token passes, those that a decode step reads, and how many layers
look at all of the context by the config class (with `layer_types` of its own, else every one).
"""

from __future__ import annotations

from typing import Any

from tests.support.models.moe_odd import BASE

__all__ = ["BASE", "LATER"]

# fmt: off
LATER: list[tuple[str, dict[str, Any], int, int, int, int]] = [
    ("iquestcoder", {"num_hidden_layers": 3, "num_key_value_heads": 2, "head_dim": 20}, 172_704, 172_704, 163_008, 3),
    ("helium", {"num_hidden_layers": 3, "num_key_value_heads": 2, "head_dim": 16, "mlp_bias": True, "attention_bias": True}, 155_460,
        155_460, 145_764, 3),
    ("cwm", {"num_hidden_layers": 7, "num_key_value_heads": 2, "head_dim": 20}, 376_992, 376_992, 367_296, 2),
    ("granite_swa", {"num_hidden_layers": 6, "num_key_value_heads": 2, "tie_word_embeddings": False}, 289_092, 289_092, 279_396, 2),
    ("bitnet", {"num_hidden_layers": 3, "num_key_value_heads": 2}, 154_770, 154_770, 145_074, 3),
    ("nanochat", {"num_hidden_layers": 3, "num_key_value_heads": 2}, 133_440, 133_440, 123_744, 3),
    ("persimmon", {"num_hidden_layers": 3}, 173_490, 173_490, 163_794, 3),
    ("persimmon", {"num_hidden_layers": 3, "qk_layernorm": False}, 173_298, 173_298, 163_602, 3),
    ("hyperclovax", {"num_hidden_layers": 3, "num_key_value_heads": 2, "head_dim": 20}, 173_280, 173_280, 163_584, 3),
    ("hyperclovax", {"num_hidden_layers": 3, "num_key_value_heads": 3, "head_dim": 16, "use_post_norm": False}, 163_488, 163_488,
        153_792, 3),
    ("minicpm3", {"num_hidden_layers": 3, "qk_rope_head_dim": 6, "qk_nope_head_dim": 10, "v_head_dim": 12, "kv_lora_rank": 14,
        "q_lora_rank": 22}, 115_668, 115_668, 115_668, 3),
    ("minicpm3", {"num_hidden_layers": 3, "qk_rope_head_dim": 6, "qk_nope_head_dim": 10, "v_head_dim": 12, "kv_lora_rank": 14,
        "q_lora_rank": 22, "tie_word_embeddings": False, "attention_bias": True}, 125_778, 125_778, 116_082, 3),
    ("youtu", {"num_hidden_layers": 3, "qk_rope_head_dim": 6, "qk_nope_head_dim": 10, "v_head_dim": 12, "kv_lora_rank": 14,
        "q_lora_rank": 22, "tie_word_embeddings": False}, 125_364, 125_364, 115_668, 3),
    ("axk1", {"num_hidden_layers": 4, "qk_rope_head_dim": 6, "qk_nope_head_dim": 10, "v_head_dim": 12, "kv_lora_rank": 14,
        "q_lora_rank": 22, "moe_intermediate_size": 30, "n_routed_experts": 8, "num_experts_per_tok": 3, "n_shared_experts": 2,
        "n_group": 1, "topk_group": 1}, 361_968, 232_368, 222_672, 4),
    ("hy_v3", {"num_hidden_layers": 4, "num_key_value_heads": 2, "head_dim": 20, "moe_intermediate_size": 30, "num_experts": 7,
        "num_experts_per_tok": 3, "num_shared_experts": 2}, 398_752, 295_072, 285_376, 4),
    ("mellum", {"num_hidden_layers": 4, "num_key_value_heads": 2, "head_dim": 20, "moe_intermediate_size": 30, "num_local_experts": 7,
        "num_experts_per_tok": 3, "sliding_window": 16, "layer_types": ["full_attention", "sliding_attention", "full_attention",
        "sliding_attention"]}, 387_904, 249_664, 239_968, 2),
    ("flex_olmo", {"pad_token_id": None, "num_hidden_layers": 4, "num_key_value_heads": 2, "num_experts": 5, "num_experts_per_tok": 2},
        524_192, 282_272, 272_576, 4),
    ("granitemoe_swa", {"num_hidden_layers": 6, "num_key_value_heads": 2, "num_local_experts": 5, "num_experts_per_tok": 2}, 775_812,
        412_932, 403_236, 2),
    ("kolibri1", {"num_hidden_layers": 6, "num_key_value_heads": 2, "head_dim": 20, "moe_intermediate_size": 30,
        "num_local_experts": 7, "num_experts_per_tok": 3, "shared_expert_intermediate_size": 26}, 618_192, 410_832, 401_136, 1),
    ("afmoe", {"num_hidden_layers": 6, "num_key_value_heads": 2, "head_dim": 20, "moe_intermediate_size": 30, "num_experts": 7,
        "num_experts_per_tok": 3, "num_shared_experts": 2, "num_dense_layers": 2}, 629_548, 491_308, 481_612, 1),
    ("cohere2_moe", {"num_hidden_layers": 6, "num_key_value_heads": 2, "head_dim": 20, "num_experts": 5, "num_experts_per_tok": 2,
        "num_shared_experts": 2, "first_k_dense_replace": 1, "prefix_dense_intermediate_size": 44}, 915_360, 612_960, 612_960, 2),
    ("laguna", {"num_hidden_layers": 4, "num_key_value_heads": 2, "head_dim": 20, "moe_intermediate_size": 30, "num_experts": 7,
        "num_experts_per_tok": 3, "shared_expert_intermediate_size": 26, "num_attention_heads_per_layer": [6, 8, 6, 8],
        "layer_types": ["full_attention", "sliding_attention", "full_attention", "sliding_attention"]}, 387_445, 283_765, 274_069,
        2),
    ("hy_v4", {"num_hidden_layers": 7, "qk_rope_head_dim": 6, "qk_nope_head_dim": 10, "v_head_dim": 12, "kv_lora_rank": 14,
        "q_lora_rank": 22, "moe_intermediate_size": 30, "n_routed_experts": 7, "num_experts_per_tok": 3, "n_shared_experts": 2,
        "index_head_dim": 8, "index_n_heads": 3, "hc_mult": 3, "pad_token_id": None}, 694_562, 487_202, 477_506, 0),
    ("dots3_note_text", {"num_hidden_layers": 7, "qk_rope_head_dim": 6, "qk_nope_head_dim": 10, "v_head_dim": 12, "kv_lora_rank": 14,
        "q_lora_rank": 22, "moe_intermediate_size": 30, "n_routed_experts": 7, "num_experts_per_tok": 3, "n_shared_experts": 1,
        "shared_experts_intermediate_size": 26, "index_head_dim": 8, "index_n_heads": 3, "num_key_value_heads": 6,
        "swa_num_attention_heads": 4, "swa_num_key_value_heads": 4, "swa_q_lora_rank": 22, "swa_kv_lora_rank": 18,
        "swa_head_dim": 16, "swa_qk_nope_head_dim": 10, "swa_v_head_dim": 8, "use_dsa": True, "pad_token_id": None}, 546_686,
        339_326, 329_630, 0),
    ("minimax", {"num_hidden_layers": 5, "num_key_value_heads": 2, "head_dim": 20, "num_local_experts": 5, "num_experts_per_tok": 3},
        734_448, 532_848, 523_152, 3),
    ("olmo_hybrid", {"num_hidden_layers": 6, "num_key_value_heads": 2, "linear_num_key_heads": 3, "linear_num_value_heads": 6,
        "linear_key_head_dim": 10, "linear_value_head_dim": 14, "pad_token_id": None, "eos_token_id": None}, 324_834, 324_834,
        315_138, 1),
    ("beam", {"num_hidden_layers": 8, "num_key_value_heads": 2, "head_dim": 20, "moe_intermediate_size": 30, "num_experts": 8,
        "num_experts_per_tok": 3, "n_group": 1, "topk_group": 1}, 770_768, 554_768, 545_072, 2),
    ("lfm3", {"num_hidden_layers": 9, "num_key_value_heads": 2, "head_dim": 16, "pad_token_id": None}, 483_104, 483_104, 483_104, 2),
    ("lfm3", {"num_hidden_layers": 9, "num_key_value_heads": 2, "head_dim": 16, "use_sandwich_norm": False,
        "use_attention_gate": False, "conv_bias": True, "tie_word_embeddings": False, "pad_token_id": None}, 491_168, 491_168,
        481_472, 2),
    ("inkling_text", {"num_hidden_layers": 7, "num_key_value_heads": 2, "head_dim": 20, "swa_num_attention_heads": 4,
        "swa_num_key_value_heads": 4, "swa_head_dim": 12, "moe_intermediate_size": 30, "n_routed_experts": 7,
        "num_experts_per_tok": 3, "d_rel": 5, "rel_extent": 40, "sliding_window_size": 16, "dense_mlp_idx": 2}, 618_951, 446_151,
        436_455, 1),
]
# fmt: on
