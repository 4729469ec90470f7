"""Published mixture-of-experts models: the fields of their config.json that shape them, and their counts.

`TABLE` is table B.8 of the model-math facts: parameters, those that one token passes, those less the input embedding, KV bytes per
token at 2 bytes an element, experts, experts per token. `PUBLISHED` holds further models with the counts of transformers 5.23.0 built
from the same fields on the meta device: parameters, active, read, experts, experts per token. Fields are those of config.json files,
some as remembered, so that the count is the test and the name says which shape it is about.
"""

from __future__ import annotations

from typing import Any

Config = dict[str, Any]


def moe(model_type: str, hidden: int, layers: int, heads: int, kv_heads: int, vocabulary: int, **more: Any) -> Config:
    """A config.json's fields in the order of the table's notation: h L q kv V."""
    return {
        "model_type": model_type,
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "vocab_size": vocabulary,
        **more,
    }


# fmt: off
TABLE: dict[str, tuple[Config, int, int, int, int, int, int]] = {
    "Mixtral-8x7B": (moe("mixtral", 4096, 32, 32, 8, 32000, intermediate_size=14336, tie_word_embeddings=False,
        num_local_experts=8, num_experts_per_tok=2, sliding_window=None), 46_702_792_704, 12_879_925_248, 12_748_853_248, 131_072,
        8, 2),
    "Mixtral-8x22B": (moe("mixtral", 6144, 56, 48, 8, 32000, intermediate_size=16384, tie_word_embeddings=False,
        num_local_experts=8, num_experts_per_tok=2, sliding_window=None), 140_620_634_112, 39_152_031_744, 38_955_423_744,
        229_376, 8, 2),
    "Qwen3-30B-A3B": (moe("qwen3_moe", 2048, 48, 32, 4, 151936, intermediate_size=6144, head_dim=128, tie_word_embeddings=False,
        num_experts=128, num_experts_per_tok=8, moe_intermediate_size=768, decoder_sparse_step=1, mlp_only_layers=[],
        attention_bias=False, sliding_window=None, use_sliding_window=False, max_window_layers=48), 30_532_122_624, 3_353_032_704,
        3_041_867_776, 98_304, 128, 8),
    "Qwen3-235B-A22B": (moe("qwen3_moe", 4096, 94, 64, 4, 151936, intermediate_size=12288, head_dim=128,
        tie_word_embeddings=False, num_experts=128, num_experts_per_tok=8, moe_intermediate_size=1536, decoder_sparse_step=1,
        mlp_only_layers=[], attention_bias=False, sliding_window=None, use_sliding_window=False, max_window_layers=94),
        235_093_634_560, 22_190_763_520, 21_568_433_664, 192_512, 128, 8),
    "Qwen1.5-MoE-A2.7B": (moe("qwen2_moe", 2048, 24, 16, 16, 151936, intermediate_size=5632, moe_intermediate_size=1408,
        shared_expert_intermediate_size=5632, num_experts=60, num_experts_per_tok=4, max_window_layers=21, sliding_window=32768,
        use_sliding_window=False), 14_315_784_192, 2_689_173_504, 2_378_008_576, 196_608, 60, 4),
    "Phi-3.5-MoE": (moe("phimoe", 4096, 32, 32, 8, 32064, intermediate_size=6400, num_local_experts=16, num_experts_per_tok=2,
        attention_bias=True, lm_head_bias=True, sliding_window=131072), 41_873_153_344, 6_640_999_744, 6_509_665_600, 131_072, 16,
        2),
    "DeepSeek-V2": (moe("deepseek_v2", 5120, 60, 128, 128, 102400, intermediate_size=12288, moe_intermediate_size=1536,
        n_routed_experts=160, num_experts_per_tok=6, n_shared_experts=2, first_k_dense_replace=1, q_lora_rank=1536,
        kv_lora_rank=512, qk_rope_head_dim=64, qk_nope_head_dim=128, v_head_dim=128, moe_layer_freq=1), 235_741_434_880,
        21_375_800_320, 20_851_512_320, 69_120, 160, 6),
    "DeepSeek-V3": (moe("deepseek_v3", 7168, 61, 128, 128, 129280, intermediate_size=18432, tie_word_embeddings=False,
        n_routed_experts=256, num_experts_per_tok=8, moe_intermediate_size=2048, n_shared_experts=1, first_k_dense_replace=3,
        moe_layer_freq=1, attention_bias=False, q_lora_rank=1536, kv_lora_rank=512, qk_nope_head_dim=128, qk_rope_head_dim=64,
        v_head_dim=128, num_nextn_predict_layers=1), 671_026_404_352, 37_552_282_624, 36_625_603_584, 70_272, 256, 8),
    "gpt-oss-120b": (moe("gpt_oss", 2880, 36, 64, 8, 201088, intermediate_size=2880, head_dim=64, tie_word_embeddings=False,
        num_local_experts=128, num_experts_per_tok=4, experts_per_token=4, attention_bias=True, sliding_window=128),
        116_829_156_672, 5_711_982_912, 5_132_849_472, 73_728, 128, 4),
    "gpt-oss-20b": (moe("gpt_oss", 2880, 24, 64, 8, 201088, intermediate_size=2880, head_dim=64, tie_word_embeddings=False,
        num_local_experts=32, num_experts_per_tok=4, experts_per_token=4, attention_bias=True, sliding_window=128),
        20_914_757_184, 4_187_440_704, 3_608_307_264, 49_152, 32, 4),
    "Llama-4-Scout": ({"model_type": "llama4", "text_config": moe("llama4_text", 5120, 48, 40, 8, 202048, intermediate_size=8192,
        intermediate_size_mlp=16384, head_dim=128, num_local_experts=16, num_experts_per_tok=1, attention_bias=False,
        use_qk_norm=True, interleave_moe_layer_step=1, attention_chunk_size=8192)}, 107_769_861_120, 17_172_894_720,
        16_138_408_960, 196_608, 16, 1),
    "Llama-4-Maverick": ({"model_type": "llama4", "text_config": moe("llama4_text", 5120, 48, 40, 8, 202048,
        intermediate_size=8192, intermediate_size_mlp=16384, head_dim=128, num_local_experts=128, num_experts_per_tok=1,
        attention_bias=False, use_qk_norm=False, interleave_moe_layer_step=2, attention_chunk_size=8192)}, 400_711_848_960,
        17_184_691_200, 16_150_205_440, 196_608, 128, 1),
}

