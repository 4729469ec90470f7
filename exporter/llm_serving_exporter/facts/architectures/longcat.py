"""LongCat-Flash: two attentions and two dense MLPs in each layer, one set of experts beside them, some of which do nothing.

A token is routed to `moe_topk` of the experts and of `zero_expert_num` that hand it on as it is: those have no weights, and a token's
share of them passes no expert. Sizes against transformers 5.23.0 on the meta device, whose class keeps rows for the experts that do
nothing too; checkpoints and vLLM 0.33 (models/longcat_flash.py, longcat_flash_ngram.py) do not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from llm_serving_exporter.facts import parts
from llm_serving_exporter.facts.architectures.mla import mla_attention
from llm_serving_exporter.facts.architectures.moe_decoder import Frame, prepared, router
from llm_serving_exporter.facts.fields import Fields
from llm_serving_exporter.model.geometry import AttentionLayers, Geometry, Module, Part
from llm_serving_exporter.model.numbers import add_up

# the config class's defaults
_LONGCAT: Mapping[str, Any] = {
    "hidden_size": 6144, "num_attention_heads": 64, "vocab_size": 131072, "q_lora_rank": 1536, "kv_lora_rank": 512,
    "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
}  # fmt: skip
_ATTENTIONS = 2  # of a layer, and as many MLPs


def longcat_flash(fields: Fields) -> Geometry:
    """LongCat-Flash, with a table for runs of tokens where the config has one (LongCat-Flash-Lite)."""
    fields = prepared(fields, _LONGCAT, "attention_bias", "kv_lora_rank")
    layers = fields.layers("num_layers", "num_hidden_layers")
    shape = Frame(fields.whole("hidden_size"), layers, fields.whole("vocab_size"))
    modules: list[Module] = []
    reads: list[AttentionLayers] = []
    for half in range(_ATTENTIONS):
        attending, attention = mla_attention(fields, shape, inner=f"self_attn.{half}.")
        modules += attending
        reads.append(attention)
        size = fields.whole("ffn_hidden_size", "intermediate_size")
        modules += parts.gated_mlp(shape.hidden, size, shape.every, prefix=f"{shape.layer}mlps.{half}.")
        for norm in ("input_layernorm", "post_attention_layernorm"):
            modules.append(parts.vector(f"{shape.layer}{norm}.{half}", shape.hidden, shape.every))
    modules += _experts(fields, shape)
    if fields.has("ngram_vocab_size_ratio"):
        modules += _runs(fields, shape)
    tied = fields.flag("tie_word_embeddings", default=False)
    tables = parts.embeddings(shape.vocabulary, shape.hidden, tied=tied)
    return Geometry(
        fields.model_type, (*tables, *modules, parts.vector("model.norm", shape.hidden)), tuple(reads), shape.hidden,
        shape.layers, shape.vocabulary, mla=True, left_out=fields.left_out,
    )  # fmt: skip


def _experts(fields: Fields, shape: Frame) -> tuple[Module, ...]:
    """The router scores all; of the experts a token passes its share of `moe_topk`, to the nearest whole one."""
    experts, nothing = fields.whole("n_routed_experts"), fields.whole("zero_expert_num", default=0, least=0)
    picked = fields.whole("moe_topk", "num_experts_per_tok")
    if picked > experts:
        raise fields.refused("moe_topk", f"is {picked}, more than the {experts} experts")
    passed = max(1, round(picked * experts / (experts + nothing)))
    size, block = fields.whole("expert_ffn_hidden_size", "moe_intermediate_size"), f"{shape.layer}mlp."
    bias = fields.flag("router_bias", default=False)
    return (
        router(f"{block}router.classifier", experts + nothing, shape.hidden, shape.every, bias=bias),
        *parts.gated_experts(shape.hidden, size, shape.every, experts, passed, prefix=f"{block}experts.*."),
    )


def _runs(fields: Fields, shape: Frame) -> tuple[Module, ...]:
    """Tables for runs of up to `emb_neighbor_num` tokens: looked up, and each projected to the hidden size."""
    tables = fields.whole("emb_split_num") * (fields.whole("emb_neighbor_num") - 1)
    rows = fields.whole("ngram_vocab_size_ratio") * shape.vocabulary
    width = shape.hidden // tables
    total = add_up(rows + 2 * index + 1 for index in range(tables))
    root = f"{shape.root}ngram_embeddings."
    return (
        Module(f"{root}embedders", Part.EMBEDDING, total * width, rows=total, columns=width, linear=False),
        parts.linear(f"{root}post_projs.{{}}", Part.FFN, shape.hidden, width, tuple(range(tables))),
    )


BUILDERS: Mapping[str, Callable[[Fields], Geometry]] = {
    "longcat_flash": longcat_flash,
    "longcat_flash_ngram": longcat_flash,
}
