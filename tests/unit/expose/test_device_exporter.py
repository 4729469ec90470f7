"""GPUs that a device exporter reads: their series, and which up says whether it answered."""

from __future__ import annotations

from llm_serving_exporter.expose.collector import add_gpus
from llm_serving_exporter.expose.families import Families
from llm_serving_exporter.facts.peaks import peaks_of_identity
from llm_serving_exporter.gpus.device_page import read_devices, recognise
from llm_serving_exporter.model.gpu import GpuReadings
from llm_serving_exporter.model.reading import View
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.sample import FailureReason
from tests.support.builders import views
from tests.support.builders.exporterpages import (
    AMD_CARD,
    amd_cpx,
    amd_labels,
    amd_page,
    gaudi_page,
    samples_of_exporter,
)
from tests.support.models.gpucatalogue import CATALOGUE

NOTHING: dict[str, str] = {}


def readings_of(text: str) -> GpuReadings:
    samples = samples_of_exporter(text)
    table = recognise(samples.layout.names)
    assert table is not None
    return replace(views.gpus(*read_devices(samples, table)), source=table.name, driver_version=None)


def samples_of_view(view: View) -> dict[str, list[tuple[dict[str, str], float]]]:
    families = Families()
    add_gpus(families, view, "node-a", oldest_monotonic_seconds=float("-inf"))
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in families:
        for sample in family.samples:
            labels = {name: value for name, value in sample.labels.items() if value or name not in ("node",)}
            found.setdefault(sample.name.removeprefix("llm_serving_"), []).append((labels, sample.value))
    return found


def published(text: str) -> dict[str, list[tuple[dict[str, str], float]]]:
    readings = readings_of(text)
    peaks = {gpu.identity.uuid: peaks_of_identity(gpu.identity, CATALOGUE) for gpu in readings.gpus}
    return samples_of_view(views.view(gpu_readings=readings, gpu_peaks=peaks))


def test_the_series_of_an_mi300x() -> None:
    found = published(amd_page(amd_labels()))
    assert found["device_exporter_up"] == [(NOTHING, 1.0)]
    assert "nvml_up" not in found
    ((labels, memory),) = found["gpu_memory_active_ratio"]
    assert (labels["gpu"], memory) == (f"{AMD_CARD}-0", 0.43)
    # of what umc_activity says nothing is bandwidth
    assert "gpu_dram_bandwidth_ratio" not in found
    assert found["gpu_power_watts"][0][1] == 731
    assert {one["origin"]: value for one, value in found["gpu_memory_bandwidth_peak_bytes_per_second"]} == {
        "catalogue": 5.3e12,
        "used": 5.3e12,
    }
    ((info, _),) = found["gpu_info"]
    assert info["source"] == "amd_device_metrics_exporter"
    assert {one["direction"] for one, _ in found["gpu_nvlink_bytes_total"]} == {"rx"}


def test_parts_add_up_to_their_card() -> None:
    found = published(amd_cpx())
    used = [value for one, value in found["gpu_memory_bandwidth_peak_bytes_per_second"] if one["origin"] == "used"]
    assert len(used) == 8
    assert abs(sum(used) - 5.3e12) < 1e6
    assert len(found["gpu_power_watts"]) == 1


def test_one_that_does_not_answer_is_down_and_nvml_is_not_spoken_of() -> None:
    failed = views.gpus(reason=FailureReason.REFUSED, detail="connection refused")
    found = samples_of_view(views.view(gpu_readings=replace(failed, source="device_exporter")))
    assert found["device_exporter_up"] == [(NOTHING, 0.0)]
    assert not any(name.startswith("nvml_") for name in found)
    assert published(gaudi_page())["device_exporter_up"] == [(NOTHING, 1.0)]
