"""Multi-head latent attention (MLA): DeepSeek and what descends from it, its sparse kind, and its mixtures with recurrent layers.

Verified against transformers 5.23.0 on the meta device, except: Ling 1, 2, 2.5 and Ring-linear as in vLLM 0.33 (models/bailing_moe.py,
bailing_moe_linear.py, layers/mamba/linear/bailing_linear_attn.py) and SGLang 0.5.23 (models/bailing_moe_linear.py); what Kimi-K3 adds to
Kimi-Linear as in vLLM's (models/kimi_k3/nvidia: model.py, kda.py, mla.py). What DeepSeek-V4 stores is as in vLLM 0.33 (models/deepseek_v4:
attention.py, compressor.py), the compressors' own small state left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from llm_serving_exporter.facts.families import experts, rules
from llm_serving_exporter.facts.families.experts import TIED, mixture
from llm_serving_exporter.facts.families.rules import routed
from llm_serving_exporter.facts.fields import Fields
from llm_serving_exporter.facts.shapes import Families, Family, Layers, Look, Sizes, by_type, class_sizes
from llm_serving_exporter.model.record import replace

_FIRST = ("first_k_dense_replace",)
_SIZES: Sizes = {
    "heads": "num_attention_heads", "experts per_token": routed("n_routed_experts", "num_local_experts"),
    "sparse dense": rules.after_dense, "shared": "(n_shared_experts | 0)*moe_intermediate_size",
}  # fmt: skip


def _latent(
    rows: str, defaults: Mapping[str, Any], sizes: Sizes | None = None, known: tuple[str, ...] = _FIRST,
    nested: tuple[str, str] | None = experts.NESTED,
) -> Family:  # fmt: skip
    return mixture(rows, defaults, {**_SIZES, **(sizes or {})}, known, nested=nested, mla=True)


# DeepSeek-V2 and V3, Kimi-K2, GLM-4.7-Flash, Mistral-4

_DEEPSEEK = "*tables\n*latent\n*latent_reads\n*experts\n*norms\n"


def _ranks(queries: int | None, keys: int, plain: int, rotary: int, value: int) -> Mapping[str, Any]:
    """Sizes of MLA: of the latents of queries and of keys and values, of a head's key without and with its position, of its value."""
    return {
        "q_lora_rank": queries, "kv_lora_rank": keys, "qk_nope_head_dim": plain, "qk_rope_head_dim": rotary, "v_head_dim": value
    }  # fmt: skip


def _sharing(routed: int, shared: int, passed: int, width: int, dense: int) -> Mapping[str, Any]:
    """Experts of a layer, shared ones, how many of the former a token passes, their width, and how many dense layers are first."""
    return class_sizes(n_routed_experts=(routed, passed, width), n_shared_experts=shared, first_k_dense_replace=dense)


# config classes' defaults; for V3 and what descends from it the checkpoints' code has the same
_DEEPSEEK_V3 = {
    **class_sizes(7168, 18432, 61, 128, 129280), **_ranks(1536, 512, 128, 64, 128), **_sharing(256, 1, 8, 2048, 3)
}  # fmt: skip
_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "deepseek_v2": {
        **_ranks(1536, 512, 128, 64, 128), "n_routed_experts": 64, "n_shared_experts": 2, "moe_intermediate_size": 1407,
        "first_k_dense_replace": 0,
    },
    "deepseek_v3": _DEEPSEEK_V3, "kimi_k2": _DEEPSEEK_V3,
    "glm4_moe_lite": {**_ranks(768, 512, 192, 64, 256), **_sharing(64, 1, 4, 1536, 1)},
    "mistral4": {**class_sizes(4096, 12288, 36, 32, 131072), **_ranks(1024, 256, 64, 64, 128), **_sharing(128, 1, 4, 2048, 0)},
}  # fmt: skip
# a plain MLP in every layer
_DENSE = "*tables\n*latent\n*latent_reads\n*mlp\n*norms\n"


def _unless_plain(defaults: Mapping[str, Any]) -> Callable[[Fields], Family]:
    """DeepSeek-OCR and DeepSeek-VL2-tiny: their V2 attends as the family's first."""
    family, plain = _latent(_DEEPSEEK, defaults), replace(experts.DEEPSEEK, defaults=defaults)
    return lambda fields: family if fields.flag("use_mla", default=True) else plain


