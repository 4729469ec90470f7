"""A device exporter over real HTTP as the source of GPU readings, and what a page that is not one's own says."""

from __future__ import annotations

import logging
from contextlib import closing
from pathlib import Path

import pytest

from llm_serving_exporter.gpus import device_page as page_table
from llm_serving_exporter.gpus.exporter_source import SOURCES, DeviceExporterSource
from llm_serving_exporter.gpus.node_gpus import NodeGpus, open_gpus
from llm_serving_exporter.model.hardware import GpuPeaks
from llm_serving_exporter.model.sample import FailureReason, Stage
from llm_serving_exporter.model.target import HttpSettings, Target
from llm_serving_exporter.settings.config import DcgmConfig
from tests.support.builders.configuration import load_text, problems_of
from tests.support.builders.dcgmpages import PLAIN
from tests.support.builders.exporterpages import AMD_CARD, amd_cpx, amd_labels, amd_page, gaudi_page
from tests.support.servers import faultbehaviours as fault
from tests.support.servers.faultserver import FaultServer


def source_of(url: str, **settings: object) -> DeviceExporterSource:
    return DeviceExporterSource(DcgmConfig(url, http=HttpSettings(timeout_seconds=2.0), **settings))


def test_a_page_becomes_readings_and_the_connection_is_kept(caplog: pytest.LogCaptureFixture) -> None:
    page = amd_page(amd_labels()).encode()
    with (
        caplog.at_level(logging.INFO),
        FaultServer({"/metrics": fault.page(page)}) as server,
        closing(source_of(server.url)) as source,
    ):
        first = source.read()
        said = [record.getMessage() for record in caplog.records]
        second = source.read()
        assert server.connections == 1
    assert (first.attempt.ok, first.source, first.gpus) == (True, "amd_device_metrics_exporter", second.gpus)
    # the page has the PCI id 0x74a1 alone
    assert [gpu.identity.name for gpu in first.gpus] == ["Instinct MI300X"]
    assert first.source in SOURCES
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
def test_a_page_of_something_else_is_said(page: str, told: str) -> None:
    with FaultServer({"/metrics": fault.page(page.encode())}) as server, closing(source_of(server.url)) as source:
        readings = source.read()
    assert (readings.attempt.stage, readings.attempt.reason) == (Stage.NORMALISE, FailureReason.UNKNOWN_RUNTIME)
    assert (readings.attempt.detail, readings.gpus, readings.source) == (told, (), "device_exporter")


def test_what_is_not_there_or_no_page_is_a_failed_attempt() -> None:
    with FaultServer({"/metrics": fault.page(b"{ not a page")}) as server, closing(source_of(server.url)) as source:
        broken = source.read()
    assert broken.attempt.stage is Stage.PARSE
    with closing(source_of(server.url)) as source:
        gone = source.read()
    assert (gone.attempt.stage, gone.attempt.ok, gone.gpus) == (Stage.SCRAPE, False, ())


def test_a_fault_of_ours_is_a_failed_attempt(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(page_table, "MOST_GPUS", "no number")
    with (
        FaultServer({"/metrics": fault.page(gaudi_page().encode())}) as server,
        closing(source_of(server.url)) as source,
    ):
        readings = source.read()
    assert readings.attempt.reason is FailureReason.INTERNAL
    assert "please report it" in caplog.text


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
    unused = load_text(tmp_path, "device_exporter: {headers: {X-A: b}}\n" + target)
    assert any(
        "device_exporter: not used, because device_exporter.url is not set" in warning for warning in unused.warnings
    )
    (late,) = problems_of(tmp_path, "device_exporter: {url: 'http://a:1', timeout: 30s}\n" + target)
    assert late.startswith("device_exporter.timeout: ")
    (odd,) = problems_of(tmp_path, "device_exporter: {url: 'http://a:1', port: 5000}\n" + target)
    assert odd.startswith("device_exporter.port: this key is not known.")


def node_of(text: str, *targets: Target) -> NodeGpus:
    with FaultServer({"/metrics": fault.page(text.encode())}) as server:
        gpus = NodeGpus()
        gpus.set_source(source_of(server.url))
        gpus.read(lambda: targets)
    gpus.close()
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
    page = amd_page(amd_labels(model="0xffff"))
    with FaultServer({"/metrics": fault.page(page.encode())}) as server, closing(source_of(server.url)) as source:
        assert [gpu.identity.name for gpu in source.read().gpus] == ["0xffff"]
