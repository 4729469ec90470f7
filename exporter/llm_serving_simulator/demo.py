"""Command `demo --recording`: the exporter beside a replayed vLLM and simulated GPUs, with Prometheus where there is one."""

from __future__ import annotations

import argparse
import shutil
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Protocol

from llm_serving_exporter.daemon.service import Service
from llm_serving_exporter.errors import LLMServingExporterError
from llm_serving_exporter.model.cost import PriceBook, PriceStatement, Rate, RateKind, Scope
from llm_serving_exporter.model.target import ModelSettings, Target
from llm_serving_exporter.settings.config import Config, WebConfig
from llm_serving_exporter.settings.flags import CommandParser
from llm_serving_exporter.terminal import EXIT_FAILED, EXIT_OK, ended_by_signal, print_line, print_message
from llm_serving_simulator.child import ChildError
from llm_serving_simulator.gpus import UUIDS, ReplayGpuSource
from llm_serving_simulator.options import add_listening, port, speed
from llm_serving_simulator.ports import (
    explain_moved,
    find_free_address,
    find_free_port,
    on_next_free_port,
    port_named,
)
from llm_serving_simulator.prometheus import Prometheus
from llm_serving_simulator.recording import demo_model_config, demo_recording
from llm_serving_simulator.replay import ReplayServer
from llm_serving_simulator.timeline import Timeline

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
    (
        "USD per million tokens",
        'llm_serving_cost_usd_per_million_tokens{basis="allocated"}',
    ),
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
        name="replay",
        url=target_url,
        gpus=UUIDS,
        model=ModelSettings(config=demo_model_config()),
        gpu_model="H100 SXM",
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
    _say_moved("the engine", args.engine_port, engine.url)

    gpus = ReplayGpuSource(timeline)
    stack.callback(gpus.close)
    asked = args.listen_addresses or [(_EXPORTER_HOST, _EXPORTER_PORT)]
    exporter = start_exporter(
        engine.url, gpus, tuple(find_free_address(host, port, "--web.listen-address") for host, port in asked)
    )
    stack.callback(exporter.close)
    _say_moved("the exporter", asked[0][1], exporter.url)

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
    try:
        free = find_free_port("127.0.0.1", port, "--prometheus-port")
        prometheus = Prometheus(program, exporter_url.removeprefix("http://"), free, cancelled=ended)
    except (OSError, LLMServingExporterError, ChildError) as error:
        print_line(f"Prometheus did not start, the demo runs without: {error}")
        return None
    stack.callback(prometheus.close)
    _say_moved("Prometheus", port, prometheus.url)
    return prometheus


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = CommandParser(
        "demo",
        description="With --recording: the exporter beside a replayed vLLM with simulated GPUs, and a Prometheus where one is installed.",
    )
    add_listening(parser, f"{_EXPORTER_HOST}:{_EXPORTER_PORT}")
    parser.add_argument("--engine-port", type=port, default=_ENGINE_PORT, metavar="PORT", help="the replayed server's")
    parser.add_argument("--speed", type=speed, default=1.0, metavar="TIMES", help="times the recorded pace")
    return parser.parse_args(argv)


def _say_moved(what: str, asked: int, url: str) -> None:
    if (moved := explain_moved(what, asked, url)) is not None:
        print_line(moved)
