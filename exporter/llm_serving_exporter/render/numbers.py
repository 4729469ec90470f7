"""Numbers -> short texts for people: latencies and rates, counts and ratios, money. None, NaN and infinity read as a dash."""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import floor, isfinite, log10
from typing import Any

from llm_serving_exporter.model.cost import CostPhase, TargetCost
from llm_serving_exporter.model.derived import Latency
from llm_serving_exporter.model.numbers import has_enough_events
from llm_serving_exporter.model.reading import TargetReading
from llm_serving_exporter.model.text import count_nouns

NOTHING = "–"
# before a quantile that lies outside its histogram's edges
CLIPPED = {"top": "at least ", "bottom": "at most "}
_SI_PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
# a bill writes B for a thousand million
_BILL_PREFIXES = ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k"))
_BYTE_UNITS = ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))
_TIME_UNITS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))
# rounding errors of sums over thousands of values stay below it
_ZERO_BELOW_USD = 5e-8


# --- rates, ratios, times and sizes: three significant digits, with their unit ----------------------------------


def number(value: float | None, unit: str = "") -> str:
    """12345 -> "12.3k"; with a unit "12.3k tok/s"."""
    if value is None or not isfinite(value):
        return NOTHING
    # 999.6 rounds to 1000, which is 1k
    scale, prefix = next(((scale, prefix) for scale, prefix in _SI_PREFIXES if abs(value) >= 0.9995 * scale), (1.0, ""))
    return f"{_three_digits(value / scale)}{prefix} {unit}".rstrip()


def count(value: float | None) -> str:
    """A whole number up to 9999 as it is, above that as `number`; fractions with three digits."""
    if value is not None and isfinite(value) and value == int(value) and abs(value) < 10_000:
        return str(int(value))
    return number(value)


def share(value: float | None) -> str:
    """0.123 -> "12.3 %". Above 99.9 % as many nines as there are, so that nothing rounds up to a perfect 100 %."""
    if value is None or not isfinite(value):
        return NOTHING
    in_percent = 100 * value
    if not isfinite(in_percent):
        return NOTHING
    if 99.9 < in_percent < 100:
        places = min(6, 1 - floor(log10(100 - in_percent)))
        text = f"{floor(in_percent * 10**places) / 10**places:.{places}f}".rstrip("0")
        return f"{text} %"
    return f"{_three_digits(in_percent)} %"


def seconds(value: float | None) -> str:
    """A latency: "4.2 ms", "1.37 s", "85 µs"."""
    if value is None or not isfinite(value):
        return NOTHING
    magnitude = abs(value)
    if magnitude and magnitude < 0.9995e-3:
        return f"{_three_digits(value * 1e6)} µs"
    if magnitude and magnitude < 0.9995:
        return f"{_three_digits(value * 1e3)} ms"
    return f"{_three_digits(value)} s"


def span(value: float | None) -> str:
    """A length of time in its two largest units: "8 s", "12 min 5 s", "3 h 12 min", "2 d 4 h"."""
    if value is None or not isfinite(value):
        return NOTHING
    left = max(0, int(value))
    parts: list[str] = []
    for unit_seconds, unit in _TIME_UNITS:
        whole, left = divmod(left, unit_seconds)
        if whole or (unit == "s" and not parts):
            parts.append(f"{whole} {unit}")
        elif parts:
            break
        if len(parts) == 2:
            break
    return " ".join(parts)


def size(value: float | None) -> str:
    """Bytes: "71.8 GiB"."""
    if value is None or not isfinite(value):
        return NOTHING
    scale, unit = next(((scale, unit) for scale, unit in _BYTE_UNITS if abs(value) >= scale), (1, "B"))
    return f"{_three_digits(value / scale)} {unit}"


# --- counts and changes in tables, where the decimals of a column line up ----------------------------------------


def percent(value: float | None, digits: int = 1) -> str:
    """0.123 -> "12.3 %", with a real minus sign and always `digits` decimals. What rounds to zero has no sign."""
    if value is None or not isfinite(100 * value):
        return NOTHING
    rounded = round(100 * value, digits) or 0.0
    return f"{rounded:.{digits}f} %".replace("-", "−")


