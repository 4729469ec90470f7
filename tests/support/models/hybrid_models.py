"""Published hybrids and encoders: the fields of their config.json that shape them.

Nemotron and Qwen3.5 as in the copies that ai-dynamo/aiconfigurator holds (model_configs, 095f58a5); the others from their classes'
defaults in transformers 5.23.0 or their model cards.
"""

from __future__ import annotations

from typing import Any

Config = dict[str, Any]

# fmt: off
NEMOTRON_3_NANO: Config = {"model_type": "nemotron_h", "vocab_size": 131072, "hidden_size": 2688,
    "hybrid_override_pattern": "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME", "num_hidden_layers": 52,
    "num_attention_heads": 32, "num_key_value_heads": 2, "head_dim": 128, "intermediate_size": 1856, "ssm_state_size": 128,
    "mamba_num_heads": 64, "mamba_head_dim": 64, "n_groups": 8, "conv_kernel": 4, "use_conv_bias": True, "use_bias": False,
    "mlp_bias": False, "attention_bias": False, "n_routed_experts": 128, "num_experts_per_tok": 6, "n_shared_experts": 1,
    "moe_intermediate_size": 1856, "moe_shared_expert_intermediate_size": 3712, "tie_word_embeddings": False,
    "architectures": ["NemotronHForCausalLM"]}
NEMOTRON_H_56B: Config = {"model_type": "nemotron_h", "vocab_size": 131072, "hidden_size": 8192,
    "hybrid_override_pattern": "M-M-M-M*-" + "M-M-M-M-M*-" * 9 + "M-M-M-M-M-",
    "num_hidden_layers": 118, "num_attention_heads": 64, "num_key_value_heads": 8, "attention_head_dim": 128,
    "intermediate_size": 32768, "ssm_state_size": 256, "mamba_num_heads": 256, "mamba_head_dim": 64, "n_groups": 8, "conv_kernel": 4,
    "use_conv_bias": True, "use_bias": False, "mlp_bias": False, "attention_bias": False, "tie_word_embeddings": False,
    "architectures": ["NemotronHForCausalLM"]}
NEMOTRON_3_SUPER: Config = {"model_type": "nemotron_h", "vocab_size": 131072, "hidden_size": 4096,
    "hybrid_override_pattern": "MEMEMEM*EMEMEMEM*EMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEM*EMEMEMEME",
    "num_hidden_layers": 88, "num_attention_heads": 32, "num_key_value_heads": 2, "head_dim": 128, "intermediate_size": 2688,
    "ssm_state_size": 128, "mamba_num_heads": 128, "mamba_head_dim": 64, "n_groups": 8, "conv_kernel": 4, "use_conv_bias": True,
    "use_bias": False, "mlp_bias": False, "attention_bias": False, "n_routed_experts": 512, "num_experts_per_tok": 22,
    "n_shared_experts": 1, "moe_intermediate_size": 2688, "moe_shared_expert_intermediate_size": 5376, "moe_latent_size": 1024,
    "num_nextn_predict_layers": 1, "tie_word_embeddings": False, "architectures": ["NemotronHForCausalLM"]}
_WORDS = {"M": "mamba", "E": "moe", "*": "attention"}
_ULTRA = (
    "MEMEMEM*EMEMEM*EMEMEMEM*EMEMEMEM*EMEMEM*EMEMEMEM*EMEMEMEM*EM"
    "EMEM*EMEMEMEM*EMEMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME"
)
NEMOTRON_3_ULTRA: Config = {"model_type": "nemotron_h", "vocab_size": 131072, "hidden_size": 8192, "num_attention_heads": 64,
    "num_key_value_heads": 2, "head_dim": 128, "intermediate_size": 5120, "ssm_state_size": 128, "mamba_num_heads": 256,
    "mamba_head_dim": 64, "n_groups": 8, "conv_kernel": 4, "use_conv_bias": True, "use_bias": False, "mlp_bias": False,
    "attention_bias": False, "n_routed_experts": 512, "num_experts_per_tok": 22, "n_shared_experts": 1, "moe_intermediate_size": 5120,
    "moe_shared_expert_intermediate_size": 10240, "moe_latent_size": 2048, "num_nextn_predict_layers": 1, "tie_word_embeddings": False,
    "architectures": ["NemotronHForCausalLM"], "layers_block_type": [_WORDS[letter] for letter in _ULTRA]}
