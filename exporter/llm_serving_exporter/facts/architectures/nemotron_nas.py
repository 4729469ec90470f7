"""Nemotron-Super-49B, Nemotron-Ultra-253B and DeciLM: each layer's attention and MLP were searched for one by one (`block_configs`).

A layer's part is as listed, or there is none of it, norm included. As in vLLM 0.33 (models/nemotron_nas.py) and the publisher's own code.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

from llm_serving_exporter.facts import parts
from llm_serving_exporter.facts.architectures.attention_kinds import Kind
from llm_serving_exporter.facts.fields import Fields
from llm_serving_exporter.model.geometry import AttentionLayers, Geometry, Module

_LAYER = "model.layers.{}."
# widths are rounded up to a multiple of this
_MULTIPLE = 256


def nemotron_nas(fields: Fields) -> Geometry:
    """Layers that are alike are counted together."""
    hidden, count, vocabulary = fields.whole("hidden_size"), fields.layers(), fields.whole("vocab_size")
    heads = fields.whole("num_attention_heads")
    attending: dict[tuple[int, int | None], list[int]] = defaultdict(list)
    widths: dict[int, list[int]] = defaultdict(list)
    for layer, (attention, ffn) in enumerate(_blocks(fields, count)):
        if not _absent(fields, attention):
            attending[_kv_heads(attention, heads), _window(attention)].append(layer)
        if not _absent(fields, ffn):
            widths[_width(ffn, hidden)].append(layer)
    size = fields.whole("head_dim", default=hidden // heads)
    bias, mlp_bias = fields.flag("attention_bias", default=False), fields.flag("mlp_bias", default=False)
    modules: list[Module] = []
    reads: list[AttentionLayers] = []
    for (kv_heads, window), listed in attending.items():
        kind = Kind(heads, kv_heads, size, size, window)
        modules += kind.queries(f"{_LAYER}self_attn.", hidden, tuple(listed), bias=bias)
        modules += kind.keys(f"{_LAYER}self_attn.", hidden, tuple(listed), bias=bias)
        modules.append(parts.vector(f"{_LAYER}input_layernorm", hidden, tuple(listed)))
        reads += kind.reads(len(listed))
    for width, listed in widths.items():
        modules += parts.gated_mlp(hidden, width, tuple(listed), bias=mlp_bias)
        modules.append(parts.vector(f"{_LAYER}post_attention_layernorm", hidden, tuple(listed)))
    tied = fields.flag("tie_word_embeddings", default=False)
    tables = parts.embeddings(vocabulary, hidden, tied=tied)
    return Geometry(
        fields.model_type, (*tables, *modules, parts.vector("model.norm", hidden)), tuple(reads), hidden, count,
        vocabulary, left_out=fields.left_out,
    )  # fmt: skip


def _blocks(fields: Fields, count: int) -> list[tuple[Fields, Fields]]:
    blocks = fields.listed("block_configs")
    if blocks is None or len(blocks) != count:
        raise fields.refused(
            "block_configs", "is missing" if blocks is None else f"has {len(blocks)} of {count} layers"
        )
    return [(_part(fields, block, "attention"), _part(fields, block, "ffn")) for block in blocks]


def _part(fields: Fields, block: Any, key: str) -> Fields:
    part = block.get(key) if isinstance(block, Mapping) else None
    if not isinstance(part, Mapping):
        raise fields.refused("block_configs", f"has a layer without {key}")
    return Fields(part, {"model_type": fields.model_type})


def _absent(fields: Fields, part: Fields) -> bool:
    if part.flag("replace_with_linear", default=False):
        raise fields.refused("block_configs", "replaces a part by one matrix, for which there is no formula here")
    return part.flag("no_op", default=False)


def _kv_heads(attention: Fields, heads: int) -> int:
    shared = attention.whole("n_heads_in_group")
    if heads % shared:
        raise attention.refused("n_heads_in_group", f"is {shared}, which does not divide the {heads} heads")
    return heads // shared


def _window(attention: Fields) -> int | None:
    return attention.whole("window_length") if attention.has("window_length") else None


def _width(ffn: Fields, hidden: int) -> int:
    """`intermediate_size`, else two thirds of 2 x `ffn_mult` x hidden, rounded up."""
    if ffn.has("intermediate_size"):
        return ffn.whole("intermediate_size")
    multiple = ffn.found("ffn_mult")
    if isinstance(multiple, bool) or not isinstance(multiple, int | float) or not 0 < multiple < hidden:
        raise ffn.refused("ffn_mult", f"is {multiple!r}, not a number above 0")
    wanted = int(2 * multiple * hidden / 3)
    return -(-wanted // _MULTIPLE) * _MULTIPLE


BUILDERS: Mapping[str, Callable[[Fields], Geometry]] = {"nemotron-nas": nemotron_nas, "deci": nemotron_nas}
