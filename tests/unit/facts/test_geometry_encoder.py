"""Encoders and embedders: exact parameters, no KV, what every token passes, refusals."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_serving_exporter.errors import FactsError
from llm_serving_exporter.facts import architectures
from llm_serving_exporter.model.shape import Geometry, Part, Span
from tests.support.models import hybrid_models as models
from tests.support.models.dense_models import LLAMA_8B, MISTRAL_7B, TIED
from tests.support.models.odd_models import ENCODERS
from tests.support.rows import check_rows

Config = dict[str, Any]


def passed_matrices(geometry: Geometry) -> int:
    """N_mat of facts B.7: the matrices that every token of an encoder passes."""
    beside = (Part.EMBEDDING, Part.ENCODER_ONLY)
    return sum(each.matrix * each.places for each in geometry.modules if each.part not in beside)


@check_rows(
    ("config", "parameters"),
    [
        pytest.param(models.BERT_BASE, 109_482_240, id="bert-base"),
        pytest.param(models.BERT_LARGE, 335_141_888, id="bert-large"),
        pytest.param(models.BGE_M3, 567_754_752, id="bge-m3"),
        pytest.param(models.NOMIC_1_5, 136_731_648, id="nomic-embed-text-v1.5"),
        pytest.param(models.MODERNBERT_BASE, 149_014_272, id="ModernBERT-base"),
        # the safetensors of jinaai/jina-embeddings-v2-base-en and -v3-hf: no table of positions, and a gated MLP in the former
        pytest.param(
            {**models.BERT_BASE, "vocab_size": 30528, "position_embedding_type": "alibi", "feed_forward_type": "geglu"},
            137_368_320,
            id="jina-embeddings-v2-base-en",
        ),
        pytest.param({**models.BGE_M3, "position_embedding_type": "rotary"}, 559_364_096, id="jina-embeddings-v3"),
    ],
)
def test_every_published_encoder_has_its_exact_number_of_parameters(config: Config, parameters: int) -> None:
    """Facts B.7, and transformers 5.23.0 on the meta device."""
    assert architectures.geometry(config).parameters_total == parameters


@check_rows(("config", "parameters"), ENCODERS)
def test_odd_configs_and_classifiers_have_the_exact_number_too(config: Config, parameters: int) -> None:
    assert architectures.geometry(config).parameters_total == parameters


@check_rows("config", [config for config, _ in ENCODERS])
def test_encoders_keep_nothing_and_do_not_decode(config: Config) -> None:
    geometry = architectures.geometry(config)

    assert geometry.encoder
    assert geometry.bidirectional
    assert not geometry.tied
    assert geometry.kv_elements_stored() == 0
    assert all(group.decode_flops == 0 for group in geometry.attention)
    assert sum(group.layers for group in geometry.attention) == geometry.layers


def test_bert_costs_a_token_what_the_facts_say() -> None:
    """Facts B.7: 2 N_mat + 4 L h s; tables and pooler are not passed by each token."""
    geometry = architectures.geometry(models.BERT_BASE)

    assert passed_matrices(geometry) == 12 * (4 * 768 * 768 + 2 * 768 * 3072)
    assert sum(group.layers * group.prefill_flops for group in geometry.attention) == 4 * 12 * 768
    assert geometry.left_out == ("head of BertForMaskedLM",)


def test_modernbert_looks_at_its_neighbours_in_two_layers_of_three() -> None:
    """22 layers, every third from the first attends to all; 128 tokens around mean 64 to either side and the token itself."""
    full, local = architectures.geometry(models.MODERNBERT_BASE).attention

    assert (full.layers, full.span, full.window_tokens) == (8, Span.FULL, None)
    assert (local.layers, local.span, local.window_tokens) == (14, Span.SLIDING, 129)


def test_nv_embed_is_mistral_without_lm_head_and_a_latent_pooler() -> None:
    """Seed oracle O5 (000_77ecca03ee8f65da.txt:142): 15.7 GB in FP16.

    The facts' 7,850,991,616 leaves out the pooler's three LayerNorms, which the checkpoint holds (cross_attend_blocks.0.norm,
    .0.norm_context and .1.norm, weight and bias of 4096 each).
    """
    geometry = architectures.geometry(models.NV_EMBED_2)

    assert geometry.parameters_total == 7_850_991_616 + 3 * 2 * 4096
    assert round(geometry.parameters_total * 2 / 1e9, 3) == 15.702
    pooler = sum(each.parameters for each in geometry.modules if each.path.startswith("latent_attention_model."))
    assert geometry.parameters_total - pooler == 7_110_660_096
    assert geometry.encoder
    assert geometry.bidirectional
    assert geometry.kv_elements_stored() == 0


def test_the_pooler_of_nv_embed_fills_in_what_its_config_leaves_out() -> None:
    config = {**models.NV_EMBED_2, "latent_attention_config": {"model_type": "latent_attention"}}

    assert architectures.geometry(config) == architectures.geometry(models.NV_EMBED_2)


def test_a_bare_decoder_stack_is_an_embedder() -> None:
    """e5-mistral class, facts B.7: causal, without lm_head."""
    geometry = architectures.geometry({**MISTRAL_7B, "architectures": ["MistralModel"]})

    assert geometry.parameters_total == 7_110_660_096
    assert geometry.encoder
    assert not geometry.bidirectional
    assert geometry.kv_elements_stored() == 0
    assert geometry.attention[0].prefill_flops == 4 * 32 * 128


def test_a_tied_stack_keeps_its_table_as_input_embedding() -> None:
    tied = architectures.geometry({**LLAMA_8B, **TIED})
    bare = architectures.without_lm_head(tied)

    assert bare.parameters_total == tied.parameters_total
    assert bare.decode_read_parameters == tied.decode_read_parameters - 128256 * 4096
    assert architectures.without_lm_head(bare) == bare


@check_rows(
    ("architecture", "embeds"),
    [
        ("MistralModel", True), ("Qwen2Model", True), ("LlamaForCausalLM", False), ("GPT2LMHeadModel", False),
        ("InternVLChatModel", False), ("NVLM_D_Model", False), ("", False),
    ],
)  # fmt: skip
def test_only_bare_stacks_are_taken_for_embedders(architecture: str, embeds: bool) -> None:
    assert architectures.embeds(architecture) is embeds


@check_rows("named", [None, [], [None], "MistralModel", {"0": "MistralModel"}])
def test_architectures_that_name_nothing_leave_a_decoder_a_decoder(named: object) -> None:
    assert not architectures.geometry({**MISTRAL_7B, "architectures": named}).encoder


def test_a_language_part_names_its_own_architecture() -> None:
    """A multimodal model's own class may end in Model although its language part decodes."""
    inner = {**LLAMA_8B, "architectures": ["LlamaForCausalLM"]}

    assert not architectures.geometry({"architectures": ["SomeVisionModel"], "llm_config": inner}).encoder


@check_rows(
    ("config", "change", "key"),
    [
        (models.BERT_BASE, {"position_embedding_type": "relative_key"}, "position_embedding_type"),
        (models.BGE_M3, {"feed_forward_type": "mlp"}, "feed_forward_type"),
        (models.BERT_BASE, {"is_decoder": True}, "is_decoder"),
        (models.BERT_BASE, {"num_attention_heads": 7}, "num_attention_heads"),
        (models.BERT_BASE, {"type_vocab_size": None}, "type_vocab_size"),
        (models.BERT_BASE, {"max_position_embeddings": -1}, "max_position_embeddings"),
        (models.NOMIC_1_5, {"num_experts": 8}, "num_experts"),
        (models.NOMIC_1_5, {"mlp_fc1_bias": True}, "mlp_fc1_bias"),
        (models.NOMIC_1_5, {"activation_function": "gelu"}, "activation_function"),
        (models.NOMIC_1_5, {"architectures": ["NomicBertForSequenceClassification"]}, "architectures"),
        (models.MODERNBERT_BASE, {"layer_types": ["full_attention"]}, "layer_types"),
        (models.MODERNBERT_BASE, {"num_attention_heads": 5}, "num_attention_heads"),
    ],
)
def test_what_is_not_covered_is_refused_with_its_key(config: Config, change: Config, key: str) -> None:
    with pytest.raises(FactsError, match=rf"config\.json \({config['model_type']}\): {key} ") as refused:
        architectures.geometry({**config, **change})

    assert refused.value.reason == "architecture_unknown"


def test_a_pooler_that_is_no_object_is_refused() -> None:
    with pytest.raises(FactsError, match="latent_attention_config is not an object"):
        architectures.geometry({**models.NV_EMBED_2, "latent_attention_config": 8})


@given(data=st.data())
def test_no_config_raises_anything_but_a_facts_error(data: st.DataObject) -> None:
    config, _ = data.draw(st.sampled_from(ENCODERS))
    keys = data.draw(st.sets(st.sampled_from(sorted(set(config) - {"model_type"})), min_size=1, max_size=3))
    junk = st.one_of(
        st.none(), st.booleans(), st.integers(-3, 2**70), st.floats(), st.text(max_size=3),
        st.lists(st.one_of(st.integers(), st.text(max_size=2)), max_size=4), st.dictionaries(st.text(), st.none()),
    )  # fmt: skip
    try:
        geometry = architectures.geometry({**config, **{key: data.draw(junk, key) for key in sorted(keys)}})
    except FactsError:
        return
    assert geometry.parameters_total > 0