# DeepSeek's sparse attention: DeepSeek-V3.2, GLM-5, Hunyuan 4, dots 3 Note
_INDEXERS = {"full": "full", "shared": "shared"}


def _indexing(look: Look) -> tuple[Layers, ...]:
    """The layers that have an indexer of their own, and the others: by `index_topk_pattern` of letters, or `index_topk_freq`."""
    fields, count = look.fields, look["layers"]
    if fields.has("index_topk_pattern"):
        letters = list(fields.text("index_topk_pattern"))
        if len(letters) != count:
            raise fields.refused("index_topk_pattern", f"has {len(letters)} letters for {count} layers")
        return rules.by_kind(fields, "index_topk_pattern", letters, {"F": "full", "S": "shared", **_INDEXERS})
    # may be 0 and has a default, which no text says
    first = fields.whole("index_skip_topk_offset", default=2, least=0)
    return look.split(f"max(layer - {first} + 1, 0) % (index_topk_freq | 1) == 0")


_SPARSE = "*tables\n*sparse_latent\n*experts\n*norms\n"
_INDEX: Sizes = {"indexing sharing": rules.kinds(_INDEXERS, _indexing, "indexer_types")}


def _indexed(heads: int) -> Mapping[str, Any]:
    return {"index_topk": 2048, "index_head_dim": 128, "index_n_heads": heads}


# an indexer in the first layer and each fourth from there, sinks, a gate on each head's output; residual streams that are mixed before and
# after each half of a layer, and joined at the end
_HY_V4 = _latent(
    """
    *tables
    *sparse_latent
    self_attn.gate_proj  attention  heads*v_head_dim x hidden  every
    self_attn.sinks  norm  heads  every
    *experts
    attn_hc.fn, ffn_hc.fn  ffn  2*hc_mult x hc_mult*hidden  every  plain
    attn_hc.base, ffn_hc.base  norm  2*hc_mult  every
    attn_hc.scale, ffn_hc.scale  norm  2  every
    {root}hc_head.hc_fn  ffn  hc_mult x hc_mult*hidden  plain
    {root}hc_head.hc_base  norm  hc_mult
    {root}hc_head.hc_scale  norm  1
    *norms
    """,
    {
        **_ranks(1536, 512, 192, 64, 256), **_sharing(256, 1, 8, 768, 1), **_indexed(16), "hc_mult": 4, "index_topk_freq": 4,
        "index_skip_topk_offset": 2,
    },
    _INDEX,
)  # fmt: skip


def _rotary(look: Look) -> int:
    """The rotary part of keys over a window: what their size leaves beside the other part, where no key states it."""
    fields = look.fields
    size = fields.whole("swa_qk_rope_head_dim", default=look["swa_head_dim"] - look["swa_qk_nope_head_dim"])
    if size < 1:
        raise fields.refused("qk_rope_head_dim", f"is {size}, not a whole number of at least 1")
    return size


# sparse layers, and between them layers of MLA over a window, with sizes of their own; a gate on each head's output
_DOTS3 = _latent(
    """
    *tables
    *sparse_latent layers=full indexing=full
    *latent layers=sliding heads=swa_num_attention_heads lead=swa_ rank=True
    *latent_reads layers=sliding heads=swa_num_attention_heads lead=swa_ span=sliding:sliding_window
    self_attn.g_proj  attention  num_attention_heads x hidden  full
    self_attn.g_proj  attention  swa_num_attention_heads x hidden  sliding
    self_attn.k_rope_only_layernorm  norm  qk_rope_head_dim  every
    *experts
    *norms
    """,
    {
        **_ranks(1024, 512, 128, 64, 128), **_sharing(256, 1, 8, 1536, 1), **_indexed(64), "sliding_window": 512,
        "swa_num_attention_heads": 64, "swa_q_lora_rank": 1024, "swa_kv_lora_rank": 1024, "swa_head_dim": 256,
        "swa_qk_nope_head_dim": 192, "swa_v_head_dim": 128,
    },
    {
        "full sliding": rules.kinds(
            {**rules.FULL_AND_SLIDING, "indexed_attention": "full"}, "layer < 2 or layer % 4 == 1"
        ),
        "swa_qk_rope_head_dim": _rotary,
        "shared": "(moe_shared_expert_intermediate_size | shared_experts_intermediate_size | moe_intermediate_size)*(n_shared_experts | 0)",
    },
)  # fmt: skip

