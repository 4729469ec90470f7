"""Hybrids and models of recurrent layers only: exact parameters, KV of their attention layers, state, refusals."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_serving_exporter.errors import FactsError
from llm_serving_exporter.facts import architectures
from llm_serving_exporter.model.shape import Geometry, ModelFacts, Module, Part
from tests.support.models import hybrid_models as models
from tests.support.models.odd_models import HYBRIDS
from tests.support.rows import check_rows

Config = dict[str, Any]

# transformers 5.23.0 on the meta device: the totals
PUBLISHED = [
    pytest.param(models.JAMBA, 51_570_323_328, id="Jamba-v0.1"),
    pytest.param(models.NEMOTRON_H_56B, 56_324_350_464, id="Nemotron-H-56B"),
    pytest.param(models.NEMOTRON_3_NANO, 31_577_937_344, id="Nemotron-3-Nano"),
    pytest.param(models.NEMOTRON_3_SUPER, 120_668_687_360, id="Nemotron-3-Super"),
    pytest.param(models.NEMOTRON_3_ULTRA, 549_308_968_960, id="Nemotron-3-Ultra"),
    pytest.param(models.QWEN3_NEXT_80B, 79_674_391_296, id="Qwen3-Next-80B"),
    pytest.param(models.QWEN3_5_27B, 26_895_998_464, id="Qwen3.5-27B"),
    pytest.param(models.QWEN3_5_35B_A3B, 34_660_610_688, id="Qwen3.5-35B-A3B"),
    pytest.param(models.QWEN3_5_397B_A17B, 396_346_350_336, id="Qwen3.5-397B-A17B"),
    pytest.param(models.MAMBA_2_8B, 2_768_345_600, id="Mamba-2.8B"),
    pytest.param(models.FALCON_MAMBA_7B, 7_272_665_088, id="Falcon-Mamba-7B"),
    pytest.param(models.CODESTRAL_MAMBA_7B, 7_285_403_648, id="Codestral-Mamba-7B"),
    pytest.param(models.BAMBA_9B, 9_780_235_392, id="Bamba-9B"),
    pytest.param(models.GRANITE_4_SMALL, 32_207_337_984, id="Granite-4-Small"),
    pytest.param(models.LFM2_1_2B, 1_170_340_608, id="LFM2-1.2B"),
]


def module(geometry: Geometry, path: str) -> Module:
    (found,) = [each for each in geometry.modules if each.path == path]
    return found


def state_bytes(config: Config, bytes_per_element: float) -> float:
    facts = ModelFacts("a model", "a test", architectures.geometry(config), (), 2.0, "bf16", bytes_per_element)
    return facts.state_bytes_per_sequence()


@check_rows(("config", "parameters"), PUBLISHED)
def test_every_published_hybrid_has_its_exact_number_of_parameters(config: Config, parameters: int) -> None:
    assert architectures.geometry(config).parameters_total == parameters


@check_rows(("config", "parameters"), HYBRIDS)
def test_odd_configs_have_the_exact_number_of_parameters_too(config: Config, parameters: int) -> None:
    assert architectures.geometry(config).parameters_total == parameters


def test_jamba_has_the_whole_row_of_the_facts() -> None:
    """Table B.8; its KV cache of 256K tokens is the published 4 GiB."""
    geometry = architectures.geometry(models.JAMBA)

    assert geometry.parameters_active == 12_110_311_296
    assert geometry.decode_read_parameters == 11_841_875_840
    assert geometry.kv_elements_stored() * 2 == 16_384
    assert geometry.kv_elements_stored() * 2 * 262_144 == 4 * 2**30
    assert (geometry.experts, geometry.experts_per_token) == (16, 2)
    assert [group.layers for group in geometry.attention] == [4]


def test_a_token_passes_only_its_experts() -> None:
    """Nemotron-3-Nano: 23 MoE layers, 6 of 128 experts of two matrices; published 31.6B in all, 3.2 to 3.6B active."""
    geometry = architectures.geometry(models.NEMOTRON_3_NANO)

    idle = 23 * (128 - 6) * 2 * 2688 * 1856
    assert geometry.parameters_total - geometry.parameters_active == idle
    assert 3.2e9 < geometry.decode_read_parameters < geometry.parameters_active < 3.6e9
    assert geometry.kv_elements_stored() == 6 * 2 * 2 * 128


def test_nemotron_3_nano_reads_the_bytes_of_published_row_22() -> None:
    """Facts F row 22: 3.2 GB per step in FP8 at batch 1."""
    assert architectures.geometry(models.NEMOTRON_3_NANO).decode_read_parameters * 1.0 == pytest.approx(3.2e9, rel=0.02)


def test_experts_of_a_latent_space_are_as_wide_as_it() -> None:
    """Nemotron 3 Super routes in 1024 of 4096 dimensions: two matrices lead in and out, which every token passes."""
    geometry = architectures.geometry(models.NEMOTRON_3_SUPER)

    up = module(geometry, "backbone.layers.{}.mixer.experts.*.up_proj")
    assert (up.rows, up.columns, up.copies, up.per_token) == (2688, 1024, 512, 22)
    assert module(geometry, "backbone.layers.{}.mixer.fc1_latent_proj").part is Part.FFN
    assert geometry.left_out == ("multi-token prediction layers",)


def test_qwen3_next_doubles_its_queries_and_attends_in_every_fourth_layer() -> None:
    geometry = architectures.geometry(models.QWEN3_NEXT_80B)

    query = module(geometry, "model.layers.{}.self_attn.q_proj")
    assert (query.rows, query.columns) == (2 * 16 * 256, 2048)
    assert query.layers == tuple(range(3, 48, 4))
    assert geometry.kv_elements_stored() == 12 * 2 * 2 * 256
    assert geometry.attention[0].decode_flops == 4 * 16 * 256
    assert geometry.parameters_active == 3_874_929_408


def test_a_multimodal_config_names_what_is_not_counted() -> None:
    geometry = architectures.geometry(models.QWEN3_5_35B_A3B)

    assert geometry.left_out == ("vision tower", "multi-token prediction layers")
    assert module(geometry, "model.language_model.layers.{}.linear_attn.in_proj_qkv").linear


def test_a_text_part_that_leaves_out_class_defaults_is_filled_from_them() -> None:
    config = {"model_type": "qwen3_5", "text_config": {"model_type": "qwen3_5_text"}}

    assert architectures.geometry(config).parameters_total == 8_953_803_264  # transformers 5.23.0 on the meta device


@check_rows(
    ("config", "bytes_per_element", "expected"),
    [
        pytest.param(models.NEMOTRON_3_NANO, 4, 23 * (524_288 * 4 + 18_432 * 2), id="Nemotron-3-Nano 49.1 MB"),
        pytest.param(models.NEMOTRON_H_56B, 4, 912_605_184, id="Nemotron-H-56B 912.6 MB"),
        pytest.param(models.QWEN3_NEXT_80B, 4, 36 * (32 * 128 * 128 * 4 + 8192 * 3 * 2), id="Qwen3-Next 77.3 MB"),
        pytest.param(models.QWEN3_NEXT_80B, 2, 36 * (32 * 128 * 128 * 2 + 8192 * 3 * 2), id="Qwen3-Next 39.5 MB"),
        pytest.param(models.JAMBA, 4, 28 * (8192 * 16 * 4 + 8192 * 3 * 2), id="Jamba"),
    ],
)
def test_the_state_of_a_sequence_is_that_of_the_facts(config: Config, bytes_per_element: int, expected: int) -> None:
    """Facts B.9: what is stored; a step reads it and writes it."""
    assert state_bytes(config, bytes_per_element) == expected


def test_the_state_in_megabytes_is_that_of_the_facts() -> None:
    assert round(state_bytes(models.NEMOTRON_3_NANO, 4) / 1e6, 1) == 49.1
    assert round(state_bytes(models.NEMOTRON_H_56B, 4) / 1e6, 1) == 912.6
    assert round(state_bytes(models.QWEN3_NEXT_80B, 4) / 1e6, 1) == 77.3
    assert round(state_bytes(models.QWEN3_NEXT_80B, 2) / 1e6, 1) == 39.5


def test_a_mamba_block_is_the_formula_of_the_facts() -> None:
    """Facts B.6, Mamba-1 with inner norms and Mamba-2, on Jamba's and Nemotron-3-Nano's sizes; B.6 counts the norm before the block."""

    def block(config: Config, prefix: str) -> int:
        return sum(
            each.matrix + each.vector for each in architectures.geometry(config).modules if each.path.startswith(prefix)
        )

    h, di, ds, dt, conv = 4096, 8192, 16, 256, 4
    mamba1 = h * 2 * di + di * conv + di + di * (dt + 2 * ds) + dt * di + di + di * ds + di + di * h + dt + 2 * ds
    assert block(models.JAMBA, "model.layers.{}.mamba.") == mamba1

    h, heads, p, n, g = 2688, 64, 64, 128, 8
    di = heads * p
    mamba2 = h * (2 * di + 2 * g * n + heads) + (di + 2 * g * n) * conv + (di + 2 * g * n) + 3 * heads + di + di * h
    only_mamba = {**models.NEMOTRON_3_NANO, "hybrid_override_pattern": "M", "num_hidden_layers": 1}
    assert block(only_mamba, "backbone.layers.{}.mixer.") == mamba2


def test_a_model_without_attention_has_no_kv_cache() -> None:
    geometry = architectures.geometry(models.CODESTRAL_MAMBA_7B)

    assert geometry.attention == ()
    assert geometry.kv_elements_stored() == 0
    assert geometry.recurrent[0].layers == 64


def test_short_convolutions_keep_their_last_inputs_and_no_other_state() -> None:
    (group,) = architectures.geometry(models.LFM2_1_2B).recurrent

    assert (group.layers, group.ssm_elements, group.conv_elements) == (10, 0, 2048 * 2)


@check_rows("config", [param.values[0] for param in PUBLISHED])
def test_only_projections_are_linear_modules(config: Config) -> None:
    """Quantisers take Linear modules: no convolution, norm or table; and a module's rows and columns make its matrix."""
    for each in architectures.geometry(config).modules:
        assert each.rows * each.columns == each.matrix
        name = each.path.rsplit(".", 1)[-1]
        unquantised = ("conv1d", "conv", "A_log", "D", "dt_bias", "embeddings", "embed_tokens")
        assert each.linear != (name in unquantised or "norm" in name), each.path


