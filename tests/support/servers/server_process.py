"""A server program on a free loopback port, for as long as a test wants it."""

import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

import requests

from tests.support.paths import ROOT
from tests.support.waiting import PATIENCE_SECONDS


def find_program(name: str) -> str | None:
    """A program on PATH, or one that `make` has built with Go."""
    return shutil.which(name) or shutil.which(name, path=ROOT / ".venv/go/bin")


def program(*names: str) -> str:
    """The first of these programs that is there."""
    found = next(filter(None, map(find_program, names)), None)
    assert found, f"none of {' or '.join(names)} is on PATH; `make test` or `make test-e2e` installs it"
    return found


def free_port() -> int:
    """A port of loopback that nobody has now."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


class ServerProcess:
    """`with … as running:`; ended by its process id, also where it does not come up. Its log is kept in `log_file`.

    `command`: the words of the command line for a port. `ready`: the path that answers 200 once it serves. `port`: where others have
    been told already that it will be. `authority`: the certificate that its own is signed with, where it speaks TLS.
    """

    def __init__(
        self,
        command: Callable[[int], Sequence[str]],
        log_file: Path,
        *,
        ready: str = "/-/ready",
        port: int | None = None,
        authority: Path | None = None,
    ) -> None:
        self._command, self._log_file, self._ready, self._port = command, log_file, ready, port
        self._authority = authority
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.http = requests.Session()
        self.http.trust_env = False
        if self._authority is not None:
            self.http.verify = str(self._authority)
        try:
            for _attempt in range(3):  # a port that was free may be taken by another test
                if self._starts():
                    return self
                self._end()
            raise AssertionError(f"{type(self).__name__} did not start:\n{self.log}")
        except BaseException:
            self.__exit__()
            raise

    def _starts(self) -> bool:
        port = free_port() if self._port is None else self._port
        self.url = f"{'http' if self._authority is None else 'https'}://127.0.0.1:{port}"
        with self._log_file.open("ab") as log:
            self._process = subprocess.Popen(self._command(port), stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline and self._process.poll() is None:
            try:
                if self.http.get(self.url + self._ready, timeout=PATIENCE_SECONDS).ok:
                    return True
            except requests.RequestException:
                pass
            time.sleep(0.05)
        return False

    def __exit__(self, *exc: object) -> None:
        self._end()
        self.http.close()

    def kill(self) -> None:
        """Ends it at once, as a machine that loses its power does."""
        self._process.kill()
        self._process.wait()

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def log(self) -> str:
        """What it has said since it was made."""
        return self._log_file.read_text(errors="replace") if self._log_file.exists() else ""

    def get(self, path: str, timeout: float = PATIENCE_SECONDS, **parameters: str) -> Any:
        """The answer to a GET, which must be 200."""
        answer = self.http.get(self.url + path, params=parameters, timeout=timeout)
        assert answer.status_code == 200, answer.text
        return answer
