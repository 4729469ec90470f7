"""config.json -> Geometry, by the rows of its model_type's family. Unknown: refused with the reason, never a guess."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from llm_serving_exporter.errors import FactsError
from llm_serving_exporter.facts.fields import MOST_LAYERS, Fields
from llm_serving_exporter.facts.shapes import Family, evaluate
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.shape import Geometry, Part
from llm_serving_exporter.model.snapshot import Absence

# a family, or what chooses one by a config
Rows = Family | Callable[[Fields], Family]

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
# classes that end in "Model" and do decode: GPT-2's and multimodal chat models'
_DECODING = ("LMHeadModel", "ChatModel", "_Model")
# `per_layer_config`, in which transformers 5 writes what single layers have instead of the config's own value, for any architecture.
#
# It takes the place of keys that a family had for its other kind of layer: a Gemma 4 that was saved again has no `global_head_dim` any
# more, and its full layers' KV heads stand there alone. For these families the keys are put back, so that a formula reads one spelling. Of
# other families, and where layers of one kind differ, a config is refused: its sizes are not those that its other keys say. Rules as in
# transformers 5.24.0 (integrations/heterogeneity/configuration_utils.py): what equals the config's own value is not written.
_PER_LAYER = "per_layer_config"
_GEMMA4 = ("full_attention", {"head_dim": "global_head_dim", "num_key_value_heads": "num_global_key_value_heads"})
_DOTS3_SIZES = (
    "num_attention_heads", "num_key_value_heads", "q_lora_rank", "kv_lora_rank", "head_dim", "qk_nope_head_dim", "qk_rope_head_dim",
    "v_head_dim",
)  # fmt: skip
_DOTS3 = ("sliding_attention", {size: f"swa_{size}" for size in _DOTS3_SIZES})
_STEP3P5 = ("sliding_attention", {"num_attention_heads": "num_sliding_attention_heads"})
# by model_type: the entry of `layer_types` whose layers may differ, and by key what the family calls it for them
_OVERRIDING: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "gemma4_text": _GEMMA4, "gemma4_unified_text": _GEMMA4, "dots3_note_text": _DOTS3, "step3p5": _STEP3P5, "step3p7": _STEP3P5,
}  # fmt: skip


def list_families() -> Iterator[Mapping[str, Rows]]:
    """The families of each module of rows, most asked for first. A module is imported when none before it has the type."""
    from llm_serving_exporter.facts.families import dense

    yield dense.FAMILIES
    from llm_serving_exporter.facts.families import experts

    yield experts.FAMILIES
    from llm_serving_exporter.facts.families import latent

    yield latent.FAMILIES
    from llm_serving_exporter.facts.families import recurrent

    yield recurrent.FAMILIES
    from llm_serving_exporter.facts.families import encoders

    yield encoders.FAMILIES
    from llm_serving_exporter.facts.families import several

    yield several.FAMILIES


def find_family(model_type: str) -> Rows | None:
    """The rows of a model type, or what chooses them by a config; None for one that no rows are of."""
    return next((families[model_type] for families in list_families() if model_type in families), None)


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
    found = find_family(family(fields))
    if found is None:
        what = (
            f"model_type is {fields.model_type!r}, which no formula here covers; without one no ceiling is shown"
            if fields.model_type
            else "it has no model_type, by which a formula is chosen; copy the config.json that lies beside the model's weights"
        )
        raise FactsError(Absence.ARCHITECTURE_UNKNOWN.value, f"config.json: {what}")
    read = _restore_keys(_untie_language(fields))
    built = evaluate(read, found if isinstance(found, Family) else found(read))
    return without_lm_head(built) if embeds(fields.architecture) else built


def _untie_language(fields: Fields) -> Fields:
    """Transformers 5 ties tables where the outer config says so, whatever the language part says, and saves that part's class default
    beside it (modeling_utils.py, get_expanded_tied_weights_keys). Its true there is a class default too, and no news."""
    version = fields.find_around("transformers_version")
    major = version.partition(".")[0] if isinstance(version, str) else ""
    if not (fields.nested and major.isdecimal() and int(major) >= _OUTER_TIES):
        return fields
    return fields.with_values({_TIED: False}) if fields.outer.get(_TIED) is False else fields


def family(fields: Fields) -> str:
    """The key of its rows: `model_type`, or where none has it what engines take a model of that class for; "" for neither."""
    if find_family(fields.model_type) is not None:
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


def embeds(architecture: str) -> bool:
    """Whether the class of config.json's `architectures` is a bare stack ("MistralModel"), as embedders' configs name it.

    Models such as Qwen3-Embedding name a "...ForCausalLM": their config does not tell, only the server's task does.
    """
    return architecture.endswith("Model") and not architecture.endswith(_DECODING)


def without_lm_head(geometry: Geometry) -> Geometry:
    """The same stack as an embedder: no lm_head (a tied table stays, as input embedding), no KV cache. An encoder comes back as it is."""
    if geometry.encoder:
        return geometry
    kept = (
        replace(module, part=Part.EMBEDDING) if geometry.tied and module.part is Part.LM_HEAD else module
        for module in geometry.modules
        if geometry.tied or module.part is not Part.LM_HEAD
    )
    attention = tuple(replace(group, kv_elements=0, decode_flops=0) for group in geometry.attention)
    return replace(geometry, modules=tuple(kept), attention=attention, encoder=True)


def _restore_keys(fields: Fields) -> Fields:
    """The fields with a family's own keys instead of `per_layer_config`; as they are where there is none.

    Raises FactsError where it holds what no formula here reads.
    """
    written = fields.values.get(_PER_LAYER)
    if written is None:
        return fields
    if not isinstance(written, Mapping) or len(written) > MOST_LAYERS:
        raise fields.refused(_PER_LAYER, f"is not a mapping of at most {MOST_LAYERS} layers")
    differing = {layer: own for layer, entry in written.items() if (own := _differing(fields, layer, entry))}
    kind, keys = _OVERRIDING.get(fields.model_type, ("", {}))
    if not kind:
        if differing:
            layer = next(iter(differing))[:8]
            raise fields.refused(_PER_LAYER, f"gives layer {layer} sizes of its own, which no formula here covers")
        return fields
    own = _of_kind(fields, differing, kind)
    unknown = next((key for key in own if key not in keys), None)
    if unknown is not None:
        raise fields.refused(_PER_LAYER, f"gives layers a {unknown[:64]} of their own, which no formula here covers")
    values = {named: own.get(key, fields.values.get(key)) for key, named in keys.items()}
    return fields.with_values({named: value for named, value in values.items() if value is not None})


def _differing(fields: Fields, layer: Any, entry: Any) -> Mapping[str, Any]:
    """What a layer has instead of the config's own values."""
    if not isinstance(entry, Mapping):
        raise fields.refused(_PER_LAYER, f"has no mapping for layer {str(layer)[:8]}")
    return {key: value for key, value in entry.items() if key not in fields.values or fields.values[key] != value}


def _of_kind(fields: Fields, differing: Mapping[str, Mapping[str, Any]], kind: str) -> Mapping[str, Any]:
    """What all layers of a kind have in common instead of the config's own values."""
    said = fields.listed("layer_types")
    if said is None:
        raise fields.refused("layer_types", f"is missing, of which {_PER_LAYER} tells only single layers")
    of_kind = tuple(str(layer) for layer, each in enumerate(said) if each == kind)
    # written with leading zeros: "05" beside "11"
    found = {str(int(layer)) if str(layer).isdigit() else str(layer): own for layer, own in differing.items()}
    own = next(iter(found.values()), {})
    for layer in (*found, *(of_kind if found else ())):
        if layer not in of_kind or found.get(layer) != own:
            raise fields.refused(
                _PER_LAYER, f"gives layer {layer[:8]} other sizes than the {kind} layers, which no formula here covers"
            )
    return own
