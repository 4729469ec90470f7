"""Small mixture-of-experts decoders with odd sizes and their switches flipped, as transformers 5.23.0 counts them on the meta device.

`ODD`: model_type, changes to `BASE`, then parameters, those that one token passes, those that a decode step reads, experts, experts per
token, and how many layers look at all of the context by the config class (with `layer_types` of its own, else every one).
"""

from __future__ import annotations

from typing import Any

Config = dict[str, Any]
BASE: Config = {"hidden_size": 96, "intermediate_size": 70, "num_attention_heads": 6, "vocab_size": 101}
_MLA: Config = {"qk_rope_head_dim": 6, "qk_nope_head_dim": 10, "v_head_dim": 12, "kv_lora_rank": 14}
_SMALL: Config = {"moe_intermediate_size": 30, "n_routed_experts": 7, "num_experts_per_tok": 3}

# fmt: off
ODD: dict[str, tuple[str, Config, int, int, int, int, int, int]] = {
    "mixtral-odd": ("mixtral", {"num_hidden_layers": 3, "num_key_value_heads": 2, "head_dim": 20, "num_local_experts": 5,
        "num_experts_per_tok": 3, "tie_word_embeddings": True, "sliding_window": 64}, 406_368, 285_408, 285_408, 5, 3, 0),
    "qwen2-odd": ("qwen2_moe", {"num_hidden_layers": 7, "num_key_value_heads": 3, "moe_intermediate_size": 30,
        "shared_expert_intermediate_size": 50, "num_experts": 9, "num_experts_per_tok": 2, "decoder_sparse_step": 2,
        "mlp_only_layers": [3], "qkv_bias": False}, 501_408, 380_448, 370_752, 9, 2, 7),
    "qwen3-odd": ("qwen3_moe", {"num_hidden_layers": 7, "num_key_value_heads": 3, "head_dim": 10, "moe_intermediate_size": 30,
        "num_experts": 9, "num_experts_per_tok": 2, "decoder_sparse_step": 3, "mlp_only_layers": [5], "attention_bias": True},
        343_028, 282_548, 272_852, 9, 2, 7),
    "phimoe-odd": ("phimoe", {"num_hidden_layers": 3, "num_key_value_heads": 2, "num_local_experts": 5, "num_experts_per_tok": 2},
        398_304, 216_864, 207_168, 5, 2, 3),
    "v2-odd": ("deepseek_v2", {**_MLA, **_SMALL, "num_hidden_layers": 5, "n_shared_experts": 3, "first_k_dense_replace": 2,
        "q_lora_rank": 22, "attention_bias": True}, 397_374, 293_694, 283_998, 7, 3, 5),
    "v3-odd": ("deepseek_v3", {**_MLA, **_SMALL, "num_hidden_layers": 5, "n_shared_experts": 3, "first_k_dense_replace": 0,
        "q_lora_rank": None, "tie_word_embeddings": True, "n_group": 1, "topk_group": 1}, 545_662, 372_862, 372_862, 7, 3, 5),
    "v3-default-ranks": ("deepseek_v3", {"hidden_size": 512, "num_hidden_layers": 4, "num_attention_heads": 4}, 821_211_648,
        41_071_104, 41_019_392, 256, 8, 4),
    "lite-odd": ("glm4_moe_lite", {**_MLA, **_SMALL, "num_hidden_layers": 5, "n_shared_experts": 1, "q_lora_rank": None,
        "mlp_layer_types": ["dense", "sparse", "dense", "sparse", "sparse"], "attention_bias": True}, 370_274, 266_594, 256_898,
        7, 3, 5),
    "mistral4-odd": ("mistral4", {**_MLA, **_SMALL, "num_hidden_layers": 5, "n_shared_experts": 2, "first_k_dense_replace": 1,
        "q_lora_rank": 9}, 416_491, 278_251, 268_555, 7, 3, 5),
    "glm4-odd": ("glm4_moe", {**_SMALL, "num_hidden_layers": 5, "num_key_value_heads": 2, "head_dim": 10, "n_shared_experts": 2,
        "first_k_dense_replace": 2, "attention_bias": True, "use_qk_norm": True}, 373_464, 269_784, 260_088, 7, 3, 5),
    "glm4-default": ("glm4_moe", {"num_hidden_layers": 3, "num_attention_heads": 16}, 104_767_776, 7_446_816, 7_437_120, 128, 8,
        3),
    "dots-odd": ("dots1", {**_SMALL, "num_hidden_layers": 5, "num_key_value_heads": 2, "n_shared_experts": 2,
        "first_k_dense_replace": 2, "attention_bias": True, "max_window_layers": 3, "sliding_window": 32}, 420_384, 316_704,
        307_008, 7, 3, 3),
    "ernie-odd": ("ernie4_5_moe", {"num_hidden_layers": 7, "num_key_value_heads": 2, "moe_intermediate_size": 30,
        "moe_num_experts": 7, "moe_k": 3, "moe_num_shared_experts": 2, "moe_layer_start_index": 2, "moe_layer_interval": 2},
        440_846, 371_726, 371_726, 7, 3, 7),
    "hunyuan-odd": ("hunyuan_v1_moe", {"num_hidden_layers": 5, "num_key_value_heads": 2, "head_dim": 20, "num_experts": 5,
        "moe_topk": 2, "attention_bias": True}, 782_928, 480_528, 470_832, 5, 2, 5),
    "olmoe-odd": ("olmoe", {"num_hidden_layers": 5, "num_key_value_heads": 2, "num_experts": 5, "num_experts_per_tok": 2,
        "attention_bias": True}, 651_648, 349_248, 339_552, 5, 2, 5),
    "granite-odd": ("granitemoeshared", {"num_hidden_layers": 5, "num_key_value_heads": 2, "num_local_experts": 5,
        "num_experts_per_tok": 2, "attention_bias": True, "shared_intermediate_size": 33}, 698_528, 396_128, 386_432, 5, 2, 5),
    "gpt-oss-odd": ("gpt_oss", {"num_hidden_layers": 5, "num_key_value_heads": 2, "head_dim": 20, "num_local_experts": 5,
        "num_experts_per_tok": 2}, 687_883, 381_943, 372_247, 5, 2, 2),
    "llama4-odd": ("llama4_text", {"intermediate_size_mlp": 90, "num_hidden_layers": 7, "num_key_value_heads": 2, "head_dim": 20,
        "num_local_experts": 5, "num_experts_per_tok": 2, "interleave_moe_layer_step": 3, "attention_bias": True}, 610_424,
        489_464, 479_768, 5, 2, 1),
    "llama4-listed": ("llama4_text", {"intermediate_size_mlp": 90, "num_hidden_layers": 4, "num_key_value_heads": 2, "head_dim":
        20, "num_local_experts": 5, "moe_layers": [0, 3], "no_rope_layers": [1, 1, 0, 1]}, 437_856, 276_576, 266_880, 5, 1, 1),
    "exaone-odd": ("exaone_moe", {"num_hidden_layers": 6, "num_key_value_heads": 2, "head_dim": 20, "num_experts": 5,
        "num_experts_per_tok": 2, "moe_intermediate_size": 30, "num_shared_experts": 2, "mlp_layer_types": ["dense", "sparse",
        "dense", "sparse", "sparse", "sparse"], "sliding_window": 16, "sliding_window_pattern": 3}, 489_360, 385_680, 375_984, 5,
        2, 2),
    "minimax-odd": ("minimax_m2", {"num_hidden_layers": 3, "num_key_value_heads": 2, "head_dim": 20, "num_local_experts": 5,
        "num_experts_per_tok": 3}, 416_544, 295_584, 285_888, 5, 3, 3),
    "solar-odd": ("solar_open", {**_SMALL, "num_hidden_layers": 3, "num_key_value_heads": 2, "n_shared_experts": 2,
        "attention_bias": True}, 849_024, 745_344, 735_648, 7, 3, 3),
}
# fmt: on
