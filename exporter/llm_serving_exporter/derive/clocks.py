"""Whether a cap on power or heat holds the multiprocessors' clock down, over a window of passes over the GPUs."""

from __future__ import annotations

from collections.abc import Sequence

from llm_serving_exporter.derive.devices import REASONS
from llm_serving_exporter.model.derived import Cap
from llm_serving_exporter.model.numbers import add_up
from llm_serving_exporter.model.window import DeviceSample

# a clock below this share of its maximum is held down; single steps of 15 MHz below it are no loss that anybody would see
HELD_BELOW = 0.95


def find_cap(samples: Sequence[DeviceSample]) -> Cap | None:
    """What has held the clock for the largest share of the window; None where no pass shows clocks and reasons.

    A cap holds in as much of the time as the driver counts for it (where its counter moved, else in as many passes as name it), and in no
    more of it than the clock is below HELD_BELOW.
    """
    shown = [one for one in samples if one.clocks is not None]
    clocks = [one.clocks for one in shown if one.clocks is not None]
    if not clocks:
        return None
    below = add_up(one.sm_hertz < HELD_BELOW * one.sm_max_hertz for one in clocks) / len(clocks)
    shares = {}
    for cause, reasons in REASONS.items():
        counted = [share for reason in reasons if (share := _count_share(shown, reason))]
        named = add_up(one.held_now.get(cause, 0.0) for one in clocks) / len(clocks)
        shares[cause] = min(below, max(counted) if counted else named)
    cause = max(shares, key=lambda name: shares[name])

    def mean(values: list[float | None]) -> float | None:
        found = [value for value in values if value is not None]
        return add_up(found) / len(found) if found else None

    return Cap(
        cause,
        min(1.0, shares[cause]),
        add_up(one.sm_hertz for one in clocks) / len(clocks),
        add_up(one.sm_max_hertz for one in clocks) / len(clocks),
        mean([one.power_watts for one in clocks]),
        mean([one.power_limit_watts for one in clocks]),
    )


def _count_share(shown: Sequence[DeviceSample], reason: str) -> float | None:
    """Share of the time from the first pass to the last in which the driver counts that a reason held; None where it does not."""
    first, last = shown[0], shown[-1]
    seconds = last.monotonic_seconds - first.monotonic_seconds
    ends = [one.clocks.held_seconds_total.get(reason) for one in (first, last) if one.clocks is not None]
    if seconds <= 0 or ends[0] is None or ends[1] is None or ends[1] < ends[0]:
        return None
    return (ends[1] - ends[0]) / seconds
