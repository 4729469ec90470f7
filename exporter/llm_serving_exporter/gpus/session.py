"""An initialised NVML -> one pass over every GPU and MIG instance. Everything here ends with the session."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from llm_serving_exporter.errors import GpuError
from llm_serving_exporter.gpus.calls import (
    UNKNOWN,
    Device,
    Nvml,
    NvmlCallError,
    Total,
    Totals,
)
from llm_serving_exporter.gpus.events import EventWatcher, XidCounts
from llm_serving_exporter.gpus.inventory import (
    find_occupied_slots,
    is_mig_enabled,
    read_identity,
    read_instance_identity,
    read_instances_max,
)
from llm_serving_exporter.gpus.reading import (
    FieldReader,
    GpmReading,
    GpmSampler,
    Processes,
    complete_reading,
    find_unsupported_reason,
    make_absent_reading,
    read_gpu,
    read_instance,
)
from llm_serving_exporter.model.gpu import BusyTime, GpuAbsence, GpuIdentity, GpuReading
from llm_serving_exporter.model.hardware import BusySource
from llm_serving_exporter.model.record import Struct, field

# --- NVML's buffer of utilization samples -> how long a GPU was busy, without a gap between two passes.
#
# `nvmlDeviceGetUtilizationRates` tells of the last sample alone, which is up to a second long: what happened between two passes is not in
# it. The driver keeps the samples of the last seconds, and gives those that are newer than the last one seen.


# nvmlSamplingType_t: percent of time in which a kernel ran
_UTILIZATION = 1
_PERCENT, _MICROSECONDS = 100.0, 1e6
# nvml.h: a sample covers 1/6 to 1 second by product; a longer step is a gap, or the wall clock that stamps them was set
LONGEST_SAMPLE_SECONDS = 2.0
# passes may follow one another faster than samples
_MOST_PASSES_WITHOUT_NEWS = 10
_FIELD = "busy_samples"


class UtilizationSamples:
    """Adds up the samples of one GPU, each of them once."""

    def __init__(self) -> None:
        self._last_microseconds = 0
        self._passes_without_news = 0
        self._total: BusyTime | None = None

    def read(self, device: Device) -> BusyTime | None:
        """The totals with what is new in the buffer; None where the card has no such buffer. Raises NvmlCallError where the GPU or the
        session is gone."""
        answer = device.read(_FIELD, ("nvmlDeviceGetSamples", _UTILIZATION, self._last_microseconds))
        # a buffer without news is an error to NVML, and why there is none is nobody's concern: the engine's page tells then
        device.absent.pop(_FIELD, None)
        if answer is None:
            self._passes_without_news += 1
            if self._passes_without_news >= _MOST_PASSES_WITHOUT_NEWS:
                # the wall clock, which stamps them, went back: nothing is newer than what was seen
                self._last_microseconds = self._passes_without_news = 0
            return self._total
        self._passes_without_news = 0
        busy, covered = (0.0, 0.0) if self._total is None else (self._total.busy_seconds, self._total.covered_seconds)
        before = self._last_microseconds
        for sample in sorted(answer[1], key=lambda one: one.timeStamp):
            seconds = (sample.timeStamp - before) / _MICROSECONDS
            before = sample.timeStamp
            percent = sample.sampleValue.uiVal
            if 0 < seconds <= LONGEST_SAMPLE_SECONDS and percent <= _PERCENT:
                busy += seconds * percent / _PERCENT
                covered += seconds
        self._last_microseconds = before
        self._total = BusyTime(BusySource.NVML, busy, covered)
        return self._total


# --- The session.


# more than any node has; a count beyond is a broken answer
GPUS_MAX = 64


class Kept(Struct):
    """What outlives a session: counts that must not fall because NVML was initialised again."""

    xids: XidCounts = field(default_factory=XidCounts)  # events by GPU and XID
    totals: dict[str, Totals] = field(default_factory=dict)  # UUID of the GPU -> its PCIe and NVLink totals


class Pass(Struct, frozen=True):
    """One pass over every GPU."""

    readings: tuple[GpuReading, ...]  # of the GPUs that answered, each before its MIG instances
    unanswered: Mapping[int, NvmlCallError]  # index of a lost GPU -> the error
    refused: Mapping[int, NvmlCallError]  # index of a GPU that NVML does not let this process use -> the error


class _Entity(Struct):
    """A GPU or a MIG instance as the session knows it."""

    device: Device  # its handle, and what it does not support
    sampler: GpmSampler | None = None  # None until GPM was first sampled, and where it is refused
    identity: GpuIdentity | None = None  # None before the first reading
    settled: bool = False  # whether the identity is final; else it is read again at the next pass


class _Gpu(_Entity):
    fields: FieldReader = field(default_factory=lambda: FieldReader(Totals(Total)))  # with the totals of `Kept`
    samples: UtilizationSamples = field(default_factory=UtilizationSamples)  # for a card without GPM
    gpm_refused: str | None = None  # why the GPU has no GPM; None where it has
    instances_max: int | None = None  # how many MIG instances the card can have; None until it is known
    instances: dict[str, _Entity] = field(default_factory=dict)  # UUID -> MIG instance


class Session:
    """NVML between init and shutdown. `read` and `close` raise `GpuError` only where the session cannot go on."""

    def __init__(
        self,
        nvml: Nvml,
        kept: Kept,
        *,
        use_gpm: bool,
        xid_events: bool,
        monotonic: Callable[[], float],
        log: logging.Logger,
    ) -> None:
        """Initialise NVML. Raises GpuError."""
        self._nvml = nvml
        self._kept = kept
        self._use_gpm = use_gpm
        self._monotonic = monotonic
        self._gpus: dict[str, _Gpu] = {}
        self._answered: frozenset[str] = frozenset()  # UUIDs of the GPUs of the last pass
        nvml.call("nvmlInit")
        self._events = EventWatcher(nvml, kept.xids, log) if xid_events else None
        self.driver_version = self._read_driver_version()

    def read(self) -> Pass:
        """Every GPU that NVML counts. Raises GpuError where NVML must be initialised again."""
        readings: list[GpuReading] = []
        unanswered: dict[int, NvmlCallError] = {}
        refused: dict[int, NvmlCallError] = {}
        for index in range(min(self._nvml.call("nvmlDeviceGetCount"), GPUS_MAX)):
            try:
                readings += self._read_gpu(index)
            except NvmlCallError as error:
                if error.session_over:
                    raise
                (unanswered if error.gpu_lost or error.code == UNKNOWN else refused)[index] = error
        if not readings:
            self._judge_empty({**unanswered, **refused})
        self._answered = frozenset(reading.identity.uuid for reading in readings)
        return Pass(tuple(readings), unanswered, refused)

    def close(self) -> bool:
        """Stop the XID thread, free the GPM samples, shut NVML down. False where a stuck driver forbids the last
        step."""
        if self._events is not None and not self._events.close():
            return False
        for gpu in self._gpus.values():
            for entity in (gpu, *gpu.instances.values()):
                _close_sampler(entity)
        self._gpus.clear()
        try:
            self._nvml.call("nvmlShutdown")
        except GpuError:
            return False
        return True

    def _read_driver_version(self) -> str | None:
        try:
            return str(self._nvml.call("nvmlSystemGetDriverVersion"))
        except NvmlCallError:
            return None

    @staticmethod
    def _judge_empty(errors: Mapping[int, NvmlCallError]) -> None:
        """Raises GpuError where no GPU answered and not all of them are lost: the session must be renewed, or rights are
        missing."""
        if not errors or all(error.gpu_lost for error in errors.values()):
            return
        first = next(error for error in errors.values() if not error.gpu_lost)
        raise GpuError(first.reason, f"no GPU answers: {first}")

    def _read_gpu(self, index: int) -> list[GpuReading]:
        handle = self._nvml.call("nvmlDeviceGetHandleByIndex", index)
        uuid = str(self._nvml.call("nvmlDeviceGetUUID", handle))
        gpu = self._gpus.get(uuid) or self._add_gpu(handle, uuid)
        device = gpu.device
        device.begin_pass(handle)
        if gpu.identity is None or not gpu.settled:
            gpu.identity = read_identity(device, uuid, index)
            _settle_identity(gpu)
        reading, processes = read_gpu(device, gpu.identity, gpu.fields)
        if device.silent:
            raise NvmlCallError(UNKNOWN, "every call", "the GPU answers nothing but an unknown error")
        in_mig_mode = is_mig_enabled(device)
        instances = self._read_instances(gpu, gpu.identity, processes) if in_mig_mode else []
        if not in_mig_mode:
            self._forget_instances(gpu, keep=())
        xids_absent = GpuAbsence.DISABLED if self._events is None else self._events.watch(handle, uuid)
        xids = None if xids_absent is not None else self._kept.xids.copy_counts(uuid)
        ratios = self._sample_gpm(gpu, gpu, handle, refused=GpuAbsence.ON_INSTANCES if instances else gpu.gpm_refused)
        # one of the two has the time: GPM knows the window exactly
        samples = gpu.samples.read(device) if ratios.busy_time is None and not in_mig_mode else None
        return [complete_reading(reading, device, ratios, xids, xids_absent, samples), *instances]

    def _add_gpu(self, handle: Any, uuid: str) -> _Gpu:
        """A GPU seen for the first time in this session."""
        if len(self._kept.totals) >= GPUS_MAX and uuid not in self._kept.totals:
            # GPUs were exchanged under a living process: those that are not there any more start again
            for gone in self._kept.totals.keys() - self._answered:
                del self._kept.totals[gone]
                self._forget_gpu(gone)
        device = Device(self._nvml, handle)
        gpu = _Gpu(
            device,
            fields=FieldReader(self._kept.totals.setdefault(uuid, Totals(Total))),
            gpm_refused=find_unsupported_reason(self._nvml, handle) if self._use_gpm else GpuAbsence.DISABLED,
        )
        self._gpus[uuid] = gpu
        return gpu

    def _forget_gpu(self, uuid: str) -> None:
        gpu = self._gpus.pop(uuid, None)
        if gpu is not None:
            self._forget_instances(gpu, keep=())
            _close_sampler(gpu)

    def _read_instances(self, gpu: _Gpu, parent: GpuIdentity, processes: Processes | None) -> list[GpuReading]:
        parent_handle = gpu.device.handle
        if gpu.instances_max is None:
            gpu.instances_max = read_instances_max(gpu.device)
        readings: list[GpuReading] = []
        for handle, uuid in find_occupied_slots(self._nvml, parent_handle, gpu.instances_max):
            instance = gpu.instances.setdefault(uuid, _Entity(Device(self._nvml, handle)))
            instance.device.begin_pass(handle)
            if instance.identity is None or not instance.settled:
                instance.identity = read_instance_identity(instance.device, uuid, parent, gpu.instances_max)
                _settle_identity(instance)
            if instance.identity is None or instance.identity.mig is None:
                continue
            reading = read_instance(instance.device, instance.identity, processes)
            number = instance.identity.mig.gpu_instance_id
            ratios = self._sample_gpm(gpu, instance, parent_handle, gpu.gpm_refused, number)
            readings.append(complete_reading(reading, instance.device, ratios, None, GpuAbsence.ON_PARENT))
        self._forget_instances(gpu, keep=tuple(reading.identity.uuid for reading in readings))
        return readings

    def _sample_gpm(
        self, gpu: _Gpu, entity: _Entity, handle: Any, refused: str | None, gpu_instance_id: int | None = None
    ) -> GpmReading:
        """GPM of the whole GPU or an instance, always through the whole GPU's `handle`."""
        if refused is not None:
            _close_sampler(entity)
            return make_absent_reading(refused)
        if entity.sampler is None:
            entity.sampler = GpmSampler(self._nvml, gpu_instance_id)
        return entity.sampler.read(handle, self._monotonic)

    @staticmethod
    def _forget_instances(gpu: _Gpu, keep: tuple[str, ...]) -> None:
        for uuid in [uuid for uuid in gpu.instances if uuid not in keep]:
            _close_sampler(gpu.instances.pop(uuid))


def _settle_identity(entity: _Entity) -> None:
    """An identity is final once everything that it lacks is lacking for good. Its reasons do not belong to a reading."""
    for_good = {GpuAbsence.NOT_SUPPORTED, GpuAbsence.NO_PERMISSION}
    entity.settled = for_good.issuperset(entity.device.absent.values())
    entity.device.absent.clear()


def _close_sampler(entity: _Entity) -> None:
    if entity.sampler is not None:
        entity.sampler.close()
        entity.sampler = None
