"""Models and GPUs for roofline tests: peaks as facts model-math states them (the catalogue has tests of its own), models by formula.

`served` keeps every tensor in one format, norms too, as the seeds' arithmetic does; `mixed` is for tests that need more.
"""

import tomllib
from importlib.resources import files
from typing import Any

from llm_serving_exporter.derive.work import Roof
from llm_serving_exporter.facts.architectures import geometry
from llm_serving_exporter.model.hardware import GpuPeaks, Parallel
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.shape import (
    AttentionLayers,
    Geometry,
    ModelFacts,
    Module,
    Part,
    Precision,
    RecurrentLayers,
    Span,
    WeightFormat,
    WeightGroup,
)

BF16 = WeightFormat("bf16", 16.0, Precision.BF16)
FP8 = WeightFormat("fp8", 8.0, Precision.FP8)
INT8 = WeightFormat("int8", 8.0, Precision.INT8)
INT8_WEIGHT_ONLY = WeightFormat("int8_w8a16", 8.0, Precision.BF16)
INT4 = WeightFormat("int4", 4.0, Precision.BF16)
NVFP4 = WeightFormat("nvfp4", 4.5, Precision.FP4)
MXFP4 = WeightFormat("mxfp4", 4.25, Precision.BF16)


def gpu(name: str, terabytes_per_second: float | None, memory_gb: float | None = None, **teraflops: float) -> GpuPeaks:
    """Peaks in the units data sheets print."""
    return GpuPeaks(
        name,
        None if terabytes_per_second is None else terabytes_per_second * 1e12,
        "test",
        flops={Precision(key): value * 1e12 for key, value in teraflops.items()},
        memory_bytes=None if memory_gb is None else int(memory_gb * 1e9),
    )


A100 = gpu("A100 SXM 80GB", 2.039, 80, bf16=312, int8=624)
A100_ROUNDED = replace(A100, bandwidth_bytes_per_second=2.0e12)  # as S1 and S2 round it
H100 = gpu("H100 SXM 80GB", 3.35, 80, bf16=989.4, fp8=1978.9, int8=1978.9)
H100_PCIE = gpu("H100 PCIe 80GB", 2.0, 80, bf16=756, fp8=1513)
H200 = gpu("H200 SXM 141GB", 4.8, 141, bf16=989.4, fp8=1978.9)
B200 = gpu("B200 180GB", 8.0, 180, bf16=2250, fp8=4500, fp4=9000)
L40S = gpu("L40S", 0.864, 48, bf16=362)


# attention layers by facts model-math B.9, without their FLOPs where no test needs them
GPT_OSS = (AttentionLayers(18, 1024, 8, 0, 0), AttentionLayers(18, 1024, 8, 0, 0, Span.SLIDING, 128))
GEMMA_3_27B = (AttentionLayers(10, 4096, 16, 0, 0), AttentionLayers(52, 4096, 16, 0, 0, Span.SLIDING, 1024))
MISTRAL = (AttentionLayers(32, 2048, 8, 0, 0, Span.SLIDING, 4096),)
DEEPSEEK_V3 = (AttentionLayers(61, 576, 1, 278_528, 81_920),)


def llama(hidden: int, layers: int, heads: int, kv_heads: int, intermediate: int, vocabulary: int = 128256) -> Geometry:
    """A Llama of facts model-math B.8."""
    return geometry(
        {
            "model_type": "llama", "hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads,
            "num_key_value_heads": kv_heads, "intermediate_size": intermediate, "vocab_size": vocabulary,
            "tie_word_embeddings": False,
        }
    )  # fmt: skip


LLAMA_8B = llama(4096, 32, 32, 8, 14336)
LLAMA_70B = llama(8192, 80, 64, 8, 28672)
LLAMA_405B = llama(16384, 126, 128, 8, 53248)


def group(shape: Geometry, weight_format: WeightFormat, parts: frozenset[Part] = frozenset(Part)) -> WeightGroup:
    """The weights of those parts of a model, all in one format."""
    values: dict[str, Any] = dict.fromkeys(
        ("fixed_parameters", "lm_head_parameters", "expert_parameters"), 0
    ) | dict.fromkeys(("fixed_bytes", "lm_head_bytes", "expert_bytes", "embedding_bytes"), 0.0)
    for module in shape.modules:
        if module.part not in parts:
            continue
        kind = {
            Part.EMBEDDING: "embedding", Part.ENCODER_ONLY: "embedding", Part.LM_HEAD: "lm_head", Part.EXPERT: "expert",
        }.get(module.part, "fixed")  # fmt: skip
        values[f"{kind}_bytes"] += (module.matrix + module.vector) * module.places * weight_format.bytes
        if kind != "embedding":
            values[f"{kind}_parameters"] += module.matrix * module.places
    return WeightGroup(weight_format, **values)


def served(shape: Geometry, weight_format: WeightFormat = BF16, kv_bytes: float = 2.0) -> ModelFacts:
    """Every tensor in one format."""
    return ModelFacts("test", "test", shape, (group(shape, weight_format),), kv_bytes, "test")


def mixed(shape: Geometry, formats: dict[Part, WeightFormat], rest: WeightFormat, kv_bytes: float = 2.0) -> ModelFacts:
    """The named parts in formats of their own, everything else in `rest`."""
    groups = [group(shape, weight_format, frozenset({part})) for part, weight_format in formats.items()]
    groups.append(group(shape, rest, frozenset(Part) - formats.keys()))
    return ModelFacts("test", "test", shape, tuple(groups), kv_bytes, "test")


def shape(
    attention: tuple[AttentionLayers, ...] = (), recurrent: tuple[RecurrentLayers, ...] = (), *,
    experts: int = 0, per_token: int = 0, encoder: bool = False,
) -> Geometry:  # fmt: skip
    """A geometry of which only attention, state and experts count; its weights come with `flat`."""
    modules = (Module("experts.*", Part.EXPERT, 0, copies=experts, per_token=per_token),) if experts else ()
    return Geometry("test", modules, attention, 1, 1, 1, recurrent, encoder, bidirectional=encoder)


def flat(
    parameters: float, weight_format: WeightFormat = BF16, form: Geometry | None = None, *,
    expert_parameters: float = 0.0, kv_bytes: float = 2.0,
) -> ModelFacts:  # fmt: skip
    """A model that is a number of parameters which each step reads, and experts of that many each."""
    weights = WeightGroup(
        weight_format,
        fixed_bytes=parameters * weight_format.bytes,
        fixed_parameters=round(parameters),
        expert_bytes=expert_parameters * weight_format.bytes,
        expert_parameters=round(expert_parameters),
    )
    return ModelFacts("test", "test", form or shape(), (weights,), kv_bytes, "test")


def roof(model: ModelFacts, peaks: GpuPeaks = H100, tensor: int = 1, pipeline: int = 1, **more: Any) -> Roof:
    """A roof over tensor x pipeline x data GPUs. `sharing`: so many ranks, which share one set of experts."""
    sharing = more.pop("sharing", 1)
    data, expert = more.pop("data", sharing), more.pop("expert", tensor * sharing)
    return Roof(model, peaks, Parallel(tensor, pipeline, data, expert, more.pop("context", 1)), **more)


def catalogue_row(name: str) -> dict[str, Any]:
    """A row of the GPU catalogue as its file has it."""
    rows = tomllib.loads((files("llm_serving_exporter.facts") / "gpus.toml").read_text())["gpu"]
    return next(row for row in rows if row["name"] == name)
