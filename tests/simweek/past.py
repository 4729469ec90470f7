"""A week before, of what the rules of baselines read: as each fleet usually does."""

from __future__ import annotations

from collections.abc import Iterator

from llm_serving_exporter.model.record import replace
from llm_serving_simulator.fleet.history import MINUTE, Usual, past_samples
from llm_serving_simulator.fleet.workload import DAY_SECONDS, Profile

_WEEK = 7 * DAY_SECONDS
USD_PER_GPU_HOUR = 2.4


def past_of(known: Usual, rate: Profile, skipped_seconds: float, begin_unix_seconds: float) -> Iterator[str]:
    """Lines for VictoriaMetrics, a sample a minute, up to that moment, which is `skipped_seconds` before the scenario begins."""
    quiet = replace(rate, steps=(), bursts=())
    for ago in range(int(_WEEK / MINUTE), 0, -1):
        stamp = f"{(begin_unix_seconds - ago * MINUTE) * 1000:.0f}"
        at = -skipped_seconds - ago * MINUTE
        for series, value in (*past_samples(known, quiet, at), *_spent(known, quiet, at)):
            yield f"{series} {value:.9g} {stamp}\n"


def _spent(known: Usual, rate: Profile, at: float) -> Iterator[tuple[str, float]]:
    """What its GPUs cost in an hour, all of it, and what a million tokens did."""
    model = f'model_name="{known.model_name}",role="unified"'
    usd = USD_PER_GPU_HOUR * known.replicas
    yield f'model:llm_serving_cost_usd:increase1h{{{model},phase="decode"}}', usd
    million = usd / (rate.requests_per_second(at) * known.tokens_per_request * 3600) * 1e6
    yield f"model:llm_serving_cost_usd_per_million_tokens:ratio6h_compared{{{model}}}", million
