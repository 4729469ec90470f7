"""Bytes of a model's weights, and in what precision its matrices are multiplied."""

from __future__ import annotations

from enum import StrEnum

from llm_serving_exporter.model.geometry import Geometry, RecurrentLayers
from llm_serving_exporter.model.numbers import add_up
from llm_serving_exporter.model.record import Struct


class Precision(StrEnum):
    """Tensor-core rates that a GPU's data sheet states apart. fp16 runs at bf16's rate wherever both exist."""

    FP32 = "fp32"
    BF16 = "bf16"
    FP8 = "fp8"
    INT8 = "int8"
    FP4 = "fp4"


class WeightFormat(Struct, frozen=True):
    """How matrices are stored, and in what precision they are multiplied at best."""

    name: str  # such as "fp8" or "int4_g128"
    bits: float  # per stored weight, scales and zero points included (facts model-math D.5)
    # on a GPU with a native path for it (W8A8 fp8: FP8; weight-only formats: BF16); one without dequantises and runs
    # at BF16
    multiplied: Precision

    @property
    def bytes(self) -> float:
        """Bytes per weight."""
        return self.bits / 8


class WeightGroup(Struct, frozen=True):
    """The weights that one format keeps, sorted by how a step touches them. Bytes are floats because of fractional bits.

    The `_parameters` are those of matrices, for FLOPs: 2 for each that a token passes.
    """

    format: WeightFormat  # of all of them
    fixed_bytes: float = 0.0  # read whole by every step: all but routed experts, input embedding and lm_head
    fixed_parameters: int = 0  # of the same matrices
    # of `fixed_bytes`: dense MLPs and shared experts, which engines may spread over data-parallel ranks whose attention they do not
    ffn_bytes: float = 0.0
    lm_head_bytes: float = 0.0  # read whole by every step that has tokens to sample
    lm_head_parameters: int = 0  # of the same matrix
    expert_bytes: float = 0.0  # of one routed expert, summed over the layers that have it
    expert_parameters: int = 0  # of the same matrices
    embedding_bytes: float = 0.0  # kept in memory; a step reads as good as nothing of them


class ModelFacts(Struct, frozen=True):
    """Everything that is known about the model a target serves."""

    name: str  # as served, else as in the catalogue
    origin: str  # where geometry and formats come from, in words
    geometry: Geometry  # its shape, without formats
    groups: tuple[WeightGroup, ...]  # its weights, one group a format
    kv_bytes_per_element: float  # of the KV cache, which has a dtype of its own
    kv_format: str  # name of that dtype
    state_bytes_per_element: float = 4.0  # of recurrent state
    # of all weights as stored, by the server or by a safetensors index, where they are served as stored; None:
    # neither says it
    checkpoint_bytes: int | None = None
    estimate_sound: bool = False  # whether vLLM's own byte estimate knows these formats (facts E.5)
    # whether nothing said how the weights or the KV cache are stored, so that the usual format was taken
    formats_assumed: bool = False
    # of these, whether the weights' is the usual one because not even the row of the catalogue states it
    weights_assumed: bool = False
    context_limit_tokens: int | None = None  # positions that the config is made for; None: it does not say
    notes: tuple[str, ...] = ()  # sentences about what could not be read or does not fit together

    @property
    def weight_bytes(self) -> float:
        """Bytes of all weights as kept in GPU memory, by our arithmetic."""
        experts = self.geometry.experts
        return add_up(
            group.fixed_bytes + group.lm_head_bytes + group.embedding_bytes + experts * group.expert_bytes
            for group in self.groups
        )

    @property
    def kv_bytes_per_token(self) -> float:
        """KV bytes stored per token, each attention layer in full, indexers' keys included."""
        return self.geometry.kv_elements_stored() * self.kv_bytes_per_element + self.geometry.index_bytes_stored()

    def state_bytes_per_sequence(self) -> float:
        """Bytes of recurrent state of one sequence; convolution state is kept in 2 bytes an element."""
        return add_up(group.layers * self.layer_state_bytes(group) for group in self.geometry.recurrent)

    def layer_state_bytes(self, group: RecurrentLayers) -> float:
        """The same of one of these layers."""
        return group.ssm_elements * self.state_bytes_per_element + group.conv_elements * 2
