"""Decoders whose layers attend in more ways than one: other heads or head sizes by kind of layer, values of another size than keys, keys
and values that another layer keeps, a gate on what attention gives.

Verified against transformers 5.23.0 on the meta device; Nemotron-NAS as in vLLM 0.33 (models/nemotron_nas.py) and the publisher's own code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from llm_serving_exporter.facts.families import rules
from llm_serving_exporter.facts.families.experts import BELOW, NESTED, SAME, SIZES, TIED, W123
from llm_serving_exporter.facts.families.rules import routed
from llm_serving_exporter.facts.fields import Fields
from llm_serving_exporter.facts.shapes import Family

if TYPE_CHECKING:
    from llm_serving_exporter.facts.shapes import Layers, Look, Rule, Sizes

# Gemma 3n and Gemma 4: sliding and full layers of other head sizes, last layers that read the KV of earlier ones, and a token's own
# embedding for each layer. That table is looked up, a row a token, and kept in memory: no step streams it. For layers whose values are
# their keys (`attention_k_eq_v`) vLLM 0.33 loads the one matrix twice; it counts once here


def _own(kind: str) -> Rule:
    """The layers of a kind that keep KV of their own, and those that read others': the last `num_kv_shared_layers`."""
    return lambda look: (
        tuple(layer for layer in look[kind] if layer < look["own"]), tuple(layer for layer in look[kind] if layer >= look["own"])
    )  # fmt: skip


def _gemma3n_widths(look: Look) -> list[Mapping[str, Any]]:
    """`intermediate_size` is one number, or one for each layer."""
    fields, every = look.fields, look["every"]
    listed = fields.found("intermediate_size")
    if not isinstance(listed, list):
        return [{"here": every, "intermediate": fields.whole("intermediate_size")}]
    if len(listed) != len(every) or not all(isinstance(size, int) and size > 0 for size in listed):
        raise fields.refused("intermediate_size", f"is no list of {len(every)} sizes")
    return [
        {"here": tuple(layer for layer in every if listed[layer] == size), "intermediate": size}
        for size in dict.fromkeys(listed)
    ]


def _gemma4_widths(look: Look) -> tuple[Layers, Layers]:
    """single, double: `use_double_wide_mlp`: layers that keep no KV have twice the width."""
    double = look["own"] < look["layers"] and look.fields.flag("use_double_wide_mlp", default=False)
    return rules.split([not double or layer < look["own"] for layer in look["every"]])


