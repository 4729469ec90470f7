"""The lines of rows (see `facts.shapes`), and blocks of them that many families share.

A block has its name and its parameters, each with what it is by default, and its lines below.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache

_TEXT = """
# input table and lm_head; tied: the one table, which each step reads whole as lm_head and quantisers leave alone
tables embed={root}embed_tokens width=hidden tied=tied
    <embed>  lm_head  vocabulary x <width>  plain  if <tied>
    <embed>  embedding  vocabulary x <width>  if not <tied>
    {head}  lm_head  vocabulary x <width>  if not <tied>

# norms before attention and MLP, and behind the last layer; `vectors`: 1 weight, 2 weight and bias
norms vectors=1
    input_layernorm, post_attention_layernorm  norm  <vectors>*hidden  every
    {root}norm  norm  <vectors>*hidden
    left_out  MTP module  if num_nextn_predict_layers | 0

# q, k, v and o of grouped-query attention
projections at=self_attn. layers=every heads=heads kv=kv size=head value=<size> bias=False out_bias=<bias> out=o_proj
    <at>q_proj  attention  <heads>*<size> x hidden  <layers>  bias <bias>
    <at>k_proj  attention  <kv>*<size> x hidden  <layers>  bias <bias>
    <at>v_proj  attention  <kv>*<value> x hidden  <layers>  bias <bias>
    <at><out>  attention  hidden x <heads>*<value>  <layers>  bias <out_bias>

# queries before keys, where layers keep what others read
queries at=self_attn. layers=every heads=heads size=head value=<size> bias=False
    <at>q_proj  attention  <heads>*<size> x hidden  <layers>  bias <bias>
    <at>o_proj  attention  hidden x <heads>*<value>  <layers>  bias <bias>

keys at=self_attn. layers=every kv=kv size=head value=<size> bias=False
    <at>k_proj  attention  <kv>*<size> x hidden  <layers>  bias <bias>
    <at>v_proj  attention  <kv>*<value> x hidden  <layers>  bias <bias>

# norms on queries and keys, as large as one head, or as all of them
head_norms at=self_attn. layers=every names=<at>q_norm,<at>k_norm if=True size=head
    <names>  norm  <size>  <layers>  if <if>

wide_norms at=self_attn. q=q_norm k=k_norm if=True layers=every
    <at><q>  norm  heads*head  <layers>  if <if>
    <at><k>  norm  kv*head  <layers>  if <if>

# what full layers and sliding ones read
windows
    reads  full  full
    reads  sliding  sliding:sliding_window

# SwiGLU or GeGLU: gate, up, down
mlp at=mlp. layers=every width=intermediate bias=False gate=gate_proj up=up_proj down=down_proj if=True
    <at><gate>, <at><up>  ffn  <width> x hidden  <layers>  bias <bias>  if <if>
    <at><down>  ffn  hidden x <width>  <layers>  bias <bias>  if <if>

fused_mlp fused=mlp.gate_up_proj down=mlp.down_proj layers=every width=intermediate bias=False
    <fused>  ffn  2*<width> x hidden  <layers>  bias <bias>
    <down>  ffn  hidden x <width>  <layers>  bias <bias>

# two matrices
plain_mlp up=mlp.up_proj down=mlp.down_proj bias=False layers=every width=intermediate
    <up>  ffn  <width> x hidden  <layers>  bias <bias>
    <down>  ffn  hidden x <width>  <layers>  bias <bias>

# a dense decoder as most are: `inner` the norms on queries and keys, `mlp` the kind of MLP
decoder attention=projections at=self_attn. bias=False out_bias=<bias> inner=no_norms if=True mlp=mlp mlp_bias=False
    ... norms=input_layernorm,post_attention_layernorm vectors=1
    *tables
    *<attention> at=<at> bias=<bias> out_bias=<out_bias>
    *<inner> if=<if>
    *<mlp> bias=<mlp_bias>
    *plain_norms names=<norms> vectors=<vectors>
    *windows

# the same with experts
mixture bias=attention_bias out_bias=<bias> inner=no_norms if=True experts=experts vectors=1
    *tables
    *projections bias=<bias> out_bias=<out_bias>
    *<inner> if=<if>
    *<experts>
    *norms vectors=<vectors>
    *windows

