"""Bytes of a model's weights, and in what precision its matrices are multiplied."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from llm_serving_exporter.model.geometry import Geometry


class Precision(StrEnum):
    """Tensor-core rates that a GPU's data sheet states apart. fp16 runs at bf16's rate wherever both exist."""

    FP32 = "fp32"
    BF16 = "bf16"
    FP8 = "fp8"
    INT8 = "int8"
    FP4 = "fp4"


@dataclass(frozen=True, slots=True)
class WeightFormat:
    """How matrices are stored, and multiplied at best.

    `bits` per stored weight, scales and zero points included (facts model-math D.5). `multiplied` is the rate of a GPU with a native path
    for it (W8A8 fp8: FP8; weight-only formats: BF16); a GPU without one dequantises and runs at BF16.
    """

    name: str
    bits: float
    multiplied: Precision

    @property
    def bytes(self) -> float:
        """Bytes per weight."""
        return self.bits / 8


@dataclass(frozen=True, slots=True)
class WeightGroup:
    """The weights that one format keeps, sorted by how a step touches them. Bytes are floats because of fractional bits.

    `fixed`: read whole by every step (all but routed experts, input embedding and lm_head). `lm_head`: read whole by every step that has
    tokens to sample. `expert`: of one routed expert, summed over the layers that have them. `embedding`: kept, not read.
    The `_parameters` are the matrix parameters, for FLOPs: 2 for each that a token passes.
    """

    format: WeightFormat
    fixed_bytes: float = 0.0
    fixed_parameters: int = 0
    lm_head_bytes: float = 0.0
    lm_head_parameters: int = 0
    expert_bytes: float = 0.0
    expert_parameters: int = 0
    embedding_bytes: float = 0.0


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """Everything that is known about the model a target serves.

    `name` as served or as in the catalogue. `origin` says where geometry and formats come from, in words. `kv_bytes_per_element`: of the
    KV cache, which has a dtype of its own. `state_bytes_per_element`: of recurrent state. `checkpoint_bytes`: the `total_size` of a
    safetensors index where one could be read and the weights are served as stored. `estimate_sound`: whether vLLM's own byte estimate
    knows these formats (facts E.5). `formats_assumed`: nothing said in which format the weights or the KV cache are served, and the
    usual one was taken. `context_limit_tokens`: positions that the config is made for, None where it does not say. `notes`: sentences
    about what could not be read or does not fit together.
    """

    name: str
    origin: str
    geometry: Geometry
    groups: tuple[WeightGroup, ...]
    kv_bytes_per_element: float
    kv_format: str
    state_bytes_per_element: float = 4.0
    checkpoint_bytes: int | None = None
    estimate_sound: bool = False
    formats_assumed: bool = False
    context_limit_tokens: int | None = None
    notes: tuple[str, ...] = ()

    @property
    def weight_bytes(self) -> float:
        """Bytes of all weights as kept in GPU memory, by our arithmetic."""
        experts = self.geometry.experts
        return sum(
            group.fixed_bytes + group.lm_head_bytes + group.embedding_bytes + experts * group.expert_bytes
            for group in self.groups
        )

    @property
    def kv_bytes_per_token(self) -> float:
        """KV bytes stored per token, each attention layer in full."""
        return self.geometry.kv_elements_stored() * self.kv_bytes_per_element

    def state_bytes_per_sequence(self) -> float:
        """Bytes of recurrent state of one sequence; convolution state is kept in 2 bytes an element."""
        return sum(
            group.layers * (group.ssm_elements * self.state_bytes_per_element + group.conv_elements * 2)
            for group in self.geometry.recurrent
        )
