"""GPUs of a simulated fleet, as an exporter on one of its nodes would read them.

Activity follows from what the engines' steps moved and computed, as GPM counts it: bytes over the peak bandwidth and FLOPs over the peak
rate, averaged over the last seconds. Power is what the board draws idle plus a span for each of the two, energy its integral: both are
linear in what the engine counts, so that energy does not depend on how often it is read. Temperature follows power at once; the SM clock
stays at its highest, as with a context open. What is not simulated is absent, not 0.
"""

from __future__ import annotations

import time
import uuid
from collections import deque
from collections.abc import Callable

from llm_serving_exporter.model.gpu import GpuIdentity, GpuReading, GpuReadings
from llm_serving_exporter.model.record import Struct, field
from llm_serving_exporter.model.sample import Attempt, FailureReason, Stage
from llm_serving_simulator.fleet.fleet import Fleet, Replica

# averages over about this long, as NVML's own utilisation figures
_WINDOW_SECONDS = 5.0
# shares of the board's power limit: a card with a model loaded and idle; and what full memory and full tensor cores add. Decode at the
# ceiling draws about two thirds of the limit on Hopper, prefill all of it.
_IDLE_SHARE, _MEMORY_SHARE, _COMPUTE_SHARE = 0.17, 0.45, 0.75
_DEFAULT_LIMIT_WATTS = 400.0
# an air-cooled board at no power and at its limit; a Hopper's highest clock
_COOL_CELSIUS, _HOT_CELSIUS = 25.0, 75.0
_SM_CLOCK_HERTZ = 1980e6
_MIB = 1 << 20
_RESERVED_SHARE = 0.01
_SLOWDOWN_REASONS = (
    "sw_power_cap", "hw_slowdown", "sync_boost", "sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown",
)  # fmt: skip
_TOO_HOT = "hw_thermal_slowdown"
# those that NVML's source counts from 0 on
_WATCHED_XIDS = (48, 62, 64, 74, 79, 95, 119, 120)


class GpuFaults(Struct):
    """Scripted faults of one GPU, from now on."""

    lost: bool = False  # whether it has fallen off the bus
    slowdown: set[str] = field(default_factory=set)  # reasons that hold
    xids: dict[int, int] = field(default_factory=dict)  # events so far, by number


class _Use(Struct, frozen=True):
    """What one GPU of an engine has done since the fleet began, in seconds."""

    seconds: float  # since the fleet began
    busy: float  # in steps
    memory: float  # at full memory bandwidth
    compute: float  # at full tensor cores

    def __sub__(self, other: _Use) -> _Use:
        return _Use(
            self.seconds - other.seconds,
            self.busy - other.busy,
            self.memory - other.memory,
            self.compute - other.compute,
        )


def gpu_uuid(replica: str, number: int) -> str:
    """The same for the same GPU in every run."""
    return f"GPU-{uuid.uuid5(uuid.NAMESPACE_OID, f'simulated/{replica}/{number}')}"


def gpus_of(fleet: Fleet, replica: str) -> tuple[str, ...]:
    """UUIDs of a replica's GPUs. Raises KeyError."""
    return tuple(gpu_uuid(replica, number) for number in range(fleet.replica(replica).spec.engine.gpus))


