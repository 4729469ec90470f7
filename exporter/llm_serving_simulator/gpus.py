"""GPUs that are not there: readings for the demo that follow the load of a replayed recording.

The recorded server ran on a CPU. What is shown is what two H100 SXM cards might have read under a load of that shape,
and says so in `source`, in the GPU's name and in its UUID.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from itertools import pairwise

from llm_serving_exporter.clock import elapsed_seconds
from llm_serving_exporter.model.gpu import GpuIdentity, GpuReading, GpuReadings
from llm_serving_exporter.model.record import Struct
from llm_serving_exporter.model.sample import Attempt, FailureReason, Stage
from llm_serving_simulator.recording import Recording
from llm_serving_simulator.timeline import Position, Timeline

GPU_NAME = "Simulated H100 (replay)"
UUIDS = ("GPU-00000000-5151-4d55-8000-000000000000", "GPU-00000000-5151-4d55-8000-000000000001")

_MIB = 1024**2
_GIB = 1024**3

# H100 SXM5 80 GB: 81559 MiB as NVML states it, HBM3 at 2619 MHz on 5120 bits, 1980 MHz SM boost clock, 700 W board.
_MEMORY_BYTES = 81559 * _MIB
_MEMORY_CLOCK_HERTZ = 2619e6
_BUS_WIDTH_BITS = 5120
_SM_CLOCK_HERTZ = 1980e6
_SM_CLOCK_IDLE_HERTZ = 345e6
_POWER_LIMIT_WATTS = 700.0

# Chosen for the demo: a loaded server's weights and KV cache, idle and full draw of a card with a model loaded.
_MEMORY_USED_BYTES = 72 * _GIB
_POWER_IDLE_WATTS = 120.0
_POWER_SPAN_WATTS = 530.0
# the second card of a tensor-parallel pair does a little less
_SHARE_BY_GPU = (1.0, 0.96)

_SAMPLE = re.compile(
    rb"^vllm:(num_requests_running|prompt_tokens_total|generation_tokens_total)\{[^}]*\} (\S+)$", re.MULTILINE
)


class _Load(Struct, frozen=True):
    """What a page says of the load."""

    running: bool  # whether anything runs
    prefill: float  # token rate as a share of the recording's highest
    decode: float  # likewise

    @property
    def activity(self) -> float:
        return min(1.0, 0.85 * self.decode + 1.1 * self.prefill)


class ReplayGpuSource:
    """Two simulated GPUs whose readings follow a timeline.

    Everything is a function of the timeline's position and of `clock` and `wall_clock` at the read: energy is the
    power of every page times the seconds it was shown, so it does not depend on how often it is read.
    """

    def __init__(
        self,
        timeline: Timeline,
        clock: Callable[[], float] = elapsed_seconds,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._timeline = timeline
        self._clock = clock
        self._wall_clock = wall_clock
        self._loads = _loads(timeline.recording)
        self._joules_before: dict[int, tuple[float, ...]] = {}
        joules = [0.0] * len(UUIDS)
        for number, seconds in timeline.page_seconds():
            self._joules_before[number] = tuple(joules)
            for index in range(len(UUIDS)):
                joules[index] += self._watts(index, number) * seconds
        self._joules_a_round = tuple(joules)
        self._closed = False

    def read(self) -> GpuReadings:
        """Both GPUs now; a failed attempt once closed."""
        started = self._clock()
        gpus = () if self._closed else self._readings(self._timeline.position())
        ended = self._clock()
        attempt = Attempt(
            Stage.GPU,
            FailureReason.NVML if self._closed else None,
            "closed" if self._closed else "simulated from a replay",
            at_unix_seconds=self._wall_clock(),
            duration_seconds=max(0.0, ended - started),
        )
        return GpuReadings(attempt, source="simulated", monotonic_seconds=ended, gpus=gpus)

    def close(self) -> None:
        """Reads nothing any more; may be called twice."""
        self._closed = True

    def _readings(self, at: Position) -> tuple[GpuReading, ...]:
        return tuple(self._reading(index, at) for index in range(len(UUIDS)))

    def _watts(self, index: int, page_number: int) -> float:
        return _POWER_IDLE_WATTS + _POWER_SPAN_WATTS * _SHARE_BY_GPU[index] * self._loads[page_number].activity

    def _reading(self, index: int, at: Position) -> GpuReading:
        load = self._loads[at.page_number]
        share = _SHARE_BY_GPU[index]
        watts = self._watts(index, at.page_number)
        active = load.running or load.activity > 0
        return GpuReading(
            identity=GpuIdentity(
                uuid=UUIDS[index],
                index=index,
                name=GPU_NAME,
                architecture="Hopper",
                compute_capability=(9, 0),
                memory_total_bytes=_MEMORY_BYTES,
                memory_bus_width_bits=_BUS_WIDTH_BITS,
                sm_clock_max_hertz=_SM_CLOCK_HERTZ,
                memory_clock_max_hertz=_MEMORY_CLOCK_HERTZ,
                memory_bandwidth_peak_bytes_per_second=2 * _MEMORY_CLOCK_HERTZ * _BUS_WIDTH_BITS / 8,
            ),
            memory_used_bytes=_MEMORY_USED_BYTES,
            memory_total_bytes=_MEMORY_BYTES,
            busy_ratio=share * (0.35 + 0.6 * load.activity) if active else 0.0,
            memory_active_ratio=share * (0.2 + 0.5 * load.decode) if active else 0.0,
            # decode reads all weights a step, so it is what moves memory; prefill is what fills the tensor cores
            dram_bandwidth_ratio=share * (0.05 + 0.6 * load.decode + 0.1 * load.prefill) if active else 0.0,
            sm_activity_ratio=share * (0.15 + 0.7 * load.activity) if active else 0.0,
            tensor_activity_ratio=share * (0.02 + 0.5 * load.prefill + 0.08 * load.decode) if active else 0.0,
            gpm_window_seconds=1.0,
            power_watts=watts,
            power_limit_watts=_POWER_LIMIT_WATTS,
            energy_joules_total=at.round_number * self._joules_a_round[index]
            + self._joules_before[at.page_number][index]
            + watts * at.seconds_into_page,
            temperature_celsius={"gpu": 34.0 + 30.0 * load.activity, "memory": 42.0 + 34.0 * load.activity},
            clock_hertz={
                "sm": _SM_CLOCK_HERTZ if active else _SM_CLOCK_IDLE_HERTZ,
                "memory": _MEMORY_CLOCK_HERTZ,
            },
            ecc_errors_total={"corrected": 0, "uncorrected": 0},
            remapped_rows={"correctable": 0, "uncorrectable": 0},
            remap_pending=False,
            remap_failed=False,
            absent=dict.fromkeys(
                ("slowdown", "xid_events_total", "pcie_bytes_total", "nvlink_bytes_total", "processes"), "not_supported"
            ),
        )


def _loads(recording: Recording) -> dict[int, _Load]:
    """The load on every page of a vLLM recording, 0 where the page does not say."""
    pages = {number: _signals(page) for number, page in recording.pages.items()}
    times = recording.timestamps
    prefill, decode = {}, {}
    for earlier, later in pairwise(pages):
        seconds = times[later] - times[earlier]
        prefill[later] = _growth(pages[earlier], pages[later], b"prompt_tokens_total") / seconds
        decode[later] = _growth(pages[earlier], pages[later], b"generation_tokens_total") / seconds
    most_prefill = max(prefill.values(), default=0.0) or 1.0
    most_decode = max(decode.values(), default=0.0) or 1.0
    return {
        number: _Load(
            running=signals.get(b"num_requests_running", 0.0) > 0,
            prefill=prefill.get(number, 0.0) / most_prefill,
            decode=decode.get(number, 0.0) / most_decode,
        )
        for number, signals in pages.items()
    }


def _signals(page: bytes) -> dict[bytes, float]:
    """The samples of interest, summed over their labels."""
    signals: dict[bytes, float] = {}
    for name, value in _SAMPLE.findall(page):
        signals[name] = signals.get(name, 0.0) + float(value)
    return signals


def _growth(earlier: dict[bytes, float], later: dict[bytes, float], name: bytes) -> float:
    return max(0.0, later.get(name, 0.0) - earlier.get(name, 0.0))
