"""What any source of GPU readings offers: NVML here, a replay or a simulated fleet elsewhere."""

from __future__ import annotations

from typing import Protocol

from llm_serving_exporter.model.gpu import GpuReadings


class GpuSource(Protocol):
    """A source of GPU readings."""

    def read(self) -> GpuReadings:
        """One pass over every GPU. Never raises: what went wrong is in `attempt`."""
        ...

    def close(self) -> None:
        """Give back what the source holds; may be called twice. A `read()` afterwards is a failed attempt."""
        ...