no_norms if=

plain_norms names=input_layernorm,post_attention_layernorm vectors=1 last={root}norm
    <names>  norm  <vectors>*hidden  every
    <last>  norm  <vectors>*hidden

# norms before and behind both halves
sandwich
    input_layernorm, post_attention_layernorm, pre_feedforward_layernorm, post_feedforward_layernorm  norm  hidden  every
    {root}norm  norm  hidden

# GPT's decoders, whose q, k and v are one matrix
fused_decoder at=self_attn. qkv=qkv_proj out=o_proj bias=False out_bias=<bias>
    <at><qkv>  attention  (heads + 2*kv)*head x hidden  every  bias <bias>
    <at><out>  attention  hidden x heads*head  every  bias <out_bias>

# multi-head latent attention: a token's KV cache is one latent and one rotary key for all heads (facts model-math B.2, B.9, B.10).
# `rank` null: queries come from one matrix. Tensor-parallel ranks each hold all of the latent. Decode is counted in the absorbed form,
# in which every head works on the latent itself; prefill on the heads' own keys and values.
latent at=self_attn. layers=every bias=attention_bias heads=heads lead= rank=has(q_lora_rank)
    <at>q_a_proj  attention  <lead>q_lora_rank x hidden  <layers>  bias <bias>  if <rank>
    <at>q_a_layernorm  norm  <lead>q_lora_rank  <layers>  if <rank>
    <at>q_b_proj  attention  <heads>*(<lead>qk_nope_head_dim + <lead>qk_rope_head_dim) x <lead>q_lora_rank  <layers>  if <rank>
    <at>q_proj  attention  <heads>*(<lead>qk_nope_head_dim + <lead>qk_rope_head_dim) x hidden  <layers>  if not <rank>
    <at>kv_a_proj_with_mqa  attention  <lead>kv_lora_rank + <lead>qk_rope_head_dim x hidden  <layers>  bias <bias>
    <at>kv_a_layernorm  norm  <lead>kv_lora_rank  <layers>
    <at>kv_b_proj  attention  <heads>*(<lead>qk_nope_head_dim + <lead>v_head_dim) x <lead>kv_lora_rank  <layers>
    <at>o_proj  attention  hidden x <heads>*<lead>v_head_dim  <layers>  bias <bias>

latent_reads layers=every heads=heads lead= span=full
    reads  <layers>  <span>  elements <lead>kv_lora_rank + <lead>qk_rope_head_dim  kv 1
    ... decode 2*<heads>*(2*<lead>kv_lora_rank + <lead>qk_rope_head_dim)
    ... prefill 2*<heads>*(<lead>qk_nope_head_dim + <lead>qk_rope_head_dim + <lead>v_head_dim)  heads <heads>