_GEMMA_ROWS = """
    refuse  own < 1  num_kv_shared_layers  leaves none of {layers} layers with KV of its own
    *tables
    *queries layers=sliding bias=attention_bias
    self_attn.q_norm  norm  head  sliding
    *keys layers=sliding_own bias=attention_bias
    self_attn.k_norm  norm  head  sliding_own
    reads  sliding_own  sliding:sliding_window
    reads  sliding_shared  sliding:sliding_window  shared
    *queries layers=full size=wide bias=attention_bias
    self_attn.q_norm  norm  wide  full
    self_attn.k_proj  attention  few*wide x hidden  full_own  bias attention_bias
    self_attn.v_proj  attention  few*wide x hidden  full_own  bias attention_bias  if not alike
    self_attn.k_norm  norm  wide  full_own
    reads  full_own  full  elements 2*few*wide  kv few  flops 4*heads*wide
    reads  full_shared  full  elements 2*few*wide  kv few  flops 4*heads*wide  shared
    MLPS
    {root}embed_tokens_per_layer  embedding  vocab_size_per_layer_input x per_layer*layers  if per_layer
    {root}per_layer_model_projection  ffn  per_layer*layers x hidden  if per_layer
    {root}per_layer_projection_norm  norm  per_layer  if per_layer
    per_layer_input_gate  ffn  per_layer x hidden  every  if per_layer
    per_layer_projection  ffn  hidden x per_layer  every  if per_layer
    post_per_layer_input_norm  norm  hidden  every  if per_layer
    *sandwich
"""
# four residual streams (AltUp) that are predicted and corrected in each layer, made at the start of one and joined at the end; a low-rank
# branch beside attention (LAuReL)
_GEMMA3N_ROWS = """*mlp layers=each:widths
    altup.correct_output_scale, altup.router_norm, laurel.post_laurel_norm  norm  hidden  every
    altup.correction_coefs  ffn  altup_num_inputs x altup_num_inputs  every
    altup.prediction_coefs  ffn  altup_num_inputs*altup_num_inputs x altup_num_inputs  every
    altup.modality_router  ffn  altup_num_inputs x hidden  every
    laurel.linear_left  ffn  laurel_rank x hidden  every
    laurel.linear_right  ffn  hidden x laurel_rank  every
    {root}altup_projections.{}, {root}altup_unembed_projections.{}  ffn  hidden x hidden  around
"""
# a router with a scale for its input and one for each expert, and the experts beside each layer's MLP; the checkpoint keeps a layer's as
# one tensor
_GEMMA4_ROWS = """*mlp layers=single width=intermediate_size
    *mlp layers=double width=2*intermediate_size
    router.proj  router  experts x hidden  every  plain  if enable_moe_block
    router.scale  norm  hidden  every  if enable_moe_block
    router.per_expert_scale  norm  experts  every  if enable_moe_block
    experts.gate_up_proj  expert  2*moe_intermediate_size x hidden  every  if enable_moe_block
    experts.down_proj  expert  hidden x moe_intermediate_size  every  if enable_moe_block
    post_feedforward_layernorm_1, post_feedforward_layernorm_2, pre_feedforward_layernorm_2  norm  hidden  every  if enable_moe_block
"""
_GEMMA_SIZES: Sizes = {
    "hidden": "hidden_size", "vocabulary": "vocab_size", **TIED, "heads": "num_attention_heads", "kv": "num_key_value_heads",
    "head": "head_dim", "wide": "head", "few": "kv", "alike": "False", "own": "layers - zero(num_kv_shared_layers)",
    "per_layer": "zero(hidden_size_per_layer_input)", "sliding_own sliding_shared": _own("sliding"), "full_own full_shared": _own("full"),
}  # fmt: skip
_GEMMA3N = Family(
    rows=_GEMMA_ROWS.replace("MLPS", _GEMMA3N_ROWS),
    sizes={
        **_GEMMA_SIZES, "full sliding": rules.kinds(rules.FULL_AND_SLIDING, rules.every_nth(5)), "widths": _gemma3n_widths,
        "around": lambda look: tuple(range(look["altup_num_inputs"] - 1)),
    },
    defaults={
        "vocab_size": 262400, "hidden_size": 2048, "intermediate_size": 16384, "num_hidden_layers": 35, "num_attention_heads": 8,
        "num_key_value_heads": 2, "head_dim": 256, "sliding_window": 512, "vocab_size_per_layer_input": 262144,
        "hidden_size_per_layer_input": 256, "altup_num_inputs": 4, "num_kv_shared_layers": 15, "laurel_rank": 64,
    },
    nested=BELOW, terse=True,
)  # fmt: skip
_GEMMA4_DEFAULTS = {
    "vocab_size": 262144, "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 30, "num_attention_heads": 8,
    "num_key_value_heads": 4, "head_dim": 256, "global_head_dim": 512, "sliding_window": 512, "vocab_size_per_layer_input": 262144,
    "hidden_size_per_layer_input": 256, "num_kv_shared_layers": 0,
}  # fmt: skip


def _gemma4(**defaults: int) -> Family:
    return Family(
        rows=_GEMMA_ROWS.replace("MLPS", _GEMMA4_ROWS),
        sizes={
            **_GEMMA_SIZES, "full sliding": rules.kinds(rules.FULL_AND_SLIDING, rules.every_nth(6)), "wide": "global_head_dim",
            "few": "(num_global_key_value_heads | kv) if attention_k_eq_v else kv", "alike": "flag(attention_k_eq_v)",
            "single double": _gemma4_widths, "experts per_token": routed("num_experts", per=("top_k_experts",), sparse=False),
        },
        defaults={**_GEMMA4_DEFAULTS, **defaults}, nested=BELOW, terse=True,
    )  # fmt: skip


_GEMMA4 = _gemma4()
# Gemma 4 12B, which takes pictures and sound without towers; an embedding of a token for each layer is not among its keys
_GEMMA4_UNIFIED = _gemma4(sliding_window=1024, hidden_size_per_layer_input=0)

