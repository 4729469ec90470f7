"""A device exporter's page -> readings of GPUs, as NVML gives them. Pure. Which exporter it is, its samples say: `recognise`.

One table an exporter: which samples feed which field, in which unit, and what each of its values that are no reading looks like. What is
said here of a field holds for all of them, and for dcgm-exporter's page (`gpus.dcgm`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from math import inf, isfinite, isnan
from typing import Any

from llm_serving_exporter.model.gpu import GpuAbsence, GpuIdentity, GpuReading
from llm_serving_exporter.model.numbers import add_up
from llm_serving_exporter.model.record import Struct, field, replace
from llm_serving_exporter.model.sample import Samples, SeriesKey
from llm_serving_exporter.model.snapshot import Absence

# a node has at most 16 GPUs of 8 parts; a page with more is a federation, of which this many are kept
MOST_GPUS = 4096


class Join(StrEnum):
    """What becomes of several series of one field of one GPU."""

    # equal values are one, different ones are none: several pods that share the GPU, or two names of one release
    ONE = "one"
    # one each part of the chip: the highest
    HIGHEST = "highest"
    # one each link: all together
    SUM = "sum"


class PageField(Struct, frozen=True):
    """How a field of a reading stands on a page."""

    names: tuple[str, ...]  # the metric's names in the exporter's releases
    blanks: Mapping[float, Absence] = field(default_factory=dict)  # the values of its type that mean "no value"
    factor: float = 1.0  # page's unit -> base unit
    highest: float = inf  # in the page's unit; a value above it is invalid
    where: Mapping[str, str] = field(default_factory=dict)  # values of labels that a series must have
    join: Join = Join.ONE  # what becomes of several series
    ranked: bool = False  # whether the names are sources of their own, the best first, and not spellings of one
    zero_is_unset: bool = False  # whether the exporter writes 0 for what the card does not tell


class DeviceTable(Struct, frozen=True):
    """A device exporter: how its page is known, whose GPUs its series are of, and what they say."""

    name: str  # as the label `source` of gpu_info has it
    title: str  # as people call it
    fingerprints: tuple[str, ...]  # samples of which one says that the page is this exporter's
    fields: Mapping[str, PageField]  # by field of GpuReading; "temperature_celsius.gpu" for a member of a mapping
    uuid_labels: tuple[str, ...]  # of the labels that say which GPU it is, the first that is there
    index_label: str  # the GPU's number on its node
    name_labels: tuple[str, ...] = ()  # the product's name, or the PCI device id as 0x…; the first that is there
    # products by their memory in bytes, for an exporter that names none
    products: Mapping[str, float] = field(default_factory=dict)
    card_label: str = ""  # the serial number that all parts of one card have; "": cards have no parts
    partition_label: str = ""  # how the card is partitioned, and the values of it that mean: not at all
    unpartitioned: frozenset[str] = frozenset()  # in lower case
    # the others -> into how many parts, whether the page shows them all or not
    parts_of_mode: Mapping[str, int] = field(default_factory=dict)
    # the same of products that are cut otherwise, by a word of their name
    parts_of_product: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    pci_vendor: int = 0  # of its PCI vendor
    # fields that the exporter has of the whole card alone, on its first part
    of_whole_card: frozenset[str] = frozenset()
    source: str = ""  # where it says so


def names_of(fields: Mapping[str, PageField]) -> dict[str, list[str]]:
    """By name of a metric: the fields that it feeds."""
    found: dict[str, list[str]] = {}
    for name, spec in fields.items():
        for metric in spec.names:
            found.setdefault(metric, []).append(name)
    return found


def collect_values(
    samples: Samples, fields: Mapping[str, PageField], read_key: Callable[[SeriesKey], object]
) -> Iterator[tuple[object, SeriesKey, dict[str, float], dict[str, Absence]]]:
    """By GPU, in the order of their first series: its key, that series, its values in base units, and why others are not there.

    `read_key`: which GPU a series is of; None: none.
    """
    feeds = names_of(fields)
    first: dict[object, SeriesKey] = {}
    found: dict[object, dict[str, dict[str, list[float | None]]]] = {}
    for series, value in zip(samples.layout.keys, samples.values, strict=True):
        fed = feeds.get(series.name)
        key = read_key(series) if fed else None
        if not fed or key is None or (key not in found and len(found) >= MOST_GPUS):
            continue
        first.setdefault(key, series)
        for name in fed:
            if all((series.label(label) or "").lower() == wanted for label, wanted in fields[name].where.items()):
                # NaN differs from itself; as None it is one value
                each = found.setdefault(key, {}).setdefault(name, {})
                each.setdefault(series.name, []).append(None if isnan(value) else value)
    for key, by_field in found.items():
        judged = {name: judge_values(by_field.get(name), spec) for name, spec in fields.items()}
        values = {name: one for name, one in judged.items() if not isinstance(one, Absence)}
        yield key, first[key], values, {name: one for name, one in judged.items() if isinstance(one, Absence)}


def judge_values(found: Mapping[str, list[float | None]] | None, spec: PageField) -> float | Absence:
    """The one value of a field in base units out of those by metric, or why there is none."""
    if not found:
        return Absence.NOT_EXPORTED
    if not spec.ranked:
        return _judge([value for values in found.values() for value in values], spec)
    answer: float | Absence = Absence.NOT_EXPORTED
    for name in spec.names:
        if name in found:
            answer = _judge(found[name], spec)
            if not isinstance(answer, Absence):
                return answer
    return answer


def _judge(values: Iterable[float | None], spec: PageField) -> float | Absence:
    distinct = set(values)
    if spec.join is Join.ONE and len(distinct) > 1:
        return Absence.DUPLICATE
    judged = [_judge_one(value, spec) for value in (distinct if spec.join is not Join.SUM else values)]
    known = [one for one in judged if not isinstance(one, Absence)]
    if not known or (spec.join is not Join.HIGHEST and len(known) < len(judged)):
        return next(one for one in judged if isinstance(one, Absence))
    return add_up(known) if spec.join is Join.SUM else max(known)


def _judge_one(value: float | None, spec: PageField) -> float | Absence:
    if value is None:
        return Absence.INVALID
    blank = spec.blanks.get(value)
    if blank is not None:
        return blank
    if spec.zero_is_unset and value == 0:
        return Absence.NOT_EXPORTED
    # percentages, infinities and the ratios above 1 that DCGM gives for some MIG layouts (DCGM issue 152)
    scaled = value * spec.factor
    return scaled if 0 <= value <= spec.highest and isfinite(scaled) else Absence.INVALID


# --- AMD's device-metrics-exporter: the table. Made from its source, not yet recorded.
#
# Facts: pkg/amdgpu/gpuagent/gpuagent_gpu_metrics.go and docs/configuration/metricslist.md of ROCm/device-metrics-exporter at afd0fe8
# (2026-08-21). All of it are gauges, counters too. Labels that are always there: gpu_id, card_model, gpu_partition_id,
# gpu_compute_partition_type, serial_number, hostname; others (gpu_uuid, card_series) where its configuration asks for them. Power,
# temperature and energy that a card does not tell are written as 0, and on parts of a card (DPX, QPX, CPX) the sensors stand on part 0
# alone.
#
# "MB" of memory is 10^6 bytes: tools/metricutil/metrics_mini.txt shows 68702 for a card of 64 GiB.


_PERCENT = 0.01
_SOURCE = "https://github.com/ROCm/device-metrics-exporter/blob/afd0fe81cfb1a36cf15e79edb057e92adb197946/pkg/amdgpu/gpuagent/gpuagent_gpu_metrics.go"


def _names(*names: str) -> tuple[str, ...]:
    """With the prefix that its configuration may set (`MetricsFieldPrefix: amd`, as in its own example), too."""
    return tuple(spelt for name in names for spelt in (name, f"amd_{name}"))


def _share(*names: str) -> PageField:
    return PageField(_names(*names), factor=_PERCENT, highest=100.0)


def _total(name: str, factor: float = 1.0, join: Join = Join.ONE) -> PageField:
    return PageField(_names(name), factor=factor, join=join)


AMD = DeviceTable(
    name="amd_device_metrics_exporter",
    title="AMD device-metrics-exporter",
    fingerprints=_names(
        "gpu_umc_activity", "gpu_gfx_activity", "gpu_nodes_total", "gpu_package_power", "gpu_total_vram"
    ),
    fields={
        "busy_ratio": _share("gpu_gfx_activity"),
        # the share of time in which the memory controller worked; never bandwidth, of which it would be an upper bound at best
        "memory_active_ratio": _share("gpu_umc_activity"),
        # MFMA units; only where its profiler is switched on
        "tensor_activity_ratio": _share("gpu_prof_tensor_active_percent"),
        "power_watts": PageField(
            _names("gpu_package_power", "gpu_power_usage", "gpu_average_package_power"), ranked=True, zero_is_unset=True
        ),
        "energy_joules_total": PageField(_names("gpu_energy_consumed"), factor=1e-6, zero_is_unset=True),
        "temperature_celsius.gpu": PageField(
            _names("gpu_junction_temperature", "gpu_edge_temperature"), ranked=True, zero_is_unset=True, highest=200.0
        ),
        "temperature_celsius.memory": PageField(_names("gpu_memory_temperature"), zero_is_unset=True, highest=200.0),
        # one for each die
        "clock_hertz.sm": PageField(_names("gpu_clock"), factor=1e6, where={"clock_type": "system"}, join=Join.HIGHEST),
        "clock_hertz.memory": PageField(
            _names("gpu_clock"), factor=1e6, where={"clock_type": "memory"}, join=Join.HIGHEST
        ),
        "memory_used_bytes": PageField(_names("gpu_used_vram"), factor=1e6),
        "memory_total_bytes": PageField(_names("gpu_total_vram"), factor=1e6, zero_is_unset=True),
        "ecc_errors_total.corrected": _total("gpu_ecc_correct_total"),
        "ecc_errors_total.uncorrected": _total("gpu_ecc_uncorrect_total"),
        # shares of time in which a limit held the clocks down: package power, heat of socket, memory and regulators, the processor's own
        "slowdown.sw_power_cap": _share("gpu_violation_ppt_residency_percentage"),
        "slowdown.sw_thermal_slowdown": PageField(
            _names(
                "gpu_violation_socket_thermal_residency_percentage",
                "gpu_violation_hbm_thermal_residency_percentage",
                "gpu_violation_vr_thermal_residency_percentage",
            ),
            factor=_PERCENT,
            highest=100.0,
            join=Join.HIGHEST,
        ),
        "slowdown.hw_thermal_slowdown": _share("gpu_violation_processor_hot_residency_percentage"),
        # announced, and not filled by every release
        "pcie_bytes_total.rx": _total("pcie_rx"),
        "pcie_bytes_total.tx": _total("pcie_tx"),
        # XGMI, in KB by link
        "nvlink_bytes_total.rx": _total("gpu_xgmi_link_rx", 1e3, Join.SUM),
        "nvlink_bytes_total.tx": _total("gpu_xgmi_link_tx", 1e3, Join.SUM),
    },
    uuid_labels=("gpu_uuid", "GPU_UUID"),
    index_label="gpu_id",
    name_labels=("card_series", "card_model"),
    card_label="serial_number",
    # both dies of an MI250X have the card's serial number, and are no parts that a user made
    partition_label="gpu_compute_partition_type",
    unpartitioned=frozenset({"", "spx", "none", "na"}),
    # a part is one or several of the card's XCDs: eight of an MI300X, six of an MI300A, four of an MI308X
    parts_of_mode={"dpx": 2, "tpx": 3, "qpx": 4, "cpx": 8},
    parts_of_product={"mi300a": {"cpx": 6}, "mi308": {"cpx": 4}},
    pci_vendor=0x1002,
    of_whole_card=frozenset({"busy_ratio", "memory_active_ratio", "tensor_activity_ratio"}),
    source=_SOURCE,
)


# --- Intel Gaudi's metric exporter: the table. Made from its source, not yet recorded.
#
# Facts: docs.habana.ai, Prometheus Metric Exporter (1.23; port 41611), and Intel's exporter in Go of 2025, which names every sample and
# its labels (Serial, UUID, device, id, fit, spi, driver, pod_namespace, pod_name). It names no product, so that its memory says which
# Gaudi it is. Left out, because no document says the unit or that they only grow: habanalabs_energy, habanalabs_pcie_tx and _rx and their
# "throughput".


_GIBIBYTE = float(1 << 30)

GAUDI = DeviceTable(
    name="gaudi_metric_exporter",
    title="Intel Gaudi metric exporter",
    fingerprints=(
        "habanalabs_utilization",
        "habanalabs_memory_total_bytes",
        "habanalabs_power_mW",
        "habanalabs_device_config",
    ),
    fields={
        "busy_ratio": PageField(("habanalabs_utilization",), factor=0.01, highest=100.0),
        "power_watts": PageField(("habanalabs_power_mW",), factor=1e-3, zero_is_unset=True),
        "power_limit_watts": PageField(("habanalabs_power_default_limit_mW",), factor=1e-3, zero_is_unset=True),
        "temperature_celsius.gpu": PageField(("habanalabs_temperature_onchip",), zero_is_unset=True, highest=200.0),
        "clock_hertz.sm": PageField(("habanalabs_clock_soc_mhz",), factor=1e6, zero_is_unset=True),
        "memory_used_bytes": PageField(("habanalabs_memory_used_bytes",)),
        "memory_total_bytes": PageField(("habanalabs_memory_total_bytes",), zero_is_unset=True),
        "remap_pending": PageField(("habanalabs_pending_rows_state",), highest=1.0),
    },
    uuid_labels=("UUID", "Serial"),
    index_label="id",
    products={"Gaudi 2": 96 * _GIBIBYTE, "Gaudi 3": 128 * _GIBIBYTE},
    pci_vendor=0x1DA3,
    source="https://docs.habana.ai/en/latest/Orchestration/Prometheus_Metric_Exporter.html",
)


# --- A page by its table.


TABLES: tuple[DeviceTable, ...] = (AMD, GAUDI)
# names of the samples that are read here
WANTED = frozenset(name for table in TABLES for name in (*table.fingerprints, *names_of(table.fields)))
# by the reason of a page's field; whatever else is wrong with a value is the exporter's error
_WHY: Mapping[Absence, GpuAbsence] = {
    Absence.NOT_EXPORTED: GpuAbsence.NOT_SUPPORTED,
    Absence.NO_PERMISSION: GpuAbsence.NO_PERMISSION,
    Absence.WARMING_UP: GpuAbsence.NO_DATA,
    Absence.INVALID: GpuAbsence.IMPLAUSIBLE,
}
_COUNTS = ("ecc_errors_total", "pcie_bytes_total", "nvlink_bytes_total")
_WHOLE = frozenset({"memory_used_bytes", "memory_total_bytes"})
_DEVICE_ID = re.compile(r"0x[0-9a-fA-F]{1,8}")
# more than what drivers keep of the memory, less than from one product to the next
_MEMORY_TOLERANCE = 0.12


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
    mode = (series.label(table.partition_label) or "").lower()
    name = " ".join(_read_labels(series, table.name_labels)).lower()
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
    ids = [int(text, 16) for text in said if _DEVICE_ID.fullmatch(text)]
    names = [text for text in said if not text.startswith("0x")]
    for product, bytes_ in table.products.items():
        if memory_bytes is not None and abs(memory_bytes - bytes_) <= _MEMORY_TOLERANCE * bytes_:
            names.append(product)
    return next(iter([*names, *said]), ""), (ids[0] << 16 | table.pci_vendor if ids and ids[0] <= 0xFFFF else None)


def _read_labels(labels: SeriesKey, which: Iterable[str]) -> Iterator[str]:
    for label in which:
        if text := labels.label(label):
            yield text
