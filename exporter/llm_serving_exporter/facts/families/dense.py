"""Dense decoders by config.json's model_type: what each family's layers hold, and its config class's defaults.

Facts: model-math B.1-B.4. Compared with transformers 5.23.0 on the meta device, module by module; families that bring code of their own
with the parameter counts that their authors publish, or they are Llama's or Qwen's by vLLM 0.33's loaders.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llm_serving_exporter.facts.families import rules
from llm_serving_exporter.facts.fields import Fields
from llm_serving_exporter.facts.shapes import Families, Family, Layers, Look, Rule, Sizes, by_type, class_sizes

_TIED = {"tie_word_embeddings": True}
_SIZES: Sizes = {"heads kv head": rules.dense_heads, "full sliding": rules.never}
# what a config may say of a family that always has it (Qwen2's q, k and v)
_QKV_BIAS = ("add_qkv_bias", "attention_bias", "qkv_bias", "use_qkv_bias")
_QK_NORM = ("qk_layernorm", "qk_norm", "use_qk_norm")


def _dense(
    rows: str, defaults: Mapping[str, Any] | None = None, window: Rule = rules.never, known: tuple[str, ...] = (), *,
    sizes: Sizes | None = None, **others: Any,
) -> Family:  # fmt: skip
    sizes = {**_SIZES, "full sliding": window, **(sizes or {})}
    return Family(rows=rows, sizes=sizes, defaults=defaults or {}, shaping="dense", known=known, **others)


# config classes' defaults
_SEVEN_B = class_sizes(4096, 11008, 32, 32, 32000)
_MISTRAL = class_sizes(4096, 14336, 32, 32, 32000, kv=8, sliding_window=4096)
_QWEN2_DEFAULTS = class_sizes(4096, 22016, 32, 32, 151936, kv=32, max_window_layers=28)
_QWEN3_DEFAULTS = {**_QWEN2_DEFAULTS, "head_dim": 128}
_GEMMA2 = class_sizes(2304, 9216, 26, 8, 256000, kv=4, head=256, sliding_window=4096, **_TIED)
_COHERE = class_sizes(8192, 22528, 40, 64, 256000, **_TIED)

_LLAMA = "*decoder bias=attention_bias mlp_bias=mlp_bias"
_QWEN2 = "*decoder bias=True out_bias=False"
_QWEN3 = "*decoder bias=attention_bias inner=head_norms"
_SANDWICH = (
    "*decoder bias=attention_bias "
    "norms=input_layernorm,post_attention_layernorm,pre_feedforward_layernorm,post_feedforward_layernorm"
)
_PHI3 = "*decoder attention=fused_decoder mlp=fused_mlp"
# norms on what a sublayer gives, not on what it takes
_AFTER = "norms=post_attention_layernorm,post_feedforward_layernorm"
_OLMO2 = f"*decoder bias=attention_bias inner=wide_norms {_AFTER}"
_GLM = "*decoder out_bias=False mlp=fused_mlp bias="
_GLM4_NORMS = "\npost_self_attn_layernorm, post_mlp_layernorm  norm  hidden  every"
_RELU2 = "*decoder bias=attention_bias mlp=plain_mlp mlp_bias=mlp_bias"
_GLM_DEFAULTS = class_sizes(kv=2, head=128, attention_bias=True)
_PATTERN = ("sliding_window_pattern", "_sliding_window_pattern")


# of families with names of their own: GPT-2 to Falcon
_GPT_SIZES: Sizes = {
    "hidden": "n_embd | hidden_size", "layers": rules.layers_of("n_layer", "num_hidden_layers"),
    "heads kv head": rules.own_heads("n_head", "num_attention_heads"), "intermediate": "n_inner | 4*hidden",
}  # fmt: skip
_GPT2 = """
    *tables embed=transformer.wte
    transformer.wpe  side  positions x hidden  plain
    *fused_decoder at=attn. qkv=c_attn out=c_proj bias=True
    *plain_mlp up=mlp.c_fc down=mlp.c_proj bias=True
    *plain_norms names=ln_1,ln_2 vectors=2 last=transformer.ln_f
    *windows
