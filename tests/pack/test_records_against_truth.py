"""Recorded throughput, hit rate and latency quantiles against what a simulated fleet counted itself, within 2 %."""

from bisect import bisect_left
from itertools import accumulate
from pathlib import Path

import pytest

from llm_serving_simulator.fleet.books import Truth
from llm_serving_simulator.fleet.fleet import Fleet, ReplicaSpec
from llm_serving_simulator.fleet.history import Watch
from llm_serving_simulator.fleet.scenario import Slo
from llm_serving_simulator.fleet.spec import EngineSpec
from llm_serving_simulator.fleet.workload import Lengths, Mix, PoissonWorkload, Prefixes, Profile
from tests.pack.simulated import Shown, groups, input_series, judge, keep, keep_start, read_by

pytestmark = pytest.mark.e2e

RULES = groups("targets", "traffic", "latency", "kv", "slo")
MINUTE, EVERY, END = 60.0, 30.0, 36
MODEL = 'model_name="meta-llama/Llama-3.1-8B-Instruct",role="unified"'
SLO_SECONDS = 0.1  # an edge of vLLM's
STARTED_UNIX_SECONDS = -3600.0


@pytest.fixture(scope="module")
def told() -> tuple[Fleet, Shown]:
    """Three busy replicas with shared prefixes, read every 30 s. They started an hour before promtool's first second."""
    engine = EngineSpec(max_num_seqs=16, context_limit_tokens=8192)
    replicas = [ReplicaSpec(f"replica-{number}", (f"node-{number}",), engine) for number in range(3)]
    mix = Mix(Lengths(700, 0.8, most=4000), Lengths(160, 0.5, most=1000), Prefixes(0.5, 8, 900))
    fleet = Fleet(replicas, PoissonWorkload(Profile(8.0), [mix], 7), epoch_unix_seconds=STARTED_UNIX_SECONDS)
    watch = Watch(fleet, interval_seconds=EVERY, wanted=read_by(RULES), slo=Slo(ttft=SLO_SECONDS))
    shown: Shown = {}
    for number in range(int(END * MINUTE / EVERY) + 1):
        fleet.advance(number * EVERY)
        keep(shown, number, watch.samples())
        keep_start(shown, number, replicas, STARTED_UNIX_SECONDS)
    return fleet, shown


def within(expression: str, truth: float) -> dict[str, object]:
    """Holds where the expression is within 2 % of the truth; a series that is not there does not hold."""
    text = f"sum(abs({expression} / {truth:.12g} - 1) < bool 0.02)"
    return {"expr": text, "eval_time": f"{END}m", "exp_samples": [{"labels": "{}", "value": 1}]}


def quantile_of_buckets(samples: tuple[float, ...], edges: tuple[float, ...], quantile: float) -> float:
    """As Prometheus documents histogram_quantile: linear inside the bucket that holds the rank."""
    counts = [0] * (len(edges) + 1)
    for sample in samples:
        counts[bisect_left(edges, sample)] += 1
    below = [0, *accumulate(counts)]
    rank = quantile * len(samples)
    bucket = bisect_left(below, rank, lo=1) - 1
    low = edges[bucket - 1] if bucket else 0.0
    return low + (edges[bucket] - low) * (rank - below[bucket]) / counts[bucket]


def test_what_is_recorded_is_what_was_counted(told: tuple[Fleet, Shown], tmp_path: Path) -> None:
    fleet, shown = told

    def truth(minutes: int) -> Truth:
        return fleet.truth((END - minutes) * MINUTE, END * MINUTE)

    ten, half_hour = truth(10), truth(30)
    seconds = ten.end_seconds - ten.begin_seconds
    assert seconds == 600
    edges = fleet.replica("replica-0").spec.engine.edges.ttft
    # two disjoint ranges of 5m are the last ten minutes
    rate = "(model:llm_serving_{name}:rate5m{{{of}}} + model:llm_serving_{name}:rate5m{{{of}}} offset 5m) / 2"
    quantile = 'model:llm_serving_time_to_first_token_seconds:quantile_rate10m{{{of},rank="p{rank}"}}'
    expected = [
        within(rate.format(name="phase_tokens", of=f'{MODEL},phase="decode"'), ten.decode_tokens / seconds),
        within(rate.format(name="phase_tokens", of=f'{MODEL},phase="prefill"'), ten.prefill_tokens / seconds),
        within(rate.format(name="prompt_tokens", of=MODEL), ten.counts.prompt_tokens / seconds),
        within(rate.format(name="cached_prompt_tokens", of=MODEL), ten.counts.prompt_hit_tokens / seconds),
        within(
            "sum without (reason) ("
            + rate.format(name="requests_finished", of=MODEL).removesuffix(" / 2")
            + ") / 2",
            ten.counts.finished / seconds,
        ),
        within(
            f"model:llm_serving_prefix_cache_hit:ratio_increase30m{{{MODEL}}}",
            half_hour.counts.hit_tokens / half_hour.counts.queried_tokens,
        ),
        within(
            f'model:llm_serving_slo_events:increase30m{{{MODEL},slo="ttft"}}', len(half_hour.ttft_seconds)
        ),
        *(
            within(quantile.format(of=MODEL, rank=rank), quantile_of_buckets(ten.ttft_seconds, edges, rank / 100))
            for rank in (50, 90, 95, 99)
        ),
    ]  # fmt: skip
    # a fleet at work, with a cache that finds something
    assert ten.counts.finished > 4000
    assert 0.1 < half_hour.counts.hit_tokens / half_hour.counts.queried_tokens < 0.9
    said = judge(tmp_path, RULES, list(input_series(shown)), expected, every="30s")
    assert not said


def test_a_wrong_truth_is_seen(told: tuple[Fleet, Shown], tmp_path: Path) -> None:
    fleet, shown = told
    ten = fleet.truth((END - 10) * MINUTE, END * MINUTE)
    record = f'model:llm_serving_phase_tokens:rate5m{{{MODEL},phase="decode"}}'
    said = judge(
        tmp_path, RULES, list(input_series(shown)), [within(record, ten.decode_tokens / 600 * 1.5)], every="30s"
    )
    assert "FAILED" in said
