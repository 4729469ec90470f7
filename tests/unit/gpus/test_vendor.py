"""Other vendors' accelerators, out of a tree laid out as /sys."""

from __future__ import annotations

from pathlib import Path

import pytest

from llm_serving_exporter.facts.gpus import find
from llm_serving_exporter.gpus.nvml import NAMES_MAX, find_other_vendor_gpus
from tests.support.models.gpucatalogue import CATALOGUE
from tests.support.rows import check_rows


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
    ("vendor", "kind", "name"),
    [
        pytest.param("0x1002", "0x120000", "AMD 0x74a1 at 0000:05:00.0", id="Instinct, a processing accelerator"),
        pytest.param("0x1002", "0x030000", "AMD 0x74a1 at 0000:05:00.0", id="Radeon"),
        pytest.param("0x8086", "0x038000", "Intel 0x74a1 at 0000:05:00.0", id="Intel display controller"),
        pytest.param("0x1da3", "0x088000", "Habana 0x74a1 at 0000:05:00.0", id="Gaudi, whatever its class"),
    ],
)
def test_accelerators_are_named(tmp_path, vendor, kind, name):
    pci(tmp_path, "0000:05:00.0", vendor, kind)
    assert find_other_vendor_gpus(tmp_path) == (name,)


@check_rows(
    ("vendor", "device", "name"),
    [
        ("0x1ae0", "0x006f", "TPU v6e"),
        ("0x1ae0", "0x0063", "TPU v5e"),
        ("0x1d0f", "0x7364", "Trainium2"),
        ("0x1d0f", "0x7264", "Inferentia2"),
    ],
)
def test_accelerators_of_clouds_have_the_catalogues_names(tmp_path, vendor, device, name):
    pci(tmp_path, "0000:05:00.0", vendor, "0x088000", device)
    # the same vendors' network and storage
    pci(tmp_path, "0000:06:00.0", vendor, "0x020000", "0x0042")
    assert find_other_vendor_gpus(tmp_path) == (f"{name} at 0000:05:00.0",)
    assert find(name, CATALOGUE).name == name


@check_rows(
    ("vendor", "kind"),
    [("0x10de", "0x030200"), ("0x8086", "0x020000"), ("0x1002", "0x040300"), ("0x1af4", "0x030000")],
    ids=["NVIDIA", "Intel network card", "AMD sound", "virtio display"],
)
def test_other_devices_are_not(tmp_path, vendor, kind):
    pci(tmp_path, "0000:05:00.0", vendor, kind)
    assert find_other_vendor_gpus(tmp_path) == ()


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