"""
# parallel attention and MLP behind one norm
_GPTJ = """
    *tables embed=transformer.wte
    {head}.bias  lm_head  vocabulary
    *ATTENTION at=attn. out=out_proj
    *plain_mlp up=mlp.fc_in down=mlp.fc_out bias=True
    *plain_norms names=ln_1 vectors=2 last=transformer.ln_f
    *windows
"""
_BLOOM = """
    *tables embed=transformer.word_embeddings
    *fused_decoder at=self_attention. qkv=query_key_value out=dense bias=BIAS
    *plain_mlp up=mlp.dense_h_to_4h down=mlp.dense_4h_to_h bias=BIAS
    *windows
"""
_GPT_BLOCK = "transformer.h.{}."


def _local_layers(look: Look) -> tuple[Layers, ...]:
    """full, sliding: GPT-Neo's layers take turns: the whole context, and the last `window_size` tokens."""
    fields, layers = look.fields, look["layers"]
    listed = fields.listed("attention_layers")
    if listed is None or len(listed) != layers or not set(map(str, listed)) <= {"global", "local"}:
        raise fields.refused("attention_layers", f"is not a list of {layers} times global or local")
    return rules.by_kind(fields, "attention_layers", listed, {"global": "full", "local": "sliding"})


def _mpt_attention(look: Look) -> tuple[bool, bool]:
    """Whether MPT's attention is another than multi-head attention; whether it has norms or no ALiBi."""
    part = look.fields.found("attn_config")
    inner = Fields(part if isinstance(part, Mapping) else {}, look.fields.values)
    other = inner.text("attn_type", "multihead_attention") != "multihead_attention" or inner.found("kv_n_heads")
    return bool(other), bool(inner.found("qk_ln")) or not inner.flag("alibi", default=True)


_QWEN2_OWN = _dense(_QWEN2, window=rules.beyond_first, known=_QKV_BIAS)
_QWEN3_OWN = _dense(_QWEN3, class_sizes(head=128), rules.beyond_first, _QK_NORM)
_LLAMA_OWN = _dense(_LLAMA)

# what MiniCPM-V and MiniCPM-o of a version are built on (vLLM models/minicpmv.py); 2.0 and older name none
_MINICPMV: Mapping[str, Family] = {"2.5": _LLAMA_OWN, "2.6": _QWEN2_OWN, "4.0": _LLAMA_OWN, "4.5": _QWEN3_OWN}


def _minicpmv(fields: Fields) -> Family:
    """MiniCPM-V and MiniCPM-o, whose configs are flat and name the language model by a version only."""
    version = str(fields.found("version"))
    family = _MINICPMV.get(version if "." in version else f"{version}.0")
    if family is None:
        raise fields.refused("version", f"is {version[:16]!r}, none of {', '.join(_MINICPMV)}")
    return family


