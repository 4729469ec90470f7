"""A real Prometheus on loopback with a configuration of the test's own."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

import requests

PATIENCE_SECONDS = 30.0


class PrometheusServer:
    """`with PrometheusServer(folder, config) as prometheus:`; ended by its process id, its log and data stay in `folder`."""

    def __init__(self, folder: Path, config: str, *arguments: str, program: str = "prometheus") -> None:
        found = shutil.which(program)
        assert found, f"{program} is missing; `make test` installs it"
        self._program, self._arguments = found, arguments
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "prometheus.yml").write_text(config)
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> PrometheusServer:
        self.http = requests.Session()
        self.http.trust_env = False
        try:
            for _attempt in range(3):  # a port that was free may be taken by another test
                if self._starts():
                    return self
                self._end()
            raise AssertionError(f"Prometheus did not start:\n{self.log}")
        except BaseException:
            self.__exit__()
            raise

    def _starts(self) -> bool:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        command = [
            self._program,
            f"--config.file={self.folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={self.folder / 'data'}",
            "--storage.tsdb.retention.time=30d",
            f"--web.listen-address=127.0.0.1:{port}",
            *self._arguments,
        ]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline and self._process.poll() is None:
            try:
                if self.http.get(f"{self.url}/-/ready", timeout=2).ok:
                    return True
            except requests.RequestException:
                pass
            time.sleep(0.05)
        return False

    def __exit__(self, *exc: object) -> None:
        self._end()
        self.http.close()

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    @property
    def log(self) -> str:
        """What it has said since it started."""
        path = self.folder / "log"
        return path.read_text(errors="replace") if path.exists() else ""

    def query(self, expression: str) -> list[dict[str, Any]]:
        """An instant vector: dicts with metric and value."""
        return list(self._get("query", query=expression)["result"])

    def value(self, expression: str) -> float:
        """The one value of an expression."""
        (found,) = self.query(expression)
        return float(found["value"][1])

    def alerts(self) -> list[dict[str, Any]]:
        """Pending and firing alerts."""
        return list(self._get("alerts")["alerts"])

    def rules(self) -> list[dict[str, Any]]:
        """Every rule with its health."""
        return [rule for group in self._get("rules")["groups"] for rule in group["rules"]]

    def _get(self, what: str, **parameters: str) -> Any:
        answer = self.http.get(f"{self.url}/api/v1/{what}", params=parameters, timeout=20)
        assert answer.status_code == 200, answer.text
        return answer.json()["data"]