# DeepSeek's sparse attention: an indexer beside each layer's latent attention, which scores every token of context by a small key of
# its own; the layer reads the latents of the `index_topk` best. An index key is kept in FP8 with an fp32 scale for each 128 elements of
# it, whatever the KV cache's dtype. Where layers share, one takes what the layer before it picked (GLM-5.2). As stored by vLLM 0.33
# (models/deepseek_v2.py Indexer), which fuses two of its matrices into one that is not quantised.
sparse_latent layers=every indexing=indexing
    *latent layers=<layers>
    self_attn.indexer.wq_b  attention  index_n_heads*index_head_dim x q_lora_rank  <indexing>
    self_attn.indexer.wk  attention  index_head_dim x hidden  <indexing>  plain
    self_attn.indexer.weights_proj  attention  index_n_heads x hidden  <indexing>  plain
    self_attn.indexer.k_norm  norm  2*index_head_dim  <indexing>
    reads  <layers>  sparse  elements kv_lora_rank + qk_rope_head_dim  kv 1  decode 2*heads*(2*kv_lora_rank + qk_rope_head_dim)
    ... prefill 2*heads*(qk_nope_head_dim + qk_rope_head_dim + v_head_dim)  top index_topk
    ... indexer <indexing>, index_head_dim + 4*(index_head_dim//128), 2*index_n_heads*index_head_dim

# a router, routed experts, shared ones, and one MLP in layers without
experts at=mlp. router=gate gate=experts.*.gate_proj up=experts.*.up_proj down=experts.*.down_proj shared=shared_experts. dense=mlp.
    ... bias=False width=hidden scored=experts layers=sparse needs=experts
    needs  <needs>
    <at><router>  router  <scored> x hidden  <layers>  plain  bias <bias>
    <at><gate>, <at><up>  expert  size x <width>  <layers>  bias <bias>
    <at><down>  expert  <width> x size  <layers>  bias <bias>
    *shared at=<at><shared>
    *mlp at=<dense> width=dense_size layers=dense

# as Mixtral names them
numbered_experts width=hidden
    *experts at=block_sparse_moe. gate=experts.*.w1 up=experts.*.w3 down=experts.*.w2 width=<width>

shared at=mlp.shared_experts.
    *mlp at=<at> width=shared layers=sparse

# the same where a checkpoint keeps a layer's experts as one tensor
fused_experts at=mlp. router=gate fused=experts.gate_up_proj down=experts.down_proj shared=shared_experts. dense=mlp. bias=False
    ... needs=experts
    needs  <needs>
    <at><router>  router  experts x hidden  sparse  plain  bias <bias>
    <at><fused>  expert  2*size x hidden  sparse  bias <bias>
    <at><down>  expert  hidden x size  sparse  bias <bias>
    *shared at=<at><shared>
    *mlp at=<dense> width=dense_size layers=dense

# hybrids' experts, whose router is a Linear module
linear_experts at=mlp. router=gate gate=experts.*.gate_proj up=experts.*.up_proj down=experts.*.down_proj
    <at><router>  router  experts x hidden  sparse
    <at><gate>, <at><up>  expert  size x hidden  sparse
    <at><down>  expert  hidden x size  sparse

# Mamba blocks of the first and second kind (facts model-math B.6, B.9). The state update itself (a few FLOPs per element of state,
# about 1 % of a hybrid's matrices) is not in any count here. A convolution is no quantiser's; its state are its last inputs.
mamba1 at=mixer. layers=every bias=False conv_bias=True
    <at>in_proj  recurrent  2*inner x hidden  <layers>  bias <bias>
    <at>conv1d  recurrent  inner x kernel  <layers>  plain  bias <conv_bias>
    <at>x_proj  recurrent  rank + 2*elements x inner  <layers>
    <at>dt_proj  recurrent  inner x rank  <layers>  bias True
    <at>A_log  norm  inner*elements  <layers>
    <at>D  norm  inner  <layers>
    <at>out_proj  recurrent  hidden x inner  <layers>  bias <bias>
    state  <layers>  inner*elements  inner*(kernel - 1)

mamba2 at=mixer. layers=every bias=False out_bias=<bias> conv_bias=True norm=True
    <at>in_proj  recurrent  inner + channels + mamba_heads x hidden  <layers>  bias <bias>
    <at>conv1d  recurrent  channels x kernel  <layers>  plain  bias <conv_bias>
    <at>A_log, <at>D, <at>dt_bias  norm  mamba_heads  <layers>
    <at>norm  norm  inner  <layers>  if <norm>
    <at>out_proj  recurrent  hidden x inner  <layers>  bias <out_bias>
    state  <layers>  inner*elements  channels*(kernel - 1)

# Kimi Delta Attention: a key x value matrix a head, and convolutions of queries, keys and values; its gates are the family's own
kimi_delta at=self_attn.
    <at>q_proj, <at>k_proj, <at>v_proj  recurrent  width x hidden  linear
    <at>b_proj  recurrent  delta_heads x hidden  linear
    <at>o_proj  recurrent  hidden x width  linear
    <at>q_conv1d, <at>k_conv1d, <at>v_conv1d  recurrent  width x kernel  linear  plain
    <at>A_log  norm  delta_heads  linear
    <at>dt_bias  norm  width  linear
    <at>o_norm  norm  delta_size  linear
    state  linear  width*delta_size  3*width*(kernel - 1)  float32

# gated DeltaNet behind its projections
delta_net at=linear_attn. norm=norm out=out_proj
    <at>conv1d  recurrent  2*keys + values x kernel  linear  plain
    <at>A_log, <at>dt_bias  norm  value_heads  linear
    <at><norm>  norm  value_size  linear
    <at><out>  recurrent  hidden x values  linear
    state  linear  values*key_size  (2*keys + values)*(kernel - 1)

# BERT and its kin: embeddings with norm, layers of attention and MLP with a bias and a norm each. Decoders and tables by distance are
# refused. Jina's have rotary positions or ALiBi, which need no table, and the latter a gated MLP whose first matrix has no bias
# (jinaai/xlm-roberta-flash-implementation; jinaai/jina-bert-implementation, modeling_bert.py, JinaBertGLUMLP)
classic_encoder qkvo=attention.self.query,attention.self.key,attention.self.value,attention.output.dense
    ... norm1=attention.output.LayerNorm up=intermediate.dense down=output.dense norm2=output.LayerNorm
    refuse  is_decoder  is_decoder  is true, for which no formula is known here
    refuse  add_cross_attention  add_cross_attention  is true, for which no formula is known here
    refuse  hidden % heads > 0  num_attention_heads  is {heads}, which does not divide the hidden size {hidden}
    embeddings.word_embeddings  embedding  vocabulary x embedding
    embeddings.position_embeddings  side  max_position_embeddings x embedding  plain  if not placeless
    embeddings.token_type_embeddings  side  types x embedding  plain
    embeddings.LayerNorm  norm  2*embedding
    embeddings_project  ffn  hidden x embedding  bias True  if embedding != hidden
    <qkvo>  attention  hidden x hidden  every  bias True
    <norm1>  norm  2*hidden  every
    <up>  ffn  (2*intermediate if gated else intermediate) x hidden  every  bias not gated
    <down>  ffn  hidden x intermediate  every  bias True
    <norm2>  norm  2*hidden  every
    *encoder_reads

# an encoder's attention stores nothing and does not decode; FLOPs per token and token that it looks at
encoder_reads layers=every span=full
    reads  <layers>  <span>  elements 0  kv heads  decode 0
"""


def _unfold(text: str) -> list[str]:
    """The lines of a text, those that begin with `...` behind the one before them."""
    return re.sub(r"\n +\.\.\. ", "  ", text).splitlines()


def _read(text: str) -> Mapping[str, tuple[Mapping[str, str], str]]:
    blocks: dict[str, tuple[Mapping[str, str], list[str]]] = {}
    rows: list[str] = []
    for line in _unfold(text):
        if line.startswith(" "):
            rows.append(line.strip())
        elif line and not line.startswith("#"):
            name, *words = line.split()
            rows = []
            blocks[name] = dict(word.split("=", 1) for word in words), rows
    return {name: (parameters, "\n".join(rows)) for name, (parameters, rows) in blocks.items()}


# by name: the parameters with what they are by default, and the lines
BLOCKS = _read(_TEXT)


@lru_cache(maxsize=32)
def lines(rows: str) -> tuple[tuple[str, ...], ...]:
    """The lines of rows by columns, blocks put in."""
    return tuple(_lines(rows))


def _lines(rows: str) -> Iterator[tuple[str, ...]]:
    for line in _unfold(rows):
        text = line.strip()
        if text.startswith("*"):
            yield from _lines(_block(*text[1:].split()))
        elif text:
            yield tuple(re.split(r"\s{2,}", text))


def _block(name: str, *given: str) -> str:
    """The lines of a block with these parameters. What it does not have itself is for the one block in it that has it."""
    parameters, inner = BLOCKS[name]
    handed = dict(word.split("=", 1) for word in given)
    values = {**parameters, **{key: handed.pop(key) for key in parameters if key in handed}}
    # a parameter may stand in another's value
    for _ in range(2):
        for key, value in values.items():
            inner = inner.replace(f"<{key}>", value)
    lines = inner.splitlines()
    for key, value in handed.items():
        takers = [number for number, line in enumerate(lines) if _takes(line, key)]
        if len(takers) != 1:
            raise KeyError(f"block {name} has {'no' if not takers else 'several'} {key}")
        lines[takers[0]] += f" {key}={value}"
    return "\n".join(lines)


def _takes(line: str, key: str) -> bool:
    """Whether a line is of a block with such a parameter, or of one whose lines are."""
    name = line.strip().partition(" ")[0]
    parameters, inner = BLOCKS.get(name[1:], ({}, "")) if name.startswith("*") else ({}, "")
    return key in parameters or any(_takes(each, key) for each in inner.splitlines())
