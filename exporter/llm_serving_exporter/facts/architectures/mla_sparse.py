"""DeepSeek's sparse attention over MLA: DeepSeek-V3.2, GLM-5.

An indexer beside each layer's attention scores every token of context by a small key of its own, and the layer reads the latents of the
`index_topk` best. GLM-5.2 and later run it in some layers only; the others take what the layer before them picked. Verified against
transformers 5.23.0 on the meta device; what is stored by vLLM 0.33 (models/deepseek_v2.py Indexer).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from llm_serving_exporter.facts import parts
from llm_serving_exporter.facts.architectures import layering
from llm_serving_exporter.facts.architectures.mla import mla_attention
from llm_serving_exporter.facts.architectures.moe_decoder import Frame, Names, frame, mixture, mlps, prepared
from llm_serving_exporter.facts.architectures.moe_shared import after_dense, shared_size
from llm_serving_exporter.facts.fields import Fields
from llm_serving_exporter.facts.parts import Layers
from llm_serving_exporter.model.geometry import AttentionLayers, Geometry, Indexer, Module, Part, Span
from llm_serving_exporter.model.record import replace

# config classes' defaults
_DEEPSEEK_V32: Mapping[str, Any] = {
    "hidden_size": 7168, "intermediate_size": 18432, "num_hidden_layers": 61, "num_attention_heads": 128, "vocab_size": 129280,
    "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
    "n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8, "moe_intermediate_size": 2048, "first_k_dense_replace": 3,
    "index_topk": 2048, "index_head_dim": 128, "index_n_heads": 64,
}  # fmt: skip
_GLM_MOE_DSA: Mapping[str, Any] = {
    "hidden_size": 6144, "intermediate_size": 12288, "num_hidden_layers": 78, "num_attention_heads": 64, "vocab_size": 154880,
    "q_lora_rank": 2048, "kv_lora_rank": 512, "qk_nope_head_dim": 192, "qk_rope_head_dim": 64, "v_head_dim": 256,
    "n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8, "moe_intermediate_size": 2048, "first_k_dense_replace": 3,
    "index_topk": 2048, "index_head_dim": 128, "index_n_heads": 32,
}  # fmt: skip
_KNOWN = ("attention_bias", "first_k_dense_replace", "index_topk", "kv_lora_rank", "n_shared_experts")
# an index key is kept in FP8 with an fp32 scale for each 128 elements of it, whatever the KV cache's dtype
_SCALED_ELEMENTS, _SCALE_BYTES = 128, 4


def index_key_bytes(elements: int) -> float:
    """Bytes of an indexer's key, its scales included."""
    return elements + _SCALE_BYTES * (elements // _SCALED_ELEMENTS)


def sparse_attention(fields: Fields, shape: Frame, indexing: Layers) -> tuple[tuple[Module, ...], AttentionLayers]:
    """MLA in every layer, with an indexer in the layers `indexing`."""
    projections, dense = mla_attention(fields, shape)
    heads, size, picked = fields.whole("index_n_heads"), fields.whole("index_head_dim"), fields.whole("index_topk")
    prefix = f"{shape.layer}self_attn.indexer."
    modules = (
        *projections,
        parts.linear(f"{prefix}wq_b", Part.ATTENTION, heads * size, fields.whole("q_lora_rank"), indexing),
        # vLLM fuses these two into one unquantised matrix
        *(
            Module(prefix + name, Part.ATTENTION, rows * shape.hidden, 0, rows, shape.hidden, indexing, linear=False)
            for name, rows in (("wk", size), ("weights_proj", heads))
        ),
        parts.vector(f"{prefix}k_norm", 2 * size, indexing),
    )
    indexer = Indexer(len(indexing), index_key_bytes(size), 2 * heads * size)
    return modules, replace(dense, span=Span.SPARSE, top_entries=picked, indexer=indexer)


def indexing_layers(fields: Fields, shape: Frame) -> Layers:
    """The layers that have an indexer of their own: by `indexer_types`, `index_topk_pattern` of letters, or `index_topk_freq`."""
    words = {"full": "full", "shared": "shared", "F": "full", "S": "shared"}
    listed = layering.listed(fields, "indexer_types", shape.layers, words)
    if listed is None and fields.has("index_topk_pattern"):
        letters = list(fields.text("index_topk_pattern"))
        if len(letters) != shape.layers:
            raise fields.refused("index_topk_pattern", f"has {len(letters)} letters for {shape.layers} layers")
        listed = layering.by_kind(fields, "index_topk_pattern", letters, words)
    if listed is not None:
        return listed["full"]
    period, first = (
        fields.whole("index_topk_freq", default=1),
        fields.whole("index_skip_topk_offset", default=2, least=0),
    )
    return tuple(layer for layer in shape.every if max(layer - first + 1, 0) % period == 0)


def _builder(defaults: Mapping[str, Any]) -> Callable[[Fields], Geometry]:
    def build(fields: Fields) -> Geometry:
        fields = prepared(fields, defaults, *_KNOWN)
        shape = frame(fields)
        attending, attention = sparse_attention(fields, shape, indexing_layers(fields, shape))
        experts = mixture(
            fields, shape, experts=("n_routed_experts", "num_local_experts"), sparse=after_dense(fields, shape),
            shared=shared_size(fields, "n_shared_experts"),
        )  # fmt: skip
        modules = (*attending, *mlps(shape, experts, Names()))
        return shape.geometry(fields, modules, (attention,), mla=True)

    return build


BUILDERS: Mapping[str, Callable[[Fields], Geometry]] = {
    "deepseek_v32": _builder(_DEEPSEEK_V32),
    "glm_moe_dsa": _builder(_GLM_MOE_DSA),
}