QWEN3_5_27B: Config = {"architectures": ["Qwen3_5ForConditionalGeneration"], "model_type": "qwen3_5",
    "vision_config": {"depth": 27}, "tie_word_embeddings": False, "text_config": {"model_type": "qwen3_5_text",
    "attn_output_gate": True, "full_attention_interval": 4, "head_dim": 256, "hidden_size": 5120, "intermediate_size": 17408,
    "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_num_key_heads": 16, "linear_num_value_heads": 48,
    "linear_value_head_dim": 128, "mlp_only_layers": [], "mtp_num_hidden_layers": 1, "num_attention_heads": 24,
    "num_hidden_layers": 64, "num_key_value_heads": 4, "vocab_size": 248320}}
QWEN3_5_35B_A3B: Config = {"architectures": ["Qwen3_5MoeForConditionalGeneration"], "model_type": "qwen3_5_moe",
    "vision_config": {"depth": 27}, "tie_word_embeddings": False, "text_config": {"model_type": "qwen3_5_moe_text",
    "attn_output_gate": True, "full_attention_interval": 4, "head_dim": 256, "hidden_size": 2048, "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128, "linear_num_key_heads": 16, "linear_num_value_heads": 32, "linear_value_head_dim": 128,
    "mlp_only_layers": [], "mtp_num_hidden_layers": 1, "num_attention_heads": 16, "num_hidden_layers": 40, "num_key_value_heads": 2,
    "vocab_size": 248320, "moe_intermediate_size": 512, "num_experts": 256, "num_experts_per_tok": 8,
    "shared_expert_intermediate_size": 512}}
QWEN3_5_397B_A17B: Config = {"architectures": ["Qwen3_5MoeForConditionalGeneration"], "model_type": "qwen3_5_moe",
    "vision_config": {"depth": 27}, "tie_word_embeddings": False, "text_config": {"model_type": "qwen3_5_moe_text",
    "attn_output_gate": True, "full_attention_interval": 4, "head_dim": 256, "hidden_size": 4096, "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128, "linear_num_key_heads": 16, "linear_num_value_heads": 64, "linear_value_head_dim": 128,
    "mlp_only_layers": [], "mtp_num_hidden_layers": 1, "num_attention_heads": 32, "num_hidden_layers": 60, "num_key_value_heads": 2,
    "vocab_size": 248320, "moe_intermediate_size": 1024, "num_experts": 512, "num_experts_per_tok": 10,
    "shared_expert_intermediate_size": 1024}}
QWEN3_NEXT_80B: Config = {"model_type": "qwen3_next", "vocab_size": 151936, "hidden_size": 2048, "num_hidden_layers": 48,
    "num_attention_heads": 16, "num_key_value_heads": 2, "head_dim": 256, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128,
    "linear_value_head_dim": 128, "linear_num_key_heads": 16, "linear_num_value_heads": 32, "decoder_sparse_step": 1,
    "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512, "num_experts_per_tok": 10, "num_experts": 512,
    "intermediate_size": 5120, "mlp_only_layers": [], "full_attention_interval": 4}
JAMBA: Config = {"model_type": "jamba", "vocab_size": 65536, "hidden_size": 4096, "intermediate_size": 14336,
    "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "num_experts": 16, "num_experts_per_tok": 2,
    "expert_layer_period": 2, "expert_layer_offset": 1, "attn_layer_period": 8, "attn_layer_offset": 4, "mamba_d_state": 16,
    "mamba_d_conv": 4, "mamba_expand": 2, "mamba_dt_rank": "auto"}
MAMBA_2_8B: Config = {"model_type": "mamba", "vocab_size": 50280, "hidden_size": 2560, "state_size": 16, "num_hidden_layers": 64,
    "expand": 2, "conv_kernel": 4, "use_bias": False, "use_conv_bias": True, "time_step_rank": 160}
FALCON_MAMBA_7B: Config = {"model_type": "falcon_mamba", "vocab_size": 65024, "hidden_size": 4096, "state_size": 16,
    "num_hidden_layers": 64, "expand": 2, "conv_kernel": 4, "use_bias": False, "use_conv_bias": True, "time_step_rank": 256,
    "tie_word_embeddings": False}
