"""Readers of the dialects in which checkpoints say how they are quantised: which format each module is in."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

from llm_serving_exporter.facts import formats
from llm_serving_exporter.facts.quant_names import Patterns, compiled, found_in, matches, plain, runs
from llm_serving_exporter.facts.quant_settings import Scheme, Settings
from llm_serving_exporter.model.geometry import Module, Part
from llm_serving_exporter.model.record import Struct
from llm_serving_exporter.model.weights import Precision, WeightFormat

# Readers of the dialects that keep 8-bit or block floats: fp8, fbgemm_fp8, mxfp4 (gpt-oss), bitsandbytes.
#
# All of them leave lm_head alone: vLLM's fp8, fbgemm and bitsandbytes methods take Linear layers and routed experts only (layers/
# quantization/fp8.py: LinearBase and FusedMoE; its lm_head is neither), and its mxfp4 takes routed experts only.


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
    named = named_layers(settings)

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


# Readers of the dialects that keep integers per group of a row: GPTQ, AWQ, AutoRound.
#
# They take Linear layers; lm_head only where the config says so (GPTQ's and AutoRound's `lm_head` or its name in their overrides).

_WIDTHS = range(2, 9)
# what makes a key of AutoRound's overrides an expression: vLLM model_executor/layers/quantization/auto_round.py get_layer_config
_OF_EXPRESSIONS = frozenset(r"*+?^$()[]{}|\\")


def _integer(settings: Settings, base: Settings, *, zero_point: bool) -> WeightFormat:
    bits = settings.whole("bits", "w_bit", "w_bits", default=0, least=0) or base.whole("bits", "w_bit", "w_bits")
    if bits not in _WIDTHS:
        raise settings.refused("bits", f"is {bits}, not 2 to 8")
    keys = ("group_size", "q_group_size")
    # absent from both: 128, the default of each of the tools
    size = settings.whole(*keys, default=base.whole(*keys, default=128, least=-1), least=-1)
    return formats.integer(bits, size, zero_point=zero_point)


def gptq(settings: Settings) -> Scheme:
    """`bits`, `group_size` (-1: per row), `lm_head`, `modules_in_block_to_quantize`, and GPTQModel's `dynamic` rules.

    A GPTQ checkpoint holds zero points also where it is symmetric, so that they are counted.
    """
    usual = _integer(settings, settings, zero_point=True)
    only = Patterns(_flattened(settings, "modules_in_block_to_quantize"))
    rules: list[tuple[re.Pattern[str], WeightFormat | None]] = []
    for pattern, override in settings.entries("dynamic").items():
        # "-:" leaves out what it matches, "+:" or nothing overrides; the first rule that matches holds
        expression = compiled(pattern.removeprefix("-:").removeprefix("+:"))
        left_out = pattern.startswith("-:")
        rules.append((expression, None if left_out else _integer(override, settings, zero_point=True)))

    def choose(module: Module, called: tuple[str, ...]) -> WeightFormat | None:
        for expression, chosen in rules:
            if any(matches((expression,), name) for name in called):
                return chosen
        return None if only and not only.match(called) else usual

    return Scheme("gptq", choose, lm_head=settings.flag("lm_head", default=False))


def _flattened(settings: Settings, key: str) -> Iterable[str]:
    value = settings.values.get(key)
    if isinstance(value, list) and any(isinstance(entry, list) for entry in value):
        parts = [entry if isinstance(entry, list) else [entry] for entry in value]
        return Settings(settings.method, {key: [name for part in parts for name in part]}).listed(key)
    return settings.listed(key)


def awq(settings: Settings) -> Scheme:
    """`bits` or `w_bit`, `group_size` or `q_group_size`, `zero_point`; `modules_to_not_convert` by component."""
    zero_point = settings.flag("zero_point", default=True)
    usual = _integer(settings, settings, zero_point=zero_point)
    kept = Patterns(settings.listed("modules_to_not_convert"))

    def choose(module: Module, called: tuple[str, ...]) -> WeightFormat | None:
        return None if kept.match(called) else usual

    return Scheme("awq", choose, lm_head=settings.flag("lm_head", default=False))


def auto_round(settings: Settings) -> Scheme:
    """`bits`, `group_size`, `sym`, and `extra_config` by module or expression, a module's own first; 16 bits there leave it alone."""
    kind = settings.text("data_type", default="int")
    if kind != "int":
        raise settings.refused("data_type", f"is {kind!r}, of which no layout is known here")
    zero_point = not settings.flag("sym", default=True)
    usual = _integer(settings, settings, zero_point=zero_point)
    named: dict[str, WeightFormat | None] = {}
    expressions: list[tuple[re.Pattern[str], WeightFormat | None]] = []
    for name, override in settings.entries("extra_config").items():
        left_out = override.whole("bits", default=0, least=0) >= 16
        chosen = None if left_out else _integer(override, settings, zero_point=zero_point)
        if _OF_EXPRESSIONS.isdisjoint(name):
            named[plain(name)] = chosen
        else:
            expressions.append((compiled(name), chosen))

    def choose(module: Module, called: tuple[str, ...]) -> WeightFormat | None:
        for name in called:
            for run in runs(name):
                if run in named:
                    return named[run]
        for expression, chosen in expressions:
            if any(found_in(expression, name) for name in called):
                return chosen
        return usual

    return Scheme("auto-round", choose, lm_head="lm_head" in named)