# DeepSeek-V4: one key that is the value too for all heads, read over a short window in every layer and compressed beyond it.
# `compress_ratios` says of each layer what an entry beyond the window stands for: 0 nothing (the window is all), 4 tokens, of which an
# indexer picks `index_topk` entries, or 128 tokens, which are all read. Where entries overlap (those that are picked), a compressor has
# twice the width; it is not quantised.


def _compressed(look: Look) -> tuple[Layers, ...]:
    """picked, whole, window: by `compress_ratios`, whose entries behind the layers are of prediction layers; else as the class does."""
    fields, count = look.fields, look["layers"]
    ratios = fields.listed("compress_ratios")
    if ratios is None:
        ratios = [128, 128, *((128, 4)[layer % 2] for layer in range(max(0, count - 2)))]
    if len(ratios) < count or any(ratio not in (0, 4, 128) for ratio in ratios):
        raise fields.refused("compress_ratios", f"is not one of [0, 4, 128] for each of {count} layers")
    of = {ratio: tuple(layer for layer in look["every"] if ratios[layer] == ratio) for ratio in (4, 128, 0)}
    return of[4], of[128], of[0]


def _compressor(at: str, layers: str, ratio: int, size: str, width: str) -> str:
    return f"""
    {at}wkv, {at}wgate  attention  {width} x hidden  {layers}  plain
    {at}ape  norm  {ratio}*{width}  {layers}
    {at}norm  norm  {size}  {layers}
    """


_DEEPSEEK_V4 = Family(
    rows="""
    refuse  heads % o_groups > 0  o_groups  is {o_groups}, which does not divide the {heads} heads
    *tables embed=embed
    attn.wq_a  attention  q_lora_rank x hidden  every
    attn.wq_b  attention  heads*head x q_lora_rank  every
    attn.wkv  attention  head x hidden  every
    attn.wo_a  attention  o_groups*o_lora_rank x heads*head//o_groups  every
    attn.wo_b  attention  hidden x o_groups*o_lora_rank  every
    attn.q_norm  norm  q_lora_rank  every
    attn.kv_norm  norm  head  every
    attn.attn_sink  norm  heads  every
    *experts at=ffn. gate=experts.*.w1 up=experts.*.w3 down=experts.*.w2
    *mlp at=ffn.shared_experts. gate=w1 up=w3 down=w2 width=moe_intermediate_size*zero(n_shared_experts)
    hc_attn_fn, hc_ffn_fn  ffn  (2 + hc_mult)*hc_mult x hc_mult*hidden  every  plain
    hc_attn_base, hc_ffn_base  norm  (2 + hc_mult)*hc_mult  every
    hc_attn_scale, hc_ffn_scale  norm  3  every
    hc_head_fn  ffn  hc_mult x hc_mult*hidden  plain
    hc_head_base  norm  hc_mult
    hc_head_scale  norm  1
    """
    + _compressor("attn.compressor.", "picked", 4, "head", "2*head")
    + _compressor("attn.compressor.", "whole", 128, "head", "head")
    + """
    attn.indexer.wq_b  attention  index_n_heads*index_head_dim x q_lora_rank  picked
    attn.indexer.weights_proj  attention  index_n_heads x hidden  picked  plain
    """
    + _compressor("attn.indexer.compressor.", "picked", 4, "index_head_dim", "2*index_head_dim")
    + """
    attn_norm, ffn_norm  norm  hidden  every
    norm  norm  hidden
    left_out  MTP module  if num_nextn_predict_layers | 0
    reads  every  sliding:sliding_window  elements head  kv 1
    reads  picked  sparse  elements head  kv 1  ratio 4  top index_topk
    ... indexer picked, index_head_dim + 4*(index_head_dim//128), 2*index_n_heads*index_head_dim
    reads  whole  full  elements head  kv 1  ratio 128
    """,
    sizes={
        **experts.SIZES, "heads": "num_attention_heads", "head": "head_dim", "picked whole window": rules.kinds(
            {
                "compressed_sparse_attention": "picked", "heavily_compressed_attention": "whole", "sliding_attention": "window"
            }, _compressed,
        ),
        "experts per_token": routed("n_routed_experts", "num_local_experts"),
    },
    defaults=class_sizes(
        4096, None, 43, 64, 129280, head=512, q_lora_rank=1024, n_routed_experts=(256, 6, 2048), n_shared_experts=1, hc_mult=4,
        sliding_window=128, o_groups=8, o_lora_rank=1024, index_n_heads=64, index_head_dim=128, index_topk=512,
    ),
    shaping="experts", head="head", layer="layers.{}.", mla=True,
)  # fmt: skip

