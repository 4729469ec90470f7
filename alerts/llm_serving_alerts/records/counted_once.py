"""How often the last hour of a target was counted, so that records of cost take each moment of it once.

An hour may be counted by several: a pair of exporters or servers side by side, of which one may be away for a while, or an exporter
that is replaced by another in its middle. Their increases are added up, and divided by how many of them there were at a time in the
mean: a pair's by two, of which each may have put the same second into another place; those of one after the other by one.

How long each of them was there is the time from the first to the last moment at which it told of the target. An engine's own count
rises within it whether it is read or not: that is `passed`. What the exporter counts itself stands still while it is away, and goes
on while it only cannot be scraped: for that, `counted`, the GPU seconds of each say for how long it counted.
"""

from __future__ import annotations

from llm_serving_alerts.promql import ENGINE, HOUR, MINUTE, Dialect, series
from llm_serving_alerts.rules import Record

ONCE = "exporter:llm_serving_hour_counted_once:ratio"
PASSED, COUNTED = "passed", "counted"
SEEN = "exporter:llm_serving_target_seen:seconds"
# a minute would be 1.7 % of an hour
_STEP_SECONDS = 15.0
# of the time of all of them: increases of shorter spans are estimates, by half a scrape at each end
_LONG_ENOUGH = 0.25


def once(dialect: Dialect) -> tuple[Record, ...]:
    """By what increases of the last hour are multiplied that are added up over exporters; in this order."""
    of_target = dialect.key("target")
    places = ", ".join([*(label for label in ENGINE if label != "target"), "state", "rate"])
    moments = f"({series('target_up')} * 0 + time())"
    last, first = (dialect.apply_over_time(f"{how}_over_time", moments, HOUR, _STEP_SECONDS) for how in ("max", "min"))
    minute = dialect.length(MINUTE)
    each = f"clamp_min({last} - {first}, {minute})"
    counted = f"sum without ({places}) ({dialect.increase(series('gpu_seconds_total'), HOUR)})"
    long_enough = f"({each} >= on ({of_target}) group_left () {_LONG_ENOUGH:g} * {SEEN})"
    pace = f"max by ({of_target}) ({counted} / {long_enough})"
    return (
        Record(
            SEEN,
            f"clamp_min(max by ({of_target}) ({last}) - min by ({of_target}) ({first}), {minute})",
            "seconds of the last hour from the first to the last moment at which some exporter told of a target",
        ),
        Record(
            ONCE,
            f"{SEEN} / on ({of_target}) sum by ({of_target}) ({each})",
            "one over how many there were at a time, of what an engine counts and exporters pass on",
            {"of": PASSED},
        ),
        Record(
            ONCE,
            f"{SEEN} * on ({of_target}) {pace} / on ({of_target}) (sum by ({of_target}) ({counted}) > 0)"
            f' or on ({of_target}) {ONCE}{{of="{PASSED}"}}',
            "the same of what exporters count themselves",
            {"of": COUNTED},
        ),
    )
