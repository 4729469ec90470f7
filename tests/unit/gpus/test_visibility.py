"""What the exporter sees of the node: written folders like /proc for namespaces and pods that this machine does not have."""

from __future__ import annotations

from pathlib import Path

from llm_serving_exporter.gpus.processes import (
    are_pids_of_here,
    count_driver_gpus,
    explain_blindness,
    find_engine_pids,
    group_pids_by_pod,
    is_in_first_pid_namespace,
)
from llm_serving_exporter.model.gpu import GpuIdentity, GpuProcess, GpuReading, MigInstance
from tests.support.builders.procfolders import OWN_PID_NAMESPACE, Process, write_proc_folder

POD = "0a1b2c3d-0000-4000-8000-00000000000a"
OTHER = "0a1b2c3d-0000-4000-8000-00000000000b"


def gpu(name: str, *pids: int, **more: object) -> GpuReading:
    return GpuReading(GpuIdentity(name, 0, ""), processes=tuple(GpuProcess(pid, None) for pid in pids), **more)


def test_every_process_is_seen_only_in_the_first_pid_namespace(tmp_path: Path) -> None:
    host, own = write_proc_folder(tmp_path / "host"), write_proc_folder(tmp_path / "own", namespace=OWN_PID_NAMESPACE)
    assert is_in_first_pid_namespace(host)
    assert not is_in_first_pid_namespace(own)
    assert not is_in_first_pid_namespace(tmp_path / "missing")
    cards = (gpu("GPU-1"), gpu("GPU-2"))
    assert explain_blindness(cards, host) == ""
    assert "PID namespace of its own" in explain_blindness(cards, own)
    assert "hostPID" in explain_blindness(cards, own)


def test_a_gpu_without_a_process_list_hides_its_users(tmp_path: Path) -> None:
    host = write_proc_folder(tmp_path)
    silent = GpuReading(GpuIdentity("GPU-2", 1, ""))
    assert "1 of the 2 GPUs" in explain_blindness((gpu("GPU-1"), silent), host)
    # one that is lost runs nothing; one in MIG mode is seen by its instances
    assert explain_blindness((gpu("GPU-1"), GpuReading(GpuIdentity("GPU-2", 1, ""), lost=True)), host) == ""
    cut = GpuReading(GpuIdentity("MIG-1", 1, "", mig=MigInstance(1, 0, "", "GPU-2", 1, 8)), processes=())
    assert explain_blindness((silent, cut), host) == ""


def test_a_container_that_is_given_some_of_the_nodes_gpus_does_not_see_who_uses_the_others(tmp_path: Path) -> None:
    host = write_proc_folder(tmp_path / "host")
    cards = (gpu("GPU-1"), gpu("GPU-2"))
    assert "sees 2 of the node's 8 GPUs" in explain_blindness(cards, host, 8)
    assert explain_blindness(cards, host, 2) == explain_blindness(cards, host, None) == ""
    # two instances of one card are one
    cut = [
        GpuReading(GpuIdentity(f"MIG-{slot}", 0, "", mig=MigInstance(slot, 0, "", "GPU-1", 1, 8)), processes=())
        for slot in (1, 2)
    ]
    assert "sees 1 of the node's 2 GPUs" in explain_blindness(cut, host, 2)
    assert explain_blindness(cut, host, 1) == ""


def test_pids_of_the_host_are_not_taken_for_those_of_a_namespace_of_its_own(tmp_path: Path) -> None:
    host = write_proc_folder(tmp_path / "host", Process(7))
    own = write_proc_folder(tmp_path / "own", Process(7), namespace=OWN_PID_NAMESPACE)
    assert are_pids_of_here((gpu("GPU-1", 7, 4000),), host)
    # pid 4000 is not here: the list is the host's, and 7 is somebody else
    assert not are_pids_of_here((gpu("GPU-1", 7), gpu("GPU-2", 4000)), own)
    assert are_pids_of_here((gpu("GPU-1", 7), GpuReading(GpuIdentity("GPU-2", 1, ""))), own)


def test_the_processes_of_a_pod_are_known_by_their_cgroup(tmp_path: Path) -> None:
    root = write_proc_folder(tmp_path, Process(7, pod=POD), Process(8, pod=POD), Process(9, pod=OTHER), Process(10))
    # cgroupfs instead of systemd, and a static pod, which has no UID there
    (root / "9/cgroup").write_text(f"4:cpu:/\n0::/kubepods/burstable/pod{OTHER}/3f4e5d\n")
    (root / "10/cgroup").write_text("0::/kubepods.slice/kubepods-pod3ac44ef3a1c3b5d8.slice/x.scope\n")
    (root / "11").mkdir()
    assert group_pids_by_pod(root) == {POD: {7, 8}, OTHER: {9}}
    assert group_pids_by_pod(tmp_path / "missing") == {}


def test_the_port_of_an_engine_is_looked_up_in_its_pods_network(tmp_path: Path) -> None:
    root = write_proc_folder(
        tmp_path, Process(7, ports=[8000], pod=POD), Process(8, parent=7, pod=POD), Process(9, ports=[8001], pod=POD),
        Process(10, ports=[8000], pod=OTHER), Process(11, ports=[8000]),
    )  # fmt: skip
    among = group_pids_by_pod(root)[POD]
    assert find_engine_pids(8000, root, among=among) == {7, 8}
    assert find_engine_pids(8001, root, among=among) == {9}
    assert find_engine_pids(9999, root, among=among) == frozenset()
    assert find_engine_pids(8000, root) == {11}
    assert find_engine_pids(8000, root, among=frozenset()) == frozenset()


def test_the_gpus_of_a_node_are_those_that_the_driver_holds(tmp_path: Path) -> None:
    for name in ("0000:1b:00.0", "00000000:3B:00.0", "bind", "unbind", "module", "new_id"):
        (tmp_path / name).mkdir()
    assert count_driver_gpus(tmp_path) == 2
    assert count_driver_gpus(tmp_path / "missing") is None
    assert count_driver_gpus(tmp_path / "bind") is None
