"""The dashboard of GPU health: errors, slowdowns, work, power, heat and links."""

from __future__ import annotations

from llm_serving_alerts.alerting.gpu import FATAL_XIDS
from llm_serving_alerts.rules import Check
from llm_serving_dashboards.panels import Board, Column, Panel, Query, Row, Unit
from llm_serving_dashboards.queries import RATE, QueryBuilder
from llm_serving_dashboards.shared_panels import make_stat, make_table, make_time_series

VARIABLES = ("node", "gpu_name", "gpu")
GPU = ("gpu", "gpu_name", "node")
_LEGEND = "{{node}} {{gpu}}"


def build_board(queries: QueryBuilder) -> Board:
    """Health first, then work, power and links."""
    return Board(
        Check.GPU.dashboard,
        "LLM serving: GPU health",
        "Which GPUs answer, report errors or are slowed down? Also power, heat, clocks, memory and links.",
        VARIABLES,
        (
            Row("Health", _make_health_panels(queries)),
            Row("Work", _make_work_panels(queries)),
            Row("Power, heat and clocks", _make_power_panels(queries)),
            Row("Links", _make_link_panels(queries)),
        ),
    )


def _make_health_panels(queries: QueryBuilder) -> tuple[Panel, ...]:
    xid = queries.select_one("gpu_xid_events_total", *GPU, "xid")
    ecc = f"increase({queries.select_scraped('gpu_ecc_errors_total')}[{RATE}])"
    names = queries.select_one("gpu_info", *GPU, "index", "driver_version", "mig_profile")
    return (
        make_stat(
            "GPUs that answer",
            "Of those that the exporters have seen. If one is missing that answered an hour ago, an alert pages.",
            Unit.COUNT,
            Query(f"sum({queries.select_one('gpu_up', *GPU)})", "up"),
            height=8,
            thresholds=(),
        ),
        make_table(
            "GPUs",
            "Model, MIG profile, UUID and driver version of each GPU.",
            (
                Column("node", "node"), Column("index", "index"), Column("gpu_name", "GPU"), Column("mig_profile", "MIG"), Column("gpu", "UUID"),
                Column("driver_version", "driver"),
            ),
            names,
            width=12,
        ),
        make_time_series(
            "GPUs with lowered clocks, by reason",
            "How many GPUs run at lower clocks than requested. Hardware slowdown, thermal slowdown and power brake point to cooling or power supply. The software "
            "power cap is a setting. Choose a node at the top to find the GPU.",
            Unit.COUNT,
            Query(queries.aggregate("sum", queries.select("gpu:llm_serving_gpu_slowdown:max"), "reason"), "{{reason}}"),
            width=8,
            minimum=0,
            decimals=0,
            may_be_empty="no clock is lowered",
        ),
        make_table(
            "XID events",
            f"XID errors since the exporter's start. XIDs {', '.join(FATAL_XIDS)} page. XIDs that an application causes do not.",
            (Column("node", "node"), Column("gpu", "UUID"), Column("xid", "XID"), Column(0, "events", Unit.COUNT)),
            f"{xid} > 0",
            width=8,
            may_be_empty="no XID events",
        ),
        make_time_series(
            "ECC memory errors",
            "New errors by kind. An uncorrectable error opens a ticket.",
            Unit.COUNT,
            Query(queries.select_gpus(ecc, "kind"), f"{{{{kind}}}} {_LEGEND}"),
            width=8,
            minimum=0,
            may_be_empty="the GPU does not report ECC errors",
        ),
        make_time_series(
            "Remapped rows and pending remaps",
            "Over the life of the GPU. A remap that is pending until a reset, or that failed, opens a ticket.",
            Unit.COUNT,
            Query(queries.select_one("gpu_remapped_rows", *GPU, "kind"), f"{{{{kind}}}} {_LEGEND}"),
            Query(queries.select_one("gpu_remap_pending", *GPU), f"pending {_LEGEND}"),
            width=8,
            minimum=0,
            may_be_empty="the GPU does not report row remapping",
        ),
    )  # fmt: skip


