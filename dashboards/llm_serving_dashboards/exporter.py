"""The dashboard of the exporter itself: its targets, missing signals with their reasons, and its scrapes."""

from __future__ import annotations

from llm_serving_alerts.alerting.verdicts import VERDICT
from llm_serving_alerts.declare import CHOICES
from llm_serving_alerts.promql import one_of
from llm_serving_alerts.records.bands import FEW_TARGETS, MEDIAN
from llm_serving_alerts.records.history import ALIVE
from llm_serving_alerts.records.targets import DOWN
from llm_serving_alerts.rules import Check
from llm_serving_dashboards.firing import make_firing
from llm_serving_dashboards.panels import (
    REPLICA_UID,
    Board,
    Colour,
    Column,
    Draw,
    Look,
    Panel,
    Query,
    Row,
    Unit,
    ValueMapping,
    Worst,
)
from llm_serving_dashboards.shared_panels import TARGET, BoardBuilder, number_states, warn_above

VARIABLES = CHOICES[Check.EXPORTER.dashboard]
# the worst last
STATES = (
    ("ready", Colour.FINE),
    ("sleeping", "#35506b"),
    ("loading", Colour.WARNING),
    ("unknown", Colour.UNKNOWN),
    ("down", Colour.BAD),
)


NUMBERED = f"on (state) group_left () ({number_states((state, code) for code, (state, _) in enumerate(STATES))})"


# the signals whose absence leaves a check without a verdict
RESTS_ON = {
    Check.PHASES: ("prefill_tokens_total", "decode_tokens_total"),
    Check.TTFT: ("slo_ttft",),
    Check.SLO: ("slo_itl", "slo_e2e", "slo_errors"),
    Check.KV: ("kv_cache_usage_ratio",),
    Check.TAIL: ("long_context_requests_observed",),
    Check.NODE_LOSS: ("kv_cache_capacity_tokens", "batch_limit_requests", "phase_reference_seconds_per_token"),
    Check.COST: ("cost_usd_total",),
    Check.GPU: ("gpu_seconds_total",),
}


_SHOWN = f" Thick: the median over the chosen models of each model's median target. By name: the {FEW_TARGETS} targets with the highest mean over the time range."


def build_board(board: BoardBuilder) -> Board:
    """Targets, signals, then the exporter's process."""
    return Board(
        Check.EXPORTER.dashboard,
        "LLM serving: the exporter",
        "Can the other dashboards be trusted? States of the targets, missing and doubtful signals with their reasons, and failed scrapes.",
        VARIABLES,
        (
            Row("", (make_firing(board, Check.EXPORTER.dashboard),)),
            Row("Targets", _make_target_panels(board)),
            Row("Signals", _make_signal_panels(board)),
            Row("Scrapes and the exporter's process", _make_process_panels(board)),
        ),
    )


