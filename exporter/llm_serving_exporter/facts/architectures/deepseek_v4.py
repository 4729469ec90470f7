"""DeepSeek-V4: one key that is the value too for all heads, read over a short window in every layer and compressed beyond it.

`compress_ratios` says of each layer what an entry beyond the window stands for: 0 nothing (the window is all), 4 tokens, of which an
indexer picks `index_topk` entries, or 128 tokens, which are all read. Verified against transformers 5.23.0 on the meta device; names as
in the checkpoints; what is stored as in vLLM 0.33 (models/deepseek_v4: attention.py, compressor.py), the compressors' own small state
left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from llm_serving_exporter.facts import parts
from llm_serving_exporter.facts.architectures import layering
from llm_serving_exporter.facts.architectures.mla_sparse import index_key_bytes
from llm_serving_exporter.facts.architectures.moe_decoder import Frame, frame, prepared, router
from llm_serving_exporter.facts.fields import Fields
from llm_serving_exporter.facts.parts import Layers
from llm_serving_exporter.model.geometry import AttentionLayers, Geometry, Indexer, Module, Part, Span

# the config class's defaults
_DEEPSEEK_V4: Mapping[str, Any] = {
    "hidden_size": 4096, "moe_intermediate_size": 2048, "num_hidden_layers": 43, "num_attention_heads": 64, "vocab_size": 129280,
    "head_dim": 512, "q_lora_rank": 1024, "num_experts_per_tok": 6, "n_routed_experts": 256, "n_shared_experts": 1, "hc_mult": 4,
    "sliding_window": 128, "o_groups": 8, "o_lora_rank": 1024, "index_n_heads": 64, "index_head_dim": 128, "index_topk": 512,
}  # fmt: skip
_PICKED, _WHOLE = 4, 128  # the two ratios, by what is read of the entries
_KINDS = {"sliding_attention": 0, "compressed_sparse_attention": _PICKED, "heavily_compressed_attention": _WHOLE}
_LAYER = "layers.{}."


def deepseek_v4(fields: Fields) -> Geometry:
    """DeepSeek-V4 Flash and Pro."""
    fields = prepared(fields, _DEEPSEEK_V4, "index_topk", "n_shared_experts")
    shape = frame(fields)
    picked, whole = _compressed(fields, shape)
    attending, group = _attention(fields, shape)
    modules = (
        *attending, *_experts(fields, shape), *_streams(fields, shape),
        *_compressor(fields, shape, picked, f"{_LAYER}attn.compressor.", _PICKED, fields.whole("head_dim")),
        *_compressor(fields, shape, whole, f"{_LAYER}attn.compressor.", _WHOLE, fields.whole("head_dim")),
        *_indexer(fields, shape, picked),
        *(parts.vector(_LAYER + name, shape.hidden, shape.every) for name in ("attn_norm", "ffn_norm")),
        parts.vector("norm", shape.hidden),
    )  # fmt: skip
    tied = fields.flag("tie_word_embeddings", default=False)
    tables = parts.embeddings(shape.vocabulary, shape.hidden, tied=tied, embed="embed", head="head")
    extra = ("MTP module",) if fields.whole("num_nextn_predict_layers", default=0, least=0) else ()
    return Geometry(
        fields.model_type, (*tables, *modules), _reads(fields, group, picked, whole), shape.hidden, shape.layers,
        shape.vocabulary, mla=True, left_out=(*fields.left_out, *extra),
    )  # fmt: skip


def _compressed(fields: Fields, shape: Frame) -> tuple[Layers, Layers]:
    """Layers whose entries beyond the window are picked, and those that read all: by `layer_types` or `compress_ratios`, whose entries
    behind the layers are of prediction layers; else as the class does."""
    listed = layering.listed(fields, "layer_types", shape.layers, {kind: kind for kind in _KINDS})
    if listed is not None:
        return listed["compressed_sparse_attention"], listed["heavily_compressed_attention"]
    ratios = fields.listed("compress_ratios")
    if ratios is None:
        ratios = [_WHOLE, _WHOLE, *((_WHOLE, _PICKED)[layer % 2] for layer in range(max(0, shape.layers - 2)))]
    if len(ratios) < shape.layers or not set(ratios) <= set(_KINDS.values()):
        raise fields.refused(
            "compress_ratios", f"is not one of {sorted(_KINDS.values())} for each of {shape.layers} layers"
        )
    by_ratio = {ratio: tuple(layer for layer in shape.every if ratios[layer] == ratio) for ratio in (_PICKED, _WHOLE)}
    return by_ratio[_PICKED], by_ratio[_WHOLE]


def _attention(fields: Fields, shape: Frame) -> tuple[tuple[Module, ...], AttentionLayers]:
    """Projections of every layer, and what it reads of its window."""
    heads, size, rank = fields.whole("num_attention_heads"), fields.whole("head_dim"), fields.whole("q_lora_rank")
    groups, out_rank = fields.whole("o_groups"), fields.whole("o_lora_rank")
    if heads % groups:
        raise fields.refused("o_groups", f"is {groups}, which does not divide the {heads} heads")
    hidden, every, prefix = shape.hidden, shape.every, f"{_LAYER}attn."
    shapes = {"wq_a": (rank, hidden), "wq_b": (heads * size, rank), "wkv": (size, hidden),
              "wo_a": (groups * out_rank, heads * size // groups), "wo_b": (hidden, groups * out_rank)}  # fmt: skip
    modules = (
        *(
            parts.linear(prefix + name, Part.ATTENTION, rows, columns, every)
            for name, (rows, columns) in shapes.items()
        ),
        parts.vector(f"{prefix}q_norm", rank, every),
        parts.vector(f"{prefix}kv_norm", size, every),
        parts.vector(f"{prefix}attn_sink", heads, every),
    )
    flops = 4 * heads * size
    window = fields.whole("sliding_window")
    return modules, AttentionLayers(shape.layers, size, 1, flops, flops, Span.SLIDING, window, heads)


def _compressor(fields: Fields, shape: Frame, layers: Layers, prefix: str, ratio: int, size: int) -> tuple[Module, ...]:
    """What makes one entry of `ratio` tokens; where entries overlap (those that are picked), of twice the width. It is not quantised."""
    width, hidden = (2 * size if ratio == _PICKED else size), shape.hidden
    if not layers:
        return ()
    # the two ratios' modules have the same names in other layers
    matrices = tuple(
        Module(prefix + name, Part.ATTENTION, width * hidden, 0, width, hidden, layers, linear=False)
        for name in ("wkv", "wgate")
    )
    return (*matrices, parts.vector(f"{prefix}ape", ratio * width, layers), parts.vector(f"{prefix}norm", size, layers))


def _indexer(fields: Fields, shape: Frame, layers: Layers) -> tuple[Module, ...]:
    if not layers:
        return ()
    heads, size, prefix = fields.whole("index_n_heads"), fields.whole("index_head_dim"), f"{_LAYER}attn.indexer."
    return (
        parts.linear(f"{prefix}wq_b", Part.ATTENTION, heads * size, fields.whole("q_lora_rank"), layers),
        Module(
            f"{prefix}weights_proj", Part.ATTENTION, heads * shape.hidden, 0, heads, shape.hidden, layers, linear=False
        ),
        *_compressor(fields, shape, layers, f"{prefix}compressor.", _PICKED, size),
    )


def _reads(fields: Fields, window: AttentionLayers, picked: Layers, whole: Layers) -> tuple[AttentionLayers, ...]:
    def group(layers: Layers, ratio: int, span: Span, top: int | None, indexer: Indexer | None) -> AttentionLayers:
        return AttentionLayers(
            len(layers), window.kv_elements, 1, window.decode_flops, window.prefill_flops, span, None, window.heads,
            ratio, top, indexer,
        )  # fmt: skip

    groups = [window]
    if picked:
        heads, size = fields.whole("index_n_heads"), fields.whole("index_head_dim")
        indexer = Indexer(len(picked), index_key_bytes(size), 2 * heads * size)
        groups.append(group(picked, _PICKED, Span.SPARSE, fields.whole("index_topk"), indexer))
    if whole:
        groups.append(group(whole, _WHOLE, Span.FULL, None, None))
    return tuple(groups)


def _experts(fields: Fields, shape: Frame) -> tuple[Module, ...]:
    """Experts in every layer; the first `num_hash_layers` pick them by the token itself, with a table of whole numbers."""
    count, passed = fields.whole("n_routed_experts", "num_local_experts"), fields.whole("num_experts_per_tok")
    if passed > count:
        raise fields.refused("num_experts_per_tok", f"is {passed}, more than the {count} experts")
    size, hidden, every, block = fields.whole("moe_intermediate_size"), shape.hidden, shape.every, f"{_LAYER}ffn."
    shared = size * fields.whole("n_shared_experts", least=0)

    def three(width: int) -> tuple[tuple[str, int, int], ...]:
        return (("w1", width, hidden), ("w3", width, hidden), ("w2", hidden, width))

    experts = (
        Module(f"{block}experts.*.{name}", Part.EXPERT, rows * columns, 0, rows, columns, every, copies=count, per_token=passed)
        for name, rows, columns in three(size)
    )  # fmt: skip
    always = (
        parts.linear(f"{block}shared_experts.{name}", Part.FFN, rows, columns, every)
        for name, rows, columns in (three(shared) if shared else ())
    )
    return (router(f"{block}gate", count, hidden, every), *experts, *always)


def _streams(fields: Fields, shape: Frame) -> tuple[Module, ...]:
    """Hyper-connections: `hc_mult` residual streams, mixed before and after each attention and MLP, and joined at the end."""
    streams = fields.whole("hc_mult")
    width, mixes = streams * shape.hidden, (2 + streams) * streams

    def mixing(path: str, rows: int, scales: int, layers: Layers) -> tuple[Module, ...]:
        fn = Module(f"{path}_fn", Part.FFN, rows * width, 0, rows, width, layers, linear=False)
        return (fn, parts.vector(f"{path}_base", rows, layers), parts.vector(f"{path}_scale", scales, layers))

    return (
        *mixing(f"{_LAYER}hc_attn", mixes, 3, shape.every),
        *mixing(f"{_LAYER}hc_ffn", mixes, 3, shape.every),
        *mixing("hc_head", streams, 1, ()),
    )


BUILDERS: Mapping[str, Callable[[Fields], Geometry]] = {"deepseek_v4": deepseek_v4}