# Reader of NVIDIA ModelOpt, from config.json's quantization_config or from hf_quant_config.json.
#
# lm_head follows the list of left-out modules; ModelOpt leaves it out by default, so that a config without any list does too.

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
    chosen = _modelopt_format(inner, algorithm)

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
        name: _modelopt_format(layer, layer.text("quant_algo").upper())
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


def _modelopt_format(settings: Settings, algorithm: str) -> WeightFormat:
    if algorithm in _GROUPED:
        return formats.integer(4, settings.whole("group_size", default=128, least=-1), multiplied=_GROUPED[algorithm])
    if algorithm not in _ALGORITHMS:
        raise settings.refused("quant_algo", f"is {algorithm[:64]!r}, of which no layout is known here")
    return _ALGORITHMS[algorithm]


# Reader of compressed-tensors (llm-compressor): groups of targets, each with a layout for weights and activations.
#
# lm_head is a Linear like others here: where "Linear" is a target and `ignore` does not name it, the checkpoint holds it quantised.


class _Group(Struct, frozen=True):
    weight_format: WeightFormat  # of the matrices of this group
    every_linear: bool  # whether the group targets every linear module
    named: Patterns  # module names that it targets
    expressions: tuple[re.Pattern[str], ...]  # regular expressions that it targets

    def names_it(self, called: tuple[str, ...]) -> bool:
        return self.named.match(called) or any(matches(self.expressions, name) for name in called)


def compressed_tensors(settings: Settings) -> Scheme | None:
    """`config_groups` and `ignore`. A group that names a module goes before one that takes every Linear. None where only the KV cache is
    quantised."""
    sparsity = settings.section("sparsity_config")
    if sparsity is not None and sparsity.text("format", default="dense") != "dense":
        raise settings.refused(
            "sparsity_config", f"has format {sparsity.text('format')!r}, of which no layout is known here"
        )
    groups = [_group(group, settings.text("format")) for group in settings.entries("config_groups").values()]
    if not groups and settings.has("kv_cache_scheme"):
        return None
    if not groups:
        raise settings.refused("config_groups", "is missing or empty")
    kept = Patterns(settings.listed("ignore"))

    def choose(module: Module, called: tuple[str, ...]) -> WeightFormat | None:
        if kept.match(called):
            return None
        chosen = next((group for group in groups if group.names_it(called)), None)
        chosen = chosen or next((group for group in groups if group.every_linear), None)
        return chosen.weight_format if chosen is not None else None

    return Scheme("compressed-tensors", choose, lm_head=True)


def _group(group: Settings, default_packing: str) -> _Group:
    targets = group.listed("targets")
    weights = group.section("weights")
    if weights is None:
        raise group.refused("weights", "is missing from a group")
    packing = group.text("format", default=default_packing)
    if "24" in packing:
        raise group.refused("format", f"is {packing!r}, of which no layout is known here")
    expressions = tuple(compiled(target.removeprefix("re:")) for target in targets if target.startswith("re:"))
    named = Patterns(target for target in targets if not target.startswith("re:") and target != "Linear")
    return _Group(layout(weights, group.section("input_activations")), "Linear" in targets, named, expressions)


