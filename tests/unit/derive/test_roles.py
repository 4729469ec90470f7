"""Which signals mean what on a replica that does one phase only, and on a front end (facts runtimes-others 18)."""

import pytest

from llm_serving_exporter.derive.derive import DeriveSettings, derive
from llm_serving_exporter.derive.lengths import follow_lengths
from llm_serving_exporter.model.derived import Derived
from llm_serving_exporter.model.hardware import Hardware, Parallel
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.snapshot import Absence, Snapshot
from llm_serving_exporter.model.target import Role
from llm_serving_exporter.model.window import Window
from tests.support.builders.windows import MINUTE, engine
from tests.support.models.roofs import H100, LLAMA_8B, served
from tests.support.rows import check_rows

MODEL = served(LLAMA_8B)
PREFILLS = {"phase_ceiling_tokens_per_second_prefill"}
DECODES = {
    "decode_ceiling_tokens_per_second", "decode_ceiling_ratio", "batch_ridge_size", "phase_ceiling_tokens_per_second_decode",
}  # fmt: skip


def derived(role: Role) -> Derived:
    # a context that is short enough for decode to have a ridge
    first = engine(decoded=0, steps=0, prompts=0, prefill=0, kv_cache_usage_ratio=0.002, kv_cache_capacity_tokens=1e5,
                   prefix_cache_queries=0.0, prefix_cache_hits=0.0)  # fmt: skip
    last = engine(decoded=6000, steps=1000, prompts=60, prefill=6000, finished=600, prompt=100, output=100, kv_cache_usage_ratio=0.002,
                  kv_cache_capacity_tokens=1e5, prefix_cache_queries=60_000.0, prefix_cache_hits=59_000.0)  # fmt: skip
    snapshots = tuple(Snapshot((one,), "any", at, at) for one, at in ((first, 0.0), (last, MINUTE)))
    settings = DeriveSettings(
        {"ttft": 2.0, "itl": 0.1, "e2e": 10.0}, hardware=Hardware(H100, Parallel(), 1.0), models={"m": MODEL}, role=role,
        lengths=follow_lengths({}, snapshots[-1]),
    )  # fmt: skip
    return derive(Window(snapshots), settings, None)


@check_rows(
    ("role", "silent"),
    [
        (Role.UNIFIED, set()),
        (Role.PREFILL, {*DECODES, "slo_ttft", "slo_itl", "slo_e2e"}),
        (Role.DECODE, {*PREFILLS, "slo_ttft", "slo_e2e", "prefix_cache_hit_ratio"}),
        (
            Role.FRONTEND,
            {
                *PREFILLS, *DECODES, "bandwidth_ceiling_bytes_per_second", "bandwidth_ceiling_ratio_model", "bandwidth_ceiling_ratio_gpm",
                "bandwidth_ceiling_ratio_dcgm", "bandwidth_ceiling_ratio_runtime", "compute_ceiling_ratio", "phase_busy_ratio",
                "phase_busy_seconds_total", "phase_tokens_per_second_per_gpu", "phase_reference_seconds_per_token", "limiter",
                "gpu_memory_bytes_estimate", "batch_size_mean", "batch_utilization_ratio", "batch_limit_requests", "requests_running",
                "kv_cache_usage_ratio", "kv_cache_capacity_tokens", "kv_cache_used_tokens", "context_tokens_mean",
                "long_context_kv_share_ratio", "long_context_requests_fit",
            },
        ),
    ],
)  # fmt: skip
def test_what_a_role_does_not_have_is_absent_with_that_reason(role: Role, silent: set[str]) -> None:
    others = {signal for signal, why in derived(role).signals.items() if why is Absence.OTHER_ROLE}
    assert others == silent


def test_decode_of_a_prefill_replica_is_not_held_against_the_bandwidth_ceiling() -> None:
    unified, prefill = derived(Role.UNIFIED).engines[0].roofline, derived(Role.PREFILL).engines[0].roofline
    of_decode = (
        "decode_ceiling",
        "decode_ceiling_upper",
        "decode_ratio",
        "batch_ridge",
        "weights_ridge",
        "step_floor_seconds",
        "ridge_flops_per_byte",
    )
    for field in of_decode:
        assert getattr(unified, field) is not None, field
    # its compute and its memory traffic are its own
    own = {"prefill": unified.phase_ceiling["prefill"]}
    assert prefill == replace(unified, **dict.fromkeys(of_decode), phase_ceiling=own)


def test_what_a_replica_could_do_is_said_of_its_own_phase_only() -> None:
    both = derived(Role.UNIFIED).engines[0].roofline.phase_ceiling
    assert set(both) == {"prefill", "decode"}
    assert derived(Role.PREFILL).engines[0].roofline.phase_ceiling == {"prefill": both["prefill"]}
    assert derived(Role.DECODE).engines[0].roofline.phase_ceiling == {"decode": both["decode"]}
    assert derived(Role.FRONTEND).engines[0].roofline.phase_ceiling == {}


def test_the_users_first_token_is_counted_by_nobody_but_the_front_end_or_a_unified_replica() -> None:
    assert set(derived(Role.UNIFIED).engines[0].slo) == {"ttft", "itl"}
    assert set(derived(Role.PREFILL).engines[0].slo) == set()
    assert set(derived(Role.DECODE).engines[0].slo) == {"itl"}
    assert set(derived(Role.FRONTEND).engines[0].slo) == {"ttft", "itl"}


def test_hits_of_a_decode_replica_say_nothing_about_its_prefix_cache() -> None:
    assert derived(Role.UNIFIED).engines[0].prefix_cache_hit_ratio == pytest.approx(59 / 60)
    assert derived(Role.DECODE).engines[0].prefix_cache_hit_ratio is None


def test_a_front_end_has_no_roofline_and_no_verdict() -> None:
    found = derived(Role.FRONTEND)
    assert found.verdict is None
    assert found.engines[0].roofline.ratio == {}
    assert found.engines[0].busy is None
    assert found.engines[0].phase_tokens_per_second["decode"] == pytest.approx(6060 / MINUTE)


def test_a_front_end_has_lengths_but_no_cache_that_they_fill() -> None:
    unified, front = derived(Role.UNIFIED).engines[0].tail, derived(Role.FRONTEND).engines[0].tail
    assert unified.observed == 600
    assert unified.kv_share_ratio is not None
    assert unified.requests_fit["lower"] == pytest.approx(1e5 / (101 + 100))  # the upper edge of its bucket
    assert front == replace(unified, kv_share_ratio=None, requests_fit={})


@pytest.mark.parametrize("role", [Role.PREFILL, Role.DECODE])
def test_a_replica_of_one_phase_holds_the_whole_context(role: Role) -> None:
    assert derived(role).engines[0].tail == derived(Role.UNIFIED).engines[0].tail