FAMILIES: Families = by_type({
    "llama granite granite4_vision_text": _dense(_LLAMA, _SEVEN_B),
    "granite_docling_text": _dense(_LLAMA, class_sizes(1024, 2048, 28, 16, 133800, kv=4, **_TIED)),
    "emu3_text_model": _dense(_LLAMA, class_sizes(4096, 14336, 32, 32, 184622, kv=8)),
    "mistral ministral": _dense("*decoder", _MISTRAL, rules.always),
    "ministral3": _dense(
        "*decoder", {**_MISTRAL, "num_hidden_layers": 34, "vocab_size": 131072, "head_dim": 128, "sliding_window": None}, rules.always
    ),
    "minicpm": _dense("*decoder", _TIED),
    "cwm": _dense("*decoder", class_sizes(kv=8, head=128, sliding_window=8192), rules.all_but_first_of_four),
    "helium": _dense(_LLAMA + " out_bias=False", class_sizes(kv=20, head=128)),
    "granite_swa": _dense(
        _LLAMA + "\nself_attn.sinks  norm  heads  every", class_sizes(kv=4, sliding_window=128, **_TIED),
        rules.all_but_first_of_four,
    ),
    "internlm3": _dense("*decoder bias=qkv_bias out_bias=bias mlp_bias=bias", class_sizes(kv=2, head=128)),
    "smollm3": _dense(_LLAMA, class_sizes(kv=4, **_TIED), rules.without_rope),
    "seed_oss": _dense(_LLAMA + " out_bias=attention_out_bias", class_sizes(kv=8, head=128, attention_bias=True)),
    "ernie4_5": _dense("*decoder bias=use_bias mlp_bias=use_bias", class_sizes(kv=2, head=128, **_TIED)),
    "paddleocr_vl_text paddleocr_vl": _dense(
        "*decoder bias=use_bias mlp_bias=use_bias", class_sizes(1024, 3072, 18, 16, 103424, kv=2, head=128, **_TIED)
    ),
    # HyperCLOVA X: norms behind attention and MLP too
    "hyperclovax": _dense(_LLAMA + "\npost_norm1, post_norm2  norm  hidden  every  if flag(use_post_norm, True)"),
    "hunyuan_v1_dense": _dense(
        "*decoder bias=attention_bias\n*head_norms names=self_attn.query_layernorm,self_attn.key_layernorm if=use_qk_norm",
        {"use_qk_norm": True},
    ),
    "gemma": _dense("*decoder bias=attention_bias", class_sizes(3072, 24576, 28, 16, 256000, kv=16, head=256, **_TIED)),
    "gemma2": _dense(_SANDWICH, _GEMMA2, rules.all_but_every(2)),
    "gemma3 gemma3_text": _dense(
        _SANDWICH + " inner=head_norms", {**_GEMMA2, "vocab_size": 262208}, rules.all_but_every(6, *_PATTERN), _QK_NORM, terse=True
    ),
    "vaultgemma": _dense(
        "*decoder bias=attention_bias norms=input_layernorm,pre_feedforward_layernorm", _GEMMA2, rules.all_but_every(2)
    ),
    "cohere": _dense("*decoder bias=attention_bias norms=input_layernorm inner=wide_norms if=use_qk_norm", _COHERE),
    "cohere2": _dense(
        "*decoder bias=attention_bias norms=input_layernorm", {**_COHERE, "sliding_window": 4096}, rules.all_but_every(4, *_PATTERN)
    ),
    "olmo": _dense("*decoder bias=attention_bias vectors=0"),  # its norms have no weights
    "olmo2": _dense(_OLMO2, known=_QK_NORM),
    "olmo3": _dense(_OLMO2, {"sliding_window": 4096}, rules.all_but_every(4), _QK_NORM),
    "exaone4": _dense(
        f"*decoder inner=head_norms {_AFTER}",
        class_sizes(kv=32, sliding_window=4096, sliding_window_pattern=4), rules.letters, _QK_NORM,
    ),
    "bitnet": _dense(
        "*decoder bias=attention_bias\nself_attn.attn_sub_norm  norm  hidden  every\nmlp.ffn_sub_norm  norm  intermediate  every",
        class_sizes(kv=5),
    ),
    "qwen2": _dense(_QWEN2, _QWEN2_DEFAULTS, rules.beyond_first, _QKV_BIAS),
    "qwen2_vl qwen2_vl_text qwen2_5_vl qwen2_5_vl_text": _dense(
        _QWEN2, class_sizes(8192, 29568, 80, 64, 152064, kv=8, max_window_layers=80), rules.beyond_first, _QKV_BIAS
    ),
    "qwen2_5_omni_text": _dense(
        _QWEN2, class_sizes(3584, 18944, 28, 28, 152064, kv=4, max_window_layers=28), rules.beyond_first, _QKV_BIAS
    ),
    "qwen3": _dense(_QWEN3, _QWEN3_DEFAULTS, rules.beyond_first, _QK_NORM),
    "qwen3_vl_text": _dense(_QWEN3, _QWEN3_DEFAULTS, known=_QK_NORM),
    "phi": _dense(
        """
        *tables
        {head}.bias  lm_head  vocabulary
        *projections bias=True out=dense
        *head_norms names=self_attn.q_layernorm,self_attn.k_layernorm size=2*head if=qk_layernorm
        *plain_mlp up=mlp.fc1 down=mlp.fc2 bias=True
        *plain_norms names=input_layernorm vectors=2 last=model.final_layernorm
        *windows
        """, known=_QKV_BIAS,
    ),
    "phi3 phi3_v": _dense(_PHI3, window=rules.always),
    "phi4_multimodal phi4mm": _dense(_PHI3, class_sizes(kv=8), rules.always),
    "starcoder2": _dense(
        "*decoder bias=use_bias mlp=plain_mlp up=mlp.c_fc down=mlp.c_proj mlp_bias=use_bias vectors=2",
        class_sizes(kv=2, use_bias=True, **_TIED), rules.always,
    ),
    "glm": _dense(_GLM + "attention_bias", _GLM_DEFAULTS),
    "glm4": _dense(_GLM + "attention_bias" + _GLM4_NORMS, _GLM_DEFAULTS),
    "glm4v_text": _dense(_GLM + "True" + _GLM4_NORMS, class_sizes(4096, 13696, 40, 32, 151552, kv=2), known=_QKV_BIAS),
    "glm_ocr_text": _dense(_GLM + "False" + _GLM4_NORMS, class_sizes(1024, 4096, 16, 16, 59392, kv=8)),
    "nemotron": _dense(_RELU2 + " vectors=2"),
    "arcee": _dense(_RELU2),
    "jais2": _dense(_RELU2 + " vectors=2", {"attention_bias": True, "mlp_bias": True}),
    "apertus": _dense(
        """
        *decoder bias=attention_bias inner=head_norms mlp=plain_mlp norms=attention_layernorm,feedforward_layernorm
        mlp.act_fn.alpha_p, mlp.act_fn.alpha_n  norm  1  every
        """, known=_QK_NORM,
    ),
    "nanochat": _dense("*tables\n*projections bias=attention_bias\n*plain_mlp up=mlp.fc1 down=mlp.fc2\n*windows"),
    "persimmon": _dense(
        """
        *tables
        *fused_decoder qkv=query_key_value out=dense bias=True
        *head_norms names=self_attn.q_layernorm,self_attn.k_layernorm size=2*head if=qk_layernorm
        *plain_mlp up=mlp.dense_h_to_4h down=mlp.dense_4h_to_h bias=True
        *plain_norms vectors=2 last=model.final_layernorm
        *windows
        """, {"qk_layernorm": True}, known=_QKV_BIAS,
    ),
    # with parallel residuals the MLP takes the attention's norm
    "stablelm": _dense(
        """
        refuse  has(head_dim) and head_dim != hidden//heads  head_dim
        ... is not hidden_size / num_attention_heads = {hidden//heads}, as here it has to be
        *tables
        *projections bias=use_qkv_bias out_bias=False
        *wide_norms q=q_layernorm k=k_layernorm if=qk_layernorm
        *mlp
        input_layernorm  norm  2*hidden  every
        post_attention_layernorm  norm  2*hidden  every  if not use_parallel_residual
        {root}norm  norm  2*hidden
        *windows
        """, class_sizes(kv=32),
    ),
    # names of their own for sizes and modules: GPT-2 to Falcon, and some that bring their own code
    "gpt2": _dense(
        _GPT2, _TIED, known=_QKV_BIAS, layer=_GPT_BLOCK,
        sizes={**_GPT_SIZES, "positions": "n_positions | n_ctx | max_position_embeddings"},
    ),
    # StarCoder, SantaCoder: GPT-2 with one KV head
    "gpt_bigcode": _dense(
        _GPT2, _TIED, known=_QKV_BIAS, layer=_GPT_BLOCK,
        sizes={
            **_GPT_SIZES, "positions": "n_positions | max_position_embeddings",
            "heads kv head": rules.own_heads("n_head", "num_attention_heads", one="flag(multi_query, True)"),
        },
    ),
    "gptj": _dense(_GPTJ.replace("ATTENTION", "projections"), layer=_GPT_BLOCK, sizes=_GPT_SIZES),
    "codegen": _dense(_GPTJ.replace("ATTENTION", "fused_decoder"), layer=_GPT_BLOCK, sizes=_GPT_SIZES),
    "gpt_neo": _dense(
        """
        *tables embed=transformer.wte
        transformer.wpe  side  max_position_embeddings x hidden  plain
        *projections at=attn.attention. out=out_proj out_bias=True
        *plain_mlp up=mlp.c_fc down=mlp.c_proj bias=True
        *plain_norms names=ln_1,ln_2 vectors=2 last=transformer.ln_f
        reads  full  full
        reads  sliding  sliding:sliding_window | window_size | 256
        """, _TIED, rules.window(_local_layers), layer=_GPT_BLOCK,
        sizes={
            "layers": rules.layers_of("num_layers"), "heads kv head": rules.own_heads("num_heads"),
            "intermediate": "intermediate_size | 4*hidden",
        },
    ),
    "gpt_neox": _dense(
        """
        *tables embed=gpt_neox.embed_in
        *fused_decoder at=attention. qkv=query_key_value out=dense bias=attention_bias
        *plain_mlp up=mlp.dense_h_to_4h down=mlp.dense_4h_to_h bias=True
        *plain_norms vectors=2 last=gpt_neox.final_layer_norm
        *windows
        """, {"attention_bias": True}, layer="gpt_neox.layers.{}.", head="embed_out",
        sizes={"heads kv head": rules.own_heads("num_attention_heads")},
    ),
    "bloom": _dense(
        _BLOOM.replace("BIAS", "True") + """
        transformer.word_embeddings_layernorm  norm  2*hidden
        *plain_norms vectors=2 last=transformer.ln_f
        """, _TIED, known=_QKV_BIAS, layer=_GPT_BLOCK,
        # n_embed goes before hidden_size, as in the config class
        sizes={**_GPT_SIZES, "hidden": "n_embed | hidden_size"},
    ),
    "falcon refinedweb refinedwebmodel": _dense(
        _BLOOM.replace("BIAS", "bias") + """
        input_layernorm  norm  2*hidden  every  if serial or not two_norms
        post_attention_layernorm  norm  2*hidden  every  if serial
        ln_attn, ln_mlp  norm  2*hidden  every  if not serial and two_norms
        transformer.ln_f  norm  2*hidden
        """, _TIED, layer=_GPT_BLOCK,
        sizes={
            "layers": rules.layers_of("num_hidden_layers", "n_layer"), "intermediate": "ffn_hidden_size | 4*hidden",
            # grouped KV heads (40B, 180B, Falcon 2), one (7B), or one for each head (RW)
            "heads kv head": rules.own_heads(
                "num_attention_heads", "n_head", one="flag(multi_query, True)",
                shared=lambda look: "num_kv_heads" if look.flag("new_decoder_architecture") else None,
            ),
            "serial": "not new_decoder_architecture and not flag(parallel_attn, True)",
            "two_norms": "(num_ln_in_parallel_attn | (2 if new_decoder_architecture else 1)) == 2",
        },
    ),
    # MPT without biases, which is how all published ones are; its norms have weights only
    "mpt": _dense(
        """
        refuse  not flag(no_bias, True)  no_bias  is false, for which there is no formula here
        refuse  other_attention  attn_config  is not multi-head attention, for which there is no formula here
        refuse  other_norms  attn_config  has qk_ln or no alibi, for which there is no formula here
        *tables embed=transformer.wte
        *fused_decoder at=attn. qkv=Wqkv out=out_proj
        *plain_mlp up=ffn.up_proj down=ffn.down_proj
        *plain_norms names=norm_1,norm_2 last=transformer.norm_f
        *windows
        """, _TIED, layer="transformer.blocks.{}.",
        sizes={
            "hidden": "d_model", "layers": rules.layers_of("n_layers"), "heads kv head": rules.own_heads("n_heads"),
            "intermediate": "intermediate_size | (expansion_ratio | 4)*hidden", "other_attention other_norms": _mpt_attention,
        },
    ),
    # the 350M one has narrower token tables with a projection on either side, and no last norm
    "opt": _dense(
        """
        refuse  not flag(layer_norm_elementwise_affine, True)  layer_norm_elementwise_affine  is false, for which there is no formula here
        *tables embed=model.decoder.embed_tokens width=table
        model.decoder.embed_positions  side  (max_position_embeddings + 2) x hidden  plain
        model.decoder.project_in  ffn  hidden x table  if table != hidden
        model.decoder.project_out  ffn  table x hidden  if table != hidden
        *projections bias=enable_bias out=out_proj
        *plain_mlp up=fc1 down=fc2 bias=enable_bias
        self_attn_layer_norm, final_layer_norm  norm  2*hidden  every
        model.decoder.final_layer_norm  norm  2*hidden  if flag(do_layer_norm_before, True) and not _remove_final_layer_norm
        *windows
        """, {**_TIED, "enable_bias": True}, layer="model.decoder.layers.{}.",
        sizes={
            "heads kv head": rules.own_heads("num_attention_heads"), "intermediate": "ffn_dim", "table": "word_embed_proj_dim | hidden"
        },
    ),
    "internlm2": _dense(
        """
        *tables embed=model.tok_embeddings
        *fused_decoder at=attention. qkv=wqkv out=wo bias=bias
        *mlp at=feed_forward. gate=w1 up=w3 down=w2
        *plain_norms names=attention_norm,ffn_norm
        *windows
        """, head="output",
        sizes={"heads kv head": rules.own_heads("num_attention_heads", shared="num_key_value_heads")},
    ),
    "baichuan": _dense(
        "*decoder attention=fused_decoder qkv=W_pack", sizes={"heads kv head": rules.own_heads("num_attention_heads")}
    ),
    # EXAONE 3
    "exaone": _dense(
        "*decoder embed=transformer.wte at=attn.attention. out=out_proj gate=c_fc_0 up=c_fc_1 down=c_proj norms=ln_1,ln_2 "
        "last=transformer.ln_f", layer=_GPT_BLOCK,
        sizes={
            "layers": rules.layers_of("num_layers", "num_hidden_layers"),
            "heads kv head": rules.own_heads("num_attention_heads", shared="num_key_value_heads"),
        },
    ),
    # Qwen 1: `intermediate_size` counts gate and up together
    "qwen": _dense(
        """
        refuse  not flag(no_bias, True)  no_bias  is false, for which there is no formula here
        refuse  intermediate_size % 2 > 0  intermediate_size  is {intermediate_size}, which gate and up cannot share alike
        *tables embed=transformer.wte
        *fused_decoder at=attn. qkv=c_attn out=c_proj bias=True out_bias=False
        *mlp gate=w2 up=w1 down=c_proj
        *plain_norms names=ln_1,ln_2 last=transformer.ln_f
        *windows
        """, known=_QKV_BIAS, layer=_GPT_BLOCK,
        sizes={"heads kv head": rules.own_heads("num_attention_heads"), "intermediate": "intermediate_size // 2"},
    ),
    # ChatGLM 2 and 3, and GLM-4-9B as first published
    "chatglm": _dense(
        """
        refuse  (kv_channels | head) != head  kv_channels  is not hidden_size / num_attention_heads = {head}
        refuse  not flag(rmsnorm, True)  rmsnorm  is false, for which there is no formula here
        *tables embed=transformer.embedding.word_embeddings
        *fused_decoder at=self_attention. qkv=query_key_value out=dense bias=add_qkv_bias out_bias=add_bias_linear
        *fused_mlp fused=mlp.dense_h_to_4h down=mlp.dense_4h_to_h bias=add_bias_linear
        *plain_norms last=transformer.encoder.final_layernorm
        *windows
        """, layer="transformer.encoder.layers.{}.", head="transformer.output_layer",
        sizes={
            "layers": rules.layers_of("num_layers"), "intermediate": "ffn_hidden_size", "vocabulary": "padded_vocab_size",
            "heads kv head": rules.own_heads(
                "num_attention_heads", shared=lambda look: "multi_query_group_num" if look.flag("multi_query_attention") else None
            ),
        },
    ),
    # code of their own, Llama's and Qwen's by vLLM 0.33's loaders
    "mimo dots_ocr": _QWEN2_OWN,  # MiMo-7B with prediction layers, dots.ocr with a vision tower
    "keye keyevl1_5": _QWEN3_OWN,
    "internlm": _dense("*decoder bias=bias"),
    "iquestcoder xverse aquila": _LLAMA_OWN,
    "orion": _dense(_LLAMA + " vectors=2"),
    "minicpmv minicpmo": _minicpmv,
})  # fmt: skip