# Inkling: sliding layers with KV heads of their own, short convolutions on keys, values and what both halves give, relative positions:
# `d_rel` elements a head score how far back a token is, up to `rel_extent` tokens or the window. The router scores shared experts too.
# Where a config names the dense layers' width apart, `intermediate_size` is the experts'


def _inkling_layers(look: Look) -> tuple[Layers, ...]:
    """full, sliding: by `layer_types`, by `local_layer_ids`, else each sixth is full."""
    listed = rules.each_listed(
        look.fields, "layer_types", look["layers"], {"hybrid": "full", "hybrid_sliding": "sliding"}
    )
    if listed is not None:
        return listed
    if look.fields.has("local_layer_ids"):
        return rules.split([not local for local in rules.indexed("local_layer_ids")(look)])
    return rules.split(rules.every_nth(6)(look))


def _inkling_sparse(look: Look) -> tuple[Layers, ...]:
    """sparse, dense: by `mlp_layer_types`, else the first `dense_mlp_idx` are dense."""
    listed = rules.each_listed(look.fields, "mlp_layer_types", look["layers"], {"sparse": "sparse", "dense": "dense"})
    first = look.fields.whole("dense_mlp_idx", default=0, least=0)
    return rules.split([layer >= first for layer in look["every"]]) if listed is None else listed


_INKLING_KIND = """
    *projections layers={0} heads={1}num_attention_heads kv={1}num_key_value_heads size={1}head_dim
    self_attn.r_proj  attention  {1}num_attention_heads*d_rel x hidden  {0}
    self_attn.rel_logits_proj.proj  attention  d_rel x {2}  {0}  plain
    self_attn.k_sconv, self_attn.v_sconv  recurrent  {1}num_key_value_heads*{1}head_dim x conv_kernel_size  {0}  plain
    *head_norms layers={0} size={1}head_dim
    state  {0}  0  2*({1}num_key_value_heads*{1}head_dim + hidden)*(conv_kernel_size - 1)
    reads  {0}  {3}  elements 2*{1}num_key_value_heads*{1}head_dim  kv {1}num_key_value_heads  \
flops 4*{1}num_attention_heads*{1}head_dim  heads {1}num_attention_heads
"""
_INKLING = Family(
    rows="*tables"
    + _INKLING_KIND.format("full", "", "rel_extent", "full")
    + _INKLING_KIND.format("sliding", "swa_", "sliding_window_size", "sliding:sliding_window_size")
    + """
    *experts scored=experts+zero(n_shared_experts) needs=every
    mlp.gate.global_scale  norm  1  sparse
    mlp.global_scale  norm  1  dense
    attn_sconv, mlp_sconv  recurrent  hidden x conv_kernel_size  every  plain
    {root}embed_tokens.embed_norm  norm  hidden
    *norms
    """,
    sizes={
        **SIZES, "full sliding": _inkling_layers, "sparse dense": _inkling_sparse,
        "experts per_token": routed("n_routed_experts", sparse=False),
        "size": "intermediate_size if has(dense_intermediate_size) else moe_intermediate_size",
        "dense_size": "dense_intermediate_size if has(dense_intermediate_size) else intermediate_size",
        "shared": "zero(n_shared_experts)*size",
    },
    defaults={
        "vocab_size": 201024, "hidden_size": 6144, "num_hidden_layers": 66, "num_attention_heads": 64, "num_key_value_heads": 8,
        "head_dim": 128, "swa_num_attention_heads": 64, "swa_num_key_value_heads": 16, "swa_head_dim": 128, "sliding_window_size": 512,
        "d_rel": 16, "rel_extent": 1024, "conv_kernel_size": 4, "intermediate_size": 24576, "moe_intermediate_size": 3072,
        "n_routed_experts": 256, "num_experts_per_tok": 6, "n_shared_experts": 2,
    },
    nested=BELOW, terse=True,
)  # fmt: skip

# MiMo-V2: most layers look back over a short window, with KV heads of their own; values are smaller than keys. Keys of published configs as
# in vLLM 0.33 (models/mimo_v2.py)


def _mimo_layers(look: Look) -> tuple[Layers, ...]:
    """full, sliding: by `layer_types`, by `hybrid_layer_pattern` (1: sliding), else the first and each sixth are full."""
    fields, count = look.fields, look["layers"]
    listed = rules.each_listed(fields, "layer_types", count, rules.FULL_AND_SLIDING)
    if listed is not None:
        return listed
    if fields.listed("hybrid_layer_pattern") is None:
        return rules.split([layer == 0 or (layer + 1) % 6 == 0 for layer in look["every"]])
    return rules.split([mark != 1 for mark in rules.marked(fields, "hybrid_layer_pattern", count)])


