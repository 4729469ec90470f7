"""One tick wired once: GPUs out of a real NVML library (the stub), what targets share, and what follows from a tick."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from llm_serving_exporter.cost.terms import COST
from llm_serving_exporter.derive.derive import DeriveSettings
from llm_serving_exporter.gpus.attribution import SettingsBuilder
from llm_serving_exporter.gpus.exporter_source import DcgmSource
from llm_serving_exporter.gpus.nvml import NvmlSource
from llm_serving_exporter.model.cost import PriceBook, PriceStatement, Rate, RateKind, Scope
from llm_serving_exporter.model.gpu import GpuIdentity, GpuReading, GpuReadings
from llm_serving_exporter.model.hardware import GpuPeaks, Parallel, TargetGpus
from llm_serving_exporter.model.reading import State, TargetReading
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.sample import Attempt, Stage
from llm_serving_exporter.model.snapshot import Absence, ServerFacts
from llm_serving_exporter.model.target import HttpSettings, PodState, Target
from llm_serving_exporter.settings.config import Config, DcgmConfig, SloConfig
from llm_serving_exporter.targets.host import TargetHost
from tests.nvml_stub.stub import StubState, loaded_stub
from tests.support.builders.recordings import page
from tests.support.servers.driven_exporter import hand_driven_host
from tests.support.servers.replica import Replica

HERE, THERE = (
    Target("here", "http://127.0.0.1:9"),
    Target("there", "http://10.0.0.1:8000", gpu_model="L40S", gpu_count=1),
)
PRICES = PriceBook((PriceStatement(Scope.TARGET, "here", 3.6, "owned"),), (Rate("owned", RateKind.OWNED),))


@pytest.fixture
def state(nvml_library: Path, tmp_path: Path) -> Iterator[StubState]:
    described = StubState(tmp_path / "state", gpus=2)
    with loaded_stub(nvml_library, described.path) as stub:
        yield described
        assert (stub.init_balance, stub.misuse) == (0, 0), "closing the host closes NVML"


def nvml() -> NvmlSource:
    return NvmlSource(gpm=False, xid_events=False)


def host_of(*targets: Target, config: Config | None = None, **sources: object) -> TargetHost:
    host, _ = hand_driven_host(config, **sources)
    for target in targets:
        host.add_target(target)
    host.settle_targets()
    return host


def settings(host: TargetHost, target: Target) -> DeriveSettings:
    """What the next tick of a target would be worked out with."""
    host.read_gpus()
    return host._settings_for(SettingsBuilder(), target, ServerFacts(), 1)


def test_without_gpus_there_is_what_is_configured() -> None:
    with closing(host_of(HERE, THERE)) as host:
        assert host.read_gpus() is None
        assert settings(host, HERE).hardware.peaks is Absence.GPUS_UNKNOWN
        named = settings(host, THERE).hardware
    assert isinstance(named.peaks, GpuPeaks)
    assert (named.peaks.name, named.parallel) == ("L40S", Parallel())


def test_all_gpus_are_the_only_local_targets(state: StubState) -> None:
    with closing(host_of(HERE, gpu_source=nvml())) as host:
        found = settings(host, HERE)
        assert isinstance(found.hardware.peaks, GpuPeaks)
        assert found.hardware.peaks.bandwidth_bytes_per_second == 3.35232e12
        assert found.hardware.gpus == 2.0
        assert found.device is not None
        assert found.device.memory_used_bytes == 2 * 70000 << 20
        state.set("gpu0", memory_used=1000 << 20)
        again = settings(host, HERE).device
    assert again is not None
    assert again.memory_used_bytes == 71000 << 20, "each pass counts from the next tick on"


def test_of_several_targets_none_takes_all(state: StubState) -> None:
    mine = Target("mine", "http://127.0.0.1:10", gpus=(1,))
    with closing(host_of(HERE, mine, gpu_source=nvml())) as host:
        assert settings(host, HERE).hardware.peaks is Absence.GPUS_UNKNOWN
        assert settings(host, mine).hardware.gpus == 1.0
    assert state.path.exists()


def test_a_driver_that_is_gone_is_no_exception(state: StubState) -> None:
    state.fail("sys", "nvmlInitWithFlags", 9)
    with closing(host_of(HERE, gpu_source=nvml())) as host:
        found = settings(host, HERE)
    assert found.hardware.peaks is Absence.GPUS_UNKNOWN
    assert found.device is None


def test_a_dcgm_exporter_that_does_not_answer_is_a_reason(state: StubState) -> None:
    dcgm = DcgmConfig(url="http://127.0.0.1:9", interval_seconds=10.0, http=HttpSettings(timeout_seconds=1.0))
    config = Config(targets=(), dcgm=dcgm)
    with closing(host_of(HERE, config=config, gpu_source=nvml(), dcgm_source=DcgmSource(dcgm))) as host:
        readings = host.gpus.read_dcgm()
        assert readings is not None
        assert not readings.attempt.ok
        found = settings(host, HERE).device
    assert found is not None
    assert found.dcgm_ratio is None
    assert found.absent["dcgm_ratio"] is not Absence.AVAILABLE
    assert state.path.exists()


class Card:
    """A source with one GPU; `during` is called while it is read."""

    def __init__(self) -> None:
        self.closes = 0
        self.during = lambda: None

    def read(self) -> GpuReadings:
        self.during()
        gpu = GpuReading(GpuIdentity("GPU-1", 0, "NVIDIA H100 80GB HBM3"), processes=())
        return GpuReadings(Attempt(Stage.GPU, None, "", 0.0, 0.0), "nvml", 0.0, (gpu,))

    def close(self) -> None:
        self.closes += 1


def test_a_source_that_is_replaced_while_it_is_read_says_nothing_any_more() -> None:
    card, other = Card(), Card()
    with closing(host_of(HERE, gpu_source=card)) as host:
        card.during = lambda: host.gpus.set_source(other)
        assert host.read_gpus() is None
        assert (card.closes, host.gpus.latest.readings, host.gpus.assignments) == (1, None, {})
        assert host.read_gpus() is not None
        assert host.gpus.find_uuids(HERE) == ("GPU-1",)
        host.gpus.set_source(None)
        assert (other.closes, host.gpus.latest.readings, host.gpus.assignments) == (1, None, {})
        assert host.read_gpus() is None


def test_a_target_that_goes_during_a_pass_gets_no_gpus_and_leaves_none_to_its_successor() -> None:
    card = Card()
    with closing(host_of(HERE, gpu_source=card)) as host:
        card.during = lambda: host.remove_target("here")
        host.read_gpus()
        assert host.gpus.assignments == {}
        card.during = lambda: None
        host.add_target(replace(HERE, url="http://10.0.0.9:1"))
        host.read_gpus()
        assert host.gpus.assignments["here"].uuids == ()


def test_a_tick_has_the_gpus_their_origin_and_its_cost() -> None:
    with Replica({"/metrics": page("vllm-0.32", 50)}) as server:
        here = Target("here", server.url, metrics_path="/metrics", interval_seconds=10.0)
        host, clock = hand_driven_host(Config(targets=(), prices=PRICES), gpu_source=Card())
        with closing(host):
            hosted = host.add_target(here)
            host.settle_targets()
            first = hosted.tick()
            assert (first.gpus.origin, first.gpus.total) == ("", None)
            host.read_gpus()
            second = hosted.tick()
            clock.seconds += 10.0
            server.refuse()
            down = hosted.tick()
    assert (second.gpus.uuids, second.gpus.origin) == (("GPU-1",), "only_target")
    assert second.gpus.total == TargetGpus(1, "H100 SXM 80GB")
    assert second.cost is not None
    assert second.cost.price is not None
    # ten seconds of one GPU at 3.6 USD an hour, which nobody used
    assert (down.page.up, down.gpus.total) == (False, second.gpus.total)
    assert spent(down) == pytest.approx(0.01)


def spent(reading: TargetReading) -> float:
    assert reading.cost is not None
    return sum(sum(one.totals.usd.values()) for one in reading.cost.engines)


def test_targets_with_the_same_gpu_have_no_cost_until_one_of_them_goes() -> None:
    a, b = (Target(name, f"http://127.0.0.1:{port}", gpus=("GPU-1",)) for name, port in (("here", 9), ("b", 10)))
    with closing(host_of(a, b, config=Config(targets=(), prices=PRICES), gpu_source=Card())) as host:
        host.read_gpus()

        def why() -> Absence:
            cost = host.targets["here"].tick().cost
            assert cost is not None
            return cost.signals[COST]

        assert why() is Absence.GPU_CLAIMED_TWICE
        host.remove_target("b")
        host.settle_targets()
        host.read_gpus()
        assert why() is Absence.AVAILABLE


def test_what_a_target_cost_outlives_a_change_of_its_settings_but_not_its_name() -> None:
    host, clock = hand_driven_host(Config(targets=(), prices=PRICES), gpu_source=Card())
    with closing(host):

        def run(target: Target) -> float:
            host.remove_target("here")
            hosted = host.add_target(target)
            host.settle_targets()
            host.read_gpus()
            hosted.tick()
            clock.seconds += 10.0
            return spent(hosted.tick())

        assert run(HERE) == pytest.approx(0.01)
        assert run(replace(HERE, group="new")) == pytest.approx(0.02)
        host.remove_target("here")
        host.settle_targets()
        assert run(HERE) == pytest.approx(0.01)


def test_a_new_configuration_counts_from_the_next_tick_on() -> None:
    with Replica({"/metrics": page("vllm-0.32", 50)}) as server:
        host, clock = hand_driven_host(Config(targets=(), slo=SloConfig(ttft_seconds=2.5)))
        with closing(host):
            hosted = host.add_target(Target("here", server.url, metrics_path="/metrics"))

            def threshold() -> float | None:
                clock.seconds += 5.0
                derived = hosted.tick().page.derived
                assert derived is not None
                return derived.engines[0].slo["ttft"].configured_seconds

            assert threshold() == 2.5
            host.config = replace(host.config, slo=SloConfig(ttft_seconds=1.0))
            assert threshold() == 1.0


def test_targets_come_and_go_while_gpus_are_read_and_targets_tick() -> None:
    host, _ = hand_driven_host(Config(targets=(), prices=PRICES), gpu_source=Card())
    stays = host.add_target(Target("stays", "http://127.0.0.1:9", gpus=("GPU-1",)))
    faults: list[BaseException] = []
    done = threading.Event()

    def again(job: object) -> None:
        try:
            while not done.is_set():
                job()
        except BaseException as error:
            faults.append(error)

    threads = [threading.Thread(target=again, args=(job,)) for job in (host.read_gpus, stays.tick)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(200):
            host.add_target(HERE)
            host.settle_targets()
            host.remove_target("here")
            host.settle_targets()
    finally:
        done.set()
        for thread in threads:
            thread.join(10)
        host.close()
    assert faults == []
    assert "here" not in host.gpus.assignments


def test_a_tick_has_what_kubernetes_says_of_the_pod() -> None:
    host = host_of(HERE)
    hosted = host.targets["here"]
    assert (hosted.tick().server.state, hosted.tick().server.pod) == (State.DOWN, None)
    new = PodState(loading_limit_seconds=600.0)
    host.put_pod_states({"here": new})
    reading = hosted.tick()
    assert (reading.server.state, reading.server.pod) == (State.LOADING, new)
    host.put_pod_states({"here": PodState(was_ready=True)})
    assert hosted.tick().server.state is State.DOWN
    host.close()