def signed_percent(value: float | None) -> str:
    """0.08 -> "+8.0 %"; "0.0 %" for what rounds to zero."""
    text = percent(value)
    return f"+{text}" if text.strip("0. %") and text[0] not in (NOTHING, "−") else text


def amount(value: float | None) -> str:
    """A large count as bills write it: "1.23 B", "456 M", "7,890"."""
    if value is None or not isfinite(value):
        return NOTHING
    magnitude = abs(value)
    if magnitude < 99_950:
        return f"{value:,.0f}" if magnitude >= 100 or value == int(value) else f"{value:.3g}"
    scale, letter = next((scale, letter) for scale, letter in _BILL_PREFIXES if magnitude >= 0.9995 * scale)
    scaled = float(f"{value / scale:.3g}")  # 0.9996 has the digits of 1
    return f"{scaled:.{max(0, 2 - floor(log10(abs(scaled))))}f} {letter}"


def amount_of(value: float | None, noun: str) -> str:
    """`amount` with what is counted: "1 request", "1.23 B tokens"."""
    return f"{amount(value)} {noun if value == 1 else noun + 's'}"


def hours(value: float | None) -> str:
    """Hours without their unit: "1,234", or "12.3" below a hundred."""
    if value is None or not isfinite(value):
        return NOTHING
    return f"{value:,.0f}" if abs(value) >= 99.95 else f"{value:.1f}"


# --- money -------------------------------------------------------------------------------------------------------


def usd(value: float | None) -> str:
    """1234.5 -> "$1,234"; below 100 with cents, below a dollar with three digits. A minus is a real minus sign."""
    if value is None or not isfinite(value):
        return NOTHING
    return ("−" if value < 0 and _usd_magnitude(-value) != "$0.00" else "") + _usd_magnitude(abs(value))


def usd_plain(value: float | None) -> str:
    """Like `usd`, without the dollar sign: for columns whose heading has the unit."""
    return usd(value).replace("$", "")


def usd_to_the_cent(value: float | None) -> str:
    """A price or a bill that a reader compares with another: "$1,234.50"; below ten cents three significant digits, "$0.000119"."""
    if value is None or not isfinite(value):
        return NOTHING
    return f"${value:,.2f}" if value == 0 or abs(value) >= 0.1 else f"${_three_decimal_digits(value)}"


def signed_usd_to_the_cent(value: float | None) -> str:
    """A part of a sum that a reader adds up: "+$1,084.12", "−$0.07"."""
    if value is None or not isfinite(value):
        return NOTHING
    text = f"${abs(value):,.2f}"
    sign = "" if text == "$0.00" else "+" if value > 0 else "−"
    return f"{sign}{text}"


