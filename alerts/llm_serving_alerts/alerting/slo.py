"""Checks ttft and slo: objectives, by how fast their budgets are spent; engines that are stuck."""

from __future__ import annotations

from collections.abc import Callable

from llm_serving_alerts.alerting.node_loss import name_lost_node_of_burn, unless_lost_lately
from llm_serving_alerts.declare import (
    DIGITS,
    Alert,
    Shown,
    Text,
    alert_matchers,
    label,
    lookup,
    of_model,
    of_target,
    show_first,
    value,
)
from llm_serving_alerts.promql import ENGINE, MODEL, Dialect, seconds_text
from llm_serving_alerts.records.slo import (
    BAD,
    CLOCK,
    EVENTS,
    GOOD_AGE,
    IN_A_ROW,
    RATIO,
    ROW_STEP_SECONDS,
    go_by,
    longest,
)
from llm_serving_alerts.records.traffic import find_stalled
from llm_serving_alerts.rules import Check, Severity
from llm_serving_alerts.settings import FOR, NUMBER, RANGE, SLOS, AlertSettings, Settings

# --- Check slo: engines that are stuck.


def _stalled(dialect: Dialect, settings: Settings, own: AlertSettings, tier: str) -> tuple[str, Text]:
    expr = find_stalled(dialect, own["range"])
    span = seconds_text(own["range"])
    return expr, Text(
        f"{of_target(dialect)}: engine {label('engine')} is stuck with {value()} requests",
        f"For {span} or longer requests ran, waited or were given up, and no token, step or answer was counted, while the page was answered. A health "
        "check that only asks whether the process answers does not see this.",
        "take a stack dump, then restart the replica",
    )


STUCK = Alert(
    "Stalled",
    Check.SLO,
    ENGINE,
    {Severity.CRITICAL: ""},
    _stalled,
    Shown("replica", "Waiting requests"),
    {"range": RANGE},
)


# --- Checks ttft and slo: objectives, by how fast their budgets are spent.

_QUANTILE = "model:llm_serving_time_to_first_token_seconds:quantile_rate10m"
_PAGES = "fast"


def _others(settings: Settings) -> tuple[str, ...]:
    """The objectives beside TTFT that are counted at all."""
    wanted = (name for name in SLOS if name != "ttft")
    return tuple(name for name in wanted if name == "errors" or settings.slo[name].threshold_seconds is not None)


def _burn(
    dialect: Dialect,
    settings: Settings,
    own: AlertSettings,
    speed: str,
    slos: tuple[str, ...],
    *,
    excused: bool = False,
) -> str:
    """Pairs of windows that are both above factor times the budget. `or` keeps one series an objective: which pair fired is no label.
    `excused`: without what a node that was lost lately explains, as long as the shorter window holds it."""
    by = dialect.labels(*MODEL, "slo")
    pairs = []
    for name in slos:
        budget = settings.slo[name].budget
        for window in settings.burn[speed]:
            long, short = seconds_text(window.long_seconds), seconds_text(window.short_seconds)
            this = f'{{slo="{name}"}}'
            unless = unless_lost_lately(dialect, settings, window.short_seconds) if excused else ""
            pairs.append(
                f"({RATIO.format(window=long)}{this} / {budget:g} > {window.factor:g}"
                f" and on ({by}) {RATIO.format(window=short)}{this} / {budget:g} > {window.factor:g}"
                f" and on ({by}) {EVENTS.format(window=long)}{this} >= {own['events']:g}"
                f" and on ({by}) {BAD.format(window=long)}{this} >= {own['bad']:g}{unless})"
            )
    return f" or on ({by}) ".join(pairs)


def _ttft(dialect: Dialect, settings: Settings, own: AlertSettings, tier: str) -> tuple[str, Text]:
    def burns(excused: bool) -> str:
        pairs = _burn(dialect, settings, own, tier, ("ttft",), excused=excused)
        return go_by(dialect, longest(settings, tier), pairs)

    expr = _of_a_node(dialect, tier, burns)
    ttft = settings.slo["ttft"]

    def share(window: str, speed: str) -> str:
        bad = _go_by(dialect, settings, speed, RATIO.format(window=window), 'slo="ttft"', "humanizePercentage")
        return f"{bad}{_say_front_door(dialect, settings, speed)}"

    p99 = _go_by(dialect, settings, _PAGES, _QUANTILE, 'rank="p99"', "humanizeDuration")
    return expr, Text(
        f"{of_model(dialect)}: time to first token burns its budget {value(DIGITS)} times too fast",
        f"{_spent(dialect, settings, share)} Objective: {ttft.objective:.4g} within {ttft.threshold_seconds or 0:g}s. p99 now: {p99}.",
        "look at waiting requests and KV usage first",
    )


