"""Real programs for the benchmarks, each in a folder of its own, on loopback, ended by their process id."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from urllib.request import ProxyHandler, build_opener

from tests.nvml_stub.stub import StubState, build_stub, stub_environment

TICK = os.sysconf("SC_CLK_TCK")
# of one nginx
CONNECTIONS = 8192
# what nvmlInit of a real driver keeps resident and the tests' NVML does not: 18 MB, driver 580, H100, 2026-11-26
DRIVER_RESIDENT_BYTES = 18_000_000
_OPENER = build_opener(ProxyHandler({}))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def fetch(url: str, timeout_seconds: float = 5.0) -> str:
    with _OPENER.open(url, timeout=timeout_seconds) as answer:
        return str(answer.read().decode())


def need(program: str) -> str:
    found = shutil.which(program) or shutil.which(program, path="/usr/sbin:/sbin")
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
