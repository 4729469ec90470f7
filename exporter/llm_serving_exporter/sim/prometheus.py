"""A Prometheus of one's own, for the demo: loopback, a temporary folder, gone when closed."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import quote

from llm_serving_exporter.sim.ports import on_next_free_port, require_free

_CONFIG = """\
global:
  scrape_interval: {interval}s
  evaluation_interval: {interval}s
scrape_configs:
  - job_name: llm-serving-exporter
    static_configs:
      - targets: ["{target}"]
"""

_READY_SECONDS = 15.0
_STOP_SECONDS = 3.0


class PrometheusError(Exception):
    """Prometheus did not come up; the message carries its last words."""


class Prometheus:
    """The program `prometheus` as a child process that scrapes one target every `interval_seconds`.

    It has a process group of its own, so that a Ctrl-C meant for the demo does not reach it first, and is ended by its
    pid. Raises PrometheusError where it does not become ready or `cancelled` is
    set meanwhile, OSError where no port is free.
    """

    def __init__(
        self,
        program: str,
        target: str,
        port: int = 9090,
        interval_seconds: int = 5,
        cancelled: threading.Event | None = None,
    ) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="llm-serving-demo-"))
        self._log = self._folder / "prometheus.log"
        self._process: subprocess.Popen[bytes] | None = None
        try:
            chosen = on_next_free_port(lambda candidate: require_free("127.0.0.1", candidate), port)
            self.url = f"http://127.0.0.1:{chosen}"
            config = self._folder / "prometheus.yml"
            config.write_text(_CONFIG.format(interval=interval_seconds, target=target), encoding="utf-8")
            with self._log.open("wb") as log:
                self._process = subprocess.Popen(  # noqa: S603  # a program found on PATH, arguments of ours, no shell
                    [
                        program,
                        f"--config.file={config}",
                        f"--storage.tsdb.path={self._folder / 'data'}",
                        "--storage.tsdb.retention.time=1d",
                        f"--web.listen-address=127.0.0.1:{chosen}",
                        "--log.level=warn",
                    ],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    process_group=0,
                )
            self._wait_until_ready(self._process, cancelled or threading.Event())
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int | None:
        """Its process id while it runs."""
        return self._process.pid if self._process is not None else None

    def graph_url(self, expression: str, span: str = "15m") -> str:
        """The address of its graph page with `expression` drawn over the last `span`."""
        return f"{self.url}/graph?g0.expr={quote(expression, safe='')}&g0.tab=0&g0.range_input={span}"

    def close(self) -> None:
        """End it, by force after three seconds, and remove its folder."""
        process, self._process = self._process, None
        if process is not None:
            process.terminate()
            try:
                process.wait(timeout=_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _wait_until_ready(self, process: subprocess.Popen[bytes], cancelled: threading.Event) -> None:
        deadline = time.monotonic() + _READY_SECONDS
        while time.monotonic() < deadline:
            if process.poll() is not None:
                break
            try:
                with urllib.request.urlopen(f"{self.url}/-/ready", timeout=1):  # noqa: S310  # http on loopback
                    return
            except (urllib.error.URLError, OSError):
                if cancelled.wait(0.1):
                    raise PrometheusError("cancelled") from None
        words = self._log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        raise PrometheusError(words[-1] if words else f"not ready after {_READY_SECONDS:.0f} s")
