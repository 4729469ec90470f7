"""Engines whose steps are exactly the known loads: what they did, in the counters of an engine, through the exporter's own derivation.

    copy     a step reads its weights, one buffer, and computes one token whose KV, the other buffer, it writes
    matmul   a step takes n tokens through the one n x n matrix that the model is: a product of two square matrices

So the published ratios themselves are tested, not the arithmetic written a second time.
"""

from __future__ import annotations

from llm_serving_exporter.gpus.attribution import make_sample
from llm_serving_exporter.model.hardware import GpuPeaks, Hardware, Parallel
from llm_serving_exporter.model.numbers import Histogram
from llm_serving_exporter.model.shape import AttentionLayers, Geometry, ModelFacts, Precision, WeightFormat, WeightGroup
from llm_serving_exporter.model.snapshot import EngineSnapshot
from llm_serving_exporter.model.window import EngineWindow
from tests.hardware.measure import Measured
from tests.support.builders.engine_roofline import Outcome, roofline

BF16 = WeightFormat("bf16", 16.0, Precision.BF16)
NO_EVENTS = Histogram((1.0,), (0.0,), 0.0, 0.0)


def copy_outcome(measured: Measured, peaks: GpuPeaks, copy_bytes: int) -> Outcome:
    """The roofline of an engine whose step is one copy of that many bytes."""
    elements = copy_bytes // 2
    written = AttentionLayers(layers=1, kv_elements=elements, kv_heads=1, decode_flops=0, prefill_flops=0)
    weights = WeightGroup(BF16, fixed_bytes=float(copy_bytes))
    copies = measured.per_second * measured.seconds / (2 * copy_bytes)
    return _outcome(measured, peaks, _model("copy", (written,), weights), steps=copies, tokens=copies)


def matmul_outcome(measured: Measured, peaks: GpuPeaks, size: int) -> Outcome:
    """The roofline of an engine whose step is one product of two matrices of that size."""
    weights = WeightGroup(BF16, fixed_bytes=2.0 * size**2, fixed_parameters=size**2)
    products = measured.per_second * measured.seconds / (2 * size**3)
    return _outcome(measured, peaks, _model("matmul", (), weights), steps=products, tokens=products * size)


def _model(name: str, attention: tuple[AttentionLayers, ...], weights: WeightGroup) -> ModelFacts:
    shape = Geometry(name, (), attention, hidden_size=1, layers=1, vocabulary=1)
    return ModelFacts(name, "a loop", shape, (weights,), kv_bytes_per_element=2.0, kv_format="bf16")


def _outcome(measured: Measured, peaks: GpuPeaks, model: ModelFacts, *, steps: float, tokens: float) -> Outcome:
    before, after = (
        EngineSnapshot(
            model.name,
            "0",
            prefill_tokens_total=tokens * part,
            engine_steps_total=steps * part,
            time_to_first_token_seconds=NO_EVENTS,
            inter_token_latency_seconds=NO_EVENTS,
        )
        for part in (0.0, 1.0)
    )
    uuid = measured.gpus[0].identity.uuid
    # the first pass averages over the time before it
    found = (make_sample((uuid,), one) for one in measured.passes[1:])
    return roofline(
        EngineWindow((before, after), measured.seconds),
        tuple(one for one in found if one is not None),
        model,
        Hardware(peaks, Parallel(), gpus=1),
    )
