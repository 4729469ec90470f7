"""The recorder of real GPUs, run over the stub: what it writes may be committed."""

from __future__ import annotations

import json
from functools import partial

import pytest

from tests.cuda_stub.stub import CudaStub
from tests.hardware.loads import Load, copying, multiplying
from tests.hardware.record import main

QUICK = ["--passes", "2", "--interval", "0.15", "--settle", "0"]


def test_a_recording_holds_the_readings_and_neither_uuids_nor_pids(rig, tmp_path):
    rig.state.count(2)
    instance = rig.state.mig(1, 0, "1g.10gb", 9856, gi=9)
    rig.state.processes("gpu0", (3987654321, 1000))
    file = tmp_path / "recording.json"
    assert main([str(file), "--passes", "2", "--interval", "0.15"]) == 0
    text = file.read_text()
    for secret in (rig.state.uuid(0), rig.state.uuid(1), instance, "3987654321"):
        assert secret not in text
    passes = json.loads(text)["passes"]
    assert len(passes) == 2
    first, second, third = passes[1]["gpus"]
    assert [gpu["identity"]["uuid"] for gpu in (first, second, third)] == [
        "GPU-masked-0",
        "GPU-masked-1",
        "MIG-masked-2",
    ]
    assert third["identity"]["mig"]["parent_uuid"] == "GPU-masked-1"
    assert first["processes"] == [{"pid": 1, "memory_bytes": 1000}]
    assert first["dram_bandwidth_ratio"] == 0.625
    assert first["xid_events_total"]["79"] == 0


def test_without_a_gpu_nothing_is_written(rig, tmp_path, capsys):
    rig.state.fail("sys", "nvmlInitWithFlags", 9)
    file = tmp_path / "recording.json"
    assert main([str(file), "--passes", "1"]) == 1
    assert not file.exists()
    assert "kernel driver is not loaded" in capsys.readouterr().err


def test_a_recording_holds_each_gpus_peaks(rig, tmp_path):
    rig.state.count(2)
    rig.state.set("gpu1", name="NVIDIA Prototype", bus_width=6144)
    rig.state.update("gpu1", {"pci_device_id": 0x123410DE})
    file = tmp_path / "recording.json"
    assert main([str(file), "--passes", "1"]) == 0
    document = json.loads(file.read_text())
    known, unknown = document["peaks"]
    assert (known["uuid"], known["name"], known["origin"]) == ("GPU-masked-0", "H100 SXM 80GB", "nvml")
    assert known["by_origin"] == {"catalogue": 3350e9, "nvml": pytest.approx(3352.32e9)}
    assert known["flops"]["bf16"] == 989.5e12
    assert (unknown["uuid"], unknown["origin"], unknown["flops"]) == ("GPU-masked-1", "nvml", {})
    identity = document["passes"][0]["gpus"][0]["identity"]
    assert [identity[key] for key in ("memory_bus_width_bits", "memory_clock_max_hertz", "sm_clock_max_hertz")] == [
        5120, 2619e6, 1980e6,
    ]  # fmt: skip
    assert document["loads"] == []


def test_a_recording_under_loads_holds_what_they_did_and_what_nvml_said_meanwhile(rig, tmp_path):
    stub = CudaStub(tmp_path)
    loads = (
        Load("copy", "bytes", partial(copying, library=stub.path, size=1 << 16)),
        Load("matmul", "flops", partial(multiplying, library=stub.path, blas=stub.path, size=16)),
    )
    rig.state.processes("gpu0", (3987654321, 1000))
    file = tmp_path / "recording.json"
    assert main([str(file), "--loads", *QUICK], loads) == 0
    text = file.read_text()
    assert rig.state.uuid(0) not in text
    assert "3987654321" not in text
    copy, matmul = json.loads(text)["loads"]
    for one, unit in ((copy, "bytes"), (matmul, "flops")):
        assert (one["unit"], one["uuid"], one["multiprocessors"]) == (unit, "GPU-masked-0", 132)
        assert one["per_second"] > 0
        # a baseline and two windows
        gpus = [reading["gpus"][0] for reading in one["passes"]]
        assert [gpu["tensor_activity_ratio"] for gpu in gpus[1:]] == [0.22, 0.22]
        assert [gpu["clock_hertz"]["sm"] for gpu in gpus] == [1755e6] * 3
    assert stub.left == 0


def test_a_load_that_cannot_run_leaves_its_reason(rig, tmp_path, capsys):
    loads = (Load("copy", "bytes", partial(copying, library="no-such-libcuda.so")),)
    file = tmp_path / "recording.json"
    assert main([str(file), "--loads", *QUICK], loads) == 0
    (copy,) = json.loads(file.read_text())["loads"]
    assert copy["load"] == "copy"
    assert "no-such-libcuda.so cannot be used" in copy["why_not"]
    assert "the copy loop did not run: no-such-libcuda.so" in capsys.readouterr().err


def test_under_mig_no_load_runs(rig, tmp_path):
    rig.state.mig(0, 0, "1g.10gb", 9856, gi=9)
    file = tmp_path / "recording.json"
    assert main([str(file), "--loads", *QUICK]) == 0
    assert {one["why_not"] for one in json.loads(file.read_text())["loads"]} == {"no GPU that is not in MIG mode"}
