"""A device as a kubelet names it -> which GPU it is, or why that is not known."""

from __future__ import annotations

from llm_serving_exporter.gpus.ownership import count_parts, find_device
from llm_serving_exporter.model.gpu import DeviceGrant, GpuIdentity, MigInstance
from tests.support.rows import check_rows


def uuid(number: int, kind: str = "GPU") -> str:
    return f"{kind}-0a1b2c3d-0000-4000-8000-{number:012d}"


def instance(card: int, number: int, gpu_instance: int, compute: int = 0) -> GpuIdentity:
    mig = MigInstance(gpu_instance, compute, "1g.10gb", uuid(card), 1, 8)
    return GpuIdentity(uuid(number, "MIG"), card, "NVIDIA H100", minor_number=card, mig=mig)


# cards 0 and 1 whole; 2 cut into instances, the second GPU instance into two compute instances; 4 and 5 swapped by minor number
GPUS = (
    GpuIdentity(uuid(0), 0, "NVIDIA H100", minor_number=0),
    GpuIdentity(uuid(1), 1, "NVIDIA H100", minor_number=1),
    GpuIdentity(uuid(2), 2, "NVIDIA H100", minor_number=2),
    instance(2, 21, 7),
    instance(2, 22, 9, 0),
    instance(2, 23, 9, 1),
    GpuIdentity(uuid(4), 4, "NVIDIA H100", minor_number=5),
    GpuIdentity(uuid(5), 5, "NVIDIA H100", minor_number=4),
)
NVIDIA = "nvidia.com/gpu"


@check_rows(
    ("resource", "device", "found", "is_part"),
    [
        (NVIDIA, uuid(1), uuid(1), False),
        (NVIDIA, uuid(1).upper(), uuid(1), False),
        # one that NVML does not show here is certain all the same
        (NVIDIA, uuid(99), uuid(99), False),
        ("nvidia.com/gpu.shared", f"{uuid(0)}::3", uuid(0), True),
        ("nvidia.com/mig-1g.10gb", uuid(21, "MIG"), uuid(21, "MIG"), False),
        ("nvidia.com/mig-1g.10gb.shared", f"{uuid(21, 'MIG')}::0", uuid(21, "MIG"), True),
        ("nvidia.com/mig-1g.5gb", f"MIG-{uuid(7)}/1/0", f"MIG-{uuid(7)}/1/0", False),
        # a plugin may rename its resources
        ("example.com/h100", uuid(0), uuid(0), False),
        (NVIDIA, "nvidia1", uuid(1), False),
        (NVIDIA, "nvidia5", uuid(4), False),
        (NVIDIA, "nvidia0/vgpu2", uuid(0), True),
        (NVIDIA, "nvidia2/gi7", uuid(21, "MIG"), False),
        (NVIDIA, "nvidia2/gi7/vgpu0", uuid(21, "MIG"), True),
    ],
)
def test_a_known_form_is_a_gpu(resource: str, device: str, found: str, is_part: bool) -> None:
    one = find_device(DeviceGrant(resource, device), GPUS, {})
    assert (one.uuid, one.is_part, one.why) == (found, is_part, "")


@check_rows(
    ("resource", "device", "why"),
    [
        (NVIDIA, "nvidia7", "/dev/nvidia7 is not visible to NVML here"),
        (NVIDIA, "nvidia2/gi9", "/dev/nvidia2, GPU instance 9, is 2 instances"),
        # HAMi: the card is chosen elsewhere
        (NVIDIA, f"{uuid(0)}-3", "is in a form that is not known"),
        (NVIDIA, "tegra", "is in a form that is not known"),
        (NVIDIA, f"{uuid(0)}::", "is in a form that is not known"),
        ("amd.com/gpu", "0000:1b:00.0", "amd.com/gpu 0000:1b:00.0 is in a form that is not known"),
        ("gpu.intel.com/i915", "card0-0", "gpu.intel.com/i915"),
        ("habana.ai/gaudi", "AC0", "habana.ai/gaudi"),
        ("google.com/tpu", "0", "google.com/tpu"),
        ("aws.amazon.com/neuroncore", "0", "aws.amazon.com/neuroncore"),
        ("amd.com/gpu", "x\n" * 1000, "amd.com/gpu x?x?"),
        # GPUs of plugins that share by memory: the id is made of a UUID
        ("volcano.sh/vgpu-number", f"{uuid(0)}-0", "volcano.sh/vgpu-number"),
        ("volcano.sh/vgpu-memory", "7", "volcano.sh/vgpu-memory 7"),
        ("aliyun.com/gpu-mem", f"{uuid(0)}-_-11", "aliyun.com/gpu-mem"),
        ("tencent.com/vcuda-core", "nvidia0-0", "tencent.com/vcuda-core"),
        ("cards.example.com/part", f"{uuid(0)}/half", "is in a form that is not known"),
        ("nvidia.com/GRID_A100-4C", "4711", "nvidia.com/GRID_A100-4C"),
    ],
)
def test_another_form_is_named_and_not_known(resource: str, device: str, why: str) -> None:
    one = find_device(DeviceGrant(resource, device), GPUS, {})
    assert one.uuid is None
    assert why in one.why
    assert len(one.why) < 200
    assert one.why.isprintable()


