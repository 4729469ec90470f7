"""Other vendors' accelerators: pages of device exporters and how they are fetched, and a tree laid out as /sys."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_serving_exporter.facts.gpus import find
from llm_serving_exporter.facts.peaks import peaks_of_identity
from llm_serving_exporter.gpus import device_page as page_table
from llm_serving_exporter.gpus.device_page import TABLES, read_devices, recognise
from llm_serving_exporter.gpus.exporter_source import DeviceExporterSource
from llm_serving_exporter.gpus.node_gpus import NodeGpus, open_gpus
from llm_serving_exporter.gpus.nvml import NAMES_MAX, find_other_vendor_gpus
from llm_serving_exporter.gpus.source import drop_implausible
from llm_serving_exporter.model.gpu import GpuReading, GpuReadings
from llm_serving_exporter.model.hardware import GpuPeaks
from llm_serving_exporter.model.record import name_fields
from llm_serving_exporter.model.sample import Attempt, FailureReason, Stage
from llm_serving_exporter.model.shape import Precision
from llm_serving_exporter.model.target import HttpSettings, Target
from llm_serving_exporter.settings.config import DcgmConfig
from tests.support.builders.configuration import load_text, problems_of
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
from tests.support.servers import faultbehaviours as fault
from tests.support.servers.faultserver import FaultServer


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
    assert not any("dram_bandwidth_ratio" in table.fields for table in TABLES)


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
    peaks = {"Gaudi 2": 2460e9, "Gaudi 3": 3700e9, "": None}
    assert peaks_of_identity(identity, CATALOGUE).bandwidth_bytes_per_second == peaks[name]


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


# --- A device exporter over real HTTP as the source of GPU readings ---


@contextmanager
def served(page: str) -> Iterator[tuple[FaultServer, DeviceExporterSource]]:
    """A server of this page and a source that reads it. How a scrape fails is tested with dcgm-exporter's, which is read alike."""
    with (
        FaultServer({"/metrics": fault.page(page.encode())}) as server,
        closing(DeviceExporterSource(DcgmConfig(server.url, http=HttpSettings(timeout_seconds=2.0)))) as source,
    ):
        yield server, source


def test_a_page_becomes_readings_and_the_connection_is_kept(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO), served(amd_page(amd_labels())) as (server, source):
        first = source.read()
        said = [record.getMessage() for record in caplog.records]
        second = source.read()
        assert server.connections == 1
    assert (first.attempt.ok, first.source, first.gpus) == (True, "amd_device_metrics_exporter", second.gpus)
    # the page has the PCI id 0x74a1 alone
    assert [gpu.identity.name for gpu in first.gpus] == ["Instinct MI300X"]
    # at once, and not again while nothing changes
    assert said == [f"device exporter {server.url}/metrics: AMD device-metrics-exporter, 1 GPU"]
    assert len(caplog.records) == len(said)


@pytest.mark.parametrize(
    ("page", "told"),
    [
        (
            "node_load1 0.5\n",
            "/metrics is the page of none of AMD device-metrics-exporter and Intel Gaudi metric exporter",
        ),
        (PLAIN, "/metrics is dcgm-exporter's: its address belongs to dcgm.url, beside NVML"),
    ],
)
def test_a_page_of_something_else_is_said(page: str, told: str, caplog: pytest.LogCaptureFixture) -> None:
    with served(page) as (server, source):
        readings = source.read()
    assert (readings.attempt.stage, readings.attempt.reason) == (Stage.NORMALISE, FailureReason.UNKNOWN_RUNTIME)
    assert (readings.attempt.detail, readings.gpus, readings.source) == (told, (), "device_exporter")
    said = f"device exporter {server.url}/metrics: normalise failed, reason=unknown_runtime: {told}"
    assert [record.getMessage() for record in caplog.records] == [said]


