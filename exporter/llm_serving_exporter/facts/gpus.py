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


# --- rows: every key of every one is checked

_BYTES_PER_MEBIBYTE = 1 << 20
# of PCI devices; Google's and Apple's are on no bus that shows them
PCI_VENDORS = {
    "nvidia": 0x10DE, "amd": 0x1002, "intel": 0x8086, "habana": 0x1DA3, "aws": 0x1D0F, "google": 0x1AE0, "apple": 0x106B,
}  # fmt: skip
CONFIDENCES = ("read", "secondary", "memory")
# between what rounding makes (up to 0.6 %, GH200) and what a driver's wrong bus width makes (2.3 % and more, H200 and B200)
BANDWIDTH_TOLERANCE = 0.02

_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_CAPABILITY = re.compile(r"(\d+)\.(\d)")
_REQUIRED = frozenset(
    {"name", "nvml", "key_words", "words", "pci", "bandwidth_gb_per_second", "source", "confidence", "figures"}
)
_OPTIONAL = frozenset(
    {
        "vendor", "aliases", "memory_mib", "memory_gb", "tflops", "tflops_lowest", "tflops_highest", "compute_capability", "tdp_watts",
        "bandwidth_lowest_gb_per_second", "bandwidth_highest_gb_per_second", "nvlink_gb_per_second", "bandwidth_tolerance_ratio",
    }
)  # fmt: skip
_FIGURES = frozenset({"memory", "bandwidth", "tdp", "nvlink", "pci", *Precision})


def parse(document: Mapping[str, Any]) -> tuple[GpuSpec, ...]:
    """The parsed gpus.toml -> its rows, in its order. Raises FactsError naming the row and the key where one is not as it must be."""
    sources = _sources(document.get("sources"))
    rows = document.get("gpu")
    if not isinstance(rows, list) or not rows:
        raise _fault("gpu", "there are no [[gpu]] rows")
    specs = tuple(_Row(index, row, sources).spec() for index, row in enumerate(rows))
    _refuse_twice((spec.name, name) for spec in specs for name in list_forms(spec))
    _refuse_twice((spec.name, device) for spec in specs for device in set(spec.pci_device_ids))
    return specs


def _refuse_twice(claims: Iterator[tuple[str, object]]) -> None:
    owners: dict[object, str] = {}
    for name, claim in claims:
        owner = owners.setdefault(claim, name)
        if owner != name:
            raise _fault(name, f"{claim!r} is already {owner}'s")


def _sources(table: Any) -> Mapping[str, tuple[str, str]]:
    if not isinstance(table, Mapping):
        raise _fault("sources", "is missing")
    found = {}
    for key, entry in table.items():
        title, date = (entry.get("title"), entry.get("date")) if isinstance(entry, Mapping) else (None, None)
        if not isinstance(title, str) or not title or not isinstance(date, str) or not _DATE.fullmatch(date):
            raise _fault(f"sources: {key}", "needs a title and a date as 2026-08-22")
        found[key] = (title, date)
    return found


