"""dcgm-exporter's page -> readings by GPU, and the GPUs of a target among them. Pure.

Field names, units and labels: dcgm-exporter's default-counters.csv and 1.x-compatibility-metrics.csv and its render_metrics.go (tags 2.4
to 4.6.0-4.8.3); dcgm_fields.h of DCGM 4.6.0, which renamed the macros and keeps the old names as aliases. A counters file may use
either, so both are read. Blank values: dcgm_fields.h, DCGM_…_BLANK, _NOT_FOUND, _NOT_SUPPORTED, _NOT_PERMISSIONED; exporters
before the filter of 2024 write them like readings.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import inf

from llm_serving_exporter.gpus.device_page import PageField, collect_values, names_of
from llm_serving_exporter.model.gpu import DcgmReading, DcgmReadings, GpuReading
from llm_serving_exporter.model.record import Struct
from llm_serving_exporter.model.sample import Samples, SeriesKey
from llm_serving_exporter.model.snapshot import Absence

PROFILING_NEEDS = (
    "profiling fields (DCGM_FI_PROF_…) need a datacenter GPU, dcgm-exporter run as root with CAP_SYS_ADMIN, "
    "and their lines in its counters file; meanwhile no profiler may hold the GPU"
)
# As doubles the four INT64 blanks (0x7ffffffffffffff0 and the next three) are one and the same number; "not supported" is the usual one.
# DCGM keeps INT32 blanks (0x7ffffff0 and the next three) in 64-bit fields too.
_INTEGER_BLANKS: Mapping[float, Absence] = {
    float(0x7FFFFFFFFFFFFFF0): Absence.NOT_EXPORTED,
    float(0x7FFFFFF0): Absence.WARMING_UP,
    float(0x7FFFFFF1): Absence.NOT_EXPORTED,
    float(0x7FFFFFF2): Absence.NOT_EXPORTED,
    float(0x7FFFFFF3): Absence.NO_PERMISSION,
}
_FP64_BLANK = 140737488355328.0
_DOUBLE_BLANKS: Mapping[float, Absence] = {
    _FP64_BLANK: Absence.WARMING_UP,
    _FP64_BLANK + 1: Absence.NOT_EXPORTED,
    _FP64_BLANK + 2: Absence.NOT_EXPORTED,
    _FP64_BLANK + 3: Absence.NO_PERMISSION,
}


class DcgmRatios(Struct, frozen=True):
    """One ratio of each GPU of a target."""

    by_uuid: Mapping[str, float] | None  # 0-1; None: one of the GPUs lacks it, or none is known
    absence: Absence = Absence.AVAILABLE  # why `by_uuid` is None
    why: str = ""  # the same as a sentence for a person; "" where nothing is missing


FIELDS: Mapping[str, PageField] = {
    "dram_bandwidth_ratio": PageField(
        ("DCGM_FI_PROF_DRAM_ACTIVE", "DCGM_FI_PROF_DRAM_UTIL_RATIO", "dcgm_fi_prof_dram_active"),
        _DOUBLE_BLANKS,
        highest=1.0,
    ),
    "sm_activity_ratio": PageField(
        ("DCGM_FI_PROF_SM_ACTIVE", "DCGM_FI_PROF_SM_UTIL_RATIO", "dcgm_fi_prof_sm_active"), _DOUBLE_BLANKS, highest=1.0
    ),
    "tensor_activity_ratio": PageField(
        ("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "DCGM_FI_PROF_TENSOR_UTIL_RATIO", "dcgm_fi_prof_pipe_tensor_active"),
        _DOUBLE_BLANKS,
        highest=1.0,
    ),
    "engine_activity_ratio": PageField(
        ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO", "dcgm_fi_prof_gr_engine_active"),
        _DOUBLE_BLANKS,
        highest=1.0,
    ),
    "power_watts": PageField(
        ("DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_BOARD_POWER_WATTS", "dcgm_power_usage"), _DOUBLE_BLANKS
    ),
    # millijoules
    "energy_joules_total": PageField(
        ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "dcgm_total_energy_consumption"), _INTEGER_BLANKS, factor=1e-3
    ),
    # MiB
    "memory_used_bytes": PageField(("DCGM_FI_DEV_FB_USED", "dcgm_fb_used"), _INTEGER_BLANKS, factor=float(1 << 20)),
}
_WANTED = frozenset(names_of(FIELDS))
_PREFIXES = ("DCGM_", "dcgm_")


def is_wanted_dcgm_name(name: str) -> bool:
    """Whether samples of this name are read here."""
    return name in _WANTED


def is_dcgm_page(names: Iterable[str]) -> bool:
    """Whether a page with these sample names is dcgm-exporter's, whatever fields it was told to collect."""
    return any(name.startswith(_PREFIXES) for name in names)


