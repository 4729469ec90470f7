"""Geometry of mixture-of-experts and MLA decoders against exact counts (facts model-math B.2, B.5, B.8-B.10, C)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_serving_exporter.facts.architectures import geometry
from llm_serving_exporter.model.shape import Geometry, Module, Part, Span
from tests.support.models.moe_models import PUBLISHED, TABLE, Config
from tests.support.models.moe_odd import BASE, ODD
from tests.support.rows import check_rows

ALL: dict[str, Config] = {
    **{name: row[0] for name, row in (*TABLE.items(), *PUBLISHED.items())},
    **{name: {"model_type": row[0], **BASE, **row[1]} for name, row in ODD.items()},
}
MULTI_HEAD_LATENT = {"deepseek_v2", "deepseek_v3", "kimi_k2", "glm4_moe_lite", "mistral4"}


def module(shape: Geometry, path: str) -> Module:
    (found,) = (module for module in shape.modules if module.path == path)
    return found


def paths(shape: Geometry, part: Part) -> set[str]:
    return {module.path for module in shape.modules if module.part is part}


def full_layers(shape: Geometry) -> int:
    return sum(group.layers for group in shape.attention if group.span is Span.FULL)


@check_rows(("config", "total", "active", "read", "kv_bytes", "experts", "k"), TABLE.values(), ids=TABLE)
def test_table_of_mixtures(
    config: Config, total: int, active: int, read: int, kv_bytes: int, experts: int, k: int
) -> None:
    shape = geometry(config)
    assert shape.parameters_total == total
    assert shape.parameters_active == active
    assert shape.decode_read_parameters == read
    assert shape.kv_elements_stored() * 2 == kv_bytes
    assert (shape.experts, shape.experts_per_token) == (experts, k)


@check_rows(("config", "total", "active", "read", "experts", "k"), PUBLISHED.values(), ids=PUBLISHED)
def test_published_models_as_transformers_counts_them(
    config: Config, total: int, active: int, read: int, experts: int, k: int
) -> None:
    shape = geometry(config)
    assert shape.parameters_total == total
    assert shape.parameters_active == active
    assert shape.decode_read_parameters == read
    assert (shape.experts, shape.experts_per_token) == (experts, k)


@check_rows(("model_type", "changes", "total", "active", "read", "experts", "k", "full"), ODD.values(), ids=ODD)
def test_odd_sizes_and_switches_as_transformers_counts_them(
    model_type: str, changes: Config, total: int, active: int, read: int, experts: int, k: int, full: int
) -> None:
    shape = geometry({"model_type": model_type, **BASE, **changes})
    assert shape.parameters_total == total
    assert shape.parameters_active == active
    assert shape.decode_read_parameters == read
    assert (shape.experts, shape.experts_per_token) == (experts, k)
    assert full_layers(shape) == full
    assert sum(group.layers for group in shape.attention) == shape.layers


@check_rows("config", ALL.values(), ids=ALL)
def test_what_holds_for_every_mixture(config: Config) -> None:
    shape = geometry(config)
    assert shape.mla == (shape.family in MULTI_HEAD_LATENT)
    assert not shape.encoder
    assert not shape.recurrent
    routed = [module for module in shape.modules if module.part is Part.EXPERT]
    assert {module.copies for module in routed} == {shape.experts}
    assert {module.per_token for module in routed} == {shape.experts_per_token}
    # every layer with experts has a router that scores each of them
    scoring = [module for module in shape.modules if module.part is Part.ROUTER and module.rows == shape.experts]
    assert {module.layers for module in scoring} == {module.layers for module in routed}
    for module in shape.modules:
        assert module.matrix == module.rows * module.columns
        assert max(module.layers, default=0) < shape.layers
        assert ("{}" in module.path) == bool(module.layers)
    assert len({module.path for module in shape.modules}) == len(shape.modules)


def test_kv_read_of_gpt_oss_at_1k_8k_32k_128k() -> None:
    shape = geometry(ALL["gpt-oss-120b"])
    read = [round(shape.kv_elements_read(context) * 2 / 1e6, 1) for context in (1024, 8192, 32768, 131072)]
    assert read == [42.5, 306.7, 1212.7, 4836.6]


@pytest.mark.parametrize("name", ["gpt-oss-20b", "gpt-oss-120b"])
def test_every_other_layer_of_gpt_oss_slides(name: str) -> None:
    layers = ALL[name]["num_hidden_layers"]
    listed = {**ALL[name], "layer_types": ["sliding_attention", "full_attention"] * (layers // 2)}
    for shape in (geometry(ALL[name]), geometry(listed)):
        assert {(group.span, group.layers, group.window_tokens) for group in shape.attention} == {
            (Span.FULL, layers // 2, None),
            (Span.SLIDING, layers // 2, 128),
        }


@check_rows(
    "changes",
    [
        {},
        {"no_rope_layers": []},
        {"no_rope_layers": [1, 1, 1, 0] * 12},
        {"layer_types": [*["chunked_attention"] * 3, "full_attention"] * 12},
    ],
    ids=["by default", "empty list", "listed", "by kind"],
)
@check_rows("name", ["Llama-4-Scout", "Llama-4-Maverick"])
def test_three_of_four_layers_of_llama_4_are_chunked(name: str, changes: Config) -> None:
    shape = geometry({**ALL[name], "text_config": {**ALL[name]["text_config"], **changes}})
    chunked, full = ([group for group in shape.attention if group.span is span] for span in (Span.CHUNKED, Span.FULL))
    assert [(group.layers, group.window_tokens) for group in chunked] == [(36, 8192)]
    assert [(group.layers, group.window_tokens) for group in full] == [(12, None)]
    # beyond a chunk its layers read no more than one, the full layers all of the context
    per_layer = 2 * 8 * 128
    assert shape.kv_elements_read(8192) == 48 * per_layer * 8192
    assert shape.kv_elements_read(100_000) == per_layer * (12 * 100_000 + 36 * 8192)


def test_llama_4_without_chunks_reads_everything() -> None:
    text = {**ALL["Llama-4-Scout"]["text_config"], "attention_chunk_size": None}
    (alone,) = geometry({"model_type": "llama4", "text_config": text}).attention
    assert (alone.span, alone.layers) == (Span.FULL, 48)


def test_llama_4_that_leaves_out_its_class_defaults_is_scout() -> None:
    shape = geometry({"model_type": "llama4", "text_config": {"model_type": "llama4_text"}, "vision_config": {"a": 1}})
    assert shape.parameters_total == TABLE["Llama-4-Scout"][1]
    assert shape.left_out == ("vision tower",)


@pytest.mark.parametrize("said", [{"num_local_experts": 0, "num_experts_per_tok": 0}, {"moe_layers": []}], ids=str)
def test_llama_guard_4_has_no_experts(said: Config) -> None:
    """transformers 5.23.0 on the meta device: 11,129,164,800 (published as 12B with the vision tower)."""
    text = {
        **ALL["Llama-4-Scout"]["text_config"],
        "intermediate_size_mlp": 8192,
        "interleave_moe_layer_step": 0,
        **said,
    }
    shape = geometry({"model_type": "llama4", "text_config": text})
    assert shape.parameters_total == shape.parameters_active == 11_129_164_800
    assert shape.decode_read_parameters == 11_129_164_800 - 202_048 * 5_120
    assert shape.experts == 0


def test_latent_attention_of_deepseek_v3() -> None:
    shape = geometry(ALL["DeepSeek-V3"])
    (group,) = shape.attention
    assert group.layers == 61
    assert group.kv_elements == 512 + 64
    assert group.kv_heads == 1
    # absorbed: 2 x 128 x (576 + 512); prefill on the heads' own 192 and 128
    assert group.decode_flops == 278_528
    assert group.prefill_flops == 2 * 128 * (192 + 128)
    assert shape.left_out == ("MTP module",)


def test_queries_without_a_rank_come_from_one_matrix() -> None:
    shape = geometry(ALL["DeepSeek-V2-Lite"])
    query = module(shape, "model.layers.{}.self_attn.q_proj")
    assert (query.rows, query.columns) == (16 * 192, 2048)
    assert not any("q_a_proj" in module.path or "q_b_proj" in module.path for module in shape.modules)
    # absent is not null: the class then has its default rank
    with_rank = geometry({key: value for key, value in ALL["DeepSeek-V2-Lite"].items() if key != "q_lora_rank"})
    assert module(with_rank, "model.layers.{}.self_attn.q_a_proj").rows == 1536


@check_rows(
    ("name", "experts", "routers"),
    [
        ("Mixtral-8x7B", {"block_sparse_moe.experts.*.w1", "block_sparse_moe.experts.*.w2", "block_sparse_moe.experts.*.w3"},
         {"block_sparse_moe.gate"}),
        ("Phi-3.5-MoE", {"block_sparse_moe.experts.*.w1", "block_sparse_moe.experts.*.w2", "block_sparse_moe.experts.*.w3"},
         {"block_sparse_moe.gate"}),
        ("DeepSeek-V3", {"mlp.experts.*.gate_proj", "mlp.experts.*.up_proj", "mlp.experts.*.down_proj"}, {"mlp.gate"}),
        ("Qwen1.5-MoE-A2.7B", {"mlp.experts.*.gate_proj", "mlp.experts.*.up_proj", "mlp.experts.*.down_proj"},
         {"mlp.gate", "mlp.shared_expert_gate"}),
        ("gpt-oss-20b", {"mlp.experts.gate_up_proj", "mlp.experts.down_proj"}, {"mlp.router"}),
        ("Granite-3.0-3B-A800M", {"block_sparse_moe.input_linear", "block_sparse_moe.output_linear"},
         {"block_sparse_moe.router.layer"}),
        ("Hunyuan-A13B", {"mlp.experts.*.gate_proj", "mlp.experts.*.up_proj", "mlp.experts.*.down_proj"}, {"mlp.gate.wg"}),
    ],
)  # fmt: skip
def test_experts_are_named_as_in_the_checkpoints(name: str, experts: set[str], routers: set[str]) -> None:
    shape = geometry(ALL[name])
    assert paths(shape, Part.EXPERT) == {f"model.layers.{{}}.{path}" for path in experts}
    assert paths(shape, Part.ROUTER) == {f"model.layers.{{}}.{path}" for path in routers}


@check_rows(
    ("name", "expert", "head"),
    [
        (
            "Llama-4-Maverick",
            "language_model.model.layers.{}.feed_forward.experts.gate_up_proj",
            "language_model.lm_head",
        ),
        ("Kimi-K2.5", "language_model.model.layers.{}.mlp.experts.*.gate_proj", "language_model.lm_head"),
        ("Qwen3-VL-235B-A22B", "model.language_model.layers.{}.mlp.experts.gate_up_proj", "lm_head"),
        ("Qwen3-Omni-30B-A3B", "thinker.model.layers.{}.mlp.experts.*.gate_proj", "thinker.lm_head"),
        ("GLM-4.5V", "model.language_model.layers.{}.mlp.experts.*.gate_proj", "lm_head"),
    ],
)
def test_multimodal_checkpoints_keep_the_language_part_below_a_root(name: str, expert: str, head: str) -> None:
    shape = geometry({"vision_config": {"model_type": "vision"}, **ALL[name]})
    assert expert in paths(shape, Part.EXPERT)
    assert paths(shape, Part.LM_HEAD) == {head}
    assert "vision tower" in shape.left_out


def test_shared_experts_are_passed_by_every_token() -> None:
    shape = geometry(ALL["DeepSeek-V2"])
    shared = module(shape, "model.layers.{}.mlp.shared_experts.gate_proj")
    assert shared.part is Part.FFN
    assert (shared.rows, shared.columns) == (2 * 1536, 5120)
    assert shared.layers == tuple(range(1, 60))
    assert module(shape, "model.layers.{}.mlp.gate_proj").layers == (0,)


@check_rows(
    ("changes", "sparse"),
    [
        ({}, (0, 1, 2, 3, 4, 5)),
        ({"decoder_sparse_step": 2}, (1, 3, 5)),
        ({"decoder_sparse_step": 2, "mlp_only_layers": [3, 4]}, (1, 5)),
        ({"mlp_only_layers": [0]}, (1, 2, 3, 4, 5)),
    ],
)
@check_rows("model_type", ["qwen2_moe", "qwen3_moe"])
def test_which_layers_of_qwen_have_experts(model_type: str, changes: Config, sparse: tuple[int, ...]) -> None:
    shape = geometry({"model_type": model_type, **BASE, "num_hidden_layers": 6, "num_key_value_heads": 2, **changes})
    assert module(shape, "model.layers.{}.mlp.experts.*.up_proj").layers == sparse
    dense = tuple(layer for layer in range(6) if layer not in sparse)
    assert {module.layers for module in shape.modules if module.path.endswith(".mlp.up_proj")} == (
        {dense} if dense else set()
    )


@pytest.mark.parametrize(("frequency", "sparse"), [(1, (2, 3, 4, 5, 6)), (2, (2, 4, 6)), (3, (3, 6))])
def test_moe_layer_freq_of_deepseek(frequency: int, sparse: tuple[int, ...]) -> None:
    config = {**ALL["v2-odd"], "num_hidden_layers": 7, "moe_layer_freq": frequency}
    assert module(geometry(config), "model.layers.{}.mlp.gate").layers == sparse


sizes = st.integers(1, 300)


@given(
    h=sizes, layers=st.integers(2, 9), q=st.integers(1, 9), c=sizes, r=sizes, n=sizes, v=sizes, rank=st.none() | sizes,
    i=sizes, mi=sizes, vocabulary=sizes, experts=st.integers(1, 40), shared=st.integers(0, 3), data=st.data(),
)  # fmt: skip
def test_any_latent_mixture_by_the_closed_form(
    h: int, layers: int, q: int, c: int, r: int, n: int, v: int, rank: int | None,
    i: int, mi: int, vocabulary: int, experts: int, shared: int, data: st.DataObject,
) -> None:  # fmt: skip
    k = data.draw(st.integers(1, experts))
    first = data.draw(st.integers(0, layers - 1))
    shape = geometry({
        "model_type": "deepseek_v3", "hidden_size": h, "num_hidden_layers": layers, "num_attention_heads": q, "kv_lora_rank": c,
        "qk_rope_head_dim": r, "qk_nope_head_dim": n, "v_head_dim": v, "q_lora_rank": rank, "intermediate_size": i,
        "moe_intermediate_size": mi, "vocab_size": vocabulary, "n_routed_experts": experts, "num_experts_per_tok": k,
        "n_shared_experts": shared, "first_k_dense_replace": first,
    })  # fmt: skip
    query = h * q * (n + r) if rank is None else h * rank + rank + rank * q * (n + r)
    attention = query + h * (c + r) + c + c * q * (n + v) + q * v * h

    def by_experts(passed: int) -> int:
        sparse = h * experts + (passed + shared) * 3 * h * mi
        return 2 * vocabulary * h + h + layers * (attention + 2 * h) + first * 3 * h * i + (layers - first) * sparse

    assert shape.parameters_total == by_experts(experts)
    assert shape.parameters_active == by_experts(k)
    assert shape.decode_read_parameters == by_experts(k) - vocabulary * h
    assert shape.kv_elements_stored() == layers * (c + r)


@check_rows(
    ("name", "key", "alias"),
    [
        ("mixtral-odd", "num_local_experts", "num_experts"),
        ("qwen3-odd", "num_experts", "num_local_experts"),
        ("v3-odd", "n_routed_experts", "num_local_experts"),
        ("ernie-odd", "moe_k", "num_experts_per_tok"),
    ],
)
def test_an_alias_goes_before_the_class_default(name: str, key: str, alias: str) -> None:
    renamed = {alias if field == key else field: value for field, value in ALL[name].items()}
    assert geometry(renamed) == geometry(ALL[name])


def test_hunyuan_lists_that_say_the_same_for_each_layer_are_one_number() -> None:
    listed = ALL["Hunyuan-A13B"]
    plain = {**listed, "moe_topk": 8, "moe_intermediate_size": 3072, "num_shared_expert": 1}
    assert geometry(listed) == geometry(plain)


def test_k_exaone_says_its_windows_in_letters() -> None:
    lettered: dict[str, Any] = {**ALL["K-EXAONE-236B"], "sliding_window_pattern": "LLLG"}
    del lettered["layer_types"]
    assert geometry(lettered).attention == geometry(ALL["K-EXAONE-236B"]).attention
