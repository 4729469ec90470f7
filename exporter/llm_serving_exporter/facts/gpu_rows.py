"""Rows of gpus.toml -> GpuSpec; every key of every row is checked."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from llm_serving_exporter.errors import FactsError
from llm_serving_exporter.facts.gpus import list_forms
from llm_serving_exporter.model.hardware import GpuSpec
from llm_serving_exporter.model.snapshot import Absence
from llm_serving_exporter.model.weights import Precision

BYTES_PER_MEBIBYTE = 1 << 20
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
        lowest, highest = (
            self._beyond("bandwidth_lowest_gb_per_second", bandwidth, -1),
            self._beyond("bandwidth_highest_gb_per_second", bandwidth, 1),
        )
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
            bandwidth_lowest_bytes_per_second=lowest,
            bandwidth_highest_bytes_per_second=highest,
        )

    def _memory(self) -> int:
        mebibytes, gigabytes = self._positive("memory_mib"), self._positive("memory_gb")
        if (mebibytes is None) == (gigabytes is None):
            raise self._fault("memory_mib", "or memory_gb: one of the two must be there")
        return round(mebibytes * BYTES_PER_MEBIBYTE if mebibytes is not None else (gigabytes or 0.0) * 1e9)

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
