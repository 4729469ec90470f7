"""The weight formats there are: bits per stored weight with scales and zero points, and the rate they are multiplied at.

Bits: facts model-math D.5; derived from each layout as written beside it. Rates: facts nvml-gpus D.3. A format whose activations stay
16-bit is dequantised and multiplied at BF16's rate, also where the GPU has tensor cores for the stored width.

MXFP4 without quantised activations (gpt-oss) counts as such: its checkpoint says nothing of activations, and engines keep them bf16
(or MXFP8 on request on Blackwell, which then runs at FP8's rate, never at FP4's). GGUF: llama.cpp quantises activations to 8 bits
(Q8_1) and multiplies in int8, in mmvq.cu for one sequence and in mmq.cu for many
(https://github.com/ggml-org/llama.cpp/tree/master/ggml/src/ggml-cuda).
"""

from __future__ import annotations

from collections.abc import Mapping

from llm_serving_exporter.errors import FactsError
from llm_serving_exporter.facts.fields import model_unknown
from llm_serving_exporter.model.record import Struct
from llm_serving_exporter.model.shape import Precision, WeightFormat

_HALF_BITS = 16.0
_FLOAT_BITS = 32.0

FP32 = WeightFormat("fp32", 32.0, Precision.FP32)
BF16 = WeightFormat("bf16", 16.0, Precision.BF16)
FP16 = WeightFormat("fp16", 16.0, Precision.BF16)
# one scale a tensor or row: below 0.01 bits
FP8 = WeightFormat("fp8", 8.0, Precision.FP8)
FP8_WEIGHT_ONLY = WeightFormat("fp8_w8a16", 8.0, Precision.BF16)
INT8 = WeightFormat("int8", 8.0, Precision.INT8)
INT8_WEIGHT_ONLY = WeightFormat("int8_w8a16", 8.0, Precision.BF16)
# one e8m0 scale per 32 weights
MXFP8 = WeightFormat("mxfp8", 8.0 + 8 / 32, Precision.FP8)
MXFP4 = WeightFormat("mxfp4", 4.0 + 8 / 32, Precision.BF16)
MXFP4_W4A4 = WeightFormat("mxfp4_w4a4", MXFP4.bits, Precision.FP4)
MXFP4_W4A8 = WeightFormat("mxfp4_w4a8", MXFP4.bits, Precision.FP8)
# one e4m3 scale per 16 weights; the fp32 of the tensor is nothing beside it
NVFP4 = WeightFormat("nvfp4", 4.0 + 8 / 16, Precision.FP4)
NVFP4_WEIGHT_ONLY = WeightFormat("nvfp4_w4a16", NVFP4.bits, Precision.BF16)
NVFP4_W4A8 = WeightFormat("nvfp4_w4a8", NVFP4.bits, Precision.FP8)
# bitsandbytes: fp32 absmax per 64 weights; double quantisation makes it 8 bits, with an fp32 per 256 of those
NF4 = WeightFormat("nf4", 4.0 + _FLOAT_BITS / 64, Precision.BF16)
NF4_DOUBLE = WeightFormat("nf4_double", 4.0 + 8 / 64 + _FLOAT_BITS / (64 * 256), Precision.BF16)


def fp8_block(rows: int, columns: int) -> WeightFormat:
    """FP8 with one fp32 scale a block of rows x columns weights (DeepSeek: 128 x 128)."""
    name = "fp8_block" if (rows, columns) == (128, 128) else f"fp8_block_{rows}x{columns}"
    return WeightFormat(name, 8.0 + _FLOAT_BITS / (rows * columns), Precision.FP8)


def integer(
    bits: int, group_size: int, *, zero_point: bool = False, multiplied: Precision = Precision.BF16
) -> WeightFormat:
    """Integers of 2 to 8 bits with a 16-bit scale, and where asymmetric a zero point of as many bits, per group of a row.

    `group_size` below 1: one scale a row, which is not counted. `multiplied`: INT8 or FP8 where activations are quantised too.
    """
    if group_size < 1:
        stored, name = float(bits), f"int{bits}"
    else:
        stored = bits + (_HALF_BITS + (bits if zero_point else 0)) / group_size
        name = f"int{bits}_g{group_size}" + ("_zp" if zero_point else "")
    if multiplied is not Precision.BF16:
        # plain "int8" is W8A8
        suffix = "" if (bits, multiplied) == (8, Precision.INT8) else f"_w{bits}a8_{multiplied.value}"
        return WeightFormat(name + suffix, stored, multiplied)
    return WeightFormat(name + ("_w8a16" if bits == 8 else ""), stored, multiplied)


