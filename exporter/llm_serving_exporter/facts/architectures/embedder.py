"""Decoders that serve as embedders: the stack without its lm_head, no decode, no KV cache (facts model-math B.7)."""

from __future__ import annotations

from llm_serving_exporter.model.geometry import Geometry, Part
from llm_serving_exporter.model.record import replace

# classes that end in "Model" and do decode: GPT-2's and multimodal chat models'
_DECODING = ("LMHeadModel", "ChatModel", "_Model")


def embeds(architecture: str) -> bool:
    """Whether the class of config.json's `architectures` is a bare stack ("MistralModel"), as embedders' configs name it.

    Models such as Qwen3-Embedding name a "...ForCausalLM": their config does not tell, only the server's task does.
    """
    return architecture.endswith("Model") and not architecture.endswith(_DECODING)


def without_lm_head(geometry: Geometry) -> Geometry:
    """The same stack as an embedder: no lm_head (a tied table stays, as input embedding), no KV cache. An encoder comes back as it is."""
    if geometry.encoder:
        return geometry
    kept = (
        replace(module, part=Part.EMBEDDING) if geometry.tied and module.part is Part.LM_HEAD else module
        for module in geometry.modules
        if geometry.tied or module.part is not Part.LM_HEAD
    )
    attention = tuple(replace(group, kv_elements=0, decode_flops=0) for group in geometry.attention)
    return replace(geometry, modules=tuple(kept), attention=attention, encoder=True)
