"""Readers of the dialects in which checkpoints say how they are quantised: which format each module is in."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, permutations
from typing import Any

from llm_serving_exporter.errors import FactsError
from llm_serving_exporter.facts import formats
from llm_serving_exporter.facts.fields import Fields, model_unknown
from llm_serving_exporter.model.record import Struct, replace
from llm_serving_exporter.model.shape import Module, Part, Precision, WeightFormat

# a quantisation with more entries or longer patterns is not read: DeepSeek-sized mixed ones name about 20,000 modules
MOST_NAMES = 200_000
LONGEST_NAME = 1024
_NO_LAYOUT = "of which no layout is known here"

# the names that a module goes by at one of its places -> its format there, None where it stays in the model's dtype
Choice = Callable[[tuple[str, ...]], WeightFormat | None]


class Scheme(Struct, frozen=True):
    """What one quantisation does."""

    method: str  # its name in the config
    choose: Choice  # the format of a linear module
    lm_head: bool = False  # whether it decides about lm_head at all
    only_experts: bool = False  # whether it takes routed experts alone
    experts: WeightFormat | None = None  # of routed experts, where they have one of their own


class Settings(Fields):
    """The keys of one quantisation. Every reader raises FactsError (model_unknown) naming the method, the key and the fault."""

    def __init__(self, method: str, values: Mapping[str, Any]) -> None:
        super().__init__(values)
        self.method = method

    def text(self, key: str, default: str = "") -> str:
        """A text in lower case."""
        return super().text(key, default).lower()

    def section(self, key: str) -> Settings | None:
        """A mapping, None where the key is missing or null."""
        value = self.found(key)
        if value is not None and not isinstance(value, Mapping):
            raise self.refused(key, "is not a mapping")
        return None if value is None else Settings(self.method, value)

    def names(self, *keys: str) -> tuple[str, ...]:
        """The texts of every list that is there under the keys."""
        found: list[str] = []
        for key in filter(self.has, keys):
            entries = self.values[key]
            if not isinstance(entries, list) or len(entries) > MOST_NAMES:
                raise self.refused(key, f"is not a list of at most {MOST_NAMES} names")
            for entry in entries:
                if not isinstance(entry, str) or len(entry) > LONGEST_NAME:
                    raise self.refused(key, f"holds {str(entry)[:64]!r}, not a name of at most {LONGEST_NAME} letters")
            found += entries
        return tuple(found)

    def entries(self, key: str) -> Mapping[str, Settings]:
        """A mapping of names to mappings, empty where the key is missing."""
        section = self.section(key)
        if section is None:
            return {}
        if len(section.values) > MOST_NAMES or any(len(name) > LONGEST_NAME for name in section.values):
            raise self.refused(
                key, f"has more than {MOST_NAMES} entries, or a name of more than {LONGEST_NAME} letters"
            )
        return {name: inner for name in section.values if (inner := section.section(name)) is not None}

    def refused(self, key: str, what: str) -> FactsError:
        """The error for a key."""
        return model_unknown(f"quantization_config ({self.method or 'no quant_method'}): {key} {what}")


# --- names of modules as these configs write them: exact, by component, with wildcards, or as regular expressions.
#
# Configs disagree about what stands before "layers.": `model.`, `backbone.`, and for multimodal checkpoints `model.language_model.` or
# `language_model.model.`. Names and patterns are compared without it; regular expressions are tried on each form.

_LEADING = frozenset({"model", "language_model", "backbone", "text_model", "transformer"})
_REGEX_LEADS = ("model.", "", "model.language_model.", "language_model.model.", "language_model.", "backbone.")
# other names of a matrix: what checkpoints or vLLM fuse it into; Mixtral's and MiniMax's numbers, which newer tools write out
_ALSO = {
    "q_proj": ("qkv_proj",), "k_proj": ("qkv_proj",), "v_proj": ("qkv_proj",),
    "gate_proj": ("gate_up_proj", "w1"), "up_proj": ("gate_up_proj", "w3"), "down_proj": ("w2",),
    "w1": ("gate_proj", "gate_up_proj"), "w3": ("up_proj", "gate_up_proj"), "w2": ("down_proj",),
}  # fmt: skip
_BLOCKS = (".mlp.", ".block_sparse_moe.")
_ESCAPED, _CLASS = re.compile(r"\\.", re.DOTALL), re.compile(r"\[\^?\]?[^\]]*\]")
_REPEATED_GROUP, _REPEAT = re.compile(r"\)(?:[*+]|\{)"), re.compile(r"[*+]|\{\d*,\d*\}")
# each open-ended repeat multiplies the ways to try by the length of a name
_MOST_REPEATS = 6


def plain(name: str) -> str:
    """The name without what stands before the layers."""
    parts = name.strip(".").split(".")
    while len(parts) > 1 and parts[0] in _LEADING:
        parts = parts[1:]
    return ".".join(parts)


def module_names(module: Module, layer: int | None) -> tuple[str, ...]:
    """What configs may call a module at one layer, without lead; expert 0 stands for all of its layer."""
    path = module.path if layer is None else module.path.replace("{}", str(layer))
    name = plain(path.replace("*", "0"))
    stem, _, leaf = name.rpartition(".")
    found = [name, *(f"{stem}.{other}" for other in _ALSO.get(leaf, ()))]
    if module.part is Part.EXPERT:
        found += [other.replace(old, new) for other in found for old, new in permutations(_BLOCKS) if old in other]
    return tuple(found)


def runs(name: str) -> Iterator[str]:
    """Every run of neighbouring components of a name, the longest first: "layers.0.mlp" -> itself, "layers.0", "0.mlp", ..."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        for start in range(len(parts) - length + 1):
            yield ".".join(parts[start : start + length])


