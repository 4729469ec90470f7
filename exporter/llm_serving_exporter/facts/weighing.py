"""Bytes of a model's weights from its geometry and formats, and of one decode step's reads of them (facts model-math D.2)."""

from __future__ import annotations

from collections.abc import Iterable

from llm_serving_exporter.facts import formats
from llm_serving_exporter.facts.architectures import without_lm_head
from llm_serving_exporter.facts.quantisation import Assignment
from llm_serving_exporter.model.geometry import Geometry, Module, Part
from llm_serving_exporter.model.numbers import add_up
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.weights import ModelFacts, Precision, WeightFormat, WeightGroup

_KEPT_ONLY = frozenset({Part.EMBEDDING, Part.ENCODER_ONLY})
_WEIGHED_BY_VLLM = frozenset({Part.ATTENTION, Part.FFN, Part.EXPERT})
# the methods of which vLLM's estimator has the right bytes per weight (vllm/v1/metrics/perf.py, facts E.5); "" is no quantisation
_METHODS_ESTIMATED = frozenset({"", "fp8", "fbgemm_fp8", "modelopt"})


class _Sums:
    """What one format keeps, added up."""

    def __init__(self) -> None:
        self.bytes = {"fixed": 0.0, "lm_head": 0.0, "expert": 0.0, "embedding": 0.0}
        self.parameters = {"fixed": 0, "lm_head": 0, "expert": 0, "embedding": 0}
        self.ffn_bytes = 0.0

    def add(self, module: Module, elements: int, bytes_each: float) -> None:
        """So many weights of a module's kind."""
        added = elements * bytes_each
        self.bytes[_role(module.part)] += added
        if module.part is Part.FFN:
            self.ffn_bytes += added

    def group(self, weight_format: WeightFormat) -> WeightGroup:
        return WeightGroup(
            weight_format,
            fixed_bytes=self.bytes["fixed"],
            fixed_parameters=self.parameters["fixed"],
            ffn_bytes=self.ffn_bytes,
            lm_head_bytes=self.bytes["lm_head"],
            lm_head_parameters=self.parameters["lm_head"],
            expert_bytes=self.bytes["expert"],
            expert_parameters=self.parameters["expert"],
            embedding_bytes=self.bytes["embedding"],
        )


def _role(part: Part) -> str:
    if part in _KEPT_ONLY:
        return "embedding"
    if part is Part.LM_HEAD:
        return "lm_head"
    return "expert" if part is Part.EXPERT else "fixed"


def weigh(geometry: Geometry, assignment: Assignment) -> tuple[WeightGroup, ...]:
    """One group a format, in the order of the modules. `assignment` must be of this geometry.

    Vectors (norms, biases) are in the model's dtype and count for bytes, not for matrix parameters. A tied table is lm_head: kept once,
    read whole. `expert_bytes` are of one of `geometry.experts`.
    """
    sums: dict[WeightFormat, _Sums] = {}
    for share in assignment.shares:
        module = share.module
        if module.matrix:
            into = sums.setdefault(share.format, _Sums())
            into.add(module, module.matrix * share.places, share.format.bytes)
            into.parameters[_role(module.part)] += module.matrix * share.places
        if module.vector:
            into = sums.setdefault(assignment.dtype, _Sums())
            into.add(module, module.vector * share.places, assignment.dtype.bytes)
    return tuple(added.group(weight_format) for weight_format, added in sums.items())


def stored_bytes(groups: Iterable[WeightGroup], experts: int) -> float:
    """All weights as kept in GPU memory; `experts` of a layer (geometry.experts)."""
    return add_up(
        group.fixed_bytes + group.lm_head_bytes + group.embedding_bytes + experts * group.expert_bytes
        for group in groups
    )


def step_bytes(groups: Iterable[WeightGroup], experts_touched: float) -> float:
    """Weights that one decode step reads with so many routed experts of each layer touched; the experts of one token at batch 1."""
    return add_up(group.fixed_bytes + group.lm_head_bytes + experts_touched * group.expert_bytes for group in groups)


def estimate_sound(geometry: Geometry, assignment: Assignment) -> bool:
    """Whether vLLM's own byte estimate can be right for this model (facts E.5).

    It takes one width for all weights: dense and MoE decoders of which every attention and FFN matrix is bf16, fp16 or fp8. Not hybrids
    (their recurrent layers are billed as attention), other quantisations (4 bits or half of the bytes assumed, or no component at all),
    nor fp8 checkpoints that leave part of their matrices unquantised. Speculation makes it unsound too, which the config does not tell.
    """
    if geometry.recurrent or geometry.encoder or assignment.method not in _METHODS_ESTIMATED:
        return False
    kept = {
        share.format for share in assignment.shares if share.module.part in _WEIGHED_BY_VLLM and share.module.matrix
    }
    if len(kept) != 1:
        return False
    (weight_format,) = kept
    eight_bits = weight_format.multiplied is Precision.FP8 and weight_format.bits < formats.MXFP8.bits
    return eight_bits or weight_format in (formats.BF16, formats.FP16)


def as_embedder(model: ModelFacts) -> ModelFacts:
    """The same model as a server that pools loads it: no lm_head, a tied table as input embedding alone. An encoder comes back as it is."""
    if model.geometry.encoder:
        return model
    tied = model.geometry.tied
    groups = tuple(
        replace(
            group,
            lm_head_bytes=0.0,
            lm_head_parameters=0,
            embedding_bytes=group.embedding_bytes + (group.lm_head_bytes if tied else 0.0),
        )
        for group in model.groups
    )
    return replace(model, geometry=without_lm_head(model.geometry), groups=groups)
