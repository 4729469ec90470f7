"""Names of GPUs as people, drivers, clouds and node labels write them -> words that can be compared."""

from __future__ import annotations

import re
from functools import lru_cache

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
_MIG = re.compile(r"[ -]MIG[ -].*$", re.IGNORECASE)


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


def strip_instance(name: str) -> str:
    """The GPU's name out of a MIG instance's: "NVIDIA H100 80GB HBM3 MIG 1g.10gb" -> "NVIDIA H100 80GB HBM3"."""
    return _MIG.sub("", name)
