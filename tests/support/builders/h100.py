"""Recordings of real engines on a real GPU, played to the real pipeline over HTTP in simulated time.

`play("h100-vllm-0.25.1", 15.0)` gives the reading after each page; GPM's memory bandwidth goes in as a witness beside the engine measured
it. What tests/hardware/drive.py has recorded on any card is played by its `Run`: `play(open_run(Recording.load(archive)), 15.0)`.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any

from llm_serving_exporter.derive.derive import DeriveSettings
from llm_serving_exporter.errors import FactsError
from llm_serving_exporter.facts.gpus import find
from llm_serving_exporter.facts.loader import gpu_catalogue, model_catalogue
from llm_serving_exporter.facts.models import ModelFiles
from llm_serving_exporter.facts.peaks import peaks_of_identity, peaks_of_spec
from llm_serving_exporter.facts.resolve import resolve
from llm_serving_exporter.model.derived import Derived, EngineDerived, Range
from llm_serving_exporter.model.gpu import GpuIdentity
from llm_serving_exporter.model.hardware import GpuPeaks, Hardware, Parallel
from llm_serving_exporter.model.reading import TargetReading
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.shape import ModelFacts
from llm_serving_exporter.model.snapshot import EngineSnapshot
from llm_serving_exporter.model.target import ModelSettings, ServedModel, Target
from llm_serving_exporter.model.window import DeviceSample
from llm_serving_exporter.targets.server import FindModel, ModelBook
from llm_serving_simulator.replay import Recording
from tests.support.builders.pipelines import make_pipeline
from tests.support.builders.recordings import recording
from tests.support.servers.replica import Replica

RUNS = ("h100-vllm-0.25.1", "h100-vllm-0.25.1-moe", "h100-vllm-0.25.1-shared", "h100-sglang-0.5.17")
INTERVAL_SECONDS = 5.0
# pages of the first seconds of a phase still see it fill
_FILLED_SECONDS = 3.0
# what issue 36 asks of bandwidth by arithmetic beside GPM: of each phase, and the root mean square over all
PHASE_TOLERANCE, RMS_TOLERANCE = 0.15, 0.05
# the clients' last answers and the pages' last counts are there this long after a phase
_SETTLED_SECONDS = 0.3
# of the committed runs, as a card.json has it
H100 = {
    "name": "NVIDIA H100 80GB HBM3", "compute_capability": (9, 0), "multiprocessors": 132, "memory_clock_max_megahertz": 2619,
    "bus_width_bits": 5120,
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Run:
    """A recording of an engine that had one GPU to itself."""

    name: str
    recording: Recording
    # the GPU as NVML describes it, by the keys of `H100`
    card: Mapping[str, Any]
    # what the product believes of it
    peaks: GpuPeaks

    def __str__(self) -> str:
        return self.name

    @property
    def witness_peak_bytes_per_second(self) -> float:
        """What GPM's share is of: the peak by the driver's clock."""
        return float(2e6 * self.card["memory_clock_max_megahertz"] * self.card["bus_width_bits"] / 8)


@cache
def find_run(name: str) -> Run:
    """A committed one."""
    row = find(str(H100["name"]), gpu_catalogue())
    assert row is not None
    return Run(name, recording(name), H100, peaks_of_spec(row))


def open_run(found: Recording) -> Run:
    """One whose card.json says on which GPU it was made."""
    card = found.json("card.json")
    capability = tuple(card["compute_capability"])
    bare = Run(found.path.name.partition(".tar")[0], found, card, GpuPeaks("", None, ""))
    identity = GpuIdentity(
        "GPU-0", 0, card["name"], compute_capability=capability,
        memory_bandwidth_peak_bytes_per_second=bare.witness_peak_bytes_per_second,
    )  # fmt: skip
    return replace(bare, peaks=peaks_of_identity(identity, gpu_catalogue()))


def _find(run: Run | str) -> Run:
    return find_run(run) if isinstance(run, str) else run


@dataclass(frozen=True)
class Phase:
    """One phase of a run, from the page on which it is steady to the last one before no new request comes."""

    run: Run
    name: str
    first_page: int
    last_page: int
    seconds: float

    def __str__(self) -> str:
        return f"{self.run} {self.name}"


@cache
def list_phases(run: Run | str) -> tuple[Phase, ...]:
    """The phases that have two pages in their steady part."""
    run = _find(run)
    times = run.recording.timestamps
    phases = []
    for said in run.recording.json("client/phases.json"):
        inside = [
            number for number, at in times.items() if said["start"] + _FILLED_SECONDS <= at <= said["load_end"] + 0.5
        ]
        if len(inside) > 1:
            first, last = inside[0], inside[-1]
            phases.append(Phase(run, said["phase"], first, last, times[last] - times[first]))
    return tuple(phases)


@cache
def read_lines(run: Run, member: str) -> tuple[Mapping[str, float], ...]:
    """Of `witness.jsonl` what NVML and GPM said each second, over the second before; of `product.jsonl` what the product read."""
    return run.recording.jsonl(member) if member in run.recording.members else ()


def average_lines(lines: Iterable[Mapping[str, float]], after: float, until: float, what: str) -> float | None:
    """Mean of a reading between two moments in Unix seconds; None where there is none."""
    values = [line[what] for line in lines if after < line["t"] <= until and what in line]
    return sum(values) / len(values) if values else None


def average_witness(phase: Phase, what: str) -> float | None:
    """Mean of a reading of the witness over a phase; None where it has none."""
    times = phase.run.recording.timestamps
    return average_lines(read_lines(phase.run, "witness.jsonl"), times[phase.first_page], times[phase.last_page], what)


def _model_finder(run: Run) -> FindModel:
    """The facts that the product finds in the run's config.json; without one, by what the server says of its model."""
    if "config.json" not in run.recording.members:
        return ModelBook(None).find
    files = ModelFiles("its config.json", run.recording.json("config.json"))

    def find_model(settings: ModelSettings, served: ServedModel) -> ModelFacts | FactsError:
        try:
            return resolve(settings, served, files, model_catalogue)
        except FactsError as error:
            return error

    return find_model