def _make_target_panels(board: BoardBuilder) -> tuple[Panel, ...]:
    record = "target:llm_serving_state:max"
    # of two exporters the one that reads it is right
    states = board.aggregate("min", f"{board.select(record)} * 0 + {NUMBERED}", "target")
    down = board.aggregate("max", board.select(record, one_of("state", ("down", "unknown"))), "target")
    unready = board.select_scraped(record, one_of("state", ("ready",), negated=True))
    ever = board.aggregate("max", board.keep_models(record, f"last_over_time({unready}[$__range])"), "target")
    failures = board.select("target:llm_serving_scrape_failures:increase5m")
    return (
        board.share(
            "Ready targets",
            "Ready targets of all that the exporters scrape. Loading and sleeping targets are neither ready nor down.",
            Look(width=4, thresholds=warn_above(1)),
            f"count({board.select(record, state='ready')})",
            f"count({board.aggregate('max', board.select(record), 'target')})",
            may_be_empty="no target is known",
        ),
        board.timeline(
            "Target states",
            "Targets that were not ready at some time of the range; first those that are down now, or answer with a page that the exporter cannot read (unknown). "
            "Loading and sleeping targets are neither ready nor down.",
            Look(
                width=10,
                mappings=tuple(ValueMapping(code, state, colour) for code, (state, colour) in enumerate(STATES)),
            ),
            Query(board.narrow("down", down, "target", states), TARGET),
            Query(
                board.narrow("unready", f"{ever} unless {board.match_on('target')} {down}", "target", states), TARGET
            ),
            may_be_empty="every known target was ready all the time",
        ),
        board.time_series(
            "Age of the last good page",
            f"Rises while a target does not answer. After three scrape intervals, the target's serving series are absent.{_SHOWN}",
            Look(Unit.SECONDS, width=5),
            *_name_worst(board, "target_sample_age_seconds"),
        ),
        board.time_series(
            "Failed scrapes by reason",
            "Failed scrapes of all chosen targets in 5m by the stage at which they ended, with the reason of the last one. The dashboard of a "
            "replica has those of one target, the exporter's log has the full messages.",
            Look(Unit.COUNT, width=5),
            Query(board.aggregate("sum", failures, "stage", "reason"), "{{stage}} {{reason}}", step="1m"),
            may_be_empty="no exporter reports a failed scrape",
        ),
    )


def _name_worst(board: BoardBuilder, name: str) -> tuple[Query, Query]:
    """The median of the models, and the three targets with the most."""
    of_models = board.select(MEDIAN.format(name=name))
    worst = board.find_worst(board.select_one(name, "target"), Worst.HIGHEST, FEW_TARGETS, "target")
    return (
        Query(f"quantile(0.5, {of_models})", "median", draw=Draw.MAIN),
        Query(worst, TARGET, replica_uid=REPLICA_UID),
    )


def _find_unknown_checks(board: BoardBuilder) -> str:
    """PromQL of the models and checks without a verdict: replicas by the signal that they lack and the reason; without both where none lacks
    one."""
    by_model = "model_name", "role"
    models = board.select(ALIVE)
    unknown = " or ".join(
        f'label_replace({models} unless {board.match_on(*by_model)} {board.select(VERDICT, check=check.value)}, "check", "{check.value}", "", "")'
        for check in Check
    )
    asked = one_of("signal", (signal for signals in RESTS_ON.values() for signal in signals))
    lacking = board.select_one("signal_available", "target", "signal", "reason", matchers=asked, holds="== 0")
    for check, signals in RESTS_ON.items():
        lacking = f'label_replace({lacking}, "check", "{check.value}", "signal", "{"|".join(signals)}")'
    why = board.aggregate("count", board.name_models(lacking), "check", *by_model, "signal", "reason")
    on = board.match_on("check", *by_model)
    # why is dear, and asked once
    targets = f"{board.match_on(*by_model)} group_left () {board.aggregate('count', board.select(DOWN), *by_model)}"
    return f"({why} or {on} (({unknown}) * 0 + {targets})) and {on} ({unknown})"


