"""Dense decoders by config.json's model_type: what each family's layers hold, and its config class's defaults.

Facts: model-math B.1-B.4; layouts and defaults compared with transformers 5.23.0 on the meta device, module by module.
Families with names of their own for sizes and modules: dense_classic; more rows: dense_later.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from llm_serving_exporter.facts.architectures import dense_classic, dense_later
from llm_serving_exporter.facts.architectures import dense_windows as windows
from llm_serving_exporter.facts.architectures.dense_decoder import Layout, QkNorm, decoder
from llm_serving_exporter.facts.fields import Fields
from llm_serving_exporter.model.geometry import Geometry
from llm_serving_exporter.model.record import replace

_UNTIED = {"tie_word_embeddings": False}
_TIED = {"tie_word_embeddings": True}

_SEVEN_B = {
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "vocab_size": 32000,
}
_MISTRAL = {**_SEVEN_B, **_UNTIED, "intermediate_size": 14336, "num_key_value_heads": 8, "sliding_window": 4096}
_QWEN = {
    **_SEVEN_B,
    **_UNTIED,
    "intermediate_size": 22016,
    "num_key_value_heads": 32,
    "vocab_size": 151936,
    "max_window_layers": 28,
}
_QWEN_VL = {
    **_UNTIED, "hidden_size": 8192, "intermediate_size": 29568, "num_hidden_layers": 80, "num_attention_heads": 64,
    "num_key_value_heads": 8, "vocab_size": 152064, "max_window_layers": 80,
}  # fmt: skip
_GEMMA = {
    **_TIED, "hidden_size": 3072, "intermediate_size": 24576, "num_hidden_layers": 28, "num_attention_heads": 16,
    "num_key_value_heads": 16, "head_dim": 256, "vocab_size": 256000,
}  # fmt: skip
_GEMMA2 = {
    **_TIED, "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26, "num_attention_heads": 8, "num_key_value_heads": 4,
    "head_dim": 256, "vocab_size": 256000, "sliding_window": 4096,
}  # fmt: skip
_COHERE = {
    **_TIED, "hidden_size": 8192, "intermediate_size": 22528, "num_hidden_layers": 40, "num_attention_heads": 64, "vocab_size": 256000,
}  # fmt: skip
_GLM = {**_UNTIED, "num_key_value_heads": 2, "head_dim": 128, "attention_bias": True}
# norms on what a sublayer gives, not on what it takes
_AFTER = ("post_attention_layernorm", "post_feedforward_layernorm")
_SANDWICH = ("input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm")

_LLAMA = Layout({**_SEVEN_B, **_UNTIED}, qkv_bias="attention_bias", mlp_bias="mlp_bias")
_GEMMA3 = Layout(
    {**_GEMMA2, "vocab_size": 262208}, qkv_bias="attention_bias", qk_norm=True, norms=_SANDWICH, terse=True,
    window=windows.all_but_every(6, "sliding_window_pattern", "_sliding_window_pattern"),
)  # fmt: skip
_QWEN2 = Layout(_QWEN, qkv_bias=True, out_bias=False, window=windows.beyond_first)
_QWEN2_VL = replace(_QWEN2, defaults=_QWEN_VL)
_QWEN3 = Layout({**_QWEN, "head_dim": 128}, qkv_bias="attention_bias", qk_norm=True, window=windows.beyond_first)
_PHI3 = Layout(_UNTIED, fused_qkv="qkv_proj", fused_gate_up="mlp.gate_up_proj", window=windows.always)
_OLMO2 = Layout(_UNTIED, qkv_bias="attention_bias", qk_norm=True, qk_norm_size=QkNorm.WHOLE, norms=_AFTER)
_GLM_LAYOUT = Layout(_GLM, qkv_bias="attention_bias", out_bias=False, fused_gate_up="mlp.gate_up_proj")
_RELU2 = Layout({**_UNTIED}, qkv_bias="attention_bias", mlp_bias="mlp_bias", gated=False)

LAYOUTS: Mapping[str, Layout] = {
    "llama": _LLAMA,
    "mistral": Layout(_MISTRAL, window=windows.always),
    "ministral": Layout(_MISTRAL, window=windows.always),
    "ministral3": Layout(
        {**_MISTRAL, "num_hidden_layers": 34, "vocab_size": 131072, "head_dim": 128, "sliding_window": None},
        window=windows.always,
    ),
    "qwen2": _QWEN2,
    "qwen2_vl": _QWEN2_VL,
    "qwen2_vl_text": _QWEN2_VL,
    "qwen2_5_vl": _QWEN2_VL,
    "qwen2_5_vl_text": _QWEN2_VL,
    "qwen3": _QWEN3,
    "qwen3_vl_text": Layout({**_QWEN, "head_dim": 128}, qkv_bias="attention_bias", qk_norm=True),
    "gemma": Layout(_GEMMA, qkv_bias="attention_bias"),
    "gemma2": Layout(_GEMMA2, qkv_bias="attention_bias", norms=_SANDWICH, window=windows.all_but_every(2)),
    "gemma3": _GEMMA3,
    "gemma3_text": _GEMMA3,
    "vaultgemma": Layout(
        _GEMMA2, qkv_bias="attention_bias", norms=("input_layernorm", "pre_feedforward_layernorm"), window=windows.all_but_every(2)
    ),
    "phi": Layout(
        _UNTIED, qkv_bias=True, mlp_bias=True, head_bias=True, gated=False, out_name="dense", mlp_names=("", "mlp.fc1", "mlp.fc2"),
        norms=("input_layernorm",), norm_vectors=2, final_norm="model.final_layernorm",
        qk_norm="qk_layernorm", qk_norm_names=("q_layernorm", "k_layernorm"), qk_norm_vectors=2,
    ),
    "phi3": _PHI3,
    "phi3_v": _PHI3,
    "cohere": Layout(
        _COHERE, qkv_bias="attention_bias", norms=("input_layernorm",), qk_norm="use_qk_norm", qk_norm_size=QkNorm.WHOLE
    ),
    "cohere2": Layout(
        {**_COHERE, "sliding_window": 4096}, qkv_bias="attention_bias", norms=("input_layernorm",),
        window=windows.all_but_every(4, "sliding_window_pattern", "_sliding_window_pattern"),
    ),
    "granite": _LLAMA,
    "olmo": Layout(_UNTIED, qkv_bias="attention_bias", norm_vectors=0),
    "olmo2": _OLMO2,
    "olmo3": replace(_OLMO2, defaults={**_UNTIED, "sliding_window": 4096}, window=windows.all_but_every(4)),
    "starcoder2": Layout(
        {**_TIED, "num_key_value_heads": 2, "use_bias": True}, qkv_bias="use_bias", mlp_bias="use_bias", gated=False,
        mlp_names=("", "mlp.c_fc", "mlp.c_proj"), norm_vectors=2, window=windows.always,
    ),
    "glm": _GLM_LAYOUT,
    "glm4": replace(
        _GLM_LAYOUT,
        norms=("input_layernorm", "post_attention_layernorm", "post_self_attn_layernorm", "post_mlp_layernorm"),
    ),
    "exaone4": Layout(
        {**_UNTIED, "num_key_value_heads": 32, "sliding_window": 4096, "sliding_window_pattern": 4}, qk_norm=True, norms=_AFTER,
        window=windows.letters,
    ),
    "internlm3": Layout(
        {**_UNTIED, "num_key_value_heads": 2, "head_dim": 128}, qkv_bias="qkv_bias", out_bias="bias", mlp_bias="bias"
    ),
    "smollm3": Layout(
        {**_TIED, "num_key_value_heads": 4}, qkv_bias="attention_bias", mlp_bias="mlp_bias", window=windows.without_rope
    ),
    "nemotron": replace(_RELU2, norm_vectors=2),
    "arcee": _RELU2,
    "jais2": replace(
        _RELU2, defaults={**_UNTIED, "attention_bias": True, "mlp_bias": True}, norm_vectors=2
    ),
    "apertus": Layout(
        _UNTIED, qkv_bias="attention_bias", qk_norm=True, gated=False, norms=("attention_layernorm", "feedforward_layernorm"),
        extra={"mlp.act_fn.alpha_p": 1, "mlp.act_fn.alpha_n": 1},
    ),
    "seed_oss": Layout(
        {**_UNTIED, "num_key_value_heads": 8, "head_dim": 128, "attention_bias": True},
        qkv_bias="attention_bias", out_bias="attention_out_bias", mlp_bias="mlp_bias",
    ),
    "ernie4_5": Layout(
        {**_TIED, "num_key_value_heads": 2, "head_dim": 128}, qkv_bias="use_bias", mlp_bias="use_bias"
    ),
    "hunyuan_v1_dense": Layout(
        {**_UNTIED, "use_qk_norm": True}, qkv_bias="attention_bias",
        qk_norm="use_qk_norm", qk_norm_names=("query_layernorm", "key_layernorm"),
    ),
    "minicpm": Layout(_TIED),
}  # fmt: skip


def _stablelm(fields: Fields) -> Geometry:
    """StableLM: with parallel residuals the MLP takes the attention's norm, and there is one norm less."""
    head_size = fields.whole("hidden_size") // fields.whole("num_attention_heads")
    if fields.has("head_dim") and fields.whole("head_dim") != head_size:
        raise fields.refused(
            "head_dim", f"is not hidden_size / num_attention_heads = {head_size}, as here it has to be"
        )
    layout = Layout(
        {**_UNTIED, "num_key_value_heads": 32}, qkv_bias="use_qkv_bias", out_bias=False, norm_vectors=2,
        qk_norm="qk_layernorm", qk_norm_size=QkNorm.WHOLE, qk_norm_names=("q_layernorm", "k_layernorm"),
    )  # fmt: skip
    if fields.flag("use_parallel_residual", default=False):
        layout = replace(layout, norms=("input_layernorm",))
    return decoder(fields, layout)


BUILDERS: Mapping[str, Callable[[Fields], Geometry]] = {
    **{model_type: partial(decoder, layout=layout) for model_type, layout in LAYOUTS.items()},
    "stablelm": _stablelm,
    **dense_classic.BUILDERS,
    **dense_later.BUILDERS,
}
