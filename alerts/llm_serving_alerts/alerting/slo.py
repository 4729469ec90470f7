"""Checks ttft and slo: objectives, by how fast their budgets are spent, and engines that are stuck."""

from __future__ import annotations

from llm_serving_alerts.declare import (
    DIGITS,
    Alert,
    Text,
    alert_matchers,
    label,
    lookup,
    of_model,
    of_target,
    owners_only,
    value,
)
from llm_serving_alerts.promql import ENGINE, MODEL, Dialect, seconds_text, series
from llm_serving_alerts.records.slo import BAD, EVENTS, RATIO
from llm_serving_alerts.rules import Check, Severity
from llm_serving_alerts.setting_kinds import NUMBER, RANGE
from llm_serving_alerts.settings import SLOS, AlertSettings, Settings

_QUANTILE = "model:llm_serving_time_to_first_token_seconds:quantile_rate10m"
_THRESHOLD = series("slo_threshold_seconds")
_STEP_SECONDS = 60.0
_ABOVE_TOP = "model:llm_serving_time_to_first_token_seconds:above_top_edge_ratio_rate10m"
_MOVES = ("prefill_tokens_total", "decode_tokens_total", "engine_steps_total", "requests_finished_total")


def _others(settings: Settings) -> tuple[str, ...]:
    """The objectives beside TTFT that are counted at all."""
    wanted = (name for name in SLOS if name != "ttft")
    return tuple(name for name in wanted if name == "errors" or settings.slo[name].threshold_seconds is not None)


def _burn(dialect: Dialect, settings: Settings, own: AlertSettings, speed: str, slos: tuple[str, ...]) -> str:
    """Pairs of windows that are both above factor times the budget. `or` keeps one series an objective: which pair fired is no label."""
    by = dialect.labels(*MODEL, "slo")
    pairs = []
    for name in slos:
        budget = settings.slo[name].budget
        for window in settings.burn[speed]:
            long, short = seconds_text(window.long_seconds), seconds_text(window.short_seconds)
            this = f'{{slo="{name}"}}'
            pairs.append(
                f"({RATIO.format(window=long)}{this} / {budget:g} > {window.factor:g}"
                f" and on ({by}) {RATIO.format(window=short)}{this} / {budget:g} > {window.factor:g}"
                f" and on ({by}) {EVENTS.format(window=long)}{this} >= {own['events']:g}"
                f" and on ({by}) {BAD.format(window=long)}{this} >= {own['bad']:g})"
            )
    return f" or on ({by}) ".join(pairs)


def _ttft_fast(dialect: Dialect, settings: Settings, own: AlertSettings, tier: str) -> str:
    return _burn(dialect, settings, own, "fast", ("ttft",))


def _ttft_slow(dialect: Dialect, settings: Settings, own: AlertSettings, tier: str) -> str:
    return _burn(dialect, settings, own, "slow", ("ttft",))


def _slo_fast(dialect: Dialect, settings: Settings, own: AlertSettings, tier: str) -> str:
    return _burn(dialect, settings, own, "fast", _others(settings))


def _slo_slow(dialect: Dialect, settings: Settings, own: AlertSettings, tier: str) -> str:
    return _burn(dialect, settings, own, "slow", _others(settings))


def _spent(dialect: Dialect, settings: Settings, speed: str) -> str:
    window = seconds_text(settings.burn[speed][0].long_seconds)
    bad = lookup(dialect, RATIO.format(window=window), (*MODEL, "slo"), "humanizePercentage")
    period = seconds_text(settings.period_seconds)
    return f"At this rate the error budget of {period} is spent {value(DIGITS)} times too fast; bad events over {window}: {bad}."


def _ttft_text(dialect: Dialect, settings: Settings, speed: str) -> Text:
    ttft = settings.slo["ttft"]
    p99 = lookup(dialect, _QUANTILE, MODEL, "humanizeDuration", 'rank="p99"')
    return Text(
        f"{of_model(dialect)}: time to first token burns its budget {value(DIGITS)} times too fast",
        f"{_spent(dialect, settings, speed)} Objective: {ttft.objective:.4g} within {ttft.threshold_seconds or 0:g}s. p99 now: {p99}.",
        "look at waiting requests and KV usage first",
    )


def _slo_text(dialect: Dialect, settings: Settings, speed: str) -> Text:
    return Text(
        f"{of_model(dialect)}: {label('slo')} burns its budget {value(DIGITS)} times too fast",
        _spent(dialect, settings, speed),
        "errors: read the server's log; latencies: look at batch and KV usage",
    )


def _ttft_fast_text(dialect: Dialect, settings: Settings, own: AlertSettings) -> Text:
    return _ttft_text(dialect, settings, "fast")


def _ttft_slow_text(dialect: Dialect, settings: Settings, own: AlertSettings) -> Text:
    return _ttft_text(dialect, settings, "slow")


def _slo_fast_text(dialect: Dialect, settings: Settings, own: AlertSettings) -> Text:
    return _slo_text(dialect, settings, "fast")


def _slo_slow_text(dialect: Dialect, settings: Settings, own: AlertSettings) -> Text:
    return _slo_text(dialect, settings, "slow")


