"""A target's GPUs over a window of passes over them: means, and whether a cap holds their clock down."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from llm_serving_exporter.model.derived import Cap
from llm_serving_exporter.model.numbers import add_up
from llm_serving_exporter.model.snapshot import Absence
from llm_serving_exporter.model.window import DeviceSample


def keep_samples(
    samples: tuple[DeviceSample, ...], new: DeviceSample | None, now: float, span_seconds: float
) -> tuple[DeviceSample, ...]:
    """The samples of the last `span_seconds`, with one more where it is another pass; () where the GPUs are no longer the same."""
    if new is not None and (not samples or new.monotonic_seconds > samples[-1].monotonic_seconds):
        samples = (*samples, new) if not samples or samples[-1].gpus == new.gpus else (new,)
    return tuple(sample for sample in samples if now - sample.monotonic_seconds <= span_seconds)


def average_samples(samples: tuple[DeviceSample, ...], field: str) -> float | Absence:
    """Mean of a field over the samples that have it; the newest sample's reason where none has."""
    values = [value for sample in samples if (value := getattr(sample, field)) is not None]
    if values:
        return float(add_up(values) / len(values))
    return samples[-1].absent.get(field, Absence.NOT_EXPORTED) if samples else Absence.GPUS_UNKNOWN


# --- Whether a cap on power or heat holds the multiprocessors' clock down, over a window of passes over the GPUs.


# a clock below this share of its maximum is held down; single steps of 15 MHz below it are no loss that anybody would see
HELD_BELOW = 0.95


# what the driver's reasons to hold the clocks down come to; hw_slowdown is said beside one of them
REASONS: Mapping[str, tuple[str, ...]] = {
    "power": ("sw_power_cap", "hw_power_brake_slowdown"),
    "thermal": ("thermal", "sw_thermal_slowdown", "hw_thermal_slowdown"),
}


def find_cap(samples: Sequence[DeviceSample]) -> Cap | None:
    """What has held the clock for the largest share of the window; None where no pass shows clocks and reasons.

    A cap holds in as much of the time as the driver counts for it (where its counter moved, else in as many passes as name it), and in no
    more of it than the clock is below HELD_BELOW.
    """
    shown = [each for each in samples if each.clocks is not None]
    clocks = [each.clocks for each in shown if each.clocks is not None]
    if not clocks:
        return None
    below = add_up(each.sm_hertz < HELD_BELOW * each.sm_max_hertz for each in clocks) / len(clocks)
    shares = {}
    for cause, reasons in REASONS.items():
        counted = [share for reason in reasons if (share := _count_share(shown, reason))]
        named = add_up(each.held_now.get(cause, 0.0) for each in clocks) / len(clocks)
        shares[cause] = min(below, max(counted) if counted else named)
    cause = max(shares, key=lambda name: shares[name])

    def mean(values: list[float | None]) -> float | None:
        present = [value for value in values if value is not None]
        return add_up(present) / len(present) if present else None

    return Cap(
        cause,
        min(1.0, shares[cause]),
        add_up(each.sm_hertz for each in clocks) / len(clocks),
        add_up(each.sm_max_hertz for each in clocks) / len(clocks),
        mean([each.power_watts for each in clocks]),
        mean([each.power_limit_watts for each in clocks]),
    )


def _count_share(shown: Sequence[DeviceSample], reason: str) -> float | None:
    """Share of the time from the first pass to the last in which the driver counts that a reason held; None where it does not."""
    first, last = shown[0], shown[-1]
    seconds = last.monotonic_seconds - first.monotonic_seconds
    ends = [sample.clocks.held_seconds_total.get(reason) for sample in (first, last) if sample.clocks is not None]
    if seconds <= 0 or ends[0] is None or ends[1] is None or ends[1] < ends[0]:
        return None
    return (ends[1] - ends[0]) / seconds
