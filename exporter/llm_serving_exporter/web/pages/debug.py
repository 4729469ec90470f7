"""What an operator asks the exporter about itself: whether it is ready, and all that it knows about its targets, as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llm_serving_exporter.model.reading import TargetReading, View
from llm_serving_exporter.model.record import as_dict
from llm_serving_exporter.model.sample import Attempt
from llm_serving_exporter.model.target import Target
from llm_serving_exporter.render.numbers import write_json
from llm_serving_exporter.render.sentences import place_remedy, render_isolated, what_to_do, why_absent
from llm_serving_exporter.web.exchange import Response, plain

JSON = "application/json"
MOST_NAMES = 20


def answer_ready(view: View) -> Response:
    """200 once every configured target was tried at least once, with success or without, or there are none; otherwise 503 with their
    names."""
    missing = [reading.target.name for reading in view.targets if reading.page.attempts_total == 0]
    if not missing:
        return plain(200, "llm-serving-exporter is ready.")
    names = ", ".join(missing[:MOST_NAMES]) + (
        f" and {len(missing) - MOST_NAMES} more" if len(missing) > MOST_NAMES else ""
    )
    return plain(503, f"Not ready: {len(missing)} of {len(view.targets)} targets were not tried yet: {names}.")


def answer_debug_targets(view: View, effective: Mapping[str, Any]) -> Response:
    """Targets with attempts, problems and absent signals, GPUs, discovery and the effective configuration (which holds no secrets).

    Times are seconds since the epoch; null is absent.
    """
    document = {
        "targets": [_target_isolated(reading) for reading in view.targets],
        "gpus": _gpus(view),
        "discovery": {
            "problems": view.discovery_problems,
            "failures_total": view.discovery_failures_total,
            "targets_elsewhere": view.targets_elsewhere,
            "targets_left_out": view.targets_left_out,
        },
        "reload": {
            "ok": view.reload_ok,
            "last_good_unix_seconds": view.reload_unix_seconds,
            "config_sha256": view.config_hash,
        },
        "config": effective,
    }
    body = write_json(document, ascii_only=False)
    return Response(200, JSON, f"{body}\n".encode(errors="replace"))


def _attempt(attempt: Attempt | None, target: Target | None) -> dict[str, Any] | None:
    if attempt is None:
        return None
    advice = what_to_do(attempt.reason) if attempt.reason is not None else None
    if advice is not None and target is not None:
        advice = place_remedy(advice, target)
    return {**as_dict(attempt), "ok": attempt.ok, "what_to_do": advice}


def _target_isolated(reading: TargetReading) -> dict[str, Any]:
    name = reading.target.name
    return render_isolated(f"target {name}", lambda: _target(reading), lambda why: {"name": name, "problem": why})


def _target(reading: TargetReading) -> dict[str, Any]:
    snapshot, derived = reading.page.snapshot, reading.page.derived
    return {
        "name": reading.target.name,
        "url": reading.target.url,
        "identity": {**as_dict(reading.target.identity), "labels": dict(reading.target.identity.labels)},
        "nodes": reading.target.nodes,
        "pod": as_dict(reading.server.pod) if reading.server.pod is not None else None,
        "metrics_url": reading.server.metrics_url or None,
        "state": reading.server.state.value,
        "up": reading.page.up,
        "problem": reading.page.problem or None,
        "runtime": reading.server.runtime or None,
        "model_name": reading.server.model_name or None,
        "facts": as_dict(reading.server.facts),
        "start_unix_seconds": reading.server.start_unix_seconds,
        "restarts_total": reading.server.restarts_total,
        "attempts_total": reading.page.attempts_total,
        "failures_total": [
            {"stage": stage.value, "reason": reason.value, "count": count}
            for (stage, reason), count in sorted(reading.page.failures_total.items())
        ],
        "last_attempt": _attempt(reading.page.last, reading.target),
        "recent_failures": [_attempt(attempt, reading.target) for attempt in reversed(reading.page.recent_failures)],
        "last_page": None
        if snapshot is None
        else {
            "read_unix_seconds": snapshot.unix_seconds,
            "engines": [{"model_name": engine.model_name, "engine": engine.engine} for engine in snapshot.engines],
            "unmapped_families": snapshot.unmapped_families,
        },
        "window_seconds": derived.window_seconds if derived else None,
        "absent_signals": [
            {
                "signal": signal,
                "reason": reason.value,
                "why": place_remedy(
                    why_absent(signal, reason, reading.server.missing, reading.gpus.lacks), reading.target
                ),
            }
            for signal, reason in (derived.signals.items() if derived else ())
            if reason
        ],
        "quality": {signal: quality.value for signal, quality in derived.quality.items()} if derived else {},
        "implausible_total": reading.page.implausible_total,
        "left_out": [
            {"model_name": one.model_name, "engine": one.engine, "name": one.name, "what": one.what}
            for one in (*(snapshot.left_out if snapshot else ()), *(derived.left_out if derived else ()))
        ],
        "gpus": {"uuids": reading.gpus.uuids, "origin": reading.gpus.origin or None},
    }


def _gpus(view: View) -> dict[str, Any] | None:
    readings = view.gpus
    if readings is None:
        return None
    return {
        "source": readings.source,
        "driver_version": readings.driver_version,
        "last_attempt": _attempt(readings.attempt, None),
        "failures_total": {reason.value: count for reason, count in sorted(view.nvml_failures_total.items())},
        "gpus": [
            {
                "uuid": gpu.identity.uuid,
                "index": gpu.identity.index,
                "name": gpu.identity.name,
                "lost": gpu.lost,
                "absent": gpu.absent,
            }
            for gpu in readings.gpus
        ],
    }
