"""Models with recurrent layers: Mamba and its hybrids, gated DeltaNet, lightning attention, short convolutions.

Facts: model-math B.5, B.6, B.9. Those whose class transformers 5.23.0 has are verified on the meta device.
"""

from __future__ import annotations

from typing import Any, NoReturn

from llm_serving_exporter.facts.families import rules
from llm_serving_exporter.facts.families.experts import BELOW, NESTED
from llm_serving_exporter.facts.families.rules import routed
from llm_serving_exporter.facts.fields import Fields
from llm_serving_exporter.facts.shapes import Families, Family, Layers, Look, Rule, Sizes, by_type, class_sizes
from llm_serving_exporter.model.record import replace

_SIZES: Sizes = {"heads kv head": rules.strict_heads("head_dim")}
# tables keep their place in a larger checkpoint
_FLAT = (NESTED[0], "lm_head")


def _auto(key: str, computed: str) -> Rule:
    """A whole number that configs may leave to be computed, by "auto" or by leaving it out."""
    return lambda look: (
        look.number(computed) if look.fields.values.get(key) in (None, "auto") else look.fields.whole(key)
    )


# Mamba blocks and nothing else; Falcon-Mamba's norms over time step, B and C have no weights

_ONLY = """
    *tables embed=backbone.embeddings
    norm  norm  hidden  every
    BLOCK conv_bias=flag(use_conv_bias,True) bias=use_bias
    backbone.norm_f  norm  hidden
"""
_BACKBONE = "backbone.layers.{}."


def _nothing_left_out(_: Fields) -> tuple[str, ...]:
    return ()


_MAMBA = Family(
    rows=_ONLY.replace("BLOCK", "*mamba1"),
    sizes={
        **_SIZES, "tied": "flag(tie_word_embeddings, True)", "inner": "expand*hidden", "elements": "state_size",
        "rank": _auto("time_step_rank", "(hidden + 15)//16"), "kernel": "conv_kernel",
    },
    layer=_BACKBONE, left_out=_nothing_left_out,
)  # fmt: skip
_MAMBA2 = Family(
    rows="""
    refuse  inner != expand*hidden  num_heads  x head_dim is {inner}, not expand x hidden_size
    """ + _ONLY.replace("BLOCK", "*mamba2"),
    sizes={
        **_SIZES, "mamba_heads": "num_heads", "inner": "num_heads*head_dim", "elements": "state_size",
        "channels": "inner + 2*n_groups*elements", "kernel": "conv_kernel",
    },
    layer=_BACKBONE, left_out=_nothing_left_out,
)  # fmt: skip

# hybrids of attention and Mamba layers

_HYBRID = """
    *tables
    input_layernorm, pre_ff_layernorm  norm  hidden  every
    model.final_layernorm  norm  hidden
    *mlp at=feed_forward. bias=mlp_bias
    *projections layers=attending bias=attention_bias
    reads  attending  full
"""
_FITS = """
    refuse  inner != wanted  mamba_n_heads  x mamba_d_head is {inner}, not the inner width {wanted}
"""
# the block of a hybrid that spells its sizes mamba_n_heads, mamba_d_state and so on (Bamba, Granite 4, Falcon-H1)
_MAMBA2_SIZES: Sizes = {
    **_SIZES, "mamba_heads": "mamba_n_heads", "mamba_head": _auto("mamba_d_head", "wanted//mamba_heads"), "wanted": "mamba_expand*hidden",
    "inner": "mamba_heads*mamba_head", "elements": "mamba_d_state", "channels": "inner + 2*mamba_n_groups*elements",
    "kernel": "mamba_d_conv",
}  # fmt: skip
_BLOCK = "*mamba2 at=mamba. layers=recurrent bias=mamba_proj_bias conv_bias=flag(mamba_conv_bias,True)"
_BLOCK_WORDS = {
    "mamba": "recurrent",
    "linear_attention": "recurrent",
    "attention": "attending",
    "full_attention": "attending",
}


