"""The budgets of the design, measured side by side in one run: `make bench`, or `python -m bench.run`.

One page (the recorded vLLM run with MFU metrics, second 60), served by nginx with keep-alive and without TLS, is read by this exporter, by
vmagent and by Prometheus. Our cycle is a tick and its share of /metrics, which is read at every third; beside it stands a tick at which
all is derived that there is. CPU per cycle is CPU seconds of the process over scrapes made, without what it uses while it scrapes
nothing. Ratios in one run on one machine compare; milliseconds of two machines do not.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from bench.cycle import Asking, OurCycle, idle_share, metric, say, scrape_config, side_by_side, vmagent
from bench.parse import plain_pass
from bench.servers import Nginx, Program, build_nvml, fetch, free_port, need
from llm_serving_exporter.model.model_settings import ModelSettings
from llm_serving_exporter.model.page import Page
from llm_serving_exporter.model.target import Target
from llm_serving_exporter.normalise.apply import wanted_by
from llm_serving_exporter.normalise.runtimes.vllm import RUNTIME as VLLM
from llm_serving_exporter.parse.page import PageParser
from llm_serving_exporter.sim.carry import Carry
from llm_serving_exporter.sim.recording import demo_model_config
from tests.support.builders.recordings import page as recorded_page
from tests.support.builders.recordings import recording


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
def our_target(url: str) -> Target:
    model = ModelSettings(config=demo_model_config())
    return Target("bench", url, metrics_path="/metrics", model=model, gpu_model="H100 SXM", gpu_count=1)


def moving_pages() -> Iterator[bytes]:
    """The recorded pages of steady load (every series is there from the saturated phase on), counters going on for ever."""
    run = recording("vllm-0.32-mfu")
    numbers = range(25, 93)
    carry = Carry(run.pages[numbers[0]], run.pages[numbers[-1]])
    for tick in itertools.count():
        yield carry.page(run.pages[numbers[tick % len(numbers)]], tick // len(numbers))


def prometheus(folder: Path, config: Path, port: int) -> Program:
    return Program(
        need("prometheus"), f"--config.file={config}", f"--storage.tsdb.path={folder}/tsdb-{port}",
        f"--web.listen-address=127.0.0.1:{port}", ready_url=f"http://127.0.0.1:{port}/-/ready",
    )  # fmt: skip


def peers(folder: Path, nginx: Nginx, ours: Sequence[OurCycle], seconds: float) -> dict[str, float]:
    """CPU per scrape of each peer at 20 ms between scrapes, ours beside it, and its resident size at the usual 5 s."""
    found: dict[str, float] = {}
    target = f"'127.0.0.1:{nginx.port}'"
    fast, none = scrape_config(folder, "fast", target, "20ms"), scrape_config(folder, "none", "", "20ms")
    usual = scrape_config(folder, "usual", target, "5s")
    for name, make, counter in (
        ("vmagent", partial(vmagent, folder, nginx), "vm_promscrape_scrapes_total"),
        ("prometheus", partial(prometheus, folder), "prometheus_target_interval_length_seconds_count"),
    ):
        say(f"measuring {name}, about {seconds + 30:.0f} s …")
        with make(none, free_port()) as program:
            idle = idle_share(program)
        port = free_port()
        with make(fast, port) as program:
            scrapes = partial(metric, f"http://127.0.0.1:{port}/metrics", counter)
            beside, theirs = side_by_side(ours, program, scrapes, seconds, idle)
            found[f"{name} cycle ms"] = theirs
            for asking, each in zip(Asking, beside, strict=True):
                found[f"{name} {asking.name}"] = each / theirs
        with make(usual, free_port()) as program:
            time.sleep(15)
            found[f"{name} resident MB"] = program.resident_bytes() / 1e6
    return found


def our_daemon(nginx: Nginx, environment: Mapping[str, str] | None = None) -> dict[str, float]:
    """`environment`: what makes it find an NVML."""
    say("measuring the daemon's CPU and resident size, a minute …")
    port = free_port()
    listen = f"--web.listen-address=127.0.0.1:{port}"
    url = f"http://127.0.0.1:{port}"
    with Program(
        sys.executable, "-m", "llm_serving_exporter", "--target", nginx.url, listen, ready_url=f"{url}/-/healthy",
        environment=environment,
    ) as program:  # fmt: skip
        time.sleep(25)
        for _ in range(3):
            fetch(f"{url}/metrics")
        cpu = program.cpu_seconds()
        time.sleep(30)
        return {"resident MB": program.resident_bytes() / 1e6, "daemon CPU share": (program.cpu_seconds() - cpu) / 30}


def targets_on_a_core(folder: Path, nginx: Nginx) -> float:
    """How many targets at 15 s the whole daemon carries on one core, from its CPU with 200 targets at 1 s, scheduler included."""
    targets, interval = 200, 1
    say(f"measuring the daemon with {targets} targets at {interval} s, 40 s …")
    config = folder / "fleet.yml"
    lines = [
        f"  - {{name: replica-{n}, url: '{nginx.url}', metrics_path: /replica-{n}/metrics}}" for n in range(targets)
    ]
    config.write_text(
        "\n".join(["gpu: {enabled: false}", f"scrape: {{interval: {interval}s}}", "targets:", *lines]) + "\n"
    )
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = ("-m", "llm_serving_exporter", "--config.file", str(config), f"--web.listen-address=127.0.0.1:{port}")
    with Program(sys.executable, *command, ready_url=f"{url}/-/healthy") as program:
        time.sleep(15)
        done = metric(f"{url}/metrics", "llm_serving_scrape_attempts_total")
        cpu = program.cpu_seconds()
        time.sleep(20)
        used = program.cpu_seconds() - cpu
        made = metric(f"{url}/metrics", "llm_serving_scrape_attempts_total") - done
        up = metric(f"{url}/metrics", "llm_serving_target_up")
    if up != targets:
        raise SystemExit(f"only {up:g} of {targets} targets were up: the measurement says nothing")
    return 15 * made / used


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.run", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=2000, help="cycles of ours (default 2000)")
    parser.add_argument("--seconds", type=float, default=20.0, help="seconds each peer scrapes (default 20)")
    parser.add_argument("--no-peers", action="store_true", help="leave vmagent and Prometheus out")
    arguments = parser.parse_args()
    body = recorded_page("vllm-0.32-mfu", 60)
    machine = f"{os.cpu_count()} cores, {platform.machine()}, CPython {platform.python_version()}"
    say(f"{datetime.now(UTC):%Y-%m-%d}, {machine}, page of {len(body)} bytes")
    page_parser = PageParser(wanted_by(VLLM))
    pages = itertools.cycle(Page(recorded_page("vllm-0.32-mfu", n), "text/plain", 0.0, 0.0, 0.0, 0) for n in (60, 61))
    page_parser.parse(next(pages))
    plain, parse = best_ms(lambda: plain_pass(body), 400), best_ms(lambda: page_parser.parse(next(pages)), 400)
    with tempfile.TemporaryDirectory() as name:
        nginx = Nginx(body, Path(name))
        with nginx.program:
            say(f"measuring our cycle, {arguments.rounds} times …")
            cycles = [OurCycle(nginx, our_target(nginx.url), moving_pages(), asking) for asking in Asking]
            derived = cycles[0].tick().derived
            assert derived is not None
            assert derived.engines[0].roofline.ratio, "the roofline is not worked out: the figure would be too good"
            first = len(cycles[0].costs), len(cycles[1].costs)
            for _ in range(arguments.rounds):
                for cycle in cycles:
                    cycle.tick()
            alone = [cycle.mean_ms(since) for cycle, since in zip(cycles, first, strict=True)]
            render = best_ms(cycles[0].render, 100)
            others = {} if arguments.no_peers else peers(Path(name), nginx, cycles, arguments.seconds)
            for cycle in cycles:
                cycle.hosted.close()
            ours = our_daemon(nginx)
            with_nvml = our_daemon(nginx, build_nvml(Path(name), gpus=1))
            carried = targets_on_a_core(Path(name), nginx)
    say("")
    say(f"| {'what':<46} | {'measured':>12} | {'budget':>24} |")
    say(f"|{'-' * 48}|{'-' * 14}|{'-' * 26}|")

    def row(what: str, measured: str, budget: str = "") -> None:
        say(f"| {what:<46} | {measured:>12} | {budget:>24} |")

    for asking, each in zip(Asking, alone, strict=True):
        row(f"CPU per cycle, {asking.value}", f"{each:.3f} ms")
    for peer in ("vmagent", "prometheus"):
        if f"{peer} cycle ms" in others:
            row(f"CPU per scrape, {peer}", f"{others[f'{peer} cycle ms']:.3f} ms")
            for asking in Asking:
                budget = "<= 0.75 x vmagent's" if asking is Asking.SCRAPED and peer == "vmagent" else ""
                row(f"  ours beside it, {asking.value}", f"{others[f'{peer} {asking.name}']:.2f} x", budget)
    row("parse, steady state", f"{parse:.3f} ms", "<= 2 x plain pass")
    row("plain split-and-dict pass", f"{plain:.3f} ms", f"ours is {parse / plain:.2f} x")
    row("render of /metrics, one target", f"{render:.2f} ms", "<= 1 ms")
    row("CPU of the whole daemon, one target at 5 s", f"{100 * ours['daemon CPU share']:.2f} %", "of one core")
    row("resident memory of the daemon, no NVML", f"{ours['resident MB']:.1f} MB", "<= 45 MB")
    row("resident memory, the tests' NVML, one GPU", f"{with_nvml['resident MB']:.1f} MB", "<= 45 MB")
    for peer in ("vmagent", "prometheus"):
        if f"{peer} resident MB" in others:
            row(f"resident memory, {peer}", f"{others[f'{peer} resident MB']:.1f} MB")
    row("targets on one core at 15 s, whole daemon", f"{carried:,.0f}", ">= 1,000")


if __name__ == "__main__":
    main()
