"""ResourceSlices -> UUIDs of claimed devices. Their shape is that of k8s.io/api/resource/v1, v0.34.4."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from llm_serving_exporter.discovery.kubernetes.mirror import SliceRecord, decode_slice, map_devices
from tests.support.rows import check_rows

INSTANCE = {"type": {"string": "mig"}, "uuid": {"string": "MIG-1"}, "parentUUID": {"string": "GPU-1"}}
CARD = {"type": {"string": "gpu"}, "uuid": {"string": "GPU-0"}, "minor": {"int": 0}, "index": {"int": 0}}


def write(*devices: Any, driver: str = "gpu.nvidia.com", name: str = "s", generation: int = 1) -> bytes:
    pool = {"name": "node-a", "generation": generation, "resourceSliceCount": 1}
    spec = {"driver": driver, "nodeName": "node-a", "pool": pool, "devices": list(devices)}
    return json.dumps({"metadata": {"name": name, "uid": "u"}, "spec": spec}).encode()


def test_cards_and_instances() -> None:
    body = write(
        {"name": "gpu-0", "attributes": CARD, "capacity": {"memory": {"value": "80Gi"}}},
        {"name": "gpu-1-mig-9-0-4", "attributes": INSTANCE},
        {"name": "gpu-2", "attributes": {"gpu.nvidia.com/uuid": {"string": "GPU-2"}}},
        # an instance that nobody has made yet, and attributes of other kinds
        {"name": "gpu-3-mig-9-0-4", "attributes": {"uuid": {"version": "1.0.0"}}},
        {"name": "gpu-4"},
    )
    found = decode_slice(body)
    assert found == (
        "s",
        SliceRecord("node-a", 1, (("gpu-0", "GPU-0"), ("gpu-1-mig-9-0-4", "MIG-1"), ("gpu-2", "GPU-2"))),
    )


def test_another_drivers_slices_are_not_kept() -> None:
    assert decode_slice(write({"name": "gpu-0", "attributes": CARD}, driver="gpu.amd.com")) == ("s", None)


@check_rows("body", [b"[]", b"{}", b'{"metadata": {"name": "s"}, "spec": 1}', write(1), write({"name": 1})])
def test_what_is_no_slice_is_refused(body: bytes) -> None:
    with pytest.raises(msgspec.MsgspecError):
        decode_slice(body)


def test_of_a_pool_that_is_made_anew_the_newest_generation_counts() -> None:
    old, other = (
        SliceRecord("node-a", 1, (("gpu-0", "GPU-0"), ("gpu-1", "GPU-1"))),
        SliceRecord("b", 1, (("x", "GPU-9"),)),
    )
    parts = (SliceRecord("node-a", 2, (("gpu-0", "GPU-1"),)), SliceRecord("node-a", 2, (("gpu-2", "MIG-2"),)))
    assert map_devices((parts[0], old, other, parts[1])) == {
        ("node-a", "gpu-0"): "GPU-1",
        ("node-a", "gpu-2"): "MIG-2",
        ("b", "x"): "GPU-9",
    }
    assert map_devices(()) == {}