# LongCat-Flash: two attentions and two dense MLPs in each layer, one set of experts beside them, some of which do nothing. A token is
# routed to `moe_topk` of the experts and of `zero_expert_num` that hand it on as it is: those have no weights, and a token's share of them
# passes no expert. The class keeps rows for them; checkpoints and vLLM 0.33 (models/longcat_flash.py, longcat_flash_ngram.py) do not.
# LongCat-Flash-Lite has tables for runs of up to `emb_neighbor_num` tokens: looked up, and each projected to the hidden size.


def _longcat_experts(look: Look) -> tuple[int, int]:
    """The router scores all; of the experts a token passes its share of `moe_topk`, to the nearest whole one."""
    count, picked = look["n_routed_experts"], look.fields.whole("moe_topk", "num_experts_per_tok")
    if picked > count:
        raise look.fields.refused("moe_topk", f"is {picked}, more than the {count} experts")
    return count, max(1, round(picked * count / (count + look["nothing"])))


_LONGCAT_HALF = """
    *latent at=self_attn.{0}.
    *latent_reads
    *mlp at=mlps.{0}. width=dense
    input_layernorm.{0}, post_attention_layernorm.{0}  norm  hidden  every
"""
_LONGCAT = Family(
    rows="*tables embed=model.embed_tokens\n" + _LONGCAT_HALF.format(0) + _LONGCAT_HALF.format(1) + """
    mlp.router.classifier  router  experts + nothing x hidden  every  plain  bias router_bias
    mlp.experts.*.gate_proj, mlp.experts.*.up_proj  expert  size x hidden  every
    mlp.experts.*.down_proj  expert  hidden x size  every
    {root}ngram_embeddings.embedders  embedding  runs*(ngram_vocab_size_ratio*vocabulary + runs) x hidden//runs
    ... if has(ngram_vocab_size_ratio)
    {root}ngram_embeddings.post_projs.{}  ffn  hidden x hidden//runs  run_tables  if has(ngram_vocab_size_ratio)
    model.norm  norm  hidden
    """,
    sizes={
        **experts.SIZES, "layers": rules.layers_of("num_layers", "num_hidden_layers"), "heads": "num_attention_heads",
        "dense": "ffn_hidden_size | intermediate_size", "size": "expert_ffn_hidden_size | moe_intermediate_size",
        "nothing": "zero_expert_num | 0", "experts per_token": _longcat_experts, "runs": "emb_split_num*(emb_neighbor_num - 1)",
        "run_tables": lambda look: tuple(range(look["runs"])),
    },
    defaults={"hidden_size": 6144, "num_attention_heads": 64, "vocab_size": 131072, **_ranks(1536, 512, 128, 64, 128)},
    shaping="experts", mla=True,
)  # fmt: skip

# Kimi-Linear and the language part of Kimi-K3: Kimi Delta Attention in most layers, MLA in the others. Kimi-K3 adds a gate on each head's
# output in both kinds of layers, routed experts that work in a narrower space, and for attention, MLP and the model's end a norm and a row
# that scores earlier residual streams. What a config does not name is not there.


def _kimi_layers(look: Look) -> tuple[Layers, ...]:
    """full, linear: by `linear_attn_config`, which counts from 1."""
    inner = look.fields.inner("linear_attn_config")
    full = inner.listed("full_attn_layers")
    if full is None:
        raise inner.refused("full_attn_layers", "is missing")
    chosen = frozenset(layer - 1 for layer in full if isinstance(layer, int))
    if len(chosen) != len(full) or not chosen <= frozenset(look["every"]):
        raise inner.refused("full_attn_layers", f"is not a list of some of the layers 1 to {look['layers']}")
    return tuple(sorted(chosen)), tuple(layer for layer in look["every"] if layer not in chosen)


