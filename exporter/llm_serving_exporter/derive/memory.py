"""What an engine's GPU memory is taken up by: weights, KV cache, the rest."""

from __future__ import annotations

from llm_serving_exporter.catalogue import roofline as names
from llm_serving_exporter.derive import devices
from llm_serving_exporter.derive.context import holds_every_token
from llm_serving_exporter.derive.figures import figure
from llm_serving_exporter.derive.inputs import DEVICES, HARDWARE, MODEL, WINDOW
from llm_serving_exporter.derive.reads import experts_elsewhere_bytes, kept_token_bytes
from llm_serving_exporter.derive.signals import NOT_ON_A_FRONT_END, gauge
from llm_serving_exporter.model.hardware import Hardware, Parallel
from llm_serving_exporter.model.numbers import add_up
from llm_serving_exporter.model.shape import ModelFacts
from llm_serving_exporter.model.snapshot import Absence
from llm_serving_exporter.model.window import DeviceSample, EngineWindow

# a checkpoint further than this from the computed bytes is not what is served: engines can quantise while they load
CHECKPOINT_BELIEVED_WITHIN_RATIO = 0.25


def split_memory(
    window: EngineWindow, model: ModelFacts | Absence, parallel: Parallel | None, used_bytes: float | Absence
) -> dict[str, float] | Absence:
    """Bytes by part, over the engine's GPUs. `other` (activations, graphs, the CUDA context) only where NVML says what is used.

    Weights: the checkpoint's own size where its index was read. KV: the whole pool, reserved at start whether used or not; absent for
    models with recurrent state or sliding windows, where the engine's capacity is no count of tokens (facts model-math E.3.6).
    """
    if isinstance(model, Absence):
        return model
    if parallel is None:
        return Absence.GPUS_UNKNOWN
    parts = {"weights": _weights(model, parallel)}
    geometry, capacity = model.geometry, window.last.kv_cache_capacity_tokens
    if geometry.encoder:
        known = True
    else:
        known = capacity is not None and bool(geometry.attention) and holds_every_token(geometry)
        if known and capacity is not None:
            parts["kv"] = capacity * kept_token_bytes(model, parallel)
    if known and not isinstance(used_bytes, Absence):
        other = used_bytes - add_up(parts.values())
        if other >= 0:
            parts["other"] = other
    return parts


def _weights(model: ModelFacts, parallel: Parallel) -> float:
    weights, checkpoint = model.weight_bytes, model.checkpoint_bytes
    if checkpoint is not None and abs(checkpoint - weights) <= CHECKPOINT_BELIEVED_WITHIN_RATIO * weights:
        weights = float(checkpoint)
    return weights - experts_elsewhere_bytes(model, parallel)


def _used_bytes(samples: tuple[DeviceSample, ...], hardware: Hardware) -> float | Absence:
    """Bytes in use on the engine's GPUs: its share of the newest sample's."""
    if hardware.engine_gpus is None:
        return Absence.GPUS_UNKNOWN
    used = devices.average_samples(samples[-1:], "memory_used_bytes")
    return used if isinstance(used, Absence) else used * hardware.engine_gpus / samples[-1].gpus


def _parts(
    window: EngineWindow, model: ModelFacts | Absence, hardware: Hardware, used: float | Absence
) -> dict[str, float] | Absence:
    return split_memory(window, model, hardware.parallel, used)


MEMORY = gauge(
    names.MEMORY,
    figure(_parts, WINDOW, MODEL, HARDWARE, figure(_used_bytes, DEVICES, HARDWARE)),
    silent=NOT_ON_A_FRONT_END,
    of_an_engine=True,
)