def _make_signal_panels(board: BoardBuilder) -> tuple[Panel, ...]:
    missing = board.select_one("signal_available", "target", "signal", "reason", holds="== 0")
    untrusted = 'quality!="live"'
    quality = board.select_one("signal_quality", "target", "signal", "quality", matchers=untrusted, holds="== 1")
    suspect = board.select_one("signal_suspect", "target", "signal", "cause", holds="== 1")
    return (
        board.table(
            "Missing signals",
            "How many of the chosen targets lack each signal, and why, the most first. METRICS.md and the exporter's landing page explain the reasons. A missing signal is not zero.",
            Look(width=8, height=10, sorted_by=0),
            ("signal", Column("reason", "reason", width=150), Column(0, "targets", Unit.COUNT, width=80)),
            board.aggregate("count", missing, "signal", "reason"),
            may_be_empty="no exporter reports a missing signal",
        ),
        board.table(
            "Signals of lower quality",
            "How many of the chosen targets have each signal at less than live quality, the most first. Lagging: counted when a request ends. Slow: refreshed every few seconds. Clipped: beyond a bucket edge.",
            Look(width=7, height=10, sorted_by=0),
            ("signal", Column("quality", "quality", width=90), Column(0, "targets", Unit.COUNT, width=80)),
            board.aggregate("count", quality, "signal", "quality"),
            may_be_empty="no exporter reports a signal of lower quality",
        ),
        board.table(
            "Suspect signals",
            "How many of a model's targets have impossible values of a signal, and the likely cause, the most first. The dashboard of a replica has those of one target.",
            Look(width=9, height=10, sorted_by=0),
            (
                Column("model_name", "model", width=130),
                "signal",
                Column("cause", "likely cause", width=120),
                Column(0, "targets", Unit.COUNT, width=80),
            ),
            board.aggregate("count", board.name_models(suspect), "model_name", "signal", "cause"),
            may_be_empty="no exporter reports a suspect signal",
        ),
        board.table(
            "Checks without a verdict, and why",
            "How many of a model's replicas lack a signal that the check rests on, and the reason. Without a signal: no alert of the check is evaluated, or what the "
            "check needs has not happened yet, such as a first request or a queue.",
            Look(width=18, sorted_by=0),
            ("check", "model_name", "role", "signal", "reason", Column(0, "replicas", Unit.COUNT)),
            _find_unknown_checks(board),
            may_be_empty="every check of every known model has a verdict",
        ),
        board.time_series(
            "Signals",
            "Signals of the chosen targets: how many are available, and how many are absent. Without data, no exporter scrapes these targets.",
            Look(Unit.COUNT, width=6),
            Query(board.sum("model:llm_serving_signals:sum", "state"), "{{state}}"),
        ),
    )


def _make_process_panels(board: BoardBuilder) -> tuple[Panel, ...]:
    return (
        board.time_series(
            "Scrape duration",
            f"Duration of the last scrape.{_SHOWN}",
            Look(Unit.SECONDS, width=6),
            *_name_worst(board, "scrape_duration_seconds"),
        ),
        board.time_series(
            "Page size",
            f"Size of a target's metrics page after decompression.{_SHOWN}",
            Look(Unit.BYTES, width=6),
            *_name_worst(board, "scrape_page_bytes"),
        ),
        board.time_series(
            "Unknown metric families",
            f"Metric families of the runtime that the exporter does not know. Usually the engine is newer than this version of the exporter.{_SHOWN}",
            Look(Unit.COUNT, width=6),
            *_name_worst(board, "unmapped_families"),
        ),
        board.stat(
            "Configuration",
            "Result of the last reload. A bad file is refused, and the old configuration stays in force.",
            Look(
                width=3,
                mappings=(
                    ValueMapping(1, "loaded", Colour.FINE),
                    ValueMapping(0, "refused", Colour.BAD),
                    ValueMapping(2, "no exporter", Colour.DEAD),
                ),
            ),
            Query(f"min({board.select('exporter_config_reload_success')}) or vector(2)", "last reload"),
        ),
        board.stat(
            "NVML",
            "Result of the last reading of the GPUs.",
            Look(
                width=3,
                mappings=(
                    ValueMapping(1, "ok", Colour.FINE),
                    ValueMapping(0, "failed", Colour.BAD),
                    ValueMapping(2, "off", Colour.UNKNOWN),
                ),
            ),
            Query(f"min({board.select('nvml_up')}) or vector(2)", "NVML"),
        ),
        board.table(
            "Exporters",
            "Versions of the running exporters.",
            Look(width=24, height=5),
            ("version", Column("python_version", "Python"), Column(0, "exporters", Unit.COUNT)),
            board.aggregate("count", board.select("exporter_build_info"), "version", "python_version"),
            may_be_empty="no exporter is running",
        ),
    )