_MIMO_KIND = """
    *projections layers={0} heads={1}heads kv={1}kv size={1}head value={1}value bias=attention_bias
    self_attn.attention_sink_bias  norm  {1}heads  {0}  if {2}
    reads  {0}  {3}  elements {1}kv*({1}head + {1}value)  kv {1}kv  flops 2*{1}heads*({1}head + {1}value)  heads {1}heads
"""
_MIMO = Family(
    rows="*tables"
    + _MIMO_KIND.format("full", "", "add_full_attention_sink_bias", "full")
    + _MIMO_KIND.format("sliding", "swa_", "flag(add_swa_attention_sink_bias, True)", "sliding:sliding_window_size | sliding_window")
    + "*experts\n*norms",
    sizes={
        **SIZES, "full sliding": _mimo_layers, "heads": "num_attention_heads", "kv": "num_key_value_heads", "head": "head_dim",
        "value": "v_head_dim if has(v_head_dim) else head_dim", "swa_heads": "swa_num_attention_heads | num_attention_heads",
        # the config class doubles the KV heads of sliding layers; configs state them
        "swa_kv": "swa_num_key_value_heads | 2*num_key_value_heads", "swa_head": "swa_head_dim | head_dim",
        "swa_value": "swa_v_head_dim | value", "experts per_token": routed("n_routed_experts", "num_local_experts"),
        "sparse dense": rules.after_dense,
    },
    # its window counts the token itself
    defaults={
        "hidden_size": 4096, "intermediate_size": 16384, "num_hidden_layers": 48, "num_attention_heads": 64, "vocab_size": 152576,
        "num_key_value_heads": 4, "head_dim": 192, "v_head_dim": 128, "sliding_window": 128, "n_routed_experts": 256,
        "num_experts_per_tok": 8, "moe_intermediate_size": 2048, "first_k_dense_replace": 1,
    },
    shaping="experts", known=("first_k_dense_replace",), nested=SAME,
)  # fmt: skip

# MiniMax-M3: grouped-query attention that reads the blocks of context which an indexer picks, in all but the first layers. The indexer
# keeps one key a token, in bf16 unless vLLM is told otherwise (config/attention.py indexer_kv_dtype), and each KV head reads blocks of its
# own. Names as in vLLM 0.33 (models/minimax_m3)


def _minimax_m3_layers(look: Look) -> tuple[Layers, ...]:
    """picking, full: by `layer_types`, else as `sparse_attention_freq` says for each layer, else all are full."""
    fields, count = look.fields, look["layers"]
    words = {"minimax_m3_sparse": "picking", "full_attention": "full"}
    listed = rules.each_listed(fields, "layer_types", count, words)
    if listed is not None:
        return listed
    if not fields.has("sparse_attention_config"):
        return (), look["every"]
    inner = fields.inner("sparse_attention_config")
    marks = inner.listed("sparse_attention_freq")
    if marks is None or len(marks) != count:
        raise inner.refused("sparse_attention_freq", f"is no list of {count} layers")
    return rules.split([bool(mark) for mark in marks])


_MINIMAX_M3 = Family(
    rows=f"""
    *tables
    *projections
    *head_norms
    self_attn.index_q_proj  attention  scorers*index_size x hidden  picking
    self_attn.index_k_proj  attention  index_size x hidden  picking
    self_attn.index_q_norm, self_attn.index_k_norm  norm  index_size  picking
    reads  full  full
    reads  picking  sparse  top blocks*block  indexer picking, 2*index_size, 2*scorers*index_size
    *experts {W123}
    *norms
    """,
    sizes={
        **SIZES, "picking full": _minimax_m3_layers, "scorers": "sparse_attention_config.sparse_num_index_heads | 4",
        "index_size": "sparse_attention_config.sparse_index_dim | 128", "block": "sparse_attention_config.sparse_block_size | 128",
        "blocks": "sparse_attention_config.sparse_topk_blocks | 16", "experts per_token": routed("num_local_experts", "n_routed_experts"),
        "size": "intermediate_size", "dense_size": "dense_intermediate_size", "shared": "shared_intermediate_size",
        "sparse dense": rules.after_dense,
    },
    defaults={
        "hidden_size": 6144, "intermediate_size": 3072, "num_hidden_layers": 60, "num_attention_heads": 64, "vocab_size": 200064,
        "num_key_value_heads": 4, "head_dim": 128, "num_local_experts": 128, "num_experts_per_tok": 4, "dense_intermediate_size": 12288,
        "shared_intermediate_size": 3072,
    },
    shaping="experts", known=("first_k_dense_replace", "n_shared_experts", "use_qk_norm"), nested=NESTED,
)  # fmt: skip

