"""What the benches share: their command line, programs on loopback with their CPU and memory, a page that moves, and the peers.

Each program has a folder of its own and is ended by its process id. `make bench` installs the peers but one: the OpenTelemetry Collector
takes long to build (`scripts/setup.sh tools otelcol`), and is left out where it is missing.
"""

from __future__ import annotations

import argparse
import itertools
import os
import platform
import shutil
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from urllib.request import ProxyHandler, build_opener

import yaml

from llm_serving_exporter.model.cost import PriceBook, PriceStatement, Rate, RateKind, Scope
from llm_serving_exporter.model.target import ModelSettings, Target
from llm_serving_simulator.replay import Carry, demo_model_config
from tests.nvml_stub.stub import StubState, build_stub, stub_environment
from tests.support.builders.recordings import recording
from tests.support.servers.server_process import find_program, free_port

TICK = os.sysconf("SC_CLK_TCK")
# of one nginx
CONNECTIONS = 8192
# what nvmlInit of a real driver keeps resident and the tests' NVML does not: 18 MB, driver 580, H100, 2026-11-26
DRIVER_RESIDENT_BYTES = 18_000_000
# what Prometheus 2.42 asks for: OpenMetrics first
PROMETHEUS_ACCEPTS = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
__all__ = ["free_port"]
_OPENER = build_opener(ProxyHandler({}))


def say(text: str) -> None:
    print(text, flush=True)


def make_parser(name: str, doc: str | None) -> argparse.ArgumentParser:
    return argparse.ArgumentParser(
        prog=f"python -m bench.{name}", description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )


def require_bytecode() -> None:
    """Modules that are compiled at each start leave 8 to 15 MB behind, and take the time."""
    if sys.dont_write_bytecode:
        raise SystemExit("PYTHONDONTWRITEBYTECODE is set: compiling at start leaves memory behind. Unset it.")


def describe_machine() -> str:
    """The day, the cores and which Python this is: built with the optimisations that distributions build it with, or not."""
    optimised = "--enable-optimizations" in (sysconfig.get_config_var("CONFIG_ARGS") or "")
    python = f"CPython {platform.python_version()}, built {'with' if optimised else 'without'} optimisations"
    return f"{datetime.now(UTC):%Y-%m-%d}, {os.cpu_count()} cores, {platform.machine()}, {python}"


