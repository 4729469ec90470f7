"""A latency in words, for the landing page and `once`: no more digits than buckets and number of events bear."""

from __future__ import annotations

from llm_serving_exporter.model.derived import Latency
from llm_serving_exporter.model.numbers import has_enough_events
from llm_serving_exporter.render.numbers import CLIPPED, NOTHING, count, seconds


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