# bytes of a block over its weights, times 8; llama.cpp ggml-common.h
GGUF_BLOCK_BITS: Mapping[str, float] = {
    "q4_0": 18 * 8 / 32, "q4_1": 20 * 8 / 32, "q5_0": 22 * 8 / 32, "q5_1": 24 * 8 / 32, "q8_0": 34 * 8 / 32,
    "q2_k": 84 * 8 / 256, "q3_k": 110 * 8 / 256, "q4_k": 144 * 8 / 256, "q5_k": 176 * 8 / 256, "q6_k": 210 * 8 / 256,
    "iq1_s": 50 * 8 / 256, "iq1_m": 56 * 8 / 256, "iq2_xxs": 66 * 8 / 256, "iq2_xs": 74 * 8 / 256, "iq2_s": 82 * 8 / 256,
    "iq3_xxs": 98 * 8 / 256, "iq3_s": 110 * 8 / 256, "iq4_xs": 136 * 8 / 256, "iq4_nl": 18 * 8 / 32,
    "tq1_0": 54 * 8 / 256, "tq2_0": 66 * 8 / 256,
}  # fmt: skip
# mean over a whole file, embeddings included, of Llama-3.1-8B: llama.cpp tools/quantize/README.md. Another model's mix of tensors
# moves it (Q4_K_M: 4.84, 4.83, 4.80 for Llama-2 7B, 13B, 70B)
GGUF_FILE_BITS: Mapping[str, float] = {
    "iq1_s": 2.0042, "iq1_m": 2.1460, "iq2_xxs": 2.3824, "iq2_xs": 2.5882, "iq2_s": 2.7403, "iq2_m": 2.9294,
    "iq3_xxs": 3.2548, "iq3_xs": 3.4977, "iq3_s": 3.6606, "iq3_m": 3.7628, "iq4_xs": 4.4597, "iq4_nl": 4.6818,
    "q2_k_s": 2.9697, "q2_k": 3.1593, "q3_k_s": 3.6429, "q3_k_l": 4.2979, "q4_k_s": 4.6672, "q4_k_m": 4.8944,
    "q5_k_s": 5.5704, "q5_k_m": 5.7036, "q6_k": 6.5633, "q8_0": 8.5008,
}  # fmt: skip


_AWQ = integer(4, 128, zero_point=True)
# what people write in configurations and on command lines, `-` written as `_`. int8: as engines quantise activations with it (W8A8)
_NAMED: Mapping[str, WeightFormat] = {
    "fp32": FP32, "float32": FP32, "float": FP32, "f32": FP32,
    "bf16": BF16, "bfloat16": BF16,
    "fp16": FP16, "float16": FP16, "half": FP16, "f16": FP16,
    "fp8": FP8, "fp8_e4m3": FP8, "float8": FP8, "w8a8_fp8": FP8, "fp8_w8a8": FP8, "fbgemm_fp8": FP8, "ptpc_fp8": FP8,
    "fp8_block": fp8_block(128, 128), "fp8_w8a16": FP8_WEIGHT_ONLY,
    "int8": INT8, "w8a8": INT8, "w8a8_int8": INT8, "int8_w8a8": INT8,
    "int8_w8a16": INT8_WEIGHT_ONLY, "w8a16": INT8_WEIGHT_ONLY, "int8_weight_only": INT8_WEIGHT_ONLY,
    "int4": integer(4, 128), "w4a16": integer(4, 128), "int4_weight_only": integer(4, 128), "int4_g32": integer(4, 32),
    "w4a8": integer(4, 128, multiplied=Precision.FP8), "w4a8_fp8": integer(4, 128, multiplied=Precision.FP8),
    "w4a8_int8": integer(4, 128, multiplied=Precision.INT8),
    "awq": _AWQ, "awq_marlin": _AWQ, "auto_awq": _AWQ, "gptq": _AWQ, "gptq_marlin": _AWQ, "auto_gptq": _AWQ,
    "gptq_int3": integer(3, 128, zero_point=True), "gptq_int8": integer(8, 128, zero_point=True),
    # scale and zero point in bf16 per 32 weights
    "gpt_fast_int4": WeightFormat("gpt_fast_int4", 4.0 + 2 * _HALF_BITS / 32, Precision.BF16),
    "nvfp4": NVFP4, "fp4": NVFP4, "modelopt_fp4": NVFP4, "nvfp4_w4a16": NVFP4_WEIGHT_ONLY, "w4a16_nvfp4": NVFP4_WEIGHT_ONLY,
    "mxfp8": MXFP8, "mxfp4": MXFP4, "mxfp4_w4a4": MXFP4_W4A4, "mxfp4_w4a8": MXFP4_W4A8,
    "nf4": NF4, "nf4_double": NF4_DOUBLE,
    # vLLM quantises on loading, with double quantisation
    "bitsandbytes": NF4_DOUBLE, "bnb": NF4_DOUBLE, "bitsandbytes_int8": INT8,
}  # fmt: skip


def names() -> tuple[str, ...]:
    """Every name that `named` takes, sorted."""
    return tuple(sorted({*_NAMED, *GGUF_FILE_BITS, *GGUF_BLOCK_BITS}))


def named(text: str) -> WeightFormat:
    """The format that a person names, in any case, with `-` or `_`; GGUF names ("Q4_K_M") mean the whole file's mean, or that of a
    block where no file's is known (Q4_0).

    Raises FactsError (model_unknown) that lists the names.
    """
    key = text.strip().lower().replace("-", "_").removeprefix("gguf_").removeprefix("torch.")
    if key in _NAMED:
        return _NAMED[key]
    bits = GGUF_FILE_BITS.get(key, GGUF_BLOCK_BITS.get(key))
    if bits is None:
        raise model_unknown(f"weight format {text[:64]!r} is not known; known are {', '.join(names())}")
    return WeightFormat(f"gguf_{key}", bits, Precision.INT8)


