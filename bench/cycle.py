"""What a scrape costs, ours beside the peers' in one run: `make bench`, or `python -m bench.cycle`.

The usual page (the recorded vLLM run with MFU metrics, second 60), served by nginx with keep-alive and without TLS, is read by this
exporter, by vmagent, by Prometheus, also as an agent, by a naive exporter (`bench.naive`), and by the OpenTelemetry Collector where it is
built. Then come the largest pages known, beside vmagent alone: Dynamo's front end (102 KB), and SGLang with eight data-parallel ranks (made
from a recorded page by the facts' rules: every scheduler series eight times).

Our cycle is a tick and its share of /metrics, which is read at every third. It has a process of its own, so that nothing else is on its CPU
time, and ticks back to back, as the ticks of many targets do; another one ticks every 20 ms, as the peers scrape: the processor has
forgotten the code by the next tick. A peer's cycle is the CPU of its process over the scrapes made, without what it uses while it scrapes
nothing. Ratios in one run on one machine compare; milliseconds of two machines do not.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import multiprocessing
import tempfile
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial, wraps
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry

from bench.peers import (
    DRIVER_RESIDENT_BYTES,
    PEERS,
    PRICES,
    PROMETHEUS_ACCEPTS,
    VMAGENT,
    Nginx,
    Peer,
    Program,
    build_nvml,
    carry_on,
    fetch,
    make_target,
    metric,
    moving_pages,
    scrape_config,
    start_exporter,
)
from bench.shared import describe_machine, make_parser, print_table, repeat, require_bytecode, say, spread
from llm_serving_exporter.cost.meters import Costs
from llm_serving_exporter.daemon.store import Store
from llm_serving_exporter.derive.derive import Tick
from llm_serving_exporter.engines.apply import Normaliser, wanted_by
from llm_serving_exporter.engines.registry import RUNTIMES
from llm_serving_exporter.expose.collector import Setup, ViewCollector
from llm_serving_exporter.expose.encode import encode
from llm_serving_exporter.fetch.http import HttpClient
from llm_serving_exporter.fetch.page import PageParser
from llm_serving_exporter.model.sample import Page
from llm_serving_exporter.model.target import ModelSettings, Target
from llm_serving_exporter.settings.config import Config
from llm_serving_exporter.targets.host import TargetHost
from tests.made.sglang_ranks import page as sglang_ranks
from tests.support.builders.recordings import page as recorded_page
from tests.support.builders.recordings import recording
from tests.support.servers.server_process import free_port

# until every plan is made and the window has its usual twelve snapshots
WARM_UP = 50
# pages that our cycle makes at a time: 34 MB of the usual one; pages of a peer's, made before anything is measured
OUR_PAGES_AHEAD, PAGES_AHEAD = 600, 1000
# 15 s over 5 s
SCRAPED_EVERY = 3
# between two scrapes of a peer, and between two pages
PACE_SECONDS = 0.02
# GET waits for a server: what is not its CPU time counts in no stage
_STAGES: tuple[tuple[str, type, str], ...] = (
    ("GET", HttpClient, "get_metrics"),
    ("parse", PageParser, "parse"),
    ("normalise", Normaliser, "apply"),
    ("derive what a tick needs", Tick, "__init__"),
    ("GPUs and cost", Costs, "advance_target"),
    ("page: derive the rest", Tick, "whole"),
)
_TICK, _PAGE = "the rest of a tick: window, falls, lengths, reading", "page: series and their text"


# /metrics as Prometheus 2.42 asks for it, at every third tick: intervals of 5 s and 15 s
SCRAPED = "scraped every third tick"


@dataclass
class Counts:
    ticks: int = 0
    # CPU seconds of all ticks, and of all pages
    tick_seconds: float = 0.0
    page_seconds: float = 0.0
    # CPU seconds by stage, where these are told apart
    stages: dict[str, float] = field(default_factory=dict)

    def mean_ms(self, since: Counts) -> float:
        """CPU milliseconds a tick, its share of pages included."""
        spent = self.tick_seconds + self.page_seconds - since.tick_seconds - since.page_seconds
        return 1000 * spent / (self.ticks - since.ticks)


class OurCycle:
    """Ticks until it is closed. `page`: where its target's page is, a file of nginx; `pages`: makes its contents, counters going on.

    `pace_seconds`: between two ticks; 0: back to back. `stages`: tell them apart, which takes time itself. `roofline`: whether the target
    has one, without which the figure would be too good.
    """

    def __init__(
        self,
        target: Target,
        page: Path,
        pages: Callable[[], Iterator[bytes]],
        *,
        pace_seconds: float = 0.0,
        stages: bool = False,
        roofline: bool = True,
    ) -> None:
        context = multiprocessing.get_context("spawn")
        self._ours, theirs = context.Pipe()
        self._process = context.Process(
            target=_run, args=(theirs, target, page, pages, pace_seconds, stages, roofline), daemon=True
        )
        self._process.start()
        theirs.close()
        if (problem := self._ours.recv()) is not None:
            raise SystemExit(problem)

    def count(self) -> Counts:
        self._ours.send("count")
        found: Counts = self._ours.recv()
        return found

    def close(self) -> None:
        self._ours.send("end")
        self._process.join(10)


def _move(page: Path, pages: Iterator[bytes]) -> Iterator[None]:
    """Shows the next page each time. They are made many at a time, so that making one is not what happens just before a tick."""
    fresh = page.with_suffix(".new")
    while True:
        for body in list(itertools.islice(pages, OUR_PAGES_AHEAD)):
            fresh.write_bytes(body)
            fresh.replace(page)
            yield


def _run(
    connection: Connection,
    target: Target,
    page: Path,
    pages: Callable[[], Iterator[bytes]],
    pace_seconds: float,
    stages: bool,
    roofline: bool,
) -> None:
    counts, spent = Counts(), defaultdict[str, float](float)
    if stages:
        for label, owner, name in _STAGES:
            _time_calls(owner, name, label, spent)

    def monotonic() -> float:
        # as if five seconds after the last
        return time.monotonic() + 5.0 * counts.ticks

    host = TargetHost(Config(targets=(), prices=PRICES), monotonic=monotonic)
    hosted, store, registry = host.add_target(target), Store(), CollectorRegistry()
    store.add_target(target)
    registry.register(ViewCollector(store.view, lambda: Setup(15.0, 15.0, "node"), monotonic))

    moved = _move(page, pages())

    def tick() -> None:
        next(moved)
        before = time.process_time()
        reading = hosted.tick()
        store.put_target(reading)
        counts.tick_seconds += time.process_time() - before
        counts.ticks += 1
        if counts.ticks % SCRAPED_EVERY == 0:
            before = time.process_time()
            encode(registry, PROMETHEUS_ACCEPTS)
            counts.page_seconds += time.process_time() - before
        if not reading.page.up:
            raise SystemExit(reading.page.problem)

    tick()
    hosted.refresh_facts()
    for _ in range(WARM_UP):
        tick()
    derived = hosted.tick().page.derived
    known = not roofline or (derived is not None and bool(derived.engines[0].roofline.ratio))
    # the figure would be too good
    connection.send(None if known else "the roofline is not worked out")
    gc.freeze()  # as the daemon does once it is up
    following = time.monotonic()
    while known:
        tick()
        following = max(following + pace_seconds, time.monotonic() - pace_seconds)
        if connection.poll(max(0.0, following - time.monotonic()) if pace_seconds else 0.0):
            if connection.recv() == "end":
                return
            counts.stages = _complete_stages(spent, counts) if stages else {}
            connection.send(counts)


def _time_calls(owner: type, name: str, label: str, spent: dict[str, float]) -> None:
    """Has the CPU seconds of each call added to `spent`, those of calls within it not."""
    call: Callable[..., Any] = getattr(owner, name)

    @contextmanager
    def noted() -> Iterator[None]:
        _UNDER_WAY.append(0.0)
        began = time.process_time()
        try:
            yield
        finally:
            whole = time.process_time() - began
            spent[label] += whole - _UNDER_WAY.pop()
            if _UNDER_WAY:
                _UNDER_WAY[-1] += whole

    @wraps(call)
    def timed(*args: Any, **more: Any) -> Any:
        with noted():
            return call(*args, **more)

    @wraps(call)
    async def timed_wait(*args: Any, **more: Any) -> Any:
        with noted():
            found: Awaitable[Any] = call(*args, **more)
            return await found

    setattr(owner, name, timed_wait if name.startswith("get_") else timed)


# CPU seconds within each call that is under way
_UNDER_WAY: list[float] = []


def _complete_stages(spent: Mapping[str, float], counts: Counts) -> dict[str, float]:
    """With what is left of ticks and of pages. The rest of derive is asked for by pages alone."""
    of_pages = {label: seconds for label, seconds in spent.items() if label.startswith("page")}
    of_ticks = {label: seconds for label, seconds in spent.items() if label not in of_pages}
    return {
        **of_ticks,
        _TICK: counts.tick_seconds - sum(of_ticks.values()),
        **of_pages,
        _PAGE: counts.page_seconds - sum(of_pages.values()),
    }


# --- peers beside it


@contextmanager
def show_pages(nginx: Nginx, pages: Iterator[bytes], count: int = PAGES_AHEAD) -> Iterator[None]:
    """Shows another page every 20 ms. They are made before: what makes them is no part of what is measured."""
    ahead = itertools.cycle(list(itertools.islice(pages, count)))
    nginx.show(next(ahead))
    with repeat(PACE_SECONDS, lambda: nginx.show(next(ahead))):
        yield


def side_by_side(
    ours: OurCycle, program: Program, scrapes: Callable[[], float], seconds: float, idle: float
) -> tuple[float, float]:
    """CPU ms of our cycle and of the peer's, over the same seconds and pages: a machine's speed may change from one minute to the next.
    `idle`: CPU seconds a second that the peer uses while it scrapes nothing. Ends our cycle."""
    time.sleep(3)
    cpu, done, first, started = program.cpu_seconds(), scrapes(), ours.count(), time.monotonic()
    time.sleep(seconds)
    elapsed = time.monotonic() - started
    used, made = program.cpu_seconds() - cpu - idle * elapsed, scrapes() - done
    found = ours.count().mean_ms(first), 1000 * used / made
    ours.close()
    return found


def idle_share(peer: Peer, folder: Path, nginx: Nginx, seconds: float = 5.0) -> float:
    """CPU seconds a second of a peer that scrapes nothing."""
    with peer.start(folder, nginx, scrape_config((), "20ms"), free_port()) as program:
        time.sleep(3)
        before = program.cpu_seconds()
        time.sleep(seconds)
        return (program.cpu_seconds() - before) / seconds


# label -> seconds between two ticks; the first is the one that has a budget
CYCLES: Mapping[str, float] = {SCRAPED: 0.0, f"{SCRAPED}, at 20 ms": PACE_SECONDS}


def measure_peers(folder: Path, nginx: Nginx, seconds: float) -> dict[str, float]:
    """CPU ms per scrape of each peer at 20 ms between scrapes, and of ours over that beside it.

    Each of ours runs beside vmagent, one after the other: two cores have room for one that ticks back to back. One of them runs
    beside the other peers.
    """
    found: dict[str, float] = {}
    with show_pages(nginx, moving_pages()):
        for peer in PEERS:
            say(f"measuring {peer.name} …")
            idle, port = idle_share(peer, folder, nginx), free_port()
            with peer.start(folder, nginx, scrape_config((nginx.address,), "20ms"), port) as program:
                scrapes = partial(metric, f"http://127.0.0.1:{port}/metrics", peer.counter)
                for label, pace in CYCLES.items():
                    if peer is not VMAGENT and label != SCRAPED:
                        continue
                    ours = OurCycle(
                        make_target(nginx.url, "/ours"), nginx.place("ours"), moving_pages, pace_seconds=pace
                    )
                    each, theirs = side_by_side(ours, program, scrapes, seconds, idle)
                    found.setdefault(peer.name, theirs)
                    found[f"{peer.name}: {label}"] = each / theirs
                    if peer is VMAGENT:
                        found[label] = each
    return found


def measure_peers_resident(folder: Path, nginx: Nginx) -> dict[str, float]:
    """MB of each peer with one target at 5 s."""
    found = {}
    for peer in PEERS:
        with peer.start(folder, nginx, scrape_config((nginx.address,), "5s"), free_port()) as program:
            time.sleep(15)
            found[peer.name] = program.resident_bytes() / 1e6
    return found


def measure_stages(nginx: Nginx, seconds: float) -> list[tuple[str, float]]:
    """CPU milliseconds a tick of each stage of the cycle that is scraped, the page's as its share of every third tick. Telling them
    apart adds to each."""
    say(f"measuring our stages, {seconds:.0f} s …")
    one = OurCycle(make_target(nginx.url, "/stages"), nginx.place("stages"), moving_pages, stages=True)
    before = one.count()
    time.sleep(seconds)
    after = one.count()
    one.close()
    return [
        (label, 1000 * (seconds - before.stages.get(label, 0.0)) / (after.ticks - before.ticks))
        for label, seconds in after.stages.items()
    ]


def move_large(name: str) -> Iterator[bytes]:
    """Pages that differ as pages of a loaded server differ, second after second, counters going on for ever."""
    if name == "dynamo-frontend":
        run = recording("dynamo-1.6.1-frontend")
        pages = [run.pages[number] for number in (52, 56)]
    else:
        # a model name of usual length, which stands on every line
        made = (sglang_ranks(8, dp=True, number=number) for number in (46, 58))
        pages = [page.replace(b"tiny-llama", b"meta-llama/Llama-3.3-70B-Instruct") for page in made]
    return carry_on(pages)


def measure_large(
    folder: Path, nginx: Nginx, pages: Callable[[], Iterator[bytes]], seconds: float
) -> tuple[float, float]:
    """Ours, the model known, and vmagent's."""
    model = ModelSettings(name="Qwen3-30B-A3B")
    target = Target("bench", nginx.url, metrics_path="/ours", model=model, gpu_model="H100 SXM", gpu_count=8)
    idle, port = idle_share(VMAGENT, folder, nginx), free_port()
    ours = OurCycle(target, nginx.place("ours"), pages, roofline=False)
    with (
        show_pages(nginx, pages(), count=200),
        VMAGENT.start(folder, nginx, scrape_config((nginx.address,), "20ms"), port) as program,
    ):
        scrapes = partial(metric, f"http://127.0.0.1:{port}/metrics", VMAGENT.counter)
        return side_by_side(ours, program, scrapes, seconds, idle)