class FleetGpuSource:
    """A `gpus.source.GpuSource`: the GPUs of one node, `node` None = of all of them. `faults` by UUID may be changed at any time.

    `moved_on` is called before each reading, so that a fleet that is served has come to now; the fleet is not to be used by another
    thread meanwhile (see `FleetServer.lock`). A node that is lost cannot be read: a failed attempt.
    """

    def __init__(
        self,
        fleet: Fleet,
        node: str | None = None,
        *,
        moved_on: Callable[[], object] = lambda: None,
        monotonic: Callable[[], float] | None = None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._fleet, self._node, self._moved_on = fleet, node, moved_on
        self._monotonic = monotonic or (lambda: fleet.now_seconds)
        self._wall = wall
        self._closed = False
        self.faults: dict[str, GpuFaults] = {}
        self._uses: dict[str, deque[_Use]] = {}

    def read(self) -> GpuReadings:
        """One pass."""
        self._moved_on()
        now = self._monotonic()
        gone = self._closed or (self._node in self._fleet.lost_nodes)
        reason = FailureReason.NVML if gone else None
        attempt = Attempt(Stage.GPU, reason, "closed" if self._closed else "simulated", self._wall(), 0.0)
        readings = () if gone else tuple(self._all())
        return GpuReadings(
            attempt, source="simulated", monotonic_seconds=now, gpus=readings, driver_version="simulated"
        )

    def close(self) -> None:
        """Reads nothing any more; may be called twice."""
        self._closed = True

    def fault(self, uuid: str) -> GpuFaults:
        """The faults of a GPU, to be changed."""
        return self.faults.setdefault(uuid, GpuFaults())

    def _all(self) -> list[GpuReading]:
        readings: list[GpuReading] = []
        for replica in self._fleet.replicas.values():
            nodes, gpus = replica.spec.nodes, replica.spec.engine.gpus
            recent, total = self._recent(replica)
            for number in range(gpus):
                # consecutive GPUs of a replica stand in one node
                if self._node is None or nodes[number * len(nodes) // gpus] == self._node:
                    readings.append(self._reading(replica, number, len(readings), recent, total))
        return readings

    def _recent(self, replica: Replica) -> tuple[_Use, _Use]:
        """Over the last seconds, and over all."""
        spec, counts = replica.spec.engine, replica.counts
        bandwidth = spec.cost.bandwidth * spec.pipeline
        now = _Use(
            self._fleet.now_seconds,
            counts.busy_seconds,
            counts.moved_bytes / bandwidth,
            counts.compute_seconds / spec.pipeline,
        )
        uses = self._uses.setdefault(replica.name, deque([_Use(0.0, 0.0, 0.0, 0.0)]))
        if now.seconds > uses[-1].seconds:
            uses.append(now)
        while len(uses) > 2 and uses[1].seconds <= now.seconds - _WINDOW_SECONDS:
            uses.popleft()
        return uses[-1] - uses[0], now

    def _reading(self, replica: Replica, number: int, index: int, recent: _Use, total: _Use) -> GpuReading:
        spec = replica.spec.engine
        gpu = spec.gpu_spec
        faults = self.faults.get(gpu_uuid(replica.name, number), GpuFaults())
        slowdown = faults.slowdown | ({_TOO_HOT} if replica.name in self._fleet.throttled else set())
        limit = gpu.tdp_watts or _DEFAULT_LIMIT_WATTS
        xids = {xid: faults.xids.get(xid, 0) for xid in (*_WATCHED_XIDS, *faults.xids)}
        identity = GpuIdentity(
            uuid=gpu_uuid(replica.name, number),
            index=index,
            name=f"Simulated {gpu.name}",
            compute_capability=gpu.compute_capability,
            memory_total_bytes=gpu.memory_bytes,
            memory_bandwidth_peak_bytes_per_second=gpu.bandwidth_bytes_per_second,
            sm_clock_max_hertz=_SM_CLOCK_HERTZ,
        )
        if faults.lost:
            return GpuReading(identity=identity, lost=True, xid_events_total=xids)
        seconds = recent.seconds or 1.0
        busy, memory, compute = (min(1.0, use / seconds) for use in (recent.busy, recent.memory, recent.compute))
        held = spec.memory_utilisation * gpu.memory_bytes if replica.engine else _RESERVED_SHARE * gpu.memory_bytes
        watts = _watts(limit, 1.0, memory, compute)
        celsius = _COOL_CELSIUS + (_HOT_CELSIUS - _COOL_CELSIUS) * min(1.0, watts / limit)
        return GpuReading(
            identity=identity,
            memory_used_bytes=int(held) // _MIB * _MIB,
            memory_total_bytes=gpu.memory_bytes,
            busy_ratio=busy,
            memory_active_ratio=busy,
            dram_bandwidth_ratio=memory,
            sm_activity_ratio=busy,
            tensor_activity_ratio=compute,
            gpm_window_seconds=recent.seconds,
            power_watts=watts,
            power_limit_watts=limit,
            energy_joules_total=_watts(limit, total.seconds, total.memory, total.compute),
            temperature_celsius={"gpu": celsius},
            clock_hertz={"sm": _SM_CLOCK_HERTZ},
            slowdown={reason: reason in slowdown for reason in _SLOWDOWN_REASONS},
            ecc_errors_total={"corrected": 0, "uncorrected": 0},
            remapped_rows={"correctable": 0, "uncorrectable": 0},
            remap_pending=False,
            remap_failed=False,
            xid_events_total=xids,
            absent=dict.fromkeys(("pcie_bytes_total", "nvlink_bytes_total", "processes"), "not_supported"),
        )


def _watts(limit: float, idle: float, memory: float, compute: float) -> float:
    """Watts of shares of a second, or joules of seconds."""
    return limit * (_IDLE_SHARE * idle + _MEMORY_SHARE * memory + _COMPUTE_SHARE * compute)
