"""What a driver says of a GPU and cannot be true is absent, with its reason."""

from __future__ import annotations

from math import inf, nan

from llm_serving_exporter.gpus.source import drop_implausible
from llm_serving_exporter.model.gpu import GpuIdentity, GpuReading, GpuReadings
from llm_serving_exporter.model.sample import Attempt, Stage
from llm_serving_exporter.render.sentences import why_gpu_absent
from tests.support.rows import check_rows

WHO = GpuIdentity("GPU-0", 0, "NVIDIA H100 80GB HBM3")


def dropped(**values: object) -> GpuReading:
    gpu = GpuReading(WHO, power_watts=300.0, **values)
    found = drop_implausible(GpuReadings(Attempt(Stage.GPU, None, "", 0.0, 0.0), "nvml", 0.0, (gpu,)))
    assert found.gpus[0].power_watts == 300.0
    return found.gpus[0]


@check_rows("value", [nan, inf, -1.0, 1e308])
@check_rows("field", ["energy_joules_total", "busy_ratio", "dram_bandwidth_ratio", "memory_used_bytes"])
def test_a_value_outside_its_range_is_absent(field: str, value: float) -> None:
    found = dropped(**{field: value})
    assert getattr(found, field) is None
    assert found.absent == {field: "implausible"}
    assert "cannot be true" in why_gpu_absent("implausible")


def test_of_several_values_the_others_stay() -> None:
    found = dropped(temperature_celsius={"gpu": 61.0, "memory": 1e9})
    assert found.temperature_celsius == {"gpu": 61.0}
    assert found.absent == {"temperature_celsius.memory": "implausible"}


def test_what_can_be_stays_as_it_is() -> None:
    gpu = GpuReading(WHO, busy_ratio=1.0, temperature_celsius={"gpu": -5.0}, xid_events_total={79: 1}, lost=False)
    readings = GpuReadings(Attempt(Stage.GPU, None, "", 0.0, 0.0), "nvml", 0.0, (gpu,))
    assert drop_implausible(readings).gpus[0] is gpu
