"""Recordings of real engines on a real H100, played to the real pipeline over HTTP in simulated time.

`play("h100-vllm-0.25.1", 15.0)` gives the reading after each page; GPM's memory bandwidth goes in as a witness beside the engine measured
it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cache

from llm_serving_exporter.derive.derive import Settings
from llm_serving_exporter.facts.architectures.registry import geometry
from llm_serving_exporter.facts.gpus import find
from llm_serving_exporter.facts.loader import gpu_catalogue
from llm_serving_exporter.facts.peaks import peaks_of_spec
from llm_serving_exporter.facts.quantisation import assign
from llm_serving_exporter.facts.weighing import weigh
from llm_serving_exporter.model.derived import Derived, EngineDerived
from llm_serving_exporter.model.devices import DeviceSample
from llm_serving_exporter.model.hardware import Hardware, Parallel
from llm_serving_exporter.model.reading import TargetReading
from llm_serving_exporter.model.roofline import Range
from llm_serving_exporter.model.target import Target
from llm_serving_exporter.model.weights import ModelFacts
from llm_serving_exporter.sim.recording import Recording
from tests.support.builders.pipelines import make_pipeline
from tests.support.builders.recordings import recording
from tests.support.servers.replica import Replica

RUNS = ("h100-vllm-0.25.1", "h100-vllm-0.25.1-moe", "h100-vllm-0.25.1-shared", "h100-sglang-0.5.17")
INTERVAL_SECONDS = 5.0
# pages of the first seconds of a phase still see it fill
_FILLED_SECONDS = 3.0
# GPM by the driver's clock of 2,619 MHz: its ratio is of this peak
WITNESS_PEAK_BYTES_PER_SECOND = 2 * 2619e6 * 5120 / 8


@dataclass(frozen=True)
class Phase:
    """One phase of a run, from the page on which it is steady to the last one before no new request comes."""

    run: str
    name: str
    first_page: int
    last_page: int
    seconds: float

    def __str__(self) -> str:
        return f"{self.run} {self.name}"


@cache
def list_phases(run: str) -> tuple[Phase, ...]:
    """The phases that have two pages in their steady part."""
    times = recording(run).timestamps
    phases = []
    for said in recording(run).json("client/phases.json"):
        inside = [
            number for number, at in times.items() if said["start"] + _FILLED_SECONDS <= at <= said["load_end"] + 0.5
        ]
        if len(inside) > 1:
            first, last = inside[0], inside[-1]
            phases.append(Phase(run, said["phase"], first, last, times[last] - times[first]))
    return tuple(phases)


@cache
def read_witness(run: str) -> tuple[Mapping[str, float], ...]:
    """What NVML and GPM said each second, over the second before."""
    lines = recording(run).members["witness.jsonl"].decode().splitlines()
    return tuple(json.loads(line) for line in lines)


def average_witness(run: str, after: float, until: float, what: str = "dram") -> float:
    """Mean of a reading of the witness between two moments in Unix seconds."""
    values = [line[what] for line in read_witness(run) if after < line["t"] <= until]
    return sum(values) / len(values)


@cache
def model_of(run: str) -> ModelFacts:
    """The facts that the product finds in the run's config.json."""
    config = recording(run).json("config.json")
    shape = geometry(config)
    return ModelFacts("m", "its config.json", shape, weigh(shape, assign(config, None, shape)), 2.0, "bf16")


def _hardware() -> Hardware:
    row = find("NVIDIA H100 80GB HBM3", gpu_catalogue())
    assert row is not None
    return Hardware(peaks_of_spec(row), Parallel())


def play(
    run: str, window_seconds: float, first: int = 0, last: int | None = None, *, gpm: bool = True
) -> Iterator[tuple[int, TargetReading]]:
    """Each page's number with the reading after it, the whole derived."""
    known: Recording = recording(run)
    times, runtime = known.timestamps, "sglang" if "sglang" in run else "vllm"
    numbers = [number for number in known.pages if number >= first and (last is None or number <= last)]
    start, now = times[numbers[0]], [0.0]
    hardware, sample = _hardware(), [DeviceSample(0.0, 1)]
    with Replica() as replica:
        target = Target("h100", replica.url, runtime=runtime, interval_seconds=INTERVAL_SECONDS)
        pipeline = make_pipeline(
            target,
            now,
            settings=lambda facts, engines: Settings(hardware=hardware, device=sample[0], models={}),
            window_seconds=window_seconds,
            unix_start=start,
            models=lambda settings, served: replace(model_of(run), name=served.name),
        )
        with closing(pipeline):
            for number in numbers:
                replica.show({"/metrics": known.pages[number], **_side_endpoints(known, run)})
                now[0] = times[number] - start
                if gpm and now[0] > 0:
                    ratio = average_witness(run, times[number] - INTERVAL_SECONDS, times[number]) / 100
                    sample[0] = DeviceSample(now[0], 1, gpm_ratio=ratio)
                pipeline.tick()
                pipeline.refresh_facts()
                yield number, pipeline.reading


def _side_endpoints(known: Recording, run: str) -> dict[str, bytes]:
    answers = {"/version": "endpoints/version.body", "/server_info": "endpoints/server_info.body"}
    served = known.pages[0].decode()
    name = served.partition('model_name="')[2].partition('"')[0]
    models = json.dumps({"object": "list", "data": [{"id": name, "object": "model", "owned_by": "vllm"}]}).encode()
    said = {path: known.members[member] for path, member in answers.items() if member in known.members}
    return {**said, "/v1/models": models}


@dataclass(frozen=True)
class Measured:
    """What a phase came to: the hardware's own count beside the product's figures over the same seconds."""

    phase: Phase
    # GPM's mean of the seconds, of the peak that the product believes
    gpm: float
    # the whole of what the product derived at the last page
    derived: Derived
    # the page's own engine in it
    engine: EngineDerived

    @property
    def expected(self) -> float:
        """The share of the peak that the product works out."""
        return self.engine.roofline.ratio["model"]

    @property
    def bounds(self) -> Range:
        """What it may lie between."""
        assert self.engine.roofline.model_ratio_range is not None
        return self.engine.roofline.model_ratio_range

    @property
    def off(self) -> float:
        """How far the product lies above GPM, as a share of it."""
        return self.expected / self.gpm - 1


@cache
def measure(phase: Phase) -> Measured:
    """Plays the steady part of a phase to a product that has just been started, its window as long as the phase, without GPM."""
    *_, (_, reading) = play(phase.run, phase.seconds + 1, phase.first_page, phase.last_page, gpm=False)
    assert reading.derivation is not None
    derived = reading.derivation.whole()
    (engine,) = (one for one in derived.engines if one.engine or len(derived.engines) == 1)
    times, peak = recording(phase.run).timestamps, engine.roofline.bandwidth_ceiling
    assert peak is not None
    gpm = average_witness(phase.run, times[phase.first_page], times[phase.last_page]) / 100
    return Measured(phase, gpm * WITNESS_PEAK_BYTES_PER_SECOND / peak, derived, engine)


def list_all_phases() -> tuple[Phase, ...]:
    """Of all runs."""
    return tuple(phase for run in RUNS for phase in list_phases(run))