_KIMI = _latent(
    """
    *tables
    *latent layers=full bias=False
    *latent_reads layers=full
    *kimi_delta
    self_attn.f_a_proj  recurrent  delta_size x hidden  linear
    self_attn.f_b_proj  recurrent  width x delta_size  linear
    self_attn.g_proj  recurrent  width x hidden  linear  if full_rank
    self_attn.g_a_proj  recurrent  delta_size x hidden  linear  if not full_rank
    self_attn.g_b_proj  recurrent  width x delta_size  linear  if not full_rank
    *numbered_experts width=narrow
    block_sparse_moe.routed_expert_down_proj  ffn  narrow x hidden  sparse  if has(routed_expert_hidden_size)
    block_sparse_moe.routed_expert_up_proj  ffn  hidden x narrow  sparse  if has(routed_expert_hidden_size)
    block_sparse_moe.routed_expert_norm  norm  narrow  sparse  if has(routed_expert_hidden_size) and latent_moe_use_norm
    self_attn.g_proj  attention  heads*v_head_dim x hidden  full  if mla_use_output_gate
    self_attention_res_proj, mlp_res_proj  attention  1 x hidden  every  plain  if has(attn_res_block_size)
    self_attention_res_norm, mlp_res_norm  norm  hidden  every  if has(attn_res_block_size)
    {root}output_attn_res_proj  attention  1 x hidden  plain  if has(attn_res_block_size)
    {root}output_attn_res_norm  norm  hidden  if has(attn_res_block_size)
    *norms
    """,
    {
        **class_sizes(2304, 9216, 27, 32, 163840), **_ranks(None, 512, 128, 64, 128), "num_experts": 256, "num_shared_experts": 1,
        "num_experts_per_token": 8, "moe_intermediate_size": 1024, "first_k_dense_replace": 1,
    },
    {
        "full linear": rules.kinds(rules.FULL_AND_LINEAR, _kimi_layers),
        "delta_heads": "linear_attn_config.num_heads", "delta_size": "linear_attn_config.head_dim",
        "kernel": "linear_attn_config.short_conv_kernel_size | 4", "width": "delta_heads*delta_size",
        "full_rank": "flag(linear_attn_config.use_full_rank_gate)", "narrow": "routed_expert_hidden_size | hidden",
        "experts per_token": routed("num_experts", "num_local_experts", per=("num_experts_per_token", "num_experts_per_tok")),
        "shared": "(num_shared_experts | 0)*moe_intermediate_size",
    },
)  # fmt: skip

# Ling and Ring: grouped-query attention with experts (Ling 2), lightning attention in most layers (Ring-linear, Ling 2.5), delta attention
# whose gates are one matrix each, and MLA (Ling 3). Lightning attention keeps a key x value matrix a head, as many KV heads as heads.

_LING_KNOWN = (
    "first_k_dense_replace", "num_shared_experts", "use_bias", "use_qkv_bias", "use_qk_norm", "kv_lora_rank", "qkv_bias", "attention_bias"
)  # fmt: skip
_LING_SIZES: Sizes = {
    "heads kv head": rules.heads, "qkv": "use_bias or use_qkv_bias",
    "full linear": rules.kinds(rules.FULL_AND_LINEAR, rules.every_nth(1, "layer_group_size")),
    "experts per_token": routed("num_experts", "num_local_experts", per=("num_experts_per_tok", "num_experts_per_token")),
    # shared experts have a size of their own where the config states one
    "shared": "(moe_shared_expert_intermediate_size | moe_intermediate_size)*(num_shared_experts | 0)",
}  # fmt: skip
_LING_GROUPED = """
    attention.query_key_value  attention  (heads + 2*kv)*head x hidden  LAYERS  bias qkv
    attention.dense  attention  hidden x heads*head  LAYERS  bias use_bias
    attention.query_layernorm, attention.key_layernorm  norm  head  LAYERS  if use_qk_norm
    reads  LAYERS  full
"""
_LIGHTNING = """
    attention.query_key_value  recurrent  3*heads*head x hidden  linear  bias qkv
    attention.g_proj  recurrent  heads*head x hidden  linear
    attention.dense  recurrent  hidden x heads*head  linear  bias use_bias
    attention.g_norm  norm  heads*head  linear
    attention.query_layernorm, attention.key_layernorm  norm  head  linear  if use_qk_norm
    state  linear  heads*head*head  0
"""
_LING_TABLES, _LING_END = "*tables embed=model.word_embeddings\n", "needs  shared\n*experts\n*norms\n"


