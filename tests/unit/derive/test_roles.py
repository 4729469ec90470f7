"""Which signals mean what on a replica that does one phase only, and on a front end (facts runtimes-others 18)."""

from __future__ import annotations

import pytest

from llm_serving_exporter.derive.derive import Settings, derive
from llm_serving_exporter.derive.roles import SILENT
from llm_serving_exporter.derive.roofline import Hardware
from llm_serving_exporter.model.derived import Derived
from llm_serving_exporter.model.hardware import Parallel
from llm_serving_exporter.model.snapshot import Absence, Snapshot
from llm_serving_exporter.model.target import Role
from llm_serving_exporter.model.window import Window
from tests.roofs import H100, LLAMA_8B, served
from tests.windows import MINUTE, engine

MODEL = served(LLAMA_8B)


def derived(role: Role) -> Derived:
    first = engine(decoded=0, steps=0, prompts=0, prefill=0, kv_cache_usage_ratio=0.1, kv_cache_capacity_tokens=1e5,
                   prefix_cache_queries=0.0, prefix_cache_hits=0.0)  # fmt: skip
    last = engine(decoded=6000, steps=1000, prompts=60, prefill=60_000, finished=60, prompt=1000, output=100, kv_cache_usage_ratio=0.1,
                  kv_cache_capacity_tokens=1e5, prefix_cache_queries=60_000.0, prefix_cache_hits=59_000.0)  # fmt: skip
    snapshots = tuple(Snapshot((one,), "any", at, at) for one, at in ((first, 0.0), (last, MINUTE)))
    settings = Settings(
        {"ttft": 2.0, "itl": 0.1, "e2e": 10.0}, hardware=Hardware(H100, Parallel(), 1.0), models={"m": MODEL}, role=role
    )
    return derive(Window(snapshots), settings, None)


@pytest.mark.parametrize("role", Role)
def test_what_a_role_does_not_have_is_absent_with_that_reason(role: Role) -> None:
    found = derived(role)
    for signal in SILENT[role]:
        assert found.signals[signal] is Absence.OTHER_ROLE, signal
    others = {signal for signal, why in found.signals.items() if why is Absence.OTHER_ROLE}
    assert others == SILENT[role]


def test_decode_of_a_prefill_replica_is_not_held_against_the_bandwidth_ceiling() -> None:
    unified, prefill = derived(Role.UNIFIED).engines[0], derived(Role.PREFILL).engines[0]
    assert unified.roofline.decode_ceiling is not None
    assert (prefill.roofline.decode_ceiling, prefill.roofline.decode_ratio, prefill.roofline.batch_ridge) == (None,) * 3
    # its compute and its memory traffic are its own
    assert prefill.roofline.compute_ratio == unified.roofline.compute_ratio
    assert prefill.roofline.ratio == unified.roofline.ratio


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
