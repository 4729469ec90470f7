"""Mixture-of-experts decoders with grouped-query attention (facts model-math B.1-B.5).

Verified against transformers 5.23.0 on the meta device, except `deepseek`, whose code its publisher ships with the model, Grok as in SGLang
0.5.23 (models/grok.py) and Step 3 as in vLLM 0.33 (models/step3_text.py), against the parameter counts that their makers publish. Routers
are matrices that no quantiser takes: engines keep them in the model's dtype, whether or not a checkpoint lists them as excluded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from llm_serving_exporter.facts.families import rules
from llm_serving_exporter.facts.families.rules import routed
from llm_serving_exporter.facts.shapes import Families, Family, Layers, Look, Rule, Sizes, by_type, class_sizes

SIZES: Sizes = {
    "heads kv head": rules.heads, "full sliding": rules.never, "sparse dense": "True", "shared": "0",
    "experts per_token": routed("num_experts", "num_local_experts"),
}  # fmt: skip
TIED: Sizes = {"tied": "flag(tie_word_embeddings, True)"}
# root and head in a larger checkpoint
NESTED = ("language_model.model.", "language_model.lm_head")
SAME, BELOW = ("model.", "lm_head"), ("model.language_model.", "lm_head")


def mixture(
    rows: str, defaults: Mapping[str, Any], sizes: Sizes, known: Sequence[str] = (), *,
    nested: tuple[str, str] | None = NESTED, mla: bool = False,
) -> Family:  # fmt: skip
    """A family with these rows; sizes that it does not state are those above."""
    return Family(
        rows=rows, sizes={**SIZES, **sizes}, defaults=defaults, known=tuple(known), nested=nested, shaping="experts", mla=mla
    )  # fmt: skip


_LOCAL: Sizes = {"experts per_token": routed("num_local_experts", "num_experts"), "size": "intermediate_size"}
_ROUTED: Sizes = {
    "experts per_token": routed("n_routed_experts", "num_local_experts"), "sparse dense": rules.after_dense,
    "shared": "(n_shared_experts | 0)*moe_intermediate_size",
}  # fmt: skip
_AFTER_DENSE: Sizes = {"sparse dense": rules.after_dense}
_FIRST = ("first_k_dense_replace",)
_SHARED: Sizes = {**_AFTER_DENSE, "shared": "(num_shared_experts | 0)*moe_intermediate_size"}
_MOE_KEYS = class_sizes(kv=8, num_local_experts=(8, 2))
_STEPPED: Sizes = {"sparse dense": rules.STEPPED}
_USE_QK_NORM = ("use_qk_norm",)  # published configs carry it for norms that the family always has

_NORMED = "*mixture inner=head_norms"


def _last_sparse(look: Look) -> int:
    """ERNIE 4.5's last layer that may have experts."""
    fields = look.fields
    if fields.found("moe_layer_end_index") in (None, -1):
        return int(look["layers"]) - 1
    return fields.whole("moe_layer_end_index", least=0)


def _alike(key: str, default: str | None = None) -> Rule:
    """A whole number, or a list of them for the layers that must all be the same."""

    def rule(look: Look) -> int:
        fields = look.fields
        if not isinstance(fields.found(key), list):
            return fields.whole(key, default=None if default is None else look.number(default))
        entries = fields.listed(key) or ()
        if not entries or not all(type(entry) is int and entry == entries[0] > 0 for entry in entries):
            raise fields.refused(
                key, "is a list whose layers are not all the same whole number; there is no formula here for that"
            )
        return int(entries[0])

    return rule


_PLAIN = "*mixture out_bias=False"
_GLM4_MOE = class_sizes(kv=8, n_routed_experts=(128, 8, 1408), n_shared_experts=1, first_k_dense_replace=1)
# DeepSeekMoE-16B, the family's first: plain attention
DEEPSEEK = mixture("*mixture", {}, _ROUTED, _FIRST)


