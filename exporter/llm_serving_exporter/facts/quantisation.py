"""Which format each module is served in: dtype and quantisation of a config, or what the user says is served.

What stays in the model's dtype whatever the dialect (facts model-math D.6): embeddings, norms and biases, convolutions and other modules
that are no Linear, and routers (vLLM builds them without a quantisation; exports list them as left out or hold them as no Linear).
lm_head as each reader says. Nothing is guessed: a dialect or layout that no reader knows is refused by name.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any

from llm_serving_exporter.facts import formats
from llm_serving_exporter.facts import quant_dialects as dialects
from llm_serving_exporter.facts.architectures import family, language, without_lm_head
from llm_serving_exporter.facts.fields import model_unknown
from llm_serving_exporter.facts.quant_dialects import Scheme, Settings, module_names
from llm_serving_exporter.model.record import Struct, replace
from llm_serving_exporter.model.shape import Geometry, ModelFacts, Module, Part, Precision, WeightFormat, WeightGroup

_INSTEAD = "; name the format that is served instead"
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
        return _assigned(geometry, base, Scheme(override.name, lambda _: override))
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
                raise model_unknown(f"config.json: {key} is {str(value)[:64]!r}, not a known dtype")
            return found
    return formats.BF16


_DTYPES: Mapping[str, WeightFormat] = {
    "bfloat16": formats.BF16, "float16": formats.FP16, "half": formats.FP16, "float32": formats.BF16, "float": formats.BF16,
    "float8_e4m3fn": formats.BF16,  # said of quantised checkpoints whose other modules are bf16
}  # fmt: skip


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
            raise model_unknown(f"config.json: quantization_config is {str(said)[:64]!r}, not a mapping{_INSTEAD}")
        return None
    reader = dialects.READERS.get(found.method)
    if reader is None:
        said = found.values.get("quant_method")
        what = "is missing" if said is None else f"is {str(said)[:64]!r}, which is not supported"
        raise model_unknown(f"quantization_config: quant_method {what}{_INSTEAD}")
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
        own = chosen.experts if module.part is Part.EXPERT else None
        given = [own or chosen.choose(module_names(module, layer)) for layer in (module.layers or (None,))]
        taken = taken or any(weight_format is not None for weight_format in given)
        places = Counter(weight_format or base for weight_format in given)
        shares += [Share(module, weight_format, count) for weight_format, count in places.items()]
    if chosen is not None and not taken:
        raise model_unknown(f"quantization_config ({chosen.method}) names no matrix of a {geometry.family}{_INSTEAD}")
    return Assignment(tuple(shares), base, chosen.method if chosen is not None else "")


def _subject(module: Module, chosen: Scheme) -> bool:
    # stacked experts are one tensor in some checkpoints, and quantised all the same
    takes = module.linear or module.part is Part.EXPERT
    if not takes or not module.matrix or module.part in _NEVER:
        return False
    if chosen.only_experts:
        return module.part is Part.EXPERT
    return module.part is not Part.LM_HEAD or chosen.lm_head


def kv_hint(config: Mapping[str, Any], hf_quant_config: Mapping[str, Any] | None) -> str | None:
    """The KV dtype that the checkpoint was calibrated for: "fp8_e4m3", "nvfp4" or "int8"; None where it says nothing.

    A hint, not a fact of what is served: vLLM takes it for "auto" with ModelOpt (utils/torch_utils.py resolve_kv_cache_dtype_string) and
    compressed-tensors checkpoints, older ones and other engines do not, and a flag overrides it. DeepSeek-V4 is kept in FP8 by default
    whatever its config says (vLLM models/deepseek_v4/attention.py).
    """
    if family(language(config)) == "deepseek_v4":
        return "fp8_ds_mla"
    found = settings(config, hf_quant_config)
    if found is None:
        return None
    inner = found.values.get("quantization")
    for values in (inner, found.values):
        if not isinstance(values, Mapping):
            continue
        for key in ("kv_cache_scheme", "kv_cache_quant_algo"):
            said = _hinted(values.get(key))
            if said is not None:
                return said
    return None


def _hinted(value: object) -> str | None:
    if isinstance(value, str):
        return {"fp8": "fp8_e4m3", "nvfp4": "nvfp4", "int8": "int8"}.get(value.lower())
    if isinstance(value, Mapping):
        kind, bits = value.get("type"), value.get("num_bits")
        if bits == 8 and kind in ("float", "int"):
            return "fp8_e4m3" if kind == "float" else "int8"
    return None


# --- bytes of the weights, and of one decode step's reads of them (facts model-math D.2)

_WEIGHED_BY_VLLM = frozenset({Part.ATTENTION, Part.FFN, Part.EXPERT})
# the methods of which vLLM's estimator has the right bytes per weight (vllm/v1/metrics/perf.py, facts E.5); "" is no quantisation
_METHODS_ESTIMATED = frozenset({"", "fp8", "fbgemm_fp8", "modelopt"})


_ROLES = {
    Part.EMBEDDING: "embedding", Part.ENCODER_ONLY: "embedding", Part.LM_HEAD: "lm_head", Part.EXPERT: "expert"
}  # fmt: skip


def weigh(geometry: Geometry, assignment: Assignment) -> tuple[WeightGroup, ...]:
    """One group a format, in the order of the modules. `assignment` must be of this geometry.

    Vectors (norms, biases) are in the model's dtype and count for bytes, not for matrix parameters. A tied table is lm_head: kept once,
    read whole. `expert_bytes` are of one of `geometry.experts`.
    """
    sums: dict[WeightFormat, dict[str, Any]] = {}
    for share in assignment.shares:
        module, role = share.module, _ROLES.get(share.module.part, "fixed")
        matrix, vector = module.matrix * share.places, module.vector * share.places
        for elements, weight_format in ((matrix, share.format), (vector, assignment.dtype)):
            if elements:
                group = sums.setdefault(weight_format, defaultdict(int))
                group[f"{role}_bytes"] += elements * weight_format.bytes
                group["ffn_bytes"] += elements * weight_format.bytes if module.part is Part.FFN else 0.0
        if matrix and role != "embedding":
            sums[share.format][f"{role}_parameters"] += matrix
    return tuple(WeightGroup(weight_format, **group) for weight_format, group in sums.items())


def estimate_sound(geometry: Geometry, assignment: Assignment) -> bool:
    """Whether vLLM's own byte estimate can be right for this model (facts E.5).

    It takes one width for all weights: dense and MoE decoders of which every attention and FFN matrix is bf16, fp16 or fp8. Not hybrids
    (their recurrent layers are billed as attention), other quantisations (4 bits or half of the bytes assumed, or no component at all),
    nor fp8 checkpoints that leave part of their matrices unquantised. Speculation makes it unsound too, which the config does not tell.
    """
    if geometry.recurrent or geometry.encoder or assignment.method not in _METHODS_ESTIMATED:
        return False
    kept = {
        share.format for share in assignment.shares if share.module.part in _WEIGHED_BY_VLLM and share.module.matrix
    }
    if len(kept) != 1:
        return False
    (weight_format,) = kept
    eight_bits = weight_format.multiplied is Precision.FP8 and weight_format.bits < formats.MXFP8.bits
    return eight_bits or weight_format in (formats.BF16, formats.FP16)


def as_embedder(model: ModelFacts) -> ModelFacts:
    """The same model as a server that pools loads it: no lm_head, a tied table as input embedding alone. An encoder comes back as it is."""
    if model.geometry.encoder:
        return model
    tied = model.geometry.tied
    groups = tuple(
        replace(
            group,
            lm_head_bytes=0.0,
            lm_head_parameters=0,
            embedding_bytes=group.embedding_bytes + (group.lm_head_bytes if tied else 0.0),
        )
        for group in model.groups
    )
    return replace(model, geometry=without_lm_head(model.geometry), groups=groups)
