"""Objectives: good and bad events over the windows of the burn rates, kept apart so that any of them can be added up."""

from __future__ import annotations

from collections.abc import Iterator

from llm_serving_alerts.promql import DAY, ENGINE, HOUR, MINUTE, MODEL, WEEK, Dialect, seconds_text, series
from llm_serving_alerts.records.baselines import INTERVAL_SECONDS
from llm_serving_alerts.rules import MINUTELY_SECONDS, Group, Record
from llm_serving_alerts.settings import Settings

BASE_SECONDS = 300.0
# three rules each: see rules.MOST_RULES
_WINDOWS_A_GROUP = 6
# an hour is nothing of a fortnight: what no alert reads is added up by the hour, so that a month is 720 steps and not 8,640
_FORTNIGHT_SECONDS = 2 * WEEK
EVENTS = "model:llm_serving_slo_events:increase{window}"
BASE_EVENTS = EVENTS.format(window=seconds_text(BASE_SECONDS))
BAD = "model:llm_serving_slo_bad:increase{window}"
RATIO = "model:llm_serving_slo_bad:ratio_increase{window}"
_GOOD = "model:llm_serving_slo_good:increase5m"
IN_A_ROW = "model:llm_serving_slo_bad:in_a_row"
GOOD_AGE, _BAD_AGE = "model:llm_serving_slo_good_age_seconds:min", "model:llm_serving_slo_bad_age_seconds:min"
# between one window that failures in a row are looked for in and the next, and the longest
ROW_STEP_SECONDS, _ROW_SECONDS = HOUR / 2, 6 * HOUR
_ROW_WINDOWS = (
    *(minutes * MINUTE for minutes in (15, 30, 45, 60, 75, 90, 105)),
    *(hours * HOUR / 2 for hours in range(4, 13)),
)
# an increase is an estimate: of one event it is no less than this
_ONE_EVENT = 0.5


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
    # a day and more change little from one scrape to the next
    quick, slow = ([window for window in known if (window >= DAY) is long] for long in (False, True))
    in_windows = tuple(
        Group(
            f"llm-serving.slo.{seconds_text(part[0])}-{seconds_text(part[-1])}",
            tuple(rule for window in part for rule in _of_window(dialect, window, known)),
            (INTERVAL_SECONDS if part[0] >= DAY else MINUTELY_SECONDS) / dialect.time_scale,
        )
        for each in (quick, slow)
        for part in (each[start : start + _WINDOWS_A_GROUP] for start in range(0, len(each), _WINDOWS_A_GROUP))
    )
    return (
        *in_windows,
        Group("llm-serving.slo.in-a-row", tuple(_in_a_row(dialect)), MINUTELY_SECONDS / dialect.time_scale),
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


def _in_a_row(dialect: Dialect) -> Iterator[Record]:
    """How many requests failed since the last that did not. Of few requests no share can be told, but that all of them fail can."""
    by = dialect.labels(*MODEL, "slo")
    good = dialect.increase(series("slo_events_total", slo="errors", outcome="good"), BASE_SECONDS)
    each = dialect.one(good, *ENGINE, "slo", "outcome", "source", "threshold")
    yield Record(_GOOD, f"sum by ({by}) ({each})", "requests that were answered, over 5m")
    bad = f'{BAD.format(window=seconds_text(BASE_SECONDS))}{{slo="errors"}}'
    for age, record, about in ((GOOD_AGE, _GOOD, "was answered"), (_BAD_AGE, bad, "failed")):
        seen = dialect.apply_over_time("max_over_time", f"timestamp({record} > {_ONE_EVENT:g})", _ROW_SECONDS, MINUTE)
        longest = seconds_text(_ROW_SECONDS)
        yield Record(
            age,
            dialect.age(seen),
            f"how long ago a request {about}, in seconds; absent where none did within {longest}",
        )
    rows = []
    for window in _ROW_WINDOWS:
        # a step of this very moment may show what was recorded at the one before, and count that twice
        steps = dialect.apply_over_time("sum_over_time", bad, window, BASE_SECONDS)
        failed = f"{steps[:-1]} offset {dialect.duration(MINUTE)})"
        # requests that came long ago and no more say nothing about now
        row = (
            f"({failed} unless on ({by}) {GOOD_AGE} < {dialect.length(window + MINUTE)}"
            f" unless on ({by}) {_BAD_AGE} > {dialect.length(window / 2)})"
        )
        rows.append(f'label_replace({row}, "window", "{seconds_text(window)}", "", "")')
    about = f"requests that failed within {seconds_text(_ROW_SECONDS)} at most, where none was answered meanwhile"
    yield Record(IN_A_ROW, f"max by ({by}) ({' or '.join(rows)})", about)


def _step_seconds(window: float, known: tuple[float, ...]) -> float:
    hourly = window >= _FORTNIGHT_SECONDS and HOUR in known and window % HOUR == 0
    return HOUR if hourly else BASE_SECONDS
