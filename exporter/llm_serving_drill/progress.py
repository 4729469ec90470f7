"""What a reading means in words: bounds that are reached, and lines of progress."""

from __future__ import annotations

from llm_serving_drill.course import Bounds, Phase, Reading
from llm_serving_exporter.model.text import count_nouns
from llm_serving_exporter.render.numbers import NOTHING, count, seconds, share, span


def format_ttft(value: float | None, at_least: bool) -> str:
    """A p99; "at least" where it lies above the histogram's top finite edge."""
    return seconds(value) if value is None or not at_least else f"at least {seconds(value)}"


def find_bound_reached(reading: Reading, bounds: Bounds) -> str:
    """The bound on errors or latency that a reading is beyond, "" for none. What is not known is beyond nothing."""
    errors, p99 = reading.errors_ratio, reading.p99_ttft_seconds
    if bounds.errors_ratio is not None and errors is not None and errors > bounds.errors_ratio:
        return f"{share(errors)} of the requests failed, more than {share(bounds.errors_ratio)} (--max-errors-ratio)"
    if bounds.ttft_seconds is not None and p99 is not None and p99 > bounds.ttft_seconds:
        p99_words = format_ttft(p99, reading.ttft_at_least)
        return f"p99 time to first token is {p99_words}, more than {seconds(bounds.ttft_seconds)} (--max-ttft)"
    return ""


def find_excess_loss(before: Reading, reading: Reading, may_lose: int | None) -> str:
    """Why more is gone than was meant to go, "" where not or where that cannot be told."""
    if before.ready is None or reading.ready is None:
        return ""
    lost = before.ready - reading.ready
    if may_lose is not None and lost > may_lose:
        return f"{count_nouns(round(lost), 'replica is', 'replicas are')} gone, {count_nouns(may_lose, 'was', 'were')} meant to go"
    return ""


def format_progress(phase: Phase, reading: Reading | None, elapsed_seconds: float) -> str:
    """One line for a terminal."""
    if reading is None:
        return f"{span(elapsed_seconds):>12}  {phase.value}"
    wanted = "" if reading.desired is None else f" of {count(reading.desired)}"
    p99 = format_ttft(reading.p99_ttft_seconds, reading.ttft_at_least)
    kv = share(reading.kv_usage_ratio) if reading.kv_usage_ratio is not None else NOTHING
    return (
        f"{span(elapsed_seconds):>12}  {phase.value}: {count(reading.ready)}{wanted} ready, p99 TTFT {p99}, "
        f"queue {count(reading.waiting)}, KV {kv}"
    )
