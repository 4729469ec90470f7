"""Pages of AMD's and Intel's exporters -> readings of GPUs. The pages are made from the exporters' sources; none was recorded yet."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_serving_exporter.facts.peaks import peaks_of_identity
from llm_serving_exporter.gpus.device_page import TABLES, read_devices, recognise
from llm_serving_exporter.gpus.source import drop_implausible
from llm_serving_exporter.model.gpu import GpuReading, GpuReadings
from llm_serving_exporter.model.sample import Attempt, Stage
from llm_serving_exporter.model.shape import Precision
from tests.support.builders.dcgmpages import PLAIN
from tests.support.builders.exporterpages import (
    AMD_CARD,
    amd_cpx,
    amd_labels,
    amd_page,
    gaudi_page,
    samples_of_exporter,
)
from tests.support.models.gpucatalogue import CATALOGUE, row
from tests.support.rows import check_rows


def read(text: str) -> tuple[GpuReading, ...]:
    samples = samples_of_exporter(text)
    table = recognise(samples.layout.names)
    assert table is not None
    return read_devices(samples, table)


def one(text: str) -> GpuReading:
    (gpu,) = read(text)
    return gpu


# --- AMD ---------------------------------------------------------------------------------------------------------------


def test_a_whole_card() -> None:
    gpu = one(amd_page(amd_labels()))
    assert (gpu.identity.uuid, gpu.identity.index, gpu.identity.partitions) == (f"{AMD_CARD}-0", 0, 1)
    assert gpu.identity.pci_device_id == 0x74A1 << 16 | 0x1002
    assert (gpu.busy_ratio, gpu.power_watts) == (0.97, 731)
    assert gpu.energy_joules_total == pytest.approx(4.2e9)
    assert gpu.temperature_celsius == {"gpu": 71, "memory": 58}
    # of two dies the faster; not the video engine's
    assert gpu.clock_hertz == {"sm": 2100e6, "memory": 1300e6}
    assert (gpu.memory_used_bytes, gpu.memory_total_bytes) == (185_000 * 10**6, 206158 * 10**6)
    assert gpu.ecc_errors_total == {"corrected": 3, "uncorrected": 0}
    assert gpu.slowdown == {"sw_power_cap": True, "sw_thermal_slowdown": True, "hw_thermal_slowdown": False}
    # over all links, in KB
    assert gpu.nvlink_bytes_total == {"rx": round((2.776148269e09 + 2.914491813e09) * 1e3)}
    assert gpu.absent["nvlink_bytes_total.tx"] == "not_supported"
    assert gpu.pcie_bytes_total == {}


def test_umc_activity_is_a_share_of_time_and_never_bandwidth() -> None:
    gpu = one(amd_page(amd_labels()))
    assert gpu.memory_active_ratio == pytest.approx(0.43)
    assert gpu.dram_bandwidth_ratio is None
    assert not any("umc" in name for table in TABLES for name in table.fields.get("dram_bandwidth_ratio", _NONE).names)


class _Nothing:
    names: tuple[str, ...] = ()


_NONE = _Nothing()


def test_the_card_is_found_in_the_catalogue_by_its_pci_id_or_its_name() -> None:
    by_id = peaks_of_identity(one(amd_page(amd_labels())).identity, CATALOGUE)
    assert (by_id.name, by_id.bandwidth_bytes_per_second) == ("Instinct MI300X", 5300e9)
    named = f'card_series="AMD Instinct MI300X OAM",{amd_labels(model="102-G30213-00")}'
    identity = one(amd_page(named)).identity
    assert identity.name == "AMD Instinct MI300X OAM"
    assert peaks_of_identity(identity, CATALOGUE).name == "Instinct MI300X"


def test_a_uuid_of_its_own_and_the_prefix_that_a_configuration_may_set() -> None:
    gpu = one(amd_page('gpu_uuid="6699c0a8-4200-4242-037f-f97e6cae0f09",' + amd_labels(), prefix="amd_"))
    assert gpu.identity.uuid == "6699c0a8-4200-4242-037f-f97e6cae0f09"
    assert (gpu.busy_ratio, gpu.power_watts) == (0.97, 731)


def test_two_dies_of_one_card_are_two_gpus_and_no_parts() -> None:
    first, second = read(
        amd_page(amd_labels(0, model="0x7408"), gpu_total_vram=68702)
        + amd_page(amd_labels(1, model="0x7408"), gpu_total_vram=68702)
    )
    assert (first.identity.uuid, second.identity.uuid) == (f"{AMD_CARD}-0", f"{AMD_CARD}-1")
    assert first.identity.partitions == second.identity.partitions == 1
    assert peaks_of_identity(first.identity, CATALOGUE).bandwidth_bytes_per_second == 1638e9


def test_parts_of_a_card_have_their_share_of_memory_bandwidth_and_rates() -> None:
    parts = read(amd_cpx())
    assert [gpu.identity.partitions for gpu in parts] == [8] * 8
    assert [gpu.identity.index for gpu in parts] == list(range(8))
    whole = row("Instinct MI300X")
    for gpu in parts:
        peaks = peaks_of_identity(gpu.identity, CATALOGUE)
        assert peaks.name == "Instinct MI300X part 1/8"
        assert peaks.bandwidth_bytes_per_second == pytest.approx(whole.bandwidth_bytes_per_second / 8)
        assert peaks.flops[Precision.BF16] == pytest.approx(whole.flops[Precision.BF16] / 8)
        assert peaks.memory_bytes == gpu.memory_total_bytes == pytest.approx(206158e6 / 8, rel=1e-6)


def test_what_the_exporter_has_of_the_whole_card_is_no_parts_own() -> None:
    """Activity stands on part 0 for the card; power too, which is shown there once; the others' 0 W is no reading."""
    first, second, *_ = read(amd_cpx())
    assert (first.busy_ratio, first.memory_active_ratio) == (None, None)
    assert first.absent["busy_ratio"] == first.absent["memory_active_ratio"] == "on_parent"
    assert (first.power_watts, second.power_watts) == (731, None)
    assert second.absent["power_watts"] == "not_supported"
    assert (first.memory_used_bytes, second.memory_used_bytes) == (20_000 * 10**6, 1000 * 10**6)