def _slo(dialect: Dialect, settings: Settings, own: AlertSettings, tier: str) -> tuple[str, Text]:
    others = _others(settings)
    # of too few requests for a share: that nobody is answered is beyond any budget
    failed = f"{_all_failed(dialect, own)} * 0 + {1 / settings.slo['errors'].budget:g}"

    def burns(excused: bool) -> str:
        pairs = _burn(dialect, settings, own, tier, others, excused=excused)
        if tier != _PAGES:
            return pairs
        unless = unless_lost_lately(dialect, settings, 0.0) if excused else ""
        return f"{pairs} or on ({dialect.labels(*MODEL, 'slo')}) ({failed}{unless})"

    expr = _of_a_node(dialect, tier, burns)
    matchers, values = alert_matchers((*dialect.identity, *MODEL, "slo"))
    query = f"printf `{_all_failed(dialect, own, f'{{{matchers}}}')}` {values} {values} | query"
    in_a_row = f"{{{{ with {query} }}}} All of the last {{{{ . | first | value | printf `%.0f` }}}} requests failed.{{{{ end }}}}"
    return expr, Text(
        f"{of_model(dialect)}: {label('slo')} burns its budget {value(DIGITS)} times too fast",
        f"{_spent(dialect, settings)}{in_a_row}",
        "errors: read the server's log; latencies: look at batch and KV usage",
    )


def _of_a_node(dialect: Dialect, tier: str, burns: Callable[[bool], str]) -> str:
    return name_lost_node_of_burn(dialect, burns(False), burns(True)) if tier == _PAGES else burns(False)


def _all_failed(dialect: Dialect, own: AlertSettings, matchers: str = "") -> str:
    """Models of which so many requests failed since the last that did not. What was counted in one window is not forgotten before the next
    one holds it."""
    failed = dialect.apply_over_time("max_over_time", f"{IN_A_ROW}{matchers}", ROW_STEP_SECONDS)
    answered = f"{GOOD_AGE}{matchers} < {dialect.length(ROW_STEP_SECONDS)}"
    return f"({failed} >= {own['in_a_row']:g} unless on ({dialect.labels(*MODEL, 'slo')}) {answered})"


def _spent(dialect: Dialect, settings: Settings, share: Callable[[str, str], str] | None = None) -> str:
    """`share`: the share of bad events over a window of pairs of this speed; without, of the alert's own labels."""

    def own(window: str, speed: str) -> str:
        return lookup(dialect, RATIO.format(window=window), (*MODEL, "slo"), "humanizePercentage")

    firsts = {speed: seconds_text(settings.burn[speed][0].long_seconds) for speed in ("fast", "slow")}
    bad = [f"over {window} {(share or own)(window, speed)}" for speed, window in firsts.items()]
    period = seconds_text(settings.period_seconds)
    return f"At this rate the error budget of {period} is spent {value(DIGITS)} times too fast; bad events: {', '.join(bad)}."


def _of_clock(dialect: Dialect, settings: Settings, speed: str, extra: str = "") -> tuple[str, str]:
    """A selector of the clock that the firing alert goes by, for printf in a template, and its arguments."""
    matchers, values = alert_matchers((*dialect.identity, "model_name"))
    clock = CLOCK.format(window=seconds_text(longest(settings, speed)))
    return f"{clock}{{{','.join(filter(None, (matchers, 'counts_for=%q', extra)))}}}", f"{values} $labels.role"


def _go_by(dialect: Dialect, settings: Settings, speed: str, record: str, extra: str, how: str) -> str:
    """Another series of the model in a template, of the role whose clock the alert goes by; "unknown" where there is none."""
    matchers, values = alert_matchers((*dialect.identity, "model_name"))
    clock, of_clock = _of_clock(dialect, settings, speed)
    query = f"{record}{{{matchers},{extra}}} * on ({dialect.labels(*MODEL)}) group_left () {clock}"
    return show_first(f"printf `{query}` {values} {of_clock}", how)


def _say_front_door(dialect: Dialect, settings: Settings, speed: str) -> str:
    clock, values = _of_clock(dialect, settings, speed, 'clock="front door"')
    return f"{{{{ with printf `{clock}` {values} | query }}}} as the front door times them{{{{ end }}}}"


# pages for what is gone within days, a ticket for what does not last the period
_SPEEDS = {Severity.WARNING: "slow", Severity.CRITICAL: _PAGES}
_FLOORS = {"warning_for": FOR, "events": NUMBER, "bad": NUMBER}
SLO = (
    Alert("TTFTBurn", Check.TTFT, (*MODEL, "slo", "node"), _SPEEDS, _ttft, Shown("latency", "Objectives that burn"), _FLOORS, lambda s: s.slo["ttft"].threshold_seconds is not None, separate=True),
    Alert("SLOBurn", Check.SLO, (*MODEL, "slo", "node"), _SPEEDS, _slo, Shown("latency", "Objectives that burn"), {**_FLOORS, "in_a_row": NUMBER}, separate=True),
    STUCK,
)  # fmt: skip
