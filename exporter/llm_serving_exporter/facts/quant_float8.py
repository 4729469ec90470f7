"""Readers of the dialects that keep 8-bit or block floats: fp8, fbgemm_fp8, mxfp4 (gpt-oss), bitsandbytes.

All of them leave lm_head alone: vLLM's fp8, fbgemm and bitsandbytes methods take Linear layers and routed experts only (layers/
quantization/fp8.py: LinearBase and FusedMoE; its lm_head is neither), and its mxfp4 takes routed experts only.
"""

from __future__ import annotations

from llm_serving_exporter.facts import formats, quant_modelopt
from llm_serving_exporter.facts.quant_names import Patterns
from llm_serving_exporter.facts.quant_settings import Scheme, Settings
from llm_serving_exporter.model.geometry import Module, Part
from llm_serving_exporter.model.weights import WeightFormat


def _all_but(method: str, kept: Patterns, weight_format: WeightFormat) -> Scheme:
    def choose(module: Module, called: tuple[str, ...]) -> WeightFormat | None:
        return None if kept.match(called) else weight_format

    return Scheme(method, choose)


def fp8(settings: Settings) -> Scheme:
    """`weight_block_size` [128, 128]: a scale per block; otherwise per tensor or row. Activations are always FP8 (W8A8).

    `quantized_layers` names what ModelOpt stored otherwise over it (the experts of DeepSeek-V4's NVFP4 checkpoints); its `ignore` says
    what ModelOpt left as it was, which is FP8.
    """
    weight_format = formats.FP8
    if settings.has("weight_block_size"):
        weight_format = formats.fp8_block(*_block(settings, "weight_block_size"))
    scheme = _all_but("fp8", Patterns(settings.listed("ignored_layers", "modules_to_not_convert")), weight_format)
    if not settings.has("quantized_layers"):
        return scheme
    named = quant_modelopt.named_layers(settings)

    def choose(module: Module, called: tuple[str, ...]) -> WeightFormat | None:
        return named(called) or scheme.choose(module, called)

    return Scheme("fp8_mixed", choose)


def expert_dtype(scheme: Scheme, said: object, settings: Settings) -> Scheme:
    """The same with routed experts in a format of their own: DeepSeek-V4 keeps them in 4-bit floats with a scale for each 32 weights,
    multiplied by FP8 activations (vLLM models/deepseek_v4/quant_config.py). Raises FactsError for another word than fp4 and fp8.
    """
    if said == "fp8" or settings.has("quantized_layers"):
        return scheme
    if said != "fp4":
        raise settings.refused("expert_dtype", f"is {str(said)[:64]!r}, neither 'fp4' nor 'fp8'")

    def choose(module: Module, called: tuple[str, ...]) -> WeightFormat | None:
        return formats.MXFP4_W4A8 if module.part is Part.EXPERT else scheme.choose(module, called)

    return Scheme("fp8_mixed", choose, lm_head=scheme.lm_head)


def _block(settings: Settings, key: str) -> tuple[int, int]:
    sizes = settings.values.get(key)
    if (
        not isinstance(sizes, list)
        or len(sizes) != 2
        or any(isinstance(size, bool) or not isinstance(size, int) or size < 1 for size in sizes)
    ):
        raise settings.refused(key, f"is {str(sizes)[:64]}, not two whole numbers")
    return sizes[0], sizes[1]


def fbgemm_fp8(settings: Settings) -> Scheme:
    """FP8 with a scale per row (Llama-3.1-405B-FP8)."""
    return _all_but("fbgemm_fp8", Patterns(settings.listed("modules_to_not_convert")), formats.FP8)


def mxfp4(settings: Settings) -> Scheme:
    """gpt-oss: routed experts only, `modules_to_not_convert` lists all else."""
    kept = Patterns(settings.listed("modules_to_not_convert", "ignored_layers"))

    def choose(module: Module, called: tuple[str, ...]) -> WeightFormat | None:
        return formats.MXFP4 if module.part is Part.EXPERT and not kept.match(called) else None

    return Scheme("mxfp4", choose)


def bitsandbytes(settings: Settings) -> Scheme:
    """nf4 or fp4 with an absmax per 64 weights, or LLM.int8()."""
    if settings.flag("load_in_4bit", default=False):
        double = settings.flag("bnb_4bit_use_double_quant", default=False)
        weight_format = formats.NF4_DOUBLE if double else formats.NF4
    elif settings.flag("load_in_8bit", default=False):
        weight_format = formats.INT8
    else:
        raise settings.refused("load_in_4bit", "and load_in_8bit are both false or missing")
    return _all_but("bitsandbytes", Patterns(settings.listed("llm_int8_skip_modules")), weight_format)
