"""The exporter itself: which targets answer, which signals are missing and why, and what it costs to look."""

from __future__ import annotations

from llm_serving_alerts.rules import Check
from llm_serving_dashboards.asking import Asking
from llm_serving_dashboards.nouns import Board, Colour, Column, Look, Panel, Query, Row, Says, Unit
from llm_serving_dashboards.parts import TARGET, lines, table, value

VARIABLES = ("model_name", "role", "target")
STATES = (
    ("ready", Colour.GOOD),
    ("loading", Colour.WARNING),
    ("sleeping", Colour.PLAIN),
    ("down", Colour.BAD),
    ("unknown", Colour.UNKNOWN),
)


def board(asking: Asking) -> Board:
    """Targets, signals, and the process."""
    return Board(
        Check.EXPORTER.dashboard,
        "LLM serving: the exporter",
        "Whether what the other pages show can be trusted: states of targets, missing and untrustworthy signals with their reasons, failures.",
        VARIABLES,
        (
            Row("Targets", _targets(asking)),
            Row("Signals", _signals(asking)),
            Row("The process", _process(asking)),
        ),
    )


def _targets(asking: Asking) -> tuple[Panel, ...]:
    states = " or ".join(
        f"max by ({asking.dialect.labels('target')}) ({asking.of('target:llm_serving_state:max', state=state)}) * 0 + {code}"
        for code, (state, _) in enumerate(STATES)
    )
    failures = asking.of("target:llm_serving_scrape_failures:increase5m")
    return (
        Panel(
            "States",
            "Loading and sleeping are neither ready nor down. Unknown: a page that answers and cannot be read.",
            Look.STATES,
            (Query(states, TARGET),),
            Unit.NONE,
            12,
            says=tuple(Says(code, state, colour) for code, (state, colour) in enumerate(STATES)),
        ),
        lines(
            "Age of the last good page",
            "Grows while a target does not answer; after three intervals its serving series vanish.",
            Unit.SECONDS,
            Query(asking.one("target_sample_age_seconds", "target"), TARGET),
            width=6,
            least=0,
        ),
        lines(
            "Failed attempts by reason",
            "In 5m, where there were any: why the exporter could not read a page. See its log for the whole sentence.",
            Unit.COUNT,
            Query(failures, f"{TARGET} {{{{reason}}}}"),
            width=6,
            least=0,
            may_be_empty="nothing failed",
        ),
    )


def _signals(asking: Asking) -> tuple[Panel, ...]:
    missing = f"{asking.one('signal_available', 'target', 'signal', 'reason')} == 0"
    untrusted = 'quality!="live"'
    quality = f"{asking.one('signal_quality', 'target', 'signal', 'quality', matchers=untrusted)} == 1"
    suspect = f"{asking.one('signal_suspect', 'target', 'signal', 'cause')} == 1"
    return (
        table(
            "Missing signals",
            "Of how many of the chosen targets, and why; METRICS.md and the exporter's own page say it in sentences. Not available is not zero.",
            (Column("signal", "signal"), Column("reason", "reason"), Column(0, "targets", Unit.COUNT)),
            asking.by("count", missing, "signal", "reason"),
            width=9,
            height=10,
        ),
        table(
            "Signals to take with care",
            "Of how many of the chosen targets. lagging: booked at a request's end; slow: refreshed every few seconds; clipped: beyond a bucket edge.",
            (Column("signal", "signal"), Column("quality", "quality"), Column(0, "targets", Unit.COUNT)),
            asking.by("count", quality, "signal", "quality"),
            width=9,
            height=10,
            may_be_empty="all are live",
        ),
        table(
            "Suspect signals",
            "They contradict what is possible; the cause is the likely one.",
            (Column("target", "target"), Column("signal", "signal"), Column("cause", "likely cause")),
            suspect,
            width=6,
            height=10,
            may_be_empty="none is",
        ),
    )


def _process(asking: Asking) -> tuple[Panel, ...]:
    return (
        lines(
            "Duration of a scrape",
            "The last attempt at each target.",
            Unit.SECONDS,
            Query(asking.one("scrape_duration_seconds", "target"), TARGET),
            width=6,
            least=0,
        ),
        lines(
            "Size of the page",
            "After decompression.",
            Unit.BYTES,
            Query(asking.one("scrape_page_bytes", "target"), TARGET),
            width=6,
            least=0,
        ),
        lines(
            "Families it does not know",
            "Of the runtime, on its page: a newer engine than this version of the exporter.",
            Unit.COUNT,
            Query(asking.one("unmapped_families", "target"), TARGET),
            width=6,
            least=0,
        ),
        value(
            "Config",
            "Whether the last reload went well; a bad file changes nothing.",
            Unit.NONE,
            Query(f"min({asking.of('exporter_config_reload_success')}) or vector(2)", "last reload"),
            width=3,
            height=8,
            says=(Says(1, "good", Colour.GOOD), Says(0, "refused", Colour.BAD), Says(2, "no exporter", Colour.DEAD)),
        ),
        value(
            "NVML",
            "Whether the GPUs could be read at the last attempt.",
            Unit.NONE,
            Query(f"min({asking.of('nvml_up')}) or vector(2)", "NVML"),
            width=3,
            height=8,
            says=(Says(1, "reads", Colour.GOOD), Says(0, "fails", Colour.BAD), Says(2, "off", Colour.UNKNOWN)),
        ),
        table(
            "Exporters",
            "Versions that run.",
            (Column("version", "version"), Column("python_version", "Python"), Column(0, "exporters", Unit.COUNT)),
            asking.by("count", asking.of("exporter_build_info"), "version", "python_version"),
            width=24,
            height=5,
        ),
    )
