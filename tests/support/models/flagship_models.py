"""Published decoders whose layers attend in more ways than one: the fields of their config.json that shape them, and their counts.

Fields as in the copies of config.json that ai-dynamo/aiconfigurator 0.12.0 holds (model_configs), where a name says no other source.
`CLASSES`: parameters, those that one token passes, those that a decode step reads, experts, experts per token: counted by transformers
5.23.0's own class of the same fields on the meta device. Gemma 3n, Kimi-Linear, Ling 3, LongCat and Llama 3.2 Vision are their config
classes' defaults; which of Kimi-Linear's layers are MLA, and the sizes of the 90B Vision, are remembered.
"""

from __future__ import annotations

from tests.support.models.moe_models import Config, moe

# fmt: off
DEEPSEEK_V3_2: Config = moe("deepseek_v32", 7168, 61, 128, 128, 129280, intermediate_size=18432, tie_word_embeddings=False,
    n_routed_experts=256, num_experts_per_tok=8, moe_intermediate_size=2048, n_shared_experts=1, first_k_dense_replace=3,
    moe_layer_freq=1, attention_bias=False, q_lora_rank=1536, kv_lora_rank=512, qk_nope_head_dim=128, qk_rope_head_dim=64,
    v_head_dim=128, num_nextn_predict_layers=1, index_head_dim=128, index_n_heads=64, index_topk=2048)
GLM_5: Config = moe("glm_moe_dsa", 6144, 78, 64, 64, 154880, intermediate_size=12288, tie_word_embeddings=False, head_dim=64,
    n_routed_experts=256, num_experts_per_tok=8, moe_intermediate_size=2048, n_shared_experts=1, first_k_dense_replace=3,
    moe_layer_freq=1, attention_bias=False, q_lora_rank=2048, kv_lora_rank=512, qk_nope_head_dim=192, qk_rope_head_dim=64,
    v_head_dim=256, num_nextn_predict_layers=1, index_head_dim=128, index_n_heads=32, index_topk=2048)
GLM_5_2: Config = {**GLM_5, "head_dim": 192, "index_skip_topk_offset": 3, "index_topk_freq": 4, "index_topk_pattern": None,
    "indexer_types": ["full"] * 3 + (["shared"] * 3 + ["full"]) * 18 + ["shared"] * 3,
    "mlp_layer_types": ["dense"] * 3 + ["sparse"] * 75}
KIMI_LINEAR_48B: Config = moe("kimi_linear", 2304, 27, 32, 32, 163840, intermediate_size=9216, tie_word_embeddings=False,
    num_experts=256, num_experts_per_token=8, moe_intermediate_size=1024, num_shared_experts=1, first_k_dense_replace=1,
    moe_layer_freq=1, q_lora_rank=None, kv_lora_rank=512, qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128,
    linear_attn_config={"head_dim": 128, "num_heads": 32, "short_conv_kernel_size": 4, "full_attn_layers": [4, 8, 12, 16, 20, 24, 27],
        "kda_layers": [layer for layer in range(1, 27) if layer % 4]})
KIMI_K3: Config = {"model_type": "kimi_k3", "tie_word_embeddings": False, "vision_config": {"vt_hidden_size": 1024}, "text_config":
    moe("kimi_linear", 7168, 93, 96, 96, 163840, intermediate_size=33792, tie_word_embeddings=False, num_experts=896,
    num_experts_per_token=16, moe_intermediate_size=3072, num_shared_experts=2, first_k_dense_replace=1, moe_layer_freq=1,
    num_nextn_predict_layers=0, q_lora_rank=1536, kv_lora_rank=512, qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128,
    mla_use_output_gate=True, attn_res_block_size=12, routed_expert_hidden_size=3584, latent_moe_use_norm=True,
    linear_attn_config={"head_dim": 128, "num_heads": 96, "short_conv_kernel_size": 4, "use_full_rank_gate": True,
        "full_attn_layers": [*range(4, 93, 4), 93], "kda_layers": [layer for layer in range(1, 93) if layer % 4]},
    quantization_config={"quant_method": "compressed-tensors", "format": "mxfp4-pack-quantized", "kv_cache_scheme": None,
        "config_groups": {"group_0": {"format": "mxfp4-pack-quantized", "input_activations": None, "targets": ["Linear"], "weights":
            {"group_size": 32, "num_bits": 4, "strategy": "group", "symmetric": True, "type": "float", "dynamic": False}}},
        "ignore": ["re:.*self_attn.*", "re:.*shared_experts.*", "re:.*mlp\\.(gate|up|gate_up|down)_proj.*", "re:.*lm_head.*",
            "re:.*vision_tower.*", "re:.*mm_projector.*"]})}
