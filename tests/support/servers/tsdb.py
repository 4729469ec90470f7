"""OpenMetrics text into blocks of a Prometheus' data folder, by promtool."""

import subprocess
from pathlib import Path

from tests.support.servers.server_process import program


def make_blocks(source: Path, data: Path, hours: int = 486) -> None:
    """Loads a file of OpenMetrics text, in blocks of at most so many hours: promtool reads the text once for each block."""
    data.mkdir(parents=True, exist_ok=True)
    command = [
        program("promtool"), "tsdb", "create-blocks-from", f"--max-block-duration={hours}h", "openmetrics",
        str(source), str(data),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr
