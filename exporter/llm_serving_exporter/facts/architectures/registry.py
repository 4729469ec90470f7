"""config.json -> Geometry, by its model_type. Unknown: refused with the reason, never a guess."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from llm_serving_exporter.errors import FactsError
from llm_serving_exporter.facts.architectures import embedder
from llm_serving_exporter.facts.architectures.layer_overrides import restore_keys
from llm_serving_exporter.facts.fields import Fields
from llm_serving_exporter.model.geometry import Geometry
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.snapshot import Absence

Builder = Callable[[Fields], Geometry]

# what engines load by the class that a config names, whatever its model_type (vLLM's and SGLang's registries)
_BY_CLASS: Mapping[str, str] = {
    "LlamaForCausalLM": "llama", "MistralForCausalLM": "mistral", "MixtralForCausalLM": "mixtral", "Phi3ForCausalLM": "phi3",
    "Qwen2ForCausalLM": "qwen2", "Qwen2MoeForCausalLM": "qwen2_moe", "Qwen3ForCausalLM": "qwen3", "Qwen3MoeForCausalLM": "qwen3_moe",
    "GemmaForCausalLM": "gemma", "Gemma2ForCausalLM": "gemma2", "Gemma3ForCausalLM": "gemma3_text", "GptOssForCausalLM": "gpt_oss",
    "DeepseekForCausalLM": "deepseek", "DeepseekV2ForCausalLM": "deepseek_v2", "DeepseekV3ForCausalLM": "deepseek_v3",
    "DeepseekV32ForCausalLM": "deepseek_v32", "DeepseekV4ForCausalLM": "deepseek_v4", "GlmMoeDsaForCausalLM": "glm_moe_dsa",
    "Glm4MoeForCausalLM": "glm4_moe", "KimiLinearForCausalLM": "kimi_linear", "MiniMaxM2ForCausalLM": "minimax_m2",
    "MiMoV2ForCausalLM": "mimo_v2", "Step3p5ForCausalLM": "step3p5", "NemotronHForCausalLM": "nemotron_h",
    "DeciLMForCausalLM": "nemotron-nas",
    # subclasses of Llama's and Ling's that change no size
    "TeleChat3ForCausalLM": "llama", "TeleFLMForCausalLM": "llama", "SarvamMoEForCausalLM": "bailing_moe",
}  # fmt: skip
# classes of what drafts for another model, whose configs have that one's model_type: "LlamaForCausalLMEagle3", "DFlashDraftModel"
_DRAFTS = re.compile(r"eagle|medusa|draft|nextn|mtp", re.IGNORECASE)
# keys under which multimodal configs keep the language part
_LANGUAGE_KEYS = ("text_config", "language_config", "llm_config", "thinker_config")
_TIED = "tie_word_embeddings"
_OUTER_TIES = 5  # from this version of transformers on
_MOST_LEVELS = 4  # two are usual: thinker_config.text_config


def _list_builders() -> Iterator[Mapping[str, Builder]]:
    """Builders by model_type; a family's own module says which formulas hold. A module is imported when none before it has the type: all
    of them stay resident with 1.3 MB, of which a server needs little."""
    from llm_serving_exporter.facts.architectures import dense

    yield dense.BUILDERS
    from llm_serving_exporter.facts.architectures import moe

    yield moe.BUILDERS
    from llm_serving_exporter.facts.architectures import hybrid

    yield hybrid.BUILDERS
    from llm_serving_exporter.facts.architectures import encoder

    yield encoder.BUILDERS
    from llm_serving_exporter.facts.architectures import flagships

    yield flagships.BUILDERS


@lru_cache(maxsize=256)
def find_builder(model_type: str) -> Builder | None:
    """The formulas of a model type; None for one that no formula here covers."""
    return next((builders[model_type] for builders in _list_builders() if model_type in builders), None)


def geometry(config: Mapping[str, Any]) -> Geometry:
    """The geometry of a parsed config.json. Raises FactsError (architecture_unknown) that names the key and what is missing.

    `architectures` with a bare stack ("MistralModel") means an embedder: no lm_head, no decode.
    """
    fields = language(config)
    if _DRAFTS.search(fields.architecture):
        said = fields.architecture[:64]
        raise fields.refused(
            "architectures",
            f"is {said!r}, which drafts for another model; give the config.json of the model that it drafts for",
        )
    builder = find_builder(family(fields))
    if builder is None:
        what = (
            f"model_type is {fields.model_type!r}, which no formula here covers; without one no ceiling is shown"
            if fields.model_type
            else "it has no model_type, by which a formula is chosen; copy the config.json that lies beside the model's weights"
        )
        raise FactsError(Absence.ARCHITECTURE_UNKNOWN.value, f"config.json: {what}")
    built = _drop_kinds_of_no_layer(builder(restore_keys(_untie_language(fields))))
    return embedder.without_lm_head(built) if embedder.embeds(fields.architecture) else built


def _untie_language(fields: Fields) -> Fields:
    """Transformers 5 ties tables where the outer config says so, whatever the language part says, and saves that part's class default
    beside it (modeling_utils.py, get_expanded_tied_weights_keys). Its true there is a class default too, and no news."""
    version = fields.find_around("transformers_version")
    major = version.partition(".")[0] if isinstance(version, str) else ""
    if not (fields.nested and major.isdecimal() and int(major) >= _OUTER_TIES):
        return fields
    return fields.with_values({_TIED: False}) if fields.outer.get(_TIED) is False else fields


def _drop_kinds_of_no_layer(built: Geometry) -> Geometry:
    """A kind of layer that a config leaves without any: a module of no layer would count once, as one outside of the layers does."""
    return replace(
        built,
        modules=tuple(module for module in built.modules if module.layers or "{}" not in module.path),
        attention=tuple(group for group in built.attention if group.layers),
        recurrent=tuple(group for group in built.recurrent if group.layers),
    )


def family(fields: Fields) -> str:
    """The key of the builder: `model_type`, or where none has it what engines take a model of that class for; "" for neither."""
    if find_builder(fields.model_type) is not None:
        return fields.model_type
    return _BY_CLASS.get(fields.architecture, "")


def language(config: Mapping[str, Any]) -> Fields:
    """The fields of the language part, wherever the config keeps it; what encloses it stays at hand, the nearer level first."""
    outer: dict[str, Any] = {}
    for _ in range(_MOST_LEVELS):
        inner = (config[key] for key in _LANGUAGE_KEYS if isinstance(config.get(key), Mapping) and config[key])
        nested = next(inner, None)
        if nested is None:
            return Fields(config, outer)
        outer, config = {**outer, **config}, nested
    raise Fields(config, outer).refused("text_config", f"lies deeper than {_MOST_LEVELS} levels")
