"""Programs on loopback with their CPU and memory, a page that moves, what asks for it beside us, and what a query costs.

Each program has a folder of its own and is ended by its process id. `make bench` installs the peers but one: the OpenTelemetry Collector
takes long to build (`scripts/setup.sh tools otelcol`), and is left out where it is missing.
"""

from __future__ import annotations

import argparse
import itertools
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.request import ProxyHandler, build_opener

import yaml

from bench.shared import wait_until
from llm_serving_exporter.model.cost import PriceBook, PriceStatement, Rate, RateKind, Scope
from llm_serving_exporter.model.target import ModelSettings, Target
from llm_serving_exporter.settings.kinds import parse_duration
from llm_serving_simulator.replay import Carry, demo_model_config
from tests.nvml_stub.stub import StubState, build_stub, stub_environment
from tests.support.builders.recordings import recording
from tests.support.servers.prometheus_server import PrometheusServer
from tests.support.servers.server_process import find_program, free_port

TICK = os.sysconf("SC_CLK_TCK")
# of one nginx
CONNECTIONS = 8192
# what nvmlInit of a real driver keeps resident and the tests' NVML does not: 18 MB, driver 580, H100, 2026-11-26
DRIVER_RESIDENT_BYTES = 18_000_000
# what Prometheus 2.42 asks for: OpenMetrics first
PROMETHEUS_ACCEPTS = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
_OPENER = build_opener(ProxyHandler({}))


def fetch(url: str, timeout_seconds: float = 5.0) -> str:
    with _OPENER.open(url, timeout=timeout_seconds) as answer:
        return str(answer.read().decode())


def fetch_any(url: str) -> str | None:
    """None where nobody answers yet."""
    with suppress(OSError):
        return fetch(url)
    return None


def need(program: str) -> str:
    found = find_program(program) or shutil.which(program, path="/usr/sbin:/sbin")
    if found is None:
        raise SystemExit(f"{program} is missing; `make bench` installs it")
    return found


def build_nvml(folder: Path, gpus: int) -> dict[str, str]:
    """What a daemon needs in its environment to see so many GPUs by the tests' own NVML."""
    return stub_environment(build_stub(folder), StubState(folder / "nvml.state", gpus).path)


def sum_thread_cpu_seconds(pid: int) -> float:
    """CPU to the nanosecond, of the threads that there are: for programs that keep theirs."""
    threads = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e9


class Program:
    """A process with its CPU seconds and resident bytes read from /proc."""

    def __init__(
        self, *command: str, ready_url: str | None = None, environment: Mapping[str, str] | None = None
    ) -> None:
        self._command, self._ready_url = command, ready_url
        self._environment = {**os.environ, **(environment or {})}

    def __enter__(self) -> Program:
        self._log = tempfile.TemporaryFile()
        self.process = subprocess.Popen(self._command, stdout=self._log, stderr=self._log, env=self._environment)
        if url := self._ready_url:
            wait_until(
                lambda: self.process.poll() is not None or fetch_any(url) is not None, 20, self._describe_failure
            )
            if self.process.poll() is not None:
                raise SystemExit(self._describe_failure())
        return self

    def _describe_failure(self) -> str:
        self._log.seek(0)
        return f"{self._command[0]} did not start:\n{self._log.read().decode()[-2000:]}"

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._log.close()

    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / TICK

    def count(self, what: str) -> int:
        """How many it has of what /proc lists: "task" (threads) or "fd" (open files)."""
        return len(os.listdir(f"/proc/{self.process.pid}/{what}"))

    def resident_bytes(self) -> int:
        """With all of what it shares with other processes."""
        return self._find_bytes("VmRSS")

    def peak_resident_bytes(self) -> int:
        """The most that it was so far."""
        return self._find_bytes("VmHWM")

    def _find_bytes(self, name: str) -> int:
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) * 1024
        raise SystemExit(f"{name} is missing from /proc/PID/status")


