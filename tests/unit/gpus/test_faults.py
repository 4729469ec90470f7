"""Faults of driver and cards, each with one defined answer; MIG; the recorder of real GPUs, run over the stub."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path

import pytest

from llm_serving_exporter.gpus.events import FaultLog
from llm_serving_exporter.gpus.nvml import KNOWN_MAX
from llm_serving_exporter.model.sample import FailureReason, Stage
from tests.cuda_stub.stub import CudaStub
from tests.hardware.loads import Load, copying, multiplying
from tests.hardware.record import main
from tests.nvml_stub.stub import MEBIBYTE, SONAME, stub_environment
from tests.support.paths import ROOT
from tests.support.waiting import PATIENCE_SECONDS

UNINITIALIZED, NO_PERMISSION, DRIVER_NOT_LOADED, LIB_RM_MISMATCH, UNKNOWN = 1, 4, 9, 18, 999
REPOSITORY = ROOT


@pytest.mark.parametrize(
    ("code", "reason", "advice"),
    [
        (DRIVER_NOT_LOADED, FailureReason.NO_DRIVER, "kernel driver is not loaded"),
        (LIB_RM_MISMATCH, FailureReason.DRIVER_MISMATCH, "restart the exporter"),
        (NO_PERMISSION, FailureReason.NO_PERMISSION, "/dev/nvidiactl"),
        (UNKNOWN, FailureReason.NVML, "NVML 999"),
    ],
)
def test_nvml_that_cannot_be_initialised_is_a_failed_attempt_until_it_can(rig, gpu_log, code, reason, advice):
    rig.state.fail("sys", "nvmlInitWithFlags", code)
    for _ in range(3):
        readings = rig.read_all()
        assert (readings.attempt.stage, readings.attempt.reason, readings.gpus) == (Stage.GPU, reason, ())
        assert advice in readings.attempt.detail
    assert len(gpu_log.records) == 1
    rig.state.heal("sys")
    gpu = rig.one(after=60.0)
    assert gpu.identity.uuid == rig.state.uuid(0)
    rig.read()
    assert [record.levelno for record in gpu_log.records] == [logging.WARNING, logging.INFO]


def test_attempts_to_initialise_grow_apart(rig):
    rig.state.fail("sys", "nvmlInitWithFlags", DRIVER_NOT_LOADED)
    tries = []
    for _ in range(60):
        rig.read_all(after=5.0)
        tries.append(rig.stub.calls("nvmlInitWithFlags"))
    # pauses of 1, 2, 4 s are over by the next pass at 5 s; 8, 16, 32 s skip passes; then one a minute
    assert tries[:6] == [1, 2, 3, 4, 4, 5]
    assert tries[-1] == 10


@pytest.mark.parametrize("code", [UNINITIALIZED, DRIVER_NOT_LOADED, LIB_RM_MISMATCH, UNKNOWN])
def test_a_driver_that_goes_and_comes_back_is_picked_up(rig, gpu_log, code):
    rig.read()
    rig.state.fail("sys", "*", code)
    readings = rig.read_all()
    assert readings.gpus == ()
    assert not readings.attempt.ok
    rig.state.heal("sys")
    gpu = rig.one()
    assert gpu.power_watts == pytest.approx(612.345)
    assert rig.stub.init_balance == 1 or code != UNKNOWN
    assert len(gpu_log.records) == 2


def test_a_driver_reload_costs_one_pass(rig):
    rig.read()
    rig.state.reload_driver()
    assert rig.read_all().attempt.reason is FailureReason.NVML
    gpu = rig.one()
    assert not gpu.lost


def test_unknown_errors_on_every_reading_of_every_gpu_renew_the_session(rig):
    rig.state.count(2)
    rig.read()
    inits = rig.stub.calls("nvmlInitWithFlags")
    for scope in ("gpu0", "gpu1"):
        rig.state.fail(scope, "*", UNKNOWN)
    assert rig.read_all().attempt.reason is FailureReason.NVML
    for scope in ("gpu0", "gpu1"):
        rig.state.heal(scope)
    assert [gpu.lost for gpu in rig.read()] == [False, False]
    assert rig.stub.calls("nvmlInitWithFlags") == inits + 1


@pytest.mark.parametrize("code", [15, 16, 28])  # lost, reset required, not found
def test_a_gpu_off_the_bus_is_lost_while_the_others_read_on(rig, gpu_log, code):
    rig.state.count(2)
    rig.read()
    rig.state.fail("gpu0", "*", code)
    for _ in range(3):
        readings = rig.read_all()
        assert readings.attempt.ok
        assert "1 of 2" in readings.attempt.detail
        alive, lost = readings.gpus
        assert (alive.identity.uuid, alive.lost) == (rig.state.uuid(1), False)
        assert alive.power_watts == pytest.approx(612.345)
        assert (lost.identity.uuid, lost.identity.name, lost.lost) == (rig.state.uuid(0), "NVIDIA H100 80GB HBM3", True)
        assert (lost.power_watts, lost.memory_used_bytes, lost.temperature_celsius) == (None, None, {})
    assert gpu_log.text.count("does not answer any more") == 1
    rig.state.heal("gpu0")
    assert [gpu.lost for gpu in rig.read()] == [False, False]
    assert gpu_log.text.count("answers again") == 1


def lost(rig):
    return {gpu.identity.uuid: gpu.lost for gpu in rig.read()}


def test_a_gpu_that_only_answers_unknown_errors_is_lost(rig):
    rig.state.count(2)
    rig.read()
    rig.state.fail("gpu1", "*", UNKNOWN)
    assert lost(rig) == {rig.state.uuid(0): False, rig.state.uuid(1): True}


def test_a_gpu_that_is_no_longer_enumerated_stays_reported_as_lost(rig):
    rig.state.count(2)
    rig.read()
    rig.state.count(1)
    assert lost(rig) == {rig.state.uuid(0): False, rig.state.uuid(1): True}
    rig.state.reload_driver()
    assert not rig.read_all().attempt.ok
    assert lost(rig) == {rig.state.uuid(0): False, rig.state.uuid(1): True}
    rig.state.count(2)
    assert set(lost(rig).values()) == {False}


def test_a_gpu_is_missed_however_many_were_exchanged_before_it(rig):
    rig.state.count(2)
    totals = []
    for number in range(2 * KNOWN_MAX):
        rig.state.set("gpu1", uuid=f"GPU-11111111-0000-0000-0000-{number:012d}")
        found = rig.read()
        totals.append(found[0].pcie_bytes_total["tx"])
    assert len(found) <= KNOWN_MAX + 1
    assert totals == sorted(totals)  # of the GPU that stayed
    rig.state.count(1)
    (last,) = [gpu for gpu in rig.read() if gpu.identity.uuid.endswith(f"{number:012d}")]
    assert last.lost


def test_every_gpu_lost_is_still_a_pass_that_tells_so(rig):
    rig.read()
    rig.state.fail("gpu0", "*", 15)
    gpu = rig.one()
    assert (gpu.identity.uuid, gpu.lost) == (rig.state.uuid(0), True)


def test_a_gpu_lost_before_the_first_pass_is_reported_without_a_name(rig):
    rig.state.count(2)
    rig.state.fail("gpu1", "*", 15)
    alive, stranger = rig.read()
    assert (alive.identity.uuid, alive.lost) == (rig.state.uuid(0), False)
    assert (stranger.identity.uuid, stranger.identity.name, stranger.lost) == ("unidentified-1", "", True)
    rig.state.heal("gpu1")
    assert [gpu.identity.uuid for gpu in rig.read()] == [rig.state.uuid(0), rig.state.uuid(1)]


def test_while_a_gpu_is_lost_nvml_is_initialised_anew_now_and_then(rig):
    rig.state.count(2)
    rig.read()
    rig.state.fail("gpu1", "*", 15)
    inits = rig.stub.calls("nvmlInitWithFlags")
    for _ in range(11):
        rig.read(after=5.0)
    assert rig.stub.calls("nvmlInitWithFlags") == inits
    rig.read(after=10.0)
    assert rig.stub.calls("nvmlInitWithFlags") == inits + 1
    rig.read(after=30.0)
    assert rig.stub.calls("nvmlInitWithFlags") == inits + 1  # the next is due after two minutes
    assert rig.stub.init_balance == 1


def test_a_new_gpu_is_seen_at_the_next_pass(rig):
    rig.read()
    rig.state.count(3)
    assert [gpu.identity.index for gpu in rig.read()] == [0, 1, 2]


def test_a_gpu_that_this_process_may_not_use_is_left_out_and_logged_once(rig, gpu_log):
    rig.state.count(2)
    rig.state.fail("gpu1", "nvmlDeviceGetHandleByIndex_v2", NO_PERMISSION)
    readings = rig.read_all()
    assert [gpu.identity.uuid for gpu in readings.gpus] == [rig.state.uuid(0)]
    assert "1 refused" in readings.attempt.detail
    rig.read()
    assert len(gpu_log.records) == 1


def test_no_gpu_that_this_process_may_use_is_a_failed_attempt(rig):
    rig.state.fail("gpu0", "nvmlDeviceGetHandleByIndex_v2", NO_PERMISSION)
    assert rig.read_all().attempt.reason is FailureReason.NO_PERMISSION


def test_nvml_without_any_gpu_is_healthy_and_says_so(rig):
    rig.state.count(0)
    readings = rig.read_all()
    assert (readings.attempt.ok, readings.gpus) == (True, ())
    assert "NVIDIA_VISIBLE_DEVICES" in readings.attempt.detail


def test_an_answer_that_is_not_text_spoils_one_reading_only(rig):
    broken = rig.state.path.read_bytes().replace(b"name NVIDIA H100 80GB HBM3", b"name \xff\xfe")
    rig.state.path.unlink()
    rig.state.path.write_bytes(broken)
    gpu = rig.one()
    assert gpu.identity.name == ""
    assert gpu.power_watts == pytest.approx(612.345)


def test_a_fault_of_our_own_is_an_attempt_too_and_logged_once_with_its_trace(rig, gpu_log):
    def broken_clock():
        raise ZeroDivisionError("no such luck")

    rig.open()
    rig.source._wall = lambda: 0.0
    rig.read()
    rig.source._session._monotonic = broken_clock
    for _ in range(2):
        readings = rig.read_all()
        assert readings.attempt.reason is FailureReason.INTERNAL
        assert "ZeroDivisionError" in readings.attempt.detail
    assert sum(record.exc_info is not None for record in gpu_log.records) == 1
    rig.source._session._monotonic = rig.clock
    assert rig.read()[0].power_watts == pytest.approx(612.345)


def test_after_close_a_read_fails_and_opens_nothing(rig):
    rig.read()
    rig.source.close()
    rig.source.close()
    assert not rig.read_all().attempt.ok
    assert rig.stub.init_balance == 0


def test_nothing_leaks_over_many_sessions(rig):
    for _ in range(40):
        rig.read(after=60.0)
        rig.read(after=5.0)
        rig.state.reload_driver()
        assert not rig.read_all().attempt.ok
    assert rig.stub.live_samples == 0
    # each session that ended was shut down, and its samples freed before: the fixture checks the rest
    assert rig.stub.init_balance == 0
    assert [thread.name for thread in threading.enumerate() if thread.name == "nvml-xid-events"] == []


READ_ONCE = """
import sys
from pathlib import Path
from llm_serving_exporter.gpus.nvml import NvmlSource
assert "pynvml" not in sys.modules, "pynvml is paid for only where a source is made"
source = NvmlSource(sys_root=Path(sys.argv[1]))
readings = source.read()
source.close()
print(readings.attempt.reason, len(readings.gpus), readings.attempt.detail)
"""


def read_in_subprocess(environment: dict[str, str], sys_root: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", READ_ONCE, str(sys_root)],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY / "exporter"), **environment},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.process
def test_a_subprocess_gets_the_stub_through_its_environment(rig, nvml_library, tmp_path):
    printed = read_in_subprocess(stub_environment(nvml_library, rig.state.path), tmp_path)
    assert printed.startswith("None 1")


@pytest.mark.process
def test_without_the_library_a_person_is_told_what_to_do(tmp_path):
    # a file that is no library stands in for its absence, so that a machine which has one gives the same answer
    (tmp_path / SONAME).write_text("not a library")
    printed = read_in_subprocess({"LD_LIBRARY_PATH": str(tmp_path)}, tmp_path)
    assert printed.startswith("nvml_library_missing 0")
    assert "NVIDIA runtime" in printed
    assert "gpu.enabled: false" in printed


@pytest.mark.process
def test_without_the_library_gpus_of_another_vendor_are_named(tmp_path):
    (tmp_path / SONAME).write_text("not a library")
    device = tmp_path / "bus/pci/devices/0000:05:00.0"
    device.mkdir(parents=True)
    for name, value in (("vendor", "0x1002"), ("class", "0x120000"), ("device", "0x74a1")):
        (device / name).write_text(value + "\n")
    printed = read_in_subprocess({"LD_LIBRARY_PATH": str(tmp_path)}, tmp_path)
    assert printed.startswith("nvml_library_missing 0")
    assert "AMD 0x74a1 at 0000:05:00.0" in printed
    assert "for AMD's and Intel's Gaudi set device_exporter.url" in printed


def test_the_fault_log_is_bounded(gpu_log):
    faults = FaultLog(logging.getLogger("llm_serving_exporter.gpu"), limit=3)
    for number in range(10):
        faults.begin_fault(f"fault {number}", f"message {number}")
    assert len(gpu_log.records) == 3


# --- MIG: instances beside their GPU, what they have of their own ---


NO_PERMISSION_FOR_MIG = 4


def test_instances_stand_beside_their_gpu_with_their_share_of_memory(rig):
    # memory sizes as an H100 80GB reports them for these profiles; slot 1 is a hole
    small = rig.state.mig(0, 0, "1g.10gb", 9856, gi=9)
    large = rig.state.mig(0, 2, "3g.40gb", 40192, gi=2)
    whole, first, second = rig.read()
    assert (whole.identity.uuid, whole.identity.mig) == (rig.state.uuid(0), None)
    assert (first.identity.uuid, second.identity.uuid) == (small, large)
    mig = first.identity.mig
    assert (mig.gpu_instance_id, mig.compute_instance_id, mig.profile) == (9, 0, "1g.10gb")
    assert (mig.parent_uuid, mig.memory_slices, mig.memory_slices_total) == (rig.state.uuid(0), 1, 8)
    assert second.identity.mig.memory_slices == 4
    assert second.identity.memory_total_bytes == 40192 * MEBIBYTE
    assert second.identity.name == "NVIDIA H100 80GB HBM3"
    # the peak stays the whole GPU's: the share is memory_slices / memory_slices_total
    assert second.identity.memory_bandwidth_peak_bytes_per_second == pytest.approx(3352.32e9)


@pytest.mark.parametrize(
    ("profile", "memory_mib", "slices"),
    [("1g.10gb", 9856, 1), ("1g.20gb", 19968, 2), ("2g.20gb", 19968, 2), ("4g.40gb", 40192, 4), ("7g.80gb", 80896, 8)],
)
def test_memory_slices_of_h100_profiles(rig, profile, memory_mib, slices):
    rig.state.mig(0, 0, profile, memory_mib, gi=1)
    assert rig.read()[1].identity.mig.memory_slices == slices


def test_a_card_of_four_slices_and_one_of_unknown_slices(rig):
    rig.state.mig(0, 0, "1g.6gb", 5952, gi=1)
    rig.state.set("gpu0", mig_max=4, memory_total=24576 * MEBIBYTE)  # A30
    mig = rig.read()[1].identity.mig
    assert (mig.memory_slices, mig.memory_slices_total) == (1, 4)
    rig.state.set("gpu0", mig_max=3)
    rig.state.reload_driver()
    rig.read_all()
    mig = rig.read()[1].identity.mig
    assert (mig.memory_slices, mig.memory_slices_total) == (None, None)


HALF = 9856 * MEBIBYTE // 2
MEMORY, GPM = "nvmlDeviceGetMemoryInfo_v2", "nvmlGpmMigSampleGet"
ON_PARENT = ("power_watts", "busy_ratio", "energy_joules_total", "xid_events_total", "pcie_bytes_total")


@pytest.mark.parametrize(
    ("refused", "used", "of_whole", "of_instance"),
    [
        ([], (70000 * MEBIBYTE, HALF), {"busy_ratio": "not_supported"}, dict.fromkeys(ON_PARENT, "on_parent")),
        # in use, as driver 535 says after GPM on MIG handles
        (
            [("gpu0", GPM, 19), ("gpu0/mig0", MEMORY, 19)],
            (70000 * MEBIBYTE, None),
            {},
            {"memory_used_bytes": "in_use", "dram_bandwidth_ratio": "in_use"},
        ),
        # in a container the parent's memory is not permitted
        ([("gpu0", MEMORY, NO_PERMISSION_FOR_MIG)], (None, HALF), {"memory_used_bytes": "no_permission"}, {}),
    ],
    ids=["all", "in use", "container"],
)
def test_what_a_gpu_and_its_instance_have(rig, refused, used, of_whole, of_instance):
    rig.state.mig(0, 0, "1g.10gb", 9856, gi=9)
    for refusal in refused:
        rig.state.fail(*refusal)
    whole, instance = rig.read()
    assert (whole.memory_used_bytes, instance.memory_used_bytes) == used
    assert of_whole.items() <= whole.absent.items()
    assert of_instance.items() <= instance.absent.items()
    assert (whole.power_watts, instance.power_watts) == (pytest.approx(612.345), None)
    slices = None if used[0] is None else 1
    assert (instance.identity.mig.memory_slices, instance.identity.mig.memory_slices_total) == (slices, 8)


def test_gpm_of_an_instance_is_sampled_through_its_gpu(rig):
    rig.state.mig(0, 0, "1g.10gb", 9856, gi=9)
    rig.state.update("gpu0/gi9", {"gpm:10": 40.0, "gpm:2": 50.0, "gpm:5": 60.0})
    rig.read()
    whole, instance = rig.read()
    assert instance.dram_bandwidth_ratio == pytest.approx(0.4)
    assert whole.absent["dram_bandwidth_ratio"] == "on_instances"
    # a GPM call on the instance's own handle would be booked as misuse and fail the rig's last check
    assert rig.stub.calls("nvmlGpmMigSampleGet") == 2
    assert rig.stub.calls("nvmlGpmSampleGet") == 0


def test_processes_of_an_instance_come_from_the_parent_where_the_driver_refuses_them(rig):
    rig.state.mig(0, 0, "1g.10gb", 9856, gi=9)
    rig.state.mig(0, 1, "1g.10gb", 9857, gi=11)
    rig.state.processes("gpu0", (1, 100, 9, 0), (2, 200, 11, 0))
    for slot in (0, 1):
        rig.state.fail(f"gpu0/mig{slot}", "nvmlDeviceGetComputeRunningProcesses_v3", 3)
        rig.state.fail(f"gpu0/mig{slot}", "nvmlDeviceGetComputeRunningProcesses_v2", 3)
    whole, first, second = rig.read()
    assert [p.pid for p in whole.processes] == [1, 2]
    assert [p.pid for p in first.processes] == [1]
    assert [p.pid for p in second.processes] == [2]
    assert "processes" not in first.absent


def test_instances_that_go_are_gone_and_new_ones_come_without_a_restart(rig):
    old = rig.state.mig(0, 0, "1g.10gb", 9856, gi=9)
    assert [gpu.identity.uuid for gpu in rig.read()] == [rig.state.uuid(0), old]
    rig.read()
    assert rig.stub.live_samples == 2
    rig.state.drop("gpu0/mig0")
    new = rig.state.mig(0, 3, "2g.20gb", 19968, gi=3)
    readings = rig.read()
    assert [(gpu.identity.uuid, gpu.lost) for gpu in readings] == [(rig.state.uuid(0), False), (new, False)]
    assert rig.stub.live_samples == 1  # the old instance's are freed
    rig.state.drop("gpu0/mig3")
    rig.state.set("gpu0", mig_mode=0)
    whole = rig.one()
    assert whole.identity.uuid == rig.state.uuid(0)


def test_the_profile_is_built_from_slices_where_the_name_lacks_it(rig):
    rig.state.mig(0, 0, "", 19968, gi=1)
    rig.state.set("gpu0/mig0", name="NVIDIA H100 80GB HBM3", gpu_slices=2, compute_slices=1)
    assert rig.read()[1].identity.mig.profile == "1c.2g.20gb"


def test_instances_of_a_lost_gpu_are_lost_with_it(rig):
    rig.state.count(2)
    instance = rig.state.mig(0, 0, "1g.10gb", 9856, gi=9)
    rig.read()
    rig.state.fail("gpu0", "*", 15)
    assert lost(rig) == {rig.state.uuid(1): False, rig.state.uuid(0): True, instance: True}


# --- the recorder of real GPUs, run over the stub: what it writes may be committed ---


QUICK = ["--passes", "2", "--interval", "0.15", "--settle", "0"]


def record(tmp_path, *options, **more):
    """What the recorder writes, which goes well: the text and the document."""
    file = tmp_path / "recording.json"
    assert main([str(file), *options], **more) == 0
    return file.read_text(), json.loads(file.read_text())


def test_a_recording_holds_the_readings_and_neither_uuids_nor_pids(rig, tmp_path):
    rig.state.count(2)
    instance = rig.state.mig(1, 0, "1g.10gb", 9856, gi=9)
    rig.state.processes("gpu0", (3987654321, 1000))
    text, document = record(tmp_path, "--passes", "2", "--interval", "0.15")
    for secret in (rig.state.uuid(0), rig.state.uuid(1), instance, "3987654321"):
        assert secret not in text
    _, last = document["passes"]
    first, second, third = last["gpus"]
    uuids = [gpu["identity"]["uuid"] for gpu in (first, second, third)]
    assert uuids == ["GPU-masked-0", "GPU-masked-1", "MIG-masked-2"]
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
    _, document = record(tmp_path, "--passes", "1")
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
    text, document = record(tmp_path, "--loads", *QUICK, loads=loads)
    assert rig.state.uuid(0) not in text
    assert "3987654321" not in text
    copy, matmul = document["loads"]
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
    (copy,) = record(tmp_path, "--loads", *QUICK, loads=loads)[1]["loads"]
    assert copy["load"] == "copy"
    assert "no-such-libcuda.so cannot be used" in copy["why_not"]
    assert "the copy loop did not run: no-such-libcuda.so" in capsys.readouterr().err


def test_under_mig_no_load_runs(rig, tmp_path):
    rig.state.mig(0, 0, "1g.10gb", 9856, gi=9)
    _, document = record(tmp_path, "--loads", *QUICK)
    assert {one["why_not"] for one in document["loads"]} == {"no GPU that is not in MIG mode"}