def layout(weights: Settings, activations: Settings | None) -> WeightFormat:
    """The format of `weights` {num_bits, type, strategy, group_size, block_structure, symmetric} with these activations.

    Raises FactsError for widths and kinds of which no layout is known.
    """
    kind, bits = weights.text("type", default="int"), weights.whole("num_bits", default=8)
    computed = _computed(activations)
    if kind == "int" and 2 <= bits <= 8 and computed is not Precision.FP4:
        grouped = weights.text("strategy") == "group" or weights.has("group_size")
        size = weights.whole("group_size", default=128, least=-1) if grouped else -1
        symmetric = weights.flag("symmetric", default=True)
        return formats.integer(bits, size, zero_point=not symmetric, multiplied=computed)
    if kind == "float" and bits == 8:
        return _float8(weights, computed)
    if kind == "float" and bits == 4:
        size = weights.whole("group_size", default=16)
        by_rate = {
            16: {
                Precision.FP4: formats.NVFP4,
                Precision.FP8: formats.NVFP4_W4A8,
                Precision.BF16: formats.NVFP4_WEIGHT_ONLY,
            },
            32: {Precision.FP4: formats.MXFP4_W4A4, Precision.FP8: formats.MXFP4_W4A8, Precision.BF16: formats.MXFP4},
        }.get(size, {})
        if computed in by_rate:
            return by_rate[computed]
        raise weights.refused(
            "group_size", f"is {size} for 4-bit floats with {computed.value} activations, neither NVFP4 nor MXFP4"
        )
    raise weights.refused("weights", f"are {kind} of {bits} bits, of which no layout is known here")


def _float8(weights: Settings, computed: Precision) -> WeightFormat:
    strategy = weights.text("strategy")
    if strategy == "group":
        size = weights.whole("group_size")
        if size != 32:
            raise weights.refused("group_size", f"is {size} for 8-bit floats, not MXFP8's 32")
        return formats.MXFP8
    if strategy == "block":
        sizes = weights.values.get("block_structure") or [128, 128]
        if isinstance(sizes, str):  # "128x128"
            sizes = [int(size) for size in sizes.split("x") if size.isdigit()]
        if (
            not isinstance(sizes, list)
            or len(sizes) != 2
            or not all(isinstance(size, int) and size > 0 for size in sizes)
        ):
            raise weights.refused("block_structure", f"is {str(sizes)[:64]!r}, not two whole numbers")
        return formats.fp8_block(sizes[0], sizes[1])
    return formats.FP8_WEIGHT_ONLY if computed is Precision.BF16 else formats.FP8


def _computed(activations: Settings | None) -> Precision:
    """The rate that quantised activations allow; BF16 where they are not quantised (weight-only)."""
    if activations is None:
        return Precision.BF16
    kind, bits = activations.text("type", default="int"), activations.whole("num_bits", default=8)
    rates = {
        ("float", 8): Precision.FP8,
        ("int", 8): Precision.INT8,
        ("float", 4): Precision.FP4,
        ("float", 16): Precision.BF16,
    }
    if (kind, bits) not in rates:
        raise activations.refused("input_activations", f"are {kind} of {bits} bits, of which no rate is known here")
    return rates[kind, bits]


# Reader of AMD Quark: one layout for all, and others by module pattern.
#
# lm_head is a Linear like others here, which Quark's exports name in `exclude`.


def quark(settings: Settings) -> Scheme:
    """`global_quant_config`, `layer_quant_config` by pattern, `exclude`."""
    kept = Patterns(settings.listed("exclude"))
    usual = settings.section("global_quant_config")
    if usual is None:
        raise settings.refused("global_quant_config", "is missing")
    if settings.entries("layer_type_quant_config"):
        raise settings.refused("layer_type_quant_config", "is not supported")
    everywhere = _quark_format(usual)
    by_name = [
        (Patterns((name,)), _quark_format(layer)) for name, layer in settings.entries("layer_quant_config").items()
    ]

    def choose(module: Module, called: tuple[str, ...]) -> WeightFormat | None:
        if kept.match(called):
            return None
        return next((chosen for patterns, chosen in by_name if patterns.match(called)), everywhere)

    return Scheme("quark", choose, lm_head=True)


def _quark_format(layer: Settings) -> WeightFormat | None:
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


# by quant_method, `_` written as `-`; vLLM's names for the same checkpoints with other kernels among them
READERS: Mapping[str, Callable[[Settings], Scheme | None]] = MappingProxyType(
    {
        "fp8": fp8, "fbgemm-fp8": fbgemm_fp8, "mxfp4": mxfp4, "gpt-oss-mxfp4": mxfp4, "bitsandbytes": bitsandbytes,
        "gptq": gptq, "gptq-marlin": gptq, "auto-gptq": gptq, "awq": awq, "awq-marlin": awq, "auto-awq": awq,
        "auto-round": auto_round, "intel/auto-round": auto_round, "compressed-tensors": compressed_tensors, "quark": quark,
        "modelopt": modelopt, "modelopt-fp4": modelopt,
        "modelopt-mixed": modelopt, "modelopt-mxfp8": modelopt,
    }
)  # fmt: skip
