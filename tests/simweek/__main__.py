"""`python -m tests.simweek FOLDER [HOURS]`: the week as a data folder of a Prometheus."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from tests.simweek.build import Plan, build
from tests.simweek.fleets import HOUR

if __name__ == "__main__":
    began = time.monotonic()
    end = time.time() // 3600 * 3600
    hours = float(sys.argv[2]) if len(sys.argv) > 2 else 3.0
    build(
        Plan(end, hours * HOUR),
        Path(sys.argv[1]),
        lambda text: print(f"{time.monotonic() - began:6.0f} s  {text}", flush=True),
    )
    print(f"it ends at {end:.0f}")