class Patterns:
    """A list of names and patterns.

    "lm_head", "self_attn" or "model.layers.3.mlp.gate" mean every module that has these components next to one another; a `*` at the end
    means the tree of modules below (as ModelOpt writes it, and vLLM reads it); other wildcards are the shell's; "re:..." is a regular
    expression that matches from the start of the name. Raises FactsError where an expression is none.
    """

    def __init__(self, listed: Iterable[str]) -> None:
        self._exact: set[str] = set()
        self._expressions: list[re.Pattern[str]] = []
        shell: list[str] = []
        for pattern in listed:
            if pattern.startswith("re:"):
                self._expressions.append(compiled(pattern[3:]))
                continue
            tree = plain(pattern.removesuffix("*"))
            if tree and not re.search(r"[*?\[]", tree):
                self._exact.add(tree)
            elif pattern:
                shell += [fnmatch.translate(plain(pattern)), fnmatch.translate(plain(pattern) + ".*")]
        self._shell = re.compile("|".join(shell)) if shell else None

    def __bool__(self) -> bool:
        return bool(self._exact or self._expressions or self._shell)

    def match(self, called: tuple[str, ...]) -> bool:
        """Whether any of a module's names is meant."""
        return any(self._match(name) for name in called)

    def _match(self, name: str) -> bool:
        if self._exact and not self._exact.isdisjoint(runs(name)):
            return True
        if self._shell is not None and self._shell.match(name):
            return True
        return matches(self._expressions, name)


def compiled(expression: str) -> re.Pattern[str]:
    """A config's regular expression. Raises FactsError where it is none, or one that may never come to an end.

    Python's engine tries every way to divide a name between repeats that lie in one another, without letting any other thread run
    meanwhile: "(a+)+!" on forty letters stops the process. No config needs a repeated group, nor many open-ended repeats.
    """
    bare = _CLASS.sub("x", _ESCAPED.sub("x", expression))
    if _REPEATED_GROUP.search(bare) or len(_REPEAT.findall(bare)) > _MOST_REPEATS:
        fix = "set targets[].model.weight_format to the format that is served"
        raise model_unknown(f"quantization_config: {expression[:64]!r} repeats too much to be tried", fix)
    try:
        return re.compile(expression)
    except re.error as error:
        raise model_unknown(f"quantization_config: {expression[:64]!r} is no regular expression: {error}") from error


def matches(expressions: Iterable[re.Pattern[str]], name: str) -> bool:
    """Whether an expression matches a name with any lead, from its start."""
    return any(expression.match(lead + name) for expression in expressions for lead in _REGEX_LEADS)


