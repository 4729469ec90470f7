"""`--gpu` and what describes it -> the peaks of one GPU."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from llm_serving_exporter.commands.ceiling.arguments import MEMORY
from llm_serving_exporter.errors import FactsError
from llm_serving_exporter.facts import loader
from llm_serving_exporter.facts.gpus import find
from llm_serving_exporter.facts.peaks import peaks_of_identity, peaks_of_many, peaks_of_spec
from llm_serving_exporter.model.hardware import GpuPeaks, GpuSpec
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.sample import FailureReason
from llm_serving_exporter.model.shape import Precision
from llm_serving_exporter.settings.document import read_bounded, read_document
from llm_serving_exporter.settings.facts import (
    BANDWIDTH,
    CARD_NAME,
    GPU_MODELS,
    TFLOPS,
    GpuModelSettings,
    read_description,
    read_gpu_models,
)
from llm_serving_exporter.settings.flags import FlagReader
from llm_serving_exporter.settings.kinds import Kind
from llm_serving_exporter.settings.problems import InvalidValueError, Place, shown

THIS_GPU = frozenset({"this one", "this", "local"})
_NAME_A_GPU = 'Name one, as in --gpu "H100 SXM".'
_UNSEEN = {
    FailureReason.NO_LIBRARY: "NVIDIA's library libnvidia-ml.so.1 is not on this machine, so that no GPU of it can be seen",
    FailureReason.NO_DRIVER: "the NVIDIA driver is not loaded on this machine, so that no GPU of it can be seen",
}


def _rates(text: str) -> Mapping[Precision, float]:
    """ "bf16=400,fp8=800" -> FLOP/s by precision."""
    found = {}
    for part in text.split(","):
        name, equals, rate = (word.strip() for word in part.partition("="))
        if not equals or name.lower() not in set(Precision):
            raise InvalidValueError(
                f"{shown(part)} is not a rate of {', '.join(Precision)}", "Write them as in bf16=400,fp8=800."
            )
        found[Precision(name.lower())] = TFLOPS.parse(rate)
    return found


RATES = Kind("dense TFLOP/s by format such as bf16=400,fp8=800", _rates)


def find_peaks(flags: FlagReader) -> GpuPeaks | None:
    """What --gpu means; None where nothing usable says it, which is then reported."""
    file = flags.text("--gpu-spec")
    before = len(flags.problems)
    own = _read_file(file, Place(file, "", flags.problems)) if file is not None else ()
    if file is not None and not own and len(flags.problems) == before:
        flags.refuse(
            "--gpu-spec", f"{shown(file)} describes no GPU", "Write gpu_models: as in docs/ceiling-command.md."
        )
    broken = len(flags.problems) > before
    bandwidth, rates = flags.value("--gpu-bandwidth", BANDWIDTH), flags.value("--gpu-tflops", RATES)
    described = any(flags.text(flag) is not None for flag in ("--gpu-bandwidth", "--gpu-tflops"))
    asked = flags.text("--gpu")
    if not asked or not asked.strip():
        if len(own) == 1 and not described:
            return peaks_of_spec(own[0])
        flags.refuse("--gpu", "it is missing", 'Write a name such as "H100 SXM", or "this one" to ask NVML.')
        return None
    if " ".join(asked.lower().split()) in THIS_GPU:
        if described:
            flags.refuse(
                "--gpu", "NVML says what this one is", "Leave --gpu-bandwidth and --gpu-tflops away, or name it."
            )
            return None
        return _find_this_gpu(flags, own)
    if described:
        return _describe(flags, asked.strip(), bandwidth, rates, own)
    try:
        return peaks_of_spec(find(asked, (*own, *loader.gpu_catalogue())))
    except FactsError as error:
        if not broken:  # it may be the one that could not be read
            flags.refuse("--gpu", error.what.rstrip("."), error.fix)
        return None


def _read_file(path: str, place: Place) -> tuple[GpuSpec, ...]:
    """The cards of a file that has `gpu_models:` among whatever else it has, such as the daemon's own; or that is a list, or one."""
    node = read_document(path, place, read_bounded)
    if node is None:
        return ()
    if isinstance(node, dict) and GPU_MODELS in node:
        return read_gpu_models(node[GPU_MODELS], place.key(GPU_MODELS))
    if isinstance(node, list):
        return read_gpu_models(node, place)
    found = read_description(node, place)
    return () if found is None else (found,)


def _describe(
    flags: FlagReader,
    asked: str,
    bandwidth: float | None,
    rates: Mapping[Precision, float] | None,
    own: Sequence[GpuSpec],
) -> GpuPeaks | None:
    """A card that the flags describe: what they leave open is the catalogue's, where that knows the name."""
    try:
        spec = find(asked, (*own, *loader.gpu_catalogue()))
    except FactsError:
        spec = None
    memory = flags.value("--memory", MEMORY)
    if spec is not None:
        spec = replace(spec, own=True)
        if bandwidth is not None:
            spec = replace(spec, bandwidth_bytes_per_second=bandwidth)
            spec = replace(spec, bandwidth_lowest_bytes_per_second=None, bandwidth_highest_bytes_per_second=None)
        if rates is not None:
            spec = replace(spec, flops=rates, flops_lowest={}, flops_highest={})
        return peaks_of_spec(spec)
    name = flags.value("--gpu", CARD_NAME)
    missing = [flag for flag in ("--gpu-bandwidth", "--memory") if flags.text(flag) is None]
    for flag in missing:
        what = f"it is missing, and the catalogue does not know {shown(asked)}"
        flags.refuse(flag, what, f"Write one as in {'1.8TB/s' if flag == '--gpu-bandwidth' else '96GB'}.")
    if name is None or bandwidth is None or not memory or missing:
        return None
    return peaks_of_spec(GpuModelSettings(name, memory, bandwidth, rates).spec)


def _find_this_gpu(flags: FlagReader, own: Sequence[GpuSpec]) -> GpuPeaks | None:
    """What NVML says of the GPUs of this machine, MIG instances instead of the GPUs they are of."""
    from llm_serving_exporter.gpus.nvml import NvmlSource

    # what it would log is said here as a refusal
    source = NvmlSource(gpm=False, xid_events=False, log=logging.Logger("ceiling", logging.CRITICAL + 1))
    try:
        readings = source.read()
    finally:
        source.close()
    if readings.attempt.reason is not None:
        why = _UNSEEN.get(readings.attempt.reason, f"no GPU of this machine can be seen: {readings.attempt.detail}")
        flags.refuse("--gpu", why, _NAME_A_GPU)
        return None
    seen = [gpu.identity for gpu in readings.gpus if not gpu.lost]
    parents = {identity.mig.parent_uuid for identity in seen if identity.mig is not None}
    usable = [identity for identity in seen if identity.uuid not in parents]
    if not usable:
        flags.refuse("--gpu", "NVML shows no GPU on this machine", _NAME_A_GPU)
        return None
    rows = (*own, *loader.gpu_catalogue())
    return peaks_of_many([peaks_of_identity(identity, rows) for identity in usable])
