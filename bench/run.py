"""The budgets of the design, measured side by side in one run: `make bench`, or `python -m bench.run`.

One page (the recorded vLLM run with MFU metrics, second 60), served by nginx with keep-alive and without TLS, is read by this exporter, by
vmagent, by Prometheus, also as an agent, and by a naive exporter (bench/naive.py). Our cycle is a tick and its share of /metrics, which
is read at every third. It has a process of its own (bench/our_cycle.py) and ticks back to back, as the ticks of many targets do; another
one ticks every 20 ms, as the peers scrape, and a third one derives at each tick all that there is. CPU per cycle is CPU seconds of the
process over scrapes made, without what it uses while it scrapes nothing. Ratios in one run on one machine compare; milliseconds of two
machines do not.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import os
import platform
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from bench.cycle import (
    PACE_SECONDS,
    Asking,
    OurCycle,
    agent,
    idle_share,
    metric,
    naive,
    say,
    scrape_config,
    show_pages,
    side_by_side,
    spread,
    vmagent,
)
from bench.otelcol import PROGRAM as OTELCOL
from bench.otelcol import SCRAPES as OTELCOL_SCRAPES
from bench.otelcol import otelcol
from bench.our_cycle import list_stages
from bench.parse import plain_pass
from bench.servers import DRIVER_RESIDENT_BYTES, Nginx, Program, build_nvml, fetch, free_port, need
from llm_serving_exporter.engines.apply import wanted_by
from llm_serving_exporter.engines.registry import RUNTIMES
from llm_serving_exporter.fetch.page import PageParser
from llm_serving_exporter.model.sample import Page
from llm_serving_exporter.model.target import ModelSettings, Target
from llm_serving_simulator.replay import Carry, demo_model_config
from tests.support.builders.recordings import page as recorded_page
from tests.support.builders.recordings import recording
from tests.support.servers.server_process import find_program

VLLM = RUNTIMES["vllm"]


def best_ms(work: Callable[[], object], rounds: int) -> float:
    gc.collect()
    gc.disable()
    times = []
    for _ in range(rounds):
        started = time.perf_counter()
        work()
        times.append(time.perf_counter() - started)
    gc.enable()
    return 1000 * min(times)


# everything known that the roofline needs: the dearest tick there is
def our_target(url: str, path: str = "/metrics") -> Target:
    model = ModelSettings(config=demo_model_config())
    return Target("bench", url, metrics_path=path, model=model, gpu_model="H100 SXM", gpu_count=1)


def moving_pages() -> Iterator[bytes]:
    """The recorded pages of steady load (every series is there from the saturated phase on), counters going on for ever."""
    run = recording("vllm-0.32-mfu")
    numbers = range(25, 93)
    carry = Carry(run.pages[numbers[0]], run.pages[numbers[-1]])
    for tick in itertools.count():
        yield carry.page(run.pages[numbers[tick % len(numbers)]], tick // len(numbers))


def prometheus(folder: Path, nginx: Nginx, config: Path, port: int) -> Program:
    return Program(
        need("prometheus"), f"--config.file={config}", f"--storage.tsdb.path={folder}/tsdb-{port}",
        f"--web.listen-address=127.0.0.1:{port}", ready_url=f"http://127.0.0.1:{port}/-/ready",
    )  # fmt: skip


# name -> how it is started, and the counter of its scrapes
PEERS: tuple[tuple[str, Callable[..., Program], str], ...] = (
    ("vmagent", vmagent, "vm_promscrape_scrapes_total"),
    ("prometheus", prometheus, "prometheus_target_interval_length_seconds_count"),
    ("prometheus agent", agent, "prometheus_target_interval_length_seconds_count"),
    ("naive exporter", naive, "naive_scrapes_total"),
    *((("opentelemetry collector", otelcol, OTELCOL_SCRAPES),) if find_program(OTELCOL) else ()),
)


# label -> what is asked of a reading, and seconds between two ticks; the first is the one that has a budget
CYCLES: Mapping[str, tuple[Asking, float]] = {
    **{asking.value: (asking, 0.0) for asking in Asking},
    f"{Asking.SCRAPED.value}, at 20 ms": (Asking.SCRAPED, PACE_SECONDS),
}


def peers(folder: Path, nginx: Nginx, seconds: float) -> dict[str, float]:
    """CPU ms per scrape of each peer at 20 ms between scrapes, and of ours over that beside it.

    Each of ours runs beside the first peer, one after the other: two cores have room for one that ticks back to back. One of them runs
    beside the other peers.
    """
    found: dict[str, float] = {}
    target = f"'127.0.0.1:{nginx.port}'"
    fast, none = scrape_config(folder, "fast", target, "20ms"), scrape_config(folder, "none", "", "20ms")
    with show_pages(nginx, moving_pages()):
        for name, make, counter in PEERS:
            say(f"measuring {name} …")
            with make(folder, nginx, none, free_port()) as program:
                idle = idle_share(program)
            port = free_port()
            with make(folder, nginx, fast, port) as program:
                scrapes = partial(metric, f"http://127.0.0.1:{port}/metrics", counter)
                for label, (asking, pace) in CYCLES.items():
                    if name != PEERS[0][0] and label != Asking.SCRAPED.value:
                        continue
                    ours = OurCycle(
                        our_target(nginx.url, "/ours"), nginx.place("ours"), moving_pages, asking, pace_seconds=pace
                    )
                    (each,), theirs = side_by_side((ours,), program, scrapes, seconds, idle)
                    ours.close()
                    found.setdefault(name, theirs)
                    found[f"{name}: {label}"] = each / theirs
                    if name == PEERS[0][0]:
                        found[label] = each
    return found


def peers_resident(folder: Path, nginx: Nginx) -> dict[str, float]:
    """MB of each peer with one target at 5 s."""
    found = {}
    usual = scrape_config(folder, "usual", f"'127.0.0.1:{nginx.port}'", "5s")
    for name, make, _counter in PEERS:
        with make(folder, nginx, usual, free_port()) as program:
            time.sleep(15)
            found[name] = program.resident_bytes() / 1e6
    return found


def measure_stages(nginx: Nginx, seconds: float) -> list[tuple[str, float]]:
    """CPU milliseconds of each stage a tick, of the cycle that is scraped. Telling them apart adds to each."""
    say(f"measuring our stages, {seconds:.0f} s …")
    one = OurCycle(our_target(nginx.url, "/stages"), nginx.place("stages"), moving_pages, Asking.SCRAPED, stages=True)
    before = one.count()
    time.sleep(seconds)
    after = one.count()
    one.close()
    return list(list_stages(after, before))


def our_daemon(nginx: Nginx, nvml: Mapping[str, str] | None = None) -> dict[str, float]:
    """`nvml`: an environment that makes it find one; None: it does not read GPUs."""
    say("measuring the daemon's CPU and resident size, a minute …")
    port = free_port()
    listen = f"--web.listen-address=127.0.0.1:{port}"
    url = f"http://127.0.0.1:{port}"
    with Program(
        sys.executable, "-m", "llm_serving_exporter", "--target", nginx.url, listen, *([] if nvml else ["--no-gpu.enabled"]),
        ready_url=f"{url}/-/healthy", environment=nvml,
    ) as program:  # fmt: skip
        time.sleep(25)
        for _ in range(3):
            fetch(f"{url}/metrics")
        cpu = program.cpu_seconds()
        time.sleep(30)
        return {"resident MB": program.resident_bytes() / 1e6, "daemon CPU share": (program.cpu_seconds() - cpu) / 30}


def describe_python() -> str:
    """Which Python this is, and whether it was built with the optimisations that distributions build it with."""
    optimised = "--enable-optimizations" in (sysconfig.get_config_var("CONFIG_ARGS") or "")
    return f"CPython {platform.python_version()}, built {'with' if optimised else 'without'} optimisations"


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.run", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=1, help="of what stands beside peers (default 1)")
    parser.add_argument("--seconds", type=float, default=15.0, help="seconds each peer scrapes (default 15)")
    parser.add_argument("--no-peers", action="store_true", help="leave the peers out")
    parser.add_argument("--json", type=Path, help="where the figures go, too")
    arguments = parser.parse_args()
    if sys.dont_write_bytecode:
        raise SystemExit("PYTHONDONTWRITEBYTECODE is set: compiling at start leaves memory behind. Unset it.")
    body = recorded_page("vllm-0.32-mfu", 60)
    machine = f"{os.cpu_count()} cores, {platform.machine()}, {describe_python()}"
    say(f"{datetime.now(UTC):%Y-%m-%d}, {machine}, page of {len(body)} bytes")
    if not arguments.no_peers and find_program(OTELCOL) is None:
        say(f"{OTELCOL} is left out: `scripts/setup.sh tools {OTELCOL}` builds it")
    page_parser = PageParser(wanted_by(VLLM))
    pages = itertools.cycle(Page(recorded_page("vllm-0.32-mfu", n), "text/plain", 0.0, 0.0) for n in (60, 61))
    page_parser.parse(next(pages))
    plain, parse = best_ms(lambda: plain_pass(body), 400), best_ms(lambda: page_parser.parse(next(pages)), 400)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        nginx = Nginx(body, folder)
        with nginx.program:
            stages = measure_stages(nginx, arguments.seconds)
            runs: list[dict[str, float]] = []
            resident: dict[str, float] = {}
            if not arguments.no_peers:
                runs = [peers(folder, nginx, arguments.seconds) for _ in range(arguments.runs)]
                resident = peers_resident(folder, nginx)
            ours = our_daemon(nginx)
            with_nvml = our_daemon(nginx, build_nvml(folder, gpus=1))
    say(f"\n| {'what':<62} | {'median of runs, least to most':>30} | budget |\n|{'-' * 64}|{'-' * 32}|{'-' * 8}|")

    def row(what: str, measured: str, budget: str = "") -> None:
        say(f"| {what:<62} | {measured:>30} | {budget} |")

    for key in runs[0] if runs else ():
        values, ratio = [run[key] for run in runs], ":" in key
        budget = "at most 0.75 x" if key == f"vmagent: {Asking.SCRAPED.value}" else ""
        row(f"ours / {key}" if ratio else f"CPU, {key}", spread(values, "x" if ratio else "ms"), budget)
    for label, each in stages:
        row(f"stage: {label}", f"{each:.3f} ms")
    row("parse alone, steady state", f"{parse:.3f} ms", "at most a plain pass")
    row("plain split-and-dict pass", f"{plain:.3f} ms", f"ours is {parse / plain:.2f} x")
    row("CPU of the whole daemon, one target at 5 s", f"{100 * ours['daemon CPU share']:.2f} % of a core")
    row("resident memory of the daemon, without NVML", f"{ours['resident MB']:.1f} MB", "at most 42 MB")
    row("resident memory, the tests' NVML, one GPU", f"{with_nvml['resident MB']:.1f} MB")
    real = with_nvml["resident MB"] + DRIVER_RESIDENT_BYTES / 1e6
    row(f"the same with the {DRIVER_RESIDENT_BYTES / 1e6:.0f} MB of a real driver", f"{real:.1f} MB")
    for peer, size in resident.items():
        row(f"resident memory, {peer}", f"{size:.1f} MB")
    if arguments.json is not None:
        arguments.json.write_text(
            json.dumps({"machine": machine, "runs": runs, "stages": stages, "resident": resident}, indent=1)
        )


if __name__ == "__main__":
    main()
