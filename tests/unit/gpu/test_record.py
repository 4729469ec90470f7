"""The recorder of real GPUs, run over the stub: what it writes may be committed."""

from __future__ import annotations

import json

from tests.hardware.record import main


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
