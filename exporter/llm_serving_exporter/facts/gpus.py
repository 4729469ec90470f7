"""GPUs by name: the words of names as people, drivers, clouds and node labels write them, the rows of gpus.toml, and which row is meant."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from llm_serving_exporter.errors import FactsError
from llm_serving_exporter.model.gpu import GpuIdentity
from llm_serving_exporter.model.hardware import GpuSpec
from llm_serving_exporter.model.shape import Precision
from llm_serving_exporter.model.snapshot import Absence

# --- words of a name

# names come from outside; none is longer (NVML's buffer has 96 bytes)
LONGEST = 100

# "(R)", "(TM)"; "-SHARED": a time-sliced GPU's node label
_VENDORS = frozenset(
    {"nvidia", "amd", "intel", "habana", "google", "aws", "amazon", "apple", "corporation", "gpu", "shared", "r", "tm"}
)
_FAMILIES = frozenset({"tesla", "geforce", "instinct", "hgx", "dgx", "tensor", "core"})
_SEPARATORS = re.compile(r"[^a-z0-9]+")
# a number on its own with a unit: "80 GB", "80G", "144GiB"; not the G of "A10G"
_MEMORY = re.compile(r"(?<![a-z0-9])(\d+) ?(?:gib|gb|g)(?![a-z0-9])")
_STUCK_BEFORE = re.compile(r"(?<=\d)(sxm\d?|pcie|nvl\d*|super|ada|xtx|xt)\b")  # "h100sxm5", "7900xtx"
_APART = re.compile(r"\b(gaudi|trainium|inferentia) (?=\d\b)")  # "Gaudi 3": its number is part of the name
_STUCK_AFTER = re.compile(r"(\brtx(?=[a-z]*\d)|pro(?=\d))")  # "rtx4090", "rtxpro6000"
_PCI_EXPRESS = re.compile(r"\bpci (?:e|express)\b")
_MIG = re.compile(
    r"[ -]MIG[ -].*$", re.IGNORECASE
)  # what an instance's name has more: "NVIDIA H100 80GB HBM3 MIG 1g.10gb"


@lru_cache(maxsize=2048)  # the catalogue's own names are asked for at every look-up
def split_words(text: str) -> tuple[str, ...]:
    """The words of a name in order, without the vendor: "NVIDIA-A100-SXM4-80GB" -> a100, sxm4, 80gb."""
    plain = _SEPARATORS.sub(" ", text[:LONGEST].lower()).strip()
    plain = _PCI_EXPRESS.sub("pcie", plain).replace("maxq", "max q")
    plain = _STUCK_AFTER.sub(r"\1 ", _STUCK_BEFORE.sub(r" \1", plain))
    plain = _APART.sub(r"\1", plain)
    return tuple(word for word in _MEMORY.sub(r"\1gb", plain).split() if word not in _VENDORS)


def collect_words(text: str) -> frozenset[str]:
    """The words of a name in any order, without vendor and product family ("Tesla", "GeForce")."""
    return frozenset(split_words(text)) - _FAMILIES


# --- rows, of which a test checks every key

_BYTES_PER_MEBIBYTE = 1 << 20
# of PCI devices; Google's and Apple's are on no bus that shows them
PCI_VENDORS = {
    "nvidia": 0x10DE, "amd": 0x1002, "intel": 0x8086, "habana": 0x1DA3, "aws": 0x1D0F, "google": 0x1AE0, "apple": 0x106B,
}  # fmt: skip
# between what rounding makes (up to 0.6 %, GH200) and what a driver's wrong bus width makes (2.3 % and more, H200 and B200)
BANDWIDTH_TOLERANCE = 0.02


def parse(document: Mapping[str, Any]) -> tuple[GpuSpec, ...]:
    """The parsed gpus.toml -> its rows, in its order."""
    return tuple(_read_row(row, document["sources"]) for row in document["gpu"])


def _read_row(row: Mapping[str, Any], sources: Mapping[str, Mapping[str, str]]) -> GpuSpec:
    def scale(key: str, unit: float) -> float | None:
        return row[key] * unit if key in row else None

    def rates(key: str) -> Mapping[Precision, float]:
        return {Precision(name): rate * 1e12 for name, rate in row.get(key, {}).items()}

    stated = [sources[key] for key in row["source"]]
    vendor = PCI_VENDORS[row.get("vendor", "nvidia")]
    major, _, minor = row.get("compute_capability", "").partition(".")
    return GpuSpec(
        name=row["name"],
        names=tuple(row["nvml"]),
        memory_bytes=round(scale("memory_mib", _BYTES_PER_MEBIBYTE) or row["memory_gb"] * 1e9),
        bandwidth_bytes_per_second=row["bandwidth_gb_per_second"] * 1e9,
        flops=rates("tflops"),
        compute_capability=(int(major), int(minor)) if major else None,
        source="; ".join(source["title"] for source in stated),
        date=max(source["date"] for source in stated),
        pci_device_ids=tuple(device << 16 | vendor for device in row["pci"]),
        bandwidth_tolerance_ratio=row.get("bandwidth_tolerance_ratio", BANDWIDTH_TOLERANCE),
        tdp_watts=scale("tdp_watts", 1.0),
        nvlink_bytes_per_second=scale("nvlink_gb_per_second", 1e9),
        confidence=row["confidence"],
        figure_sources={figure: "{title} ({date})".format_map(sources[key]) for figure, key in row["figures"].items()},
        aliases=tuple(row.get("aliases", ())),
        key_words=frozenset(row["key_words"].split()),
        words=frozenset(row["words"].split()),
        flops_lowest=rates("tflops_lowest"),
        flops_highest=rates("tflops_highest"),
        bandwidth_lowest_bytes_per_second=scale("bandwidth_lowest_gb_per_second", 1e9),
        bandwidth_highest_bytes_per_second=scale("bandwidth_highest_gb_per_second", 1e9),
    )


# --- which row a name or a device means

# drivers differ in what they set aside (ECC, firmware) by up to 7 %; the next size of a product is 20 % away or more
MEMORY_TOLERANCE = 0.12


def find(text: str, catalogue: Sequence[GpuSpec]) -> GpuSpec:
    """The row that a name means: as NVML prints it, as node labels write it, as people do ("h100", "A100 80GB", "4090").

    A whole name wins; else the row of which all key words and no foreign words stand in the text. Where several rows fit, the first one:
    the SXM form, with the larger memory ("H100" is H100 SXM 80GB, "A100" and "A100 80GB" A100 SXM 80GB, "V100" V100 SXM 32GB), the
    workstation card for "RTX PRO 6000". A word that no row knows ("H20-3e", "RTX 4090 Laptop", "8x") fits none.

    Raises FactsError (peak_unknown) that names the text, the nearest names and what to do.
    """
    said = split_words(text)
    if len(text) <= LONGEST and said:
        for spec in catalogue:
            if said in list_forms(spec):
                return spec
        for spec in _fitting(collect_words(text), catalogue):
            return spec
    raise FactsError(
        Absence.PEAK_UNKNOWN.value,
        f"GPU {text[:LONGEST]!r} is not in the catalogue; nearest: {', '.join(_nearest(said, catalogue))}. "
        "Write one of the catalogue's names, without a number of GPUs and without a MIG profile, or describe the card "
        "(docs/ceiling-command.md, Your own card)",
    )


def match(identity: GpuIdentity, catalogue: Sequence[GpuSpec]) -> GpuSpec | None:
    """The row of a device; None where nothing vouches for one.

    A card that a user described: by its name alone. Else by its NVML name (without vendor and MIG profile), unless its memory has another
    size and its PCI device id is that of a row which has it (NVML calls RTX 3080 the cards of 10 and of 12 GB); else by PCI device id where
    the memory size agrees; else by the words of its name where exactly one row with that memory size fits ("A100-SXM-80GB" of old
    drivers). An instance's own memory says nothing about the product, so that under MIG name or PCI id decide alone.
    """
    name = _MIG.sub("", identity.name)
    said = split_words(name)
    size = None if identity.mig is not None else identity.memory_total_bytes
    called = (spec for spec in catalogue if said and said in {split_words(known) for known in spec.names})
    named = next(called, None)
    if named is not None and (named.own or size is None or _close(size, named.memory_bytes)):
        return named
    sized = [spec for spec in catalogue if size is not None and _close(size, spec.memory_bytes)]
    possible = catalogue if identity.mig is not None else sized
    by_device = next((spec for spec in possible if identity.pci_device_id in spec.pci_device_ids), None)
    if by_device is not None or named is not None:
        return by_device or named
    fitting = list(_fitting(collect_words(name), sized))
    return fitting[0] if len(fitting) == 1 else None


def _nearest(said: tuple[str, ...], catalogue: Sequence[GpuSpec]) -> list[str]:
    """Up to five names: rows that share a key word, else those spelled most alike, else those that share any word, else the first rows."""
    sharing = [spec.name for spec in catalogue if not spec.key_words.isdisjoint(said)]
    spelled = {" ".join(sorted(spec.key_words)): spec.name for spec in reversed(catalogue)}
    alike = difflib.get_close_matches(" ".join(said), spelled, n=3, cutoff=0.4)
    related = [spec.name for spec in catalogue if not spec.words.isdisjoint(said)]
    return (sharing or [spelled[key] for key in alike] or related or [spec.name for spec in catalogue])[:5]


def _fitting(told: frozenset[str], catalogue: Sequence[GpuSpec]) -> Iterator[GpuSpec]:
    return (spec for spec in catalogue if spec.key_words <= told <= spec.key_words | spec.words)


def list_forms(spec: GpuSpec) -> set[tuple[str, ...]]:
    """The words of every whole name that means this row."""
    return {split_words(name) for name in (spec.name, *spec.names, *spec.aliases)}


def _close(bytes_reported: int, bytes_known: int) -> bool:
    return abs(bytes_reported - bytes_known) <= MEMORY_TOLERANCE * bytes_known
