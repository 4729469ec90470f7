"""Mixture-of-experts decoders whose configs and modules have names of their own: Grok 1, Step 3, the language part of ERNIE 4.5 VL.

ERNIE is verified against transformers 5.23.0 on the meta device; Grok as in SGLang 0.5.23 (models/grok.py) and Step 3 as in vLLM 0.33
(models/step3_text.py), against the parameter counts that their makers publish.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from llm_serving_exporter.facts import parts
from llm_serving_exporter.facts.architectures.moe_decoder import (
    Frame,
    Mixture,
    Names,
    frame,
    grouped_query,
    mixture,
    mlps,
    prepared,
)
from llm_serving_exporter.facts.architectures.moe_shared import after_dense
from llm_serving_exporter.facts.fields import Fields
from llm_serving_exporter.model.geometry import Geometry, Module, Part
from llm_serving_exporter.model.record import replace

# config classes' defaults
_STEP3: Mapping[str, Any] = {
    "hidden_size": 7168, "intermediate_size": 18432, "num_hidden_layers": 61, "num_attention_heads": 64, "vocab_size": 128815,
    "num_attention_groups": 1, "head_dim": 256, "share_q_dim": 2048, "moe_num_experts": 48, "moe_top_k": 3, "moe_intermediate_size": 5120,
    "share_expert_dim": 5120,
}  # fmt: skip
_ERNIE_VL: Mapping[str, Any] = {
    "hidden_size": 2560, "intermediate_size": 12288, "num_hidden_layers": 28, "num_attention_heads": 20, "vocab_size": 103424,
    "num_key_value_heads": 4, "moe_num_experts": 64, "moe_k": 6, "moe_num_shared_experts": 2, "first_k_dense_replace": 1,
    "moe_intermediate_size": [1536, 512],
}  # fmt: skip
_STEP3_NAMES = Names("", "moe.gate", ("moe.gate_proj", "moe.up_proj", "moe.down_proj"), "share_expert.")
_GROK_NAMES = Names("block_sparse_moe.", "gate", ("experts.*.w1", "experts.*.w3", "experts.*.w2"))
_LAST_DENSE = 4  # Step 3's layers without experts: the first four, and the last


def grok(fields: Fields) -> Geometry:
    """Grok 1 and 2: four norms a layer, experts in each, and beside them a dense MLP where `residual_moe` says so (Grok 2)."""
    if fields.model_type != "grok-1" and not fields.architecture.lower().startswith("grok"):
        raise fields.refused("model_type", "is Grok 2's only where `architectures` says so")
    fields = prepared(fields, {"head_dim": 128, "num_local_experts": 8, "num_experts_per_tok": 2})
    shape = frame(fields)
    heads = grouped_query(fields, shape.hidden)
    size = "moe_intermediate_size" if fields.has("moe_intermediate_size") else "intermediate_size"
    experts = mixture(fields, shape, experts=("num_local_experts",), size=size)
    modules = [*heads.modules(shape), *mlps(shape, experts, _GROK_NAMES)]
    if fields.flag("residual_moe", default=False):
        modules += parts.gated_mlp(
            shape.hidden, fields.whole("intermediate_size"), shape.every, prefix=f"{shape.layer}mlp."
        )
    modules += (
        parts.vector(shape.layer + name, shape.hidden, shape.every) for name in ("pre_moe_norm", "post_moe_norm")
    )
    names = {"input_layernorm": "pre_attn_norm", "post_attention_layernorm": "post_attn_norm"}
    built = shape.geometry(fields, modules, heads.layers(fields, shape), tied=True)
    return replace(built, modules=tuple(_renamed(module, names) for module in built.modules))


def _renamed(module: Module, names: Mapping[str, str]) -> Module:
    stem, _, leaf = module.path.rpartition(".")
    return replace(module, path=f"{stem}.{names[leaf]}") if leaf in names else module


def step3(fields: Fields) -> Geometry:
    """Step 3: queries from one narrow matrix for all heads, and a second behind a norm; KV of one head."""
    fields = prepared(fields, _STEP3)
    shape = frame(fields, "model.", "lm_head")
    heads, groups, size = (
        fields.whole("num_attention_heads"),
        fields.whole("num_attention_groups"),
        fields.whole("head_dim"),
    )
    narrow, hidden, every, prefix = fields.whole("share_q_dim"), shape.hidden, shape.every, f"{shape.layer}self_attn."
    shapes = {"q_proj": (narrow, hidden), "k_proj": (groups * size, hidden), "v_proj": (groups * size, hidden),
              "wq": (heads * size, narrow), "o_proj": (hidden, heads * size)}  # fmt: skip
    experts = mixture(
        fields, shape, experts=("moe_num_experts",), per_token=("moe_top_k",), sparse=_step3_sparse(fields, shape),
        shared=fields.whole("share_expert_dim"),
    )  # fmt: skip
    modules = (
        *(
            parts.linear(prefix + name, Part.ATTENTION, rows, columns, every)
            for name, (rows, columns) in shapes.items()
        ),
        parts.vector(f"{prefix}inter_norm", narrow, every),
        *mlps(shape, experts, _STEP3_NAMES),
    )
    return shape.geometry(fields, modules, (parts.attention_layers(shape.layers, heads, groups, size),))


def _step3_sparse(fields: Fields, shape: Frame) -> list[bool]:
    """`moe_layers_enum` lists the layers with experts, as text or as numbers."""
    said = fields.found("moe_layers_enum")
    entries = said.split(",") if isinstance(said, str) else said
    if entries is None:
        return [_LAST_DENSE <= layer < shape.layers - 1 for layer in shape.every]
    if not isinstance(entries, list) or not all(str(entry).strip().isdigit() for entry in entries):
        raise fields.refused("moe_layers_enum", "is not a list of layers' indices")
    chosen = {int(entry) for entry in entries}
    return [layer in chosen for layer in shape.every]


def ernie4_5_vl_moe(fields: Fields) -> Geometry:
    """ERNIE 4.5 VL: experts for text and others for images in each layer; a token of text passes none of the latter.

    Those for images are kept in memory and not read by decode, as a table that is looked up.
    """
    fields = prepared(fields, _ERNIE_VL, "first_k_dense_replace", "moe_num_shared_experts")
    shape = frame(fields, "model.", "lm_head")
    heads = grouped_query(fields, shape.hidden)
    experts, size = _first(fields, "moe_num_experts"), _first(fields, "moe_intermediate_size")
    first = fields.found("moe_layer_start_index")
    begin = (
        first[0]
        if isinstance(first, list) and first and isinstance(first[0], int)
        else fields.whole("first_k_dense_replace", least=0)
    )
    by_types = fields.has("mlp_layer_types")
    sparse = after_dense(fields, shape) if by_types else [layer >= begin for layer in shape.every]
    layers = tuple(layer for layer in shape.every if sparse[layer])
    passed = fields.whole("moe_k")
    if passed > experts[0]:
        raise fields.refused("moe_k", f"is {passed}, more than the {experts[0]} experts")
    shared = size[0] * fields.whole("moe_num_shared_experts", least=0)
    dense = tuple(layer for layer in shape.every if not sparse[layer])
    routed = Mixture(
        layers, dense, experts[0], passed, size[0], shared, fields.whole("intermediate_size") if dense else None
    )
    names = Names(
        router="text_moe.gate",
        experts=tuple(f"text_moe.experts.*.{name}" for name in ("gate_proj", "up_proj", "down_proj")),
    )
    modules = (
        *heads.modules(shape),
        *mlps(shape, routed, names),
        parts.vector(f"{shape.layer}mlp.text_moe.gate.moe_statics.e_score_correction_bias", experts[0], layers),
        *_image_experts(shape, experts[1], size[1], routed),
    )
    return shape.geometry(fields, modules, heads.layers(fields, shape), tied=True)


def _image_experts(shape: Frame, experts: int, size: int, routed: Mixture) -> tuple[Module, ...]:
    block, hidden, layers = f"{shape.layer}mlp.vision_moe.", shape.hidden, routed.sparse
    kept = (("gate", experts, hidden), ("experts.gate_proj", experts * size, hidden), ("experts.up_proj", experts * size, hidden),
            ("experts.down_proj", experts * hidden, size))  # fmt: skip
    matrices = (
        Module(block + name, Part.ENCODER_ONLY, rows * columns, 0, rows, columns, layers, linear=False)
        for name, rows, columns in kept
    )
    bias = Module(
        f"{block}gate.moe_statics.e_score_correction_bias", Part.ENCODER_ONLY, 0, experts, layers=layers, linear=False
    )
    return (*matrices, bias)


def _first(fields: Fields, key: str) -> tuple[int, int]:
    """The number for text, and the one for images."""
    value = fields.found(key)
    entries = value if isinstance(value, list) else [value, value]
    if len(entries) != 2 or not all(isinstance(entry, int) and entry > 0 for entry in entries):
        raise fields.refused(key, f"is {value!r}, not a number for text and one for images")
    return entries[0], entries[1]


BUILDERS: Mapping[str, Callable[[Fields], Geometry]] = {
    "grok-1": grok,
    "git": grok,  # as Grok 2's config says
    "step3_text": step3,
    "ernie4_5_vl_moe_text": ernie4_5_vl_moe,
    "ernie4_5_vl_moe": ernie4_5_vl_moe,
    "ernie4_5_moe_vl": ernie4_5_vl_moe,
}
