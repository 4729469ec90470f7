"""More dense decoders: rows over the shared layout, and those with MLA and no experts.

Layouts and defaults compared with transformers 5.23.0 on the meta device, but for families that bring code of their own (named in
`_OWN_CODE`), which are Llama's or Qwen's by vLLM 0.33's loaders.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from llm_serving_exporter.facts import parts
from llm_serving_exporter.facts.architectures import dense_windows as windows
from llm_serving_exporter.facts.architectures.dense_decoder import Layout, decoder
from llm_serving_exporter.facts.architectures.mla import mla_attention
from llm_serving_exporter.facts.architectures.moe_decoder import frame, prepared
from llm_serving_exporter.facts.fields import Fields
from llm_serving_exporter.model.geometry import Geometry
from llm_serving_exporter.model.record import replace

_UNTIED = {"tie_word_embeddings": False}
_TIED = {"tie_word_embeddings": True}
_LLAMA = Layout(_UNTIED, qkv_bias="attention_bias", mlp_bias="mlp_bias")
_QWEN2 = Layout(_UNTIED, qkv_bias=True, out_bias=False, window=windows.beyond_first)
_QWEN3 = Layout({**_UNTIED, "head_dim": 128}, qkv_bias="attention_bias", qk_norm=True, window=windows.beyond_first)
_SEVEN_B = {
    "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32, "vocab_size": 32000
}  # fmt: skip
_PADDLE = Layout(
    {**_TIED, "hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 18, "num_attention_heads": 16,
     "num_key_value_heads": 2, "head_dim": 128, "vocab_size": 103424},
    qkv_bias="use_bias", mlp_bias="use_bias",
)  # fmt: skip
_GLM4V = Layout(
    {**_UNTIED, "hidden_size": 4096, "intermediate_size": 13696, "num_hidden_layers": 40, "num_attention_heads": 32,
     "num_key_value_heads": 2, "vocab_size": 151552},
    qkv_bias=True, out_bias=False, fused_gate_up="mlp.gate_up_proj",
    norms=("input_layernorm", "post_attention_layernorm", "post_self_attn_layernorm", "post_mlp_layernorm"),
)  # fmt: skip

LAYOUTS: Mapping[str, Layout] = {
    "iquestcoder": _LLAMA,
    "helium": Layout(
        {**_UNTIED, "num_key_value_heads": 20, "head_dim": 128}, qkv_bias="attention_bias", out_bias=False, mlp_bias="mlp_bias"
    ),
    "cwm": Layout(
        {**_UNTIED, "num_key_value_heads": 8, "head_dim": 128, "sliding_window": 8192}, window=windows.all_but_first_of(4)
    ),
    "granite_swa": replace(
        _LLAMA, defaults={**_TIED, "num_key_value_heads": 4, "sliding_window": 128}, per_head=("self_attn.sinks",),
        window=windows.all_but_first_of(4),
    ),
    "bitnet": Layout(
        {**_UNTIED, "num_key_value_heads": 5}, qkv_bias="attention_bias", mlp_norm="mlp.ffn_sub_norm",
        norms=("input_layernorm", "post_attention_layernorm", "self_attn.attn_sub_norm"),
    ),
    "nanochat": Layout(
        _UNTIED, qkv_bias="attention_bias", gated=False, mlp_names=("", "mlp.fc1", "mlp.fc2"), norms=(), final_norm=None
    ),
    "persimmon": Layout(
        {**_UNTIED, "qk_layernorm": True}, qkv_bias=True, mlp_bias=True, gated=False, fused_qkv="query_key_value",
        out_name="dense", mlp_names=("", "mlp.dense_h_to_4h", "mlp.dense_4h_to_h"), norm_vectors=2,
        final_norm="model.final_layernorm", qk_norm="qk_layernorm", qk_norm_names=("q_layernorm", "k_layernorm"), qk_norm_vectors=2,
    ),
    "phi4_multimodal": Layout(
        {**_UNTIED, "num_key_value_heads": 8}, fused_qkv="qkv_proj", fused_gate_up="mlp.gate_up_proj", window=windows.always
    ),
    "glm4v_text": _GLM4V,
    "glm_ocr_text": replace(
        _GLM4V, qkv_bias=False,
        defaults={**_UNTIED, "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 16, "num_attention_heads": 16,
                  "num_key_value_heads": 8, "vocab_size": 59392},
    ),
    "paddleocr_vl_text": _PADDLE,
    "paddleocr_vl": _PADDLE,
    "granite4_vision_text": replace(_LLAMA, defaults={**_UNTIED, **_SEVEN_B}),
    "granite_docling_text": replace(
        _LLAMA,
        defaults={**_TIED, "hidden_size": 1024, "intermediate_size": 2048, "num_hidden_layers": 28, "num_attention_heads": 16,
                  "num_key_value_heads": 4, "vocab_size": 133800},
    ),
    "emu3_text_model": replace(
        _LLAMA, defaults={**_UNTIED, **_SEVEN_B, "intermediate_size": 14336, "num_key_value_heads": 8, "vocab_size": 184622}
    ),
    "qwen2_5_omni_text": replace(
        _QWEN2,
        defaults={**_UNTIED, "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28, "num_attention_heads": 28,
                  "num_key_value_heads": 4, "vocab_size": 152064, "max_window_layers": 28},
    ),
}  # fmt: skip
_OWN_CODE: Mapping[str, Layout] = {
    # MiMo-7B is Qwen2 with prediction layers, dots.ocr Qwen2 and Keye-VL Qwen3 with a vision tower
    "mimo": _QWEN2,
    "dots_ocr": _QWEN2,
    "keye": _QWEN3,
    "keyevl1_5": _QWEN3,
    "phi4mm": LAYOUTS["phi4_multimodal"],
    "internlm": Layout(_UNTIED, qkv_bias="bias"),
    "xverse": _LLAMA,
    "aquila": _LLAMA,
    "orion": replace(_LLAMA, norm_vectors=2),
}
_MINICPM3: Mapping[str, Any] = {
    "q_lora_rank": 768, "kv_lora_rank": 256, "qk_nope_head_dim": 64, "qk_rope_head_dim": 32, "v_head_dim": 64
}  # fmt: skip
_YOUTU: Mapping[str, Any] = {
    "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128
}  # fmt: skip


def hyperclovax(fields: Fields) -> Geometry:
    """HyperCLOVA X: as Llama, with norms behind attention and MLP too unless the config says otherwise."""
    after = ("post_norm1", "post_norm2") if fields.flag("use_post_norm", default=True) else ()
    return decoder(fields, replace(_LLAMA, norms=(*_LLAMA.norms, *after)))


# what MiniCPM-V and MiniCPM-o of a version are built on (vLLM models/minicpmv.py); 2.0 and older name none
_MINICPMV: Mapping[str, Layout] = {"2.5": _LLAMA, "2.6": _QWEN2, "4.0": _LLAMA, "4.5": _QWEN3}


def minicpmv(fields: Fields) -> Geometry:
    """MiniCPM-V and MiniCPM-o, whose configs are flat and name the language model by a version only."""
    version = str(fields.found("version"))
    layout = _MINICPMV.get(version if "." in version else f"{version}.0")
    if layout is None:
        raise fields.refused("version", f"is {version[:16]!r}, none of {', '.join(_MINICPMV)}")
    return decoder(fields, layout)


def _latent(fields: Fields, defaults: Mapping[str, Any]) -> Geometry:
    """MLA and a plain MLP in every layer."""
    fields = prepared(fields, defaults, "attention_bias", "kv_lora_rank")
    shape = frame(fields)
    attending, attention = mla_attention(fields, shape)
    mlp = parts.gated_mlp(shape.hidden, fields.whole("intermediate_size"), shape.every, prefix=f"{shape.layer}mlp.")
    return shape.geometry(fields, (*attending, *mlp), (attention,), mla=True, tied=True)


BUILDERS: Mapping[str, Callable[[Fields], Geometry]] = {
    **{model_type: partial(decoder, layout=layout) for model_type, layout in {**LAYOUTS, **_OWN_CODE}.items()},
    "hyperclovax": hyperclovax,
    "minicpmv": minicpmv,
    "minicpmo": minicpmv,
    "minicpm3": partial(_latent, defaults=_MINICPM3),
    "youtu": partial(_latent, defaults=_YOUTU),
}
