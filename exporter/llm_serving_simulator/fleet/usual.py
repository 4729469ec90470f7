"""What Prometheus would have recorded in the week before a scenario: the fleet's own calm, day after day.

A week of simulated requests would take minutes a scenario. So the fleet is run twice for a while, calm and overloaded, and what it really
did is taken for what it did all week, the traffic by the scenario's own hours and weekdays.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from llm_serving_exporter.model.numbers import add_up
from llm_serving_exporter.model.record import Struct, replace
from llm_serving_simulator.fleet.fleet import Fleet
from llm_serving_simulator.fleet.rate import DAY_SECONDS, Profile
from llm_serving_simulator.fleet.scenario import Scenario
from llm_serving_simulator.fleet.watch import Watch

MINUTE = 60.0
WEEK = 7 * DAY_SECONDS


class Spans(Struct, frozen=True):
    """For how many of its seconds the fleet is run, to see what it usually does."""

    calm: float = 2400.0  # under its own load
    overload: float = 1500.0  # under four times its highest
    settle: float = 600.0  # of each, before anything is counted


LONG, SHORT = Spans(), Spans(600.0, 400.0, 180.0)


class Usual(Struct, frozen=True):
    """What a fleet of one model does."""

    model_name: str  # as served
    gpu_name: str  # as on `target_gpus`
    hit_ratio: float | None  # of the prefix cache; None: nothing was looked up
    bandwidth_ratio: dict[str, float]  # share of the ceiling under the usual load, by source
    tokens_per_request: float  # prefill and decode
    work_waiting: float  # reference seconds per second of a replica under a queue
    best: dict[str, float]  # tokens per second of a replica under a queue, by phase
    replicas: int  # that there are
    wanted: int | None  # that are expected; None: nobody says


def usual(scenario: Scenario, spans: Spans = LONG) -> Usual:
    """Runs the fleet calm and overloaded, without any event."""
    quiet = replace(
        scenario, events=(), history=None, mixes=scenario.mixes[:1], rate=replace(scenario.rate, steps=(), bursts=())
    )
    calm, calm_watch = _run(quiet, spans.calm)
    full, full_watch = _run(replace(quiet, rate=Profile(quiet.rate.highest * 4)), spans.overload)
    told = calm.truth(spans.settle, spans.calm)
    heavy = full.truth(spans.settle, spans.overload)
    engine = scenario.replicas[0].engine
    labels = {(name, of.get("phase", of.get("source", ""))): (value, of) for name, of, value in full_watch.samples()}
    weight = {
        phase: labels["llm_serving_phase_reference_seconds_per_token", phase][0] for phase in ("prefill", "decode")
    }
    seconds = heavy.end_seconds - heavy.begin_seconds
    each = {
        "prefill": heavy.counts.prefill_pass_tokens / seconds / len(scenario.replicas),
        "decode": heavy.decode_tokens / seconds / len(scenario.replicas),
    }
    bandwidth = {
        of["source"]: value
        for name, of, value in calm_watch.samples()
        if name == "llm_serving_bandwidth_ceiling_ratio" and of["source"] in ("gpm", "model")
    }
    return Usual(
        model_name=engine.served_name,
        gpu_name=labels["llm_serving_target_gpus", ""][1]["gpu_name"],
        hit_ratio=told.counts.hit_tokens / told.counts.queried_tokens if told.counts.queried_tokens else None,
        bandwidth_ratio=bandwidth,
        tokens_per_request=(told.prefill_tokens + told.decode_tokens) / max(1, told.counts.finished),
        work_waiting=add_up(each[phase] * weight[phase] for phase in each),
        best=each,
        replicas=len(scenario.replicas),
        wanted=scenario.expected_replicas,
    )


def _run(scenario: Scenario, seconds: float) -> tuple[Fleet, Watch]:
    fleet = scenario.fleet()
    watch = Watch(fleet, interval_seconds=15.0, slo=scenario.slo, gpus=True)
    at = seconds - 120.0
    fleet.advance(at)
    while at <= seconds:
        fleet.advance(at)
        watch.read()
        at += 15.0
    return fleet, watch


def recorded(
    scenario: Scenario,
    known: Usual,
    speed: float,
    *,
    skipped_seconds: float = 0.0,
    usd_per_hour: float | None = None,
) -> str:
    """OpenMetrics text of what was recorded in the week before the scenario's beginning (or that many seconds later): a sample a simulated
    minute, `speed` times as close together, up to now by the real clock. `usd_per_hour`: what the fleet costs; None: nobody says."""
    now = time.time()
    lines = []
    rate = replace(scenario.rate, steps=(), bursts=())
    for ago in range(int(WEEK / MINUTE), 0, -1):
        at = -ago * MINUTE
        stamp = f"{now + at / speed:.3f}"
        lines += [f"{series} {value:.9g} {stamp}" for series, value in past_samples(known, rate, skipped_seconds + at)]
        if usd_per_hour is not None:
            lines.append(f"fleet:llm_serving_cost_usd:increase1h {usd_per_hour:.9g} {stamp}")
    return "\n".join([*sorted(lines, key=lambda line: line.rsplit(" ", 2)[0]), "# EOF", ""])


def past_samples(known: Usual, rate: Profile, at: float) -> Iterator[tuple[str, float]]:
    """Series of the recording rules that baselines read, with their values, at a second of the scenario (before it: below 0)."""
    model = f'model_name="{known.model_name}",role="unified"'
    kind = f'{model},gpu_name="{known.gpu_name}"'
    yield f"model:llm_serving_targets:count{{{model}}}", known.replicas
    if known.wanted is not None:
        yield f"model:llm_serving_desired_replicas:max{{{model}}}", known.wanted
    hour = add_up(rate.requests_per_second(at - 3600.0 * step / 6) for step in range(7)) / 7
    yield f"model:llm_serving_tokens:rate1h{{{model}}}", hour * known.tokens_per_request
    yield f"model:llm_serving_reference_work_per_replica:rate5m_waiting{{{model}}}", known.work_waiting
    for suffix in ("", "_waiting"):
        yield f"model_gpu:llm_serving_reference_work:max_rate5m{suffix}{{{kind}}}", known.work_waiting
        for phase, best in known.best.items():
            yield f'model_gpu:llm_serving_phase_tokens:max_rate5m{suffix}{{{kind},phase="{phase}"}}', best
    if known.hit_ratio is not None:
        yield f"model:llm_serving_prefix_cache_hit:ratio_increase30m{{{model}}}", known.hit_ratio
    for source, ratio in known.bandwidth_ratio.items():
        yield f'model_gpu:llm_serving_bandwidth_ceiling:ratio{{{kind},source="{source}"}}', ratio
