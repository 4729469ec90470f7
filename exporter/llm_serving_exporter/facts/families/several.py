"""Decoders whose layers attend in more ways than one: other heads or head sizes by kind of layer, values of another size than keys, keys
and values that another layer keeps, a gate on what attention gives.

Verified against transformers 5.23.0 on the meta device; Nemotron-NAS as in vLLM 0.33 (models/nemotron_nas.py) and the publisher's own code.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llm_serving_exporter.facts.families import rules
from llm_serving_exporter.facts.families.experts import BELOW, NESTED, SAME, SIZES, TIED
from llm_serving_exporter.facts.families.rules import FULL_AND_SLIDING, SPARSE_AND_DENSE, routed
from llm_serving_exporter.facts.fields import Fields
from llm_serving_exporter.facts.shapes import Families, Family, Layers, Look, Rule, Sizes, by_type, class_sizes

# Gemma 3n and Gemma 4: sliding and full layers of other head sizes, last layers that read the KV of earlier ones, and a token's own
# embedding for each layer. That table is looked up, a row a token, and kept in memory: no step streams it. For layers whose values are
# their keys (`attention_k_eq_v`) vLLM 0.33 loads the one matrix twice; it counts once here


def _own(kind: str) -> Rule:
    """The layers of a kind that keep KV of their own, and those that read others': the last `num_kv_shared_layers`."""

    def rule(look: Look) -> tuple[Layers, Layers]:
        own = look["own"]
        return tuple(layer for layer in look[kind] if layer < own), tuple(layer for layer in look[kind] if layer >= own)

    return rule


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
    reads  full_own  full  kv few  size wide
    reads  full_shared  full  kv few  size wide  shared
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
_GEMMA4_ROWS = """*mlp layers=single
    *mlp layers=double width=2*intermediate_size
    router.proj  router  experts x hidden  every  plain  if enable_moe_block
    router.scale  norm  hidden  every  if enable_moe_block
    router.per_expert_scale  norm  experts  every  if enable_moe_block
    experts.gate_up_proj  expert  2*moe_intermediate_size x hidden  every  if enable_moe_block
    experts.down_proj  expert  hidden x moe_intermediate_size  every  if enable_moe_block
    post_feedforward_layernorm_1, post_feedforward_layernorm_2, pre_feedforward_layernorm_2  norm  hidden  every  if enable_moe_block
"""
_GEMMA_SIZES: Sizes = {
    **TIED, "wide": "head", "few": "kv", "alike": "False", "own": "layers - zero(num_kv_shared_layers)",
    "per_layer": "zero(hidden_size_per_layer_input)",
    "sliding_own sliding_shared": _own("sliding"), "full_own full_shared": _own("full"),
}  # fmt: skip
_GEMMA3N = Family(
    rows=_GEMMA_ROWS.replace("MLPS", _GEMMA3N_ROWS),
    sizes={
        **_GEMMA_SIZES, "full sliding": rules.kinds(FULL_AND_SLIDING, rules.every_nth(5)), "widths": _gemma3n_widths,
        "per_layer": "hidden_size_per_layer_input",
        "around": lambda look: tuple(range(look["altup_num_inputs"] - 1)),
    },
    defaults=class_sizes(
        2048, 16384, 35, 8, 262400, kv=2, head=256, sliding_window=512, vocab_size_per_layer_input=262144,
        hidden_size_per_layer_input=256, altup_num_inputs=4, num_kv_shared_layers=15, laurel_rank=64,
    ),
    nested=BELOW, terse=True,
)  # fmt: skip
_GEMMA4_DEFAULTS = class_sizes(
    2304, 9216, 30, 8, 262144, kv=4, head=256, global_head_dim=512, sliding_window=512, vocab_size_per_layer_input=262144,
    hidden_size_per_layer_input=256, num_kv_shared_layers=0,
)  # fmt: skip