def measure_daemon(folder: Path, nginx: Nginx, nvml: Mapping[str, str] | None = None) -> tuple[float, float]:
    """MB resident, and the share of a core, of the daemon with one target at 5 s. `nvml`: an environment that makes it find one; None: it
    does not read GPUs."""
    say("measuring the daemon's CPU and resident size, a minute …")
    config = {"gpu": {"enabled": nvml is not None}, "targets": [{"url": nginx.url}]}
    exporter, port = start_exporter(folder, config, environment=nvml)
    with exporter as program:
        time.sleep(25)
        for _ in range(3):
            fetch(f"http://127.0.0.1:{port}/metrics")
        cpu = program.cpu_seconds()
        time.sleep(30)
        return program.resident_bytes() / 1e6, (program.cpu_seconds() - cpu) / 30


def plain_pass(body: bytes) -> dict[str, str]:
    """The peer: decode, split, cut each sample line at its last blank, put the strings into a dict."""
    found = {}
    for line in body.decode().split("\n"):
        if line and line[0] != "#":
            series, _, value = line.rpartition(" ")
            found[series] = value
    return found


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


def measure_parse() -> tuple[float, float]:
    """Milliseconds of our parser in its steady state, every value that moved read anew, and of a plain pass."""
    body = recorded_page("vllm-0.32-mfu", 60)
    parser = PageParser(wanted_by(RUNTIMES["vllm"]))
    pages = itertools.cycle(Page(recorded_page("vllm-0.32-mfu", n), "text/plain", 0.0, 0.0) for n in (60, 61))
    parser.parse(next(pages))
    return best_ms(lambda: parser.parse(next(pages)), 400), best_ms(lambda: plain_pass(body), 400)