def found_in(expression: re.Pattern[str], name: str) -> bool:
    """Whether an expression matches anywhere in a name with any lead."""
    return any(expression.search(lead + name) for lead in _REGEX_LEADS)


# --- dialects that keep 8-bit or block floats: fp8, fbgemm_fp8, mxfp4 (gpt-oss), bitsandbytes.
#
# All of them leave lm_head alone: vLLM's fp8, fbgemm and bitsandbytes methods take Linear layers and routed experts only (layers/
# quantization/fp8.py: LinearBase and FusedMoE; its lm_head is neither), and its mxfp4 takes routed experts only.


def _all_but(kept: Iterable[str], chosen: Choice | WeightFormat) -> Choice:
    """The format of all modules but those that a list leaves as they are."""
    left_out = Patterns(kept)
    choose: Choice = chosen if callable(chosen) else lambda called: chosen
    return lambda called: None if left_out.match(called) else choose(called)


def _by_pattern(by_name: Sequence[tuple[Patterns, WeightFormat | None]], otherwise: WeightFormat | None) -> Choice:
    """The format of the first patterns that mean a module."""
    return lambda called: next((chosen for patterns, chosen in by_name if patterns.match(called)), otherwise)


def _two_sizes(settings: Settings, key: str, sizes: object, shown: str) -> tuple[int, int]:
    if not isinstance(sizes, list) or len(sizes) != 2 or not all(type(size) is int and size > 0 for size in sizes):
        raise settings.refused(key, f"is {shown}, not two whole numbers")
    return sizes[0], sizes[1]


def fp8(settings: Settings) -> Scheme:
    """`weight_block_size` [128, 128]: a scale per block; otherwise per tensor or row. Activations are always FP8 (W8A8).

    `quantized_layers` names what ModelOpt stored otherwise over it (the experts of DeepSeek-V4's NVFP4 checkpoints); its `ignore` says
    what ModelOpt left as it was, which is FP8.
    """
    weight_format = formats.FP8
    if settings.has("weight_block_size"):
        sizes = settings.values["weight_block_size"]
        weight_format = formats.fp8_block(*_two_sizes(settings, "weight_block_size", sizes, str(sizes)[:64]))
    choose = _all_but(settings.names("ignored_layers", "modules_to_not_convert"), weight_format)
    if not settings.has("quantized_layers"):
        return Scheme("fp8", choose)
    named = _named_layers(settings)
    return Scheme("fp8_mixed", lambda called: named(called) or choose(called))


def expert_dtype(scheme: Scheme, said: object, settings: Settings) -> Scheme:
    """The same with routed experts in a format of their own: DeepSeek-V4 keeps them in 4-bit floats with a scale for each 32 weights,
    multiplied by FP8 activations (vLLM models/deepseek_v4/quant_config.py). Raises FactsError for another word than fp4 and fp8.
    """
    if said == "fp8" or settings.has("quantized_layers"):
        return scheme
    if said != "fp4":
        raise settings.refused("expert_dtype", f"is {str(said)[:64]!r}, neither 'fp4' nor 'fp8'")
    return replace(scheme, method="fp8_mixed", experts=formats.MXFP4_W4A8)


def fbgemm_fp8(settings: Settings) -> Scheme:
    """FP8 with a scale per row (Llama-3.1-405B-FP8)."""
    return Scheme("fbgemm_fp8", _all_but(settings.names("modules_to_not_convert"), formats.FP8))


def mxfp4(settings: Settings) -> Scheme:
    """gpt-oss: routed experts only, `modules_to_not_convert` lists all else."""
    kept = settings.names("modules_to_not_convert", "ignored_layers")
    return Scheme("mxfp4", _all_but(kept, formats.MXFP4), only_experts=True)


