"""Resident memory of the daemon as it is installed: `.venv/bin/python -m bench.resident`, about ten minutes.

- one server without NVML, which is what the exporter itself takes, and beside NVML (the tests' own), as in a sidecar or on a host;
- the eight pods of one node out of 2,000 that the API server has, beside NVML with eight GPUs, as in a DaemonSet: first without a kubelet,
  then with one that says which pod has which GPU;
- all 2,000 pods at 15 s, as one exporter without shards, whose page is read only once, at the end.

The servers answer with a recorded page that moves, each daemon but the last is scraped every 15 s as by Prometheus, and all five run at
a time. API server: bench/stand_in.py. Memory does not depend on how busy the machine is. A real driver
keeps more than the tests' NVML: what was measured of it is added in a column of its own.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from bench.peers import DRIVER_RESIDENT_BYTES, Nginx, Program, build_nvml, fetch, moving_pages, start_exporter
from bench.shared import make_parser, print_table, repeat, require_bytecode, say, spread, wait_until
from bench.stand_in import NAMESPACE, NODE_GPUS, name_node, name_pod
from tests.nvml_stub.stub import StubState
from tests.support.servers.kube_api import Manifest
from tests.support.servers.kubelet import StubKubelet

SCRAPE_SECONDS = 15.0
# of a page of all pods, which is 130 MB large, on a machine that others use too
PAGE_SECONDS = 120.0
START_LIMIT_SECONDS = 120.0


@dataclass(frozen=True)
class Size:
    """Of one daemon at the end. Bytes."""

    resident: int
    resident_after_page: int
    up: int  # targets that were read last
    linked: int  # GPUs of which it is known whose they are


def configure(nginx: Nginx, kubeconfig: str, socket: Path, pods: int) -> dict[str, tuple[Manifest, int, int]]:
    """Label of a row -> configuration, its targets, GPUs that NVML shows."""
    gpu = {"enabled": True, "pod_resources_socket": str(socket)}
    alone = {"enabled": True, "pod_resources_socket": str(socket.with_name("none.sock"))}
    section = {"namespaces": [NAMESPACE], "kubeconfig": kubeconfig}
    own = {"kubernetes": [{**section, "node": "own"}]}
    scrape = {"scrape": {"interval": "15s"}}
    return {
        "one server, no NVML": ({"gpu": {**alone, "enabled": False}, "targets": [{"url": nginx.url}]}, 1, 0),
        "one server, NVML": ({"gpu": alone, "targets": [{"url": nginx.url}]}, 1, 1),
        f"{NODE_GPUS} of {pods} pods, NVML": ({"gpu": alone, **own}, NODE_GPUS, NODE_GPUS),
        f"{NODE_GPUS} of {pods} pods, NVML, kubelet": ({"gpu": gpu, **own}, NODE_GPUS, NODE_GPUS),
        f"{pods} pods, NVML, kubelet": ({**scrape, "gpu": gpu, "kubernetes": [section]}, pods, NODE_GPUS),
    }


@contextmanager
def run_stand_in(folder: Path, pods: int, port: int) -> Iterator[str]:
    """The path of a kubeconfig for an API server that has so many pods, whose engines are at `port`."""
    folder.mkdir()
    kubeconfig, words = folder / "kubeconfig", ("--pods", str(pods), "--port", str(port))
    with Program(sys.executable, "-m", "bench.stand_in", str(folder), *words) as program:
        wait_until(
            lambda: kubeconfig.exists() or program.process.poll() is not None,
            START_LIMIT_SECONDS,
            lambda: "the stand-in did not start",
        )
        yield str(kubeconfig)


def wait_for_targets(url: str, targets: int) -> None:
    page = ""

    def read() -> bool:
        nonlocal page
        with suppress(TimeoutError):  # while it starts on a machine that others use too
            page = fetch(url, 30.0)
        return page.count("llm_serving_target_up{") >= targets

    wait_until(
        read, START_LIMIT_SECONDS, lambda: f"{page.count('llm_serving_target_up{')} of {targets} targets: {page[:2000]}"
    )


def measure_sizes(folder: Path, pods: int, seconds: float, *, fleet: bool) -> dict[str, Size]:
    """`fleet`: also of the one with all pods."""
    pages = moving_pages()
    with ExitStack() as stack:
        nginx = Nginx(next(pages), folder, everywhere=True)
        stack.enter_context(nginx.program)
        kubeconfig = stack.enter_context(run_stand_in(folder / "api", pods, nginx.port))
        kubelet = stack.enter_context(StubKubelet(folder / "kubelet" / "kubelet.sock"))
        for number in range(NODE_GPUS):
            kubelet.give(NAMESPACE, name_pod(number), "vllm", ids=[StubState.uuid(number)])
        rows = configure(nginx, kubeconfig, kubelet.path, pods)
        scraped = [*rows][:-1]
        if not fleet:
            rows = {label: rows[label] for label in scraped}
        daemons: dict[str, tuple[Program, str]] = {}
        for number, (label, (config, _, gpus)) in enumerate(rows.items()):
            own = folder / str(number)
            own.mkdir()
            environment = {**build_nvml(own, gpus), "NODE_NAME": name_node(0)}
            daemon, port = start_exporter(own, config, environment=environment)
            daemons[label] = stack.enter_context(daemon), f"http://127.0.0.1:{port}/metrics"
        for label in scraped:
            wait_for_targets(daemons[label][1], rows[label][1])

        def scrape() -> None:
            for label in scraped:
                with suppress(OSError):
                    fetch(daemons[label][1], 30.0)

        # as often as Prometheus would
        with repeat(SCRAPE_SECONDS, scrape), repeat(1.0, lambda: nginx.show(next(pages))):
            time.sleep(seconds)
        sizes = {}
        for label, (program, url) in daemons.items():
            resident = program.resident_bytes()
            page = ""
            with suppress(OSError):
                page = fetch(url, PAGE_SECONDS)
            lines = [line for line in page.splitlines() if line.startswith("llm_serving_target_up{")]
            up = sum(line.split("} ")[1].startswith("1") for line in lines)
            sizes[label] = Size(resident, program.resident_bytes(), up, page.count("llm_serving_gpu_target_info{"))
        return sizes


def main() -> None:
    parser = make_parser("resident", __doc__)
    parser.add_argument("--pods", type=int, default=2000)
    parser.add_argument("--seconds", type=float, default=120.0, help="how long they run (default 120)")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--no-fleet", action="store_true", help="leave out the one with all pods")
    arguments = parser.parse_args()
    require_bytecode()
    found: dict[str, list[Size]] = {}
    for run in range(arguments.runs):
        say(f"run {run + 1} of {arguments.runs} …")
        with tempfile.TemporaryDirectory() as name:
            what = Path(name), arguments.pods, arguments.seconds
            for label, size in measure_sizes(*what, fleet=not arguments.no_fleet).items():
                found.setdefault(label, []).append(size)
    heads = f"median of {arguments.runs}", "RSS", "RSS on a real driver", "RSS after one more page", "up", "GPUs"
    rows = []
    for label, sizes in found.items():
        driver = 0 if "no NVML" in label else DRIVER_RESIDENT_BYTES
        on_driver = f"{(statistics.median(size.resident for size in sizes) + driver) / 1e6:.1f} MB"
        resident, after = (
            spread([getattr(size, name) / 1e6 for size in sizes], "MB", 1)
            for name in ("resident", "resident_after_page")
        )
        least = (str(min(getattr(size, name) for size in sizes)) for name in ("up", "linked"))
        rows.append((label, resident, on_driver, after, *least))
    print_table(heads, rows)
    say("up: targets that were read; GPUs: those of which it is known whose they are.")


if __name__ == "__main__":
    main()
