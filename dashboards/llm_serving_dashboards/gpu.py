"""The dashboard of GPU health: errors, slowdowns, work, power, heat and links."""

from __future__ import annotations

from dataclasses import replace

from llm_serving_alerts.alerting.gpu import FATAL_XIDS
from llm_serving_alerts.declare import CHOICES
from llm_serving_alerts.promql import one_of
from llm_serving_alerts.records.bands import BUSY, CLOCK, DRAM, HEAT, MEMORY, POWER, POWER_LIMIT, SM, TENSOR, Figure
from llm_serving_alerts.records.identity import KNOWN_GPUS
from llm_serving_alerts.rules import ALERT_PREFIX, Check, Severity
from llm_serving_dashboards.firing import (
    BEFORE_RANGE,
    SINCE,
    find_begun,
    find_firing,
    list_rules,
    make_firing,
    select_firing,
)
from llm_serving_dashboards.panels import (
    Board,
    Colour,
    Column,
    Look,
    Panel,
    Query,
    Row,
    ThresholdStep,
    Unit,
    ValueMapping,
    Worst,
)
from llm_serving_dashboards.queries import RATE
from llm_serving_dashboards.shared_panels import BoardBuilder

VARIABLES = CHOICES[Check.GPU.dashboard]
GPU = ("gpu", "gpu_name", "node")
_LEGEND = "{{node}} {{gpu}}"
_SILENT, _UNSEEN = "does not answer", "no exporter reports it"
# what an alert says of a card
_FAULTS = {
    "GPUFailed": ("failed: an XID that pages", Colour.BAD),
    "GPUMemoryFault": ("memory fault", Colour.WARNING),
    "GPUSlowdown": ("clocks held down", Colour.WARNING),
}
_FAULT_WORDS = tuple(
    ValueMapping(words, words, colour)
    for words, colour in ((_SILENT, Colour.BAD), *_FAULTS.values(), (_UNSEEN, Colour.UNKNOWN))
)


def build_board(board: BoardBuilder) -> Board:
    """Who is missing or at fault, then errors, work, power and links, and the list of all."""
    return Board(
        Check.GPU.dashboard,
        "LLM serving: GPU health",
        "Which GPUs do not answer, report errors or are slowed down? Also power, heat, clocks, memory and links.",
        VARIABLES,
        (
            Row("", (make_firing(board, Check.GPU.dashboard),)),
            Row("Health", (*_make_fault_panels(board), *_make_health_panels(board))),
            Row("Work", tuple(_make_work_panel(board, *row) for row in _WORK), may_be_empty="no GPU reports it"),
            Row("Power, heat and clocks", _make_power_panels(board), may_be_empty="no GPU reports it"),
            Row("Links", _make_link_panels(board)),
            Row("All GPUs", (_make_list(board),)),
        ),
    )


