"""XID events -> counts by GPU since this process began: a thread waits for them, NVML delivers each once."""

from __future__ import annotations

import ctypes
import logging
import threading
from collections.abc import Mapping
from typing import Any

from llm_serving_exporter.gpus.calls import TIMEOUT, Nvml, NvmlCallError, classify_refusal
from llm_serving_exporter.model.gpu import GpuAbsence

# --- Faults that last: one log line where a fault begins, one where it ends, none while it goes on.


class FaultLog:
    """The faults that hold now, by a key. Bounded: beyond `limit` a new key is neither kept nor logged."""

    def __init__(self, log: logging.Logger, limit: int = 256) -> None:
        self._log = log
        self._limit = limit
        self._open: dict[str, str] = {}

    def begin_fault(self, key: str, message: str, level: int = logging.WARNING) -> None:
        """Log `message` unless the same one stands under `key` already."""
        if self._open.get(key) == message or (key not in self._open and len(self._open) >= self._limit):
            return
        self._open[key] = message
        self._log.log(level, "%s", message)

    def end_fault(self, key: str, message: str) -> None:
        """Log `message` if a fault stood under `key`."""
        if self._open.pop(key, None) is not None:
            self._log.info("%s", message)

    def replace_faults(self, kind: str, current: Mapping[str, str], ended: str) -> None:
        """Make `current` (name -> message) the faults of a kind: those that are new begin, those that it lacks end."""
        for name, message in current.items():
            self.begin_fault(f"{kind} {name}", message)
        names = [key.removeprefix(f"{kind} ") for key in self._open if key.startswith(f"{kind} ")]
        for name in names:
            if name not in current:
                self.end_fault(f"{kind} {name}", f"GPU {name} {ended}")

    def is_open(self, key: str) -> bool:
        """Whether a fault stands under `key`."""
        return key in self._open


# --- XID events.


# hardware faults that alerts watch, 0 from the start: utkuozdemir/nvidia_gpu_exporter's list; 13, 31, 43 are usually
# the application's, 63 and 92 informational, and count only once seen
WATCHED_XIDS = (48, 62, 64, 74, 79, 95, 119, 120)
XIDS_MAX = 64  # distinct XIDs a GPU; NVIDIA documents fewer than 200
GPUS_MAX = 256
OTHER_XID = 999  # NVML's own number for "unknown"; beyond XIDS_MAX the rest counts here
XID_CRITICAL_ERROR = 0x8  # nvmlEventTypeXidCriticalError
WAIT_MILLISECONDS = 500  # how long a stop may take
_PAUSE_AFTER_ERROR_SECONDS = 1.0
_JOIN_SECONDS = 2.0


class XidCounts:
    """Events by GPU UUID and XID; outlives re-initialisations of NVML. Every method may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[str, dict[int, int]] = {}

    def start_counts(self, uuid: str) -> None:
        """Start the GPU's watched XIDs at 0, unless they count already."""
        with self._lock:
            # last: those whose watch began longest ago are forgotten first
            self._counts[uuid] = self._counts.pop(uuid, dict.fromkeys(WATCHED_XIDS, 0))
            while len(self._counts) > GPUS_MAX:
                del self._counts[next(iter(self._counts))]

    def count_event(self, uuid: str, xid: int) -> None:
        """Count one event."""
        with self._lock:
            counts = self._counts.get(uuid)
            if counts is None:
                return
            known = xid in counts or len(counts) < XIDS_MAX - 1
            counted = xid if known else OTHER_XID
            counts[counted] = counts.get(counted, 0) + 1

    def copy_counts(self, uuid: str) -> Mapping[int, int] | None:
        """A copy of the GPU's counts; None where it was never watched."""
        with self._lock:
            counts = self._counts.get(uuid)
            return None if counts is None else dict(counts)


class EventWatcher:
    """The event set of one NVML session and the thread that waits on it. Must be closed before nvmlShutdown."""

    def __init__(self, nvml: Nvml, counts: XidCounts, log: logging.Logger) -> None:
        self._nvml = nvml
        self._counts = counts
        self._faults = FaultLog(log)
        self._stop = threading.Event()
        self._uuids: dict[int, str] = {}
        self._refused: dict[str, str] = {}
        self._set: Any = None
        self._thread: threading.Thread | None = None

    def watch(self, handle: Any, uuid: str) -> str | None:
        """Register a GPU (never a MIG instance: NVML takes parents only). None, or the reason why its XIDs cannot be
        had.

        Asked once a session; raises NvmlCallError where the GPU or the session is gone.
        """
        if uuid in self._refused:
            return self._refused[uuid]
        key = _read_handle_address(handle)
        if self._uuids.get(key) == uuid:
            return None
        try:
            if not self._nvml.call("nvmlDeviceGetSupportedEventTypes", handle) & XID_CRITICAL_ERROR:
                self._refused[uuid] = GpuAbsence.NOT_SUPPORTED
                return GpuAbsence.NOT_SUPPORTED
            if self._set is None:
                self._set = self._nvml.call("nvmlEventSetCreate")
            self._uuids[key] = uuid  # before the first event can come
            self._nvml.call("nvmlDeviceRegisterEvents", handle, XID_CRITICAL_ERROR, self._set)
        except NvmlCallError as error:
            self._uuids.pop(key, None)
            if error.ends_more_than_the_call:
                raise
            self._refused[uuid] = classify_refusal(error.code)
            return self._refused[uuid]
        self._counts.start_counts(uuid)
        if self._thread is None:
            self._thread = threading.Thread(target=self._wait_for_events, name="nvml-xid-events", daemon=True)
            self._thread.start()
        return None

    def close(self) -> bool:
        """Stop the thread and free the set. False where the thread is stuck in the driver: then NVML must not be
        shut down."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(_JOIN_SECONDS)
            if self._thread.is_alive():
                return False
        if self._set is not None:
            try:
                self._nvml.call("nvmlEventSetFree", self._set)
            except NvmlCallError as error:
                self._faults.begin_fault("free", f"GPU: the XID event set could not be freed: {error}", logging.DEBUG)
            self._set = None
        return True

    def _wait_for_events(self) -> None:
        while not self._stop.is_set():
            try:
                event = self._nvml.call("nvmlEventSetWait", self._set, WAIT_MILLISECONDS)
                uuid = self._uuids.get(_read_handle_address(event.device))
                if uuid is not None and event.eventType & XID_CRITICAL_ERROR:
                    self._counts.count_event(uuid, int(event.eventData))
            except NvmlCallError as error:
                if error.code == TIMEOUT:
                    self._faults.end_fault("wait", "GPU: XID events can be read again")
                    continue
                if not error.session_over:  # the pass reports that one
                    self._faults.begin_fault("wait", f"GPU: XID events cannot be read for now: {error}")
                self._stop.wait(_PAUSE_AFTER_ERROR_SECONDS)
            except Exception as error:  # noqa: BLE001  # a thread that dies would leave XIDs uncounted and nobody told
                message = f"GPU: XID event dropped: {type(error).__name__}: {error}"
                self._faults.begin_fault("wait", message, logging.ERROR)
                self._stop.wait(_PAUSE_AFTER_ERROR_SECONDS)


def _read_handle_address(handle: Any) -> int:
    """The pointer inside an nvmlDevice_t: what an event names its GPU by."""
    return ctypes.cast(handle, ctypes.c_void_p).value or 0
