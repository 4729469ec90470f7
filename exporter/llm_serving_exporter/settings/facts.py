"""What settings say of GPUs and models: names held against the catalogues, GPUs and models of the user's own.

The catalogues are read only where something is named.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial

from llm_serving_exporter.errors import FactsError
from llm_serving_exporter.facts import formats
from llm_serving_exporter.facts.gpus import LONGEST, find, split_words
from llm_serving_exporter.model.hardware import GpuSpec
from llm_serving_exporter.model.shape import Precision
from llm_serving_exporter.model.target import ModelSettings
from llm_serving_exporter.settings import kinds
from llm_serving_exporter.settings.keys import Section, elements, key, keys_of, list_reader, table, value
from llm_serving_exporter.settings.kinds import Kind
from llm_serving_exporter.settings.options import Context, read_path
from llm_serving_exporter.settings.problems import InvalidValueError, Node, Place, Scalar, shown

MODEL_NAME = kinds.text("model name", 256)
GPU_COUNT = kinds.integer(1, 65_536)
GPU_NAME = kinds.text("GPU name", 200)


def _gpu_model(text: str) -> str:
    from llm_serving_exporter.facts import loader

    GPU_NAME.parse(text)
    try:
        find(text, loader.gpu_catalogue())
    except FactsError as error:
        raise InvalidValueError(error.what.rstrip("."), error.fix) from None
    return text


def _check_name(text: str, what: str, look_up: Callable[[str], object], names: Collection[str], common: str) -> str:
    """The text, where `look_up` does not raise FactsError. `names`: those that there are; `common`: examples, for messages."""
    kinds.text(what).parse(text)
    try:
        look_up(text)
    except FactsError:
        near = get_close_matches(text.strip().lower(), names, n=1, cutoff=0.6)
        fix = f"Did you mean {near[0]}?" if near else f"Write one such as {common}."
        raise InvalidValueError(f"{shown(text)} is not a {what}", fix) from None
    return text


def _weight_format(text: str) -> str:
    common = "bf16, fp8, int8, int4, awq, gptq, nvfp4, mxfp4 or q4_k_m"
    return _check_name(text, "weight format", formats.named, formats.names(), common)


def _kv_cache_dtype(text: str) -> str:
    look_up = partial(formats.kv_format, model_dtype=formats.BF16)
    return _check_name(text, "KV cache dtype", look_up, formats.kv_names(), "auto, bf16 or fp8")


def _state_dtype(text: str) -> str:
    if text.lower() == "auto":
        return text
    names = ("fp32", "bf16", "fp16", "auto")
    return _check_name(text, "dtype of recurrent state", formats.plain, names, "fp32 or bf16")


GPU_MODEL = Kind("the name of a GPU", _gpu_model, is_text=True)
WEIGHT_FORMAT = Kind("a weight format such as bf16, fp8 or int4", _weight_format, is_text=True)
KV_CACHE_DTYPE = Kind("a KV cache dtype such as auto, bf16 or fp8", _kv_cache_dtype, is_text=True)
STATE_DTYPE = Kind("a dtype of recurrent state such as fp32 or bf16", _state_dtype, is_text=True)


def read_gpu_model(node: Node, place: Place, context: Context) -> str | None:
    """`gpu_model:`, a name of the file's own GPUs or of the catalogue's."""
    text = value(node, place, GPU_NAME)
    return None if text is None else check_gpu_model(text, place, context)


def check_gpu_model(text: str, place: Place, context: Context) -> str | None:
    """The name, where it is one of the file's own GPUs or of the catalogue's; else None, and it is reported."""
    if split_words(text) in {split_words(name) for name in context.gpu_models}:
        return text
    return GPU_MODEL.read(text, place)


# --- `model:` of a target ----------------------------------------------------------------------------------------------

_MODEL_KEYS = table(
    config=read_path, name=MODEL_NAME, weight_format=WEIGHT_FORMAT, kv_cache_dtype=KV_CACHE_DTYPE, state_dtype=STATE_DTYPE
)  # fmt: skip
_MODEL_HINTS = {
    "path": "Write config: /path/of/the/model.",
    "dtype": "Write weight_format, as in bf16 or fp8.",
    "quantization": "Write weight_format, as in fp8 or awq.",
    "kv_dtype": "Write kv_cache_dtype.",
}


def read_model(node: Node | None, place: Place, context: Context) -> ModelSettings | None:
    """The block; a text alone is a path where it has a slash and starts like one, else a catalogue name. None where it is not given."""
    if node is None:
        return None
    if isinstance(node, Scalar) and node.kind == "text":
        if node.text.startswith(("/", "./", "../")):
            return ModelSettings(config=context.resolve(node.text))
        return ModelSettings(name=value(node, place, MODEL_NAME))
    return ModelSettings(**Section(_MODEL_KEYS, node, place, context, _MODEL_HINTS).values)


# --- `gpu_models:`: GPUs that the user describes -> rows like those of the catalogue, before which they win ------------

GPU_MODELS = "gpu_models"
_CARD_EXAMPLE = "Write {name: My Card, memory: 96GB, bandwidth: 1.8TB/s, tflops: {bf16: 400, fp8: 800}}."
_MEMORY_UNITS = {"MB": 1e6, "GB": 1e9, "TB": 1e12, "MiB": 2.0**20, "GiB": 2.0**30, "TiB": 2.0**40}
_BANDWIDTH_UNITS = {f"{unit}/s": factor for unit, factor in _MEMORY_UNITS.items()}
# what no GPU has less or more of; a slip of a unit is a factor of a thousand
_LEAST_MEMORY, _MOST_MEMORY = 1e8, 1e13
_LEAST_BANDWIDTH, _MOST_BANDWIDTH = 1e10, 1e14
_MOST_TFLOPS = 1e6
_QUANTITY = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,6})?) ?([A-Za-z/]*)", re.ASCII)


def _quantity(what: str, example: str, units: Mapping[str, float], least: float, most: float) -> Kind[float]:
    """A number with one of `units`; a hint where another unit would make it one that GPUs have."""
    by_name = {unit.lower(): (unit, factor) for unit, factor in units.items()}

    def parse(text: str) -> float:
        match = _QUANTITY.fullmatch(text.strip())
        if match is None or (match[2] and match[2].lower() not in by_name):
            raise InvalidValueError(f"{shown(text)} is not {what}", f"Write one as in {example}.")
        number = float(match[1])
        likely = [unit for unit, factor in units.items() if "i" not in unit and least <= number * factor <= most]
        hint = " or ".join(f"{match[1]}{unit}" for unit in likely)
        if not match[2]:
            raise InvalidValueError(f"{shown(text)} has no unit", f"Write {hint or f'one, as in {example}'}.")
        quantity = number * by_name[match[2].lower()][1]
        if not least <= quantity <= most:
            side = "less" if quantity < least else "more"
            meant = f"Did you mean {hint}?" if hint else f"Write one as in {example}."
            raise InvalidValueError(f"{shown(text)} is {side} than any GPU has", meant)
        return quantity

    return Kind(f"{what} such as {example}", parse)


def _tflops(text: str) -> float:
    number = kinds.parse_number(text)
    if number > _MOST_TFLOPS:
        raise InvalidValueError(
            f"{shown(text)} is more than any GPU does", "Write TFLOP/s, 1e12 a second, as in 989: of dense matrices."
        )
    if not 0 < number <= _MOST_TFLOPS:
        raise InvalidValueError(f"{shown(text)} is not a rate in TFLOP/s", "Write one as in 989: of dense matrices.")
    return number * 1e12


MEMORY = _quantity("a size of memory", "96GB (10^9) or 96GiB (2^30)", _MEMORY_UNITS, _LEAST_MEMORY, _MOST_MEMORY)
BANDWIDTH = _quantity("a bandwidth", "3.35TB/s", _BANDWIDTH_UNITS, _LEAST_BANDWIDTH, _MOST_BANDWIDTH)
TFLOPS = Kind("a dense rate in TFLOP/s", _tflops)
_RATES = table(**dict.fromkeys((precision.value for precision in Precision), TFLOPS))
# what data sheets call formats
_FORMAT_HINTS = {
    **dict.fromkeys(("fp16", "f16", "float16", "bfloat16"), "Write bf16: it stands for 16-bit float."),
    **dict.fromkeys(("nvfp4", "mxfp4"), "Write fp4."),
    **dict.fromkeys(("fp6", "int4", "tf32", "fp64"), "No weights are multiplied at this rate here: leave it out."),
}


def _card_name(text: str) -> str:
    kinds.text("GPU name", LONGEST).parse(text)
    if not split_words(text):
        raise InvalidValueError(f"{shown(text)} names no card", "Write the name that the card is sold by.")
    return text


CARD_NAME = Kind("the name of a GPU", _card_name, is_text=True)


def read_rates(node: Node, place: Place, context: object) -> Mapping[Precision, float] | None:
    """FLOP/s by precision; None where nothing usable is given."""
    rates = Section(_RATES, node, place, hints=_FORMAT_HINTS).values
    return {Precision(name): rate for name, rate in rates.items()} or None


@dataclass(frozen=True, slots=True)
class GpuModelSettings:
    """One element of `gpu_models:`."""

    name: str = key(CARD_NAME, "By which `gpu_model`, `ceiling --gpu`, prices and series name it.", required=True)
    memory: float = key(MEMORY, "Of one GPU, with its unit: `96GB` (10^9 bytes) or `96GiB` (2^30).", required=True)
    bandwidth: float = key(BANDWIDTH, "Of the memory of one GPU, with its unit: `1.8TB/s` or `960GB/s`.", required=True)
    tflops: Mapping[Precision, float] | None = key(
        read_rates,
        "Dense TFLOP/s of one GPU by format: `fp32`, `bf16` (16-bit float), `fp8`, `int8`, `fp4`. Data sheets print sparse ones "
        "first, twice as much. A format without a rate runs at bf16's. Default: no compute ceiling.",
    )
    bandwidth_upper: float | None = key(
        BANDWIDTH, 'The highest that is published, where that is more: for "at best" alone.'
    )
    tflops_upper: Mapping[Precision, float] | None = key(read_rates, "The same for rates, by format.")
    nvml_names: tuple[str, ...] | None = key(
        list_reader(CARD_NAME, "names as nvidia-smi prints them"),
        "What NVML and device exporters call it. Default: its name.",
    )

    @property
    def spec(self) -> GpuSpec:
        """A row like those of the catalogue."""
        return GpuSpec(
            name=self.name,
            names=tuple(dict.fromkeys((self.name, *(self.nvml_names or ())))),
            memory_bytes=round(self.memory),
            bandwidth_bytes_per_second=self.bandwidth,
            flops=self.tflops or {},
            compute_capability=None,
            source="configuration",
            date="",
            confidence="own",
            key_words=frozenset(split_words(self.name)),
            flops_highest=self.tflops_upper or {},
            bandwidth_highest_bytes_per_second=self.bandwidth_upper,
            own=True,
        )


_CARD_HINTS = {
    "tflops_bf16": "Write tflops: {bf16: …}.",
    **dict.fromkeys(("flops", "tflop", "rates"), "Write tflops: {bf16: 400, fp8: 800}."),
    **dict.fromkeys(("memory_gb", "vram"), "Write memory: 96GB."),
    **dict.fromkeys(("bandwidth_gb_per_second", "memory_bandwidth"), "Write bandwidth: 1.8TB/s."),
    **dict.fromkeys(("nvml", "nvml_name"), "Write nvml_names: [NVIDIA …]."),
}


def read_gpu_models(node: Node | None, place: Place) -> tuple[GpuSpec, ...]:
    """The GPUs that a list describes. What is wrong with one is reported at its place."""
    specs: list[GpuSpec] = []
    owners: dict[tuple[str, ...], str] = {}
    for element, at in elements(node, place, "descriptions such as {name: My Card, memory: 96GB, bandwidth: 1.8TB/s}"):
        spec = read_description(element, at)
        if spec is None:
            continue
        twice = [name for name in spec.names if owners.setdefault(split_words(name), spec.name) != spec.name]
        if twice or list(owners.values()).count(spec.name) < len(spec.names):
            at.refuse(f"the GPU {shown((twice or [spec.name])[0])} is described twice", "Keep one of them.")
        else:
            specs.append(spec)
    return tuple(specs)


def read_description(node: Node, place: Place) -> GpuSpec | None:
    """One GPU; None where its description cannot be used, which is then reported."""
    section = Section(keys_of(GpuModelSettings), node, place, hints=_CARD_HINTS)
    section.refuse_missing(_CARD_EXAMPLE)
    if not section.is_sound:
        return None
    gpu = GpuModelSettings(**section.values)
    _refuse_upside_down(gpu, place)
    return gpu.spec if section.is_sound else None


def _refuse_upside_down(gpu: GpuModelSettings, place: Place) -> None:
    fix = "Write the highest that is published."
    if gpu.bandwidth_upper is not None and gpu.bandwidth_upper < gpu.bandwidth:
        place.key("bandwidth_upper").refuse("it is less than bandwidth", fix)
    rates = gpu.tflops or {}
    for precision, rate in (gpu.tflops_upper or {}).items():
        at = place.key("tflops_upper").key(precision.value)
        if precision not in rates:
            at.refuse(f"tflops has no {precision.value}", "Write the believed rate in tflops, and the highest here.")
        elif rate < rates[precision]:
            at.refuse("it is less than the same of tflops", fix)


# --- `model_catalogue:` ------------------------------------------------------------------------------------------------

_ROW_FIX = "Write each model as [[model]] with a name and config = { model_type = …, hidden_size = …, … }, see docs/ceiling-command.md."


def check_models(path: str, place: Place) -> None:
    """Refuses, at its place, a path whose files hold no models or one that cannot be understood: the file, the row and the key."""
    # the formulas are read by a process that has such a path only
    from llm_serving_exporter.facts import loader

    try:
        loader.own_models(path)
    except FactsError as error:
        fix = error.fix[:1].upper() + error.fix[1:] if error.fix else _ROW_FIX
        place.refuse(error.what.rstrip("."), fix if fix.endswith(".") else f"{fix}.")