@check_rows(
    ("config", "change", "key"),
    [
        (models.JAMBA, {"attn_layer_period": None}, "attn_layer_period"),
        (models.JAMBA, {"attn_layer_offset": 8}, "attn_layer_offset"),
        (models.JAMBA, {"num_experts_per_tok": 17}, "num_experts_per_tok"),
        (models.JAMBA, {"mamba_dt_rank": "large"}, "mamba_dt_rank"),
        (models.JAMBA, {"mamba_inner_layernorms": False}, "mamba_inner_layernorms"),
        (models.JAMBA, {"attention_bias": True}, "attention_bias"),
        (models.JAMBA, {"num_key_value_heads": 5}, "num_key_value_heads"),
        (models.NEMOTRON_3_NANO, {"hybrid_override_pattern": "MX"}, "hybrid_override_pattern"),
        (models.NEMOTRON_3_NANO, {"hybrid_override_pattern": ""}, "hybrid_override_pattern"),
        (models.NEMOTRON_3_NANO, {"hybrid_override_pattern": None}, "hybrid_override_pattern"),
        (models.NEMOTRON_3_NANO, {"num_hidden_layers": 51}, "num_hidden_layers"),
        (models.NEMOTRON_3_NANO, {"n_shared_experts": 2}, "n_shared_experts"),
        (models.NEMOTRON_3_NANO, {"tie_word_embeddings": True}, "tie_word_embeddings"),
        (models.NEMOTRON_3_NANO, {"attention_bias": True}, "attention_bias"),
        (models.NEMOTRON_3_NANO, {"mlp_bias": True}, "mlp_bias"),
        (models.QWEN3_NEXT_80B, {"layer_types": ["full_attention"]}, "layer_types"),
        (models.QWEN3_NEXT_80B, {"layer_types": ["sliding_attention"] * 48}, "layer_types"),
        (models.QWEN3_NEXT_80B, {"mlp_only_layers": [48]}, "mlp_only_layers"),
        (models.QWEN3_NEXT_80B, {"mlp_only_layers": [["0"]]}, "mlp_only_layers"),
        (models.QWEN3_NEXT_80B, {"attn_output_gate": False}, "attn_output_gate"),
        (models.CODESTRAL_MAMBA_7B, {"num_heads": 127}, "num_heads"),
        (models.BAMBA_9B, {"mamba_d_head": 63}, "mamba_n_heads"),
        (models.GRANITE_4_SMALL, {"layer_types": None}, "layer_types"),
        (models.LFM2_1_2B, {"full_attn_idxs": None}, "layer_types"),
        (models.LFM2_1_2B, {"block_ffn_dim_multiplier": math.inf}, "block_ffn_dim_multiplier"),
        (models.MAMBA_2_8B, {"num_hidden_layers": 10**6}, "num_hidden_layers"),
    ],
)
def test_what_is_not_covered_is_refused_with_its_key(config: Config, change: Config, key: str) -> None:
    with pytest.raises(FactsError, match=rf"config\.json \({config['model_type']}\): {key} ") as refused:
        architectures.geometry({**config, **change})

    assert refused.value.reason == "architecture_unknown"


_JUNK = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 2**70), st.floats(), st.text(max_size=3), st.just("auto"),
    st.lists(st.one_of(st.integers(-1, 5), st.text(max_size=2), st.lists(st.integers(), max_size=1)), max_size=4),
    st.dictionaries(st.text(max_size=2), st.integers(), max_size=2),
)  # fmt: skip


@given(data=st.data())
def test_no_config_raises_anything_but_a_facts_error(data: st.DataObject) -> None:
    config, _ = data.draw(st.sampled_from(HYBRIDS))
    keys = data.draw(st.sets(st.sampled_from(sorted(set(config) - {"model_type"})), min_size=1, max_size=3))
    try:
        geometry = architectures.geometry({**config, **{key: data.draw(_JUNK, key) for key in sorted(keys)}})
    except FactsError:
        return
    assert geometry.parameters_total >= geometry.parameters_active > 0
