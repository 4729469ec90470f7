"""The KV cache's element size: a dtype of its own, which engines are told by flag or take from the checkpoint (facts B.9)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from llm_serving_exporter.errors import FactsError
from llm_serving_exporter.facts import formats
from llm_serving_exporter.facts.architectures import family, language
from llm_serving_exporter.facts.quantisation import settings
from llm_serving_exporter.model.record import Struct
from llm_serving_exporter.model.snapshot import Absence
from llm_serving_exporter.model.weights import WeightFormat


class KvFormat(Struct, frozen=True):
    """The format of the KV cache's elements."""

    name: str  # in one spelling, whatever the engine calls it
    bytes: float  # per stored element, with scales where their share does not depend on the head size


_BF16, _FP16, _FP32 = KvFormat("bf16", 2.0), KvFormat("fp16", 2.0), KvFormat("fp32", 4.0)
_FP8_E4M3, _FP8_E5M2, _INT8 = KvFormat("fp8_e4m3", 1.0), KvFormat("fp8_e5m2", 1.0), KvFormat("int8", 1.0)
_NVFP4 = KvFormat("nvfp4", formats.NVFP4.bytes)
# vLLM's cache_dtype (config/cache.py CacheDType), llama.cpp's --cache-type-k, and how people write them
_NAMED: Mapping[str, KvFormat] = MappingProxyType(
    {
        "bf16": _BF16, "bfloat16": _BF16, "fp16": _FP16, "float16": _FP16, "half": _FP16, "f16": _FP16,
        "fp32": _FP32, "float32": _FP32, "f32": _FP32,
        # vLLM: fp8 is fp8_e4m3 on CUDA
        "fp8": _FP8_E4M3, "fp8_e4m3": _FP8_E4M3, "fp8_e4m3fn": _FP8_E4M3, "fp8_inc": _FP8_E4M3, "fp8_e5m2": _FP8_E5M2,
        "int8": _INT8, "nvfp4": _NVFP4, "fp4": _NVFP4,
        # 512 latent elements in fp8 with four fp32 scales, 64 rotary ones in bf16: 656 bytes a token and layer for 576 elements
        "fp8_ds_mla": KvFormat("fp8_ds_mla", (512 + 4 * 4 + 64 * 2) / 576),
        # the 512 in fp4 with a scale for each 16, the rotary ones in fp8: 352 bytes (vLLM's flashmla_sparse.py)
        "nvfp4_ds_mla": KvFormat("nvfp4_ds_mla", (512 / 2 + 64 + 512 / 16) / 576),
        "nvfp4_4over6": KvFormat("nvfp4_4over6", formats.NVFP4.bytes),
        # SGLang (model_executor/pool_configurator.py): a scale of a byte for each 32 and each 16 elements; the older name of the latter
        "mxfp8": KvFormat("mxfp8", 1 + 1 / 32),
        **dict.fromkeys(("fp4_mx_block16", "fp4_e2m1"), KvFormat("fp4_mx_block16", 0.5 + 1 / 16)),
        # GGUF blocks of 32
        **{name: KvFormat(name, formats.GGUF_BLOCK_BITS[name] / 8) for name in ("q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl")},
    }
)  # fmt: skip
# one fp32 scale a token and head, so that the share depends on the head size
_PER_TOKEN_HEAD: Mapping[str, float] = MappingProxyType(
    {"fp8_per_token_head": 1.0, "int8_per_token_head": 1.0, "int4_per_token_head": 0.5}
)
_SCALE_BYTES = 4.0


def names() -> tuple[str, ...]:
    """Every name that `kv_format` takes, sorted."""
    return tuple(sorted({"auto", *_NAMED, *_PER_TOKEN_HEAD}))


def kv_format(text: str, model_dtype: WeightFormat, *, head_size: int | None = None) -> KvFormat:
    """What a KV cache dtype's name means, in any case, with `-` or `_`.

    "auto" is the model's dtype (engines may take the checkpoint's, see `hint`). `head_size` adds the scales of the per-token-head kinds.
    Raises FactsError (model_unknown) that lists the names.
    """
    key = text.strip().lower().replace("-", "_").removeprefix("torch.")
    if key == "auto":
        return KvFormat(model_dtype.name, model_dtype.bytes)
    if key in _NAMED:
        return _NAMED[key]
    if key in _PER_TOKEN_HEAD:
        return KvFormat(key, _PER_TOKEN_HEAD[key] + (_SCALE_BYTES / head_size if head_size else 0.0))
    raise FactsError(
        Absence.MODEL_UNKNOWN.value, f"KV cache dtype {text[:64]!r} is not known; known are {', '.join(names())}"
    )


def hint(config: Mapping[str, Any], hf_quant_config: Mapping[str, Any] | None) -> str | None:
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