def _no_layers(look: Look) -> NoReturn:
    raise look.fields.refused("layer_types", "is missing")


def _periodic(name: str, when: str = "True") -> str:
    """A line that refuses an offset beyond its period, of layers that begin at the one and come back after the other."""
    return (
        f"refuse  {when} and zero({name}_offset) >= {name}_period  {name}_offset  "
        f"is {{zero({name}_offset)}}, not below {name}_period, which is {{{name}_period}}"
    )


# every `attn_layer_period`th layer attends
_JAMBA = Family(
    rows=f"""
    refuse  attention_bias  attention_bias  is true, which Jamba does not know
    refuse  not flag(mamba_inner_layernorms, True)  mamba_inner_layernorms  is false, for which no formula is known here
    {_periodic("expert_layer", "num_experts > 1")}
    {_periodic("attn_layer")}
    *tables
    input_layernorm, pre_ff_layernorm  norm  hidden  every
    model.final_layernorm  norm  hidden
    *mlp at=feed_forward. layers=dense
    *linear_experts at=feed_forward. router=router
    *projections layers=attending
    reads  attending  full
    *mamba1 at=mamba. layers=recurrent bias=mamba_proj_bias conv_bias=flag(mamba_conv_bias,True)
    mamba.dt_layernorm  norm  rank  recurrent
    mamba.b_layernorm, mamba.c_layernorm  norm  elements  recurrent
    """,
    sizes={
        **_SIZES, "inner": "mamba_expand*hidden", "elements": "mamba_d_state", "rank": _auto("mamba_dt_rank", "(hidden + 15)//16"),
        "kernel": "mamba_d_conv", "size": "intermediate_size",
        "attending recurrent": "layer % attn_layer_period == zero(attn_layer_offset)",
        # a single expert is a plain MLP
        "sparse dense": "num_experts > 1 and layer % expert_layer_period == zero(expert_layer_offset)",
        "experts per_token": routed("num_experts", named=True, sparse=False),
    },
)  # fmt: skip
_BAMBA = Family(
    rows=_FITS + _HYBRID + _BLOCK, sizes={**_MAMBA2_SIZES, "attending recurrent": "layer in attn_layer_indices"}
)
# attention and Mamba-2 side by side in every layer
_FALCON_H1 = Family(
    rows=_FITS + _HYBRID + _BLOCK + " out_bias=projectors_bias norm=mamba_rms_norm",
    sizes={
        **_MAMBA2_SIZES, "attending recurrent": lambda look: (look["every"], look["every"]),
        "wanted": "mamba_d_ssm if has(mamba_d_ssm) else mamba_expand*hidden",
    },
)  # fmt: skip
# Granite 4: Mamba-2 or attention by `layer_types`; an MLP that all tokens pass and, where there are any, experts, whose gate and up are one
# matrix
_GRANITE = Family(
    rows=_FITS + """
    *tables
    input_layernorm, post_attention_layernorm  norm  hidden  every
    model.norm  norm  hidden
    shared_mlp.input_linear  ffn  2*shared_intermediate_size x hidden  every
    shared_mlp.output_linear  ffn  hidden x shared_intermediate_size  every
    block_sparse_moe.router.layer  router  experts x hidden  every  if zero(num_local_experts)
    block_sparse_moe.input_linear  expert  2*intermediate_size x hidden  every  if zero(num_local_experts)
    block_sparse_moe.output_linear  expert  hidden x intermediate_size  every  if zero(num_local_experts)
    *projections layers=attending bias=attention_bias
    reads  attending  full
    """ + _BLOCK,
    sizes={
        **_MAMBA2_SIZES, "recurrent attending": rules.kinds(_BLOCK_WORDS, rules.kinds(_BLOCK_WORDS, _no_layers, "layers_block_type")),
        "experts per_token": routed("num_local_experts", named=True, sparse=False),
    },
)  # fmt: skip