def quantile(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def spread(values: Sequence[float], unit: str, digits: int = 2) -> str:
    """The median of runs, from the least to the most."""
    middle = f"{statistics.median(values):.{digits}f} {unit}"
    return middle if len(values) < 2 else f"{middle} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def print_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """As Markdown."""
    say(f"\n| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    for row in rows:
        say(f"| {' | '.join(row)} |")


def fetch(url: str, timeout_seconds: float = 5.0) -> str:
    with _OPENER.open(url, timeout=timeout_seconds) as answer:
        return str(answer.read().decode())


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
        if self._ready_url:
            deadline = time.monotonic() + 20
            while True:
                try:
                    fetch(self._ready_url)
                    break
                except OSError:
                    if time.monotonic() > deadline or self.process.poll() is not None:
                        self._log.seek(0)
                        raise SystemExit(
                            f"{self._command[0]} did not start:\n{self._log.read().decode()[-2000:]}"
                        ) from None
                    time.sleep(0.1)
        return self

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

    def thread_cpu_seconds(self) -> float:
        return sum_thread_cpu_seconds(self.process.pid)

    def resident_bytes(self) -> int:
        """With all of what it shares with other processes."""
        return self._find_bytes("status", "VmRSS")

    def peak_resident_bytes(self) -> int:
        """The most that it was so far."""
        return self._find_bytes("status", "VmHWM")

    def proportional_bytes(self) -> int:
        """With its part of what it shares with other processes: the same program elsewhere on the machine makes it less."""
        return self._find_bytes("smaps_rollup", "Pss")

    def _find_bytes(self, file: str, name: str) -> int:
        for line in Path(f"/proc/{self.process.pid}/{file}").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) * 1024
        raise SystemExit(f"{name} is missing from /proc/PID/{file}")


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
        url = f"http://127.0.0.1:{self.port}/metrics"
        self.program = Program(need("nginx"), "-c", str(config), "-p", str(folder), ready_url=url)
        self.url = f"http://127.0.0.1:{self.port}"

    def place(self, name: str) -> Path:
        """The file of a page of its own, at /name."""
        return self._page.with_name(name)

    def show(self, page: bytes) -> None:
        """Another page from the next request on."""
        fresh = self._page.with_suffix(".new")
        fresh.write_bytes(page)
        fresh.replace(self._page)


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


# --- peers: each is started with Prometheus' own configuration, and the port where it says what it does

Peer = Callable[[Path, Nginx, Path, int], Program]


def metric(url: str, name: str) -> float:
    lines = (line for line in fetch(url).splitlines() if line.startswith(name) and line[len(name)] in " {")
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines)


def scrape_config(folder: Path, name: str, targets: str, interval: str) -> Path:
    path = folder / f"{name}.yml"
    path.write_text(
        f"global: {{scrape_interval: {interval}, scrape_timeout: {interval}}}\n"
        f"scrape_configs: [{{job_name: page, static_configs: [{{targets: [{targets}]}}]}}]\n"
    )
    return path


def vmagent(folder: Path, nginx: Nginx, config: Path, port: int) -> Program:
    return Program(
        need("vmagent"), f"-promscrape.config={config}", f"-remoteWrite.url={nginx.url}/write", f"-httpListenAddr=127.0.0.1:{port}",
        f"-remoteWrite.tmpDataPath={folder}/vmagent-{port}", ready_url=f"http://127.0.0.1:{port}/metrics",
    )  # fmt: skip


def prometheus(folder: Path, _nginx: Nginx, config: Path, port: int) -> Program:
    return Program(
        need("prometheus"), f"--config.file={config}", f"--storage.tsdb.path={folder}/tsdb-{port}",
        f"--web.listen-address=127.0.0.1:{port}", ready_url=f"http://127.0.0.1:{port}/-/ready",
    )  # fmt: skip


def agent(folder: Path, nginx: Nginx, config: Path, port: int) -> Program:
    """Prometheus as an agent, which only forwards: to where vmagent forwards to."""
    own = folder / f"agent-{port}.yml"
    own.write_text(f"{config.read_text()}remote_write: [{{url: '{nginx.url}/write'}}]\n")
    return Program(
        need("prometheus"), "--enable-feature=agent", f"--config.file={own}", f"--storage.agent.path={folder}/agent-{port}",
        f"--web.listen-address=127.0.0.1:{port}", ready_url=f"http://127.0.0.1:{port}/-/ready",
    )  # fmt: skip


def naive(folder: Path, nginx: Nginx, config: Path, port: int) -> Program:
    """What a team writes by itself: `bench.naive`. Of `config` it reads whether there is a target, and how often."""
    text = config.read_text()
    url = f"{nginx.url}/metrics" if f"127.0.0.1:{nginx.port}" in text else ""
    interval = text.partition("scrape_interval: ")[2].partition(",")[0]
    seconds = float(interval[:-2]) / 1000 if interval.endswith("ms") else float(interval[:-1])
    return Program(
        sys.executable, "-m", "bench.naive", str(port), f"{seconds:g}", url, ready_url=f"http://127.0.0.1:{port}/metrics"
    )  # fmt: skip


def otelcol(folder: Path, nginx: Nginx, config: Path, port: int) -> Program:
    """The OpenTelemetry Collector: its Prometheus receiver reads a page, its remote-write exporter forwards it as vmagent does."""
    own = folder / f"otelcol-{port}.yml"
    own.write_text(yaml.safe_dump(configure_collector(yaml.safe_load(config.read_text()), f"{nginx.url}/write", port)))
    return Program(need("otelcol"), f"--config=file:{own}", ready_url=f"http://127.0.0.1:{port}/metrics")


def configure_collector(scrape: object, write_url: str, port: int) -> dict[str, object]:
    """The collector's configuration: what is scraped goes to `write_url`; its own metrics are read at `port`."""
    own_metrics = {"pull": {"exporter": {"prometheus": {"host": "127.0.0.1", "port": port}}}}
    pipeline = {"receivers": ["prometheus"], "exporters": ["prometheusremotewrite"]}
    return {
        "receivers": {"prometheus": {"config": scrape}},
        "exporters": {"prometheusremotewrite": {"endpoint": write_url}},
        "service": {"telemetry": {"metrics": {"readers": [own_metrics]}}, "pipelines": {"metrics": pipeline}},
    }


# name -> how it is started, and the counter of its scrapes
PEERS: tuple[tuple[str, Peer, str], ...] = (
    ("vmagent", vmagent, "vm_promscrape_scrapes_total"),
    ("prometheus", prometheus, "prometheus_target_interval_length_seconds_count"),
    ("prometheus agent", agent, "prometheus_target_interval_length_seconds_count"),
    ("naive exporter", naive, "naive_scrapes_total"),
    # it writes once for each scrape (404 writes for 404 scrapes at 20 ms, version 0.165.0)
    *(
        (("opentelemetry collector", otelcol, "otelcol_exporter_prometheusremotewrite_sent_batches"),)
        if find_program("otelcol")
        else ()
    ),
)