def measure_usual(arguments: argparse.Namespace) -> dict[str, Any]:
    """The usual page: our figures and the peers', printed and as they go into the file."""
    parse, plain = measure_parse()
    runs: list[dict[str, float]] = []
    resident: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        nginx = Nginx(recorded_page("vllm-0.32-mfu", 60), folder)
        with nginx.program:
            stages = measure_stages(nginx, arguments.seconds)
            if not arguments.no_peers:
                runs = [measure_peers(folder, nginx, arguments.seconds) for _ in range(arguments.runs)]
                resident = measure_peers_resident(folder, nginx)
            size, share = measure_daemon(folder, nginx)
            beside_nvml, _ = measure_daemon(folder, nginx, build_nvml(folder, gpus=1))
    rows = []
    for key in runs[0] if runs else ():
        values, ratio = [run[key] for run in runs], ":" in key
        budget = "at most 1 x" if key == f"vmagent: {SCRAPED}" else ""
        rows.append((f"ours / {key}" if ratio else f"CPU, {key}", spread(values, "x" if ratio else "ms"), budget))
    rows += [(f"stage: {label}", f"{each:.3f} ms", "") for label, each in stages]
    rows += [
        ("parse alone, steady state", f"{parse:.3f} ms", "at most a plain pass"),
        ("plain split-and-dict pass", f"{plain:.3f} ms", f"ours is {parse / plain:.2f} x"),
        ("CPU of the whole daemon, one target at 5 s", f"{100 * share:.2f} % of a core", ""),
        ("resident memory of the daemon, without NVML", f"{size:.1f} MB", "at most 42 MB"),
        ("resident memory, the tests' NVML, one GPU", f"{beside_nvml:.1f} MB", ""),
        ("the same with what a real driver keeps", f"{beside_nvml + DRIVER_RESIDENT_BYTES / 1e6:.1f} MB", ""),
        *((f"resident memory, {peer}", f"{each:.1f} MB", "") for peer, each in resident.items()),
    ]
    print_table(("what", "median of runs, least to most", "budget"), rows)
    return {"runs": runs, "stages": stages, "resident": resident}