def plain(text: str) -> WeightFormat:
    """The dtype that a person names, of those that are no quantisation. Raises FactsError (model_unknown) that lists them."""
    try:
        found = named(text)
    except FactsError:
        found = None
    if found is None or not is_plain(found):
        raise model_unknown(f"dtype {text[:64]!r} is not known here; known are bf16, fp16, fp32")
    return found


def is_plain(weight_format: WeightFormat) -> bool:
    """Whether it is a dtype that models are trained and served in as they are, not a quantisation."""
    return weight_format in (BF16, FP16, FP32)


def is_gguf(weight_format: WeightFormat) -> bool:
    """Whether it is a GGUF format, which embeddings and lm_head are stored in too."""
    return weight_format.name.startswith("gguf_")


# --- elements of the KV cache, whose dtype engines are told by flag or take from the checkpoint (facts B.9)


class KvFormat(Struct, frozen=True):
    """The format of the KV cache's elements."""

    name: str  # in one spelling, whatever the engine calls it
    bytes: float  # per stored element, with scales where their share does not depend on the head size


_BF16, _FP16, _FP32 = KvFormat("bf16", 2.0), KvFormat("fp16", 2.0), KvFormat("fp32", 4.0)
_FP8_E4M3, _FP8_E5M2, _INT8 = KvFormat("fp8_e4m3", 1.0), KvFormat("fp8_e5m2", 1.0), KvFormat("int8", 1.0)
_NVFP4 = KvFormat("nvfp4", NVFP4.bytes)
# vLLM's cache_dtype (config/cache.py CacheDType), llama.cpp's --cache-type-k, and how people write them
_KV_NAMED: Mapping[str, KvFormat] = {
    "bf16": _BF16, "bfloat16": _BF16, "fp16": _FP16, "float16": _FP16, "half": _FP16, "f16": _FP16,
    "fp32": _FP32, "float32": _FP32, "f32": _FP32,
    # vLLM: fp8 is fp8_e4m3 on CUDA
    "fp8": _FP8_E4M3, "fp8_e4m3": _FP8_E4M3, "fp8_e4m3fn": _FP8_E4M3, "fp8_inc": _FP8_E4M3, "fp8_e5m2": _FP8_E5M2,
    "int8": _INT8, "nvfp4": _NVFP4, "fp4": _NVFP4,
    # 512 latent elements in fp8 with four fp32 scales, 64 rotary ones in bf16: 656 bytes a token and layer for 576 elements
    "fp8_ds_mla": KvFormat("fp8_ds_mla", (512 + 4 * 4 + 64 * 2) / 576),
    # the 512 in fp4 with a scale for each 16, the rotary ones in fp8: 352 bytes (vLLM's flashmla_sparse.py)
    "nvfp4_ds_mla": KvFormat("nvfp4_ds_mla", (512 / 2 + 64 + 512 / 16) / 576),
    "nvfp4_4over6": KvFormat("nvfp4_4over6", NVFP4.bytes),
    # SGLang (model_executor/pool_configurator.py): a scale of a byte for each 32 and each 16 elements; the older name of the latter
    "mxfp8": KvFormat("mxfp8", 1 + 1 / 32),
    **dict.fromkeys(("fp4_mx_block16", "fp4_e2m1"), KvFormat("fp4_mx_block16", 0.5 + 1 / 16)),
    # GGUF blocks of 32
    **{name: KvFormat(name, GGUF_BLOCK_BITS[name] / 8) for name in ("q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl")},
}  # fmt: skip
# one fp32 scale a token and head, so that the share depends on the head size
_PER_TOKEN_HEAD = {"fp8_per_token_head": 1.0, "int8_per_token_head": 1.0, "int4_per_token_head": 0.5}
_SCALE_BYTES = 4.0


def kv_names() -> tuple[str, ...]:
    """Every name that `kv_format` takes, sorted."""
    return tuple(sorted({"auto", *_KV_NAMED, *_PER_TOKEN_HEAD}))


def kv_format(text: str, model_dtype: WeightFormat, *, head_size: int | None = None) -> KvFormat:
    """What a KV cache dtype's name means, in any case, with `-` or `_`.

    "auto" is the model's dtype (engines may take the checkpoint's, see `quantisation.kv_hint`). `head_size` adds the scales of the
    per-token-head kinds.
    Raises FactsError (model_unknown) that lists the names.
    """
    key = text.strip().lower().replace("-", "_").removeprefix("torch.")
    if key == "auto":
        return KvFormat(model_dtype.name, model_dtype.bytes)
    if key in _KV_NAMED:
        return _KV_NAMED[key]
    if key in _PER_TOKEN_HEAD:
        return KvFormat(key, _PER_TOKEN_HEAD[key] + (_SCALE_BYTES / head_size if head_size else 0.0))
    raise model_unknown(f"KV cache dtype {text[:64]!r} is not known; known are {', '.join(kv_names())}")