# Nemotron-H and Nemotron 3: each layer is one block, Mamba-2, attention, MLP or experts, the latter two without a gate: squared ReLU
# between two matrices. Nemotron 3 Super and Ultra route in a latent space of `moe_latent_size`

# letters of hybrid_override_pattern, then the words of layers_block_type that newer configs have in its place
_NEMOTRON_WORDS = {
    "M": "mamba", "*": "attention", "-": "mlp", "E": "moe",
    "mamba": "mamba", "linear_attention": "mamba", "attention": "attention", "full_attention": "attention",
    "mlp": "mlp", "moe": "moe",
}  # fmt: skip


def _nemotron_layers(look: Look) -> tuple[Any, ...]:
    """layers, mamba, attention, mlp, sparse"""
    fields = look.fields
    key = next(
        (key for key in ("layers_block_type", "layer_types") if fields.listed(key) is not None),
        "hybrid_override_pattern",
    )
    if not fields.has(key):
        raise fields.refused(key, "is missing")
    entries = fields.text(key) if key == "hybrid_override_pattern" else fields.listed(key) or ()
    kinds = rules.by_kind(fields, key, entries, _NEMOTRON_WORDS)
    stated = fields.whole("num_hidden_layers", default=len(entries))
    if stated != len(entries):
        raise fields.refused("num_hidden_layers", f"is {stated}, but {key} has {len(entries)} entries")
    return stated, *kinds


_NEMOTRON = Family(
    rows="""
    refuse  tie_word_embeddings  tie_word_embeddings  is true, which this architecture does not have
    refuse  len(attention) > 0 and attention_bias  attention_bias  is true, for which implementations differ
    refuse  len(sparse) > 0 and mlp_bias  mlp_bias  is true, for which no formula with experts is known here
    refuse  len(sparse) > 0 and zero(n_shared_experts | 1) != 1  n_shared_experts  is not 1, for which implementations differ
    *tables embed=backbone.embeddings tied=False
    norm  norm  hidden  every
    backbone.norm_f  norm  hidden
    *mamba2 layers=mamba bias=use_bias conv_bias=flag(use_conv_bias,True)
    *projections at=mixer. layers=attention
    reads  attention  full
    *plain_mlp up=mixer.up_proj down=mixer.down_proj layers=mlp width=intermediate_size bias=mlp_bias
    mixer.gate  router  experts x hidden  sparse
    mixer.fc1_latent_proj  ffn  width x hidden  sparse  if has(moe_latent_size)
    mixer.fc2_latent_proj  ffn  hidden x width  sparse  if has(moe_latent_size)
    mixer.experts.*.up_proj  expert  moe_intermediate_size x width  sparse
    mixer.experts.*.down_proj  expert  width x moe_intermediate_size  sparse
    *plain_mlp up=mixer.shared_experts.up_proj down=mixer.shared_experts.down_proj layers=sparse width=moe_shared_expert_intermediate_size
    left_out  multi-token prediction layers  if num_nextn_predict_layers | 0
    """,
    sizes={
        **_SIZES, "layers mamba attention mlp sparse": _nemotron_layers, "mamba_heads": "mamba_num_heads",
        "inner": "mamba_heads*mamba_head_dim", "elements": "ssm_state_size", "groups": "n_groups | mamba_n_groups",
        "channels": "inner + 2*groups*elements", "kernel": "conv_kernel | mamba_d_conv",
        # the first configs of the family spell it attention_head_dim
        "heads kv head": rules.strict_heads("head_dim", "attention_head_dim"),
        "experts per_token": routed("n_routed_experts", named=True, sparse=False), "width": "moe_latent_size | hidden",
    },
    layer=_BACKBONE, name="nemotron_h",
)  # fmt: skip

# Qwen3-Next and Qwen3.5: three gated DeltaNet layers to one of gated attention, whose q_proj is doubled: its second half gates the output.
# Router, routed experts, and one shared expert with a gate of its own

