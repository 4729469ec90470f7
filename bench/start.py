"""How long --help takes, and a start up to the first page that shows the target: `.venv/bin/python -m bench.start`, half a minute.

Wall-clock seconds, best and median of ten. `--python /usr/bin/python3` takes another interpreter, with the packages of this one.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench.peers import Nginx, fetch_any
from bench.shared import make_parser, say, wait_until
from tests.support.builders.recordings import page as recorded_page
from tests.support.servers.server_process import free_port

ROUNDS = 10
LONGEST_SECONDS = 20.0
UP = 'llm_serving_target_up{container="",namespace="",node="",pod="",target="bench"} 1'


def ask_for_help(command: list[str], environment: dict[str, str]) -> float:
    began = time.perf_counter()
    subprocess.run([*command, "--help"], env=environment, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began


def start_until_shown(command: list[str], environment: dict[str, str], config: Path) -> float:
    port = free_port()
    words = ["--config.file", str(config), f"--web.listen-address=127.0.0.1:{port}"]
    began = time.perf_counter()
    with subprocess.Popen(
        [*command, *words], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as daemon:
        try:
            wait_until(
                lambda: UP in (fetch_any(f"http://127.0.0.1:{port}/metrics") or ""),
                LONGEST_SECONDS,
                lambda: f"no page showed the target within {LONGEST_SECONDS:g} s",
                pause_seconds=0.005,
            )
            return time.perf_counter() - began
        finally:
            daemon.terminate()


def report(what: str, measure: Callable[[], float]) -> None:
    measure()  # bytecode is there from then on
    seconds = [measure() for _ in range(ROUNDS)]
    say(f"{what}: best {min(seconds):.3f} s, median {statistics.median(seconds):.3f} s")


def main() -> None:
    parser = make_parser("start", __doc__)
    parser.add_argument("--python", default=sys.executable)
    arguments = parser.parse_args()
    paths = os.pathsep.join(path for path in sys.path if path)
    environment = {**os.environ, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": ""}
    command = [arguments.python, "-m", "llm_serving_exporter"]
    with tempfile.TemporaryDirectory() as name:
        environment["PYTHONPYCACHEPREFIX"] = name
        nginx = Nginx(recorded_page("vllm-0.32-mfu", 60), Path(name))
        config = Path(name) / "exporter.yml"
        config.write_text(f"gpu: {{enabled: false}}\ntargets: [{{name: bench, url: '{nginx.url}'}}]\n")
        with nginx.program:
            report("--help", lambda: ask_for_help(command, environment))
            report("start to the first page with the target", lambda: start_until_shown(command, environment, config))


if __name__ == "__main__":
    main()
