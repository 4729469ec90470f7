"""Command `demo --recording`: the exporter beside a replayed vLLM and simulated GPUs, with Prometheus where there is one."""

from __future__ import annotations

import argparse
import re
import shutil
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from itertools import pairwise
from typing import Protocol

from llm_serving_exporter.clock import elapsed_seconds
from llm_serving_exporter.daemon.service import Service
from llm_serving_exporter.errors import LLMServingExporterError
from llm_serving_exporter.model.cost import PriceBook, PriceStatement, Rate, RateKind, Scope
from llm_serving_exporter.model.gpu import GpuIdentity, GpuReading, GpuReadings
from llm_serving_exporter.model.record import Struct
from llm_serving_exporter.model.sample import Attempt, FailureReason, Stage
from llm_serving_exporter.model.target import ModelSettings, Target
from llm_serving_exporter.settings.config import Config, WebConfig
from llm_serving_exporter.settings.flags import CommandParser
from llm_serving_exporter.terminal import EXIT_FAILED, EXIT_OK, ended_by_signal, print_line, print_message
from llm_serving_simulator.options import (
    add_listening,
    find_free_address,
    on_next_free_port,
    port,
    port_named,
    say_moved,
    speed,
)
from llm_serving_simulator.programs import Prometheus, start_prometheus
from llm_serving_simulator.replay import Position, Recording, ReplayServer, Timeline, demo_model_config, demo_recording

# --- GPUs that are not there: readings for the demo that follow the load of a replayed recording.
#
# The recorded server ran on a CPU. What is shown is what two H100 SXM cards might have read under a load of that shape, and says so in
# `source`, in the GPU's name and in its UUID.


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
            clock_hertz={"sm": _SM_CLOCK_HERTZ if active else _SM_CLOCK_IDLE_HERTZ, "memory": _MEMORY_CLOCK_HERTZ},
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


# --- The command


_ENGINE_PORT = 8000
_EXPORTER_HOST, _EXPORTER_PORT = "127.0.0.1", 10077

_WHAT_THIS_IS = """\

This is a replay, not a live model: a recorded run of vLLM 0.32 (a 38M-parameter model on a CPU), {minutes:.1f} minutes
through light load, saturation, KV pressure, long prompts, long answers and client errors, played again and again with
the counters going on. The GPUs are simulated, and named so; their price of {price:.2f} USD an hour is made up.
"""
_USD_PER_GPU_HOUR = 2.50
_PRICES = PriceBook(
    (PriceStatement(Scope.TARGET, "replay", _USD_PER_GPU_HOUR, "example"),), (Rate("example", RateKind.ON_DEMAND),)
)

_QUERIES = (
    ("USD per million tokens", 'llm_serving_cost_usd_per_million_tokens{basis="allocated"}'),
    ("tokens/s by phase", "llm_serving_phase_tokens_per_second"),
    (
        "p99 time to first token",
        "histogram_quantile(0.99, sum by (le) (rate(llm_serving_time_to_first_token_seconds_bucket[1m])))",
    ),
)


class Exporter(Protocol):
    """A running exporter."""

    @property
    def url(self) -> str:
        """Where it listens, http://host:port."""
        ...

    def close(self) -> None:
        """End it within a few seconds."""
        ...


# the engine's URL, the GPUs, the addresses to listen on
StartExporter = Callable[[str, ReplayGpuSource, tuple[str, ...]], Exporter]


def start_exporter(target_url: str, gpu_source: ReplayGpuSource, listen: tuple[str, ...]) -> Exporter:
    """The exporter in this process on the addresses `listen` ("host:port"), reading `target_url` and `gpu_source`.

    Installs no signal handlers: the demo has its own. Raises ListenError where the port is taken.
    """
    target = Target(
        name="replay", url=target_url, gpus=UUIDS, model=ModelSettings(config=demo_model_config()), gpu_model="H100 SXM"
    )
    config = Config(targets=(target,), web=WebConfig(listen_addresses=listen), prices=_PRICES)
    service = Service(config, lambda: config, lambda _config: gpu_source)
    service.start()
    return service


def run(argv: Sequence[str], start_exporter: StartExporter = start_exporter) -> int:
    """Run the demo until Ctrl-C, SIGTERM or the end of `--duration`; 0 when it ended so, 1 where it could not start."""
    args = _arguments(argv)
    with ExitStack() as stack:
        ended = stack.enter_context(ended_by_signal())
        try:
            _start(args, stack, start_exporter, ended)
        except (OSError, LLMServingExporterError) as error:
            print_message(f"error: {error}")
            return EXIT_FAILED
        ended.wait(args.duration)
        print_line("\nstopping")
    return EXIT_OK


def _start(args: argparse.Namespace, stack: ExitStack, start_exporter: StartExporter, ended: threading.Event) -> None:
    recording = demo_recording()
    timeline = Timeline(recording, speed=args.speed)
    with port_named("--engine-port", args.engine_port):
        engine = on_next_free_port(lambda port: ReplayServer(timeline, recording, port=port), args.engine_port)
    stack.callback(engine.close)
    say_moved("the engine", args.engine_port, engine.url)

    gpus = ReplayGpuSource(timeline)
    stack.callback(gpus.close)
    asked = args.listen_addresses or [(_EXPORTER_HOST, _EXPORTER_PORT)]
    exporter = start_exporter(
        engine.url, gpus, tuple(find_free_address(host, port, "--web.listen-address") for host, port in asked)
    )
    stack.callback(exporter.close)
    say_moved("the exporter", asked[0][1], exporter.url)

    prometheus = None if args.no_prometheus else _start_prometheus(exporter.url, args.prometheus_port, stack, ended)

    print_line(_WHAT_THIS_IS.format(minutes=timeline.round_seconds / args.speed / 60, price=_USD_PER_GPU_HOUR))
    print_line(f"engine page        {engine.url}/metrics")
    print_line(f"exporter           {exporter.url}/")
    print_line(f"exporter's page    {exporter.url}/metrics")
    if prometheus is not None:
        print_line(f"Prometheus         {prometheus.url}/")
        for title, expression in _QUERIES:
            print_line(f"  {title}: {prometheus.graph_url(expression)}")
    print_line("\nCtrl-C ends it." if args.duration is None else f"\nEnds by itself after {args.duration:g} s.")


def _start_prometheus(exporter_url: str, port: int, stack: ExitStack, ended: threading.Event) -> Prometheus | None:
    program = shutil.which("prometheus")
    if program is None:
        print_line("no `prometheus` on PATH: the demo runs without (Debian, Ubuntu: apt-get install prometheus)")
        return None
    return start_prometheus(program, exporter_url, port, stack, ended)


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = CommandParser(
        "demo",
        description="With --recording: the exporter beside a replayed vLLM with simulated GPUs, and a Prometheus where one is installed.",
    )
    add_listening(parser, f"{_EXPORTER_HOST}:{_EXPORTER_PORT}")
    parser.add_argument("--engine-port", type=port, default=_ENGINE_PORT, metavar="PORT", help="the replayed server's")
    parser.add_argument("--speed", type=speed, default=1.0, metavar="TIMES", help="times the recorded pace")
    return parser.parse_args(argv)