@check_rows(
    ("grant", "named"),
    [
        (DeviceGrant("accelerators.example.com/npu", "npu-3"), "accelerators.example.com/npu npu-3"),
        (DeviceGrant("example.com/h100", "0"), "example.com/h100 0"),
        (DeviceGrant("hami-core.example.io", "gpu-0", "node-a"), "gpu-0 of hami-core.example.io"),
        (DeviceGrant("x\n" * 1000, "y"), "x?x?"),
    ],
)
def test_what_nobody_has_heard_of_may_be_an_accelerator(grant: DeviceGrant, named: str) -> None:
    one = find_device(grant, GPUS, {})
    assert (one.uuid, one.is_doubtful) == (None, True)
    assert named in one.why
    assert "may be an accelerator" in one.why
    assert len(one.why) < 250
    assert one.why.isprintable()


@check_rows(
    "grant",
    [
        DeviceGrant("rdma/hca_shared", "mlx5_0"), DeviceGrant("nvidia.com/hostdev", "0000:3b:00.2"),
        DeviceGrant("vpc.amazonaws.com/efa", "efa0"),
        DeviceGrant("devices.kubevirt.io/kvm", "kvm1"), DeviceGrant("dranet", "eth1", "node-a"),
        DeviceGrant("compute-domain.nvidia.com", "channel-0", "node-a"), DeviceGrant("nvidia.com/mlnxnics", "0"),
        DeviceGrant("intel.com/sriov_netdevice", "0000:3b:00.2"), DeviceGrant("smarter-devices/fuse", "fuse0"),
        DeviceGrant("squat.ai/tun", "1"), DeviceGrant("openshift.io/mellanoxnics", "2"), DeviceGrant("sgx.intel.com/epc", "3"),
    ],
)  # fmt: skip
def test_what_is_no_accelerator_is_none(grant: DeviceGrant) -> None:
    assert find_device(grant, GPUS, {}) is None


def test_a_claimed_device_is_known_only_where_it_is_certain() -> None:
    def claimed(device: str, *cdi: str, driver: str = "gpu.nvidia.com", **slices: str) -> tuple[str | None, str]:
        grant = DeviceGrant(driver, device, "node-a", cdi)
        one = find_device(grant, GPUS, {("node-a", name.replace("_", "-")): of for name, of in slices.items()})
        return one.uuid, one.why

    assert claimed("gpu-1") == (uuid(1), "")
    # minor number and index name two cards
    assert claimed("gpu-4")[0] is None
    assert claimed("gpu-4", gpu_4=uuid(4)) == (uuid(4), "")
    assert claimed("gpu-4", f"nvidia.com/gpu={uuid(5)}") == (uuid(5), "")
    assert claimed("gpu-4", "k8s.gpu.nvidia.com/claim=0a-gpu-4")[0] is None
    unknown, why = claimed("gpu-2-mig-19-0-1")
    assert (unknown, "ResourceSlices" in why) == (None, True)
    assert claimed("gpu-2-mig-19-0-1", gpu_2_mig_19_0_1=uuid(21, "MIG")) == (uuid(21, "MIG"), "")
    assert claimed("gpu-0", driver="gpu.intel.com") == (None, "claims of gpu.intel.com are not known")


def test_parts_are_counted_by_physical_device() -> None:
    every = [f"{uuid(0)}::{n}" for n in range(4)] + [uuid(1)] + [f"nvidia2/gi7/vgpu{n}" for n in range(2)]
    assert count_parts([DeviceGrant(NVIDIA, one) for one in every]) == {uuid(0): 4, "nvidia2/gi7": 2}


def test_parts_of_several_resources_are_of_sizes_that_are_not_known() -> None:
    """As of plugins that share a card by memory: 10 GB are one part, 20 GB are one."""
    small = [DeviceGrant("nvidia.com/gpu-10gb", f"{uuid(0)}::{n}") for n in range(2)]
    large = [DeviceGrant("nvidia.com/gpu-20gb", f"{uuid(0)}::2")]
    assert count_parts([*small, *large]) == {}
    assert count_parts(small) == {uuid(0): 2}
