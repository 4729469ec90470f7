"""A power cap from NVML, through the host's passes and a target's ticks, to the words that people read."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from llm_serving_exporter.gpus.nvml import NvmlSource
from llm_serving_exporter.model.derived import Limiter
from llm_serving_exporter.model.reading import TargetReading
from llm_serving_exporter.model.target import ModelSettings, Target
from llm_serving_exporter.render.sentences import describe_limiter
from tests.nvml_stub.stub import StubState, loaded_stub
from tests.support.builders.lying_pages import Server
from tests.support.builders.recordings import recording
from tests.support.servers.driven_exporter import hand_driven_host

RUN = "h100-vllm-0.25.1"
# prefill, a page each 5 s
PAGES = range(30, 34)


@pytest.fixture
def state(nvml_library: Path, tmp_path: Path) -> Iterator[StubState]:
    described = StubState(tmp_path / "state")
    described.update(
        "gpu0",
        {"clock_sm": 1383, "power_mw": 698_000, "event_reasons": 0x4, "gpm:10": 30.2, "gpm:5": 82.8, "gpm:2": 98.0},
    )
    with loaded_stub(nvml_library, described.path):
        yield described


def last_reading(state: StubState, folder: Path, capped_share: float | None) -> TargetReading:
    """After the pages of a phase. `capped_share`: of the time, that the driver counts as capped; None: it does not count."""
    config = folder / "config.json"
    config.write_bytes(recording(RUN).members["config.json"])
    server = Server({})
    host, clock = hand_driven_host()
    host.gpus.set_source(NvmlSource(xid_events=False, monotonic=clock.monotonic, wall=clock.wall))
    with closing(host):
        target = Target("t", "http://t", gpus=(0,), model=ModelSettings(config=str(config), weight_format="bf16"))
        hosted = host.add_target(target, server.connect)
        for number in (PAGES[0], *PAGES):
            if capped_share is not None:
                state.update("gpu0", {"field:74": f"ull {int(1e9 * capped_share * clock.seconds)}"})
            host.read_gpus()
            server.routes = {"/metrics": recording(RUN).pages[number]}
            reading = hosted.tick()
            hosted.refresh_facts()
            clock.seconds += 5.0
    return reading


@pytest.mark.parametrize("share", [1.0, 0.6, None])
def test_a_card_at_its_cap(share: float | None, state: StubState, tmp_path: Path) -> None:
    derived = last_reading(state, tmp_path, share).page.derived
    assert derived.verdict.candidate is Limiter.POWER
    assert derived.verdict.cap.share == pytest.approx(1.0 if share is None else share)
    assert describe_limiter(derived.verdict) == (
        "power: 698 of 700 W drawn by each GPU, and the cap holds the SM clock at 1383 of 1980 MHz; full clock would give at most 1.43 "
        "times as much"
    )


def test_a_card_that_is_capped_for_less_than_half_of_the_time(state: StubState, tmp_path: Path) -> None:
    derived = last_reading(state, tmp_path, 0.4).page.derived
    assert derived.verdict.state is Limiter.COMPUTE


def test_heat(state: StubState, tmp_path: Path) -> None:
    state.update("gpu0", {"event_reasons": 0x40, "power_mw": 450_000})
    derived = last_reading(state, tmp_path, None).page.derived
    assert derived.verdict is not None
    assert describe_limiter(derived.verdict) == (
        "heat: a thermal cap holds the SM clock at 1383 of 1980 MHz; full clock would give at most 1.43 times as much"
    )


def test_memory_that_is_near_its_peak_binds_whatever_holds_the_clock(state: StubState, tmp_path: Path) -> None:
    state.update("gpu0", {"gpm:10": 86.0})
    derived = last_reading(state, tmp_path, None).page.derived
    assert derived.verdict.candidate is not Limiter.POWER