_QWEN_ROWS = """
    refuse  len(full) > 0 and not flag(attn_output_gate, True)  attn_output_gate  is false, for which no formula is known here
    *tables
    *plain_norms
    self_attn.q_proj  attention  2*heads*head x hidden  full  bias attention_bias
    *keys layers=full bias=attention_bias
    self_attn.o_proj  attention  hidden x heads*head  full  bias attention_bias
    *head_norms layers=full
    reads  full  full
    INPUTS
    *delta_net
    *mlp layers=dense
    *linear_experts
    *mlp at=mlp.shared_expert. layers=sparse width=shared_expert_intermediate_size
    mlp.shared_expert_gate  router  1 x hidden  sparse
    left_out  multi-token prediction layers  if mtp_num_hidden_layers | num_nextn_predict_layers | 0
"""
# Qwen3-Next's checkpoints keep q, k, v and z in one matrix
_FUSED = """
    linear_attn.in_proj_qkvz  recurrent  2*keys + 2*values x hidden  linear
    linear_attn.in_proj_ba  recurrent  2*value_heads x hidden  linear
"""
_APART = """
    linear_attn.in_proj_qkv  recurrent  2*keys + values x hidden  linear
    linear_attn.in_proj_z  recurrent  values x hidden  linear
    linear_attn.in_proj_b, linear_attn.in_proj_a  recurrent  value_heads x hidden  linear
"""
_QWEN_NEXT = Family(
    rows=_QWEN_ROWS.replace("INPUTS", _FUSED),
    sizes={
        **_SIZES, "full linear": rules.kinds(rules.FULL_AND_LINEAR, rules.every_nth(4, "full_attention_interval")),
        "value_heads": "linear_num_value_heads", "value_size": "linear_value_head_dim", "key_size": "linear_key_head_dim",
        "keys": "linear_num_key_heads*key_size", "values": "value_heads*value_size", "kernel": "linear_conv_kernel_dim",
        "sparse dense": rules.STEPPED, "experts per_token": routed("num_experts", named=True, sparse=False),
    },
    nested=BELOW, terse=True, name="qwen3_next",
)  # fmt: skip
# of the classes: the text part of a multimodal config leaves out what equals them
_QWEN3_5 = class_sizes(
    heads=16, vocabulary=248320, head=256, linear_conv_kernel_dim=4, linear_key_head_dim=128, linear_value_head_dim=128,
    linear_num_key_heads=16, linear_num_value_heads=32,
)  # fmt: skip
_QWEN3_5_DENSE = replace(
    _QWEN_NEXT, rows=_QWEN_ROWS.replace("INPUTS", _APART), name="qwen3_5",
    sizes={**_QWEN_NEXT.sizes, "sparse dense": "False"}, defaults={**_QWEN3_5, **class_sizes(4096, 12288, 32, kv=4)},
)  # fmt: skip
_QWEN3_5_MOE = replace(
    _QWEN_NEXT, rows=_QWEN_ROWS.replace("INPUTS", _APART), name="qwen3_5_moe",
    defaults={
        **_QWEN3_5, **class_sizes(2048, layers=40, kv=2, num_experts=(256, 8, 512), shared_expert_intermediate_size=512)
    },
)  # fmt: skip

# OLMo Hybrid: gated delta networks in most layers, attention with norms over all heads in every fourth. Norms stand before the recurrent
# layers' halves, and behind the attending layers'. Sizes that a config leaves out follow from the attention's