CODESTRAL_MAMBA_7B: Config = {"model_type": "mamba2", "vocab_size": 32768, "hidden_size": 4096, "num_heads": 128, "head_dim": 64,
    "state_size": 128, "num_hidden_layers": 64, "n_groups": 8, "conv_kernel": 4, "expand": 2}
BAMBA_9B: Config = {"model_type": "bamba", "vocab_size": 128256, "hidden_size": 4096, "intermediate_size": 14336,
    "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "attn_layer_indices": [9, 18, 27], "mamba_d_conv": 4,
    "mamba_d_head": 64, "mamba_d_state": 128, "mamba_expand": 2, "mamba_n_groups": 1, "mamba_n_heads": 128, "mamba_conv_bias": True,
    "mamba_proj_bias": False}
GRANITE_4_SMALL: Config = {"model_type": "granitemoehybrid", "vocab_size": 100352, "hidden_size": 4096, "intermediate_size": 768,
    "num_hidden_layers": 40, "num_attention_heads": 32, "num_key_value_heads": 8, "num_local_experts": 72, "num_experts_per_tok": 10,
    "shared_intermediate_size": 1536, "mamba_d_conv": 4, "mamba_d_head": 64, "mamba_d_state": 128, "mamba_expand": 2,
    "mamba_n_groups": 1, "mamba_n_heads": 128, "mamba_conv_bias": True, "mamba_proj_bias": False, "tie_word_embeddings": True,
    "layer_types": ["attention" if layer % 10 == 5 else "mamba" for layer in range(40)]}
LFM2_1_2B: Config = {"model_type": "lfm2", "vocab_size": 65536, "hidden_size": 2048, "block_ff_dim": 12288, "num_hidden_layers": 16,
    "num_attention_heads": 32, "num_key_value_heads": 8, "conv_L_cache": 3, "conv_bias": False, "block_multiple_of": 256,
    "block_ffn_dim_multiplier": 1.0, "block_auto_adjust_ff_dim": True, "full_attn_idxs": [2, 5, 8, 10, 12, 14]}

BERT_BASE: Config = {"architectures": ["BertForMaskedLM"], "model_type": "bert", "vocab_size": 30522, "hidden_size": 768,
    "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072, "max_position_embeddings": 512,
    "type_vocab_size": 2, "position_embedding_type": "absolute"}
BERT_LARGE: Config = {**BERT_BASE, "hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16,
    "intermediate_size": 4096}
BGE_M3: Config = {**BERT_LARGE, "architectures": ["XLMRobertaModel"], "model_type": "xlm-roberta", "vocab_size": 250002,
    "max_position_embeddings": 8194, "type_vocab_size": 1}
NOMIC_1_5: Config = {"architectures": ["NomicBertModel"], "model_type": "nomic_bert", "activation_function": "swiglu",
    "n_embd": 768, "n_head": 12, "n_inner": 3072, "n_layer": 12, "n_positions": 8192, "vocab_size": 30528, "type_vocab_size": 2,
    "qkv_proj_bias": False, "mlp_fc1_bias": False, "mlp_fc2_bias": False, "prenorm": False}
MODERNBERT_BASE: Config = {"architectures": ["ModernBertForMaskedLM"], "model_type": "modernbert", "vocab_size": 50368,
    "hidden_size": 768, "intermediate_size": 1152, "num_hidden_layers": 22, "num_attention_heads": 12, "global_attn_every_n_layers": 3,
    "local_attention": 128, "attention_bias": False, "mlp_bias": False, "norm_bias": False}
NV_EMBED_2: Config = {"architectures": ["NVEmbedModel"], "model_type": "nvembed", "hidden_size": 4096,
    "latent_attention_config": {"model_type": "latent_attention", "num_latents_value": 512, "num_cross_heads": 8, "hidden_dim": 4096,
    "latent_dim": 4096, "cross_dim_head": 4096}, "text_config": {"architectures": ["MistralModel"], "model_type": "bidir_mistral",
    "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
    "vocab_size": 32000}}
# fmt: on
