"""Whole configs as published: what a row of the catalogue leaves out stands in them, too.

As in the copies of config.json that ai-dynamo/aiconfigurator 0.12.0 holds (model_configs, 095f58a5).
"""

from tests.support.models.shapes import Config

# fmt: off
QWEN3_30B: Config = {"model_type": "qwen3_moe", "hidden_size": 2048, "num_hidden_layers": 48, "num_attention_heads": 32,
    "num_key_value_heads": 4, "vocab_size": 151936, "intermediate_size": 6144, "head_dim": 128, "tie_word_embeddings": False,
    "num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768, "decoder_sparse_step": 1, "mlp_only_layers": [],
    "attention_bias": False, "sliding_window": None, "use_sliding_window": False, "max_window_layers": 48}
DEEPSEEK_V3: Config = {"model_type": "deepseek_v3", "hidden_size": 7168, "num_hidden_layers": 61, "num_attention_heads": 128,
    "num_key_value_heads": 128, "vocab_size": 129280, "intermediate_size": 18432, "tie_word_embeddings": False, "n_routed_experts": 256,
    "num_experts_per_tok": 8, "moe_intermediate_size": 2048, "n_shared_experts": 1, "first_k_dense_replace": 3, "moe_layer_freq": 1,
    "attention_bias": False, "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
    "num_nextn_predict_layers": 1}
KIMI_K3: Config = {"model_type": "kimi_k3", "tie_word_embeddings": False, "vision_config": {"vt_hidden_size": 1024}, "text_config":
    {"model_type": "kimi_linear", "hidden_size": 7168, "num_hidden_layers": 93, "num_attention_heads": 96, "num_key_value_heads": 96,
    "vocab_size": 163840, "intermediate_size": 33792, "tie_word_embeddings": False, "num_experts": 896, "num_experts_per_token": 16,
    "moe_intermediate_size": 3072, "num_shared_experts": 2, "first_k_dense_replace": 1, "moe_layer_freq": 1, "num_nextn_predict_layers":
    0, "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
    "mla_use_output_gate": True, "attn_res_block_size": 12, "routed_expert_hidden_size": 3584, "latent_moe_use_norm": True,
    "linear_attn_config": {"head_dim": 128, "num_heads": 96, "short_conv_kernel_size": 4, "use_full_rank_gate": True, "full_attn_layers":
    [*range(4, 93, 4), 93], "kda_layers": [layer for layer in range(1, 93) if layer % 4]}, "quantization_config": {"quant_method":
    "compressed-tensors", "format": "mxfp4-pack-quantized", "kv_cache_scheme": None, "config_groups": {"group_0": {"format":
    "mxfp4-pack-quantized", "input_activations": None, "targets": ["Linear"], "weights": {"group_size": 32, "num_bits": 4, "strategy":
    "group", "symmetric": True, "type": "float", "dynamic": False}}}, "ignore": ["re:.*self_attn.*", "re:.*shared_experts.*",
    "re:.*mlp\\.(gate|up|gate_up|down)_proj.*", "re:.*lm_head.*", "re:.*vision_tower.*", "re:.*mm_projector.*"]}}}
NEMOTRON_3_NANO: Config = {"model_type": "nemotron_h", "vocab_size": 131072, "hidden_size": 2688, "hybrid_override_pattern":
    "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME", "num_hidden_layers": 52, "num_attention_heads": 32, "num_key_value_heads": 2,
    "head_dim": 128, "intermediate_size": 1856, "ssm_state_size": 128, "mamba_num_heads": 64, "mamba_head_dim": 64, "n_groups": 8,
    "conv_kernel": 4, "use_conv_bias": True, "use_bias": False, "mlp_bias": False, "attention_bias": False, "n_routed_experts": 128,
    "num_experts_per_tok": 6, "n_shared_experts": 1, "moe_intermediate_size": 1856, "moe_shared_expert_intermediate_size": 3712,
    "tie_word_embeddings": False, "architectures": ["NemotronHForCausalLM"]}
QWEN3_5_35B_A3B: Config = {"architectures": ["Qwen3_5MoeForConditionalGeneration"], "model_type": "qwen3_5_moe", "vision_config":
    {"depth": 27}, "tie_word_embeddings": False, "text_config": {"model_type": "qwen3_5_moe_text", "attn_output_gate": True,
    "full_attention_interval": 4, "head_dim": 256, "hidden_size": 2048, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128,
    "linear_num_key_heads": 16, "linear_num_value_heads": 32, "linear_value_head_dim": 128, "mlp_only_layers": [],
    "mtp_num_hidden_layers": 1, "num_attention_heads": 16, "num_hidden_layers": 40, "num_key_value_heads": 2, "vocab_size": 248320,
    "moe_intermediate_size": 512, "num_experts": 256, "num_experts_per_tok": 8, "shared_expert_intermediate_size": 512}}
# fmt: on