def measure_pages(seconds: float) -> list[dict[str, Any]]:
    """The largest pages: printed, and as they go into the file."""
    rows, found = [], []
    for name in ("dynamo-frontend", "sglang-8-ranks"):
        pages = partial(move_large, name)
        body = next(pages())
        with tempfile.TemporaryDirectory() as folder:
            nginx = Nginx(body, Path(folder))
            with nginx.program:
                say(f"measuring {name}, about {seconds + 30:.0f} s …")
                ours, theirs = measure_large(Path(folder), nginx, pages, seconds)
        rows.append(
            (name, f"{len(body) / 1000:.0f} KB", f"{theirs:.2f} ms", f"{ours:.2f} ms", f"{ours / theirs:.2f} x")
        )
        found.append({"page": name, "bytes": len(body), "vmagent_ms": theirs, "ours_ms": ours})
    print_table(("page", "size", "vmagent", "scraped", "ours is, at most 0.6 x"), rows)
    return found


def main() -> None:
    parser = make_parser("cycle", __doc__)
    parser.add_argument("--runs", type=int, default=1, help="of what stands beside peers (default 1)")
    parser.add_argument("--seconds", type=float, default=15.0, help="seconds each peer scrapes (default 15)")
    parser.add_argument("--no-peers", action="store_true", help="leave the peers and the largest pages out")
    parser.add_argument("--json", type=Path, help="where the figures go, too")
    arguments = parser.parse_args()
    require_bytecode()
    say(describe_machine())
    found = measure_usual(arguments)
    found["pages"] = [] if arguments.no_peers else measure_pages(arguments.seconds)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps({"machine": describe_machine(), **found}, indent=1))


if __name__ == "__main__":
    main()