def _ling(rows: str, defaults: Mapping[str, Any], sizes: Sizes | None = None, *, mla: bool = True) -> Family:
    return replace(_latent(rows, defaults, {**_LING_SIZES, **(sizes or {})}, _LING_KNOWN, None), mla=mla)


_LING_25 = _ling(
    _LING_TABLES + "*latent at=attention. layers=full\n*latent_reads layers=full\n" + _LIGHTNING + _LING_END,
    {"q_lora_rank": None, "first_k_dense_replace": 0},
)  # fmt: skip
_LING_3 = _ling(
    """
    *tables
    *latent layers=full
    *latent_reads layers=full
    self_attn.g_proj  attention  heads x hidden  full
    *kimi_delta
    self_attn.f_proj, self_attn.g_proj  recurrent  width x hidden  linear
    *experts
    *norms
    """,
    {
        **class_sizes(2560, 6144, 42, 32, 157184, head=128), **_ranks(None, 512, 128, 64, 128), "num_experts": 512, "num_shared_experts": 1,
        "num_experts_per_tok": 8, "moe_intermediate_size": 768, "first_k_dense_replace": 2, "layer_group_size": 6,
    },
    # saved by transformers 5, `head_dim` is MLA's rotary part, and the size of delta attention's heads stands in a key of its own
    {
        "heads kv head": lambda look: (look["num_attention_heads"], 1, 1), "delta_heads": "heads",
        "delta_size": lambda look: look.fields.whole("linear_head_dim", "head_dim"), "kernel": "short_conv_kernel_size | 4",
        "width": "delta_heads*delta_size",
    },
)  # fmt: skip


def _ling_hybrid(fields: Fields) -> Family:
    """Ling 3 where the config has its convolution."""
    third = fields.has("short_conv_kernel_size") or "v3" in fields.architecture.lower() or not fields.architecture
    return _LING_3 if third else _LING_25


FAMILIES: Families = by_type({
    **{name: _unless_plain(defaults) for name, defaults in _DEFAULTS.items()},
    # A.X K1: a norm behind each layer's experts
    "axk1": _latent(
        _DEEPSEEK + "mlp.post_mlp_layernorm  norm  hidden  sparse", {**_ranks(1536, 512, 128, 64, 128), **_sharing(192, 1, 8, 2048, 1)}
    ),
    "minicpm3": _latent(_DENSE, _ranks(768, 256, 64, 32, 64), {**TIED, "shared": "0"}, ()),
    "youtu": _latent(_DENSE, _ranks(1536, 512, 128, 64, 128), {**TIED, "shared": "0"}, ()),
    "deepseek_v32": _latent(_SPARSE, {**_DEEPSEEK_V3, **_indexed(64)}, _INDEX),
    "glm_moe_dsa": _latent(
        _SPARSE,
        {**class_sizes(6144, 12288, 78, 64, 154880), **_ranks(2048, 512, 192, 64, 256), **_sharing(256, 1, 8, 2048, 3), **_indexed(32)},
        _INDEX,
    ),
    "hy_v4": _HY_V4,
    "dots3_note dots3_note_text": _DOTS3,
    "deepseek_v4": _DEEPSEEK_V4,
    "longcat_flash longcat_flash_ngram": _LONGCAT,
    "kimi_linear": _KIMI,
    "bailing_moe bailing_moe_v2": _ling(
        _LING_TABLES + _LING_GROUPED.replace("LAYERS", "every") + _LING_END, {"first_k_dense_replace": 0}, mla=False
    ),
    "bailing_moe_linear": _ling(
        _LING_TABLES + _LING_GROUPED.replace("LAYERS", "full") + _LIGHTNING + _LING_END, {"first_k_dense_replace": 0}, mla=False
    ),
    "bailing_hybrid": _ling_hybrid,
})  # fmt: skip