def _read_gpm(run: Run, at: float) -> float | None:
    """The bandwidth that the product's own reading said, or would have said of the seconds before a page; a share of the peak."""
    own = average_lines(
        read_lines(run, "product.jsonl"), at - INTERVAL_SECONDS / 2, at + INTERVAL_SECONDS / 2, "dram_bandwidth_ratio"
    )
    if own is not None:
        return own
    seen = average_lines(read_lines(run, "witness.jsonl"), at - INTERVAL_SECONDS, at, "dram")
    return None if seen is None else seen / 100


def play(
    run: Run | str, window_seconds: float, first: int = 0, last: int | None = None, *, gpm: bool = True
) -> Iterator[tuple[int, TargetReading]]:
    """Each page's number with the reading after it, the whole derived."""
    run = _find(run)
    known = run.recording
    times = known.timestamps
    numbers = [number for number in known.pages if number >= first and (last is None or number <= last)]
    start, now = times[numbers[0]], [0.0]
    hardware, sample = Hardware(run.peaks, Parallel()), [DeviceSample(0.0, 1)]
    with Replica() as replica:
        target = Target("h100", replica.url, interval_seconds=INTERVAL_SECONDS)
        pipeline = make_pipeline(
            target,
            now,
            settings=lambda facts, engines: DeriveSettings(hardware=hardware, device=sample[0], models={}),
            window_seconds=window_seconds,
            unix_start=start,
            models=_model_finder(run),
        )
        with closing(pipeline):
            for number in numbers:
                replica.show({"/metrics": known.pages[number], **_side_endpoints(known)})
                now[0] = times[number] - start
                if gpm and now[0] > 0:
                    sample[0] = DeviceSample(now[0], 1, gpm_ratio=_read_gpm(run, times[number]))
                pipeline.tick()
                pipeline.refresh_facts()
                yield number, pipeline.reading