def bitsandbytes(settings: Settings) -> Scheme:
    """nf4 or fp4 with an absmax per 64 weights, or LLM.int8()."""
    if settings.flag("load_in_4bit", default=False):
        double = settings.flag("bnb_4bit_use_double_quant", default=False)
        weight_format = formats.NF4_DOUBLE if double else formats.NF4
    elif settings.flag("load_in_8bit", default=False):
        weight_format = formats.INT8
    else:
        raise settings.refused("load_in_4bit", "and load_in_8bit are both false or missing")
    return Scheme("bitsandbytes", _all_but(settings.names("llm_int8_skip_modules"), weight_format))


# --- dialects that keep integers per group of a row: GPTQ, AWQ, AutoRound.
#
# They take Linear layers; lm_head only where the config says so (GPTQ's and AutoRound's `lm_head` or its name in their overrides).

# what makes a key of AutoRound's overrides an expression: vLLM model_executor/layers/quantization/auto_round.py get_layer_config
_OF_EXPRESSIONS = frozenset(r"*+?^$()[]{}|\\")


def _integer(settings: Settings, base: Settings, *, zero_point: bool) -> WeightFormat:
    bits = settings.whole("bits", "w_bit", "w_bits", default=0, least=0) or base.whole("bits", "w_bit", "w_bits")
    if not 2 <= bits <= 8:
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

    def choose(called: tuple[str, ...]) -> WeightFormat | None:
        otherwise = None if only and not only.match(called) else usual
        named = (chosen for expression, chosen in rules if any(matches((expression,), name) for name in called))
        return next(named, otherwise)

    return Scheme("gptq", choose, lm_head=settings.flag("lm_head", default=False))


def _flattened(settings: Settings, key: str) -> Iterable[str]:
    value = settings.values.get(key)
    if isinstance(value, list):
        flat = [name for entry in value for name in (entry if isinstance(entry, list) else [entry])]
        settings = Settings(settings.method, {key: flat})
    return settings.names(key)


def awq(settings: Settings) -> Scheme:
    """`bits` or `w_bit`, `group_size` or `q_group_size`, `zero_point`; `modules_to_not_convert` by component."""
    usual = _integer(settings, settings, zero_point=settings.flag("zero_point", default=True))
    choose = _all_but(settings.names("modules_to_not_convert"), usual)
    return Scheme("awq", choose, lm_head=settings.flag("lm_head", default=False))


def auto_round(settings: Settings) -> Scheme:
    """`bits`, `group_size`, `sym`, and `extra_config` by module or expression, a module's own first; 16 bits there leave it alone."""
    kind = settings.text("data_type", default="int")
    if kind != "int":
        raise settings.refused("data_type", f"is {kind!r}, {_NO_LAYOUT}")
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

    def choose(called: tuple[str, ...]) -> WeightFormat | None:
        own = (named[run] for name in called for run in runs(name) if run in named)
        fitting = (chosen for tried, chosen in expressions if any(found_in(tried, name) for name in called))
        return next(chain(own, fitting), usual)

    return Scheme("auto-round", choose, lm_head="lm_head" in named)


# --- NVIDIA ModelOpt, from config.json's quantization_config or from hf_quant_config.json.
#
# lm_head follows the list of left-out modules; ModelOpt leaves it out by default, so that a config without any list does too.

# ModelOpt's names of algorithms (quant_algo)
_ALGORITHMS: Mapping[str, WeightFormat] = {
    "FP8": formats.FP8, "FP8_PER_CHANNEL_PER_TOKEN": formats.FP8, "FP8_PB_WO": formats.fp8_block(128, 128),
    "FP8_PB_REAL": formats.fp8_block(128, 128), "MXFP8": formats.MXFP8, "NVFP4": formats.NVFP4, "NVFP4_AWQ": formats.NVFP4,
    "W4A16_NVFP4": formats.NVFP4_WEIGHT_ONLY, "W4A8_NVFP4_FP8": formats.NVFP4_W4A8, "W4A8_MXFP4_FP8": formats.MXFP4_W4A8,
    "MXFP4": formats.MXFP4, "W8A16": formats.INT8_WEIGHT_ONLY, "W8A8_SQ_PER_CHANNEL": formats.INT8, "INT8_SQ": formats.INT8,
}  # fmt: skip
_GROUPED: Mapping[str, Precision] = {"W4A16_AWQ": Precision.BF16, "W4A8_AWQ": Precision.FP8}


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
    kept = inner.names("exclude_modules", "ignore")
    if algorithm == "MIXED_PRECISION":
        return Scheme("modelopt_mixed", _all_but(kept, _named_layers(inner)), lm_head=True)
    return Scheme("modelopt", _all_but(kept, _modelopt_format(inner, algorithm)), lm_head=bool(kept))