_MIMO_KINDS = [0, *([1] * 4 + [0]), *([1] * 5 + [0]) * 7]
MIMO_V2_FLASH: Config = moe("mimo_v2_flash", 4096, 48, 64, 4, 152576, intermediate_size=16384, tie_word_embeddings=False, head_dim=192,
    v_head_dim=128, sliding_window=128, sliding_window_size=128, attention_chunk_size=128, swa_num_attention_heads=64,
    swa_num_key_value_heads=8, swa_head_dim=192, swa_v_head_dim=128, hybrid_layer_pattern=_MIMO_KINDS, moe_layer_freq=[0] + [1] * 47,
    moe_intermediate_size=2048, n_routed_experts=256, n_shared_experts=None, num_experts_per_tok=8, attention_bias=False,
    add_swa_attention_sink_bias=True, add_full_attention_sink_bias=False)
GEMMA_4_26B_A4B: Config = {"model_type": "gemma4", "tie_word_embeddings": True, "vision_config": {"hidden_size": 1152}, "text_config":
    moe("gemma4_text", 2816, 30, 16, 8, 262144, intermediate_size=2112, tie_word_embeddings=True, attention_bias=False,
    attention_k_eq_v=True, enable_moe_block=True, global_head_dim=512, head_dim=256, hidden_size_per_layer_input=0,
    layer_types=(["sliding_attention"] * 5 + ["full_attention"]) * 5, moe_intermediate_size=704, num_experts=128, top_k_experts=8,
    num_global_key_value_heads=2, num_kv_shared_layers=0, sliding_window=1024, use_double_wide_mlp=False,
    vocab_size_per_layer_input=262144)}
GEMMA_4_31B: Config = {"model_type": "gemma4", "tie_word_embeddings": True, "text_config": moe("gemma4_text", 5376, 60, 32, 16, 262144,
    intermediate_size=21504, tie_word_embeddings=True, attention_bias=False, attention_k_eq_v=True, enable_moe_block=False,
    global_head_dim=512, head_dim=256, hidden_size_per_layer_input=0, layer_types=(["sliding_attention"] * 5 + ["full_attention"]) * 10,
    num_experts=None, num_global_key_value_heads=4, num_kv_shared_layers=0, sliding_window=1024, use_double_wide_mlp=False,
    vocab_size_per_layer_input=262144)}
# not a published one: what the class counts with shared layers that are twice as wide, and an embedding for each layer
GEMMA_4_SHARING: Config = {"model_type": "gemma4", "text_config": moe("gemma4_text", 1536, 12, 8, 1, 4096, intermediate_size=6144,
    tie_word_embeddings=True, attention_k_eq_v=False, head_dim=256, global_head_dim=512, num_kv_shared_layers=7, use_double_wide_mlp=True,
    hidden_size_per_layer_input=256, vocab_size_per_layer_input=4096, sliding_window=512,
    layer_types=(["sliding_attention"] * 4 + ["full_attention"]) * 2 + ["sliding_attention", "full_attention"])}
# its class's defaults, which are google/gemma-3n-E4B
GEMMA_3N_E4B: Config = {"model_type": "gemma3n", "text_config": {"model_type": "gemma3n_text"}, "audio_config": {"hidden_size": 1536},
    "vision_config": {"hidden_size": 2048}}
STEP_3_7_FLASH: Config = moe("step3p7", 4096, 45, 64, 8, 128896, intermediate_size=11264, head_dim=128, sliding_window=512,
    layer_types=(["full_attention"] + ["sliding_attention"] * 3) * 11 + ["full_attention"], first_k_dense_replace=3, num_experts=288,
    num_experts_per_tok=8, moe_intermediate_size=1280, share_expert_dim=1280, n_shared_experts=1, num_nextn_predict_layers=3)
