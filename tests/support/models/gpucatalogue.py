"""The packaged GPU catalogue, read from its file as it is shipped, and devices as NVML reports them."""

import tomllib
from importlib.resources import files

from llm_serving_exporter.facts.gpus import parse
from llm_serving_exporter.model.gpu import GpuIdentity, MigInstance
from llm_serving_exporter.model.hardware import GpuSpec
from tests.support.paths import TESTS

MEBIBYTE = 1 << 20
DOCUMENT = tomllib.loads(files("llm_serving_exporter.facts").joinpath("gpus.toml").read_text(encoding="utf-8"))
CATALOGUE = parse(DOCUMENT)
# figures of other sources than the rows'
TABLES = tomllib.loads((TESTS / "truth" / "gpus.toml").read_text(encoding="utf-8"))


def row(name: str) -> GpuSpec:
    """A row by its display name."""
    (found,) = [spec for spec in CATALOGUE if spec.name == name]
    return found


def device(
    name: str,
    memory_mib: int | None = None,
    pci: int | None = None,
    clock_mhz: float | None = None,
    bus_bits: int | None = None,
    mig: MigInstance | None = None,
) -> GpuIdentity:
    """What NVML says of a device; the PCI id is completed to NVML's form (device << 16 | vendor)."""
    peak = None if clock_mhz is None or bus_bits is None else 2 * clock_mhz * 1e6 * bus_bits / 8
    return GpuIdentity(
        uuid="GPU-00000000-0000-0000-0000-000000000000",
        index=0,
        name=name,
        pci_device_id=None if pci is None else pci << 16 | 0x10DE,
        memory_total_bytes=None if memory_mib is None else memory_mib * MEBIBYTE,
        memory_bus_width_bits=bus_bits,
        memory_clock_max_hertz=None if clock_mhz is None else clock_mhz * 1e6,
        memory_bandwidth_peak_bytes_per_second=peak,
        mig=mig,
    )


def instance(profile: str, slices: int | None, total: int | None = 8) -> MigInstance:
    """A MIG instance of a profile with its memory slices."""
    return MigInstance(1, 0, profile, "GPU-parent", slices, total)
