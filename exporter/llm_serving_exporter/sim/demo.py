"""Command `demo`: the exporter beside a replayed vLLM and simulated GPUs, with Prometheus where there is one."""

from __future__ import annotations

import argparse
import shutil
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Protocol

from llm_serving_exporter.config.types import Config, WebConfig
from llm_serving_exporter.daemon.service import Service
from llm_serving_exporter.errors import LLMServingExporterError
from llm_serving_exporter.model.model_settings import ModelSettings
from llm_serving_exporter.model.prices import PriceBook, PriceStatement, Rate, RateKind, Scope
from llm_serving_exporter.model.target import Target
from llm_serving_exporter.sim.child import ChildError
from llm_serving_exporter.sim.gpus import UUIDS, ReplayGpuSource
from llm_serving_exporter.sim.options import address, port, seconds, speed
from llm_serving_exporter.sim.ports import on_next_free_port, require_free
from llm_serving_exporter.sim.prometheus import Prometheus
from llm_serving_exporter.sim.recording import demo_model_config, demo_recording
from llm_serving_exporter.sim.replay import ReplayServer
from llm_serving_exporter.sim.timeline import Timeline
from llm_serving_exporter.terminal import ended_by_signal, say

_ENGINE_PORT = 8000
_EXPORTER_ADDRESS = "127.0.0.1:10077"
_PROMETHEUS_PORT = 9090

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


StartExporter = Callable[[str, ReplayGpuSource, str], Exporter]


def start_exporter(target_url: str, gpu_source: ReplayGpuSource, listen: str) -> Exporter:
    """The exporter in this process on `listen` ("host:port"), reading `target_url` and `gpu_source`.

    Installs no signal handlers: the demo has its own. Raises ListenError where the port is taken.
    """
    target = Target(
        name="replay",
        url=target_url,
        gpus=UUIDS,
        model=ModelSettings(config=demo_model_config()),
        gpu_model="H100 SXM",
    )
    config = Config(targets=(target,), web=WebConfig(listen_address=listen), prices=_PRICES)
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
            sys.stderr.write(f"llm-serving-exporter demo: {error}\n")
            return 1
        ended.wait(args.duration)
        say("\nstopping")
    return 0


def _start(args: argparse.Namespace, stack: ExitStack, start_exporter: StartExporter, ended: threading.Event) -> None:
    recording = demo_recording()
    timeline = Timeline(recording, speed=args.speed)
    engine = on_next_free_port(lambda port: ReplayServer(timeline, recording, port=port), args.engine_port)
    stack.callback(engine.close)
    _say_moved("the engine", args.engine_port, engine.url)

    gpus = ReplayGpuSource(timeline)
    stack.callback(gpus.close)
    host, asked = args.listen
    port = on_next_free_port(lambda candidate: require_free(host, candidate), asked)
    exporter = start_exporter(engine.url, gpus, f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
    stack.callback(exporter.close)
    _say_moved("the exporter", asked, exporter.url)

    prometheus = None if args.no_prometheus else _start_prometheus(exporter.url, args.prometheus_port, stack, ended)

    say(_WHAT_THIS_IS.format(minutes=timeline.round_seconds / args.speed / 60, price=_USD_PER_GPU_HOUR))
    say(f"engine page        {engine.url}/metrics")
    say(f"exporter           {exporter.url}/")
    say(f"exporter's page    {exporter.url}/metrics")
    if prometheus is not None:
        say(f"Prometheus         {prometheus.url}/")
        for title, expression in _QUERIES:
            say(f"  {title}: {prometheus.graph_url(expression)}")
    say("\nCtrl-C ends it." if args.duration is None else f"\nEnds by itself after {args.duration:g} s.")


def _start_prometheus(exporter_url: str, port: int, stack: ExitStack, ended: threading.Event) -> Prometheus | None:
    program = shutil.which("prometheus")
    if program is None:
        say("no `prometheus` on PATH: the demo runs without (Debian, Ubuntu: apt-get install prometheus)")
        return None
    try:
        prometheus = Prometheus(program, exporter_url.removeprefix("http://"), port, cancelled=ended)
    except (OSError, ChildError) as error:
        say(f"Prometheus did not start, the demo runs without: {error}")
        return None
    stack.callback(prometheus.close)
    _say_moved("Prometheus", port, prometheus.url)
    return prometheus


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="llm-serving-exporter demo",
        description="The exporter beside a replayed vLLM with simulated GPUs, and a Prometheus where one is installed.",
    )
    parser.add_argument("--listen", type=address, default=_EXPORTER_ADDRESS, metavar="HOST:PORT", help="the exporter's")
    parser.add_argument("--engine-port", type=port, default=_ENGINE_PORT, metavar="PORT", help="the replayed server's")
    parser.add_argument("--prometheus-port", type=port, default=_PROMETHEUS_PORT, metavar="PORT")
    parser.add_argument("--no-prometheus", action="store_true", help="start none even where one is installed")
    parser.add_argument("--speed", type=speed, default=1.0, metavar="TIMES", help="times the recorded pace")
    parser.add_argument("--duration", type=seconds, metavar="10s", help="end by itself after this long (s, m or h)")
    return parser.parse_args(argv)


def _say_moved(what: str, asked: int, url: str) -> None:
    port = int(url.rpartition(":")[2])
    if asked and port != asked:
        say(f"port {asked} is in use: {what} takes {port}")
