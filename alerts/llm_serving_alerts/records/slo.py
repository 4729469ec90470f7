"""Objectives: good and bad events over the windows of the burn rates, kept apart so that any of them can be added up."""

from __future__ import annotations

from collections.abc import Iterator

from llm_serving_alerts.promql import ENGINE, HOUR, MODEL, WEEK, Dialect, seconds_text, series
from llm_serving_alerts.rules import Group, Record
from llm_serving_alerts.settings import Settings

BASE_SECONDS = 300.0
# three rules each: see rules.MOST_RULES
_WINDOWS_A_GROUP = 6
# an hour is nothing of a fortnight: what no alert reads is added up by the hour, so that a month is 720 steps and not 8,640
_FORTNIGHT_SECONDS = 2 * WEEK
EVENTS = "model:llm_serving_slo_events:increase{window}"
BAD = "model:llm_serving_slo_bad:increase{window}"
RATIO = "model:llm_serving_slo_bad:ratio_increase{window}"


def windows(settings: Settings) -> tuple[float, ...]:
    """Every window of the burn rates and the period, in seconds, ascending."""
    found = {settings.period_seconds, BASE_SECONDS}
    for pairs in settings.burn.values():
        for pair in pairs:
            found |= {pair.long_seconds, pair.short_seconds}
    return tuple(sorted(found))


def slo(dialect: Dialect, settings: Settings) -> tuple[Group, ...]:
    """Events of 5m from the counters; longer windows are sums of those, so that three days do not read every scrape of every engine."""
    known = windows(settings)
    parts = [known[start : start + _WINDOWS_A_GROUP] for start in range(0, len(known), _WINDOWS_A_GROUP)]
    return tuple(
        Group(
            f"llm-serving.slo.{seconds_text(part[0])}-{seconds_text(part[-1])}",
            tuple(rule for window in part for rule in _of_window(dialect, window, known)),
        )
        for part in parts
    )


def _of_window(dialect: Dialect, window: float, known: tuple[float, ...]) -> Iterator[Record]:
    """Good and bad together, bad, and their ratio: evaluated at one moment."""
    by, text = dialect.labels(*MODEL, "slo"), seconds_text(window)
    identity = (*ENGINE, "slo", "outcome", "source", "threshold")
    for name, matchers, about in ((EVENTS, "", "events that count"), (BAD, 'outcome="bad"', "bad events")):
        if window == BASE_SECONDS:
            increase = dialect.one(dialect.increase(series("slo_events_total", matchers), BASE_SECONDS), *identity)
            yield Record(
                name.format(window=text), f"sum by ({by}) ({increase})", f"{about} of an objective over {text}"
            )
            continue
        step = _step_seconds(window, known)
        total = dialect.apply_over_time("sum_over_time", name.format(window=seconds_text(step)), window, step)
        yield Record(name.format(window=text), total, f"{about} over {text}")
    share = f"{BAD.format(window=text)} / ({EVENTS.format(window=text)} > 0)"
    yield Record(RATIO.format(window=text), share, f"share of bad events over {text}")


def _step_seconds(window: float, known: tuple[float, ...]) -> float:
    hourly = window >= _FORTNIGHT_SECONDS and HOUR in known and window % HOUR == 0
    return HOUR if hourly else BASE_SECONDS
