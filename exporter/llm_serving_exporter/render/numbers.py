"""Numbers -> short texts for people: three significant digits, always with their unit. None and NaN read as a dash."""

from __future__ import annotations

from math import floor, isfinite, log10

NOTHING = "–"
# before a quantile that lies outside its histogram's edges
CLIPPED = {"top": "≥ ", "bottom": "≤ "}
_STEPS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_BINARY = ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))
_SPANS = ((86400, "d"), (3600, "h"), (60, "min"))


def _digits(value: float) -> str:
    """Three significant digits, whole numbers from 100 on, no trailing zeros after the point."""
    if value == 0:
        return "0"
    places = min(6, max(0, 2 - floor(log10(abs(value)))))
    text = f"{value:.{places}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _known(value: float | None) -> bool:
    return value is not None and isfinite(value)


def number(value: float | None, unit: str = "") -> str:
    """12345 -> "12.3k"; with a unit "12.3k tok/s"."""
    if value is None or not _known(value):
        return NOTHING
    # 999.6 rounds to 1000, which is 1k
    scale, prefix = next(((scale, prefix) for scale, prefix in _STEPS if abs(value) >= 0.9995 * scale), (1.0, ""))
    return f"{_digits(value / scale)}{prefix} {unit}".rstrip()


def count(value: float | None) -> str:
    """A whole number up to 9999 as it is, above that as `number`; fractions with three digits."""
    if value is not None and _known(value) and value == int(value) and abs(value) < 10_000:
        return str(int(value))
    return number(value)


def share(value: float | None) -> str:
    """0.123 -> "12.3 %". Above 99.9 % as many nines as there are, so that nothing rounds up to a perfect 100 %."""
    if value is None or not _known(value):
        return NOTHING
    percent = 100 * value
    if 99.9 < percent < 100:
        places = min(6, 1 - floor(log10(100 - percent)))
        text = f"{floor(percent * 10**places) / 10**places:.{places}f}".rstrip("0")
        return f"{text} %"
    return f"{_digits(percent)} %"


def seconds(value: float | None) -> str:
    """A latency: "4.2 ms", "1.37 s", "85 µs"."""
    if value is None or not _known(value):
        return NOTHING
    magnitude = abs(value)
    if magnitude and magnitude < 0.9995e-3:
        return f"{_digits(value * 1e6)} µs"
    if magnitude and magnitude < 0.9995:
        return f"{_digits(value * 1e3)} ms"
    return f"{_digits(value)} s"


def span(value: float | None) -> str:
    """A length of time in its two largest units: "8 s", "12 min 5 s", "3 h 12 min", "2 d 4 h"."""
    if value is None or not _known(value):
        return NOTHING
    left = max(0, int(value))
    parts: list[str] = []
    for size, unit in (*_SPANS, (1, "s")):
        amount, left = divmod(left, size)
        if amount or (unit == "s" and not parts):
            parts.append(f"{amount} {unit}")
        elif parts:
            break
        if len(parts) == 2:
            break
    return " ".join(parts)


def size(value: float | None) -> str:
    """Bytes: "71.8 GiB"."""
    if value is None or not _known(value):
        return NOTHING
    scale, unit = next(((scale, unit) for scale, unit in _BINARY if abs(value) >= scale), (1, "B"))
    return f"{_digits(value / scale)} {unit}"
