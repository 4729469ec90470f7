"""The dashboard of GPU health: errors, slowdowns, work, power, heat and links."""

from __future__ import annotations

from llm_serving_alerts.alerting.gpu import FATAL_XIDS
from llm_serving_alerts.records.gpu_bands import BUSY, CLOCK, DRAM, HEAT, MEMORY, POWER, POWER_LIMIT, SM, TENSOR
from llm_serving_alerts.rules import Check
from llm_serving_dashboards.bands import make_gpu_band
from llm_serving_dashboards.firing import make_firing
from llm_serving_dashboards.panels import Board, Column, Panel, Query, Row, Unit
from llm_serving_dashboards.queries import RATE, QueryBuilder, Worst
from llm_serving_dashboards.shared_panels import make_stat, make_table, make_time_series

VARIABLES = ("node", "gpu_name", "gpu")
GPU = ("gpu", "gpu_name", "node")
_LEGEND = "{{node}} {{gpu}}"
# of the GPUs with the most errors so many lines
_FAULTY = 4


def build_board(queries: QueryBuilder) -> Board:
    """Health first, then work, power and links."""
    return Board(
        Check.GPU.dashboard,
        "LLM serving: GPU health",
        "Which GPUs answer, report errors or are slowed down? Also power, heat, clocks, memory and links.",
        VARIABLES,
        (
            Row("", (make_firing(queries, Check.GPU.dashboard),)),
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
            "New errors by kind, of the GPUs with the most. An uncorrectable error opens a ticket.",
            Unit.COUNT,
            Query(queries.find_worst(queries.select_gpus(ecc, "kind"), Worst.HIGHEST, _FAULTY, "gpu"), f"{{{{kind}}}} {_LEGEND}"),
            width=8,
            minimum=0,
            may_be_empty="the GPU does not report ECC errors",
        ),
        make_time_series(
            "Remapped rows and pending remaps",
            "Over the life of the GPU, of those with the most. A remap that is pending until a reset, or that failed, opens a ticket.",
            Unit.COUNT,
            Query(queries.find_worst(queries.select_one("gpu_remapped_rows", *GPU, "kind"), Worst.HIGHEST, _FAULTY, "gpu"), f"{{{{kind}}}} {_LEGEND}"),
            Query(queries.find_worst(queries.select_one("gpu_remap_pending", *GPU), Worst.HIGHEST, _FAULTY, "gpu"), f"pending {_LEGEND}"),
            width=8,
            minimum=0,
            may_be_empty="the GPU does not report row remapping",
        ),
    )  # fmt: skip


def _make_work_panels(queries: QueryBuilder) -> tuple[Panel, ...]:
    modern = {"width": 8, "minimum": 0, "maximum": 1, "may_be_empty": "No GPM of these GPUs"}
    return (
        make_gpu_band(
            queries,
            "Memory bandwidth",
            "Memory traffic over the theoretical peak (GPM: Hopper and newer). This is the distance to the bandwidth ceiling; the share of busy time is not.",
            Unit.RATIO,
            DRAM,
            Worst.LOWEST,
            **modern,
        ),
        make_gpu_band(
            queries,
            "Tensor core activity",
            "Share of time in which the tensor cores were active (GPM: Hopper and newer).",
            Unit.RATIO,
            TENSOR,
            Worst.LOWEST,
            **modern,
        ),
        make_gpu_band(
            queries,
            "SM activity",
            "Share of time in which the streaming multiprocessors (SM) were active (GPM: Hopper and newer).",
            Unit.RATIO,
            SM,
            Worst.LOWEST,
            **modern,
        ),
        make_gpu_band(
            queries,
            "Share of busy time",
            "Share of time in which any kernel ran. 100 % does not mean that the GPU was fully used.",
            Unit.RATIO,
            BUSY,
            Worst.LOWEST,
            width=12,
            minimum=0,
            maximum=1,
        ),
        make_gpu_band(
            queries,
            "Memory in use",
            "Share of GPU memory in use. Engines allocate their share at start, so a high value is normal. A value that keeps rising is not.",
            Unit.RATIO,
            MEMORY,
            Worst.HIGHEST,
            width=12,
            minimum=0,
            maximum=1,
        ),
    )


def _make_power_panels(queries: QueryBuilder) -> tuple[Panel, ...]:
    return (
        make_gpu_band(
            queries,
            "Power",
            "Power draw, and the highest power limit of the kind.",
            Unit.WATTS,
            POWER,
            Worst.HIGHEST,
            Query(queries.select(POWER_LIMIT), "limit {{gpu_name}}"),
            width=8,
            minimum=0,
        ),
        make_gpu_band(
            queries,
            "Temperature",
            "Of the hottest sensor. The limits differ by GPU model. A GPU that gets too hot lowers its clocks: see the panel on lowered clocks.",
            Unit.CELSIUS,
            HEAT,
            Worst.HIGHEST,
            width=8,
        ),
        make_gpu_band(
            queries,
            "SM clock over its maximum",
            "Below 100 % under load: the power cap, heat or a fault.",
            Unit.RATIO,
            CLOCK,
            Worst.LOWEST,
            width=8,
            minimum=0,
            maximum=1,
        ),
    )


def _make_link_panels(queries: QueryBuilder) -> tuple[Panel, ...]:
    return tuple(
        make_time_series(
            f"{name} traffic",
            f"By direction, from the GPU's view, of the six directions with the most over the time range.{' Traffic between the GPUs of one engine comes from tensor parallelism.' if name == 'NVLink' else ''}",
            Unit.BYTES_PER_SECOND,
            Query(
                queries.find_worst(
                    queries.select_gpus(
                        f"rate({queries.select_scraped(f'gpu_{name.lower()}_bytes_total')}[{RATE}])", "direction"
                    ),
                    Worst.HIGHEST,
                    6,
                    "gpu",
                ),
                f"{{{{direction}}}} {_LEGEND}",
            ),
            minimum=0,
            may_be_empty=f"the GPU does not report {name} traffic",
        )
        for name in ("PCIe", "NVLink")
    )
