"""Numbers as a reader of bills has them. None reads as a dash; a minus is a real minus sign."""

from __future__ import annotations

from math import floor, isfinite, log10

NOTHING = "–"
_NOTHING_BELOW_USD = 5e-8
_STEPS = ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k"))


def usd(value: float | None) -> str:
    """1234.5 -> "$1,234"; below 100 with cents, below a cent with three digits."""
    if value is None or not isfinite(value):
        return NOTHING
    return ("−" if value < 0 and _money(-value) != "$0.00" else "") + _money(abs(value))


def usd_plain(value: float | None) -> str:
    """Like `usd`, without its sign: for columns whose heading has the unit."""
    return usd(value).replace("$", "")


def signed_usd(value: float | None) -> str:
    """With a plus or a minus."""
    text = usd(value)
    return f"+{text}" if value is not None and value > 0 and text not in ("$0.00", NOTHING) else text


def percent(value: float | None, digits: int = 1) -> str:
    """0.123 -> "12.3 %"."""
    if value is None or not isfinite(value):
        return NOTHING
    text = f"{100 * value:.{digits}f}"
    return f"{text.replace('-', '−')} %"


def signed_percent(value: float | None, digits: int = 1) -> str:
    """0.08 -> "+8.0 %"."""
    text = percent(value, digits)
    return f"+{text}" if value is not None and value > 0 and text != NOTHING else text


def amount(value: float | None) -> str:
    """A large count: "1.23 B", "456 M", "7,890"."""
    if value is None or not isfinite(value):
        return NOTHING
    size = abs(value)
    if size < 99_950:
        return f"{value:,.0f}" if size >= 100 or value == int(value) else f"{value:.3g}"
    scale, letter = next((scale, letter) for scale, letter in _STEPS if size >= 0.9995 * scale)
    return f"{_three(value / scale)} {letter}"


def hours(value: float | None) -> str:
    """ "1,234" or "12.3"."""
    if value is None or not isfinite(value):
        return NOTHING
    return f"{value:,.0f}" if abs(value) >= 99.95 else f"{value:.1f}"


def _money(value: float) -> str:
    if value >= 99.995:
        return f"${value:,.0f}"
    if value >= 0.995 or value == 0:
        return f"${value:.2f}"
    if value >= 0.0095:
        return f"${value:.3f}"
    # what rounding leaves of sums of thousands
    if value < _NOTHING_BELOW_USD:
        return "$0.00"
    places = min(12, 2 - floor(log10(value)))
    return f"${value:.{places}f}"


def _three(value: float) -> str:
    rounded = float(f"{value:.3g}")  # 0.9996 has the digits of 1
    return f"{rounded:.{max(0, 2 - floor(log10(abs(rounded))))}f}"
