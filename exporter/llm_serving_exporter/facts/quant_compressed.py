"""Reader of compressed-tensors (llm-compressor): groups of targets, each with a layout for weights and activations.

lm_head is a Linear like others here: where "Linear" is a target and `ignore` does not name it, the checkpoint holds it quantised.
"""

from __future__ import annotations

import re

from llm_serving_exporter.facts import formats
from llm_serving_exporter.facts.quant_names import Patterns, compiled, matches
from llm_serving_exporter.facts.quant_settings import Scheme, Settings
from llm_serving_exporter.model.geometry import Module
from llm_serving_exporter.model.record import Struct
from llm_serving_exporter.model.weights import Precision, WeightFormat


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
