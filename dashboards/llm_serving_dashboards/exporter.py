"""The exporter itself: which targets answer, which signals are missing and why, and what it costs to look."""

from __future__ import annotations

from llm_serving_alerts.rules import Check
from llm_serving_dashboards.panels import Board, Colour, Column, Panel, Query, Row, Unit, ValueMapping, Visualization
from llm_serving_dashboards.queries import QueryBuilder
from llm_serving_dashboards.shared_panels import TARGET, make_stat, make_table, make_time_series

VARIABLES = ("model_name", "role", "target")
STATES = (
    ("ready", Colour.GOOD),
    ("loading", Colour.WARNING),
    ("sleeping", Colour.PLAIN),
    ("down", Colour.BAD),
    ("unknown", Colour.UNKNOWN),
)


def build_board(queries: QueryBuilder) -> Board:
    """Targets, signals, and the process."""
    return Board(
        Check.EXPORTER.dashboard,
        "LLM serving: the exporter",
        "Whether what the other pages show can be trusted: states of targets, missing and untrustworthy signals with their reasons, failures.",
        VARIABLES,
        (
            Row("Targets", _make_target_panels(queries)),
            Row("Signals", _make_signal_panels(queries)),
            Row("The process", _make_process_panels(queries)),
        ),
    )


def _make_target_panels(queries: QueryBuilder) -> tuple[Panel, ...]:
    states = " or ".join(
        f"max by ({queries.dialect.labels('target')}) ({queries.select('target:llm_serving_state:max', state=state)}) * 0 + {code}"
        for code, (state, _) in enumerate(STATES)
    )
    failures = queries.select("target:llm_serving_scrape_failures:increase5m")
    return (
        Panel(
            "States",
            "Loading and sleeping are neither ready nor down. Unknown: a page that answers and cannot be read.",
            Visualization.STATE_TIMELINE,
            (Query(states, TARGET),),
            Unit.NONE,
            12,
            mappings=tuple(ValueMapping(code, state, colour) for code, (state, colour) in enumerate(STATES)),
        ),
        make_time_series(
            "Age of the last good page",
            "Grows while a target does not answer; after three intervals its serving series vanish.",
            Unit.SECONDS,
            Query(queries.select_one("target_sample_age_seconds", "target"), TARGET),
            width=6,
            minimum=0,
        ),
        make_time_series(
            "Failed attempts by reason",
            "In 5m, where there were any: why the exporter could not read a page. See its log for the whole sentence.",
            Unit.COUNT,
            Query(failures, f"{TARGET} {{{{reason}}}}"),
            width=6,
            minimum=0,
            may_be_empty="nothing failed",
        ),
    )


def _make_signal_panels(queries: QueryBuilder) -> tuple[Panel, ...]:
    missing = f"{queries.select_one('signal_available', 'target', 'signal', 'reason')} == 0"
    untrusted = 'quality!="live"'
    quality = f"{queries.select_one('signal_quality', 'target', 'signal', 'quality', matchers=untrusted)} == 1"
    suspect = f"{queries.select_one('signal_suspect', 'target', 'signal', 'cause')} == 1"
    return (
        make_table(
            "Missing signals",
            "Of how many of the chosen targets, and why; METRICS.md and the exporter's own page say it in sentences. Not available is not zero.",
            (Column("signal", "signal"), Column("reason", "reason"), Column(0, "targets", Unit.COUNT)),
            queries.aggregate("count", missing, "signal", "reason"),
            width=9,
            height=10,
        ),
        make_table(
            "Signals to take with care",
            "Of how many of the chosen targets. lagging: booked at a request's end; slow: refreshed every few seconds; clipped: beyond a bucket edge.",
            (Column("signal", "signal"), Column("quality", "quality"), Column(0, "targets", Unit.COUNT)),
            queries.aggregate("count", quality, "signal", "quality"),
            width=9,
            height=10,
            may_be_empty="all are live",
        ),
        make_table(
            "Suspect signals",
            "They contradict what is possible; the cause is the likely one.",
            (Column("target", "target"), Column("signal", "signal"), Column("cause", "likely cause")),
            suspect,
            width=6,
            height=10,
            may_be_empty="none is",
        ),
    )


def _make_process_panels(queries: QueryBuilder) -> tuple[Panel, ...]:
    return (
        make_time_series(
            "Duration of a scrape",
            "The last attempt at each target.",
            Unit.SECONDS,
            Query(queries.select_one("scrape_duration_seconds", "target"), TARGET),
            width=6,
            minimum=0,
        ),
        make_time_series(
            "Size of the page",
            "After decompression.",
            Unit.BYTES,
            Query(queries.select_one("scrape_page_bytes", "target"), TARGET),
            width=6,
            minimum=0,
        ),
        make_time_series(
            "Families it does not know",
            "Of the runtime, on its page: a newer engine than this version of the exporter.",
            Unit.COUNT,
            Query(queries.select_one("unmapped_families", "target"), TARGET),
            width=6,
            minimum=0,
        ),
        make_stat(
            "Config",
            "Whether the last reload went well; a bad file changes nothing.",
            Unit.NONE,
            Query(f"min({queries.select('exporter_config_reload_success')}) or vector(2)", "last reload"),
            width=3,
            height=8,
            mappings=(
                ValueMapping(1, "good", Colour.GOOD),
                ValueMapping(0, "refused", Colour.BAD),
                ValueMapping(2, "no exporter", Colour.DEAD),
            ),
        ),
        make_stat(
            "NVML",
            "Whether the GPUs could be read at the last attempt.",
            Unit.NONE,
            Query(f"min({queries.select('nvml_up')}) or vector(2)", "NVML"),
            width=3,
            height=8,
            mappings=(
                ValueMapping(1, "reads", Colour.GOOD),
                ValueMapping(0, "fails", Colour.BAD),
                ValueMapping(2, "off", Colour.UNKNOWN),
            ),
        ),
        make_table(
            "Exporters",
            "Versions that run.",
            (Column("version", "version"), Column("python_version", "Python"), Column(0, "exporters", Unit.COUNT)),
            queries.aggregate("count", queries.select("exporter_build_info"), "version", "python_version"),
            width=24,
            height=5,
        ),
    )