# Llama 3.2 Vision: some layers attend to an image's tokens instead of the context. Their keys and values are an image's, kept once and read
# by every step; how many tokens that is depends on the image, and a request without one passes these layers by. The input table has 8 rows
# more, for the image's token
_MLLAMA = Family(
    rows="""
    refuse  hidden % heads > 0  num_attention_heads  is {heads}, which does not divide the hidden size {hidden}
    {root}embed_tokens  embedding  vocabulary + 8 x hidden
    {head}  lm_head  vocabulary x hidden
    *projections layers=own
    *projections at=cross_attn. layers=cross
    *head_norms at=cross_attn. layers=cross
    cross_attn_attn_gate, cross_attn_mlp_gate  norm  1  cross
    *mlp width=intermediate_size
    *plain_norms
    reads  own  full
    reads  cross  cross
    left_out  KV of images  if len(cross) > 0
    """,
    sizes={
        "hidden": "hidden_size", "vocabulary": "vocab_size", "heads": "num_attention_heads", "kv": "num_key_value_heads",
        "head": "hidden//heads", "cross own": rules.chosen(rules.indexed("cross_attention_layers")),
    },
    defaults={
        "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 40, "num_attention_heads": 32, "vocab_size": 128256,
        "num_key_value_heads": 8, "cross_attention_layers": [3, 8, 13, 18, 23, 28, 33, 38],
    },
    nested=NESTED, terse=True,
)  # fmt: skip

# Muse Glimmer and Muse Spark: a gate on what attention gives; every fourth layer is full, counted from the last one. Glimmer is dense, with
# norms before and behind both halves. Spark has experts in every layer, behind matrices into and out of their narrower space, and a gate on
# each residual
_MUSE: Sizes = {
    **SIZES, "full sliding": rules.window(lambda look: [(look["layers"] - 1 - layer) % 4 != 0 for layer in look["every"]]),
}  # fmt: skip
_GATED = """
    *tables
    *projections bias=attention_bias
    self_attn.gate_proj  attention  heads*head x hidden  every
    *windows
"""
_GLIMMER = Family(
    rows=_GATED + """
    *mlp width=intermediate_size
    pre_feedforward_layernorm, post_feedforward_layernorm  norm  hidden  every
    *norms
    """,
    sizes=_MUSE,
    defaults={
        "vocab_size": 202048, "hidden_size": 6656, "intermediate_size": 19968, "num_hidden_layers": 52, "num_attention_heads": 32,
        "num_key_value_heads": 2, "head_dim": 128, "sliding_window": 2048,
    },
    nested=BELOW, terse=True,
)  # fmt: skip
_SPARK = Family(
    rows=_GATED + """
    *experts width=moe_hidden_size
    mlp.pre_expert_proj  ffn  moe_hidden_size x hidden  every
    mlp.post_expert_proj  ffn  hidden x moe_hidden_size  every
    mlp.pre_expert_norm, mlp.experts.post_expert_norm  norm  moe_hidden_size  every
    pre_feedforward_layernorm, post_feedforward_layernorm  norm  hidden  every
    post_attention_residual_gate, post_feedforward_residual_gate  norm  hidden  every
    *plain_norms names=input_layernorm
    left_out  MTP module  if num_nextn_predict_layers | 0
    """,
    sizes={**_MUSE, "experts per_token": routed("num_local_experts", "num_experts")},
    defaults={
        "vocab_size": 202048, "hidden_size": 8192, "num_hidden_layers": 62, "num_attention_heads": 128, "num_key_value_heads": 16,
        "head_dim": 64, "sliding_window": 2048, "moe_intermediate_size": 4096, "num_local_experts": 256, "num_experts_per_tok": 8,
        "moe_hidden_size": 4096,
    },
    nested=BELOW, terse=True,
)  # fmt: skip