@check_rows(
    ("name", "value", "field"),
    [
        ("gpu_gfx_activity", 101, "busy_ratio"),
        ("gpu_umc_activity", math.nan, "memory_active_ratio"),
        ("gpu_gfx_activity", 4294967295, "busy_ratio"),  # its sign for "not applicable"
        ("gpu_total_vram", 0, "memory_total_bytes"),
    ],
)
def test_what_cannot_be_is_no_reading(name: str, value: float, field: str) -> None:
    gpu = one(amd_page(amd_labels(), **{name: value}))
    assert getattr(gpu, field) is None
    assert field in gpu.absent


def test_power_of_a_generation_that_has_the_average_only() -> None:
    values = {"gpu_package_power": 0.0, "gpu_power_usage": 0.0, "gpu_average_package_power": 41.0}
    assert one(amd_page(amd_labels(), **values)).power_watts == 41


# --- Gaudi -------------------------------------------------------------------------------------------------------------


def test_a_gaudi() -> None:
    gpu = one(gaudi_page())
    assert (gpu.identity.uuid, gpu.identity.index) == ("01P4-HL3090A0-18-U4V193-22-07-00", 0)
    assert (gpu.busy_ratio, gpu.power_watts, gpu.power_limit_watts) == (0.88, 612, 850)
    assert (gpu.temperature_celsius, gpu.clock_hertz) == ({"gpu": 61}, {"sm": 1600e6})
    assert (gpu.memory_used_bytes, gpu.memory_total_bytes) == (100 << 30, 128 << 30)
    assert gpu.remap_pending is False
    # of which no document says the unit
    assert gpu.energy_joules_total is None
    assert gpu.pcie_bytes_total == {}


@check_rows(
    ("memory", "name"), [(96 << 30, "Gaudi 2"), (128 << 30, "Gaudi 3"), (98 * 10**9, "Gaudi 2"), (32 << 30, "")]
)
def test_its_memory_says_which_gaudi_it_is(memory: int, name: str) -> None:
    identity = one(gaudi_page(memory=memory)).identity
    assert identity.name == name
    assert peaks_of_identity(identity, CATALOGUE).bandwidth_bytes_per_second == {
        "Gaudi 2": 2460e9, "Gaudi 3": 3700e9, "": None,
    }[name]  # fmt: skip


# --- both --------------------------------------------------------------------------------------------------------------


def test_a_page_says_whose_it_is() -> None:
    assert recognise(samples_of_exporter(amd_page(amd_labels())).layout.names).name == "amd_device_metrics_exporter"
    assert recognise(samples_of_exporter(gaudi_page()).layout.names).name == "gaudi_metric_exporter"
    assert recognise(samples_of_exporter(PLAIN).layout.names) is None
    assert recognise(samples_of_exporter("node_load1 0.5\n").layout.names) is None


def test_a_node_of_eight_by_their_numbers() -> None:
    page = "".join(gaudi_page(gpu) for gpu in reversed(range(8)))
    assert [gpu.identity.index for gpu in read(page)] == list(range(8))
    assert len({gpu.identity.uuid for gpu in read(page)}) == 8


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_a_table_feeds_fields_that_there_are_and_says_its_source(table: object) -> None:
    from llm_serving_exporter.model.record import name_fields

    known = {*name_fields(GpuReading)}
    assert {name.partition(".")[0] for name in table.fields} <= known
    assert table.source.startswith("https://")
    assert table.of_whole_card <= set(table.fields)


@given(
    st.dictionaries(
        st.sampled_from(["gpu_gfx_activity", "gpu_package_power", "gpu_used_vram", "gpu_energy_consumed"]), st.floats()
    )
)
def test_no_value_of_a_page_does_anything_but_be_read_or_left_out(values: dict[str, float]) -> None:
    gpu = one(amd_page(amd_labels(), **values))
    for name in ("busy_ratio", "power_watts", "energy_joules_total"):
        value = getattr(gpu, name)
        assert value is None or (math.isfinite(value) and value >= 0)
    assert gpu.busy_ratio is None or gpu.busy_ratio <= 1


def test_values_that_cannot_be_true_are_dropped_as_nvmls_are() -> None:
    """More power than any board draws: the bounds of the catalogue hold for every source."""
    page = amd_page(amd_labels(), gpu_package_power=9e9, gpu_power_usage=0, gpu_average_package_power=0)
    readings = GpuReadings(Attempt(Stage.GPU, None, "", 0.0, 0.0), "amd_device_metrics_exporter", 0.0, read(page))
    (gpu,) = drop_implausible(readings).gpus
    assert gpu.power_watts is None
    assert gpu.absent["power_watts"] == "implausible"