# lower-case UUID of the whole GPU, GPU instance id or None
_Key = tuple[str, int | None]


def read_gpus(samples: Samples) -> tuple[DcgmReading, ...]:
    """A reading for each GPU and MIG instance on the page, in the order of their first series.

    One GPU may have several series of a field, one for each pod that shares it or one for each of two names: equal values are one
    value, different ones are none. Series without a GPU's UUID (CPUs, switches) are left out.
    """
    return tuple(
        DcgmReading(
            uuid=_read_uuid(labels),
            gpu_instance_id=_read_instance(labels),
            mig_profile=labels.label("GPU_I_PROFILE") or "",
            gpu_name=labels.label("modelName") or "",
            host_name=labels.label("hostname") or labels.label("Hostname") or "",
            absent=absent,
            **values,
        )
        for _, labels, values, absent in collect_values(samples, FIELDS, _read_key)
    )


def _read_uuid(series: SeriesKey) -> str:
    return series.label("UUID") or series.label("uuid") or ""


def _read_instance(series: SeriesKey) -> int | None:
    instance = series.label("GPU_I_ID") or ""
    return int(instance) if instance.isascii() and instance.isdigit() and len(instance) < 10 else None


def _read_key(series: SeriesKey) -> _Key | None:
    uuid, instance = _read_uuid(series), _read_instance(series)
    return None if not uuid or (series.label("GPU_I_ID") and instance is None) else (uuid.lower(), instance)


def select_dcgm_ratios(
    uuids: Sequence[str],
    readings: DcgmReadings | None,
    gpus: Sequence[GpuReading],
    *,
    field: str = "dram_bandwidth_ratio",
    not_before_monotonic_seconds: float = -inf,
) -> DcgmRatios:
    """A ratio of each of a target's GPUs, by its UUID as in `uuids`.

    `readings`: None where dcgm-exporter is not configured. `gpus`: NVML's, which say which MIG instance of which GPU a "MIG-…" UUID is:
    DCGM knows instances by the GPU's UUID and the GPU instance id, so compute instances that share a GPU instance share its ratio.
    Readings from before `not_before_monotonic_seconds` are too old. All or nothing: a mean over some of a target's GPUs
    would not be the target's.
    """
    if readings is None:
        return DcgmRatios(None, Absence.NOT_CONFIGURED, "dcgm.url is not set")
    if not uuids:
        return DcgmRatios(None, Absence.GPUS_UNKNOWN, "the target's GPUs are not known")
    if not readings.attempt.ok:
        return DcgmRatios(None, Absence.INPUT_MISSING, f"dcgm-exporter could not be read: {readings.attempt.detail}")
    if readings.monotonic_seconds < not_before_monotonic_seconds:
        return DcgmRatios(None, Absence.INPUT_MISSING, "the last reading of dcgm-exporter is too old")
    by_key = {(one.uuid.lower(), one.gpu_instance_id): one for one in readings.gpus}
    instances = {gpu.identity.uuid.lower(): gpu.identity.mig for gpu in gpus if gpu.identity.mig is not None}
    ratios: dict[str, float] = {}
    for uuid in uuids:
        mig = instances.get(uuid.lower())
        key = (uuid.lower(), None) if mig is None else (mig.parent_uuid.lower(), mig.gpu_instance_id)
        one = by_key.get(key)
        value = None if one is None else getattr(one, field)
        if value is None:
            return _explain_missing(uuid, one, readings, field)
        ratios[uuid] = value
    return DcgmRatios(ratios)


_WHY: Mapping[Absence, str] = {
    Absence.NO_PERMISSION: "dcgm-exporter may not read {field} of {gpu}; {needs}",
    Absence.WARMING_UP: "dcgm-exporter has no {field} of {gpu} at the moment (just started, or a profiler holds the GPU)",
    Absence.INVALID: "dcgm-exporter's {field} of {gpu} is no ratio from 0 to 1",
    Absence.DUPLICATE: "dcgm-exporter's page has several values of {field} for {gpu}",
}


def _explain_missing(uuid: str, one: DcgmReading | None, readings: DcgmReadings, field: str) -> DcgmRatios:
    if one is None and readings.gpus:
        return DcgmRatios(
            None,
            Absence.GPUS_UNKNOWN,
            f"dcgm-exporter's page does not have {uuid}; is dcgm.url the dcgm-exporter of this node, and not a Service "
            "that answers for every node in turn?",
        )
    absence = Absence.NOT_EXPORTED if one is None else one.absent[field]
    why = _WHY.get(absence, "dcgm-exporter's page has no {field} of {gpu}; {needs}")
    return DcgmRatios(None, absence, why.format(field=FIELDS[field].names[0], gpu=uuid, needs=PROFILING_NEEDS))
