"""Published figures at known batch, context and layout: tests/truth/points/*.toml, and the rows of `rooflines` beside them.

A point is what one replica of tp x pp x dp GPUs does. Everything else comes through the code that ships: shapes from the model
catalogue, formats by `quantisation`, peaks from the GPU catalogue.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from functools import cache, cached_property
from typing import Any

from llm_serving_exporter.derive.planning import bound_decode
from llm_serving_exporter.derive.work import (
    Roof,
    compute_seconds,
    kv_read_bytes,
    kv_token_bytes,
    prefill_flops,
    weight_read_bytes,
)
from llm_serving_exporter.errors import FactsError
from llm_serving_exporter.facts import formats
from llm_serving_exporter.facts.architectures import geometry
from llm_serving_exporter.facts.gpus import find
from llm_serving_exporter.facts.loader import gpu_catalogue, model_catalogue
from llm_serving_exporter.facts.peaks import peaks_of_spec
from llm_serving_exporter.facts.quantisation import Assignment, assign, uniform, weigh
from llm_serving_exporter.model.hardware import Parallel
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.shape import Geometry, ModelFacts, WeightFormat
from tests.support.models.rooflines import ROWS, Published, catalogued
from tests.support.paths import TESTS

FOLDER = TESTS / "truth" / "points"
# weights as the catalogue's config.json stores them, and the prefix of llama.cpp's formats
_CHECKPOINT, _GGUF = "checkpoint", "gguf:"


class Kind(StrEnum):
    """How a figure came about."""

    # on hardware, by an engine
    MEASURED = "measured"
    # another tool's sum of kernels that it measured
    KERNELS = "kernels"
    # another tool's arithmetic
    SOL = "sol"


class Phase(StrEnum):
    """What the tokens of a rate are."""

    DECODE = "decode"
    PREFILL = "prefill"


@dataclass(frozen=True)
class Source:
    """Where figures stand. `inputs`: how batch and context are known; `mixed`: servers that compute prompts of newcomers meanwhile;
    `call`: what another tool was asked; `rows`: of `rooflines`."""

    key: str
    title: str
    url: str
    version: str
    date: str
    kind: Kind
    inputs: str = ""
    mixed: bool = False
    call: str = ""
    rows: tuple[str, ...] = ()


@dataclass(frozen=True)
class Point:
    """One figure of a replica.

    `batch` counts the sequences of all ranks; `context`: tokens of each that a decode step reads; `prompt`: tokens of each prompt,
    `prefix` of them in the cache already. One of `tokens_per_second` and `seconds` (of a step, or of all prompts) is given. `weights`:
    "checkpoint", a format's name, or "gguf:" and a file's; `excludes`: what an NVFP4 checkpoint leaves out, instead of it;
    `everything`: the format holds for lm_head and routers too; `rest`: what a file keeps the checkpoint's 16-bit matrices in. `above`:
    why it lies above what is expected.
    """

    source: Source
    model: str
    gpu: str
    phase: Phase
    weights: str = ""
    excludes: tuple[str, ...] = ()
    everything: bool = False
    rest: str = ""
    kv_bytes: float = 2.0
    tp: int = 1
    pp: int = 1
    dp: int = 1
    ep: int = 1
    batch: float = 1.0
    context: float = 0.0
    prompt: float = 0.0
    prefix: float = 0.0
    tokens_per_second: float = 0.0
    seconds: float = 0.0
    call: str = ""
    above: str = ""
    row: Published | None = None

    def __str__(self) -> str:
        tokens = self.prompt if self.phase is Phase.PREFILL else self.context
        return (
            f"{self.source.key}: {self.model} on {self.layout} {self.gpu}, {self.phase} of {self.batch:g} at {tokens:g}"
        )

    @property
    def gpus(self) -> int:
        return self.tp * self.pp * self.dp

    @property
    def layout(self) -> str:
        """As in "TP 8" or "DP 8, EP 8"; one GPU has none."""
        sizes = (("TP", self.tp), ("PP", self.pp), ("DP", self.dp), ("EP", self.ep))
        return ", ".join(f"{name} {size}" for name, size in sizes if size > 1) or "1 GPU"

    @property
    def rate(self) -> float:
        """Tokens/s of the replica: decoded ones, or those of prompts that were not in the cache."""
        if self.tokens_per_second:
            return self.tokens_per_second
        each = self.prompt - self.prefix if self.phase is Phase.PREFILL else 1.0
        return self.batch * each / self.seconds

    @property
    def weight_format(self) -> str:
        """For people."""
        if self.row is not None:
            return f"{self.row.weights.name if not self.row.modelopt else 'nvfp4 experts'}"
        stored = "nvfp4 experts" if self.excludes else self.weights.removeprefix(_GGUF)
        return f"{stored}, the rest {self.rest.removeprefix(_GGUF)}" if self.rest else stored

    def as_tensor_parallel(self) -> Point:
        """The same on as many GPUs, all of them one tensor-parallel group."""
        return replace(self, tp=self.gpus, pp=1, dp=1, ep=1)

    @cached_property
    def roof(self) -> Roof:
        """Raises FactsError where a catalogue does not know the model or the GPU."""
        if self.row is not None:
            return self.row.roof
        config = model_catalogue().find(self.model).entry.config
        shape = geometry(config)
        groups = weigh(shape, _formats(self, config, shape))
        facts = ModelFacts(self.model, self.source.title, shape, groups, self.kv_bytes, "test")
        return Roof(facts, peaks_of_spec(find(self.gpu, gpu_catalogue())), Parallel(self.tp, self.pp, self.dp, self.ep))


def _formats(point: Point, config: Mapping[str, Any], shape: Geometry) -> Assignment:
    if point.excludes:
        quantization = {"quant_algo": "NVFP4", "group_size": 16, "exclude_modules": list(point.excludes)}
        made = {"producer": {"name": "modelopt"}, "quantization": quantization}
        return assign(catalogued(point.model), made, shape)
    if point.weights == _CHECKPOINT:
        found = assign(config, None, shape)
        if not point.rest:
            return found
        rest = _named(point.rest)
        shares = (replace(one, format=rest) if formats.is_plain(one.format) else one for one in found.shares)
        return replace(found, shares=tuple(shares))
    chosen = _named(point.weights)
    return uniform(shape, chosen) if point.everything else assign(catalogued(point.model), None, shape, override=chosen)


def _named(weights: str) -> WeightFormat:
    name = weights.removeprefix(_GGUF)
    return formats.named(name)


@cache
def points() -> tuple[Point, ...]:
    """All of them, by file. Raises TypeError or KeyError for a key or a source that there is not."""
    found: list[Point] = []
    for path in sorted(FOLDER.glob("*.toml")):
        document = tomllib.loads(path.read_text(encoding="utf-8"))
        sources = {one["key"]: _source(one) for one in document["source"]}
        found += [_point(one, sources) for one in document.get("point", ())]
        for source in sources.values():
            found += [_of_row(row, source) for row in ROWS if row.source in source.rows]
    return tuple(found)


def _source(values: Mapping[str, Any]) -> Source:
    return Source(**{**values, "kind": Kind(values["kind"]), "rows": tuple(values.get("rows", ()))})


def _point(values: Mapping[str, Any], sources: Mapping[str, Source]) -> Point:
    known = {field.name for field in fields(Point)}
    assert values.keys() <= known - {"row"}, f"{values}: keys are not known"
    return Point(
        **{
            **values,
            "source": sources[values["source"]],
            "phase": Phase(values["phase"]),
            "excludes": tuple(values.get("excludes", ())),
        }
    )


def _of_row(row: Published, source: Source) -> Point:
    return Point(
        source, row.model, row.gpu, Phase.DECODE, tp=row.tensor, batch=row.batch, context=row.context, kv_bytes=row.kv_bytes,
        tokens_per_second=row.tokens_per_second, row=row,
    )  # fmt: skip


# --- what the shipped arithmetic says of a point: the expected rate, and what nothing real is above. The one place that asks for it ---


@dataclass(frozen=True)
class Bounds:
    """Tokens/s of the replica."""

    # `tokens_per_second` of `ceiling`, or the prompts' tokens over the least time of their FLOPs and bytes
    expected: float
    # the same with the luckiest routing, or at the fastest rate that the GPU has
    upper: float


def ask_bounds(point: Point) -> Bounds | None:
    """None where a catalogue does not know the model or the GPU. Prompts count as evenly spread over the ranks."""
    try:
        roof = point.roof
    except FactsError:
        return None
    if point.phase is Phase.DECODE:
        found = bound_decode(roof, point.batch, point.context)
        assert found is not None, f"{point}: no ceiling"
        return Bounds(found.expected.tokens_per_second, found.upper_tokens_per_second)
    new, ranks = point.prompt - point.prefix, point.dp
    # prompts of one rank; a replica that has fewer than ranks leaves some idle
    each = max(1.0, point.batch / ranks)
    flops = prefill_flops(roof, new, point.prefix)
    computing = compute_seconds(roof, flops, gpus=point.tp)
    assert computing, f"{point}: no rate"
    bandwidth = (roof.peaks.bandwidth_bytes_per_second or 0.0) * point.tp
    read = weight_read_bytes(roof, each * new)
    kept = each * (new * kv_token_bytes(roof) + (kv_read_bytes(roof, point.prefix) if point.prefix else 0.0))
    expected = max(each * computing, (read.expected + kept) / bandwidth)
    rates = {**roof.peaks.flops, **roof.peaks.flops_upper}
    fastest = max(each * sum(flops.values()) / max(rates.values()) / point.tp, (read.lower + kept) / bandwidth)
    tokens = min(point.batch, each * ranks) * new
    return Bounds(tokens / expected, tokens / fastest)