MINIMAX_M3: Config = moe("minimax_m3", 6144, 60, 64, 4, 200064, intermediate_size=3072, tie_word_embeddings=False, head_dim=128,
    dense_intermediate_size=12288, shared_intermediate_size=3072, n_shared_experts=1, first_k_dense_replace=3,
    moe_layer_freq=[0] * 3 + [1] * 57, num_local_experts=128, num_experts_per_tok=4, num_mtp_modules=7, num_nextn_predict_layers=1,
    qk_norm_type="per_head", use_qk_norm=True, sparse_attention_config={"sparse_attention_freq": [0] * 3 + [1] * 57,
        "sparse_block_size": 128, "sparse_index_dim": 128, "sparse_init_block": 0, "sparse_local_block": 1, "sparse_num_index_heads": 4,
        "sparse_topk_blocks": 16, "use_sparse_attention": True})
_V4: Config = {"model_type": "deepseek_v4", "vocab_size": 129280, "head_dim": 512, "num_key_value_heads": 1, "qk_rope_head_dim": 64,
    "n_shared_experts": 1, "num_experts_per_tok": 6, "num_hash_layers": 3, "o_lora_rank": 1024, "index_head_dim": 128,
    "index_n_heads": 64, "sliding_window": 128, "hc_mult": 4, "num_nextn_predict_layers": 1, "tie_word_embeddings": False,
    "expert_dtype": "fp4", "quantization_config": {"quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3",
        "scale_fmt": "ue8m0", "weight_block_size": [128, 128]}}
DEEPSEEK_V4_FLASH: Config = {**_V4, "hidden_size": 4096, "num_hidden_layers": 43, "num_attention_heads": 64, "q_lora_rank": 1024,
    "moe_intermediate_size": 2048, "n_routed_experts": 256, "o_groups": 8, "index_topk": 512,
    "compress_ratios": [0, 0, *[4, 128] * 20, 4, 0]}
DEEPSEEK_V4_PRO: Config = {**_V4, "hidden_size": 7168, "num_hidden_layers": 61, "num_attention_heads": 128, "q_lora_rank": 1536,
    "moe_intermediate_size": 3072, "n_routed_experts": 384, "o_groups": 16, "index_topk": 1024,
    "compress_ratios": [128, 128, *[4, 128] * 29, 4, 0]}
LING_3: Config = moe("bailing_hybrid", 2560, 42, 32, 32, 157184, architectures=["BailingMoeV3ForCausalLM"], intermediate_size=6144,
    tie_word_embeddings=False, num_experts=512, num_experts_per_tok=8, num_shared_experts=1, moe_intermediate_size=768,
    first_k_dense_replace=2, layer_group_size=6, head_dim=128, short_conv_kernel_size=4, q_lora_rank=None, kv_lora_rank=512,
    qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128)
LLAMA_3_2_11B_VISION: Config = {"model_type": "mllama", "vision_config": {"hidden_size": 1280}, "text_config": {"model_type":
    "mllama_text_model", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 40, "num_attention_heads": 32,
    "num_key_value_heads": 8, "vocab_size": 128256, "tie_word_embeddings": False, "cross_attention_layers": [3, 8, 13, 18, 23, 28, 33, 38]}}
LLAMA_3_2_90B_VISION: Config = {"model_type": "mllama", "text_config": {"model_type": "mllama_text_model", "hidden_size": 8192,
    "intermediate_size": 28672, "num_hidden_layers": 100, "num_attention_heads": 64, "num_key_value_heads": 8, "vocab_size": 128256,
    "tie_word_embeddings": False, "cross_attention_layers": list(range(3, 100, 5))}}
LONGCAT_FLASH: Config = {"model_type": "longcat_flash", "hidden_size": 6144, "num_attention_heads": 64, "vocab_size": 131072,
    "num_layers": 28, "ffn_hidden_size": 12288, "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
    "v_head_dim": 128, "moe_topk": 12, "n_routed_experts": 512, "zero_expert_num": 256, "expert_ffn_hidden_size": 2048}

