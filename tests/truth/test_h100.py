"""Real engines on a real H100: what the product says of them beside what their clients counted and what the GPU's own counters measured.

Memory bandwidth by arithmetic over the steady part of each phase, counts over whole recordings, what limits each phase.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import pytest

from llm_serving_exporter.model.snapshot import Absence
from tests.support.builders.h100 import (
    PHASE_TOLERANCE,
    RMS_TOLERANCE,
    RUNS,
    Measured,
    Phase,
    Stretch,
    list_all_phases,
    list_phases,
    list_stretches,
    measure,
    play,
)
from tests.support.rows import check_rows

PHASES = list_all_phases()


def of(run: str, name: str) -> Measured:
    (phase,) = (phase for phase in list_phases(run) if phase.name == name)
    return measure(phase)


# --- bytes --------------------------------------------------------------------------------------------------------------


@check_rows("phase", PHASES, ids=str)
def test_bandwidth_is_within_15_per_cent_of_the_hardwares_counter(phase: Phase) -> None:
    assert abs(measure(phase).off) <= PHASE_TOLERANCE


def test_over_all_phases_it_is_within_5_per_cent() -> None:
    assert len(PHASES) == 25
    assert math.sqrt(sum(measure(phase).off ** 2 for phase in PHASES) / len(PHASES)) <= RMS_TOLERANCE


@check_rows("phase", PHASES, ids=str)
def test_the_hardwares_counter_lies_within_the_bounds_and_what_the_fit_is_off_by(phase: Phase) -> None:
    found = measure(phase)
    assert found.is_bounded
    assert found.bounds.lower <= found.expected <= found.bounds.upper <= 1


@check_rows("phase", PHASES, ids=str)
def test_nothing_is_suspect_and_no_rate_is_above_its_ceiling(phase: Phase) -> None:
    found = measure(phase).engine.roofline
    assert not found.causes
    assert (found.decode_ratio or 0.0) < 1
    assert found.decode_ceiling is None or found.decode_ceiling <= (found.decode_ceiling_upper or 0.0)


@check_rows(
    ("run", "phase", "decode_ratio"),
    [("h100-vllm-0.25.1", "shared", 0.73), ("h100-vllm-0.25.1-shared", "shared1k", 0.74), ("h100-vllm-0.25.1-shared", "shared4k", 0.87)],
)  # fmt: skip
def test_a_shared_prefix_costs_what_attention_reads_again_on_the_chip(
    run: str, phase: str, decode_ratio: float
) -> None:
    """Read from memory for each sequence, `shared4k` would be at 150 % of its ceiling; read once and again in no time, below half."""
    found = of(run, phase).engine.roofline
    assert found.decode_ratio == pytest.approx(decode_ratio, abs=0.01)
    assert found.decode_ceiling_upper is not None
    assert found.decode_ceiling is not None
    assert found.decode_ceiling_upper > 1.25 * found.decode_ceiling


def test_what_a_sequence_looks_at_and_what_a_request_holds_are_two_things() -> None:
    """4,096 tokens in common and 200 of each one's own, with answers of 150."""
    engine = of("h100-vllm-0.25.1", "shared").engine
    assert engine.context_tokens_mean == pytest.approx(4096 + 200 + 75, rel=0.01)
    assert engine.kv_cache_tokens_per_request == pytest.approx(348, rel=0.01)
    alone = of("h100-vllm-0.25.1-shared", "unique4k").engine
    assert alone.context_tokens_mean == alone.kv_cache_tokens_per_request == pytest.approx(4363, rel=0.01)


# --- what binds ---------------------------------------------------------------------------------------------------------

LIMITERS: Mapping[str, Mapping[str, str]] = {
    "h100-vllm-0.25.1": {
        "decode1": "bandwidth", "decode8": "bandwidth", "decode64": "bandwidth", "prefill": "compute", "shared": "attention",
        "kvpressure": "kv_capacity",
    },
    "h100-vllm-0.25.1-moe": {"decode8": "bandwidth", "decode64": "bandwidth", "decode256": "bandwidth", "prefill": "compute"},
    "h100-vllm-0.25.1-shared": {"unique4k": "bandwidth", "shared1k": "bandwidth", "shared4k": "attention"},
    "h100-sglang-0.5.17": {"decode1": "bandwidth", "decode64": "bandwidth", "queue": "batch_limit", "prefill": "compute"},
}  # fmt: skip


@check_rows(("run", "phase", "state"), [(run, *one) for run, told in LIMITERS.items() for one in told.items()])
def test_what_limits_each_phase(run: str, phase: str, state: str) -> None:
    verdict = of(run, phase).derived.verdict
    assert verdict.state.value == state


def test_sglang_says_nothing_of_its_sequences_while_it_computes_prompts() -> None:
    """Its gauge says 51, 95 and 13 where 16 clients wait for one token each; nothing is worked out of it."""
    for number, reading in play("h100-sglang-0.5.17", 5.0, 15, 20):
        (engine,) = reading.snapshot.engines
        if number > 15:  # the first page tells of nothing whether it is up to date
            assert (engine.requests_running is None) == (engine.decode_context_tokens is None) == (number >= 18), number
        assert engine.requests_waiting is not None
    found = reading.derivation.whole()
    assert found.signals["requests_running"] is Absence.STALE
    assert found.engines[0].roofline.ratio["model"] == pytest.approx(0.27, abs=0.01)


# --- counts -------------------------------------------------------------------------------------------------------------

STRETCHES = [stretch for run in RUNS for stretch in list_stretches(run)]


def test_every_phase_in_which_nothing_was_broken_off_is_counted() -> None:
    assert {str(one.run): sum(len(each.names) for each in STRETCHES if each.run is one.run) for one in STRETCHES} == {
        "h100-vllm-0.25.1": 10, "h100-vllm-0.25.1-moe": 6, "h100-vllm-0.25.1-shared": 2, "h100-sglang-0.5.17": 5,
    }  # fmt: skip


@check_rows("stretch", STRETCHES, ids=str)
def test_counts_are_the_clients_to_the_token(stretch: Stretch) -> None:
    assert stretch.count_of_page() == stretch.count_of_clients()
