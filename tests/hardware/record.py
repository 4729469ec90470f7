"""Record what a real GPU shows as one JSON file, fit to be committed as a capture: UUIDs and pids are masked.

    python tests/hardware/record.py h200.json --passes 3 --interval 2

The file holds the driver's version, the pynvml version and the passes as they came, field by field of `GpuReadings`.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import Any

from llm_serving_exporter.gpu.nvml import NvmlSource
from llm_serving_exporter.model.device import GpuReadings


def recording(passes: list[GpuReadings]) -> dict[str, Any]:
    """The passes as JSON-ready values. Every UUID becomes "GPU-masked-<n>" or "MIG-masked-<n>", every pid its place."""
    masked: dict[str, str] = {}

    def mask(value: Any) -> Any:
        if isinstance(value, dict):
            return {str(key): mask(one) for key, one in value.items()}
        if isinstance(value, list | tuple):
            return [mask(one) for one in value]
        if isinstance(value, str) and value.startswith(("GPU-", "MIG-")):
            return masked.setdefault(value, f"{value[:3]}-masked-{len(masked)}")
        return value

    written = [mask(dataclasses.asdict(one)) for one in passes]
    for one in written:
        for gpu in one["gpus"]:
            for place, process in enumerate(gpu["processes"] or (), start=1):
                process["pid"] = place
    return {"nvidia_ml_py": metadata.version("nvidia-ml-py"), "passes": written}


def main(arguments: list[str] | None = None) -> int:
    """Read and write; the exit status is 1 where no GPU can be read, with the reason on standard error."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--passes", type=int, default=3, choices=range(1, 101), metavar="1-100")
    parser.add_argument("--interval", type=float, default=2.0, help="seconds between passes")
    options = parser.parse_args(arguments)
    source = NvmlSource()
    passes: list[GpuReadings] = []
    try:
        for number in range(options.passes):
            if number:
                time.sleep(options.interval)
            passes.append(source.read())
    finally:
        source.close()
    if not passes[-1].attempt.ok or not passes[-1].gpus:
        print(f"no GPU can be read: {passes[-1].attempt.detail}", file=sys.stderr)
        return 1
    options.file.write_text(json.dumps(recording(passes), indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
