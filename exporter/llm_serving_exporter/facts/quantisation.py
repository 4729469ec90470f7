"""Which format each module is served in: dtype and quantisation of a config, or what the user says is served.

What stays in the model's dtype whatever the dialect (facts model-math D.6): embeddings, norms and biases, convolutions and other modules
that are no Linear, and routers (vLLM builds them without a quantisation; exports list them as left out or hold them as no Linear).
lm_head as each reader says. Nothing is guessed: a dialect or layout that no reader knows is refused by name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from llm_serving_exporter.errors import FactsError
from llm_serving_exporter.facts import formats
from llm_serving_exporter.facts import quant_dialects as dialects
from llm_serving_exporter.facts.architectures import language
from llm_serving_exporter.facts.quant_names import names
from llm_serving_exporter.facts.quant_settings import Scheme, Settings
from llm_serving_exporter.model.geometry import Geometry, Module, Part
from llm_serving_exporter.model.record import Struct
from llm_serving_exporter.model.snapshot import Absence
from llm_serving_exporter.model.weights import WeightFormat

_NEVER = frozenset({Part.EMBEDDING, Part.ENCODER_ONLY, Part.ROUTER, Part.NORM})


class Share(Struct, frozen=True):
    """Some places of a module, which one format keeps."""

    module: Module
    format: WeightFormat  # of the weights at these places
    places: int  # how many of `module.places`


class Assignment(Struct, frozen=True):
    """The format of every matrix of a model."""

    shares: tuple[Share, ...]  # all modules; one that mixes formats stands once for each
    dtype: WeightFormat  # format of the vectors (norms, biases)
    method: str = ""  # name of the quantisation; "": none


def assign(
    config: Mapping[str, Any],
    hf_quant_config: Mapping[str, Any] | None,
    geometry: Geometry,
    *,
    override: WeightFormat | None = None,
) -> Assignment:
    """The formats that a parsed config.json, and hf_quant_config.json where the model has one, give to a geometry's modules.

    `override` is what the user says is served and wins over both: a dtype holds for all of the model; a GGUF format too, embeddings and
    norms included (its bits are a file's mean); a quantisation (`vllm --quantization fp8` on a bf16 checkpoint) for all Linear modules
    but lm_head and routers.
    Raises FactsError (model_unknown) for a dialect or layout that is not known.
    """
    if override is not None and (formats.is_plain(override) or formats.is_gguf(override)):
        return uniform(geometry, override)
    base = dtype(config)
    if override is not None:
        chosen = override
        return _assigned(geometry, base, Scheme(override.name, lambda _module, _names: chosen))
    return _assigned(geometry, base, scheme(config, hf_quant_config))


def uniform(geometry: Geometry, weight_format: WeightFormat) -> Assignment:
    """Every parameter in one format, lm_head included: bytes as in publications that multiply a parameter count."""
    method = "" if formats.is_plain(weight_format) else weight_format.name
    shares = tuple(Share(module, weight_format, module.places) for module in geometry.modules)
    return Assignment(shares, weight_format, method)


def dtype(config: Mapping[str, Any]) -> WeightFormat:
    """The dtype of unquantised weights, from `dtype` or `torch_dtype`; bf16 where neither says one.

    float32 counts as bf16: vLLM's dtype "auto" casts such checkpoints to 2 bytes (config/model.py _resolve_auto_dtype: the platform's
    first dtype, bf16 on CUDA from compute capability 8.0, fp16 for pooling models). Raises FactsError for others.
    """
    inner = language(config).values
    for values in (inner, config):
        for key in ("dtype", "torch_dtype"):
            value = values.get(key)
            if value is None or value == "auto":
                continue
            found = _DTYPES.get(str(value).removeprefix("torch."))
            if found is None:
                raise FactsError(
                    Absence.MODEL_UNKNOWN.value, f"config.json: {key} is {str(value)[:64]!r}, not a known dtype"
                )
            return found
    return formats.BF16


_DTYPES: Mapping[str, WeightFormat] = MappingProxyType(
    # float8: said of quantised checkpoints whose other modules are bf16
    {
        "bfloat16": formats.BF16, "float16": formats.FP16, "half": formats.FP16, "float32": formats.BF16, "float": formats.BF16,
        "float8_e4m3fn": formats.BF16,
    }
)  # fmt: skip


def settings(config: Mapping[str, Any], hf_quant_config: Mapping[str, Any] | None) -> Settings | None:
    """The quantisation's settings: config.json's go before hf_quant_config.json, as in vLLM; None for an unquantised model."""
    for values in (config, language(config).values):
        for key in ("quantization_config", "compression_config"):
            found = values.get(key)
            if isinstance(found, Mapping) and found:
                return Settings(_method(found), found)
    if hf_quant_config:
        return Settings("modelopt", hf_quant_config)
    return None


def _method(values: Mapping[str, Any]) -> str:
    method = values.get("quant_method")
    if isinstance(method, str) and method:
        return method.lower().replace("_", "-")
    return "modelopt" if dialects.is_modelopt(values) else ""


def scheme(config: Mapping[str, Any], hf_quant_config: Mapping[str, Any] | None) -> Scheme | None:
    """What the quantisation of these two does; None for none. Raises FactsError for a dialect or layout that is not known."""
    found = settings(config, hf_quant_config)
    if found is None:
        said = config.get("quantization_config")
        if said and not isinstance(said, Mapping):
            raise FactsError(
                Absence.MODEL_UNKNOWN.value,
                f"config.json: quantization_config is {str(said)[:64]!r}, not a mapping; name the format that is served instead",
            )
        return None
    reader = dialects.READERS.get(found.method)
    if reader is None:
        said = found.values.get("quant_method")
        what = "is missing" if said is None else f"is {str(said)[:64]!r}, which is not supported"
        raise FactsError(
            Absence.MODEL_UNKNOWN.value,
            f"quantization_config: quant_method {what}; name the format that is served instead",
        )
    chosen = reader(found)
    experts = found.values.get("expert_dtype") or language(config).find_around("expert_dtype")
    if chosen is None or experts is None or found.method != "fp8":
        return chosen
    return dialects.expert_dtype(chosen, experts, found)


def _assigned(geometry: Geometry, base: WeightFormat, chosen: Scheme | None) -> Assignment:
    """Raises FactsError where a quantisation takes none of the matrices: its names are those of another model, or are spelled in a way
    that is not known here, and the weights are not what the dtype says."""
    shares: list[Share] = []
    taken = False
    for module in geometry.modules:
        if chosen is None or not _subject(module, chosen):
            shares.append(Share(module, base, module.places))
            continue
        given = [chosen.choose(module, names(module, layer)) for layer in (module.layers or (None,))]
        taken = taken or any(weight_format is not None for weight_format in given)
        places = Counter(weight_format or base for weight_format in given)
        shares += [Share(module, weight_format, count) for weight_format, count in places.items()]
    if chosen is not None and not taken:
        raise FactsError(
            Absence.MODEL_UNKNOWN.value,
            f"quantization_config ({chosen.method}) names no matrix of a {geometry.family}; name the format that is served instead",
        )
    return Assignment(tuple(shares), base, chosen.method if chosen is not None else "")


def _subject(module: Module, chosen: Scheme) -> bool:
    # stacked experts are one tensor in some checkpoints, and quantised all the same
    takes = module.linear or module.part is Part.EXPERT
    if not takes or not module.matrix or module.part in _NEVER:
        return False
    return module.part is not Part.LM_HEAD or chosen.lm_head
