"""Which row of a GPU catalogue a name or a device means."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence

from llm_serving_exporter.errors import FactsError
from llm_serving_exporter.facts import gpu_names
from llm_serving_exporter.model.device import GpuIdentity
from llm_serving_exporter.model.hardware import GpuSpec
from llm_serving_exporter.model.snapshot import Absence

# drivers differ in what they set aside (ECC, firmware) by up to 7 %; the next size of a product is 20 % away or more
MEMORY_TOLERANCE = 0.12


def find(text: str, catalogue: Sequence[GpuSpec]) -> GpuSpec:
    """The row that a name means: as NVML prints it, as node labels write it, as people do ("h100", "A100 80GB", "4090").

    A whole name wins; else the row of which all key words and no foreign words stand in the text. Where several rows fit, the first one:
    the SXM form, with the larger memory ("H100" is H100 SXM 80GB, "A100" and "A100 80GB" A100 SXM 80GB, "V100" V100 SXM 32GB), the
    workstation card for "RTX PRO 6000". A word that no row knows ("H20-3e", "RTX 4090 Laptop", "8x") fits none.

    Raises FactsError (peak_unknown) that names the text, the nearest names and what to do.
    """
    said = gpu_names.split_words(text)
    if len(text) <= gpu_names.LONGEST and said:
        for spec in catalogue:
            if said in list_forms(spec):
                return spec
        for spec in _fitting(gpu_names.collect_words(text), catalogue):
            return spec
    raise FactsError(
        Absence.PEAK_UNKNOWN.value,
        f"GPU {text[: gpu_names.LONGEST]!r} is not in the catalogue; nearest: {', '.join(_nearest(said, catalogue))}. "
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
    name = gpu_names.strip_instance(identity.name)
    said = gpu_names.split_words(name)
    size = None if identity.mig is not None else identity.memory_total_bytes
    named = _find_named(said, catalogue)
    if named is not None and (named.own or size is None or _close(size, named.memory_bytes)):
        return named
    sized = [spec for spec in catalogue if size is not None and _close(size, spec.memory_bytes)]
    for spec in catalogue if identity.mig is not None else sized:
        if identity.pci_device_id in spec.pci_device_ids:
            return spec
    if named is not None:
        return named
    fitting = list(_fitting(gpu_names.collect_words(name), sized))
    return fitting[0] if len(fitting) == 1 else None


def _find_named(said: tuple[str, ...], catalogue: Sequence[GpuSpec]) -> GpuSpec | None:
    for spec in catalogue:
        if said and said in {gpu_names.split_words(known) for known in spec.names}:
            return spec
    return None


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
    return {gpu_names.split_words(name) for name in (spec.name, *spec.names, *spec.aliases)}


def _close(bytes_reported: int, bytes_known: int) -> bool:
    return abs(bytes_reported - bytes_known) <= MEMORY_TOLERANCE * bytes_known
