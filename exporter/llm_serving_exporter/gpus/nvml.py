"""NVML -> GpuReadings, one pass after another, whatever fails in the driver or a card.

A session that breaks is closed and opened again at a later pass, with a growing pause. A GPU that stops answering is
reported as lost, under the identity it last had, as long as the process lives or until it answers again.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from llm_serving_exporter.clock import elapsed_seconds
from llm_serving_exporter.errors import GpuError
from llm_serving_exporter.gpus.calls import Nvml
from llm_serving_exporter.gpus.events import FaultLog
from llm_serving_exporter.gpus.session import Kept, Pass, Session
from llm_serving_exporter.model.gpu import GpuIdentity, GpuReading, GpuReadings
from llm_serving_exporter.model.later import Retry
from llm_serving_exporter.model.numbers import add_up
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.sample import Attempt, FailureReason, Stage
from llm_serving_exporter.model.text import count_nouns

# --- /sys -> accelerators of other vendors than NVIDIA, so that a missing NVML can be explained in a sentence.


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


# --- The source.


_LOG = logging.getLogger("llm_serving_exporter.gpu")
SOURCE = "nvml"
# NVML keeps the state that a GPU had when it was initialised: a card that was reset comes back only in a new session
FIRST_RETRY_SECONDS = 1.0  # below any sampling interval: the first retry is the next pass
LONGEST_RETRY_SECONDS = 60.0
FIRST_LOOK_FOR_LOST_SECONDS = 60.0
LONGEST_LOOK_FOR_LOST_SECONDS = 600.0
# distinct GPUs remembered as having been there
KNOWN_MAX = 64
_CLOSE_WAIT_SECONDS = 2.0

_ADVICE = {
    FailureReason.NO_LIBRARY: (
        "The NVIDIA library libnvidia-ml.so.1 is not found: run the container with the NVIDIA runtime "
        "(NVIDIA_DRIVER_CAPABILITIES with utility), or mount the driver's library; "
        "without an NVIDIA GPU set gpu.enabled: false"
    ),
    FailureReason.NO_DRIVER: (
        "The NVIDIA kernel driver is not loaded: load it on the host (nvidia-smi must work there), "
        "or set gpu.enabled: false"
    ),
    FailureReason.DRIVER_MISMATCH: (
        "The NVIDIA library and the loaded kernel driver are of different versions, as after a driver upgrade: "
        "restart the exporter, and if that does not help reload the driver or reboot the node"
    ),
    FailureReason.NO_PERMISSION: (
        "The NVIDIA driver refuses this user: give the process access to /dev/nvidiactl and /dev/nvidia0 and further"
    ),
    FailureReason.NVML: "NVML fails",
}


class NvmlSource:
    """GPUs through NVML; implements `gpus.source.GpuSource`.

    `gpm` and `xid_events` switch GPM sampling and the XID thread; `monotonic` and `wall` give seconds. NVML is
    initialised at the first `read()`, not here. `read()` and `close()` may be called from different threads.
    """

    def __init__(
        self,
        *,
        gpm: bool = True,
        xid_events: bool = True,
        monotonic: Callable[[], float] = elapsed_seconds,
        wall: Callable[[], float] = time.time,
        log: logging.Logger = _LOG,
        sys_root: Path = Path("/sys"),
    ) -> None:
        self._monotonic, self._wall = monotonic, wall
        self._log = log
        self._sys_root = sys_root
        self._faults = FaultLog(log)
        self._lock = threading.Lock()
        self._closed = False
        self._kept = Kept()
        self._make_session = partial(
            Session, kept=self._kept, use_gpm=gpm, xid_events=xid_events, monotonic=monotonic, log=log
        )
        self._nvml: Nvml | None = None
        self._session: Session | None = None
        self._retry = Retry(FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS)
        self._look_for_lost = Retry(FIRST_LOOK_FOR_LOST_SECONDS, LONGEST_LOOK_FOR_LOST_SECONDS)
        self._failure = GpuError(FailureReason.NVML, "not read yet")
        self._known: dict[str, tuple[GpuIdentity, ...]] = {}
        try:
            self._nvml = Nvml()
        except GpuError as error:
            self._failure = self._explain_error(error)

    def read(self) -> GpuReadings:
        """One pass over every GPU. Never raises; at most one attempt to initialise NVML."""
        started = self._monotonic()
        with self._lock:
            try:
                done = self._run_pass(started)
                gpus = (*done.readings, *self._list_lost(done))
            except GpuError as error:
                return self._make_readings(started, FailureReason(error.reason), str(error))
            except Exception as error:  # noqa: BLE001  # the daemon must go on; logged once with its traceback
                if not self._faults.is_open("internal"):
                    self._log.exception("GPU: a pass failed for a fault in the exporter")
                self._faults.begin_fault("internal", "GPU: passes fail for a fault in the exporter")
                return self._make_readings(started, FailureReason.INTERNAL, f"{type(error).__name__}: {error}")
            self._faults.end_fault("internal", "GPU: passes work again")
            readings = self._make_readings(started, None, _describe_pass(gpus, len(done.refused)), gpus)
            return replace(readings, driver_version=self._session.driver_version if self._session is not None else None)

    def close(self) -> None:
        """Shut NVML down; may be called twice. Where another thread is stuck in the driver, NVML is left as it is."""
        if not self._lock.acquire(timeout=_CLOSE_WAIT_SECONDS):
            self._closed = True
            return
        try:
            self._closed = True
            self._end_session()
        finally:
            self._lock.release()

    def _run_pass(self, now: float) -> Pass:
        if self._closed:
            raise GpuError(FailureReason.NVML, "closed")
        if self._session is not None and self._faults.is_open("looking") and self._look_for_lost.is_due(now):
            self._look_for_lost.note_failure(now)
            self._end_session()
        if self._session is None and (self._nvml is None or not self._retry.is_due(now)):
            self._faults.begin_fault("nvml", f"GPU: {self._failure}")
            raise self._copy_failure()
        try:
            if self._session is None:
                assert self._nvml is not None  # it was checked above
                self._session = self._make_session(self._nvml)
            done = self._session.read()
        except GpuError as error:
            self._retry.note_failure(now)
            self._end_session()
            self._failure = self._explain_error(error)
            self._faults.begin_fault("nvml", f"GPU: {self._failure}")
            raise self._copy_failure() from error
        self._retry.reset()
        self._faults.end_fault("nvml", "GPU: NVML works again")
        refusals = {f"at index {index}": f"GPU at index {index}: {error}" for index, error in done.refused.items()}
        self._faults.replace_faults("refused", refusals, "can be used again")
        return done

    def _copy_failure(self) -> GpuError:
        """A new exception each time: one that is raised again and again would collect tracebacks without end."""
        return GpuError(self._failure.reason, str(self._failure))

    def _end_session(self) -> None:
        if self._session is not None and not self._session.close():
            self._log.debug("GPU: NVML was left without a shutdown")
        self._session = None

    def _explain_error(self, error: GpuError) -> GpuError:
        """The error with advice on what to do."""
        reason = FailureReason(error.reason)
        advice = _ADVICE.get(reason)
        has_no_nvidia = reason in (FailureReason.NO_LIBRARY, FailureReason.NO_DRIVER)
        if has_no_nvidia and (others := find_other_vendor_gpus(self._sys_root)):
            advice = (
                f"No NVIDIA GPU can be read, but there are others ({', '.join(others[:8])}): for AMD's and Intel's Gaudi set "
                "device_exporter.url to their exporter on this node, else gpu.enabled: false; with gpu_model and gpu_count of "
                "targets, ceilings, rooflines and cost work either way (docs/other-gpus.md)"
            )
        return GpuError(reason, f"{advice} ({error})" if advice else str(error))

    def _list_lost(self, done: Pass) -> list[GpuReading]:
        """GPUs that answered this process before and do not answer now; then those that never gave their identity."""
        answered: dict[str, list[GpuIdentity]] = {}
        for reading in done.readings:
            mig = reading.identity.mig
            answered.setdefault(mig.parent_uuid if mig else reading.identity.uuid, []).append(reading.identity)
        for uuid, identities in answered.items():
            self._known[uuid] = tuple(identities)
        # GPUs are exchanged under a living process: those that are there must be missed when they go
        gone = [uuid for uuid in self._known if uuid not in answered]
        for uuid in gone[: max(0, len(self._known) - KNOWN_MAX)]:
            del self._known[uuid]
        missing = [uuid for uuid in self._known if uuid not in answered]
        strangers = sorted(done.unanswered)[len(missing) :]
        silent = {uuid: f"GPU {uuid} does not answer any more" for uuid in missing}
        silent |= {f"at index {index}": f"GPU at index {index} does not answer" for index in strangers}
        self._faults.replace_faults("lost", silent, "answers again")
        self._watch_for_return(bool(missing or strangers))
        identities = [identity for uuid in missing for identity in self._known[uuid]]
        identities += [GpuIdentity(uuid=f"unidentified-{index}", index=index, name="") for index in strangers]
        return [
            GpuReading(identity=identity, lost=True, xid_events_total=self._kept.xids.copy_counts(identity.uuid))
            for identity in identities
        ]

    def _watch_for_return(self, lost: bool) -> None:
        if not lost:
            self._faults.end_fault("looking", "GPU: every GPU answers")
            self._look_for_lost.reset()
        elif not self._faults.is_open("looking"):
            message = "GPU: NVML is initialised again from time to time until every GPU answers"
            self._faults.begin_fault("looking", message, logging.INFO)
            self._look_for_lost.note_failure(self._monotonic())

    def _make_readings(
        self, started: float, reason: FailureReason | None, detail: str, gpus: tuple[GpuReading, ...] = ()
    ) -> GpuReadings:
        attempt = Attempt(Stage.GPU, reason, detail, self._wall(), max(self._monotonic() - started, 0.0))
        return GpuReadings(attempt, SOURCE, started, gpus)


def _describe_pass(gpus: tuple[GpuReading, ...], refused: int) -> str:
    """A sentence about a pass that succeeded, "" where there is nothing to say."""
    lost = add_up(gpu.lost for gpu in gpus)
    if not gpus and not refused:
        return "NVML works and shows no GPU: in a container check NVIDIA_VISIBLE_DEVICES"
    do = count_nouns(len(gpus), "GPU or instance does", "GPUs and instances do")
    parts = [f"{lost} of {do} not answer"] if lost else []
    parts += [f"{refused} refused to this process"] if refused else []
    return "; ".join(parts)
