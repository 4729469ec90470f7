"""GPU health: what the cards do, what holds their clocks down, and which of them are about to fail."""

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
    """Health first, then what they do."""
    return Board(
        Check.GPU.dashboard,
        "LLM serving: GPU health",
        "Which cards answer, err, or are held down; power, heat, clocks, memory and links.",
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
    names = queries.select_one("gpu_info", *GPU, "index", "driver_version", "mig_profile")
    return (
        make_stat(
            "GPUs that answer",
            "Of those that this exporter has seen. One fewer than an hour ago is a lost card: somebody is paged.",
            Unit.COUNT,
            Query(f"sum({queries.select_one('gpu_up', *GPU)})", "up"),
            height=8,
            thresholds=(),
        ),
        make_table(
            "Cards",
            "What they are.",
            (
                Column("node", "node"), Column("index", "index"), Column("gpu_name", "GPU"), Column("mig_profile", "MIG"), Column("gpu", "UUID"),
                Column("driver_version", "driver"),
            ),
            names,
            width=12,
        ),
        make_time_series(
            "GPUs held down, by reason",
            "How many have lower clocks than they were asked for. Hardware and thermal slowdown and power brake are faults of cooling or supply; the software "
            "power cap is how a card is run. Choose a node above to find the card.",
            Unit.COUNT,
            Query(queries.aggregate("sum", queries.select("gpu:llm_serving_gpu_slowdown:max"), "reason"), "{{reason}}"),
            width=8,
            minimum=0,
            decimals=0,
            may_be_empty="nothing holds a clock down",
        ),
        make_table(
            "XID events",
            f"Since the exporter's start. {', '.join(FATAL_XIDS)} page; what a program did itself does not.",
            (Column("node", "node"), Column("gpu", "UUID"), Column("xid", "XID"), Column(0, "events", Unit.COUNT)),
            f"{xid} > 0",
            width=8,
            may_be_empty="none happened",
        ),
        make_time_series(
            "Memory errors in the range",
            "By kind; an uncorrectable one is a ticket.",
            Unit.COUNT,
            Query(f"increase({queries.select('gpu_ecc_errors_total')}[{RATE}])", f"{{{{kind}}}} {_LEGEND}"),
            width=8,
            minimum=0,
            may_be_empty="the card counts none",
        ),
        make_time_series(
            "Rows remapped, and remaps that wait",
            "Over the card's life. One that waits for a reset, or failed, is a ticket.",
            Unit.COUNT,
            Query(queries.select_one("gpu_remapped_rows", *GPU, "kind"), f"{{{{kind}}}} {_LEGEND}"),
            Query(queries.select_one("gpu_remap_pending", *GPU), f"pending {_LEGEND}"),
            width=8,
            minimum=0,
            may_be_empty="the card does not remap rows",
        ),
    )  # fmt: skip


def _make_work_panels(queries: QueryBuilder) -> tuple[Panel, ...]:
    return (
        make_time_series(
            "Memory bandwidth",
            "Over the theoretical peak (GPM: Hopper and newer). This, not the time share below, is how near the roof is.",
            Unit.RATIO,
            Query(queries.select_one("gpu_dram_bandwidth_ratio", *GPU), _LEGEND),
            width=8,
            minimum=0,
            maximum=1,
            may_be_empty="GPM needs Hopper or newer",
        ),
        make_time_series(
            "Tensor cores and multiprocessors",
            "Share of time in which they worked (GPM).",
            Unit.RATIO,
            Query(queries.select_one("gpu_tensor_activity_ratio", *GPU), f"tensor {_LEGEND}"),
            Query(queries.select_one("gpu_sm_activity_ratio", *GPU), f"SM {_LEGEND}"),
            width=8,
            minimum=0,
            maximum=1,
            may_be_empty="GPM needs Hopper or newer",
        ),
        make_time_series(
            "Busy, a share of time",
            "In which any kernel ran: 100 % says nothing about how much of the card it used.",
            Unit.RATIO,
            Query(queries.select_one("gpu_busy_ratio", *GPU), _LEGEND),
            width=8,
            minimum=0,
            maximum=1,
        ),
        make_time_series(
            "Memory in use",
            "Engines take what they are given: full is as it should be, growing is not.",
            Unit.RATIO,
            Query(queries.select("gpu:llm_serving_gpu_memory_used:ratio"), _LEGEND),
            width=24,
            minimum=0,
            maximum=1,
        ),
    )


def _make_power_panels(queries: QueryBuilder) -> tuple[Panel, ...]:
    return (
        make_time_series(
            "Power",
            "Drawn, and the limit in force.",
            Unit.WATTS,
            Query(queries.select_one("gpu_power_watts", *GPU), _LEGEND),
            Query(queries.select_one("gpu_power_limit_watts", *GPU), f"limit {_LEGEND}"),
            width=8,
            minimum=0,
        ),
        make_time_series(
            "Temperature",
            "By sensor. What a card bears differs; it slows down by itself, see above.",
            Unit.CELSIUS,
            Query(queries.select_one("gpu_temperature_celsius", *GPU, "sensor"), f"{{{{sensor}}}} {_LEGEND}"),
            width=8,
        ),
        make_time_series(
            "SM clock over its highest",
            "Below 1 under load: power cap, heat, or a fault.",
            Unit.RATIO,
            Query(
                f"{queries.select_one('gpu_clock_hertz', *GPU, domain='sm')} / {queries.match_on(*GPU)} {queries.select_one('gpu_clock_max_hertz', *GPU, domain='sm')}",
                _LEGEND,
            ),
            width=8,
            minimum=0,
            maximum=1,
        ),
    )


def _make_link_panels(queries: QueryBuilder) -> tuple[Panel, ...]:
    return tuple(
        make_time_series(
            f"{name} traffic",
            f"By direction, seen from the card.{' Between the cards of one engine: tensor parallelism.' if name == 'NVLink' else ''}",
            Unit.BYTES_PER_SECOND,
            Query(f"rate({queries.select(f'gpu_{name.lower()}_bytes_total')}[{RATE}])", f"{{{{direction}}}} {_LEGEND}"),
            minimum=0,
            may_be_empty="the card does not count it",
        )
        for name in ("PCIe", "NVLink")
    )
