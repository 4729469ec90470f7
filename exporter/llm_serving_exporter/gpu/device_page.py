"""A device exporter's page -> readings of GPUs, as NVML gives them. Pure. Which exporter it is, its samples say: `recognise`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from llm_serving_exporter.gpu import amd, gaudi
from llm_serving_exporter.gpu.page_table import DeviceTable, collect_values, names_of
from llm_serving_exporter.model.gpu import GpuAbsence, GpuIdentity, GpuReading
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.sample import Samples, SeriesKey
from llm_serving_exporter.model.snapshot import Absence

TABLES: tuple[DeviceTable, ...] = (amd.TABLE, gaudi.TABLE)
_WANTED = frozenset(name for table in TABLES for name in (*table.fingerprints, *names_of(table.fields)))
# by the reason of a page's field; whatever else is wrong with a value is the exporter's error
_WHY: Mapping[Absence, GpuAbsence] = {
    Absence.NOT_EXPORTED: GpuAbsence.NOT_SUPPORTED,
    Absence.NO_PERMISSION: GpuAbsence.NO_PERMISSION,
    Absence.WARMING_UP: GpuAbsence.NO_DATA,
    Absence.INVALID: GpuAbsence.IMPLAUSIBLE,
}
_COUNTS = ("ecc_errors_total", "pcie_bytes_total", "nvlink_bytes_total")
_WHOLE = frozenset({"memory_used_bytes", "memory_total_bytes"})
# more than what drivers keep of the memory, less than from one product to the next
_MEMORY_TOLERANCE = 0.12


def is_wanted_name(name: str) -> bool:
    """Whether samples of this name are read here."""
    return name in _WANTED


def recognise(names: Iterable[str]) -> DeviceTable | None:
    """The exporter whose page has these sample names; None: none that has a table."""
    seen = set(names)
    return next((table for table in TABLES if not seen.isdisjoint(table.fingerprints)), None)


def read_devices(samples: Samples, table: DeviceTable) -> tuple[GpuReading, ...]:
    """A reading for each GPU on the page, by their numbers; a part of a partitioned card is a GPU of its own."""
    found = list(collect_values(samples, table.fields, lambda series: _read_key(series, table)))
    cards: dict[str, set[object]] = {}
    for key, labels, _, _ in found:
        cards.setdefault(_read_card(labels, table), set()).add(key)
    readings = [
        _make_reading(table, labels, values, absent, _count_parts(labels, table, cards))
        for _, labels, values, absent in found
    ]
    return tuple(sorted(readings, key=lambda one: (one.identity.index, one.identity.uuid)))


def _read_uuid(series: SeriesKey, table: DeviceTable) -> str:
    """As the page has it; else the card's serial number with the GPU's own, for one that is a part or a die; else its place on its node."""
    own = next((text for label in table.uuid_labels if (text := series.label(label))), "")
    index = series.label(table.index_label) or ""
    if own or not index:
        return own
    return f"{(series.label(table.card_label) if table.card_label else '') or series.label('hostname') or ''}-{index}"


def _read_card(series: SeriesKey, table: DeviceTable) -> str:
    """The serial number of the card that a GPU is one of several parts of; "": it is no part."""
    if not table.card_label or (series.label(table.partition_label) or "").lower() in table.unpartitioned:
        return ""
    return series.label(table.card_label) or ""


def _count_parts(series: SeriesKey, table: DeviceTable, cards: Mapping[str, set[object]]) -> int:
    """Of a GPU's card: what its partitioning makes of it, and no fewer than the page shows; 1: it is not partitioned."""
    card = _read_card(series, table)
    if not card:
        return 1
    mode, name = (
        (series.label(table.partition_label) or "").lower(),
        " ".join(_read_labels(series, table.name_labels)).lower(),
    )
    said = table.parts_of_mode.get(mode, 1)
    for product, modes in table.parts_of_product.items():
        if product in name:
            said = modes.get(mode, said)
    return max(said, len(cards[card]))


def _read_key(series: SeriesKey, table: DeviceTable) -> object:
    uuid = _read_uuid(series, table)
    return (uuid, series.label(table.index_label) or "") if uuid else None


def _make_reading(
    table: DeviceTable, labels: SeriesKey, values: Mapping[str, float], absent: Mapping[str, Absence], parts: int
) -> GpuReading:
    why = {name: str(_WHY.get(reason, GpuAbsence.ERROR)) for name, reason in absent.items()}
    if parts > 1:  # what stands there is of the whole card, not of this part
        why |= dict.fromkeys(table.of_whole_card, str(GpuAbsence.ON_PARENT))
        values = {name: value for name, value in values.items() if name not in table.of_whole_card}
    made: dict[str, Any] = {}
    for name, value in values.items():
        group, dot, member = name.partition(".")
        made_of = _convert(group, value)
        if dot:
            made.setdefault(group, {})[member] = made_of
        else:
            made[group] = made_of
    index = labels.label(table.index_label) or ""
    memory = made.get("memory_total_bytes")
    name, device_id = _read_product(labels, table, memory)
    identity = GpuIdentity(
        uuid=_read_uuid(labels, table),
        index=int(index) if index.isascii() and index.isdigit() and len(index) < 6 else 0,
        name=name,
        pci_device_id=device_id,
        memory_total_bytes=memory,
        partitions=parts,
    )
    return replace(GpuReading(identity, absent=why), **made)


def _convert(group: str, value: float) -> Any:
    """As the field of a reading has it: counts of bytes and errors are whole, what holds or not is a boolean."""
    if group in ("slowdown", "remap_pending"):
        return value > 0
    return round(value) if group in _COUNTS or group in _WHOLE else value


def _read_product(labels: SeriesKey, table: DeviceTable, memory_bytes: int | None) -> tuple[str, int | None]:
    """Name and PCI device id, as far as the page says them."""
    said = list(_read_labels(labels, table.name_labels))
    ids = [int(text, 16) for text in said if text.startswith("0x") and _is_hex(text[2:])]
    names = [text for text in said if not text.startswith("0x")]
    for product, bytes_ in table.products.items():
        if memory_bytes is not None and abs(memory_bytes - bytes_) <= _MEMORY_TOLERANCE * bytes_:
            names.append(product)
    return next(iter([*names, *said]), ""), (ids[0] << 16 | table.pci_vendor if ids and ids[0] <= 0xFFFF else None)


def _read_labels(labels: SeriesKey, which: Iterable[str]) -> Iterator[str]:
    for label in which:
        if text := labels.label(label):
            yield text


def _is_hex(text: str) -> bool:
    return bool(text) and len(text) <= 8 and all(letter in "0123456789abcdefABCDEF" for letter in text)
