"""/sys -> accelerators of other vendors than NVIDIA, so that a missing NVML can be explained in a sentence."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

# PCI vendor id -> name and the class codes (upper 16 bits: 0x03xx display, 0x12xx processing accelerator) that count;
# None: all. Ids from the PCI ID repository.
_VENDORS: dict[str, tuple[str, tuple[str, ...] | None]] = {
    "0x1002": ("AMD", ("0x03", "0x12")),
    "0x8086": ("Intel", ("0x03", "0x12")),
    "0x1da3": ("Habana", None),
}
# of vendors whose other devices (network, storage) are on every machine of their clouds: the accelerators alone, by device id. Google's
# ids as JAX has them (hardware_utils.py), Amazon's from the PCI ID repository; names as the GPU catalogue's.
_PRODUCTS: dict[tuple[str, str], str] = {
    ("0x1ae0", "0x0062"): "TPU v5p",
    ("0x1ae0", "0x0063"): "TPU v5e",
    ("0x1ae0", "0x006f"): "TPU v6e",
    ("0x1ae0", "0x0076"): "TPU v7",
    ("0x1d0f", "0x7164"): "Trainium",
    ("0x1d0f", "0x7264"): "Inferentia2",
    ("0x1d0f", "0x7364"): "Trainium2",
    ("0x1d0f", "0x7564"): "Trainium3",
    ("0x1d0f", "0x7565"): "Trainium3",
}
DEVICES_MAX = 4096
NAMES_MAX = 64


def find_other_vendor_gpus(sys_root: Path = Path("/sys")) -> tuple[str, ...]:
    """Names such as "AMD 0x74a1 at 0000:05:00.0" or "TPU v6e at 0000:05:00.0" of other vendors' accelerators, by PCI address; () where
    none is seen.

    Read from the PCI bus, and from /sys/class/drm for those that are not on it. Integrated graphics count. Unreadable
    entries are left out.
    """
    found: dict[str, str] = {}
    for address, device in _find_devices(sys_root):
        vendor_id, device_id = _read_line(device / "vendor"), _read_line(device / "device")
        product = _PRODUCTS.get((vendor_id, device_id))
        if product is not None:
            found.setdefault(address, f"{product} at {address}")
        vendor = _VENDORS.get(vendor_id)
        if vendor is None:
            continue
        name, classes = vendor
        kind = _read_line(device / "class")
        # a device behind /sys/class/drm is a display one whatever its bus; only PCI devices state a class
        if kind and classes is not None and not kind.startswith(classes):
            continue
        found.setdefault(address, f"{name} {device_id or 'device'} at {address}")
        if len(found) >= NAMES_MAX:
            break
    return tuple(found[address] for address in sorted(found))


def _find_devices(sys_root: Path) -> Iterator[tuple[str, Path]]:
    for device in _list_entries(sys_root / "bus/pci/devices"):
        yield device.name, device
    for card in _list_entries(sys_root / "class/drm"):
        if card.name.startswith("card") and card.name[4:].isdigit():
            device = card / "device"
            try:
                yield device.resolve(strict=True).name, device
            except (OSError, RuntimeError):  # RuntimeError: a loop of links, before Python 3.13
                continue


def _list_entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())[:DEVICES_MAX]
    except OSError:
        return []


def _read_line(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            return opened.read(64).decode("ascii", "replace").strip().lower()
    except OSError:
        return ""
