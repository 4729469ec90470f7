"""How much of its time a server is said to be busy, against how much it was: by each source, whatever the interval."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from llm_serving_exporter.cost.meter import CostMeter
from llm_serving_exporter.derive.busy import estimate_busy_share, measure_device_share, was_busy
from llm_serving_exporter.model.cost import TargetCost, TickWork
from llm_serving_exporter.model.derived import Derived, EngineDerived
from llm_serving_exporter.model.gpu import BusyTime, GpuIdentity, GpuReading, GpuReadings
from llm_serving_exporter.model.hardware import BusySource, GpuPart, ShareSource, TargetGpus
from llm_serving_exporter.model.numbers import Histogram
from llm_serving_exporter.model.reading import State
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.sample import Attempt, Stage
from llm_serving_exporter.model.snapshot import EngineSnapshot, Snapshot
from llm_serving_exporter.model.window import EngineWindow
from tests.support.builders.costmeter import TARGET, TERMS, WORKED, Bench, page, seconds, usd
from tests.support.builders.target_readings import change_reading, make_reading
from tests.support.rows import check_rows

MINUTES_SECONDS = 600.0
# ten minutes of seconds are many ticks
INTERVALS = (pytest.param(1.0, marks=pytest.mark.e2e), 5.0, 15.0)
# share of the time with work, requests at a time
TRUTHS = ((0.02, 1), (0.05, 1), (0.2, 1), (0.5, 1), (1.0, 1), (1.0, 64))
# of the window
WINDOW_READINGS = 5
UUIDS = ("GPU-a", "GPU-b")
# a request: 20 ms of prefill, then steps of 8 ms
PREFILL_SECONDS, STEP_SECONDS, STEPS = 0.02, 0.008, 10
REQUEST_SECONDS = PREFILL_SECONDS + STEPS * STEP_SECONDS


@dataclass(frozen=True)
class Server:
    """Requests in batches that begin together, as far apart as the share says. Its counters at any moment, by arithmetic."""

    share: float
    batch: int

    def at(self, now: float) -> EngineSnapshot:
        period = REQUEST_SECONDS / self.share
        whole, part = divmod(now + 1e-9, period)
        prefills = whole + (part >= PREFILL_SECONDS)
        steps = whole * STEPS + min(STEPS, max(0, int((part - PREFILL_SECONDS) / STEP_SECONDS)))
        running = self.batch if part < REQUEST_SECONDS or self.share == 1.0 else 0
        events = steps * self.batch
        return EngineSnapshot(
            "m",
            "0",
            requests_running=float(running),
            prefill_tokens_total=100.0 * prefills * self.batch,
            decode_tokens_total=events + prefills * self.batch,
            inter_token_latency_seconds=histogram(events, STEP_SECONDS),
            request_prefill_time_seconds=histogram(whole * self.batch, PREFILL_SECONDS),
            time_to_first_token_seconds=histogram(prefills * self.batch, PREFILL_SECONDS),
            device_busy_seconds=self.busy_seconds(now),
        )

    def busy_seconds(self, now: float) -> float:
        period = REQUEST_SECONDS / self.share
        whole, part = divmod(now, period)
        return round(whole * REQUEST_SECONDS + min(part, REQUEST_SECONDS), 6)


def histogram(count: float, mean: float) -> Histogram:
    return Histogram((), (), count, count * mean)


def watch(
    server: Server,
    interval: float,
    page: Callable[[EngineSnapshot], EngineSnapshot],
    gpus: Callable[[float], GpuReadings | None] = lambda _now: None,
) -> TargetCost:
    """What a server costs over ten minutes. `page`: what of its counters its page shows; `gpus`: the last pass at a moment."""
    meter, found = CostMeter(), None
    readings: list[EngineSnapshot] = []
    for number in range(round(MINUTES_SECONDS / interval) + 1):
        now = number * interval
        readings = [*readings, page(server.at(now))][-WINDOW_READINGS:]
        tick = TickWork(busy=bool(readings[-1].requests_running))
        if len(readings) > 1:
            window = EngineWindow(tuple(readings), interval * (len(readings) - 1))
            last_two = EngineWindow(tuple(readings[-2:]), interval)
            moved = was_busy(last_two)
            tick = TickWork(
                moved,
                {"decode": 1.0} if moved else {},
                device_share=measure_device_share(last_two),
                estimated_share=estimate_busy_share(last_two, window, None),
            )
        reading = make_reading(
            replace(TARGET, interval_seconds=interval),
            state=State.READY,
            up=True,
            snapshot=Snapshot((readings[-1],), "vllm", now, now),
            derivation=Derived((EngineDerived("m", "0", tick=tick),), 60.0, {}, {}),
            total=TargetGpus(2, "H100"),
            uuids=UUIDS,
        )
        found = meter.advance(reading, gpus(now), TERMS, monotonic=now, unix=now)
    assert found is not None
    return found


def busy_share(found: TargetCost) -> float:
    every = seconds(found)
    assert sum(every.values()) == pytest.approx(2 * MINUTES_SECONDS)
    # the idle part of a busy tick costs as idle
    assert usd(found).get("idle", 0.0) <= sum(usd(found).values())
    return every.get("busy", 0.0) / sum(every.values())


def assert_near(found: float, truth: float) -> None:
    assert found == pytest.approx(truth, abs=0.05)
    assert found == pytest.approx(truth, rel=0.25)


def without_device(reading: EngineSnapshot) -> EngineSnapshot:
    return replace(reading, device_busy_seconds=None)


def passes(server: Server, source: BusySource, interval: float, shift: float) -> Callable[[float], GpuReadings | None]:
    """Passes over both GPUs, not at the moments of the ticks."""

    def at(now: float) -> GpuReadings | None:
        pass_at = ((now - shift) // interval) * interval + shift
        if pass_at < 0:
            return None
        time = BusyTime(source, server.busy_seconds(pass_at), pass_at)
        every = tuple(GpuReading(GpuIdentity(uuid, 0, "H100"), busy_time=time) for uuid in UUIDS)
        return GpuReadings(Attempt(Stage.GPU, None, "", pass_at, 0.0), "nvml", pass_at, every)

    return at


EACH_SERVER = check_rows(
    "server", [Server(*truth) for truth in TRUTHS], ids=lambda one: f"{one.share:g}-batch-{one.batch}"
)


@EACH_SERVER
@check_rows("interval", INTERVALS)
def test_by_the_engines_count_of_its_devices_time(server: Server, interval: float) -> None:
    found = watch(server, interval, lambda reading: reading)
    assert_near(busy_share(found), server.share)
    assert found.busy_source is BusySource.PAGE


@EACH_SERVER
@check_rows("interval", INTERVALS)
@check_rows(("source", "apart"), [(BusySource.GPM, 0.7), (BusySource.NVML, 3.0)])
def test_by_what_watches_its_gpus(server: Server, interval: float, source: BusySource, apart: float) -> None:
    gpus = passes(server, source, interval * apart, 0.3 * interval)
    found = watch(server, interval, without_device, gpus)
    assert_near(busy_share(found), server.share)
    assert found.busy_source is source


@EACH_SERVER
@check_rows("interval", INTERVALS)
def test_by_its_latencies_over_the_batch(server: Server, interval: float) -> None:
    found = watch(server, interval, without_device)
    assert_near(busy_share(found), server.share)
    assert found.busy_source is BusySource.ESTIMATE


@pytest.mark.parametrize("interval", [1.0, 5.0, 15.0])
def test_a_long_prefill_is_busy_before_it_is_booked(interval: float) -> None:
    def one_prompt(reading: EngineSnapshot) -> EngineSnapshot:
        return replace(
            without_device(reading), inter_token_latency_seconds=histogram(0, 0), request_prefill_time_seconds=None
        )

    found = watch(Server(1.0, 1), interval, one_prompt)
    assert busy_share(found) == pytest.approx(1.0)


def test_by_its_readings_where_nothing_else_tells() -> None:
    found = watch(
        Server(1.0, 1), 5.0, lambda reading: EngineSnapshot("m", "0", requests_running=reading.requests_running)
    )
    assert busy_share(found) == pytest.approx(1.0)
    assert found.busy_source is BusySource.REQUESTS


def test_gpus_that_spin_without_a_request_are_idle() -> None:
    """Collectives wait in kernels: the card is at 100 % while the page says that nothing runs."""
    at_rest = Server(1.0, 1).at(0.0)

    def spinning(now: float) -> GpuReadings:
        every = tuple(
            GpuReading(GpuIdentity(uuid, 0, "H100"), busy_time=BusyTime(BusySource.GPM, now, now)) for uuid in UUIDS
        )
        return GpuReadings(Attempt(Stage.GPU, None, "", now, 0.0), "nvml", now, every)

    found = watch(Server(1.0, 1), 5.0, lambda _reading: replace(at_rest, requests_running=0.0), spinning)
    assert busy_share(found) == 0.0


@pytest.mark.parametrize(
    "shared",
    [
        {"parts": {"GPU-a": GpuPart(0.5, ShareSource.MEMORY)}},
        {"uuids": UUIDS[:1]},
        {"target": replace(TARGET, gpu_share=0.5)},
    ],
)
def test_a_card_that_others_use_too_tells_nothing(shared: dict[str, object]) -> None:
    """Nor do some of the target's GPUs tell of all of them."""
    bench = Bench()
    bench.reading = change_reading(bench.reading, **{"uuids": UUIDS, **shared})
    gpus = passes(Server(0.2, 1), BusySource.GPM, 5.0, 0.0)
    for _ in range(4):
        found = bench.tick(gpus=gpus(bench.now + 5.0), **page(bench.now + 5.0, WORKED))
    assert found.busy_source is BusySource.REQUESTS