class Nginx:
    """nginx with the page at /metrics (keep-alive, no TLS), and a /write that takes remote writes and forgets them."""

    def __init__(self, page: bytes, folder: Path, *, everywhere: bool = False, log: Path | None = None) -> None:
        """`everywhere`: on all addresses of loopback, as many servers with one page.

        `log`: gets a line for each answer: Unix seconds, path, and the client's own name for itself.
        """
        self.port = free_port()
        listen = f"listen {self.port}; allow 127.0.0.0/8; deny all" if everywhere else f"listen 127.0.0.1:{self.port}"
        (folder / "page").mkdir()
        self._page = folder / "page" / "metrics"
        self._page.write_bytes(page)
        (folder / "tmp").mkdir()
        config = folder / "nginx.conf"
        temp = " ".join(
            f"{kind}_temp_path {folder}/tmp/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        )
        config.write_text(
            f"daemon off; master_process off; pid {folder}/nginx.pid; error_log stderr error;\n"
            f"worker_rlimit_nofile {CONNECTIONS}; events {{ worker_connections {CONNECTIONS}; }}\n"
            "http { log_format asked '$msec $request_uri $http_user_agent'; "
            f"access_log {f'{log} asked' if log else 'off'}; {temp} keepalive_requests 100000000; client_max_body_size 64m;\n"
            f"server {{ {listen}; root {folder}/page; default_type 'text/plain; version=0.0.4';\n"
            "location ~ ^/replica-[0-9]+/metrics$ { try_files /metrics =404; }\n"
            "location /write { client_body_in_single_buffer on; return 204; } } }\n"
        )
        folder.chmod(0o755)
        self.address = f"127.0.0.1:{self.port}"
        self.url = f"http://{self.address}"
        self.program = Program(need("nginx"), "-c", str(config), "-p", str(folder), ready_url=f"{self.url}/metrics")

    def place(self, name: str) -> Path:
        """The file of a page of its own, at /name."""
        return self._page.with_name(name)

    def show(self, page: bytes) -> None:
        fresh = self._page.with_suffix(".new")
        fresh.write_bytes(page)
        fresh.replace(self._page)


def add_daemon_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--nofile", help="soft:hard limit of the exporter's open files")
    parser.add_argument("--source", type=Path, help="the folder that holds another version of the package")


def start_exporter(
    folder: Path,
    config: Mapping[str, object],
    *words: str,
    environment: Mapping[str, str] | None = None,
    nofile: str | None = None,
    source: Path | None = None,
    ready: str | None = "/-/healthy",
) -> tuple[Program, int]:
    """The daemon with that configuration, and its port.

    `nofile`: soft:hard limit of its open files. `source`: the folder that holds another version of the package. `ready`: what answers once
    it serves; None: whoever asks waits by himself.
    """
    path, port = folder / "exporter.yml", free_port()
    path.write_text(yaml.safe_dump(dict(config)))
    limited = [shutil.which("prlimit") or "prlimit", f"--nofile={nofile}"] if nofile else []
    command = [*limited, sys.executable, "-m", "llm_serving_exporter", "--config.file", str(path), *words]
    own = {**(environment or {}), **({"PYTHONPATH": str(source)} if source else {})}
    ready_url = f"http://127.0.0.1:{port}{ready}" if ready else None
    return Program(*command, f"--web.listen-address=127.0.0.1:{port}", ready_url=ready_url, environment=own), port


# --- a page that moves, and all that is known of its target: the dearest tick there is

# a price too, so that everything is known that there is to know
PRICES = PriceBook((PriceStatement(Scope.TARGET, "bench", 2.5, "owned"),), (Rate("owned", RateKind.OWNED),))


def make_target(url: str, path: str = "/metrics") -> Target:
    model = ModelSettings(config=demo_model_config())
    return Target("bench", url, metrics_path=path, model=model, gpu_model="H100 SXM", gpu_count=1)


def carry_on(pages: Sequence[bytes]) -> Iterator[bytes]:
    """These pages again and again, their counters going on for ever."""
    carry = Carry(pages[0], pages[-1])
    for tick in itertools.count():
        yield carry.page(pages[tick % len(pages)], tick // len(pages))


def moving_pages() -> Iterator[bytes]:
    """The recorded pages of steady load; every series is there from the saturated phase on."""
    run = recording("vllm-0.32-mfu")
    return carry_on([run.pages[number] for number in range(25, 93)])


# --- peers: each takes what Prometheus' own configuration says of scrapes, and serves its own metrics at a port


def scrape_config(targets: Sequence[str], interval: str) -> dict[str, Any]:
    """Prometheus' configuration for addresses that are asked for /metrics."""
    timing = {"scrape_interval": interval, "scrape_timeout": interval}
    return {"global": timing, "scrape_configs": [{"job_name": "page", "static_configs": [{"targets": [*targets]}]}]}


def configure_agent(scrape: dict[str, Any], write_url: str, _port: int) -> dict[str, Any]:
    """Prometheus as an agent only forwards: to where vmagent forwards to."""
    return {**scrape, "remote_write": [{"url": write_url}]}


def configure_collector(scrape: dict[str, Any], write_url: str, port: int) -> dict[str, Any]:
    """The OpenTelemetry Collector's: what its receiver scrapes is forwarded to `write_url`; its own metrics are read at `port`."""
    own_metrics = {"pull": {"exporter": {"prometheus": {"host": "127.0.0.1", "port": port}}}}
    pipeline = {"receivers": ["prometheus"], "exporters": ["prometheusremotewrite"]}
    return {
        "receivers": {"prometheus": {"config": scrape}},
        "exporters": {"prometheusremotewrite": {"endpoint": write_url}},
        "service": {"telemetry": {"metrics": {"readers": [own_metrics]}}, "pipelines": {"metrics": pipeline}},
    }


@dataclass(frozen=True)
class Peer:
    name: str
    program: str
    # its words, with {config} and {folder} of its own, {port} of its own metrics, {write}, which takes remote writes, and what is scraped:
    # {url}, or nothing, at every {seconds}
    words: str
    # of its own metrics: how many scrapes it has made
    counter: str
    configure: Callable[[dict[str, Any], str, int], dict[str, Any]] = lambda scrape, _write_url, _port: scrape
    ready: str = "/metrics"

    def start(self, folder: Path, nginx: Nginx, scrape: dict[str, Any], port: int) -> Program:
        own, write_url = folder / f"{Path(self.program).name}-{port}", f"{nginx.url}/write"
        config = own.with_suffix(".yml")
        config.write_text(yaml.safe_dump(self.configure(scrape, write_url, port)))
        seconds = parse_duration(scrape["global"]["scrape_interval"])
        url = nginx.url + "/metrics" if scrape["scrape_configs"][0]["static_configs"][0]["targets"] else ""
        places = {
            "config": config,
            "folder": own,
            "port": port,
            "write": write_url,
            "url": url,
            "seconds": f"{seconds:g}",
        }
        words = [word.format(**places) for word in self.words.split()]
        return Program(need(self.program), *words, ready_url=f"http://127.0.0.1:{port}{self.ready}")


_PROMETHEUS = "--config.file={config} --web.listen-address=127.0.0.1:{port}"
_INTERVALS = "prometheus_target_interval_length_seconds_count"
VMAGENT = Peer(
    "vmagent", "vmagent",
    "-promscrape.config={config} -remoteWrite.url={write} -httpListenAddr=127.0.0.1:{port} -remoteWrite.tmpDataPath={folder}",
    "vm_promscrape_scrapes_total",
)  # fmt: skip
_EVERY = (
    VMAGENT,
    Peer("prometheus", "prometheus", f"{_PROMETHEUS} --storage.tsdb.path={{folder}}", _INTERVALS, ready="/-/ready"),
    Peer(
        "prometheus agent", "prometheus", f"{_PROMETHEUS} --enable-feature=agent --storage.agent.path={{folder}}", _INTERVALS,
        configure_agent, "/-/ready",
    ),
    # what a team writes by itself
    Peer("naive exporter", sys.executable, "-m bench.naive {port} {seconds} {url}", "naive_scrapes_total"),
    # it writes once for each scrape (404 writes for 404 scrapes at 20 ms, version 0.165.0)
    Peer(
        "opentelemetry collector", "otelcol", "--config=file:{config}",
        "otelcol_exporter_prometheusremotewrite_sent_batches", configure_collector,
    ),
)  # fmt: skip
PEERS = tuple(peer for peer in _EVERY if peer.program != "otelcol" or find_program("otelcol"))


def metric(url: str, name: str) -> float:
    lines = (line for line in fetch(url).splitlines() if line.startswith(name) and line[len(name)] in " {")
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines)


# --- what a query costs a Prometheus


@dataclass(frozen=True)
class QueryCost:
    """Of one query, or of several. `evaluation_seconds`: as Prometheus says; `cpu_seconds`: of all that it did meanwhile; `samples`: that
    were looked at, and `peak_samples` the most at once."""

    evaluation_seconds: float = 0.0
    cpu_seconds: float = 0.0
    samples: int = 0
    peak_samples: int = 0
    sent_bytes: int = 0
    answer_bytes: int = 0
    queries: int = 1

    def __add__(self, other: QueryCost) -> QueryCost:
        """Of both together, one after the other."""
        added = {name: getattr(self, name) + getattr(other, name) for name in (one.name for one in fields(self))}
        return QueryCost(**{**added, "peak_samples": max(self.peak_samples, other.peak_samples)})


def ask_query(server: PrometheusServer, path: str, query: str, **more: str) -> tuple[QueryCost, Any]:
    """What a query costs, and the data of its answer. Raises SystemExit for one that is refused."""
    before = sum_thread_cpu_seconds(server.pid)
    answer = server.http.post(server.url + path, data={"query": query, "stats": "all", **more}, timeout=600)
    cpu_seconds = sum_thread_cpu_seconds(server.pid) - before
    body = answer.json()
    if body["status"] != "success":
        raise SystemExit(f"{body['error']}: {query}")
    timings, samples = (body["data"]["stats"][name] for name in ("timings", "samples"))
    counts = samples["totalQueryableSamples"], samples["peakSamples"], len(query.encode()), len(answer.content)
    return QueryCost(timings["evalTotalTime"], cpu_seconds, *counts), body["data"]