def _make_work_panels(queries: QueryBuilder) -> tuple[Panel, ...]:
    return (
        make_time_series(
            "Memory bandwidth",
            "Memory traffic over the theoretical peak (GPM: Hopper and newer). This is the distance to the bandwidth ceiling; the share of busy time is not.",
            Unit.RATIO,
            Query(queries.select_one("gpu_dram_bandwidth_ratio", *GPU), _LEGEND),
            width=8,
            minimum=0,
            maximum=1,
            may_be_empty="GPM needs Hopper or newer",
        ),
        make_time_series(
            "Tensor core and SM activity",
            "Share of time in which the tensor cores and the streaming multiprocessors (SM) were active (GPM: Hopper and newer).",
            Unit.RATIO,
            Query(queries.select_one("gpu_tensor_activity_ratio", *GPU), f"tensor {_LEGEND}"),
            Query(queries.select_one("gpu_sm_activity_ratio", *GPU), f"SM {_LEGEND}"),
            width=8,
            minimum=0,
            maximum=1,
            may_be_empty="GPM needs Hopper or newer",
        ),
        make_time_series(
            "Share of busy time",
            "Share of time in which any kernel ran. 100 % does not mean that the GPU was fully used.",
            Unit.RATIO,
            Query(queries.select_one("gpu_busy_ratio", *GPU), _LEGEND),
            width=8,
            minimum=0,
            maximum=1,
        ),
        make_time_series(
            "Memory in use",
            "Share of GPU memory in use. Engines allocate their share at start, so a high value is normal. A value that keeps rising is not.",
            Unit.RATIO,
            Query(queries.select("gpu:llm_serving_gpu_memory_used:ratio"), _LEGEND),
            width=24,
            minimum=0,
            maximum=1,
        ),
    )


def _make_power_panels(queries: QueryBuilder) -> tuple[Panel, ...]:
    now, highest = (queries.select_scraped(name, domain="sm") for name in ("gpu_clock_hertz", "gpu_clock_max_hertz"))
    return (
        make_time_series(
            "Power",
            "Power draw and the power limit.",
            Unit.WATTS,
            Query(queries.select_one("gpu_power_watts", *GPU), _LEGEND),
            Query(queries.select_one("gpu_power_limit_watts", *GPU), f"limit {_LEGEND}"),
            width=8,
            minimum=0,
        ),
        make_time_series(
            "Temperature",
            "By sensor. The limits differ by GPU model. A GPU that gets too hot lowers its clocks: see the panel on lowered clocks.",
            Unit.CELSIUS,
            Query(queries.select_one("gpu_temperature_celsius", *GPU, "sensor"), f"{{{{sensor}}}} {_LEGEND}"),
            width=8,
        ),
        make_time_series(
            "SM clock over its maximum",
            "Below 100 % under load: the power cap, heat or a fault.",
            Unit.RATIO,
            Query(queries.select_gpus(f"{now} / {highest}"), _LEGEND),
            width=8,
            minimum=0,
            maximum=1,
        ),
    )


def _make_link_panels(queries: QueryBuilder) -> tuple[Panel, ...]:
    return tuple(
        make_time_series(
            f"{name} traffic",
            f"By direction, from the GPU's view.{' Traffic between the GPUs of one engine comes from tensor parallelism.' if name == 'NVLink' else ''}",
            Unit.BYTES_PER_SECOND,
            Query(
                queries.select_gpus(
                    f"rate({queries.select_scraped(f'gpu_{name.lower()}_bytes_total')}[{RATE}])", "direction"
                ),
                f"{{{{direction}}}} {_LEGEND}",
            ),
            minimum=0,
            may_be_empty=f"the GPU does not report {name} traffic",
        )
        for name in ("PCIe", "NVLink")
    )