class _Row:
    """One [[gpu]] row, checked as it is read."""

    def __init__(self, index: int, row: Any, sources: Mapping[str, tuple[str, str]]) -> None:
        self._name = row.get("name") if isinstance(row, Mapping) else None
        if not isinstance(self._name, str) or not self._name:
            raise _fault(f"[[gpu]] {index}", "name is missing")
        self._row = row
        self._sources = sources
        for key in sorted(_REQUIRED - row.keys()):
            raise self._fault(key, "is missing")
        for key in sorted(row.keys() - _REQUIRED - _OPTIONAL):
            raise self._fault(key, "is not a known key")

    def spec(self) -> GpuSpec:
        source, date = self._source()
        bandwidth = self._positive("bandwidth_gb_per_second") or 0.0
        nvlink = self._positive("nvlink_gb_per_second")
        tolerance = self._positive("bandwidth_tolerance_ratio")
        return GpuSpec(
            name=str(self._name),
            names=self._texts("nvml"),
            memory_bytes=self._memory(),
            bandwidth_bytes_per_second=bandwidth * 1e9,
            flops=self._flops("tflops"),
            compute_capability=self._capability(),
            source=source,
            date=date,
            pci_device_ids=self._pci(),
            bandwidth_tolerance_ratio=BANDWIDTH_TOLERANCE if tolerance is None else tolerance,
            tdp_watts=self._positive("tdp_watts"),
            nvlink_bytes_per_second=None if nvlink is None else nvlink * 1e9,
            confidence=self._one_of("confidence", CONFIDENCES),
            figure_sources=self._figures(),
            aliases=self._texts("aliases"),
            key_words=self._words("key_words"),
            words=self._words("words"),
            flops_lowest=self._flops_beyond("tflops_lowest", -1),
            flops_highest=self._flops_beyond("tflops_highest", 1),
            bandwidth_lowest_bytes_per_second=self._beyond("bandwidth_lowest_gb_per_second", bandwidth, -1),
            bandwidth_highest_bytes_per_second=self._beyond("bandwidth_highest_gb_per_second", bandwidth, 1),
        )

    def _memory(self) -> int:
        mebibytes, gigabytes = self._positive("memory_mib"), self._positive("memory_gb")
        if (mebibytes is None) == (gigabytes is None):
            raise self._fault("memory_mib", "or memory_gb: one of the two must be there")
        return round(mebibytes * _BYTES_PER_MEBIBYTE if mebibytes is not None else (gigabytes or 0.0) * 1e9)

    def _flops(self, name: str) -> Mapping[Precision, float]:
        table = self._row.get(name, {})
        if not isinstance(table, Mapping) or not table.keys() <= set(Precision):
            raise self._fault(name, f"must have keys of {', '.join(Precision)} only")
        return {Precision(key): self._number(f"{name}.{key}", value) * 1e12 for key, value in table.items()}

    def _flops_beyond(self, name: str, side: int) -> Mapping[Precision, float]:
        """Rates that are published beside those of `tflops`: below them for side -1, above them for 1."""
        believed, found = self._flops("tflops"), self._flops(name)
        for key, rate in found.items():
            if (rate - believed.get(key, rate)) * side <= 0:
                raise self._fault(f"{name}.{key}", "must be beyond the figure of tflops")
        return found

    def _beyond(self, name: str, believed: float, side: int) -> float | None:
        value = self._positive(name)
        if value is not None and (value - believed) * side <= 0:
            raise self._fault(name, "must be beyond bandwidth_gb_per_second")
        return None if value is None else value * 1e9

    def _capability(self) -> tuple[int, int] | None:
        text = self._row.get("compute_capability")
        if text is None:
            return None
        found = _CAPABILITY.fullmatch(text) if isinstance(text, str) else None
        if found is None:
            raise self._fault("compute_capability", f'is {text!r}, not as "9.0"')
        return int(found[1]), int(found[2])

    def _pci(self) -> tuple[int, ...]:
        vendor = PCI_VENDORS[self._one_of("vendor", tuple(PCI_VENDORS), "nvidia")]
        devices = self._row["pci"]
        if not isinstance(devices, list) or not all(type(each) is int and 0 < each <= 0xFFFF for each in devices):
            raise self._fault("pci", "must be a list of device ids of 16 bits")
        return tuple(device << 16 | vendor for device in devices)

    def _source(self) -> tuple[str, str]:
        keys = self._texts("source")
        if not keys or not set(keys) <= self._sources.keys():
            raise self._fault("source", f"{list(keys)!r} must be keys of [sources], at least one")
        return "; ".join(self._sources[key][0] for key in keys), max(self._sources[key][1] for key in keys)

    def _figures(self) -> Mapping[str, str]:
        table = self._row["figures"]
        known = isinstance(table, Mapping) and table.keys() <= _FIGURES
        if not known or not all(isinstance(key, str) and key in self._sources for key in table.values()):
            raise self._fault("figures", f"must map {', '.join(sorted(_FIGURES))} to keys of [sources]")
        return {figure: "{} ({})".format(*self._sources[key]) for figure, key in table.items()}

    def _words(self, key: str) -> frozenset[str]:
        text = self._row[key]
        if not isinstance(text, str) or (key == "key_words" and not text):
            raise self._fault(key, f"is {text!r}, not words with spaces between")
        return frozenset(text.split())

    def _texts(self, key: str) -> tuple[str, ...]:
        values = self._row.get(key, [])
        if not isinstance(values, list) or not all(isinstance(value, str) and value for value in values):
            raise self._fault(key, "must be a list of texts")
        return tuple(values)

    def _one_of(self, key: str, allowed: tuple[str, ...], default: str = "") -> str:
        value = self._row.get(key, default)
        if value not in allowed:
            raise self._fault(key, f"is {value!r}, not one of {', '.join(allowed)}")
        return str(value)

    def _positive(self, key: str) -> float | None:
        return self._number(key, self._row[key]) if key in self._row else None

    def _number(self, key: str, value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e9:
            raise self._fault(key, f"is {value!r}, not a number above 0")
        return float(value)

    def _fault(self, key: str, what: str) -> FactsError:
        return _fault(f"{self._name}: {key}", what)


def _fault(where: str, what: str) -> FactsError:
    return FactsError(Absence.PEAK_UNKNOWN.value, f"gpus.toml: {where} {what}")


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