def _side_endpoints(known: Recording) -> dict[str, bytes]:
    answers = {
        path: f"endpoints/{name}.body"
        for path, name in (("/version", "version"), ("/server_info", "server_info"), ("/v1/models", "v1_models"))
    }
    served = known.pages[0].decode()
    name = served.partition('model_name="')[2].partition('"')[0]
    models = json.dumps({"object": "list", "data": [{"id": name, "object": "model", "owned_by": "vllm"}]}).encode()
    said = {path: known.members[member] for path, member in answers.items() if member in known.members}
    return {"/v1/models": models, **said}


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
    def is_bounded(self) -> bool:
        """Whether GPM lies within the bounds and what the fit is off by."""
        return self.bounds.lower * 0.95 <= self.gpm * 1.12 and self.gpm <= self.bounds.upper * 1.12

    @property
    def off(self) -> float:
        """How far the product lies above GPM, as a share of it."""
        return self.expected / self.gpm - 1


@cache
def measure(phase: Phase, *, with_gpm: bool = False) -> Measured:
    """Plays the steady part of a phase to a product that has just been started, its window as long as the phase.

    `with_gpm`: whether it has the GPU's counters, too.
    """
    *_, (_, reading) = play(phase.run, phase.seconds + 1, phase.first_page, phase.last_page, gpm=with_gpm)
    derived = reading.page.derivation.whole()
    (engine,) = (one for one in derived.engines if one.engine or len(derived.engines) == 1)
    peak, gpm = engine.roofline.bandwidth_ceiling, average_witness(phase, "dram")
    return Measured(phase, gpm / 100 * phase.run.witness_peak_bytes_per_second / peak, derived, engine)


def list_all_phases() -> tuple[Phase, ...]:
    """Of all runs."""
    return tuple(phase for run in RUNS for phase in list_phases(run))


# --- counts -------------------------------------------------------------------------------------------------------------

# what a page counts by what the client calls it in truth.json
COUNTED = {
    "prompt": "prompt_tokens_ok",
    "cached": "cached_tokens_ok",
    "decode": "gen_tokens_received",
    "finished": "outcome_ok",
}


@dataclass(frozen=True)
class Stretch:
    """The phases between two pages at which the engine had nothing to do."""

    run: Run
    names: tuple[str, ...]
    first_page: int
    last_page: int

    def __str__(self) -> str:
        return f"{self.run} {' '.join(self.names)}"

    def count_of_page(self) -> dict[str, float]:
        """Tokens and finished requests that the product counts in it."""
        before, after = (_count_of_page(self.run, number) for number in (self.first_page, self.last_page))
        return {key: after[key] - before[key] for key in COUNTED}

    def count_of_clients(self) -> dict[str, float | None]:
        """What the client counted in it; None: the engine did not tell it."""
        truth = [self.run.recording.json("client/truth.json")[name] for name in self.names]
        told = {key: [one[field] for one in truth] for key, field in COUNTED.items()}
        return {key: None if None in values else sum(values) for key, values in told.items()}


@cache
def list_stretches(run: Run | str) -> tuple[Stretch, ...]:
    """Those in which the client broke no request off: what an engine does for one after that, nobody is told."""
    run = _find(run)
    phases, truth = run.recording.json("client/phases.json"), run.recording.json("client/truth.json")
    times = {number: run.recording.timestamps[number] for number in run.recording.pages}
    quiet = [
        number
        for number, at in times.items()
        if not any(one["start"] <= at < one["end"] + _SETTLED_SECONDS for one in phases)
    ]
    found = []
    for before, after in pairwise(quiet):
        names = tuple(one["phase"] for one in phases if times[before] < one["start"] < times[after])
        if names and not any(truth[name]["aborted"] for name in names):
            found.append(Stretch(run, names, before, after))
    return tuple(found)


@cache
def _count_of_page(run: Run, number: int) -> dict[str, float]:
    ((_, reading),) = play(run, 60.0, number, number)
    engines = reading.page.snapshot.engines

    def add(field: str) -> float:
        return sum(getattr(engine, field) or 0.0 for engine in engines)

    def finished(engine: EngineSnapshot) -> float:
        return sum((engine.requests_finished_total or {}).values())

    return {
        "prompt": add("prompt_tokens_total"),
        "cached": add("cached_prompt_tokens_total"),
        "decode": add("decode_tokens_total"),
        "finished": sum(map(finished, engines)),
    }
