"""Course -> the report: JSON for programs, Markdown for people. Pure: times are what Prometheus' clock said."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from llm_serving_drill.course import Course, Reading, Sighting
from llm_serving_drill.plan import format_ttft
from llm_serving_drill.verdict import (
    Judged,
    Paged,
    compare_forecast,
    count_rejections,
    find_extremes,
    find_recovery,
    judge,
    judge_alerts,
    readings_since_loss,
    share_of_bad_ttft,
)
from llm_serving_exporter.model.record import as_dict
from llm_serving_exporter.model.text import blank_unprintable, on_one_line
from llm_serving_exporter.render.numbers import NOTHING, count, number, share, span

VERSION = 1
# of the course; a longer one is thinned out
MOST_READINGS = 1000


def as_document(course: Course) -> dict[str, Any]:
    """For programs: base units, null where absent, times in Unix seconds."""
    judged, back, worst = judge(course), find_recovery(course), find_extremes(course)
    lost, rejected = course.lost_unix_seconds, count_rejections(course)
    baseline, plan = course.baseline, course.plan
    return {
        "version": VERSION,
        "model_name": course.scope.model_name,
        "role": course.scope.role,
        "labels": dict(course.scope.labels),
        "verdict": judged.verdict.value,
        "reasons": list(judged.reasons),
        "remarks": list(judged.remarks),
        "notes": [*(plan.notes if plan else ()), *course.notes],
        "forced": course.settings.force and bool(plan and plan.refusals),
        "phase": course.phase.value,
        "window": {"start": course.start_unix_seconds, "end": course.end_unix_seconds or None},
        "lost_unix_seconds": lost,
        "replicas_back_seconds": _seconds_after(back.replicas_unix_seconds, lost),
        "queue_back_seconds": _seconds_after(back.queue_unix_seconds, lost),
        "recovered_seconds": _seconds_after(back.recovered_unix_seconds, lost),
        "settings": as_dict(course.settings),
        "plan": None
        if plan is None
        else {
            "node": plan.node,
            "may_lose_replicas": plan.may_lose,
            "alerts": list(plan.alerts),
            "refusals": list(plan.refusals),
        },
        "forecast": None
        if course.forecast is None
        else {
            **_reading(course.forecast.reading),
            "replicas_by_node": dict(course.forecast.replicas_by_node),
            "largest_node": course.forecast.largest_node,
        },
        "compared": [as_dict(row) for row in compare_forecast(course)],
        "baseline": None if baseline is None else as_dict(baseline),
        "before": None if course.before is None else _reading(course.before),
        "worst": as_dict(worst),
        "slo": {
            "objective": course.settings.objective,
            "ttft_good": course.counts.ttft_good,
            "ttft_bad": course.counts.ttft_bad,
            "ttft_bad_ratio": share_of_bad_ttft(course),
            "rejected": course.counts.rejected,
            "rejected_explained": None if rejected is None else rejected[1],
        },
        "alerts": [_alert(each) for each in judge_alerts(course)],
        "commands": [as_dict(run) for run in course.commands],
        "readings": [_reading(each) for each in _thinned(course.readings)],
    }


def _seconds_after(moment: float | None, lost: float | None) -> float | None:
    return None if moment is None or lost is None else moment - lost


def _alert(paged: Paged) -> dict[str, Any]:
    return {**as_dict(paged.sighting), "arrival": paged.arrival.value, "due_unix_seconds": paged.due_unix_seconds}


def _reading(reading: Reading) -> dict[str, Any]:
    return {name: value for name, value in as_dict(reading).items() if value is not None and value != {}}


def _thinned(readings: Sequence[Reading]) -> Sequence[Reading]:
    return readings[:: -(-len(readings) // MOST_READINGS)] if readings else ()


def as_markdown(course: Course) -> str:
    """For people."""
    return "\n".join(_lines(course, judge(course))) + "\n"


def _lines(course: Course, judged: Judged) -> Iterator[str]:
    labels = "".join(f", {name} {_format_text(value)}" for name, value in course.scope.labels)
    yield f"# Node-loss drill of {_format_text(course.scope.model_name)} ({course.scope.role}{labels}): {judged.verdict.value}"
    yield ""
    yield _window(course)
    yield from _listed("Why", judged.reasons)
    yield from _listed("To know", (*judged.remarks, *(course.plan.notes if course.plan else ()), *course.notes))
    if course.before is not None and course.lost_unix_seconds is not None:
        yield from _measured(course)
    yield from _forecast(course)
    yield from _alerts(course)
    yield from _commands(course)


def _window(course: Course) -> str:
    if course.start_unix_seconds is None:
        return "It was not begun: nothing was lost."
    begin, end = _format_time(course.start_unix_seconds), _format_time(course.end_unix_seconds)
    lasted = span(course.end_unix_seconds - course.start_unix_seconds)
    how = "watched" if course.settings.watch else "triggered"
    node = (
        f", meant for node {_format_text(course.plan.node)}"
        if course.plan and course.plan.node and how == "triggered"
        else ""
    )
    return f"From {begin} to {end} ({lasted}); {how}{node}."


def _measured(course: Course) -> Iterator[str]:
    back, worst, lost = find_recovery(course), find_extremes(course), course.lost_unix_seconds
    baseline, before, counts = course.baseline, course.before, course.counts
    assert before is not None
    base_p99 = format_ttft(baseline.p99_ttft_seconds, baseline.p99_at_least) if baseline else NOTHING
    rejected = count_rejections(course)
    usual = (
        NOTHING
        if baseline is None
        else count(baseline.rejected if baseline.rejected is None else round(baseline.rejected))
    )
    yield from _table(
        "What happened",
        ("", "before", "worst after the loss"),
        (
            ("ready replicas", count(before.ready), count(worst.ready_min)),
            ("p99 time to first token", base_p99, format_ttft(worst.p99_ttft_seconds, worst.p99_at_least)),
            ("queue, requests", _queue(course), count(worst.waiting_max)),
            (
                "KV cache in use, fullest engine",
                share(baseline.kv_usage_ratio if baseline else None),
                share(worst.kv_usage_ratio),
            ),
            ("failed requests", share(baseline.errors_ratio if baseline else None), share(worst.errors_ratio)),
            *(
                (f"{phase} tokens/s", number(rate), _least(course, phase))
                for phase, rate in sorted(baseline.tokens_per_second.items() if baseline else ())
            ),
        ),
    )
    bad, total = share_of_bad_ttft(course), (counts.ttft_good or 0.0) + (counts.ttft_bad or 0.0)
    allowed = share(round(1 - course.settings.objective, 9))
    yield from _table(
        "What it came to",
        ("", "measured", "allowed"),
        (
            (
                "times to first token over the threshold",
                "none counted" if bad is None else f"{share(bad)} of {count(round(total))}",
                allowed,
            ),
            (
                "rejected requests",
                count(None if rejected is None else round(rejected[0])),
                f"{count(None if rejected is None else round(rejected[1], 1))} ({usual} in the baseline)",
            ),
            (
                "replicas back after",
                span(_seconds_after(back.replicas_unix_seconds, lost)),
                span(course.settings.bounds.duration_seconds),
            ),
            ("queue back after", span(_seconds_after(back.queue_unix_seconds, lost)), ""),
        ),
    )


def _queue(course: Course) -> str:
    baseline = course.baseline
    if baseline is None or baseline.waiting_max is None:
        return NOTHING
    return f"{count(baseline.waiting_mean)}, at most {count(baseline.waiting_max)}"


def _least(course: Course, phase: str) -> str:
    rates = [
        reading.tokens_per_second[phase]
        for reading in readings_since_loss(course)
        if phase in reading.tokens_per_second
    ]
    return number(min(rates, default=None))


def _forecast(course: Course) -> Iterator[str]:
    rows = compare_forecast(course)
    if not rows:
        return
    yield from _table(
        "Forecast for the survivors, and what they did",
        ("resource", "demand of the hour before", "capacity without the largest node", "forecast", "reached"),
        (
            (row.resource, number(row.demand), number(row.capacity), share(row.forecast), share(row.reached))
            for row in rows
        ),
    )
    if course.lost_unix_seconds is not None and all(row.reached is None for row in rows):
        yield ""
        yield (
            "What the survivors reached is not known: replicas were missing for less than "
            f"{span(course.settings.rate_window_seconds)}, the range of the recorded rates."
        )


def _alerts(course: Course) -> Iterator[str]:
    alerts, lost = judge_alerts(course), course.lost_unix_seconds

    def format_after(moment: float | None) -> str:
        return span(_seconds_after(moment, lost))

    def format_received(seen: Sighting) -> str:
        if not course.alertmanager:
            return "not asked"
        if seen.received_unix_seconds is None:
            return NOTHING
        how = " (silenced)" if seen.silenced else " (inhibited)" if seen.inhibited else ""
        return f"{format_after(seen.received_unix_seconds)}, {_format_text(', '.join(seen.receivers))}{how}"

    if alerts:
        yield from _table(
            "Who was told, counted from the loss",
            ("alert", "severity", "fired", "Alertmanager had it, for", "due by", ""),
            (
                (
                    paged.name,
                    paged.sighting.severity or NOTHING,
                    format_after(paged.sighting.firing_unix_seconds),
                    format_received(paged.sighting),
                    format_after(paged.due_unix_seconds),
                    paged.arrival.value,
                )
                for paged in alerts
            ),
        )


def _commands(course: Course) -> Iterator[str]:
    for run in course.commands:
        yield ""
        yield f"## Command: {run.what}"
        yield ""
        yield f"{_format_time(run.began_unix_seconds)}, {span(run.took_seconds)}, {run.problem or f'exit status {run.status}'}"
        yield ""
        # indented, so that no output can end the block
        yield from (f"    {_make_printable(line)}" for line in (f"$ {run.command}", *run.output.splitlines()))


def _make_printable(line: str) -> str:
    """A line of output with its columns, without what would colour or clear a terminal."""
    return blank_unprintable(line.expandtabs())


def _listed(title: str, sentences: Sequence[str]) -> Iterator[str]:
    if sentences:
        yield from ("", f"{title}:", "")
        yield from (f"- {_format_text(sentence)}" for sentence in sentences)


def _table(title: str, head: Sequence[str], rows: Iterator[Sequence[str]] | Sequence[Sequence[str]]) -> Iterator[str]:
    yield from ("", f"## {title}", "")
    yield _row(head)
    yield "|" + "---|" * len(head)
    yield from map(_row, rows)


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"


def _format_text(text: str | None) -> str:
    return on_one_line(text or NOTHING)


def _format_time(unix_seconds: float) -> str:
    return datetime.fromtimestamp(unix_seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
