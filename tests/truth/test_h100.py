"""Real engines on a real H100, through the real pipeline: beside what their clients counted, clocks, watts and counters.

Memory bandwidth by arithmetic over the steady part of each phase, counts over whole recordings, what limits each phase.
"""

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from llm_serving_exporter.derive.derive import DeriveSettings
from llm_serving_exporter.facts import loader
from llm_serving_exporter.model.derived import Limiter, Roofline, Verdict
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.shape import ModelFacts
from llm_serving_exporter.model.snapshot import Absence, ServerFacts
from llm_serving_exporter.model.target import ModelSettings, ServedModel, Target
from llm_serving_exporter.model.window import Clocks, DeviceSample
from llm_serving_exporter.render.sentences import describe_limiter
from llm_serving_exporter.settings.config import Config
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
from tests.support.builders.lying_pages import Server
from tests.support.builders.pipelines import make_pipeline, settings_without_gpus
from tests.support.builders.recordings import recording
from tests.support.paths import TESTS
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
        (engine,) = reading.page.snapshot.engines
        if number > 15:  # the first page tells of nothing whether it is up to date
            assert (engine.requests_running is None) == (engine.decode_context_tokens is None) == (number >= 18), number
        assert engine.requests_waiting is not None
    found = reading.page.derivation.whole()
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


# --- recorded phases of real engines on an H100 through the real pipeline, with the clocks ---


POWER_PHASES: list[dict[str, Any]] = tomllib.loads((TESTS / "truth/states.toml").read_text(encoding="utf-8"))["phase"]
DENSE, STEP = "h100-vllm-0.25.1", 5.0
# what the tests have of the servers' flags: --max-num-seqs and --max-running-requests
LIMITS = {"h100-sglang-0.5.17": 128}
# of the board, and of its clock; the data sheet's dense rate of 989.4 TFLOP/s is 132 SMs x 4,096 FLOPs x 1,830 MHz
WATTS, MAX_HERTZ, SHEET_HERTZ = 700.0, 1.98e9, 1.83e9


def witness(run: str, start: float, end: float) -> list[Mapping[str, float]]:
    """What was read of the card from after `start` to `end`, Unix seconds."""
    return [row for row in _witness(run) if start < row["t"] <= end]


@cache
def _witness(run: str) -> tuple[Any, ...]:
    return recording(run).jsonl("witness.jsonl")


def mean(rows: list[Mapping[str, float]], name: str) -> float:
    return sum(row[name] for row in rows) / len(rows)


@dataclass(frozen=True)
class Shown:
    """What a phase's last page within its load shows over the window."""

    verdict: Verdict
    roofline: Roofline
    start: float  # of the window, Unix seconds
    end: float


def is_capped(row: Mapping[str, float]) -> bool:
    """Whether the driver names the power cap: near the limit, or below the full clock under load."""
    return row["watts"] > 0.96 * WATTS or row["smclk"] < 1965