def _named_layers(settings: Settings) -> Choice:
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
        raise settings.refused("quant_algo", f"is {algorithm[:64]!r}, {_NO_LAYOUT}")
    return _ALGORITHMS[algorithm]


# --- compressed-tensors (llm-compressor): groups of targets, each with a layout for weights and activations.
#
# lm_head is a Linear like others here: where "Linear" is a target and `ignore` does not name it, the checkpoint holds it quantised.


def compressed_tensors(settings: Settings) -> Scheme | None:
    """`config_groups` and `ignore`. A group that names a module goes before one that takes every Linear. None where only the KV cache is
    quantised."""
    sparsity = settings.section("sparsity_config")
    if sparsity is not None and sparsity.text("format", default="dense") != "dense":
        raise settings.refused("sparsity_config", f"has format {sparsity.text('format')!r}, {_NO_LAYOUT}")
    groups = [_group(group, settings.text("format")) for group in settings.entries("config_groups").values()]
    if not groups and settings.has("kv_cache_scheme"):
        return None
    if not groups:
        raise settings.refused("config_groups", "is missing or empty")
    every_linear = next((weight_format for targets, weight_format in groups if "Linear" in targets), None)
    named = [(Patterns(name for name in targets if name != "Linear"), chosen) for targets, chosen in groups]
    choose = _by_pattern(named, every_linear)
    return Scheme("compressed-tensors", _all_but(settings.names("ignore"), choose), lm_head=True)


def _group(group: Settings, default_packing: str) -> tuple[tuple[str, ...], WeightFormat]:
    """A group's targets and their format."""
    targets, weights = group.names("targets"), group.section("weights")
    if weights is None:
        raise group.refused("weights", "is missing from a group")
    packing = group.text("format", default=default_packing)
    if "24" in packing:
        raise group.refused("format", f"is {packing!r}, {_NO_LAYOUT}")
    return targets, layout(weights, group.section("input_activations"))


# 4-bit floats by the size of their groups and the rate that their activations allow
_FLOAT4: Mapping[tuple[int, Precision], WeightFormat] = {
    (16, Precision.FP4): formats.NVFP4, (16, Precision.FP8): formats.NVFP4_W4A8, (16, Precision.BF16): formats.NVFP4_WEIGHT_ONLY,
    (32, Precision.FP4): formats.MXFP4_W4A4, (32, Precision.FP8): formats.MXFP4_W4A8, (32, Precision.BF16): formats.MXFP4,
}  # fmt: skip
_RATES: Mapping[tuple[str, int], Precision] = {
    ("float", 8): Precision.FP8, ("int", 8): Precision.INT8, ("float", 4): Precision.FP4, ("float", 16): Precision.BF16,
}  # fmt: skip


def layout(weights: Settings, activations: Settings | None) -> WeightFormat:
    """The format of `weights` {num_bits, type, strategy, group_size, block_structure, symmetric} with these activations; without any
    (weight-only) it is multiplied as bf16.

    Raises FactsError for widths and kinds of which no layout is known.
    """
    kind, bits = weights.text("type", default="int"), weights.whole("num_bits", default=8)
    computed = Precision.BF16
    if activations is not None:
        taken = activations.text("type", default="int"), activations.whole("num_bits", default=8)
        if taken not in _RATES:
            what = f"are {taken[0]} of {taken[1]} bits, of which no rate is known here"
            raise activations.refused("input_activations", what)
        computed = _RATES[taken]
    if kind == "int" and 2 <= bits <= 8 and computed is not Precision.FP4:
        grouped = weights.text("strategy") == "group" or weights.has("group_size")
        size = weights.whole("group_size", default=128, least=-1) if grouped else -1
        symmetric = weights.flag("symmetric", default=True)
        return formats.integer(bits, size, zero_point=not symmetric, multiplied=computed)
    if kind == "float" and bits == 8:
        return _float8(weights, computed)
    if kind == "float" and bits == 4:
        size = weights.whole("group_size", default=16)
        if (size, computed) in _FLOAT4:
            return _FLOAT4[size, computed]
        raise weights.refused(
            "group_size", f"is {size} for 4-bit floats with {computed.value} activations, neither NVFP4 nor MXFP4"
        )
    raise weights.refused("weights", f"are {kind} of {bits} bits, {_NO_LAYOUT}")


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
        return formats.fp8_block(*_two_sizes(weights, "block_structure", sizes, repr(str(sizes)[:64])))
    return formats.FP8_WEIGHT_ONLY if computed is Precision.BF16 else formats.FP8


