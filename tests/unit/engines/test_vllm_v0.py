"""vLLM's V0 engine, up to 0.8: what it counts, and what only looks like it."""

from __future__ import annotations

from llm_serving_exporter.model.snapshot import Absence, Quality
from tests.support.builders.golden_cases import MADE
from tests.support.builders.snapshots import engine_of, snapshot_of

L = 'engine="0",model_name="m"'
V0_PAGE = (MADE / "vllm-0.6.6.prom").read_text()


def test_the_v0_engine_gives_what_it_counts() -> None:
    snapshot = snapshot_of(V0_PAGE, "0.6.6")
    (engine,) = snapshot.engines
    assert (engine.model_name, engine.engine) == ("tiny", "0")
    assert (engine.requests_running, engine.requests_waiting, engine.kv_cache_usage_ratio) == (5, 2, 0.35)
    assert engine.kv_cache_capacity_tokens == 1024 * 16
    assert (engine.decode_tokens_total, engine.preemptions_total, engine.engine_steps_total) == (20_000, 4, 4200)
    assert engine.inter_token_latency_seconds.count == 19_895
    assert engine.time_per_output_token_seconds is None
    assert engine.requests_finished_total == {"stop": 70, "length": 30}
    assert snapshot.unmapped_families == ()


def test_prompts_of_the_v0_engine_include_what_it_computed_again() -> None:
    known, unknown = snapshot_of(V0_PAGE, "0.6.6"), snapshot_of(V0_PAGE, None)
    assert known.engines[0].prompt_tokens_total == unknown.engines[0].prompt_tokens_total == 50_000
    assert known.quality["prompt_tokens_total"] is Quality.APPROXIMATE
    for later in ("0.8.0", "0.8.5", "0.9.2"):
        assert "prompt_tokens_total" not in snapshot_of(V0_PAGE, later).quality
    assert snapshot_of(V0_PAGE, "0.7.3").quality["prompt_tokens_total"] is Quality.APPROXIMATE


def test_a_hit_rate_without_its_counters_gives_no_prefix_tokens() -> None:
    # gpu_prefix_cache_hit_rate is a mean since the start; -1 = caching off
    snapshot = snapshot_of(V0_PAGE, "0.6.6")
    for field in ("prefix_cache_query_tokens_total", "prefix_cache_hit_tokens_total", "prefill_tokens_total"):
        assert getattr(snapshot.engines[0], field) is None
        assert snapshot.absent[field] is Absence.NOT_EXPORTED
    off = V0_PAGE.replace(
        'gpu_prefix_cache_hit_rate{model_name="tiny"} 0.25', 'gpu_prefix_cache_hit_rate{model_name="tiny"} -1.0'
    )
    off = off.replace('enable_prefix_caching="True"', 'enable_prefix_caching="False"')
    snapshot = snapshot_of(off, "0.6.6")
    assert snapshot.absent["prefix_cache_query_tokens_total"] is Absence.NOT_CONFIGURED
    assert snapshot.engines[0].prefill_tokens_total == 50_000


def test_speculation_counters_of_the_v0_engine_are_not_counts() -> None:
    # it adds the worker's running totals to them at each log interval
    for version, why in (("0.6.6", Absence.NOT_EXPORTED), (None, Absence.VERSION_UNKNOWN)):
        snapshot = snapshot_of(V0_PAGE, version)
        assert snapshot.engines[0].speculative_draft_tokens_total is None
        assert snapshot.absent["speculative_accepted_tokens_total"] is why
    v1 = f"""vllm:spec_decode_num_drafts_total{{{L}}} 10
vllm:spec_decode_num_draft_tokens_total{{{L}}} 30
vllm:spec_decode_num_accepted_tokens_total{{{L}}} 12
"""
    for known in ("0.8.5", "0.32.0", None):
        engine = engine_of(v1, known)
        assert (engine.speculative_draft_tokens_total, engine.speculative_accepted_tokens_total) == (30, 12)


def test_the_older_of_two_queue_times_is_read_only_without_the_newer() -> None:
    # 0.6.4 to 0.9.0 have both
    older = [line for line in V0_PAGE.splitlines() if "vllm:request_queue_time_seconds" not in line]
    queue = engine_of("\n".join(older) + "\n", "0.6.6").request_queue_time_seconds
    assert (queue.count, queue.sum) == (100, 20)
    both = V0_PAGE.replace(
        'vllm:time_in_queue_requests_sum{model_name="tiny"} 20.0',
        'vllm:time_in_queue_requests_sum{model_name="tiny"} 99.0',
    )
    queue = engine_of(both, "0.6.6").request_queue_time_seconds
    assert queue.sum == 20
