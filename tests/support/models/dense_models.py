"""Published dense models: the fields of their config.json that shape them, and their parameters.

`TABLE` is table B.8 of the model-math facts (parameters, read by a decode step, KV bytes per token at 2 bytes an element).
`PUBLISHED` holds further models with the parameter count of transformers 5.23.0 built from the same fields on the meta device; the fields
are as remembered from the models' pages, so that the count is the test and the name says which shape it is about.
"""

from __future__ import annotations

from typing import Any

Config = dict[str, Any]


def dense(
    model_type: str,
    hidden: int,
    layers: int,
    heads: int,
    kv_heads: int,
    intermediate: int,
    vocabulary: int,
    **more: Any,
) -> Config:
    """A config.json's fields in the order of the table's notation: h L q kv i V."""
    return {
        "model_type": model_type,
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "intermediate_size": intermediate,
        "vocab_size": vocabulary,
        **more,
    }


TIED: Config = {"tie_word_embeddings": True}
FULL: Config = {"sliding_window": None}
QWEN: Config = {"use_sliding_window": False, "sliding_window": 131072, "max_window_layers": 28}

LLAMA_8B = dense("llama", 4096, 32, 32, 8, 14336, 128256, attention_bias=False, mlp_bias=False)
MISTRAL_7B = dense("mistral", 4096, 32, 32, 8, 14336, 32000, sliding_window=4096, tie_word_embeddings=False)
# as published: the text part leaves out what equals its class default
GEMMA3_27B: Config = {
    "model_type": "gemma3",
    "text_config": {
        "model_type": "gemma3_text",
        "head_dim": 128,
        "hidden_size": 5376,
        "intermediate_size": 21504,
        "num_attention_heads": 32,
        "num_hidden_layers": 62,
        "num_key_value_heads": 16,
        "sliding_window": 1024,
    },
    "vision_config": {"hidden_size": 1152, "model_type": "siglip_vision_model"},
}
GEMMA3_4B: Config = {
    "model_type": "gemma3",
    "text_config": {
        "model_type": "gemma3_text",
        "hidden_size": 2560,
        "intermediate_size": 10240,
        "num_hidden_layers": 34,
        "sliding_window": 1024,
    },
    "vision_config": {"hidden_size": 1152, "model_type": "siglip_vision_model"},
}