def _ttft_high(dialect: Dialect, settings: Settings, own: AlertSettings, tier: str) -> str:
    by_model = dialect.labels(*MODEL)
    threshold = dialect.one(dialect.with_own(series("slo_threshold_seconds", slo="ttft", kind="configured")), *MODEL)
    events = f'sum by ({by_model}) (model:llm_serving_time_to_first_token_seconds_bucket:rate10m{{le="+Inf"}}) * 600'
    return f'sum without (rank) ({_QUANTILE}{{rank="p99"}}) > on ({by_model}) {threshold} and on ({by_model}) {events} >= {own["events"]:g}'


def _ttft_high_text(dialect: Dialect, settings: Settings, own: AlertSettings) -> Text:
    matchers, values = alert_matchers((*dialect.external, *MODEL))
    theirs, own_values = owners_only(dialect)
    asked_for = f'printf `{_THRESHOLD}{{{matchers},slo="ttft",kind="configured"}}{theirs}` {values}{own_values}'
    threshold = f"{{{{ with {asked_for} | query }}}}{{{{ . | first | value | humanizeDuration }}}}{{{{ else }}}}unknown{{{{ end }}}}"
    # a quantile above the engine's largest edge is not known: the edge stands for it
    clipped = lookup(dialect, _ABOVE_TOP, MODEL, "humanizePercentage")
    names = (*dialect.identity, *MODEL)
    query = f"printf `{_ABOVE_TOP}{{{','.join(f'{name}=%q' for name in names)}}} > 0.01` {' '.join(f'$labels.{name}' for name in names)}"
    p99 = f"{{{{ if {query} | query }}}}at least {{{{ end }}}}{value('humanizeDuration')}"
    return Text(
        f"{of_model(dialect)}: p99 time to first token {p99}",
        f"The 99th percentile of 10m is {p99}, above the threshold of {threshold}. Beyond the engine's largest bucket edge lie {clipped}.",
        "context for other alerts; nobody is notified",
    )


def _stalled(dialect: Dialect, settings: Settings, own: AlertSettings, tier: str) -> str:
    by_engine, of_target = dialect.key(*ENGINE), dialect.key("target")
    span = own["range"]
    running, waiting = "engine:llm_serving_requests_running:max", "engine:llm_serving_requests_waiting:max"
    held = f"({running} + on ({dialect.labels(*ENGINE)}) ({waiting} or on ({by_engine}) {running} * 0))"
    least = dialect.apply_over_time("min_over_time", held, span, _STEP_SECONDS)
    # an engine that was not there all along, as after a restart, has not stood still all along
    there = f"{dialect.apply_over_time('count_over_time', held, span, _STEP_SECONDS)} >= {max(1, int(span / _STEP_SECONDS))}"
    moved = " or ".join(f'label_replace({_moved(dialect, name, span)}, "of", "{name}", "", "")' for name in _MOVES)
    # one of the two suffices: tokens that are booked late do not excuse steps that are counted at once
    flows, runs = (
        " or ".join(f"{series('signal_quality', signal=name, quality='live')} == 1" for name in names)
        for names in (("decode_tokens_total", "engine_steps_total"), ("requests_running",))
    )
    live = f"{runs} and on ({of_target}) ({flows})"
    return (
        f"{least} > 0 and on ({by_engine}) {there} and on ({by_engine}) sum by ({by_engine}) ({moved}) == 0"
        f" and on ({of_target}) {dialect.bare(live, 'target')} and on ({of_target}) {series('target_state', state='ready')} == 1"
    )


def _moved(dialect: Dialect, counter: str, span: float) -> str:
    by_engine = dialect.key(*ENGINE)
    return f"sum by ({by_engine}) ({dialect.increase(series(counter), span)})"


def _stalled_text(dialect: Dialect, settings: Settings, own: AlertSettings) -> Text:
    span = seconds_text(own["range"])
    return Text(
        f"{of_target(dialect)}: engine {label('engine')} is stuck with {value()} requests",
        f"For {span} requests ran or waited, and no token, step or finished request was counted, while the page was answered. A health check "
        "that only asks whether the process answers does not see this.",
        "take a stack dump, then restart the replica",
    )


_FLOORS = {"events": NUMBER, "bad": NUMBER}
SLO = (
    Alert("TTFTBurnFast", Check.TTFT, (*MODEL, "slo"), {Severity.CRITICAL: ""}, _ttft_fast, _ttft_fast_text, _FLOORS, lambda s: s.slo["ttft"].threshold_seconds is not None),
    Alert("TTFTBurnSlow", Check.TTFT, (*MODEL, "slo"), {Severity.WARNING: ""}, _ttft_slow, _ttft_slow_text, _FLOORS, lambda s: s.slo["ttft"].threshold_seconds is not None),
    Alert("TTFTHigh", Check.TTFT, MODEL, {Severity.INFO: ""}, _ttft_high, _ttft_high_text, {"events": NUMBER}, lambda s: s.slo["ttft"].threshold_seconds is not None),
    Alert("SLOBurnFast", Check.SLO, (*MODEL, "slo"), {Severity.CRITICAL: ""}, _slo_fast, _slo_fast_text, _FLOORS),
    Alert("SLOBurnSlow", Check.SLO, (*MODEL, "slo"), {Severity.WARNING: ""}, _slo_slow, _slo_slow_text, _FLOORS),
    Alert("Stalled", Check.SLO, ENGINE, {Severity.CRITICAL: ""}, _stalled, _stalled_text, {"range": RANGE}),
)  # fmt: skip
