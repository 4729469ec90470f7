"""Reader of AMD Quark: one layout for all, and others by module pattern.

lm_head is a Linear like others here, which Quark's exports name in `exclude`.
"""

from __future__ import annotations

from llm_serving_exporter.facts import formats
from llm_serving_exporter.facts.quant_names import Patterns
from llm_serving_exporter.facts.quant_settings import Scheme, Settings
from llm_serving_exporter.model.geometry import Module
from llm_serving_exporter.model.weights import Precision, WeightFormat


def quark(settings: Settings) -> Scheme:
    """`global_quant_config`, `layer_quant_config` by pattern, `exclude`."""
    kept = Patterns(settings.listed("exclude"))
    usual = settings.section("global_quant_config")
    if usual is None:
        raise settings.refused("global_quant_config", "is missing")
    if settings.entries("layer_type_quant_config"):
        raise settings.refused("layer_type_quant_config", "is not supported")
    everywhere = _format(usual)
    by_name = [(Patterns((name,)), _format(layer)) for name, layer in settings.entries("layer_quant_config").items()]

    def choose(module: Module, called: tuple[str, ...]) -> WeightFormat | None:
        if kept.match(called):
            return None
        return next((chosen for patterns, chosen in by_name if patterns.match(called)), everywhere)

    return Scheme("quark", choose, lm_head=True)


def _format(layer: Settings) -> WeightFormat | None:
    weight = layer.section("weight")
    if weight is None:
        return None
    inputs = layer.section("input_tensors")
    kind = weight.text("dtype")
    taken = inputs.text("dtype") if inputs is not None else ""
    if kind.startswith("fp8"):
        return formats.FP8 if taken.startswith("fp8") else formats.FP8_WEIGHT_ONLY
    if kind in ("fp4", "mxfp4") and weight.whole("group_size", default=32) == 32:
        by_inputs = {
            "": formats.MXFP4,
            "fp4": formats.MXFP4_W4A4,
            "mxfp4": formats.MXFP4_W4A4,
            "fp8_e4m3": formats.MXFP4_W4A8,
        }
        if taken in by_inputs:
            return by_inputs[taken]
    widths = {"int8": 8, "uint8": 8, "int4": 4, "uint4": 4}
    if kind in widths and taken in ("", "int8", "fp8_e4m3"):
        size = weight.whole("group_size", default=-1, least=-1) if weight.text("qscheme") == "per_group" else -1
        rate = {"": Precision.BF16, "int8": Precision.INT8, "fp8_e4m3": Precision.FP8}[taken]
        symmetric = weight.flag("symmetric", default=not kind.startswith("u"))
        return formats.integer(widths[kind], size, zero_point=not symmetric, multiplied=rate)
    raise weight.refused("weight", f"is {kind[:64]!r} with inputs {taken[:64]!r}, of which no layout is known here")