# name: config, parameters, of which a decode step reads, KV bytes per token
TABLE: dict[str, tuple[Config, int, int, int]] = {
    "Llama-2-7B": (dense("llama", 4096, 32, 32, 32, 11008, 32000), 6_738_415_616, 6_607_343_616, 524_288),
    "Llama-2-70B": (dense("llama", 8192, 80, 64, 8, 28672, 32000), 68_976_648_192, 68_714_504_192, 327_680),
    "Llama-3.1-8B": (LLAMA_8B, 8_030_261_248, 7_504_924_672, 131_072),
    "Llama-3.1-70B": (dense("llama", 8192, 80, 64, 8, 28672, 128256), 70_553_706_496, 69_503_033_344, 327_680),
    "Llama-3.1-405B": (dense("llama", 16384, 126, 128, 8, 53248, 128256), 405_853_388_800, 403_752_042_496, 516_096),
    "Llama-3.2-1B": (dense("llama", 2048, 16, 32, 8, 8192, 128256, head_dim=64, **TIED), 1_235_814_400, 1_235_814_400, 32_768),
    "Llama-3.2-3B": (dense("llama", 3072, 28, 24, 8, 8192, 128256, head_dim=128, **TIED), 3_212_749_824, 3_212_749_824, 114_688),
    "Mistral-7B-v0.1": (MISTRAL_7B, 7_241_732_096, 7_110_660_096, 131_072),
    "Mistral-Small-24B-2501": (
        dense("mistral", 5120, 40, 32, 8, 32768, 131072, head_dim=128, **FULL), 23_572_403_200, 22_901_314_560, 163_840,
    ),
    "Qwen2.5-0.5B": (dense("qwen2", 896, 24, 14, 2, 4864, 151936, **TIED, **QWEN), 494_032_768, 494_032_768, 12_288),
    "Qwen2.5-1.5B": (dense("qwen2", 1536, 28, 12, 2, 8960, 151936, **TIED, **QWEN), 1_543_714_304, 1_543_714_304, 28_672),
    "Qwen2.5-7B": (dense("qwen2", 3584, 28, 28, 4, 18944, 152064, **QWEN), 7_615_616_512, 7_070_619_136, 57_344),
    "Qwen2.5-14B": (dense("qwen2", 5120, 48, 40, 8, 13824, 152064, **QWEN), 14_770_033_664, 13_991_465_984, 196_608),
    "Qwen2.5-72B": (dense("qwen2", 8192, 80, 64, 8, 29568, 152064, **QWEN), 72_706_203_648, 71_460_495_360, 327_680),
    "Qwen3-0.6B": (dense("qwen3", 1024, 28, 16, 8, 3072, 151936, head_dim=128, **TIED), 596_049_920, 596_049_920, 114_688),
    "Qwen3-8B": (dense("qwen3", 4096, 36, 32, 8, 12288, 151936, head_dim=128), 8_190_735_360, 7_568_405_504, 147_456),
    "Qwen3-32B": (dense("qwen3", 5120, 64, 64, 8, 25600, 151936, head_dim=128), 32_762_123_264, 31_984_210_944, 262_144),
    "Gemma-7B": (dense("gemma", 3072, 28, 16, 16, 24576, 256000, head_dim=256), 8_537_680_896, 8_537_680_896, 458_752),
    "Gemma-2-9B": (
        dense("gemma2", 3584, 42, 16, 8, 14336, 256000, head_dim=256, sliding_window=4096), 9_241_705_984, 9_241_705_984, 344_064,
    ),
    "Gemma-3-1B": (
        dense("gemma3_text", 1152, 26, 4, 1, 6912, 262144, head_dim=256, sliding_window=512, sliding_window_pattern=6),
        999_885_952, 999_885_952, 26_624,
    ),
    "Gemma-3-27B": (GEMMA3_27B, 27_009_346_304, 27_009_346_304, 507_904),
    "Phi-3-mini-4k": (dense("phi3", 3072, 32, 32, 32, 8192, 32064, sliding_window=2047), 3_821_079_552, 3_722_578_944, 393_216),
}  # fmt: skip