PUBLISHED: dict[str, tuple[Config, int, int, int, int, int]] = {
    "MiniMax-M2.5": (moe("minimax_m2", 3072, 62, 48, 8, 200064, intermediate_size=1536, head_dim=128, tie_word_embeddings=False,
        num_local_experts=256, num_experts_per_tok=8, shared_intermediate_size=0, use_qk_norm=True), 228_689_748_992,
        11_030_537_216, 10_415_940_608, 256, 8),
    "Qwen3-Coder-480B-A35B": (moe("qwen3_moe", 6144, 62, 96, 8, 151936, intermediate_size=8192, head_dim=128,
        tie_word_embeddings=False, num_experts=160, num_experts_per_tok=8, moe_intermediate_size=2560,
        shared_expert_intermediate_size=0, decoder_sparse_step=1, mlp_only_layers=[], qkv_bias=False, use_qk_norm=True,
        sliding_window=None, use_sliding_window=False, max_window_layers=62), 480_154_875_392, 35_474_765_312, 34_541_270_528,
        160, 8),
    "Qwen3-VL-235B-A22B": ({"model_type": "qwen3_vl_moe", "tie_word_embeddings": False, "text_config": moe("qwen3_vl_moe_text",
        4096, 94, 64, 4, 151936, intermediate_size=12288, head_dim=128, num_experts=128, num_experts_per_tok=8,
        moe_intermediate_size=1536, decoder_sparse_step=1, mlp_only_layers=[], attention_bias=False), "vision_config":
        {"model_type": "vision"}}, 235_093_634_560, 22_190_763_520, 21_568_433_664, 128, 8),
    "Kimi-K2": (moe("kimi_k2", 7168, 61, 64, 64, 163840, intermediate_size=18432, tie_word_embeddings=False, n_routed_experts=384,
        num_experts_per_tok=8, moe_intermediate_size=2048, n_shared_experts=1, first_k_dense_replace=1, moe_layer_freq=1,
        attention_bias=False, q_lora_rank=1536, kv_lora_rank=512, qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128,
        num_nextn_predict_layers=0), 1_026_408_209_408, 32_861_477_888, 31_687_072_768, 384, 8),
    "Kimi-K2.5": ({"model_type": "kimi_k25", "tie_word_embeddings": False, "text_config": moe("kimi_k2", 7168, 61, 64, 64, 163840,
        intermediate_size=18432, tie_word_embeddings=False, n_routed_experts=384, num_experts_per_tok=8,
        moe_intermediate_size=2048, n_shared_experts=1, first_k_dense_replace=1, moe_layer_freq=1, attention_bias=False,
        q_lora_rank=1536, kv_lora_rank=512, qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128,
        num_nextn_predict_layers=0), "vision_config": {"model_type": "vision"}}, 1_026_408_209_408, 32_861_477_888,
        31_687_072_768, 384, 8),
    "Qwen2-57B-A14B": (moe("qwen2_moe", 3584, 28, 28, 4, 151936, intermediate_size=18944, moe_intermediate_size=2560,
        shared_expert_intermediate_size=20480, num_experts=64, num_experts_per_tok=8), 57_408_658_944, 14_249_270_784,
        13_704_732_160, 64, 8),
    "DeepSeek-V2-Lite": (moe("deepseek_v2", 2048, 27, 16, 16, 102400, intermediate_size=10944, moe_intermediate_size=1408,
        n_routed_experts=64, num_experts_per_tok=6, n_shared_experts=2, first_k_dense_replace=1, q_lora_rank=None,
        kv_lora_rank=512, qk_rope_head_dim=64, qk_nope_head_dim=128, v_head_dim=128, moe_layer_freq=1), 15_706_484_224,
        2_661_150_208, 2_451_435_008, 64, 6),
    "GLM-4.5": (moe("glm4_moe", 5120, 92, 96, 8, 151552, intermediate_size=12288, head_dim=128, moe_intermediate_size=1536,
        n_routed_experts=160, n_shared_experts=1, num_experts_per_tok=8, first_k_dense_replace=3, attention_bias=True,
        use_qk_norm=True, num_nextn_predict_layers=1, tie_word_embeddings=False), 352_797_814_784, 33_632_251_904, 32_856_305_664,
        160, 8),
    "GLM-4.5-Air": (moe("glm4_moe", 4096, 46, 96, 8, 151552, intermediate_size=10944, head_dim=128, moe_intermediate_size=1408,
        n_routed_experts=128, n_shared_experts=1, num_experts_per_tok=8, first_k_dense_replace=1, attention_bias=True,
        use_qk_norm=False, num_nextn_predict_layers=1, tie_word_embeddings=False), 106_852_245_504, 13_424_123_904,
        12_803_366_912, 128, 8),
    "GLM-4.7-Flash": (moe("glm4_moe_lite", 2048, 47, 20, 20, 154880, intermediate_size=10240, moe_intermediate_size=1536,
        n_routed_experts=64, n_shared_experts=1, num_experts_per_tok=4, first_k_dense_replace=1, q_lora_rank=768,
        kv_lora_rank=512, qk_nope_head_dim=192, qk_rope_head_dim=64, v_head_dim=256, num_nextn_predict_layers=1), 29_943_390_976,
        3_896_763_136, 3_579_568_896, 64, 4),
    "dots.llm1": (moe("dots1", 4096, 62, 32, 32, 152064, intermediate_size=10944, moe_intermediate_size=1408,
        n_routed_experts=128, n_shared_experts=2, num_experts_per_tok=6, first_k_dense_replace=1, sliding_window=None,
        tie_word_embeddings=False), 142_774_373_888, 14_016_581_120, 13_393_726_976, 128, 6),
    "ERNIE-4.5-21B-A3B": (moe("ernie4_5_moe", 2560, 28, 20, 4, 103424, intermediate_size=12288, moe_intermediate_size=1536,
        moe_num_experts=64, moe_k=6, moe_num_shared_experts=2, moe_layer_start_index=1, moe_layer_end_index=27,
        moe_layer_interval=1, tie_word_embeddings=True, use_bias=False), 21_825_437_888, 3_352_150_208, 3_352_150_208, 64, 6),
    "ERNIE-4.5-300B-A47B": (moe("ernie4_5_moe", 8192, 54, 64, 8, 103424, intermediate_size=28672, moe_intermediate_size=3584,
        moe_num_experts=64, moe_k=8, moe_num_shared_experts=0, moe_layer_start_index=3, moe_layer_end_index=53,
        moe_layer_interval=1, tie_word_embeddings=False, use_bias=False), 299_484_163_264, 47_926_586_560, 47_079_337_152, 64, 8),
    "Hunyuan-A13B": (moe("hunyuan_v1_moe", 4096, 32, 32, 8, 128167, intermediate_size=3072, head_dim=128, num_experts=64,
        moe_topk=[8] * 32, moe_intermediate_size=[3072] * 32, num_shared_expert=[1] * 32, tie_word_embeddings=True,
        use_qk_norm=True, attention_bias=False), 80_393_183_232, 12_747_448_320, 12_747_448_320, 64, 8),
    "OLMoE-1B-7B": (moe("olmoe", 2048, 16, 16, 16, 50304, intermediate_size=1024, num_experts=64, num_experts_per_tok=8),
        6_919_161_856, 1_282_017_280, 1_178_994_688, 64, 8),
    "Granite-3.0-3B-A800M": (moe("granitemoe", 1536, 32, 24, 8, 49155, intermediate_size=512, num_local_experts=40,
        num_experts_per_tok=8, tie_word_embeddings=True, attention_bias=False), 3_298_793_472, 882_874_368, 882_874_368, 40, 8),
    "DBRX": ({"model_type": "dbrx", "d_model": 6144, "n_heads": 48, "n_layers": 40, "vocab_size": 100352, "attn_config":
        {"kv_n_heads": 8, "clip_qkv": 8, "rope_theta": 500000}, "ffn_config": {"ffn_hidden_size": 10752, "moe_num_experts": 16,
        "moe_top_k": 4}, "tie_word_embeddings": False}, 131_596_523_520, 36_469_708_800, 35_853_146_112, 16, 4),
    "Qwen3-Omni-30B-A3B": ({"model_type": "qwen3_omni_moe", "thinker_config": {"model_type": "qwen3_omni_moe_thinker",
        "audio_config": {"model_type": "x"}, "vision_config": {"model_type": "x"}, "text_config": moe("qwen3_omni_moe_text", 2048,
        48, 32, 4, 152064, intermediate_size=768, head_dim=128, num_experts=128, num_experts_per_tok=8,
        moe_intermediate_size=768)}}, 30_532_646_912, 3_353_556_992, 3_042_129_920, 128, 8),
    "Mistral-Small-4": ({"model_type": "mistral3", "text_config": {"model_type": "mistral4"}, "vision_config": {"model_type":
        "pixtral"}}, 118_972_826_624, 6_632_588_288, 6_095_717_376, 128, 4),
    "GLM-4.5V": ({"model_type": "glm4v_moe", "text_config": {"model_type": "glm4v_moe_text", "head_dim": 128}, "vision_config":
        {"model_type": "glm4v_moe"}}, 106_851_196_928, 13_423_075_328, 12_802_842_624, 128, 8),
    "K-EXAONE-236B": (moe("exaone_moe", 6144, 48, 64, 8, 153600, intermediate_size=18432, head_dim=128, num_experts=128,
        num_experts_per_tok=8, moe_intermediate_size=2048, num_shared_experts=1, first_k_dense_replace=1, sliding_window=128,
        layer_types=[*["sliding_attention"] * 3, "full_attention"] * 12), 236_571_150_336, 23_668_279_296, 22_724_560_896, 128,
        8),
    # its code is its publisher's; transformers' Glm4Moe of the same sizes has the same modules, and was counted
    "DeepSeek-MoE-16B": (moe("deepseek", 2048, 28, 16, 16, 102400, intermediate_size=10944, moe_intermediate_size=1408,
        n_routed_experts=64, n_shared_experts=2, num_experts_per_tok=6, first_k_dense_replace=1, moe_layer_freq=1),
        16_375_728_128, 2_828_650_496, 2_618_935_296, 64, 6),
}
# fmt: on