def _gemma4(**defaults: int) -> Family:
    return Family(
        rows=_GEMMA_ROWS.replace("MLPS", _GEMMA4_ROWS),
        sizes={
            **_GEMMA_SIZES, "full sliding": rules.kinds(FULL_AND_SLIDING, rules.every_nth(6)), "wide": "global_head_dim",
            "few": "(num_global_key_value_heads | kv) if attention_k_eq_v else kv", "alike": "flag(attention_k_eq_v)",
            # `use_double_wide_mlp`: layers that keep no KV have twice the width
            "double single": "layer >= own and use_double_wide_mlp",
            "experts per_token": routed("num_experts", per=("top_k_experts",), sparse=False),
        },
        defaults={**_GEMMA4_DEFAULTS, **defaults}, nested=BELOW, terse=True,
    )  # fmt: skip


# Inkling: sliding layers with KV heads of their own, short convolutions on keys, values and what both halves give, relative positions:
# `d_rel` elements a head score how far back a token is, up to `rel_extent` tokens or the window. The router scores shared experts too.
# Where a config names the dense layers' width apart, `intermediate_size` is the experts'
_INKLING_KIND = """
    *projections layers={0} heads={1}num_attention_heads kv={1}num_key_value_heads size={1}head_dim
    self_attn.r_proj  attention  {1}num_attention_heads*d_rel x hidden  {0}
    self_attn.rel_logits_proj.proj  attention  d_rel x {2}  {0}  plain
    self_attn.k_sconv, self_attn.v_sconv  recurrent  {1}num_key_value_heads*{1}head_dim x conv_kernel_size  {0}  plain
    *head_norms layers={0} size={1}head_dim
    state  {0}  0  2*({1}num_key_value_heads*{1}head_dim + hidden)*(conv_kernel_size - 1)
    reads  {0}  {3}  kv {1}num_key_value_heads  heads {1}num_attention_heads  size {1}head_dim
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
        **SIZES, "sparse dense": rules.kinds(SPARSE_AND_DENSE, "layer >= (dense_mlp_idx | 0)", "mlp_layer_types"),
        "full sliding": rules.kinds(
            {"hybrid": "full", "hybrid_sliding": "sliding"},
            "layer not in local_layer_ids if has(local_layer_ids) else (layer + 1) % 6 == 0",
        ),
        "experts per_token": routed("n_routed_experts", sparse=False),
        "size": "intermediate_size if has(dense_intermediate_size) else moe_intermediate_size",
        "dense_size": "dense_intermediate_size if has(dense_intermediate_size) else intermediate_size",
        "shared": "zero(n_shared_experts)*size",
    },
    defaults=class_sizes(
        6144, 24576, 66, 64, 201024, kv=8, head=128, swa_num_attention_heads=64, swa_num_key_value_heads=16, swa_head_dim=128,
        sliding_window_size=512, d_rel=16, rel_extent=1024, conv_kernel_size=4, n_routed_experts=(256, 6, 3072), n_shared_experts=2,
    ),
    nested=BELOW, terse=True,
)  # fmt: skip

# MiMo-V2: most layers look back over a short window, with KV heads of their own; values are smaller than keys. Keys of published configs as
# in vLLM 0.33 (models/mimo_v2.py)
_MIMO_KIND = """
    *projections layers={0} heads={1}heads kv={1}kv size={1}head value={1}value bias=attention_bias
    self_attn.attention_sink_bias  norm  {1}heads  {0}  if {2}
    reads  {0}  {3}  kv {1}kv  heads {1}heads  size {1}head  value {1}value
