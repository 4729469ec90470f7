"""Reader of NVIDIA ModelOpt, from config.json's quantization_config or from hf_quant_config.json.

lm_head follows the list of left-out modules; ModelOpt leaves it out by default, so that a config without any list does too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from llm_serving_exporter.facts import formats
from llm_serving_exporter.facts.quant_names import Patterns, compiled, matches, plain, runs
from llm_serving_exporter.facts.quant_settings import Scheme, Settings
from llm_serving_exporter.model.geometry import Module
from llm_serving_exporter.model.weights import Precision, WeightFormat

# ModelOpt's names of algorithms (quant_algo)
_ALGORITHMS: Mapping[str, WeightFormat] = MappingProxyType(
    {
        "FP8": formats.FP8,
        "FP8_PER_CHANNEL_PER_TOKEN": formats.FP8,
        "FP8_PB_WO": formats.fp8_block(128, 128),
        "FP8_PB_REAL": formats.fp8_block(128, 128),
        "MXFP8": formats.MXFP8,
        "NVFP4": formats.NVFP4,
        "NVFP4_AWQ": formats.NVFP4,
        "W4A16_NVFP4": formats.NVFP4_WEIGHT_ONLY,
        "W4A8_NVFP4_FP8": formats.NVFP4_W4A8,
        "W4A8_MXFP4_FP8": formats.MXFP4_W4A8,
        "MXFP4": formats.MXFP4,
        "W8A16": formats.INT8_WEIGHT_ONLY,
        "W8A8_SQ_PER_CHANNEL": formats.INT8,
        "INT8_SQ": formats.INT8,
    }
)
_GROUPED: Mapping[str, Precision] = MappingProxyType({"W4A16_AWQ": Precision.BF16, "W4A8_AWQ": Precision.FP8})
MIXED = "MIXED_PRECISION"


def is_modelopt(values: Mapping[str, Any]) -> bool:
    """Whether a quantisation without quant_method is ModelOpt's (its first config.json exports had none)."""
    producer = values.get("producer")
    by_name = isinstance(producer, Mapping) and producer.get("name") == "modelopt"
    return by_name or isinstance(values.get("quantization"), Mapping) or isinstance(values.get("quant_algo"), str)


def modelopt(settings: Settings) -> Scheme | None:
    """`quant_algo` with `exclude_modules` or `ignore`; MIXED_PRECISION by `quantized_layers`. None where only the KV cache is quantised."""
    inner = settings.section("quantization") or settings
    algorithm = inner.text("quant_algo").upper()
    if not algorithm:
        if "quant_algo" in inner.values or inner.has("kv_cache_quant_algo"):
            return None
        raise inner.refused("quant_algo", "is missing")
    listed = inner.listed("exclude_modules", "ignore")
    kept = Patterns(listed)
    if algorithm == MIXED:
        return _mixed(inner, kept)
    chosen = _format(inner, algorithm)

    def choose(module: Module, called: tuple[str, ...]) -> WeightFormat | None:
        return None if kept.match(called) else chosen

    return Scheme("modelopt", choose, lm_head=bool(listed))


def _mixed(settings: Settings, kept: Patterns) -> Scheme:
    named = named_layers(settings)

    def choose(module: Module, called: tuple[str, ...]) -> WeightFormat | None:
        return None if kept.match(called) else named(called)

    return Scheme("modelopt_mixed", choose, lm_head=True)


def named_layers(settings: Settings) -> Callable[[tuple[str, ...]], WeightFormat | None]:
    """What `quantized_layers` gives to a module by its names; None for one that it does not name.

    A name that begins with "re:" is a regular expression: ModelOpt writes none, the catalogue does, for thousands of names that are alike.
    """
    stated = {
        name: _format(layer, layer.text("quant_algo").upper())
        for name, layer in settings.entries("quantized_layers").items()
    }
    layers = {plain(name): chosen for name, chosen in stated.items() if not name.startswith("re:")}
    expressions = [(compiled(name[3:]), chosen) for name, chosen in stated.items() if name.startswith("re:")]
    if not stated:
        raise settings.refused("quantized_layers", "is missing or empty")

    def find(called: tuple[str, ...]) -> WeightFormat | None:
        # the whole name before the module that holds it ("...mlp.experts")
        exact = next((layers[run] for name in called for run in runs(name) if run in layers), None)
        if exact is not None:
            return exact
        return next((chosen for tried, chosen in expressions for name in called if matches((tried,), name)), None)

    return find


def _format(settings: Settings, algorithm: str) -> WeightFormat:
    if algorithm in _GROUPED:
        return formats.integer(4, settings.whole("group_size", default=128, least=-1), multiplied=_GROUPED[algorithm])
    if algorithm not in _ALGORITHMS:
        raise settings.refused("quant_algo", f"is {algorithm[:64]!r}, of which no layout is known here")
    return _ALGORITHMS[algorithm]