_OLMO_HYBRID = Family(
    rows="""
    *tables embed=model.embed_tokens
    *projections layers=full bias=attention_bias
    *wide_norms layers=full
    reads  full  full
    linear_attn.q_proj, linear_attn.k_proj  recurrent  keys x hidden  linear
    linear_attn.v_proj, linear_attn.g_proj  recurrent  values x hidden  linear
    linear_attn.a_proj, linear_attn.b_proj  recurrent  value_heads x hidden  linear
    *delta_net norm=o_norm out=o_proj
    *mlp
    input_layernorm  norm  hidden  linear
    post_attention_layernorm  norm  hidden  every
    post_feedforward_layernorm  norm  hidden  full
    {root}norm  norm  hidden
    """,
    sizes={
        **_SIZES, "heads kv head": rules.heads,
        "full linear": rules.kinds(rules.FULL_AND_LINEAR, "layer % 4 == 3 or layers < 4 and layer == layers - 1"),
        "key_heads": "linear_num_key_heads | num_attention_heads", "value_heads": "linear_num_value_heads | num_attention_heads",
        "key_size": "linear_key_head_dim | max(1, 3*hidden//(4*key_heads))", "value_size": "linear_value_head_dim | 2*key_size",
        "keys": "key_heads*key_size", "values": "value_heads*value_size", "kernel": "linear_conv_kernel_dim | 4",
    },
    shaping="experts", nested=_FLAT,
)  # fmt: skip

# MiniMax-Text-01, MiniMax-M1 and MiniMax-VL-01: lightning attention in most layers, grouped-query attention in the others, experts in each;
# keys of the publisher's own configs beside the class's


def _by_marks(look: Look) -> tuple[Layers, Layers]:
    """full, linear: by the publisher's `attn_type_list` (1: full), else each other layer from the first on is full."""
    fields, count = look.fields, look["layers"]
    marks = fields.listed("attn_type_list")
    if marks is not None and (len(marks) != count or any(mark not in (0, 1) for mark in marks)):
        raise fields.refused("attn_type_list", f"is no list of 0 or 1 for each of {count} layers")
    return look.split("layer % 2 == 0" if marks is None else "attn_type_list[layer] == 1")


_MINIMAX = Family(
    rows="""
    refuse  len(full) == 0 or len(linear) == 0  layer_types  has layers of one kind only, which no model of this family has
    *tables
    *projections layers=full
    reads  full  full
    self_attn.qkv_proj  recurrent  3*heads*head x hidden  linear
    self_attn.output_gate  recurrent  heads*head x hidden  linear
    self_attn.out_proj  recurrent  hidden x heads*head  linear
    self_attn.norm  norm  heads*head  linear
    state  linear  heads*head**2  0
    *numbered_experts
    *norms
    """,
    sizes={
        **_SIZES, "heads kv head": rules.heads, "full linear": rules.kinds(rules.FULL_AND_LINEAR, _by_marks), "sparse dense": "True",
        "experts per_token": routed("num_local_experts", "num_experts"), "size": "intermediate_size", "shared": "0",
    },
    defaults=class_sizes(kv=8, num_local_experts=(8, 2)), shaping="experts", nested=NESTED,
)  # fmt: skip

# LFM2 and LFM3: gated short convolutions, with attention in some layers. The only state is the convolutions' last inputs

_CONVOLUTIONS = """
    conv.in_proj  recurrent  3*hidden x hidden  conv  bias conv_bias
    conv.conv  recurrent  hidden x conv_L_cache  conv  plain  bias conv_bias
    conv.out_proj  recurrent  hidden x hidden  conv  bias conv_bias
    state  conv  0  hidden*(conv_L_cache - 1)
"""


