"""Course -> the report: JSON for programs, Markdown for people. Pure: times are what Prometheus' clock said."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from llm_serving_drill.course import Baseline, Course, Reading, Sighting
from llm_serving_drill.plan import format_ttft
from llm_serving_drill.verdict import (
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
    counts, plan, forecast = course.counts, course.plan, course.forecast
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
        "plan": plan and {
            "node": plan.node, "may_lose_replicas": plan.may_lose, "alerts": list(plan.alerts), "refusals": list(plan.refusals),
        },
        "forecast": forecast and {
            **_reading(forecast.reading), "replicas_by_node": dict(forecast.replicas_by_node), "largest_node": forecast.largest_node,
        },
        "compared": [as_dict(row) for row in compare_forecast(course)],
        "baseline": course.baseline and as_dict(course.baseline),
        "before": course.before and _reading(course.before),
        "worst": as_dict(worst),
        "slo": {
            "objective": course.settings.objective, "ttft_good": counts.ttft_good, "ttft_bad": counts.ttft_bad,
            "ttft_bad_ratio": share_of_bad_ttft(course), "rejected": counts.rejected, "rejected_explained": rejected and rejected[1],
        },
        "alerts": [
            {**as_dict(paged.sighting), "arrival": paged.arrival.value, "due_unix_seconds": paged.due_unix_seconds}
            for paged in judge_alerts(course)
        ],
        "commands": [as_dict(run) for run in course.commands],
        # every second or third of a long course
        "readings": [_reading(each) for each in course.readings[:: max(1, -(-len(course.readings) // MOST_READINGS))]],
    }  # fmt: skip


def _seconds_after(moment: float | None, lost: float | None) -> float | None:
    return None if moment is None or lost is None else moment - lost


def _reading(reading: Reading) -> dict[str, Any]:
    return {name: value for name, value in as_dict(reading).items() if value is not None and value != {}}


def as_markdown(course: Course) -> str:
    """For people."""
    return "\n".join(_lines(course)) + "\n"


def _lines(course: Course) -> Iterator[str]:
    judged = judge(course)
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
    watched, plan = course.settings.watch, course.plan
    node = f", meant for node {_format_text(plan.node)}" if plan and plan.node and not watched else ""
    return f"From {begin} to {end} ({lasted}); {'watched' if watched else 'triggered'}{node}."


def _measured(course: Course) -> Iterator[str]:
    back, worst, lost = find_recovery(course), find_extremes(course), course.lost_unix_seconds
    before, counts, rejected = course.before, course.counts, count_rejections(course)
    # without one everything of it is absent
    baseline = course.baseline or Baseline(0.0)
    assert before is not None
    queue = f"{count(baseline.waiting_mean)}, at most {count(baseline.waiting_max)}"
    yield from _table(
        "What happened", ("", "before", "worst after the loss"),
        (
            ("ready replicas", count(before.ready), count(worst.ready_min)),
            (
                "p99 time to first token", format_ttft(baseline.p99_ttft_seconds, baseline.p99_at_least),
                format_ttft(worst.p99_ttft_seconds, worst.p99_at_least),
            ),
            ("queue, requests", queue if baseline.waiting_max is not None else NOTHING, count(worst.waiting_max)),
            ("KV cache in use, fullest engine", share(baseline.kv_usage_ratio), share(worst.kv_usage_ratio)),
            ("failed requests", share(baseline.errors_ratio), share(worst.errors_ratio)),
            *(
                (f"{phase} tokens/s", number(rate), _least(course, phase))
                for phase, rate in sorted(baseline.tokens_per_second.items())
            ),
        ),
    )  # fmt: skip
    bad, total = share_of_bad_ttft(course), (counts.ttft_good or 0.0) + (counts.ttft_bad or 0.0)
    usual = count(None if baseline.rejected is None else round(baseline.rejected))
    most = count(None if rejected is None else round(rejected[1], 1))
    yield from _table(
        "What it came to", ("", "measured", "allowed"),
        (
            (
                "times to first token over the threshold", "none counted" if bad is None else f"{share(bad)} of {count(round(total))}",
                share(round(1 - course.settings.objective, 9)),
            ),
            ("rejected requests", count(None if rejected is None else round(rejected[0])), f"{most} ({usual} in the baseline)"),
            (
                "replicas back after", span(_seconds_after(back.replicas_unix_seconds, lost)),
                span(course.settings.bounds.duration_seconds),
            ),
            ("queue back after", span(_seconds_after(back.queue_unix_seconds, lost)), ""),
        ),
    )  # fmt: skip


def _least(course: Course, phase: str) -> str:
    rates = [reading.tokens_per_second.get(phase) for reading in readings_since_loss(course)]
    return number(min((rate for rate in rates if rate is not None), default=None))


def _forecast(course: Course) -> Iterator[str]:
    rows = compare_forecast(course)
    if not rows:
        return
    head = ("resource", "demand of the hour before", "capacity without the largest node", "forecast", "reached")
    cells = [
        (row.resource, number(row.demand), number(row.capacity), share(row.forecast), share(row.reached))
        for row in rows
    ]
    yield from _table("Forecast for the survivors, and what they did", head, cells)
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

    rows = [
        (
            paged.name, paged.sighting.severity or NOTHING, format_after(paged.sighting.firing_unix_seconds),
            format_received(paged.sighting), format_after(paged.due_unix_seconds), paged.arrival.value,
        )
        for paged in alerts
    ]  # fmt: skip
    if rows:
        head = ("alert", "severity", "fired", "Alertmanager had it, for", "due by", "")
        yield from _table("Who was told, counted from the loss", head, rows)


def _commands(course: Course) -> Iterator[str]:
    for run in course.commands:
        yield ""
        yield f"## Command: {run.what}"
        yield ""
        yield f"{_format_time(run.began_unix_seconds)}, {span(run.took_seconds)}, {run.problem or f'exit status {run.status}'}"
        yield ""
        # indented, so that no output can end the block
        for line in (f"$ {run.command}", *run.output.splitlines()):
            # with its columns, without what would colour or clear a terminal
            yield f"    {blank_unprintable(line.expandtabs())}"


def _listed(title: str, sentences: Sequence[str]) -> Iterator[str]:
    if sentences:
        yield from ("", f"{title}:", "")
        yield from (f"- {_format_text(sentence)}" for sentence in sentences)


def _table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    first, *lines = ("| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |" for cells in (head, *rows))
    yield from ("", f"## {title}", "", first, "|" + "---|" * len(head), *lines)


def _format_text(text: str | None) -> str:
    return on_one_line(text or NOTHING)


def _format_time(unix_seconds: float) -> str:
    return datetime.fromtimestamp(unix_seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
