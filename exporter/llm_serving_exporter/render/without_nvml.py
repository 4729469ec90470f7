"""What a host without NVML can still tell, in sentences: for the landing page, `once` and the log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from llm_serving_exporter.model.gpu import GpuReadings
from llm_serving_exporter.model.reading import TargetReading
from llm_serving_exporter.model.sample import FailureReason
from llm_serving_exporter.model.target import Role

MOST_NAMED = 3
# of a driver that is not there, as on a host whose accelerators are not NVIDIA's
_NOT_HERE = frozenset({FailureReason.NO_LIBRARY, FailureReason.NO_DRIVER})


def explain_without_nvml(readings: GpuReadings | None, targets: Sequence[TargetReading]) -> tuple[str, ...]:
    """What still works, what does not, and what to set; () where GPUs are read, or where reading them only fails for now.

    `readings`: None where GPUs are not read at all.
    """
    if readings is not None and readings.attempt.reason not in _NOT_HERE:
        return ()
    return tuple(_explain(targets))


def _explain(targets: Sequence[TargetReading]) -> Iterator[str]:
    yield (
        "Without NVML everything that the engines' pages say is still here: load, latency, SLOs, KV cache, batch, preemptions."
    )
    engines = [reading for reading in targets if reading.role is not Role.FRONTEND and reading.target.gpus != ()]
    bare = [reading for reading in engines if not _is_known(reading)]
    needs = "ceilings, rooflines with the bandwidth that the model must move, fit, the limiter and cost"
    if not engines:
        yield f"For {needs} a target says what its GPUs are: gpu_model and gpu_count."
    elif bare:
        names = [reading.target.name for reading in bare]
        more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
        yield f"For {needs} set gpu_model and gpu_count of {', '.join(names[:MOST_NAMED])}{more}."
    else:
        yield f"Of {needs} nothing is missing: every target says what its GPUs are."
    yield (
        "Only a driver or a device exporter measures power, energy, temperature, memory in use, busy time and bandwidth in use: for AMD's "
        "GPUs and Intel's Gaudi set device_exporter.url (docs/other-gpus.md); of TPU, Trainium and Apple nothing is read."
    )


def _is_known(reading: TargetReading) -> bool:
    """Whether kind and number of a target's GPUs are known, from its configuration or by its own word."""
    gpus = reading.gpus.total
    return gpus is not None and bool(gpus.name) and gpus.count > 0