# --- AMD Quark: one layout for all, and others by module pattern.
#
# lm_head is a Linear like others here, which Quark's exports name in `exclude`.

_QUARK_FLOAT4: Mapping[str, WeightFormat] = {
    "": formats.MXFP4, "fp4": formats.MXFP4_W4A4, "mxfp4": formats.MXFP4_W4A4, "fp8_e4m3": formats.MXFP4_W4A8,
}  # fmt: skip
_QUARK_WIDTHS = {"int8": 8, "uint8": 8, "int4": 4, "uint4": 4}
_QUARK_RATES = {"": Precision.BF16, "int8": Precision.INT8, "fp8_e4m3": Precision.FP8}


def quark(settings: Settings) -> Scheme:
    """`global_quant_config`, `layer_quant_config` by pattern, `exclude`."""
    kept, usual = settings.names("exclude"), settings.section("global_quant_config")
    if usual is None:
        raise settings.refused("global_quant_config", "is missing")
    if settings.entries("layer_type_quant_config"):
        raise settings.refused("layer_type_quant_config", "is not supported")
    everywhere, layers = _quark_format(usual), settings.entries("layer_quant_config")
    by_name = [(Patterns((name,)), _quark_format(layer)) for name, layer in layers.items()]
    return Scheme("quark", _all_but(kept, _by_pattern(by_name, everywhere)), lm_head=True)


def _quark_format(layer: Settings) -> WeightFormat | None:
    weight, inputs = layer.section("weight"), layer.section("input_tensors")
    if weight is None:
        return None
    kind, taken = weight.text("dtype"), inputs.text("dtype") if inputs is not None else ""
    if kind.startswith("fp8"):
        return formats.FP8 if taken.startswith("fp8") else formats.FP8_WEIGHT_ONLY
    if kind in ("fp4", "mxfp4") and weight.whole("group_size", default=32) == 32 and taken in _QUARK_FLOAT4:
        return _QUARK_FLOAT4[taken]
    if kind in _QUARK_WIDTHS and taken in _QUARK_RATES:
        size = weight.whole("group_size", default=-1, least=-1) if weight.text("qscheme") == "per_group" else -1
        symmetric = weight.flag("symmetric", default=not kind.startswith("u"))
        return formats.integer(_QUARK_WIDTHS[kind], size, zero_point=not symmetric, multiplied=_QUARK_RATES[taken])
    raise weight.refused("weight", f"is {kind[:64]!r} with inputs {taken[:64]!r}, {_NO_LAYOUT}")


# by quant_method, `_` written as `-`; vLLM's names for the same checkpoints with other kernels among them
READERS: Mapping[str, Callable[[Settings], Scheme | None]] = {
    "fp8": fp8, "fbgemm-fp8": fbgemm_fp8, "mxfp4": mxfp4, "gpt-oss-mxfp4": mxfp4, "bitsandbytes": bitsandbytes,
    "gptq": gptq, "gptq-marlin": gptq, "auto-gptq": gptq, "awq": awq, "awq-marlin": awq, "auto-awq": awq,
    "auto-round": auto_round, "intel/auto-round": auto_round, "compressed-tensors": compressed_tensors, "quark": quark,
    "modelopt": modelopt, "modelopt-fp4": modelopt, "modelopt-mixed": modelopt, "modelopt-mxfp8": modelopt,
}  # fmt: skip