def _make_fault_panels(board: BoardBuilder) -> tuple[Panel, ...]:
    on = board.match_on("gpu")
    known, answer = board.select(KNOWN_GPUS), board.select_one("gpu_up", *GPU, holds="== 1")

    def narrow(expression: str) -> str:
        """Of the silent ones alone: of hundreds that answer nothing is asked."""
        return board.narrow("silent", f"{known} unless {on} {answer}", "gpu", expression)

    silent = narrow(board.aggregate("max", known, *GPU))
    about = f'check="{Check.GPU}"'
    severities = (one_of("severity", (severity,)) for severity in (Severity.CRITICAL, Severity.WARNING))
    pages, tickets = (f"({find_firing(board, about, severity)})" for severity in severities)
    # an exporter that is gone tells of none of its cards: they may be well
    failed = f"({narrow(board.select_one('gpu_up', *GPU))} == 0 or {on} {pages})"

    def name_fault(alerts: str) -> str:
        for alert, (words, _) in _FAULTS.items():
            alerts = f'label_replace({alerts}, "fault", "{words}", "alertname", "{ALERT_PREFIX}{alert}")'
        # of a card that does not answer GPUFailed says no more
        return f"({board.aggregate('max', alerts, *GPU, 'fault')} unless {on} {silent})"

    gone = f'label_replace({silent} and {on} {failed}, "fault", "{_SILENT}", "", "")'
    unseen = f'label_replace({silent} unless {on} {failed}, "fault", "{_UNSEEN}", "", "")'
    faults = f"{gone} * 0 + 4 or {name_fault(pages)} * 0 + 3 or {name_fault(tickets)} * 0 + 2 or {unseen} * 0 + 1"
    up = narrow(board.select_scraped("gpu_up"))
    # the time of a sample is that of a selector alone; of anything else it is that of the question, minutes after a card's last word
    answers = board.dialect.bare(f"timestamp({up}) and {up} == 1", "gpu")
    answered = f"max_over_time({answers}[$__range:1m])"
    rules = [rule for rule in list_rules(board.settings) if rule.labels["check"] == Check.GPU]
    begun = name_fault(f"({find_begun(board, f'{pages} or {tickets}', select_firing(board, about), rules)})")
    seen = f"{answered} or {on} {board.find_start('GPUFailed', 'gpu')} or {on} {silent} * 0 + {BEFORE_RANGE}"
    since = f"({gone} or {unseen}) * 0 + {on} group_left () ({seen}) or {begun}"
    return (
        board.share(
            "GPUs that answer",
            "GPUs that answer, of all that an exporter has reported within the last hour. An alert pages for one that answered an hour ago and is missing now.",
            Look(width=4, height=7, thresholds=(ThresholdStep(Colour.FINE_TEXT), ThresholdStep(Colour.BAD, 1))),
            f"count({answer})",
            f"count({known})",
            may_be_empty="no GPU is known",
        ),
        board.table(
            "GPUs that are missing or at fault",
            "GPUs that do not answer come first, then those with a page, then those with a ticket, then those that no exporter reports; and since when. Before this range: it has not answered since the "
            "time range began, and no alert has recorded the start.",
            Look(width=20, height=7, sorted_by=0),
            (
                "node",
                "gpu_name",
                Column("gpu", "UUID", width=400),
                Column("fault", "fault", mappings=_FAULT_WORDS, width=220),
                replace(SINCE, source=1),
            ),
            faults,
            f"1000 * ({since})",
            may_be_empty="no known GPU is missing or at fault",
        ),
    )


def _make_list(board: BoardBuilder) -> Panel:
    return board.table("GPUs", "Model, MIG profile, UUID and driver version of each GPU.", Look(width=24, height=10), (
            "node", Column("index", "index", width=80), "gpu_name", Column("mig_profile", "MIG", width=100),
            Column("gpu", "UUID", width=400), Column("driver_version", "driver", width=150),
        ), board.select_one("gpu_info", *GPU, "index", "driver_version", "mig_profile"), may_be_empty="no GPU is known")  # fmt: skip


def _make_health_panels(board: BoardBuilder) -> tuple[Panel, ...]:
    xid = board.select_one("gpu_xid_events_total", *GPU, "xid", holds="> 0")
    errors, of_kind = board.select_scraped("gpu_ecc_errors_total"), board.dialect.key("gpu", "kind")
    now, before = (f"max by ({of_kind}) ({one})" for one in (errors, f"{errors} offset $__range"))
    on = board.match_on("gpu", "kind")
    grown = f"({now} - {on} {before} or {on} {now}) > 0"
    rows = board.select_one("gpu_remapped_rows", *GPU, "kind", holds="> 0")
    waits = board.select_one("gpu_remap_pending", *GPU, holds="> 0")
    pending = f'label_replace({waits}, "kind", "waits for a reset", "", "")'
    place = "node", "gpu", "kind"
    return (
        board.time_series(
            "GPUs with lowered clocks, by reason",
            "How many GPUs run at lower clocks than requested. Hardware slowdown, thermal slowdown and power brake point to cooling or power supply. The software "
            "power cap is a setting. Choose a node at the top to find the GPU.",
            Look(Unit.COUNT, width=6, height=6, decimals=0),
            Query(board.sum("gpu:llm_serving_gpu_slowdown:max", "reason"), "{{reason}}"),
            may_be_empty="no GPU reports lowered clocks",
        ),
        board.table(
            "XID events",
            f"XID errors since the exporter's start. XIDs {', '.join(FATAL_XIDS)} page. XIDs that an application causes do not.",
            Look(width=6, height=6, sorted_by=0),
            ("node", "gpu", Column("xid", "XID"), Column(0, "events", Unit.COUNT)),
            xid,
            may_be_empty="no GPU has reported an XID",
        ),
        board.table(
            "ECC memory errors",
            "New errors in the time range by kind, the most first. An uncorrectable error opens a ticket.",
            Look(width=6, height=6, sorted_by=0),
            (*place, Column(0, "errors", Unit.COUNT)),
            board.select_gpus(grown, "kind"),
            may_be_empty="no new error, or no GPU reports them",
        ),
        board.table(
            "Remapped rows and pending remaps",
            "Over the life of the GPU, the most first. A remap that is pending until a reset, or that failed, opens a ticket.",
            Look(width=6, height=6, sorted_by=0),
            (*place, Column(0, "rows", Unit.COUNT)),
            f"{rows} or {pending}",
            may_be_empty="no row is remapped, or no GPU reports it",
        ),
    )