"""
_MIMO = Family(
    rows="*tables"
    + _MIMO_KIND.format("full", "", "add_full_attention_sink_bias", "full")
    + _MIMO_KIND.format("sliding", "swa_", "flag(add_swa_attention_sink_bias, True)", "sliding:sliding_window_size | sliding_window")
    + "*experts\n*norms",
    sizes={
        **SIZES, "heads": "num_attention_heads", "kv": "num_key_value_heads", "head": "head_dim",
        "value": "v_head_dim if has(v_head_dim) else head_dim", "swa_heads": "swa_num_attention_heads | num_attention_heads",
        # 1 in `hybrid_layer_pattern`: sliding
        "full sliding": rules.kinds(
            FULL_AND_SLIDING,
            "hybrid_layer_pattern[layer] != 1 if has(hybrid_layer_pattern) else layer == 0 or (layer + 1) % 6 == 0",
        ),
        # the config class doubles the KV heads of sliding layers; configs state them
        "swa_kv": "swa_num_key_value_heads | 2*num_key_value_heads", "swa_head": "swa_head_dim | head_dim",
        "swa_value": "swa_v_head_dim | value", "experts per_token": routed("n_routed_experts", "num_local_experts"),
        "sparse dense": rules.after_dense,
    },
    # its window counts the token itself
    defaults=class_sizes(
        4096, 16384, 48, 64, 152576, kv=4, head=192, v_head_dim=128, sliding_window=128, n_routed_experts=(256, 8, 2048),
        first_k_dense_replace=1,
    ),
    shaping="experts", known=("first_k_dense_replace",), nested=SAME,
)  # fmt: skip

# MiniMax-M3: grouped-query attention that reads the blocks of context which an indexer picks, in all but the first layers. The indexer
# keeps one key a token, in bf16 unless vLLM is told otherwise (config/attention.py indexer_kv_dtype), and each KV head reads blocks of its
# own. Names as in vLLM 0.33 (models/minimax_m3)


def _by_frequency(look: Look) -> tuple[Layers, ...]:
    """picking, full: as `sparse_attention_freq` says for each layer, else all are full."""
    every = look["every"]
    if not look.fields.has("sparse_attention_config"):
        return (), every
    inner = look.fields.inner("sparse_attention_config")
    marks = inner.listed("sparse_attention_freq")
    if marks is None or len(marks) != len(every):
        raise inner.refused("sparse_attention_freq", f"is no list of {len(every)} layers")
    return tuple(layer for layer in every if marks[layer]), tuple(layer for layer in every if not marks[layer])


_INDEXER = class_sizes(sparse_num_index_heads=4, sparse_index_dim=128, sparse_block_size=128, sparse_topk_blocks=16)


def _indexer_sizes(look: Look) -> tuple[int, ...]:
    """scorers, index_size, block, blocks"""
    stated = look.fields.has("sparse_attention_config")
    inner = look.fields.inner("sparse_attention_config") if stated else Fields({}, look.fields.values)
    return tuple(map(inner.with_defaults(_INDEXER).whole, _INDEXER))


_MINIMAX_M3 = Family(
    rows="""
    *tables
    *projections
    *head_norms
    self_attn.index_q_proj  attention  scorers*index_size x hidden  picking
    self_attn.index_k_proj  attention  index_size x hidden  picking
    self_attn.index_q_norm, self_attn.index_k_norm  norm  index_size  picking
    reads  full  full
    reads  picking  sparse  top blocks*block  indexer picking, 2*index_size, 2*scorers*index_size
    *numbered_experts
    *norms
    """,
    sizes={
        **SIZES, "picking full": rules.kinds({"minimax_m3_sparse": "picking", "full_attention": "full"}, _by_frequency),
        "scorers index_size block blocks": _indexer_sizes, "experts per_token": routed("num_local_experts", "n_routed_experts"),
        "size": "intermediate_size", "dense_size": "dense_intermediate_size", "shared": "shared_intermediate_size",
        "sparse dense": rules.after_dense,
    },
    defaults=class_sizes(
        6144, 3072, 60, 64, 200064, kv=4, head=128, num_local_experts=(128, 4), dense_intermediate_size=12288,
        shared_intermediate_size=3072,
    ),
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
    *mlp
    *plain_norms
    reads  own  full
    reads  cross  cross
    left_out  KV of images  if len(cross) > 0
    """,
    sizes={"head": "hidden//heads", "cross own": "layer in cross_attention_layers"},
    defaults=class_sizes(4096, 14336, 40, 32, 128256, kv=8, cross_attention_layers=[3, 8, 13, 18, 23, 28, 33, 38]),
    nested=NESTED, terse=True,
)  # fmt: skip

