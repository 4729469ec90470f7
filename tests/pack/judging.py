"""promtool's verdict on rules."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

# another promtool, such as one of Prometheus 3, judges the same files: PROMTOOL=/path/to/promtool
PROMTOOL = os.environ.get("PROMTOOL") or "promtool"
# a third of promtool's time is its garbage collector's with Go's default of 100
_GO = {"GOGC": "400"}


def promtool() -> str:
    """The program."""
    program = shutil.which(PROMTOOL)
    assert program, f"{PROMTOOL} is missing; `make test` installs it"
    return program


def verdict(folder: Path, *names: str, timeout_seconds: float = 600.0) -> str:
    """What it says against files of unit tests in that folder; "" where all hold."""
    judged = subprocess.run(
        [promtool(), "test", "rules", *names],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=timeout_seconds,
        env={**os.environ, **_GO},
    )
    return "" if judged.returncode == 0 else judged.stdout + judged.stderr or f"{judged.returncode}"