def _laguna_groups(look: Look) -> list[Mapping[str, Any]]:
    """Layers that are alike: query heads of its own for each layer, and a window where `layer_types` says so."""
    fields, count = look.fields, look["layers"]
    usual, _, _ = look["num_attention_heads"], look["head"], look["kv"]
    counts = fields.listed("num_attention_heads_per_layer") or [usual] * count
    kinds = rules.kinds(rules.FULL_AND_SLIDING, "True")(look)
    if len(counts) != count or not all(isinstance(heads, int) and heads > 0 for heads in counts):
        raise fields.refused("num_attention_heads_per_layer", f"is no list of {count} numbers")
    groups: list[Mapping[str, Any]] = []
    for layers, window in zip(kinds, (None, "sliding_window"), strict=True):
        for heads in dict.fromkeys(counts[layer] for layer in layers):
            here = tuple(layer for layer in layers if counts[layer] == heads)
            groups.append({"here": here, "heads": heads, "window": None if window is None else look[window]})
    return groups


def _chunked(look: Look) -> tuple[Layers, ...]:
    """full, chunked: by `layer_types`, else chunked where `no_rope_layers` is 1, else all but every fourth."""
    if not look.fields.has("attention_chunk_size"):
        return look["every"], ()
    # an empty list stands for the default, as for the config class
    listed = "not no_rope_layers[layer]" if look.fields.listed("no_rope_layers") else None
    full = listed or "(layer + 1) % no_rope_layer_interval == 0"
    layers: tuple[Layers, ...] = rules.kinds({"full_attention": "full", "chunked_attention": "chunked"}, full)(look)
    return layers


def _pair(key: str) -> Rule:
    """The number for text, and the one for images."""

    def rule(look: Look) -> tuple[int, int]:
        value = look.fields.found(key)
        entries = value if isinstance(value, list) else [value, value]
        if len(entries) != 2 or not all(isinstance(entry, int) and entry > 0 for entry in entries):
            raise look.fields.refused(key, f"is {value!r}, not a number for text and one for images")
        return entries[0], entries[1]

    return rule


def _ernie_vl_first(look: Look) -> int:
    """The first layer with experts."""
    fields, first = look.fields, look.fields.found("moe_layer_start_index")
    if isinstance(first, list) and first and isinstance(first[0], int):
        return first[0]
    return fields.whole("first_k_dense_replace", least=0)


FAMILIES: Families = by_type({
    # Mixtral and Qwen
    "mixtral": mixture("*mixture bias=False experts=numbered_experts", _MOE_KEYS, {**_LOCAL, "full sliding": rules.always}),
    # norms over all heads' queries and keys
    "minimax_m2": mixture(
        """
        refuse  not flag(use_qk_norm, True)  use_qk_norm  is false, for which there is no formula here
        *mixture bias=False inner=wide_norms experts=numbered_experts
        """, class_sizes(kv=8, head=128, num_local_experts=(256, 8), use_qk_norm=True), _LOCAL,
    ),
    # Phi-3.5-MoE: layer norms with bias
    "phimoe": mixture(
        "*mixture experts=numbered_experts vectors=2\n{head}.bias  lm_head  vocabulary  if lm_head_bias",
        {**_MOE_KEYS, "num_local_experts": 16}, {**_LOCAL, "full sliding": rules.always},
    ),
    # Qwen1.5-MoE and Qwen2-MoE: a shared expert behind a gate of its own
    "qwen2_moe": mixture(
        """
        *mixture bias=flag(qkv_bias,True) out_bias=False shared=shared_expert.
        mlp.shared_expert_gate  router  1 x hidden  sparse  plain
        """,
        class_sizes(
            kv=16, num_experts=(60, 4, 1408), decoder_sparse_step=1, shared_expert_intermediate_size=5632, qkv_bias=True,
            use_sliding_window=False,
        ),
        {**_STEPPED, "shared": "shared_expert_intermediate_size"},
    ),
    "qwen3_moe": mixture(
        _NORMED,
        class_sizes(kv=4, num_experts=(128, 8, 768), decoder_sparse_step=1, use_sliding_window=False),
        _STEPPED, _USE_QK_NORM,
    ),
    # checkpoints keep a layer's experts as one tensor
    "qwen3_vl_moe qwen3_vl_moe_text": mixture(
        _NORMED + " experts=fused_experts",
        class_sizes(2048, 5632, 24, 16, 151936, kv=16, num_experts=(60, 4, 1408), decoder_sparse_step=1),
        _STEPPED, _USE_QK_NORM, nested=BELOW,
    ),
    "qwen3_omni_moe_text": mixture(
        _NORMED,
        class_sizes(2048, 18944, 28, 28, 3584, kv=4, num_experts=(128, 8, 768), decoder_sparse_step=1),
        _STEPPED, _USE_QK_NORM, nested=("thinker.model.", "thinker.lm_head"),
    ),
    "olmoe": mixture("*mixture inner=wide_norms", {"num_experts": 64, "num_experts_per_tok": 8}, {"size": "intermediate_size"}),
    # Granite 3 MoE: a layer's experts are one tensor; some have an MLP that every token passes
    "granitemoe granitemoeshared": mixture(
        """
        *tables
        *projections bias=attention_bias
        *fused_experts at=block_sparse_moe. router=router.layer fused=input_linear down=output_linear
        shared_mlp.input_linear  ffn  2*common x hidden  every
        shared_mlp.output_linear  ffn  hidden x common  every
        *norms
        *windows
        """,
        {"num_local_experts": 8, "num_experts_per_tok": 2}, {**_LOCAL, "common": "shared_intermediate_size | 0"},
    ),
    # shared experts in the sparse layers, and often dense layers first
    "deepseek": DEEPSEEK,
    # GLM-4.5 and GLM-4.6
    "glm4_moe": mixture(_PLAIN + " inner=head_norms if=use_qk_norm", _GLM4_MOE, _ROUTED, _FIRST),
    "glm4v_moe glm4v_moe_text": mixture(
        _PLAIN, {**_GLM4_MOE, **class_sizes(4096, 10944, 46, 96, 151424), "attention_bias": True}, _ROUTED, _FIRST, nested=BELOW
    ),
    # as GLM-4.5, experts in every layer
    "solar_open": mixture(
        _PLAIN,
        class_sizes(kv=8, head=128, n_routed_experts=(128, 8, 1280), n_shared_experts=1),
        _ROUTED,
    ),
    # layers from `max_window_layers` on slide where there is a window
    "dots1": mixture(
        _NORMED, class_sizes(kv=32, moe_intermediate_size=1408, max_window_layers=62),
        {**_ROUTED, "full sliding": rules.window("layer < zero(max_window_layers) or not has(sliding_window)")}, _FIRST,
    ),
    # K-EXAONE: one full layer after several that slide
    "exaone_moe": mixture(
        "*mixture bias=False inner=head_norms",
        class_sizes(
            kv=32, num_experts=(64, 8, 1024), num_shared_experts=1, first_k_dense_replace=1, sliding_window=4096, sliding_window_pattern=4,
        ),
        {**_SHARED, "full sliding": rules.letters}, _FIRST,
    ),
    # the routers' correction bias is a parameter here, not a buffer; experts between two layers
    "ernie4_5_moe": mixture(
        "*mixture bias=False\nmlp.moe_statics.e_score_correction_bias  norm  experts  sparse",
        class_sizes(
            kv=4, moe_num_experts=64, moe_k=6, moe_intermediate_size=1536, moe_num_shared_experts=2, moe_layer_start_index=1,
            moe_layer_interval=1,
        ),
        {
            **TIED, "last": _last_sparse, "shared": "(moe_num_shared_experts | 0)*moe_intermediate_size",
            "sparse dense": "layer >= zero(moe_layer_start_index) and layer <= last and (layer + 1) % moe_layer_interval == 0",
            "experts per_token": routed("moe_num_experts", "num_experts", per=("moe_k", "num_experts_per_tok")),
        },
    ),
    # Hunyuan-A13B: experts and a shared MLP in every layer; its per-layer lists must say the same for each
    "hunyuan_v1_moe": mixture(
        """
        refuse  per_token > experts  moe_topk  is {per_token}, more than the {experts} experts
        *mixture inner=head_norms names=self_attn.query_layernorm,self_attn.key_layernorm if=flag(use_qk_norm,True)
        ... router=gate.wg shared=shared_mlp.
        """, {"use_qk_norm": True},
        {
            "experts": _alike("num_experts"), "per_token": _alike("moe_topk"), "size": _alike("moe_intermediate_size", "intermediate_size"),
            "shared_count": _alike("num_shared_expert", "1"), "shared": "shared_count*intermediate_size",
        },
        ("num_shared_expert",),
    ),
    # Hunyuan 3
    "hy_v3": mixture(
        _NORMED,
        class_sizes(kv=8, head=128, num_experts=(192, 8, 1536), num_shared_experts=1, first_k_dense_replace=1),
        _SHARED, (*_FIRST, "use_qk_norm"),
    ),
    # Mellum 2
    "mellum": mixture(
        _NORMED,
        class_sizes(kv=4, head=128, num_experts=(64, 8, 896), sliding_window=1024),
        _AFTER_DENSE,
    ),
    "flex_olmo": mixture("*mixture inner=wide_norms", {"num_experts": 7, "num_experts_per_tok": 5}, {"size": "intermediate_size"}),
    # Aria's language part: shared experts of the routed ones' size
    "aria_text": mixture(
        "*mixture experts=fused_experts router=router fused=experts.fc1 down=experts.fc2",
        class_sizes(4096, 4096, 32, 32, 32000, moe_num_experts=8, moe_topk=2, moe_num_shared_experts=2),
        {
            "experts per_token": routed("moe_num_experts", per=("moe_topk",)), "size": "intermediate_size",
            "shared": "intermediate_size*zero(moe_num_shared_experts)",
        },
    ),
    "granitemoe_swa": mixture(
        """
        *tables
        *projections bias=attention_bias
        self_attn.sinks  norm  heads  every
        *fused_experts at=block_sparse_moe. router=router
        *norms
        *windows
        """, {"num_local_experts": 8, "num_experts_per_tok": 2, "sliding_window": 128},
        {**_LOCAL, "full sliding": rules.all_but_first_of_four, "shared": "shared_intermediate_size | 0"},
    ),
    "kolibri1": mixture(
        _NORMED + "\npost_self_attn_layernorm, post_mlp_layernorm  norm  hidden  every",
        class_sizes(kv=4, head=128, num_experts=(384, 6, 512), shared_expert_intermediate_size=512, sliding_window=513),
        {**_AFTER_DENSE, "full sliding": rules.all_but_every(5), "shared": "shared_expert_intermediate_size"},
    ),
    # Command A+: attention and MLP behind one norm; dense layers first have an MLP of their own size
    "cohere2_moe": mixture(
        """
        *tables
        *projections bias=attention_bias
        *experts
        *plain_norms names=input_layernorm
        left_out  MTP module  if num_nextn_predict_layers | 0
        *windows
        """,
        class_sizes(head=128, num_experts=(8, 2), num_shared_experts=0, sliding_window=4096, first_k_dense_replace=0),
        {
            **TIED, **_AFTER_DENSE, "size": "intermediate_size", "dense_size": "prefix_dense_intermediate_size",
            "shared": "intermediate_size*zero(num_shared_experts)",
            # dense layers first have a period of their own; the others' count starts behind them
            "full sliding": rules.window(
                "(layer + 1) % (prefix_dense_sliding_window_pattern | 1) == 0 if layer < zero(first_k_dense_replace) "
                "else (layer - zero(first_k_dense_replace) + 1) % (sliding_window_pattern | 4) == 0"
            ),
        },
        _FIRST,
    ),
    # gpt-oss: biases everywhere, a sink for each head, every other layer slides
    "gpt_oss": mixture(
        """
        *tables
        *projections bias=flag(attention_bias,True)
        self_attn.sinks  norm  heads  every
        *fused_experts router=router bias=True
        *norms
        *windows
        """,
        class_sizes(kv=8, head=64, num_local_experts=(128, 4), sliding_window=128, attention_bias=True),
        {**_LOCAL, "full sliding": rules.all_but_every(2)},
    ),
    # Arcee Trinity: a gate on the output of attention, norms before and behind both halves, the expert's bias a parameter
    "afmoe": mixture(
        """
        *tables
        *projections
        *head_norms
        self_attn.gate_proj  attention  heads*head x hidden  every
        *experts router=router.gate
        mlp.expert_bias  norm  experts  sparse
        pre_mlp_layernorm, post_mlp_layernorm  norm  hidden  every
        *norms
        *windows
        """,
        class_sizes(
            head=128, num_experts=(64, 6, 1408), num_shared_experts=2, num_dense_layers=1, global_attn_every_n_layers=4,
            sliding_window=1024,
        ),
        {
            "sparse dense": "layer >= zero(num_dense_layers)", "shared": "(num_shared_experts | 0)*moe_intermediate_size",
            "full sliding": rules.all_but_every(4, "global_attn_every_n_layers"),
        },
        ("attention_bias",),
    ),
    # as Trinity, without shared experts, the gate with a bias for each head; the last layer is full too
    "beam": mixture(
        """
        *tables
        *projections bias=attention_bias
        *head_norms
        self_attn.gate_proj  attention  heads*head x hidden  every
        self_attn.gate_bias  norm  heads  every
        *experts
        pre_feedforward_layernorm, post_feedforward_layernorm  norm  hidden  every
        *norms
        *windows
        """,
        class_sizes(kv=8, head=128, num_experts=(256, 8, 2560), sliding_window=512, first_k_dense_replace=3),
        {**_AFTER_DENSE, "full sliding": rules.window("(layer + 1) % 6 == 0 or layer + 1 == layers")},
        _FIRST,
    ),
    # Laguna: a gate on each head's output, the expert's bias a parameter
    "laguna": mixture(
        """
        *tables
        *projections layers=each:groups bias=attention_bias
        self_attn.g_proj  attention  (heads if per_head else heads*head) x hidden  each:groups
        *head_norms layers=each:groups
        reads  each:groups  sliding:window
        *experts
        mlp.gate.e_score_correction_bias  norm  experts  sparse
        *norms
        """,
        class_sizes(
            kv=8, head=128, num_experts=(256, 8, 512), shared_expert_intermediate_size=512, sliding_window=512, first_k_dense_replace=1,
        ),
        {
            **_AFTER_DENSE, "heads": "num_attention_heads", "kv": "num_key_value_heads", "head": "head_dim", "groups": _laguna_groups,
            "shared": "shared_expert_intermediate_size",
            "per_head": lambda look: look.fields.found("gating") in (None, True, "per-head"),
        },
        _FIRST,
    ),
    # names of their own
    "llama4 llama4_text": mixture(
        """
        *tables
        *projections bias=attention_bias
        *fused_experts at=feed_forward. router=router shared=shared_expert. dense=feed_forward. needs=every
        *norms
        reads  full  full
        reads  chunked  chunked:attention_chunk_size
        """,
        class_sizes(
            5120, 8192, 48, 40, 202048, kv=8, head=128, intermediate_size_mlp=16384, num_local_experts=(16, 1), interleave_moe_layer_step=1,
            no_rope_layer_interval=4, attention_chunk_size=8192,
        ),
        {
            "experts per_token": routed("num_local_experts", "num_experts"), "size": "intermediate_size", "shared": "intermediate_size",
            "dense_size": "intermediate_size_mlp", "full chunked": _chunked,
            # Llama Guard 4 has experts in no layer, and says so by a step of 0 and no experts
            "sparse dense": "layer in moe_layers if has(moe_layers) else "
            "zero(interleave_moe_layer_step) > 0 and (layer + 1) % interleave_moe_layer_step == 0",
        },
        _USE_QK_NORM,  # its norms on queries and keys have no weights
    ),
    # attention and experts in parts of the config
    "dbrx": Family(
        rows="""
        refuse  flag(tie_word_embeddings)  tie_word_embeddings  is true, for which there is no formula here
        refuse  per_token > experts  moe_top_k  is {per_token}, more than the {experts} experts
        transformer.wte  embedding  vocabulary x hidden
        lm_head  lm_head  vocabulary x hidden
        norm_attn_norm.attn.Wqkv  attention  hidden + 2*kv*head x hidden  every
        norm_attn_norm.attn.out_proj  attention  hidden x hidden  every
        norm_attn_norm.norm_1, norm_attn_norm.norm_2  norm  hidden  every
        ffn.router.layer  router  experts x hidden  every  plain
        ffn.experts.mlp.w1, ffn.experts.mlp.v1, ffn.experts.mlp.w2  expert  ffn_config.ffn_hidden_size x hidden  every
        transformer.norm_f  norm  hidden
        reads  every  full
        """,
        sizes={
            "hidden": "d_model", "layers": rules.layers_of("n_layers"), "heads": "n_heads", "kv": "attn_config.kv_n_heads",
            "head": "hidden//heads", "experts": "ffn_config.moe_num_experts", "per_token": "ffn_config.moe_top_k",
        },
        layer="transformer.blocks.{}.",
    ),
    # Grok 2, whose config says git: experts in each layer, and beside them a dense MLP where `residual_moe` says so
    "grok-1 git": mixture(
        """
        refuse  stranger  model_type  is Grok 2's only where `architectures` says so
        *tables
        *projections
        *numbered_experts
        *mlp if=residual_moe
        *plain_norms names=pre_moe_norm,post_moe_norm,pre_attn_norm,post_attn_norm
        left_out  MTP module  if num_nextn_predict_layers | 0
        *windows
        """, class_sizes(head=128, num_local_experts=(8, 2)),
        {
            **TIED, "experts per_token": routed("num_local_experts"),
            "size": "moe_intermediate_size if has(moe_intermediate_size) else intermediate_size",
            "stranger": lambda look: look.fields.model_type != "grok-1" and not look.fields.architecture.lower().startswith("grok"),
        },
    ),
    # Step 3: queries from one narrow matrix for all heads, and a second behind a norm; KV of one head
    "step3_text": mixture(
        """
        *tables
        self_attn.q_proj  attention  share_q_dim x hidden  every
        self_attn.k_proj, self_attn.v_proj  attention  kv*head x hidden  every
        self_attn.wq  attention  heads*head x share_q_dim  every
        self_attn.o_proj  attention  hidden x heads*head  every
        self_attn.inter_norm  norm  share_q_dim  every
        *experts at= router=moe.gate gate=moe.gate_proj up=moe.up_proj down=moe.down_proj shared=share_expert.
        *norms
        reads  every  full
        """,
        class_sizes(
            7168, 18432, 61, 64, 128815, head=256, num_attention_groups=1, share_q_dim=2048, moe_num_experts=48, moe_top_k=3,
            moe_intermediate_size=5120, share_expert_dim=5120,
        ),
        {
            "heads kv head": lambda look: (look["num_attention_heads"], look["num_attention_groups"], look["head_dim"]),
            "experts per_token": routed("moe_num_experts", per=("moe_top_k",)), "shared": "share_expert_dim",
            "sparse dense": rules.enumerated("layer >= 4 and layer < layers - 1"),
        },
        nested=SAME,
    ),
    # ERNIE 4.5 VL: experts for text and others for images in each layer; a token of text passes none of the latter, which are kept in
    # memory and not read by decode, as a table that is looked up
    "ernie4_5_vl_moe_text ernie4_5_vl_moe ernie4_5_moe_vl": mixture(
        """
        refuse  moe_k > experts  moe_k  is {moe_k}, more than the {experts} experts
        *tables
        *projections
        *experts router=text_moe.gate gate=text_moe.experts.*.gate_proj up=text_moe.experts.*.up_proj down=text_moe.experts.*.down_proj
        mlp.text_moe.gate.moe_statics.e_score_correction_bias  norm  experts  sparse
        mlp.vision_moe.gate  side  image_experts x hidden  sparse  plain
        mlp.vision_moe.experts.gate_proj, mlp.vision_moe.experts.up_proj  side  image_experts*image_size x hidden  sparse  plain
        mlp.vision_moe.experts.down_proj  side  image_experts*hidden x image_size  sparse  plain
        mlp.vision_moe.gate.moe_statics.e_score_correction_bias  side  image_experts  sparse
        *norms
        *windows
        """,
        class_sizes(
            2560, 12288, 28, 20, 103424, kv=4, moe_num_experts=64, moe_k=6, moe_num_shared_experts=2, first_k_dense_replace=1,
            moe_intermediate_size=[1536, 512],
        ),
        {
            **TIED, "experts image_experts": _pair("moe_num_experts"), "size image_size": _pair("moe_intermediate_size"),
            "per_token": "moe_k", "shared": "size*zero(moe_num_shared_experts)", "first": _ernie_vl_first,
            "sparse dense": rules.kinds(rules.SPARSE_AND_DENSE, "layer >= first", "mlp_layer_types"),
        },
        _FIRST, nested=SAME,
    ),
})  # fmt: skip