def play_phase(
    run: str, phase: str, folder: Path, *, gpm: bool = True, counters: bool = True, clocks: bool = True
) -> Shown:
    """The phase's pages, from the second of it on, with a window of 15 s. `gpm`: whether memory bandwidth is measured; `counters`: whether
    the driver counts throttled time; `clocks`: whether it shows them at all."""
    recorded = recording(run)
    (told,) = [one for one in recorded.json("client/phases.json") if one["phase"] == phase]
    times = {number: at for number, at in recorded.timestamps.items() if told["start"] + 3 <= at <= told["load_end"]}
    config = folder / "config.json"
    config.write_bytes(recorded.members["config.json"])
    model = ModelSettings(config=str(config), weight_format="bf16")
    # the state of one phase is not to rest on what was observed in another
    target = Target(
        "replica-0", "http://replica", gpu_model="H100 SXM", gpu_count=1, interval_seconds=STEP,
        batch_limit_requests=LIMITS.get(run, 256), model=model,
    )  # fmt: skip
    server, now, unix = Server({}), [0.0], [0.0]
    begin = min(times.values())

    def settle(facts: ServerFacts, engines: int) -> DeriveSettings:
        found = settings_without_gpus(Config(targets=()), target, facts, engines)
        rows = witness(run, unix[0] - STEP, unix[0])
        held = sum(is_capped(row) for row in witness(run, 0.0, unix[0]))
        shown = Clocks(
            rows[-1]["smclk"] * 1e6, MAX_HERTZ, rows[-1]["watts"], WATTS,
            {"power": float(is_capped(rows[-1])), "thermal": 0.0}, {"sw_power_cap": float(held), "thermal": 0.0} if counters else {},
        )  # fmt: skip
        dram = mean(rows, "dram") / 100 if gpm else None
        return replace(found, device=DeviceSample(now[0], 1, gpm_ratio=dram, clocks=shown if clocks else None))

    def find(settings: ModelSettings, served: ServedModel) -> ModelFacts:
        return loader.model_facts(model, served)

    pipeline = make_pipeline(
        target, now, settings=settle, window_seconds=15.0, unix_start=begin, connect=server.connect, models=find
    )
    first = min(times)
    for number in (first, first, *list(times)[1:]):
        server.routes = {"/metrics": recorded.pages[number]}
        unix[0], now[0] = times[number], times[number] - begin
        reading = pipeline.tick()
        pipeline.refresh_facts()
    derived = reading.page.derived
    assert derived.verdict is not None
    return Shown(derived.verdict, derived.engines[0].roofline, unix[0] - derived.window_seconds, unix[0])


@check_rows("told", POWER_PHASES, ids=lambda told: f"{told['run']}-{told['phase']}")
def test_phases_are_shown_as_what_they_are(told: Mapping[str, str], tmp_path: Path) -> None:
    assert play_phase(told["run"], told["phase"], tmp_path).verdict.candidate is Limiter(told["state"])


def test_the_sentence_says_watts_cap_clock_and_what_full_clock_would_give_at_most(tmp_path: Path) -> None:
    shown = play_phase(DENSE, "prefill", tmp_path).verdict
    said = describe_limiter(replace_state(shown))
    assert said.startswith("power: 69")
    assert "of 700 W drawn by each GPU, and the cap holds the SM clock at 13" in said
    assert said.endswith("of 1980 MHz; full clock would give at most 1.43 times as much")
    assert (shown.cap.reason, round(shown.cap.share, 1)) == ("power", 1.0)


def replace_state(verdict: Verdict) -> Verdict:
    """As after the seconds for which another candidate has to hold."""
    return Verdict(verdict.candidate, verdict.candidate, 0.0, verdict.evidence, cap=verdict.cap)


def test_compute_at_the_clock_that_the_card_really_has_is_what_its_tensor_cores_say(tmp_path: Path) -> None:
    """61 % of a data sheet whose peak is at 1,830 MHz; at 1,383 MHz 81 %, and GPM says 83 %."""
    shown = play_phase(DENSE, "prefill", tmp_path)
    rows = witness(DENSE, shown.start, shown.end)
    assert shown.roofline.compute_ratio == pytest.approx(0.613, abs=0.01)
    at_clock = (shown.roofline.compute_ratio or 0.0) * SHEET_HERTZ / (1e6 * mean(rows, "smclk"))
    assert at_clock == pytest.approx(0.81, abs=0.02)
    assert at_clock == pytest.approx(mean(rows, "tensor") / 100, abs=0.03)


@check_rows("counters", [True, False])
def test_a_driver_that_counts_no_throttled_time_is_asked_what_it_names(counters: bool, tmp_path: Path) -> None:
    for phase, state in (
        ("prefill", Limiter.POWER),
        ("decode8", Limiter.BANDWIDTH),
        ("kvpressure", Limiter.KV_CAPACITY),
    ):
        assert play_phase(DENSE, phase, tmp_path, counters=counters).verdict.candidate is state


def test_without_gpm_the_estimates_upper_end_counts(tmp_path: Path) -> None:
    assert play_phase(DENSE, "prefill", tmp_path, gpm=False).verdict.candidate is Limiter.POWER


def test_without_clocks_nobody_knows_of_a_cap(tmp_path: Path) -> None:
    shown = play_phase(DENSE, "prefill", tmp_path, clocks=False).verdict
    assert (shown.candidate, shown.cap) == (Limiter.COMPUTE, None)