# Nemotron-Super-49B, Nemotron-Ultra-253B and DeciLM: each layer's attention and MLP were searched for one by one (`block_configs`). A
# layer's part is as listed, or there is none of it, norm included


def _nas_groups(look: Look) -> tuple[list[Mapping[str, Any]], list[Mapping[str, Any]]]:
    """attending, widths: layers that are alike, by KV heads and window, and by the MLP's width."""
    fields, count = look.fields, look["layers"]
    blocks = fields.listed("block_configs")
    if blocks is None or len(blocks) != count:
        raise fields.refused(
            "block_configs", "is missing" if blocks is None else f"has {len(blocks)} of {count} layers"
        )
    attending: dict[tuple[int, int | None], list[int]] = {}
    widths: dict[int, list[int]] = {}
    for layer, block in enumerate(blocks):
        attention, ffn = (_nas_part(fields, block, key) for key in ("attention", "ffn"))
        if not _absent(fields, attention):
            window = attention.whole("window_length") if attention.has("window_length") else None
            attending.setdefault((_nas_kv(attention, look["heads"]), window), []).append(layer)
        if not _absent(fields, ffn):
            widths.setdefault(_nas_width(ffn, look["hidden"]), []).append(layer)
    return (
        [{"here": tuple(here), "kv": kv, "window": window} for (kv, window), here in attending.items()],
        [{"here": tuple(here), "intermediate": width} for width, here in widths.items()],
    )


def _nas_part(fields: Fields, block: Any, key: str) -> Fields:
    part = block.get(key) if isinstance(block, Mapping) else None
    if not isinstance(part, Mapping):
        raise fields.refused("block_configs", f"has a layer without {key}")
    return Fields(part, {"model_type": fields.model_type})


def _absent(fields: Fields, part: Fields) -> bool:
    if part.flag("replace_with_linear", default=False):
        raise fields.refused("block_configs", "replaces a part by one matrix, for which there is no formula here")
    return part.flag("no_op", default=False)


def _nas_kv(attention: Fields, heads: int) -> int:
    shared = attention.whole("n_heads_in_group")
    if heads % shared:
        raise attention.refused("n_heads_in_group", f"is {shared}, which does not divide the {heads} heads")
    return heads // shared


