"""Peaks of targets' GPUs: by NVML, by a configured name, together."""

from __future__ import annotations

import logging

import pytest

from llm_serving_exporter.gpus.attribution import MOST_NAMES, GpuFacts
from llm_serving_exporter.model.gpu import GpuIdentity, GpuReading
from llm_serving_exporter.model.hardware import GpuPeaks
from llm_serving_exporter.model.snapshot import Absence
from llm_serving_exporter.model.target import Target


def gpu(uuid: str, name: str = "NVIDIA H100 80GB HBM3", bandwidth: float | None = 3.35232e12) -> GpuReading:
    return GpuReading(GpuIdentity(uuid, 0, name, memory_bandwidth_peak_bytes_per_second=bandwidth))


def target(gpu_model: str | None = None) -> Target:
    return Target("a", "http://a:8000", gpu_model=gpu_model)


def test_peaks_by_uuid_are_worked_out_once_and_forgotten_with_the_gpu(caplog: pytest.LogCaptureFixture) -> None:
    facts = GpuFacts()
    with caplog.at_level(logging.INFO):
        first = facts.find_peaks([gpu("GPU-1"), gpu("GPU-2", "Unheard of", None)])
        again = facts.find_peaks([gpu("GPU-1")])
    assert first["GPU-1"].bandwidth_bytes_per_second == 3.35232e12
    assert (first["GPU-2"].bandwidth_bytes_per_second, first["GPU-2"].origin, first["GPU-2"].flops) == (None, "", {})
    assert again["GPU-1"] is first["GPU-1"]
    assert set(again) == {"GPU-1"}
    assert [record.getMessage() for record in caplog.records] == [
        "gpu=GPU-1 (NVIDIA H100 80GB HBM3): peak bandwidth 3352 GB/s by nvml, dense rates for fp32, bf16, fp8, int8",
        "gpu=GPU-2 (Unheard of): peak bandwidth unknown by nothing, dense rates for no precision",
    ]


def test_a_configured_name_wins_over_what_is_seen() -> None:
    facts = GpuFacts()
    known = facts.find_peaks([gpu("GPU-1")])
    found = facts.find_target_peaks(target("L40S"), ("GPU-1",), known)
    assert isinstance(found, GpuPeaks)
    assert (found.name, found.origin) == ("L40S", "catalogue")
    # of a remote target nothing is seen
    assert facts.find_target_peaks(target("L40S"), (), {}) is found


def test_a_name_that_a_discovered_target_has_and_the_catalogue_not(caplog: pytest.LogCaptureFixture) -> None:
    facts = GpuFacts()
    with caplog.at_level(logging.WARNING):
        assert facts.find_target_peaks(target("H1000"), (), {}) is Absence.PEAK_UNKNOWN
        assert facts.find_target_peaks(target("H1000"), (), {}) is Absence.PEAK_UNKNOWN
    (record,) = caplog.records
    assert record.getMessage().startswith("target=a: GPU 'H1000' is not in the catalogue; nearest: ")


def test_names_without_end_are_not_kept(caplog: pytest.LogCaptureFixture) -> None:
    facts = GpuFacts()
    with caplog.at_level(logging.WARNING):
        for number in (*range(MOST_NAMES + 1), 0):
            assert facts.find_target_peaks(target(f"no {number}"), (), {}) is Absence.PEAK_UNKNOWN
    # the first was forgotten and is said again
    assert len(caplog.records) == MOST_NAMES + 2


def test_gpus_that_are_not_known() -> None:
    facts = GpuFacts()
    known = facts.find_peaks([gpu("GPU-1")])
    assert facts.find_target_peaks(target(), (), known) is Absence.GPUS_UNKNOWN
    assert facts.find_target_peaks(target(), ("GPU-9",), known) is Absence.GPUS_UNKNOWN
    # one of two is not the target's GPUs
    assert facts.find_target_peaks(target(), ("GPU-1", "GPU-9"), known) is Absence.GPUS_UNKNOWN


def test_gpus_that_differ_count_as_the_lowest() -> None:
    facts = GpuFacts()
    known = facts.find_peaks([gpu("GPU-1"), gpu("GPU-2"), gpu("GPU-3", "NVIDIA A100-SXM4-80GB", None)])
    alike = facts.find_target_peaks(target(), ("GPU-1", "GPU-2"), known)
    mixed = facts.find_target_peaks(target(), ("GPU-1", "GPU-3"), known)
    assert alike == known["GPU-1"]
    assert isinstance(mixed, GpuPeaks)
    assert mixed.name == "A100 SXM 80GB + H100 SXM 80GB (lowest of each)"
    assert mixed.bandwidth_bytes_per_second == 2.039e12


def test_a_servers_own_word_for_its_gpu_stands_where_none_is_seen() -> None:
    facts = GpuFacts()
    seen = facts.find_target_peaks(target(), (), {}, "NVIDIA H200")
    assert not isinstance(seen, Absence)
    # HBM3e of the H200: 4.8 TB/s (facts nvml-gpus A.11)
    assert seen.bandwidth_bytes_per_second == pytest.approx(4.8e12, rel=0.01)
    assert facts.find_target_peaks(target(), (), {}, "a card nobody knows") is Absence.GPUS_UNKNOWN
    assert facts.find_target_peaks(target("L40S"), (), {}, "NVIDIA H200") == facts.find_target_peaks(
        target("L40S"), (), {}
    )


def test_a_kind_of_gpu_has_one_spelling_whoever_names_it() -> None:
    facts = GpuFacts()
    known = facts.find_peaks([gpu("GPU-1"), gpu("GPU-2", "NVIDIA L40S", None), gpu("GPU-3", "NVIDIA Unheard of", None)])
    seen, configured = (
        facts.name_target_gpus(target(), ("GPU-1",), known),
        facts.name_target_gpus(target("h100"), (), {}),
    )
    said = facts.name_target_gpus(target(), (), known, "NVIDIA-H100-80GB-HBM3")
    assert seen == configured == said == "H100 SXM 80GB"
    # the configuration is believed first, then NVML
    assert facts.name_target_gpus(target("L40S"), ("GPU-1",), known, "A100") == "L40S"
    assert facts.name_target_gpus(target(), ("GPU-2",), known, "A100") == "L40S"
    assert facts.name_target_gpus(target(), ("GPU-1", "GPU-2", "GPU-1"), known) == "H100 SXM 80GB + L40S"


def test_a_gpu_that_the_catalogue_does_not_know_is_called_as_its_source_calls_it() -> None:
    facts = GpuFacts()
    known = facts.find_peaks([gpu("GPU-3", "NVIDIA Unheard of", None)])
    assert facts.name_target_gpus(target(), ("GPU-3",), known) == "NVIDIA Unheard of"
    assert facts.name_target_gpus(target("H1000"), (), {}) == "H1000"
    assert facts.name_target_gpus(target(), (), {}, "Gaudi 4") == "Gaudi 4"
    assert facts.name_target_gpus(target(), ("GPU-9",), known) == ""