def test_a_fault_of_ours_is_a_failed_attempt(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(page_table, "MOST_GPUS", "no number")
    with served(gaudi_page()) as (_, source):
        assert source.read().attempt.reason is FailureReason.INTERNAL
    assert "reading the device exporter failed; this is a bug, please report it" in caplog.text


def test_the_configuration_decides_what_reads_the_gpus(tmp_path: Path) -> None:
    target = "targets: ['http://a:8000']\n"
    config = load_text(
        tmp_path, "device_exporter: {url: 'http://localhost:5000'}\ngpu: {enabled: false, interval: 15s}\n" + target
    )
    assert (config.device_exporter.url, config.device_exporter.metrics_path) == ("http://localhost:5000", "/metrics")
    assert config.device_exporter.interval_seconds == 15.0
    with closing(open_gpus(config)) as source:
        assert isinstance(source, DeviceExporterSource)
    assert open_gpus(load_text(tmp_path, "gpu: {enabled: false}\n" + target)) is None
    both = load_text(tmp_path, "device_exporter: {url: 'http://a:1'}\ndcgm: {url: 'http://a:2'}\n" + target)
    assert any("what dcgm.url says of NVIDIA's is not used" in warning for warning in both.warnings)
    unused = load_text(tmp_path, "device_exporter: {headers: {X-A: b}}\n" + target).warnings
    assert any("device_exporter: not used, because device_exporter.url is not set" in warning for warning in unused)
    (late,) = problems_of(tmp_path, "device_exporter: {url: 'http://a:1', timeout: 30s}\n" + target)
    assert late.startswith("device_exporter.timeout: ")
    (odd,) = problems_of(tmp_path, "device_exporter: {url: 'http://a:1', port: 5000}\n" + target)
    assert odd.startswith("device_exporter.port: this key is not known.")


def node_of(text: str, *targets: Target) -> NodeGpus:
    with closing(NodeGpus()) as gpus, served(text) as (_, source):
        gpus.set_source(source)
        gpus.read(lambda: targets)
    return gpus


def test_a_targets_gpus_by_their_number_and_all_for_an_only_target() -> None:
    page = "".join(gaudi_page(number) for number in range(4))
    listed = Target("a", "http://localhost:8000", gpus=(1, 3))
    gpus = node_of(page, listed, Target("b", "http://localhost:8001"))
    assert gpus.find_uuids(listed) == ("01P4-HL3090A0-18-U4V193-22-07-01", "01P4-HL3090A0-18-U4V193-22-07-03")
    peaks = gpus.facts.find_target_peaks(listed, gpus.find_uuids(listed), gpus.latest.peaks)
    assert isinstance(peaks, GpuPeaks)
    assert (peaks.name, peaks.bandwidth_bytes_per_second) == ("Gaudi 3", 3.7e12)


def test_parts_of_a_card_are_gpus_of_their_own_with_their_share() -> None:
    listed = Target("a", "http://localhost:8000", gpus=(0, 1))
    gpus = node_of(amd_cpx(), listed)
    assert gpus.find_uuids(listed) == (f"{AMD_CARD}-0", f"{AMD_CARD}-1")
    assert {gpu.identity.name for gpu in gpus.latest.readings.gpus} == {"Instinct MI300X"}
    peaks = gpus.facts.find_target_peaks(listed, gpus.find_uuids(listed), gpus.latest.peaks)
    assert isinstance(peaks, GpuPeaks)
    assert (peaks.name, peaks.bandwidth_bytes_per_second) == ("Instinct MI300X part 1/8", pytest.approx(5.3e12 / 8))


def test_a_card_that_the_catalogue_does_not_know_keeps_its_id() -> None:
    with served(amd_page(amd_labels(model="0xffff"))) as (_, source):
        assert [gpu.identity.name for gpu in source.read().gpus] == ["0xffff"]


# --- other vendors' accelerators, out of a tree laid out as /sys ---


def pci(root: Path, address: str, vendor: str, kind: str, device: str = "0x74a1") -> Path:
    folder = root / "devices/pci0000:00" / address
    folder.mkdir(parents=True)
    for name, value in (("vendor", vendor), ("class", kind), ("device", device)):
        (folder / name).write_text(value + "\n")
    link = root / "bus/pci/devices" / address
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(folder)
    return folder


@check_rows(
    ("vendor", "kind", "device", "name"),
    [
        pytest.param("0x1002", "0x120000", "0x74a1", "AMD 0x74a1", id="Instinct, a processing accelerator"),
        pytest.param("0x1002", "0x030000", "0x74a1", "AMD 0x74a1", id="Radeon"),
        pytest.param("0x8086", "0x038000", "0x74a1", "Intel 0x74a1", id="Intel display controller"),
        pytest.param("0x1da3", "0x088000", "0x74a1", "Habana 0x74a1", id="Gaudi, whatever its class"),
        # of clouds: by the catalogue's names
        ("0x1ae0", "0x088000", "0x006f", "TPU v6e"),
        ("0x1ae0", "0x088000", "0x0063", "TPU v5e"),
        ("0x1d0f", "0x088000", "0x7364", "Trainium2"),
        ("0x1d0f", "0x088000", "0x7264", "Inferentia2"),
        # no accelerators
        pytest.param("0x10de", "0x030200", "0x74a1", None, id="NVIDIA"),
        pytest.param("0x8086", "0x020000", "0x74a1", None, id="Intel network card"),
        pytest.param("0x1002", "0x040300", "0x74a1", None, id="AMD sound"),
        pytest.param("0x1af4", "0x030000", "0x74a1", None, id="virtio display"),
        pytest.param("0x1ae0", "0x020000", "0x0042", None, id="network of a cloud"),
    ],
)
def test_accelerators_are_named_and_other_devices_are_not(tmp_path, vendor, kind, device, name):
    pci(tmp_path, "0000:05:00.0", vendor, kind, device)
    assert find_other_vendor_gpus(tmp_path) == (() if name is None else (f"{name} at 0000:05:00.0",))
    if vendor in ("0x1ae0", "0x1d0f") and name is not None:
        assert find(name, CATALOGUE).name == name


def test_a_card_seen_on_both_ways_is_named_once_and_in_order(tmp_path):
    late = pci(tmp_path, "0000:c1:00.0", "0x1002", "0x030000")
    pci(tmp_path, "0000:05:00.0", "0x1002", "0x120000")
    card = tmp_path / "class/drm/card0"
    card.mkdir(parents=True)
    (card / "device").symlink_to(late)
    (tmp_path / "class/drm/card0-HDMI-A-1").mkdir()
    assert [name.split(" at ")[1] for name in find_other_vendor_gpus(tmp_path)] == ["0000:05:00.0", "0000:c1:00.0"]


def test_a_display_that_is_not_on_the_pci_bus_counts(tmp_path):
    device = tmp_path / "devices/platform/gpu0"
    device.mkdir(parents=True)
    (device / "vendor").write_text("0x1002\n")
    card = tmp_path / "class/drm/card1"
    card.mkdir(parents=True)
    (card / "device").symlink_to(device)
    assert find_other_vendor_gpus(tmp_path) == ("AMD device at gpu0",)


def test_a_broken_tree_is_no_error(tmp_path):
    assert find_other_vendor_gpus(tmp_path / "missing") == ()
    (tmp_path / "bus/pci/devices").mkdir(parents=True)
    (tmp_path / "bus/pci/devices/0000:01:00.0").symlink_to(tmp_path / "nowhere")
    card = tmp_path / "class/drm/card0"
    card.mkdir(parents=True)
    (card / "device").symlink_to(card / "device")
    assert find_other_vendor_gpus(tmp_path) == ()


def test_the_number_of_names_is_bounded(tmp_path):
    for number in range(NAMES_MAX + 5):
        pci(tmp_path, f"0000:{number:02x}:00.0", "0x1002", "0x120000")
    assert len(find_other_vendor_gpus(tmp_path)) == NAMES_MAX