CLASSES: dict[str, tuple[Config, int, int, int, int, int]] = {
    "DeepSeek-V3.2": (DEEPSEEK_V3_2, 671_877_929_216, 38_403_807_488, 37_477_128_448, 256, 8),
    "GLM-5": (GLM_5, 743_911_199_232, 41_784_709_632, 40_833_126_912, 256, 8),
    "GLM-5.2": (GLM_5_2, 743_377_000_704, 41_250_511_104, 40_298_928_384, 256, 8),
    "Kimi-Linear-48B-A3B": (KIMI_LINEAR_48B, 49_122_675_072, 3_484_453_248, 3_106_965_888, 256, 8),
    "MiMo-V2-Flash": (MIMO_V2_FLASH, 308_778_768_832, 15_445_924_288, 14_820_972_992, 256, 8),
    "Gemma-4-26B-A4B": (GEMMA_4_26B_A4B, 25_233_141_760, 3_822_530_560, 3_822_530_560, 128, 8),
    "Gemma-4-31B": (GEMMA_4_31B, 30_697_345_280, 30_697_345_280, 30_697_345_280, 0, 0),
    "Gemma-4 with shared layers": (GEMMA_4_SHARING, 670_139_392, 670_139_392, 657_556_480, 0, 0),
    "Gemma-3n-E4B": (GEMMA_3N_E4B, 6_835_235_568, 6_835_235_568, 4_486_425_328, 0, 0),
    "Step-3.7-Flash": (STEP_3_7_FLASH, 195_844_496_640, 10_875_690_240, 10_347_732_224, 288, 8),
    "MiniMax-M3": (MINIMAX_M3, 426_174_565_632, 25_962_466_560, 24_733_273_344, 128, 4),
    "DeepSeek-V4-Flash": (DEEPSEEK_V4_FLASH, 284_332_230_231, 13_799_622_231, 13_270_091_351, 256, 6),
    "DeepSeek-V4-Pro": (DEEPSEEK_V4_PRO, 1_572_997_179_491, 49_779_058_787, 48_852_379_747, 384, 6),
    "Ling-3": (LING_3, 124_414_191_072, 5_505_672_672, 5_103_281_632, 512, 8),
    "Llama-3.2-11B-Vision": (LLAMA_3_2_11B_VISION, 9_775_192_080, 9_775_192_080, 9_249_822_736, 0, 0),
    "Llama-3.2-90B-Vision": (LLAMA_3_2_90B_VISION, 87_666_865_192, 87_666_865_192, 86_616_126_504, 0, 0),
}

# Nemotron-Super-49B: each run of layers as (KV sharing, FFN multiple, layers)
_RUNS = ((8, 2.625, 1), (8, 5.25, 5), (None, 2.625, 2), (8, 5.25, 3), (None, 3.28125, 1), (8, 5.25, 30), (None, 1.3125, 1),
    (None, 2.625, 2), (None, 1.3125, 1), (None, 5.25, 1), (None, 1.3125, 1), (None, 2.625, 1), (None, 1.3125, 3), (8, 5.25, 1),
    (None, 1.3125, 1), (None, 1.0, 2), (None, 1.3125, 1), (None, 1.0, 3), (None, 1.3125, 2), (None, 0.5, 2), (None, 1.0, 2),
    (None, 0.5, 2), (None, 1.0, 1), (None, 0.5, 2), (8, 5.25, 9))
NEMOTRON_SUPER_49B: Config = {"model_type": "nemotron-nas", "hidden_size": 8192, "num_hidden_layers": 80, "num_attention_heads": 64,
    "num_key_value_heads": None, "intermediate_size": None, "vocab_size": 128256, "tie_word_embeddings": False, "attention_bias": False,
    "mlp_bias": False, "block_configs": [{"attention": {"n_heads_in_group": shared, "no_op": shared is None, "replace_with_linear": False,
        "window_length": None}, "ffn": {"ffn_mult": multiple, "no_op": False, "replace_with_linear": False}}
        for shared, multiple, layers in _RUNS for _ in range(layers)]}
# fmt: on