# name: config, parameters
PUBLISHED: dict[str, tuple[Config, int]] = {
    "TinyLlama-1.1B": (dense("llama", 2048, 22, 32, 4, 5632, 32000), 1_100_048_384),
    "SmolLM2-1.7B": (dense("llama", 2048, 24, 32, 32, 8192, 49152, **TIED), 1_711_376_384),
    "Yi-34B": (dense("llama", 7168, 60, 56, 8, 20480, 64000), 34_388_917_248),
    "DeepSeek-LLM-7B": (dense("llama", 4096, 30, 32, 32, 11008, 102400), 6_910_365_696),
    "Mistral-Nemo-12B": (dense("mistral", 5120, 40, 32, 8, 14336, 131072, head_dim=128, **FULL), 12_247_782_400),
    "Ministral-8B-2410": (dense("mistral", 4096, 36, 32, 8, 12288, 131072, head_dim=128, sliding_window=32768), 8_019_808_256),
    "Qwen2.5-32B": (dense("qwen2", 5120, 64, 40, 8, 27648, 152064, **QWEN), 32_763_876_352),
    "Qwen3-4B": (dense("qwen3", 2560, 36, 32, 8, 9728, 151936, head_dim=128, **TIED), 4_022_468_096),
    "Qwen3-14B": (dense("qwen3", 5120, 40, 40, 8, 17408, 151936, head_dim=128), 14_768_307_200),
    "Gemma-2B": (dense("gemma", 2048, 18, 8, 1, 16384, 256000, head_dim=256), 2_506_172_416),
    "Gemma-2-2B": (dense("gemma2", 2304, 26, 8, 4, 9216, 256000, head_dim=256, sliding_window=4096), 2_614_341_888),
    "Gemma-2-27B": (dense("gemma2", 4608, 46, 32, 16, 36864, 256000, head_dim=128, sliding_window=4096), 27_227_128_320),
    "Phi-4-mini": (dense("phi3", 3072, 32, 24, 8, 8192, 200064, partial_rotary_factor=0.75, pad_token_id=0, **TIED), 3_836_021_760),
    "Phi-4": (dense("phi3", 5120, 40, 40, 10, 17920, 100352, pad_token_id=0), 14_659_507_200),
    "Phi-2": (dense("phi", 2560, 32, 32, 32, 10240, 51200), 2_779_683_840),
    "Command-R-v01": (dense("cohere", 8192, 40, 64, 64, 22528, 256000), 34_980_831_232),
    "Command-R-plus": (dense("cohere", 12288, 64, 96, 8, 33792, 256000, use_qk_norm=True), 103_810_674_688),
    "Command-R7B": (dense("cohere2", 4096, 32, 32, 8, 14336, 256000, sliding_window=4096, sliding_window_pattern=4), 8_028_033_024),
    "Granite-3.1-8B": (dense("granite", 4096, 40, 32, 8, 12800, 49155, **TIED), 8_170_848_256),
    "OLMo-7B": (dense("olmo", 4096, 32, 32, 32, 11008, 50304), 6_888_095_744),
    "OLMo-2-7B": (dense("olmo2", 4096, 32, 32, 32, 11008, 100352), 7_298_617_344),
    "OLMo-3-7B": (dense("olmo3", 4096, 32, 32, 32, 11008, 100278), 7_298_011_136),
    "StarCoder2-3B": (dense("starcoder2", 3072, 30, 24, 2, 12288, 49152, sliding_window=4096), 3_030_371_328),
    "StableLM-2-1.6B": (dense("stablelm", 2048, 24, 32, 32, 5632, 100352, use_qkv_bias=True), 1_644_515_328),
    "StableLM-2-12B": (
        dense("stablelm", 5120, 40, 32, 8, 13824, 100352, qk_layernorm=True, use_parallel_residual=True), 12_143_185_920
    ),
    "GLM-4-9B-hf": (dense("glm", 4096, 40, 32, 2, 13696, 151552, head_dim=128, attention_bias=True), 9_399_951_360),
    "GLM-4-32B-0414": (dense("glm4", 6144, 61, 48, 2, 23040, 151552, head_dim=128, attention_bias=False), 32_566_081_536),
    "EXAONE-4.0-32B": (
        dense("exaone4", 5120, 64, 40, 8, 27392, 102400, head_dim=128, sliding_window=4096,
              layer_types=["sliding_attention", "sliding_attention", "sliding_attention", "full_attention"] * 16), 32_003_216_384
    ),
    "InternLM3-8B": (dense("internlm3", 4096, 48, 32, 2, 10240, 128512, head_dim=128, qkv_bias=False, bias=False), 8_804_241_408),
    "SmolLM3-3B": (dense("smollm3", 2048, 36, 16, 4, 11008, 128256, pad_token_id=0), 3_075_098_624),
    "Minitron-4B": (dense("nemotron", 3072, 32, 24, 8, 9216, 256000, head_dim=128), 4_190_509_056),
    "Nemotron-4-340B": (dense("nemotron", 18432, 96, 96, 8, 73728, 256000, head_dim=192), 341_029_195_776),
    "Seed-OSS-36B": (dense("seed_oss", 5120, 64, 80, 8, 27648, 155136, head_dim=128, attention_bias=True,
        attention_out_bias=False), 36_151_104_512),
    "ERNIE-4.5-0.3B": (dense("ernie4_5", 1024, 18, 16, 2, 3072, 103424, head_dim=128, use_bias=False), 360_748_032),
    "Apertus-8B": (dense("apertus", 4096, 32, 32, 8, 21504, 131072), 8_053_338_176),
    "AFM-4.5B": (dense("arcee", 2560, 36, 20, 4, 18432, 128004, head_dim=128), 4_619_184_640),
    "Hunyuan-7B": (dense("hunyuan_v1_dense", 4096, 32, 32, 8, 14336, 128167, head_dim=128, **TIED), 7_504_568_320),
    "GPT-2": ({"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024, "vocab_size": 50257}, 124_439_808),
    "StarCoder": (
        {"model_type": "gpt_bigcode", "n_embd": 6144, "n_layer": 40, "n_head": 48, "n_inner": 24576, "n_positions": 8192,
         "vocab_size": 49152, "multi_query": True}, 15_517_456_384
    ),
    "GPT-J-6B": ({"model_type": "gptj", "n_embd": 4096, "n_layer": 28, "n_head": 16, "rotary_dim": 64, "vocab_size": 50400},
        6_050_882_784),
    "GPT-Neo-2.7B": (
        {"model_type": "gpt_neo", "hidden_size": 2560, "num_layers": 32, "num_heads": 20, "vocab_size": 50257,
            "max_position_embeddings": 2048,
         "attention_types": [[["global", "local"], 16]], "attention_layers": ["global", "local"] * 16}, 2_651_307_520
    ),
    "GPT-NeoX-20B": (
        {"model_type": "gpt_neox", "hidden_size": 6144, "num_hidden_layers": 44, "num_attention_heads": 64, "intermediate_size": 24576,
         "vocab_size": 50432}, 20_554_567_680
    ),
    "BLOOM-7B1": ({"model_type": "bloom", "n_embed": 4096, "n_layer": 30, "num_attention_heads": 32, "vocab_size": 250880},
        7_069_016_064),
    "BLOOM-176B": ({"model_type": "bloom", "n_embed": 14336, "n_layer": 70, "num_attention_heads": 112, "vocab_size": 250880},
        176_247_271_424),
    "Falcon-7B": (
        {"model_type": "falcon", "hidden_size": 4544, "num_hidden_layers": 32, "num_attention_heads": 71, "vocab_size": 65024,
         "multi_query": True, "parallel_attn": True, "new_decoder_architecture": False, "bias": False, "alibi": False}, 6_921_720_704
    ),
    "Falcon-40B": (
        {"model_type": "falcon", "hidden_size": 8192, "num_hidden_layers": 60, "num_attention_heads": 128, "num_kv_heads": 8,
            "vocab_size": 65024,
         "new_decoder_architecture": True, "bias": False}, 41_303_293_952
    ),
    "Falcon-11B": (
        {"model_type": "falcon", "hidden_size": 4096, "num_hidden_layers": 60, "num_attention_heads": 32, "num_kv_heads": 8,
            "vocab_size": 65024,
         "new_decoder_architecture": True, "num_ln_in_parallel_attn": 1, "ffn_hidden_size": 16384, "bias": False,
         "tie_word_embeddings": False}, 11_102_822_400
    ),
    "MPT-7B": (
        {"model_type": "mpt", "d_model": 4096, "n_layers": 32, "n_heads": 32, "expansion_ratio": 4, "no_bias": True, "vocab_size": 50432,
         "attn_config": {"attn_type": "multihead_attention", "alibi": True}}, 6_649_286_656
    ),
    "OPT-350M": (
        {"model_type": "opt", "hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "ffn_dim": 4096,
            "vocab_size": 50272,
         "max_position_embeddings": 2048, "word_embed_proj_dim": 512, "do_layer_norm_before": False}, 331_196_416
    ),
    "OPT-6.7B": (
        {"model_type": "opt", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "ffn_dim": 16384,
            "vocab_size": 50272,
         "max_position_embeddings": 2048, "word_embed_proj_dim": 4096}, 6_658_473_984
    ),
}  # fmt: skip
