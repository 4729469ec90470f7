"""How GPUs of a kind compare: figures by GPU, and the quantiles of them that the board of GPUs draws in place of a line for each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from llm_serving_alerts.promql import Dialect, series
from llm_serving_alerts.records.bands import EDGES, FEW_TARGETS
from llm_serving_alerts.rules import MINUTELY_SECONDS, Group, Record
from llm_serving_alerts.settings import Settings


@dataclass(frozen=True, slots=True)
class GpuFigure:
    """What is compared between the GPUs of a kind."""

    # of the records, between level and operation
    name: str
    # the record by GPU
    by_gpu: str
    # for the reader of the reference
    about: str

    @property
    def median(self) -> str:
        """The record of its median across the GPUs of a kind, however few."""
        return f"fleet:llm_serving_{self.name}:median_of_gpus"

    @property
    def edges(self) -> str:
        """The record of its quantiles across them by `rank`, where there are more than few."""
        return f"fleet:llm_serving_{self.name}:quantile_of_gpus"


def _name_figure(name: str, about: str) -> GpuFigure:
    return GpuFigure(name, f"gpu:llm_serving_{name}:max", about)


DRAM = _name_figure("gpu_dram_bandwidth_ratio", "memory traffic over the theoretical peak")
TENSOR = _name_figure("gpu_tensor_activity_ratio", "share of time in which tensor cores work")
SM = _name_figure("gpu_sm_activity_ratio", "share of time in which multiprocessors work")
BUSY = _name_figure("gpu_busy_ratio", "share of time in which any kernel runs")
POWER = _name_figure("gpu_power_watts", "power draw")
HEAT = _name_figure("gpu_temperature_celsius", "temperature of the hottest sensor")
CLOCK = GpuFigure("gpu_sm_clock", "gpu:llm_serving_gpu_sm_clock:ratio", "clock of the multiprocessors over its maximum")
# recorded with the views
MEMORY = GpuFigure("gpu_memory_used", "gpu:llm_serving_gpu_memory_used:ratio", "share of the memory in use")
POWER_LIMIT = "fleet:llm_serving_gpu_power_limit_watts:max"
FIGURES = (DRAM, TENSOR, SM, BUSY, POWER, HEAT, CLOCK, MEMORY)


def gpu_bands(dialect: Dialect, settings: Settings) -> tuple[Group, ...]:
    """What is not by GPU yet, then the median and the edges of each figure. Once a minute: only people look at them."""
    every = MINUTELY_SECONDS / dialect.time_scale
    by = dialect.labels("gpu_name")
    medians = tuple(
        Record(
            figure.median,
            f"quantile by ({by}) (0.5, {figure.by_gpu})",
            f"median across the GPUs of a kind: {figure.about}",
        )
        for figure in FIGURES
    )
    limit = f"max by ({by}) ({dialect.by_gpu(series('gpu_power_limit_watts'))})"
    edges = tuple(rule for figure in FIGURES for rule in _take_edges(by, figure))
    return (
        Group(
            "llm-serving.bands.gpus",
            (*_list_by_gpu(dialect), *medians, Record(POWER_LIMIT, limit, "highest power limit of a kind of GPU")),
            every,
        ),
        Group("llm-serving.bands.gpu-edges", edges, every),
    )


def _list_by_gpu(dialect: Dialect) -> Iterator[Record]:
    for figure in (DRAM, TENSOR, SM, BUSY, POWER, HEAT):
        yield Record(figure.by_gpu, dialect.by_gpu(series(figure.name)), figure.about)
    now, highest = (series(name, domain="sm") for name in ("gpu_clock_hertz", "gpu_clock_max_hertz"))
    yield Record(CLOCK.by_gpu, f"{dialect.bare(now, 'gpu')} / {dialect.by_gpu(highest)}", CLOCK.about)


def _take_edges(by: str, figure: GpuFigure) -> Iterator[Record]:
    several = f"count by ({by}) ({figure.by_gpu}) > {FEW_TARGETS}"
    about = f"quantiles across the GPUs of a kind where there are more than {FEW_TARGETS}: {figure.about}"
    for rank, quantile in EDGES.items():
        expression = f"quantile by ({by}) ({quantile:g}, {figure.by_gpu}) and on ({by}) {several}"
        yield Record(figure.edges, expression, about, {"rank": rank})
