"""dcgm-exporter's page -> how much of its memory bandwidth each GPU uses, and which of the GPUs are a target's. Pure.

Field names, units and labels: dcgm-exporter's default-counters.csv and 1.x-compatibility-metrics.csv and its render_metrics.go (tags 2.4
to 4.6.0-4.8.3); dcgm_fields.h of DCGM 4.6.0, which renamed the macros and keeps the old names as aliases. A counters file may use
either, so both are read. Blank values: dcgm_fields.h, DCGM_FP64_BLANK, _NOT_FOUND, _NOT_SUPPORTED, _NOT_PERMISSIONED; exporters
before the filter of 2024 write them like readings.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import inf

from llm_serving_exporter.gpus.device_page import PageField, collect_values, names_of
from llm_serving_exporter.model.gpu import DcgmReading, DcgmReadings, GpuReading
from llm_serving_exporter.model.sample import Samples, SeriesKey
from llm_serving_exporter.model.snapshot import Absence

PROFILING_NEEDS = (
    "profiling fields (DCGM_FI_PROF_…) need a datacenter GPU, dcgm-exporter run as root with CAP_SYS_ADMIN, "
    "and their lines in its counters file; meanwhile no profiler may hold the GPU"
)
_BLANK = 140737488355328.0
_BANDWIDTH, _LISTED = "dram_bandwidth_ratio", "listed"
FIELDS: Mapping[str, PageField] = {
    _BANDWIDTH: PageField(
        ("DCGM_FI_PROF_DRAM_ACTIVE", "DCGM_FI_PROF_DRAM_UTIL_RATIO", "dcgm_fi_prof_dram_active"),
        {
            _BLANK: Absence.WARMING_UP,
            _BLANK + 1: Absence.NOT_EXPORTED,
            _BLANK + 2: Absence.NOT_EXPORTED,
            _BLANK + 3: Absence.NO_PERMISSION,
        },
        highest=1.0,
    ),
    # that these are there says which GPUs the page has, with profiling and without
    _LISTED: PageField(
        (
            *("DCGM_FI_PROF_SM_ACTIVE", "DCGM_FI_PROF_SM_UTIL_RATIO", "dcgm_fi_prof_sm_active"),
            *("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "DCGM_FI_PROF_TENSOR_UTIL_RATIO", "dcgm_fi_prof_pipe_tensor_active"),
            *("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO", "dcgm_fi_prof_gr_engine_active"),
            *("DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_BOARD_POWER_WATTS", "dcgm_power_usage"),
            *("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "dcgm_total_energy_consumption"),
            *("DCGM_FI_DEV_FB_USED", "dcgm_fb_used"),
        )
    ),
}
# names of the samples that are read here
WANTED = frozenset(names_of(FIELDS))
_PREFIXES = ("DCGM_", "dcgm_")


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
        DcgmReading(_read_uuid(labels), _read_instance(labels), (values | absent)[_BANDWIDTH])
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
    not_before_monotonic_seconds: float = -inf,
) -> dict[str, float] | Absence:
    """The bandwidth ratio of each of a target's GPUs, by its UUID as in `uuids`, or why one of them has none.

    `readings`: None where dcgm-exporter is not configured. `gpus`: NVML's, which say which MIG instance of which GPU a "MIG-…" UUID is:
    DCGM knows instances by the GPU's UUID and the GPU instance id, so compute instances that share a GPU instance share its ratio.
    Readings from before `not_before_monotonic_seconds` are too old. All or nothing: a mean over some of a target's GPUs
    would not be the target's.
    """
    if readings is None:
        return Absence.NOT_CONFIGURED
    if not uuids:
        return Absence.GPUS_UNKNOWN
    if not readings.attempt.ok or readings.monotonic_seconds < not_before_monotonic_seconds:
        return Absence.INPUT_MISSING
    by_key = {(one.uuid.lower(), one.gpu_instance_id): one.dram_bandwidth_ratio for one in readings.gpus}
    instances = {gpu.identity.uuid.lower(): gpu.identity.mig for gpu in gpus if gpu.identity.mig is not None}
    # a page without any GPU lacks the fields; another GPU's page may be another node's
    missing = Absence.GPUS_UNKNOWN if readings.gpus else Absence.NOT_EXPORTED
    ratios: dict[str, float] = {}
    for uuid in uuids:
        mig = instances.get(uuid.lower())
        key = (uuid.lower(), None) if mig is None else (mig.parent_uuid.lower(), mig.gpu_instance_id)
        ratio = by_key.get(key, missing)
        if isinstance(ratio, Absence):
            return ratio
        ratios[uuid] = ratio
    return ratios
