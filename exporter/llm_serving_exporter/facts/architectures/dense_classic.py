"""Decoders whose configs and modules have names of their own: GPT-2 to Falcon, and families that bring their own code.

Each builder reads the sizes under the family's keys and hands them to the shared decoder. Layouts compared with transformers 5.23.0
on the meta device; the ones that bring their own code with the parameter counts that their authors publish.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from llm_serving_exporter.facts import parts
from llm_serving_exporter.facts.architectures.dense_decoder import Layout, Sizes, assemble, shared_heads, split_heads
from llm_serving_exporter.facts.fields import Fields
from llm_serving_exporter.model.geometry import Geometry, Module, Part
from llm_serving_exporter.model.record import replace

_GPT = Layout(
    {"tie_word_embeddings": True}, qkv_bias=True, mlp_bias=True, gated=False, norms=("ln_1", "ln_2"), norm_vectors=2,
    final_norm="transformer.ln_f", fused_qkv="c_attn", attention="attn.", out_name="c_proj",
    mlp_names=("", "mlp.c_fc", "mlp.c_proj"), layer="transformer.h.{}.", embed="transformer.wte",
)  # fmt: skip
# parallel attention and MLP behind one norm
_GPTJ = replace(
    _GPT, defaults={"tie_word_embeddings": False}, qkv_bias=False, head_bias=True, norms=("ln_1",), fused_qkv=None, out_name="out_proj",
    mlp_names=("", "mlp.fc_in", "mlp.fc_out"),
)  # fmt: skip
_NEO = replace(_GPT, qkv_bias=False, out_bias=True, fused_qkv=None, attention="attn.attention.", out_name="out_proj")
_NEOX = Layout(
    {"tie_word_embeddings": False, "attention_bias": True}, qkv_bias="attention_bias", mlp_bias=True, gated=False, norm_vectors=2,
    final_norm="gpt_neox.final_layer_norm", fused_qkv="query_key_value", attention="attention.", out_name="dense",
    mlp_names=("", "mlp.dense_h_to_4h", "mlp.dense_4h_to_h"), layer="gpt_neox.layers.{}.", embed="gpt_neox.embed_in", head="embed_out",
)  # fmt: skip
_BLOOM = Layout(
    {"tie_word_embeddings": True}, qkv_bias=True, mlp_bias=True, gated=False, norm_vectors=2, final_norm="transformer.ln_f",
    fused_qkv="query_key_value", attention="self_attention.", out_name="dense", mlp_names=("", "mlp.dense_h_to_4h", "mlp.dense_4h_to_h"),
    layer="transformer.h.{}.", embed="transformer.word_embeddings",
)  # fmt: skip
_FALCON = replace(_BLOOM, qkv_bias="bias", mlp_bias="bias")
_MPT = Layout(
    {"tie_word_embeddings": True}, gated=False, norms=("norm_1", "norm_2"), final_norm="transformer.norm_f", fused_qkv="Wqkv",
    attention="attn.", out_name="out_proj", mlp_names=("", "ffn.up_proj", "ffn.down_proj"), layer="transformer.blocks.{}.",
    embed="transformer.wte",
)  # fmt: skip
_OPT = Layout(
    {"tie_word_embeddings": True, "enable_bias": True}, qkv_bias="enable_bias", mlp_bias="enable_bias", gated=False,
    norms=("self_attn_layer_norm", "final_layer_norm"), norm_vectors=2, final_norm="model.decoder.final_layer_norm", out_name="out_proj",
    mlp_names=("", "fc1", "fc2"), layer="model.decoder.layers.{}.", embed="model.decoder.embed_tokens",
)  # fmt: skip
_INTERNLM2 = Layout(
    {"tie_word_embeddings": False}, qkv_bias="bias", norms=("attention_norm", "ffn_norm"), fused_qkv="wqkv", attention="attention.",
    out_name="wo", mlp_names=("feed_forward.w1", "feed_forward.w3", "feed_forward.w2"), embed="model.tok_embeddings", head="output",
)  # fmt: skip
_BAICHUAN = Layout({"tie_word_embeddings": False}, fused_qkv="W_pack")
_EXAONE = Layout(
    {"tie_word_embeddings": False}, norms=("ln_1", "ln_2"), final_norm="transformer.ln_f", attention="attn.attention.",
    out_name="out_proj",
    mlp_names=("mlp.c_fc_0", "mlp.c_fc_1", "mlp.c_proj"), layer="transformer.h.{}.", embed="transformer.wte",
)  # fmt: skip
_QWEN = Layout(
    {"tie_word_embeddings": False}, qkv_bias=True, out_bias=False, norms=("ln_1", "ln_2"), final_norm="transformer.ln_f",
    fused_qkv="c_attn",
    attention="attn.", out_name="c_proj", mlp_names=("mlp.w2", "mlp.w1", "mlp.c_proj"), layer="transformer.h.{}.",
    embed="transformer.wte",
)  # fmt: skip
_CHATGLM = Layout(
    {"tie_word_embeddings": False}, qkv_bias="add_qkv_bias", out_bias="add_bias_linear", mlp_bias="add_bias_linear",
    final_norm="transformer.encoder.final_layernorm", fused_qkv="query_key_value", fused_gate_up="mlp.dense_h_to_4h",
    attention="self_attention.",
    out_name="dense", mlp_names=("", "", "mlp.dense_4h_to_h"), layer="transformer.encoder.layers.{}.",
    embed="transformer.embedding.word_embeddings",
    head="transformer.output_layer",
)  # fmt: skip


def _sizes(
    fields: Fields, *, hidden: tuple[str, ...] = ("hidden_size",), layers: tuple[str, ...] = ("num_hidden_layers",),
    heads: tuple[str, ...] = ("num_attention_heads",), shared: str | None = None, one_kv_head: bool = False,
    intermediate: tuple[str, ...] = ("intermediate_size",), vocabulary: str = "vocab_size", four_times: bool = False,
) -> Sizes:  # fmt: skip
    """The sizes under a family's keys. `shared`: the key of the KV heads, as many as heads where it is absent or the family has none.

    `four_times`: the MLP is that much wider than hidden where no key states its width.
    """
    width, count = fields.whole(*hidden), fields.whole(*heads)
    head_size = split_heads(fields, width, count)
    if fields.whole("head_dim", default=head_size) != head_size:
        raise fields.refused("head_dim", f"is not hidden size / heads = {head_size}, as this architecture has it")
    kv_heads = 1 if one_kv_head else count
    if shared is not None:
        kv_heads = shared_heads(fields, count, fields.whole(shared, default=count), shared)
    inner = fields.whole(*intermediate, default=4 * width if four_times else None)
    return Sizes(width, fields.layers(*layers), count, kv_heads, head_size, inner, fields.whole(vocabulary))


def _positions(path: str, rows: int, width: int) -> Module:
    """A table of learned positions, of which a token takes one row."""
    return Module(path, Part.ENCODER_ONLY, rows * width, rows=rows, columns=width, linear=False)


def _gpt(fields: Fields, *, one_kv_head: bool = False) -> Sizes:
    return _sizes(
        fields, hidden=("n_embd", "hidden_size"), layers=("n_layer", "num_hidden_layers"), heads=("n_head", "num_attention_heads"),
        one_kv_head=one_kv_head, intermediate=("n_inner",), four_times=True,
    )  # fmt: skip


def _gpt2(fields: Fields) -> Geometry:
    fields = fields.with_defaults(_GPT.defaults)
    sizes = _gpt(fields)
    places = fields.whole("n_positions", "n_ctx", "max_position_embeddings")
    return assemble(fields, sizes, _GPT, (_positions("transformer.wpe", places, sizes.hidden),))


def _gpt_bigcode(fields: Fields) -> Geometry:
    """StarCoder, SantaCoder: GPT-2 with one KV head."""
    fields = fields.with_defaults(_GPT.defaults)
    sizes = _gpt(fields, one_kv_head=fields.flag("multi_query", default=True))
    places = fields.whole("n_positions", "max_position_embeddings")
    return assemble(fields, sizes, _GPT, (_positions("transformer.wpe", places, sizes.hidden),))


def _gptj(fields: Fields) -> Geometry:
    fields = fields.with_defaults(_GPTJ.defaults)
    return assemble(fields, _gpt(fields), _GPTJ)


def _codegen(fields: Fields) -> Geometry:
    fields = fields.with_defaults(_GPTJ.defaults)
    return assemble(fields, _gpt(fields), replace(_GPTJ, fused_qkv="qkv_proj"))


def _gpt_neo(fields: Fields) -> Geometry:
    """Layers take turns: the whole context, and the last `window_size` tokens."""
    window = fields.whole("window_size", default=256)
    fields = fields.with_defaults({**_NEO.defaults, "sliding_window": window})
    sizes = _sizes(fields, layers=("num_layers",), heads=("num_heads",), four_times=True)
    places = fields.whole("max_position_embeddings")

    def local(fields: Fields, layers: int) -> list[bool]:
        listed = fields.listed("attention_layers")
        if listed is None or len(listed) != layers or not set(map(str, listed)) <= {"global", "local"}:
            raise fields.refused("attention_layers", f"is not a list of {layers} times global or local")
        return [kind == "local" for kind in listed]

    layout = replace(_NEO, window=local)
    return assemble(fields, sizes, layout, (_positions("transformer.wpe", places, sizes.hidden),))


def _gpt_neox(fields: Fields) -> Geometry:
    fields = fields.with_defaults(_NEOX.defaults)
    return assemble(fields, _sizes(fields), _NEOX)


def _bloom(fields: Fields) -> Geometry:
    fields = fields.with_defaults(_BLOOM.defaults)
    # n_embed goes before hidden_size, as in the config class
    sizes = _sizes(
        fields, hidden=("n_embed", "hidden_size"), layers=("n_layer", "num_hidden_layers"), heads=("n_head", "num_attention_heads"),
        intermediate=("n_inner",), four_times=True,
    )  # fmt: skip
    return assemble(fields, sizes, _BLOOM, (parts.vector("transformer.word_embeddings_layernorm", 2 * sizes.hidden),))


def _falcon(fields: Fields) -> Geometry:
    """Falcon in its forms: grouped KV heads (40B, 180B, Falcon 2), one KV head (7B), or one for each head (RW)."""
    fields = fields.with_defaults(_FALCON.defaults)
    grouped = fields.flag("new_decoder_architecture", default=False)
    sizes = _sizes(
        fields, layers=("num_hidden_layers", "n_layer"), heads=("num_attention_heads", "n_head"),
        shared="num_kv_heads" if grouped else None, one_kv_head=fields.flag("multi_query", default=True),
        intermediate=("ffn_hidden_size",), four_times=True,
    )  # fmt: skip
    norms: tuple[str, ...] = ("input_layernorm",)
    if not grouped and not fields.flag("parallel_attn", default=True):
        norms = ("input_layernorm", "post_attention_layernorm")
    elif fields.whole("num_ln_in_parallel_attn", default=2 if grouped else 1) == 2:
        norms = ("ln_attn", "ln_mlp")
    return assemble(fields, sizes, replace(_FALCON, norms=norms))


def _mpt(fields: Fields) -> Geometry:
    """MPT without biases, which is how all published ones are; its norms have weights only."""
    fields = fields.with_defaults(_MPT.defaults)
    inner = fields.found("attn_config")
    inside = Fields(inner if isinstance(inner, Mapping) else {}, fields.values)
    if not fields.flag("no_bias", default=True):
        raise fields.refused("no_bias", "is false, for which there is no formula here")
    if inside.text("attn_type", "multihead_attention") != "multihead_attention" or inside.found("kv_n_heads"):
        raise fields.refused("attn_config", "is not multi-head attention, for which there is no formula here")
    if inside.found("qk_ln") or not inside.flag("alibi", default=True):
        raise fields.refused("attn_config", "has qk_ln or no alibi, for which there is no formula here")
    width = fields.whole("d_model")
    fields = fields.with_defaults({"intermediate_size": fields.whole("expansion_ratio", default=4) * width})
    return assemble(fields, _sizes(fields, hidden=("d_model",), layers=("n_layers",), heads=("n_heads",)), _MPT)


def _opt(fields: Fields) -> Geometry:
    """OPT; the 350M one has narrower token tables with a projection on either side, and no last norm."""
    fields = fields.with_defaults(_OPT.defaults)
    if not fields.flag("layer_norm_elementwise_affine", default=True):
        raise fields.refused("layer_norm_elementwise_affine", "is false, for which there is no formula here")
    sizes = _sizes(fields, intermediate=("ffn_dim",))
    places = fields.whole("max_position_embeddings") + 2  # two rows for padding, which the positions start behind
    outside = [_positions("model.decoder.embed_positions", places, sizes.hidden)]
    width = fields.whole("word_embed_proj_dim", default=sizes.hidden)
    if width != sizes.hidden:
        outside.append(parts.linear("model.decoder.project_in", Part.FFN, sizes.hidden, width))
        outside.append(parts.linear("model.decoder.project_out", Part.FFN, width, sizes.hidden))
    last = fields.flag("do_layer_norm_before", default=True) and not fields.flag(
        "_remove_final_layer_norm", default=False
    )
    layout = _OPT if last else replace(_OPT, final_norm=None)
    return assemble(fields, replace(sizes, table_width=width), layout, tuple(outside))


def _internlm2(fields: Fields) -> Geometry:
    fields = fields.with_defaults(_INTERNLM2.defaults)
    return assemble(fields, _sizes(fields, shared="num_key_value_heads"), _INTERNLM2)


def _baichuan(fields: Fields) -> Geometry:
    fields = fields.with_defaults(_BAICHUAN.defaults)
    return assemble(fields, _sizes(fields), _BAICHUAN)


def _exaone(fields: Fields) -> Geometry:
    """EXAONE 3.x."""
    fields = fields.with_defaults(_EXAONE.defaults)
    sizes = _sizes(fields, layers=("num_layers", "num_hidden_layers"), shared="num_key_value_heads")
    return assemble(fields, sizes, _EXAONE)


def _qwen(fields: Fields) -> Geometry:
    """Qwen 1: `intermediate_size` counts gate and up together."""
    fields = fields.with_defaults(_QWEN.defaults)
    sizes = _sizes(fields)
    if not fields.flag("no_bias", default=True):
        raise fields.refused("no_bias", "is false, for which there is no formula here")
    if sizes.intermediate % 2:
        raise fields.refused("intermediate_size", f"is {sizes.intermediate}, which gate and up cannot share alike")
    return assemble(fields, replace(sizes, intermediate=sizes.intermediate // 2), _QWEN)


def _chatglm(fields: Fields) -> Geometry:
    """ChatGLM 2 and 3, and GLM-4-9B as first published."""
    fields = fields.with_defaults(_CHATGLM.defaults)
    shared = "multi_query_group_num" if fields.flag("multi_query_attention", default=False) else None
    sizes = _sizes(
        fields, layers=("num_layers",), shared=shared, intermediate=("ffn_hidden_size",), vocabulary="padded_vocab_size"
    )
    if fields.whole("kv_channels", default=sizes.head_size) != sizes.head_size:
        raise fields.refused("kv_channels", f"is not hidden_size / num_attention_heads = {sizes.head_size}")
    if not fields.flag("rmsnorm", default=True):
        raise fields.refused("rmsnorm", "is false, for which there is no formula here")
    return assemble(fields, sizes, _CHATGLM)


BUILDERS: Mapping[str, Callable[[Fields], Geometry]] = {
    "gpt2": _gpt2,
    "gpt_bigcode": _gpt_bigcode,
    "gptj": _gptj,
    "codegen": _codegen,
    "gpt_neo": _gpt_neo,
    "gpt_neox": _gpt_neox,
    "bloom": _bloom,
    "falcon": _falcon,
    "refinedweb": _falcon,
    "refinedwebmodel": _falcon,
    "mpt": _mpt,
    "opt": _opt,
    "internlm2": _internlm2,
    "baichuan": _baichuan,
    "exaone": _exaone,
    "qwen": _qwen,
    "chatglm": _chatglm,
}
