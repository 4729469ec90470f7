"""Record what a real GPU shows as one JSON file, fit to be committed as a capture: UUIDs and pids are masked.

    python -m tests.hardware.record h200.json --passes 3 --interval 2
    python -m tests.hardware.record h200.json --loads

The file holds the driver's version, the pynvml version, the peaks that the catalogue and NVML give each GPU, and the passes as they came,
field by field of `GpuReadings`. With --loads also passes while a copy loop and a matmul loop run on the first whole GPU, with the
bytes and FLOPs that they really did: what a roofline needs to be checked without the GPU.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import time
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from llm_serving_exporter.facts import loader
from llm_serving_exporter.facts.peaks import peaks_of_identity
from llm_serving_exporter.gpus.nvml import NvmlSource
from llm_serving_exporter.model.gpu import GpuIdentity, GpuReadings
from llm_serving_exporter.model.record import as_dict
from tests.hardware.cuda import CudaError
from tests.hardware.loads import COPY, MATMUL, Load
from tests.hardware.measure import SETTLE_SECONDS, Measured, measure


@dataclasses.dataclass(frozen=True)
class Loaded:
    """What came of one load: measured, or why it could not run."""

    load: Load
    measured: Measured | None = None
    why_not: str = ""


class Mask:
    """Every UUID becomes "GPU-masked-<n>" or "MIG-masked-<n>", the same one wherever it stands, every pid its place."""

    def __init__(self) -> None:
        self._masked: dict[str, str] = {}

    def __call__(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {str(key): self(one) for key, one in value.items()}
        if isinstance(value, list | tuple):
            return [self(one) for one in value]
        if isinstance(value, str) and value.startswith(("GPU-", "MIG-")):
            return self._masked.setdefault(value, f"{value[:3]}-masked-{len(self._masked)}")
        return value

    def passes(self, passes: Sequence[GpuReadings]) -> list[Any]:
        written: list[Any] = [self(as_dict(one)) for one in passes]
        for one in written:
            for gpu in one["gpus"]:
                for place, process in enumerate(gpu["processes"] or (), start=1):
                    process["pid"] = place
        return written


def recording(passes: Sequence[GpuReadings], loads: Sequence[Loaded] = ()) -> dict[str, Any]:
    """What was read as JSON-ready values."""
    mask = Mask()
    document: dict[str, Any] = {"nvidia_ml_py": metadata.version("nvidia-ml-py"), "passes": mask.passes(passes)}
    catalogue = loader.gpu_catalogue()
    identities = [gpu.identity for gpu in passes[-1].gpus]
    document["peaks"] = [
        {"uuid": mask(one.uuid), **mask(as_dict(peaks_of_identity(one, catalogue)))} for one in identities
    ]
    document["loads"] = [_load(one, mask) for one in loads]
    return document


def _load(one: Loaded, mask: Mask) -> dict[str, Any]:
    head = {"load": one.load.name, "unit": one.load.unit}
    if one.measured is None:
        return {**head, "why_not": one.why_not}
    return {
        **head,
        "uuid": mask(one.measured.gpus[0].identity.uuid),
        "per_second": one.measured.per_second,
        "seconds": one.measured.seconds,
        "multiprocessors": one.measured.multiprocessors,
        "passes": mask.passes(one.measured.passes),
    }


def under_loads(
    loads: Sequence[Load],
    read: Callable[[], GpuReadings],
    *,
    passes: int,
    interval_seconds: float,
    settle_seconds: float = SETTLE_SECONDS,
) -> list[Loaded]:
    """Each load on the first whole GPU, read a number of times amid it; a load that cannot run says why."""
    identity = whole_gpu(read())
    if identity is None or identity.pci_bus_id is None:
        return [Loaded(load, why_not="no GPU that is not in MIG mode") for load in loads]
    done = []
    for load in loads:
        try:
            found = measure(
                load, identity.uuid, identity.pci_bus_id, read,
                passes=passes, interval_seconds=interval_seconds, settle_seconds=settle_seconds,
            )  # fmt: skip
            done.append(Loaded(load, found))
        except (CudaError, ValueError) as error:
            done.append(Loaded(load, why_not=str(error)))
    return done


def whole_gpu(readings: GpuReadings) -> GpuIdentity | None:
    """The first GPU that is not cut into MIG instances."""
    parents = {gpu.identity.mig.parent_uuid for gpu in readings.gpus if gpu.identity.mig}
    whole = (gpu.identity for gpu in readings.gpus if gpu.identity.mig is None and not gpu.lost)
    return next((identity for identity in whole if identity.uuid not in parents), None)


def main(arguments: list[str] | None = None, loads: Sequence[Load] = (COPY, MATMUL)) -> int:
    """Read and write; the exit status is 1 where no GPU can be read, with the reason on standard error."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--passes", type=int, default=3, choices=range(1, 101), metavar="1-100")
    parser.add_argument("--interval", type=float, default=2.0, help="seconds between passes")
    parser.add_argument("--loads", action="store_true", help="read also while known loads run on the first whole GPU")
    parser.add_argument("--settle", type=float, default=SETTLE_SECONDS, help="seconds of a load before its first pass")
    options = parser.parse_args(arguments)
    source = NvmlSource()
    passes: list[GpuReadings] = []
    loaded: list[Loaded] = []
    try:
        for number in range(options.passes):
            if number:
                time.sleep(options.interval)
            passes.append(source.read())
        if options.loads and passes[-1].attempt.ok:
            loaded = under_loads(
                loads, source.read,
                passes=options.passes, interval_seconds=options.interval, settle_seconds=options.settle,
            )  # fmt: skip
    finally:
        source.close()
    if not passes[-1].attempt.ok or not passes[-1].gpus:
        print(f"no GPU can be read: {passes[-1].attempt.detail}", file=sys.stderr)
        return 1
    for one in loaded:
        if one.measured is None:
            print(f"the {one.load.name} loop did not run: {one.why_not}", file=sys.stderr)
    options.file.write_text(json.dumps(recording(passes, loaded), indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
