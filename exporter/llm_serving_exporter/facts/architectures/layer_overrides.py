"""`per_layer_config`, in which transformers 5 writes what single layers have instead of the config's own value, for any architecture.

It takes the place of keys that a family had for its other kind of layer: a Gemma 4 that was saved again has no `global_head_dim` any more,
and its full layers' KV heads stand there alone. For these families the keys are put back, so that a formula reads one spelling. Of
other families, and where layers of one kind differ, a config is refused: its sizes are not those that its other keys say.
Rules as in transformers 5.24.0 (integrations/heterogeneity/configuration_utils.py): what equals the config's own value is not written.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llm_serving_exporter.facts.fields import MOST_LAYERS, Fields

_KEY = "per_layer_config"
_GEMMA4 = ("full_attention", {"head_dim": "global_head_dim", "num_key_value_heads": "num_global_key_value_heads"})
_DOTS3_SIZES = (
    "num_attention_heads", "num_key_value_heads", "q_lora_rank", "kv_lora_rank", "head_dim", "qk_nope_head_dim", "qk_rope_head_dim",
    "v_head_dim",
)  # fmt: skip
_DOTS3 = ("sliding_attention", {size: f"swa_{size}" for size in _DOTS3_SIZES})
_STEP3P5 = ("sliding_attention", {"num_attention_heads": "num_sliding_attention_heads"})
# by model_type: the entry of `layer_types` whose layers may differ, and by key what the family calls it for them
_FAMILIES: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "gemma4_text": _GEMMA4, "gemma4_unified_text": _GEMMA4, "dots3_note_text": _DOTS3, "step3p5": _STEP3P5, "step3p7": _STEP3P5,
}  # fmt: skip


def restore_keys(fields: Fields) -> Fields:
    """The fields with a family's own keys instead of `per_layer_config`; as they are where there is none.

    Raises FactsError where it holds what no formula here reads.
    """
    written = fields.values.get(_KEY)
    if written is None:
        return fields
    if not isinstance(written, Mapping) or len(written) > MOST_LAYERS:
        raise fields.refused(_KEY, f"is not a mapping of at most {MOST_LAYERS} layers")
    differing = {layer: own for layer, entry in written.items() if (own := _differing(fields, layer, entry))}
    kind, keys = _FAMILIES.get(fields.model_type, ("", {}))
    if not kind:
        if differing:
            raise fields.refused(
                _KEY, f"gives layer {_first(differing)} sizes of its own, which no formula here covers"
            )
        return fields
    own = _of_kind(fields, differing, kind)
    unknown = next((key for key in own if key not in keys), None)
    if unknown is not None:
        raise fields.refused(_KEY, f"gives layers a {unknown[:64]} of their own, which no formula here covers")
    values = {named: own.get(key, fields.values.get(key)) for key, named in keys.items()}
    return fields.with_values({named: value for named, value in values.items() if value is not None})


def _differing(fields: Fields, layer: Any, entry: Any) -> Mapping[str, Any]:
    """What a layer has instead of the config's own values."""
    if not isinstance(entry, Mapping):
        raise fields.refused(_KEY, f"has no mapping for layer {str(layer)[:8]}")
    return {key: value for key, value in entry.items() if key not in fields.values or fields.values[key] != value}


def _of_kind(fields: Fields, differing: Mapping[str, Mapping[str, Any]], kind: str) -> Mapping[str, Any]:
    """What all layers of a kind have in common instead of the config's own values."""
    said = fields.listed("layer_types")
    if said is None:
        raise fields.refused("layer_types", f"is missing, of which {_KEY} tells only single layers")
    of_kind = tuple(str(layer) for layer, each in enumerate(said) if each == kind)
    # written with leading zeros: "05" beside "11"
    found = {str(int(layer)) if str(layer).isdigit() else str(layer): own for layer, own in differing.items()}
    own = next(iter(found.values()), {})
    for layer in (*found, *(of_kind if found else ())):
        if layer not in of_kind or found.get(layer) != own:
            raise fields.refused(
                _KEY, f"gives layer {layer[:8]} other sizes than the {kind} layers, which no formula here covers"
            )
    return own


def _first(differing: Mapping[str, Any]) -> str:
    return next(iter(differing))[:8]
