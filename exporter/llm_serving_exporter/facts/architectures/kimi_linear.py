"""Kimi-Linear and the language part of Kimi-K3: Kimi Delta Attention in most layers, MLA in the others.

Kimi-Linear is verified against transformers 5.23.0 on the meta device. What Kimi-K3 adds has no class there; it is as in vLLM's
(models/kimi_k3/nvidia: model.py, kda.py, mla.py): a gate on each head's output in both kinds of layers, routed experts that work in a
narrower space (`routed_expert_hidden_size`), and residual streams that are mixed by one score each (`attn_res_block_size`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from llm_serving_exporter.facts import parts
from llm_serving_exporter.facts.architectures import layering
from llm_serving_exporter.facts.architectures.mamba import convolution
from llm_serving_exporter.facts.architectures.mla import mla_attention
from llm_serving_exporter.facts.architectures.moe_decoder import (
    Frame,
    Mixture,
    Names,
    frame,
    inner_fields,
    mixture,
    mlps,
    prepared,
)
from llm_serving_exporter.facts.architectures.moe_shared import after_dense
from llm_serving_exporter.facts.fields import Fields
from llm_serving_exporter.facts.parts import Layers
from llm_serving_exporter.model.geometry import Geometry, Module, Part, RecurrentLayers
from llm_serving_exporter.model.record import replace

# the config class's defaults
_KIMI_LINEAR: Mapping[str, Any] = {
    "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 27, "num_attention_heads": 32, "vocab_size": 163840,
    "q_lora_rank": None, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
    "num_experts": 256, "num_shared_experts": 1, "num_experts_per_token": 8, "moe_intermediate_size": 1024, "first_k_dense_replace": 1,
}  # fmt: skip
_KNOWN = ("first_k_dense_replace", "kv_lora_rank", "num_shared_experts")
_NAMES = Names("block_sparse_moe.", "gate", ("experts.*.w1", "experts.*.w3", "experts.*.w2"))


def kimi_linear(fields: Fields) -> Geometry:
    """Both: what a config does not name is not there."""
    fields = prepared(fields, _KIMI_LINEAR, *_KNOWN)
    shape = frame(fields)
    full, linear = _kinds(fields, shape)
    attending, attention = mla_attention(fields, shape, full)
    recurrent, state = _delta(fields, shape, linear)
    experts = _experts(fields, shape)
    modules = [*attending, *recurrent, *mlps(shape, experts, _NAMES), *_latent(fields, shape, experts)]
    if fields.flag("mla_use_output_gate", default=False):
        width = fields.whole("num_attention_heads") * fields.whole("v_head_dim")
        modules.append(parts.linear(f"{shape.layer}self_attn.g_proj", Part.ATTENTION, width, shape.hidden, full))
    if fields.has("attn_res_block_size"):
        modules += _residual_scores(shape)
    states = (state,) if linear else ()
    return shape.geometry(fields, modules, (attention,) if full else (), mla=True, recurrent=states)


def _kinds(fields: Fields, shape: Frame) -> tuple[Layers, Layers]:
    """Layers of MLA and of delta attention: as `layer_types` lists them, else by `linear_attn_config`, which counts from 1."""
    words = {"full_attention": "full", "linear_attention": "linear"}
    listed = layering.listed(fields, "layer_types", shape.layers, words)
    if listed is not None:
        return listed["full"], listed["linear"]
    inner = inner_fields(fields, "linear_attn_config")
    full = inner.listed("full_attn_layers")
    if full is None:
        raise inner.refused("full_attn_layers", "is missing")
    chosen = frozenset(layer - 1 for layer in full if isinstance(layer, int))
    if len(chosen) != len(full) or not chosen <= frozenset(shape.every):
        raise inner.refused("full_attn_layers", f"is not a list of some of the layers 1 to {shape.layers}")
    return layering.split(chosen, shape.layers)


def _delta(fields: Fields, shape: Frame, layers: Layers) -> tuple[tuple[Module, ...], RecurrentLayers]:
    """Kimi Delta Attention: a key x value matrix a head, and convolutions of queries, keys and values.

    Its gate on the output comes from one matrix where `use_full_rank_gate` says so, else from two with a head's width between them.
    """
    inner = inner_fields(fields, "linear_attn_config")
    heads, size = inner.whole("num_heads"), inner.whole("head_dim")
    kernel = inner.whole("short_conv_kernel_size", default=4)
    width, hidden, prefix = heads * size, shape.hidden, f"{shape.layer}self_attn."
    shapes = {"q_proj": (width, hidden), "k_proj": (width, hidden), "v_proj": (width, hidden), "b_proj": (heads, hidden),
              "f_a_proj": (size, hidden), "f_b_proj": (width, size)}  # fmt: skip
    if inner.flag("use_full_rank_gate", default=False):
        shapes["g_proj"] = (width, hidden)
    else:
        shapes |= {"g_a_proj": (size, hidden), "g_b_proj": (width, size)}
    shapes["o_proj"] = (hidden, width)
    modules = (
        *(
            parts.linear(prefix + name, Part.RECURRENT, rows, columns, layers)
            for name, (rows, columns) in shapes.items()
        ),
        *(convolution(f"{prefix}{name}_conv1d", width, kernel, layers, bias=False) for name in "qkv"),
        parts.vector(f"{prefix}A_log", heads, layers),
        parts.vector(f"{prefix}dt_bias", width, layers),
        parts.vector(f"{prefix}o_norm", size, layers),
    )
    return modules, RecurrentLayers(len(layers), heads * size * size, 3 * width * (kernel - 1), float32_by_default=True)


def _experts(fields: Fields, shape: Frame) -> Mixture:
    shared = fields.whole("num_shared_experts", default=0, least=0) * fields.whole("moe_intermediate_size")
    experts = mixture(
        fields, shape, experts=("num_experts", "num_local_experts"), shared=shared, sparse=after_dense(fields, shape),
        per_token=("num_experts_per_token", "num_experts_per_tok"),
    )  # fmt: skip
    if not fields.has("routed_expert_hidden_size"):
        return experts
    return replace(experts, width=fields.whole("routed_expert_hidden_size"))


def _latent(fields: Fields, shape: Frame, experts: Mixture) -> tuple[Module, ...]:
    """The matrices into and out of the space that routed experts work in."""
    if experts.width is None:
        return ()
    block, width = shape.layer + _NAMES.block, experts.width
    matrices = (
        parts.linear(f"{block}routed_expert_down_proj", Part.FFN, width, shape.hidden, experts.sparse),
        parts.linear(f"{block}routed_expert_up_proj", Part.FFN, shape.hidden, width, experts.sparse),
    )
    if not fields.flag("latent_moe_use_norm", default=False):
        return matrices
    return (*matrices, parts.vector(f"{block}routed_expert_norm", width, experts.sparse))


def _residual_scores(shape: Frame) -> tuple[Module, ...]:
    """For attention, MLP and the model's end: a norm and a row that scores earlier residual streams; engines do not quantise them."""
    places = ((f"{shape.layer}self_attention", shape.every), (f"{shape.layer}mlp", shape.every),
              (f"{shape.root}output_attn", ()))  # fmt: skip
    return tuple(
        module
        for path, layers in places
        for module in (
            Module(f"{path}_res_proj", Part.ATTENTION, shape.hidden, 0, 1, shape.hidden, layers, linear=False),
            parts.vector(f"{path}_res_norm", shape.hidden, layers),
        )
    )


BUILDERS: Mapping[str, Callable[[Fields], Geometry]] = {"kimi_linear": kimi_linear}
