"""Recorded phases of real engines on an H100 through the real pipeline, with the clocks, watts and bandwidth that a witness read beside."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from llm_serving_exporter.derive.derive import Settings
from llm_serving_exporter.facts import loader
from llm_serving_exporter.model.derived import Limiter, Roofline, Verdict
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.shape import ModelFacts
from llm_serving_exporter.model.snapshot import ServerFacts
from llm_serving_exporter.model.target import ModelSettings, ServedModel, Target
from llm_serving_exporter.model.window import Clocks, DeviceSample
from llm_serving_exporter.render.sentences import describe_limiter
from llm_serving_exporter.settings.config import Config
from tests.support.builders.lying_pages import Server
from tests.support.builders.pipelines import make_pipeline, settings_without_gpus
from tests.support.builders.recordings import recording
from tests.support.paths import TESTS
from tests.support.rows import check_rows

PHASES: list[dict[str, Any]] = tomllib.loads((TESTS / "truth/states.toml").read_text(encoding="utf-8"))["phase"]
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

    def settle(facts: ServerFacts, engines: int) -> Settings:
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
    derived = reading.derived
    assert derived.verdict is not None
    return Shown(derived.verdict, derived.engines[0].roofline, unix[0] - derived.window_seconds, unix[0])


@check_rows("told", PHASES, ids=lambda told: f"{told['run']}-{told['phase']}")
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