_GPM, _NO_GPM = Look(Unit.RATIO, worst=Worst.LOWEST, width=8, maximum=1), "these GPUs have no GPM counters"
# title, what it is, look, figure, why there may be none
_WORK: tuple[tuple[str, str, Look, Figure, str], ...] = (
    ("Memory bandwidth", "Memory traffic over the theoretical peak (GPM: Hopper and newer). This is the distance to the bandwidth ceiling; the share of busy time is not.",
     _GPM, DRAM, _NO_GPM),
    ("Tensor core activity", "Share of time in which the tensor cores were active (GPM: Hopper and newer).", _GPM, TENSOR, _NO_GPM),
    ("SM activity", "Share of time in which the streaming multiprocessors (SM) were active (GPM: Hopper and newer).", _GPM, SM, _NO_GPM),
    ("Share of busy time", "Share of time in which any kernel ran. 100 % does not mean that the GPU was fully used.",
     Look(Unit.RATIO, worst=Worst.LOWEST, maximum=1), BUSY, ""),
    ("Memory in use", "Share of GPU memory in use. Engines allocate their share at start, so a high value is normal. A value that keeps rising is not.",
     Look(Unit.RATIO, maximum=1), MEMORY, ""),
)  # fmt: skip


def _make_work_panel(board: BoardBuilder, title: str, about: str, look: Look, figure: Figure, empty: str) -> Panel:
    return board.gpu_band(title, about, look, figure, may_be_empty=empty)


def _make_power_panels(board: BoardBuilder) -> tuple[Panel, ...]:
    return (
        board.gpu_band(
            "Power",
            "Power draw, and the highest power limit of the kind.",
            Look(Unit.WATTS, width=8),
            POWER,
            board.line(POWER_LIMIT, "limit {{gpu_name}}"),
        ),
        board.gpu_band(
            "Temperature",
            "Temperature of the hottest sensor. The limits differ by GPU model. A GPU that gets too hot lowers its clocks: see the panel on lowered clocks.",
            Look(Unit.CELSIUS, width=8, from_zero=False),
            HEAT,
        ),
        board.gpu_band(
            "SM clock over its maximum",
            "Below 100 % under load: the power cap, heat or a fault.",
            Look(Unit.RATIO, worst=Worst.LOWEST, width=8, maximum=1),
            CLOCK,
        ),
    )


def _make_link_panels(board: BoardBuilder) -> tuple[Panel, ...]:
    return tuple(
        board.time_series(
            f"{name} traffic",
            f"Traffic that a GPU sends and receives, of the six GPUs with the most over the time range.{' Traffic between the GPUs of one engine comes from tensor parallelism.' if name == 'NVLink' else ''}",
            Look(Unit.BYTES_PER_SECOND),
            Query(
                board.find_worst(
                    board.select_gpus(
                        f"rate({board.select_scraped(f'gpu_{name.lower()}_bytes_total')}[{RATE}])", "direction"
                    ),
                    Worst.HIGHEST,
                    6,
                    "gpu",
                ),
                f"{{{{direction}}}} {_LEGEND}",
            ),
            may_be_empty=f"the GPU does not report {name} traffic",
        )
        for name in ("PCIe", "NVLink")
    )