def usd_four_digits(value: float) -> str:
    """Four significant digits without the dollar sign, whole dollars from a thousand on: for computed prices that differ by little."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


def _usd_magnitude(value: float) -> str:
    if value >= 99.995:
        return f"${value:,.0f}"
    if value >= 0.995 or value == 0:
        return f"${value:.2f}"
    if value >= 0.0095:
        return f"${value:.3f}"
    if value < _ZERO_BELOW_USD:
        return "$0.00"
    places = min(12, 2 - floor(log10(value)))
    return f"${value:.{places}f}"


# --- digits ------------------------------------------------------------------------------------------------------


def _three_digits(value: float) -> str:
    """Three significant digits, whole numbers from 100 on, no trailing zeros after the point."""
    if value == 0:
        return "0"
    places = min(6, max(0, 2 - floor(log10(abs(value)))))
    text = f"{value:.{places}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _three_decimal_digits(value: float) -> str:
    """Three significant digits of a value below 1, never with an exponent."""
    places = min(15, 2 - floor(log10(abs(value))))
    return f"{value:.{places}f}".rstrip("0")


# --- Values -> JSON that every reader takes: it has no NaN and no infinity, null stands for them.


def write_json(value: Any, *, ascii_only: bool = True) -> str:
    """The text of a document of mappings, sequences and plain values, with two spaces a level."""
    return json.dumps(_replace_impossible(value), indent=2, ensure_ascii=ascii_only, allow_nan=False)


def _replace_impossible(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _replace_impossible(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_replace_impossible(item) for item in value]
    return None if isinstance(value, float) and not isfinite(value) else value


# --- A latency in words, for the landing page and `once`: no more digits than buckets and number of events bear.


def write_quantile(found: Latency | None, q: float) -> str:
    """One quantile: "31.2 ms", "at least 60 s", "at most 10 ms"; "300 ms to 500 ms" where all lie there; a dash for too few events."""
    quantile = found.quantiles.get(q) if found is not None else None
    if found is None or quantile is None or not has_enough_events(found.events, q):
        return NOTHING
    if found.bucket is not None:
        return " to ".join(map(seconds, found.bucket))
    return f"{CLIPPED.get(quantile.clipped, '')}{seconds(quantile.value)}"


def describe_latency(found: Latency | None) -> str:
    """All of it: "p50 16.7 ms, p99 114 ms (mean 20.2 ms, 7593 events)"; the mean first where the quantiles say little beside it.

    Of quantiles below the first edge the highest says it for all, of those above the top edge the lowest.
    """
    if found is None:
        return NOTHING
    mean, events = f"mean {seconds(found.mean_seconds)}", f"{count(found.events)} event{'s' * (found.events != 1)}"
    shown = {q: one for q, one in found.quantiles.items() if has_enough_events(found.events, q)}
    if not shown:
        return f"{mean} ({events})"
    ends = " to ".join(dict.fromkeys(_name(q) for q in (min(shown), max(shown))))
    kinds = {one.clipped for one in shown.values()}
    if found.bucket is not None:
        return f"{mean}, {ends} between {' and '.join(map(seconds, found.bucket))} ({events})"
    if kinds in ({"bottom"}, {"top"}):
        return f"{mean}, {ends} {write_quantile(found, min(shown))} ({events})"
    below = [q for q, one in shown.items() if one.clipped == "bottom"]
    above = [q for q, one in shown.items() if one.clipped == "top"]
    implied = {*below[:-1], *above[1:]}
    quantiles = ", ".join(f"{_name(q)} {write_quantile(found, q)}" for q in shown if q not in implied)
    return f"{quantiles} ({mean}, {events})"


def _name(q: float) -> str:
    return f"p{100 * q:g}"


# --- The price in force for a target, in words: one wording for the landing page and for `once`.


BEFORE_COMMITMENTS = ", before commitments"


def describe_price(reading: TargetReading, found: TargetCost) -> str | None:
    """`2 GPUs x share 0.5 at $2.49 an hour (rate reserved)`; None where no price is in force, or the GPUs are not known."""
    price, gpus = found.price, reading.gpus.total
    if price is None or gpus is None:
        return None
    by = " by the memory that its processes hold" if reading.gpus.shares_by_memory else ""
    share = "" if reading.gpu_share in (None, 1.0) else f" x share {reading.gpu_share:.3g}{by}"
    before = BEFORE_COMMITMENTS if price.before_commitments else ""
    count = f"{count_nouns(gpus.count, 'GPU')}{share}"
    return f"{count} at {usd_to_the_cent(price.usd_per_gpu_hour)} an hour (rate {price.rate.name}{before})"


def describe_split(found: TargetCost) -> str:
    """How busy time is divided between prefill and decode, or that it is not, as where the model's facts are not known."""
    usd = {phase.value: 0.0 for phase in CostPhase}
    for one in found.engines:
        for (phase, _rate, _method), amount in one.totals.usd.items():
            usd[phase] = usd.get(phase, 0.0) + amount
    split = usd[CostPhase.PREFILL.value] + usd[CostPhase.DECODE.value]
    if not split and usd[CostPhase.UNATTRIBUTED.value]:
        return f"busy time is not split: what the method {found.method.value} needs is not known"
    return f"busy time split by {found.method.value}"