def _nas_width(ffn: Fields, hidden: int) -> int:
    """`intermediate_size`, else two thirds of 2 x `ffn_mult` x hidden, rounded up to a multiple of 256."""
    if ffn.has("intermediate_size"):
        return ffn.whole("intermediate_size")
    multiple = ffn.found("ffn_mult")
    if isinstance(multiple, bool) or not isinstance(multiple, int | float) or not 0 < multiple < hidden:
        raise ffn.refused("ffn_mult", f"is {multiple!r}, not a number above 0")
    return -(-int(2 * multiple * hidden / 3) // 256) * 256


_NAS = Family(
    rows="""
    *tables
    *projections layers=each:attending bias=attention_bias
    input_layernorm  norm  hidden  each:attending
    reads  each:attending  sliding:window
    *mlp layers=each:widths bias=mlp_bias
    post_attention_layernorm  norm  hidden  each:widths
    model.norm  norm  hidden
    """,
    sizes={
        "hidden": "hidden_size", "vocabulary": "vocab_size", "tied": "flag(tie_word_embeddings)", "heads": "num_attention_heads",
        "head": "head_dim | hidden//heads", "attending widths": _nas_groups,
    },
)  # fmt: skip

# Step-3.5 and Step-3.7: sliding layers with query heads of their own, a gate on each head's output, experts beside a shared one. A config
# lists its prediction layers behind its own, and they are left out. Names as in vLLM 0.33 (models/step3p5.py)


def _step_listed(look: Look, key: str) -> Sequence[Any] | None:
    """A list with an entry for each layer, those of prediction layers behind it cut off."""
    fields, count = look.fields, look["layers"]
    listed = fields.listed(key)
    if listed is None:
        return None
    if len(listed) not in (count, count + fields.whole("num_nextn_predict_layers", default=0, least=0)):
        raise fields.refused(key, f"has {len(listed)} entries for {count} layers")
    return listed[:count]


def _step_layers(look: Look) -> tuple[Layers, ...]:
    """full, sliding"""
    listed = _step_listed(look, "layer_types")
    return (
        (look["every"], ())
        if listed is None
        else rules.by_kind(look.fields, "layer_types", listed, rules.FULL_AND_SLIDING)
    )


def _step_sparse(look: Look) -> tuple[Layers, ...]:
    """sparse, dense: by `mlp_layer_types`, by the indices in `moe_layers_enum` (a text with commas), else all but the first ones."""
    fields, listed = look.fields, _step_listed(look, "mlp_layer_types")
    if listed is not None:
        return rules.by_kind(fields, "mlp_layer_types", listed, {"sparse": "sparse", "dense": "dense"})
    if fields.has("moe_layers_enum"):
        said = fields.text("moe_layers_enum").split(",")
        if not all(entry.strip().isdigit() for entry in said):
            raise fields.refused("moe_layers_enum", "is not a list of layers' indices with commas")
        chosen = {int(entry) for entry in said}
        return rules.split([layer in chosen for layer in look["every"]])
    first = fields.whole("first_k_dense_replace", least=0)
    return rules.split([layer >= first for layer in look["every"]])


_STEP_KIND = """
    *queries layers={0} heads={1}heads
    *keys layers={0} kv={1}kv bias=attention_bias
    self_attn.g_proj  attention  {1}heads x hidden  {0}  if flag(use_head_wise_attn_gate, True)
    *head_norms layers={0}
    reads  {0}  {2}  elements 2*{1}kv*head  kv {1}kv  flops 4*{1}heads*head  heads {1}heads
"""
_STEP = Family(
    rows="*tables"
    + _STEP_KIND.format("full", "", "full")
    + _STEP_KIND.format("sliding", "other_", "sliding:sliding_window")
    + """
    *experts at= router=moe.gate gate=moe.gate_proj up=moe.up_proj down=moe.down_proj shared=share_expert.
    *norms
    """,
    sizes={
        **SIZES, "heads": "num_attention_heads", "kv": "num_attention_groups | num_key_value_heads", "head": "head_dim",
        "other_heads": "(attention_other_setting.num_attention_heads | heads) if has(attention_other_setting) else "
        "(num_sliding_attention_heads | heads)",
        "other_kv": "attention_other_setting.num_attention_groups | kv", "full sliding": _step_layers, "sparse dense": _step_sparse,
        "experts per_token": routed(
            "moe_num_experts", "n_routed_experts", "num_experts", "num_local_experts", per=("moe_top_k", "num_experts_per_tok")
        ),
        "shared": "share_expert_dim | share_expert_dims",
    },
    defaults={
        "hidden_size": 4096, "intermediate_size": 11264, "num_hidden_layers": 45, "num_attention_heads": 64, "vocab_size": 128815,
        "num_key_value_heads": 8, "head_dim": 128, "n_routed_experts": 288, "num_experts_per_tok": 8, "moe_intermediate_size": 1280,
        "share_expert_dim": 1280, "first_k_dense_replace": 3,
    },
    shaping="experts", known=("first_k_dense_replace", "n_shared_experts"), nested=BELOW,
)  # fmt: skip

FAMILIES: Mapping[str, Family | Callable[[Fields], Family]] = {
    "gemma3n": _GEMMA3N, "gemma3n_text": _GEMMA3N, "gemma4": _GEMMA4, "gemma4_text": _GEMMA4, "gemma4_unified": _GEMMA4_UNIFIED,
    "gemma4_unified_text": _GEMMA4_UNIFIED, "inkling_text": _INKLING, "inkling_mm_model": _INKLING, "mimo_v2_flash": _MIMO,
    "mimo_v2": _MIMO, "minimax_m3": _MINIMAX_M3, "minimax_m3_vl": _MINIMAX_M3, "minimax_m3_vl_text": _MINIMAX_M3, "mllama": _MLLAMA,
    "mllama_text_model": _MLLAMA, "muse_glimmer_text": _GLIMMER, "muse_glimmer": _GLIMMER, "muse_spark_text": _SPARK,
    "muse_spark": _SPARK, "nemotron-nas": _NAS, "deci": _NAS, "step3p5": _STEP, "step3p7": _STEP,
}  # fmt: skip
