"""Durations as Prometheus writes them."""

from __future__ import annotations

import re

from llm_serving_exporter.schema.problems import InvalidValueError, shown

# Prometheus' model.ParseDuration: every unit at most once, largest first; a year has 365 days.
_UNIT_MILLISECONDS = {
    "y": 31_536_000_000,
    "w": 604_800_000,
    "d": 86_400_000,
    "h": 3_600_000,
    "m": 60_000,
    "s": 1000,
    "ms": 1,
}
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)([a-zA-Zµ]+)")
# Prometheus' own limit: an int64 of nanoseconds
LONGEST_SECONDS = 2**63 / 1e9
_LONGEST_TEXT = 64
# durations are added up as whole numbers of so small a part of a millisecond that no text has a smaller one: `fractions` takes 0.5 MB
_PARTS = 10**_LONGEST_TEXT
_UNITS_SENTENCE = "Use y, w, d, h, m, s or ms, as in 500ms, 5s or 1m30s."


def parse_duration(text: str) -> float:
    """Seconds of "500ms", "5s", "1m30s", "1h", "1d", "1w", "1y" or "0".

    Like Prometheus: units once each, largest first, no spaces, no sign. Beyond Prometheus, seconds may have a fraction
    ("2.5s"), because latency thresholds are written so. Raises `InvalidValueError` (a ValueError).
    """
    if text == "0":
        return 0.0
    if not text:
        raise InvalidValueError("the duration is empty", "Write one such as 5s.")
    if text.startswith("-"):
        raise InvalidValueError(f"the duration {shown(text)} is negative", "Write one such as 5s.")
    if any(character.isspace() for character in text):
        raise InvalidValueError(f"the duration {shown(text)} has a space in it", "Write it in one word, as in 1m30s.")
    if re.fullmatch(r"[0-9]+(\.[0-9]+)?", text):
        written = text if len(text) <= _LONGEST_TEXT else "5"
        fix = f"Write {written}s for seconds" + ("" if "." in written else f", {written}ms for milliseconds")
        raise InvalidValueError(f"the duration {shown(text)} has no unit", f"{fix}.")
    total = 0
    position = 0
    order = list(_UNIT_MILLISECONDS)
    for part in _PART.finditer(text[:_LONGEST_TEXT]):
        number, unit = part.groups()
        if part.start() != position or unit not in _UNIT_MILLISECONDS:
            break
        if unit not in order:
            raise InvalidValueError(
                f"the duration {shown(text)} has a unit twice, or its units out of order",
                "Write each unit once, the largest first, as in 1h30m.",
            )
        if "." in number and unit != "s":
            raise InvalidValueError(
                f"the duration {shown(text)} has a fraction of {unit}",
                "Only seconds may have a fraction; write 1h30m for an hour and a half.",
            )
        order = order[order.index(unit) + 1 :]
        whole, _, fraction = number.partition(".")
        total += int(whole + fraction) * _UNIT_MILLISECONDS[unit] * _PARTS // 10 ** len(fraction)
        position = part.end()
    if position != len(text):
        raise InvalidValueError(f"{shown(text)} is not a duration", _UNITS_SENTENCE)
    seconds: float = total / (1000 * _PARTS)  # of whole numbers: rounded once, to the nearest
    if seconds > LONGEST_SECONDS:
        raise InvalidValueError(f"the duration {shown(text)} is too long", "The longest is 292y.")
    return seconds


def format_duration(seconds: float) -> str:
    """The shortest text that `parse_duration` reads back as `seconds` (to the millisecond), as messages show it."""
    milliseconds = round(seconds * 1000)
    if milliseconds == 0:
        return "0"
    if milliseconds > 1000 and milliseconds % 1000 and milliseconds < 60_000:
        return f"{milliseconds / 1000:g}s"
    parts = []
    for unit, size_milliseconds in _UNIT_MILLISECONDS.items():
        if unit in ("y", "w") and milliseconds % size_milliseconds:
            continue
        count, milliseconds = divmod(milliseconds, size_milliseconds)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts)