# Muse Glimmer and Muse Spark: a gate on what attention gives; every fourth layer is full, counted from the last one. Glimmer is dense, with
# norms before and behind both halves. Spark has experts in every layer, behind matrices into and out of their narrower space, and a gate on
# each residual
_MUSE: Sizes = {**SIZES, "full sliding": rules.window("(layers - 1 - layer) % 4 == 0")}
_GATED = """
    *tables
    *projections bias=attention_bias
    self_attn.gate_proj  attention  heads*head x hidden  every
    *windows
"""
_GLIMMER = Family(
    rows=_GATED + """
    *mlp
    pre_feedforward_layernorm, post_feedforward_layernorm  norm  hidden  every
    *norms
    """,
    sizes=_MUSE,
    defaults=class_sizes(6656, 19968, 52, 32, 202048, kv=2, head=128, sliding_window=2048),
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
    defaults=class_sizes(
        8192, None, 62, 128, 202048, kv=16, head=64, sliding_window=2048, num_local_experts=(256, 8, 4096), moe_hidden_size=4096,
    ),
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
    sizes={"head": "head_dim | hidden//heads", "attending widths": _nas_groups},
)  # fmt: skip

# Step-3.5 and Step-3.7: sliding layers with query heads of their own, a gate on each head's output, experts beside a shared one. A config
# lists its prediction layers behind its own, and they are left out. Names as in vLLM 0.33 (models/step3p5.py)

_BEHIND = "num_nextn_predict_layers"
_STEP_KIND = """
    *queries layers={0} heads={1}heads
    *keys layers={0} kv={1}kv bias=attention_bias
    self_attn.g_proj  attention  {1}heads x hidden  {0}  if flag(use_head_wise_attn_gate, True)
    *head_norms layers={0}
    reads  {0}  {2}  kv {1}kv  heads {1}heads
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
        "other_kv": "attention_other_setting.num_attention_groups | kv",
        "full sliding": rules.kinds(FULL_AND_SLIDING, "True", behind=_BEHIND),
        "sparse dense": rules.kinds(
            SPARSE_AND_DENSE, rules.enumerated("layer >= zero(first_k_dense_replace)"), "mlp_layer_types", behind=_BEHIND
        ),
        "experts per_token": routed(
            "moe_num_experts", "n_routed_experts", "num_experts", "num_local_experts", per=("moe_top_k", "num_experts_per_tok")
        ),
        "shared": "share_expert_dim | share_expert_dims",
    },
    defaults=class_sizes(
        4096, 11264, 45, 64, 128815, kv=8, head=128, n_routed_experts=(288, 8, 1280), share_expert_dim=1280, first_k_dense_replace=3,
    ),
    shaping="experts", known=("first_k_dense_replace", "n_shared_experts"), nested=BELOW,
)  # fmt: skip

FAMILIES: Families = by_type({
    "gemma3n gemma3n_text": _GEMMA3N, "gemma4 gemma4_text": _gemma4(),
    # Gemma 4 12B, which takes pictures and sound without towers; an embedding of a token for each layer is not among its keys
    "gemma4_unified gemma4_unified_text": _gemma4(sliding_window=1024, hidden_size_per_layer_input=0),
    "inkling_text inkling_mm_model": _INKLING, "mimo_v2_flash mimo_v2": _MIMO,
    "minimax_m3 minimax_m3_vl minimax_m3_vl_text": _MINIMAX_M3,
    "mllama mllama_text_model": _MLLAMA, "muse_glimmer_text muse_glimmer": _GLIMMER, "muse_spark_text muse_spark": _SPARK,
    "nemotron-nas deci": _NAS, "step3p5 step3p7": _STEP,
})  # fmt: skip