def _lfm2_width(look: Look) -> int:
    """The MLP's width: two thirds of what the config says, scaled and rounded up to a multiple, unless it says to take it as it is."""
    fields, stated = look.fields, look.fields.whole("block_ff_dim", "intermediate_size")
    if not fields.flag("block_auto_adjust_ff_dim", default=True):
        return stated
    scale = fields.found("block_ffn_dim_multiplier")
    if scale is not None and (isinstance(scale, bool) or not isinstance(scale, int | float) or not 0 < scale <= 64):
        raise fields.refused("block_ffn_dim_multiplier", f"is {scale!r}, not a number from 0 to 64")
    width = 2 * stated // 3
    if scale is None:
        return width
    multiple = fields.whole("block_multiple_of", default=256)
    return -(-int(scale * width) // multiple) * multiple


def _lfm3_layers(look: Look) -> tuple[Layers, ...]:
    """full, sliding, conv: the third of each four layers is full and the first slides, but for the first of all."""
    every = look["every"]
    full, sliding = every[2::4], every[4::4]
    return full, sliding, tuple(layer for layer in every if layer not in (*full, *sliding))


_LFM2_ROWS = (
    """
    *tables
    *plain_norms names=operator_norm,ffn_norm last=model.embedding_norm
    MLPS
    *projections layers=full out=out_proj
    *head_norms layers=full names=self_attn.q_layernorm,self_attn.k_layernorm
    reads  full  full
"""
    + _CONVOLUTIONS
)
_LFM2_SIZES: Sizes = {
    **_SIZES, "intermediate": _lfm2_width, "full conv": rules.kinds(
        {"full_attention": "full", "conv": "conv"},
        lambda look: look.split("layer in full_attn_idxs") if look.fields.has("full_attn_idxs") else _no_layers(look),
    ),
    "tied": lambda look: look.fields.flag("tie_embedding", default=look.flag("flag(tie_word_embeddings, True)")),
}  # fmt: skip
_W123 = "gate=w1 up=w3 down=w2"
_LFM2 = Family(rows=_LFM2_ROWS.replace("MLPS", f"*mlp at=feed_forward. {_W123}"), sizes=_LFM2_SIZES)
# experts behind the first `num_dense_layers` layers
_LFM2_MOE = Family(
    rows=_LFM2_ROWS.replace(
        "MLPS",
        f"""*mlp at=feed_forward. {_W123} layers=dense width=intermediate_size
        *linear_experts at=feed_forward. gate=experts.*.w1 up=experts.*.w3 down=experts.*.w2
        """,
    ),
    sizes={
        **_LFM2_SIZES, "sparse dense": "layer >= zero(num_dense_layers)",
        "experts per_token": routed("num_experts", named=True, sparse=False),
    },
)  # fmt: skip
# full and sliding attention, norms before and behind both halves
_LFM3 = Family(
    rows=f"""
    *tables embed=model.embed_tokens
    *projections layers=full bias=attention_bias
    *head_norms layers=full
    self_attn.g_proj  attention  heads x hidden  full  if flag(use_attention_gate, True)
    *projections layers=sliding bias=attention_bias
    *head_norms layers=sliding
    self_attn.g_proj  attention  heads x hidden  sliding  if flag(use_attention_gate, True)
    *windows
    *mlp at=feed_forward. {_W123}
    operator_norm, ffn_norm  norm  hidden  every
    post_operator_norm, post_ffn_norm  norm  hidden  every  if flag(use_sandwich_norm, True)
    model.embedding_norm  norm  hidden
    """ + _CONVOLUTIONS,
    sizes={
        "tied": "flag(tie_word_embeddings, True)",
        "full sliding conv": rules.kinds({**rules.FULL_AND_SLIDING, "conv": "conv"}, _lfm3_layers),
    },
    defaults=class_sizes(kv=4, head=128, conv_L_cache=7, sliding_window=256), nested=_FLAT, terse=True,
)  # fmt: skip

FAMILIES: Families = by_type({
    "mamba falcon_mamba": _MAMBA, "mamba2": _MAMBA2, "jamba": _JAMBA, "bamba": _BAMBA, "falcon_h1": _FALCON_H1,
    "granitemoehybrid": _GRANITE, "nemotron_h": _NEMOTRON, "qwen3_next": _QWEN_NEXT, "qwen3_5 qwen3_5_text": _QWEN3_5_DENSE,
    "qwen3_5_moe qwen3_5_moe_text": _QWEN3_5_MOE, "olmo_hybrid": _OLMO_HYBRID, "minimax minimax_text_01 minimax_m1": _MINIMAX,
    "lfm2": _LFM2, "lfm2_moe": _LFM2_MOE, "lfm3": _LFM3,
})  # fmt: skip
