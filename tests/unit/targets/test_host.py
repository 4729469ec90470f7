"""One tick wired once: GPUs out of a real NVML library (the stub), what targets share, what only pages ask for, and what cannot be true."""

from __future__ import annotations

import gc
import logging
import re
import threading
import weakref
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from llm_serving_exporter.cost.terms import COST
from llm_serving_exporter.derive.derive import DeriveSettings
from llm_serving_exporter.engines.apply import Plans
from llm_serving_exporter.engines.registry import RUNTIMES
from llm_serving_exporter.gpus.attribution import SettingsBuilder
from llm_serving_exporter.gpus.exporter_source import DcgmSource
from llm_serving_exporter.gpus.nvml import NvmlSource
from llm_serving_exporter.model.cost import PriceBook, PriceStatement, Rate, RateKind, Scope
from llm_serving_exporter.model.derived import Limiter
from llm_serving_exporter.model.gpu import GpuIdentity, GpuReading, GpuReadings
from llm_serving_exporter.model.hardware import GpuPeaks, Parallel, TargetGpus
from llm_serving_exporter.model.reading import State, TargetReading
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.sample import Attempt, Stage
from llm_serving_exporter.model.snapshot import Absence, ServerFacts
from llm_serving_exporter.model.target import HttpSettings, ModelSettings, PodState, Target
from llm_serving_exporter.render.sentences import describe_limiter
from llm_serving_exporter.settings.config import Config, DcgmConfig, SloConfig
from llm_serving_exporter.targets.host import TargetHost
from llm_serving_exporter.targets.page_source import PageBook
from tests.nvml_stub.stub import StubState, loaded_stub
from tests.support.builders.lying_pages import KNOWN, PRICES, Server, change_samples
from tests.support.builders.recordings import page, recording
from tests.support.builders.recordings import page as recorded_page
from tests.support.builders.snapshots import page_of
from tests.support.quick import keep_quick
from tests.support.servers.driven_exporter import DrivenExporter, hand_driven_host
from tests.support.servers.replica import Replica

# --- One tick wired once: GPUs out of a real NVML library (the stub), what targets share, and what follows from a tick


HERE, THERE = (
    Target("here", "http://127.0.0.1:9"),
    Target("there", "http://10.0.0.1:8000", gpu_model="L40S", gpu_count=1),
)
HOST_PRICES = PriceBook((PriceStatement(Scope.TARGET, "here", 3.6, "owned"),), (Rate("owned", RateKind.OWNED),))


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
        assert found.device.memory_used_bytes == 2 * 70000 << 20
        state.set("gpu0", memory_used=1000 << 20)
        again = settings(host, HERE).device
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
        assert not readings.attempt.ok
        found = settings(host, HERE).device
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
        host, clock = hand_driven_host(Config(targets=(), prices=HOST_PRICES), gpu_source=Card())
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
    assert second.cost.price is not None
    # ten seconds of one GPU at 3.6 USD an hour, which nobody used
    assert (down.page.up, down.gpus.total) == (False, second.gpus.total)
    assert spent(down) == pytest.approx(0.01)


def spent(reading: TargetReading) -> float:
    return sum(sum(one.totals.usd.values()) for one in reading.cost.engines)


def test_targets_with_the_same_gpu_have_no_cost_until_one_of_them_goes() -> None:
    a, b = (Target(name, f"http://127.0.0.1:{port}", gpus=("GPU-1",)) for name, port in (("here", 9), ("b", 10)))
    with closing(host_of(a, b, config=Config(targets=(), prices=HOST_PRICES), gpu_source=Card())) as host:
        host.read_gpus()

        def why() -> Absence:
            cost = host.targets["here"].tick().cost
            return cost.signals[COST]

        assert why() is Absence.GPU_CLAIMED_TWICE
        host.remove_target("b")
        host.settle_targets()
        host.read_gpus()
        assert why() is Absence.AVAILABLE


def test_what_a_target_cost_outlives_a_change_of_its_settings_but_not_its_name() -> None:
    host, clock = hand_driven_host(Config(targets=(), prices=HOST_PRICES), gpu_source=Card())
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
                return derived.engines[0].slo["ttft"].configured_seconds

            assert threshold() == 2.5
            host.config = replace(host.config, slo=SloConfig(ttft_seconds=1.0))
            assert threshold() == 1.0


def test_targets_come_and_go_while_gpus_are_read_and_targets_tick() -> None:
    host, _ = hand_driven_host(Config(targets=(), prices=HOST_PRICES), gpu_source=Card())
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


# --- A power cap from NVML, through the host's passes and a target's ticks, to the words that people read


RUN = "h100-vllm-0.25.1"
# prefill, a page each 5 s
PAGES = range(30, 34)


@pytest.fixture
def capped(nvml_library: Path, tmp_path: Path) -> Iterator[StubState]:
    described = StubState(tmp_path / "state")
    described.update(
        "gpu0",
        {"clock_sm": 1383, "power_mw": 698_000, "event_reasons": 0x4, "gpm:10": 30.2, "gpm:5": 82.8, "gpm:2": 98.0},
    )
    with loaded_stub(nvml_library, described.path):
        yield described


def last_reading(capped: StubState, folder: Path, capped_share: float | None) -> TargetReading:
    """After the pages of a phase. `capped_share`: of the time, that the driver counts as capped; None: it does not count."""
    config = folder / "config.json"
    config.write_bytes(recording(RUN).members["config.json"])
    server = Server({})
    host, clock = hand_driven_host()
    host.gpus.set_source(NvmlSource(xid_events=False, monotonic=clock.monotonic, wall=clock.wall))
    with closing(host):
        target = Target("t", "http://t", gpus=(0,), model=ModelSettings(config=str(config), weight_format="bf16"))
        hosted = host.add_target(target, server.connect)
        for number in (PAGES[0], *PAGES):
            if capped_share is not None:
                capped.update("gpu0", {"field:74": f"ull {int(1e9 * capped_share * clock.seconds)}"})
            host.read_gpus()
            server.routes = {"/metrics": recording(RUN).pages[number]}
            reading = hosted.tick()
            hosted.refresh_facts()
            clock.seconds += 5.0
    return reading


@pytest.mark.parametrize("share", [1.0, 0.6, None])
def test_a_card_at_its_cap(share: float | None, capped: StubState, tmp_path: Path) -> None:
    derived = last_reading(capped, tmp_path, share).page.derived
    assert derived.verdict.candidate is Limiter.POWER
    assert derived.verdict.cap.share == pytest.approx(1.0 if share is None else share)
    assert describe_limiter(derived.verdict) == (
        "power: 698 of 700 W drawn by each GPU, and the cap holds the SM clock at 1383 of 1980 MHz; full clock would give at most 1.43 "
        "times as much"
    )


def test_a_card_that_is_capped_for_less_than_half_of_the_time(capped: StubState, tmp_path: Path) -> None:
    derived = last_reading(capped, tmp_path, 0.4).page.derived
    assert derived.verdict.state is Limiter.COMPUTE


def test_heat(capped: StubState, tmp_path: Path) -> None:
    capped.update("gpu0", {"event_reasons": 0x40, "power_mw": 450_000})
    derived = last_reading(capped, tmp_path, None).page.derived
    assert derived.verdict is not None
    assert describe_limiter(derived.verdict) == (
        "heat: a thermal cap holds the SM clock at 1383 of 1980 MHz; full clock would give at most 1.43 times as much"
    )


def test_memory_that_is_near_its_peak_binds_whatever_holds_the_clock(capped: StubState, tmp_path: Path) -> None:
    capped.update("gpu0", {"gpm:10": 86.0})
    derived = last_reading(capped, tmp_path, None).page.derived
    assert derived.verdict.candidate is not Limiter.POWER


# --- PageBook: targets whose pages are alike share what was worked out for one of them, and nothing of it outlives them


VLLM = RUNTIMES["vllm"]

FIRST, SECOND = (page_of(recorded_page("vllm-0.32", second).decode()) for second in (60, 61))


def test_a_page_of_another_replica_is_known() -> None:
    book = PageBook()
    assert book.recall_runtime(FIRST) is None
    book.note_runtime(FIRST, VLLM)
    assert book.recall_runtime(SECOND) is VLLM
    assert book.recall_runtime(page_of("vllm:num_requests_running 1\n")) is None
    one, other = book.make_parser(VLLM, 50_000), book.make_parser(VLLM, 50_000)
    assert one.parse(FIRST).layout is other.parse(SECOND).layout


def test_plans_are_made_once_for_a_layout_and_a_version_and_go_with_the_layout() -> None:
    book = PageBook()
    parser = book.make_parser(VLLM, 50_000)
    layout = parser.parse(FIRST).layout
    plan = book.plans.find(VLLM, layout, "0.32.0")
    assert book.plans.find(VLLM, layout, "0.32.0") is plan
    assert book.plans.find(VLLM, layout, "0.9.0") is not plan
    gone = weakref.ref(layout)
    del parser, layout, plan
    gc.collect()
    assert gone() is None


def test_plans_of_a_server_that_calls_itself_something_else_at_each_start_are_bounded() -> None:
    plans, layout = Plans(), PageBook().make_parser(VLLM, 50_000).parse(FIRST).layout
    for number in range(40):
        plans.find(VLLM, layout, f"0.32.{number}")
    (known,) = plans._plans.values()
    assert len(known) <= 16


# --- What a target's page says and cannot be true: counted, logged once, and out of everything that outlives a page


BEFORE, AFTER = page("vllm-0.32", 50), page("vllm-0.32", 60)
USAGE = "vllm:kv_cache_usage_perc"
REJECTED = 'vllm:request_rejected_total{engine="0",model_name="tiny-llama",reason="queue_full"}'


def test_each_page_is_counted_and_the_first_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    server = Server({"/metrics": change_samples(AFTER, USAGE, lambda _: "1e15")})
    with DrivenExporter("http://lying", connect=server.connect) as exporter, caplog.at_level(logging.WARNING):
        for _ in range(3):
            (reading,) = exporter.tick()
        assert reading.page.implausible_total == {"kv_cache_usage_ratio": 3}
        said = [record.getMessage() for record in caplog.records if "cannot be true" in record.getMessage()]
        assert said == ["target=replica-0: kv_cache_usage_ratio is left out, it cannot be true: 1e+15"]
        server.routes = {"/metrics": AFTER}
        (reading,) = exporter.tick()
        assert reading.page.snapshot.left_out == ()
        assert exporter.scrape().value("implausible_values_total", signal="kv_cache_usage_ratio") == 3


def test_a_figure_that_cannot_be_is_left_out_with_its_reason() -> None:
    server = Server({"/metrics": BEFORE})
    with DrivenExporter("http://lying", connect=server.connect) as exporter:
        exporter.tick()
        lying = change_samples(AFTER, "vllm:prefix_cache_queries_total", lambda _: 1e6)
        server.routes = {"/metrics": change_samples(lying, "vllm:prefix_cache_hits_total", lambda _: 287e6)}
        (reading,) = exporter.tick()
        found = exporter.scrape()
    assert reading.page.derived.engines[0].prefix_cache_hit_ratio is None
    assert found.value("signal_available", signal="prefix_cache_hit_ratio", reason="implausible") == 0
    assert found.value("implausible_values_total", signal="prefix_cache_hit_ratio") == 1


def test_a_ratio_above_1_goes_out_and_is_suspect() -> None:
    server = Server({"/metrics": BEFORE})
    with DrivenExporter("http://lying", connect=server.connect) as exporter:
        exporter.tick()
        lying = change_samples(AFTER, "vllm:prefix_cache_queries_total", lambda _: 1e6)
        server.routes = {"/metrics": change_samples(lying, "vllm:prefix_cache_hits_total", lambda _: 2e6)}
        exporter.tick()
        found = exporter.scrape()
    assert found.value("prefix_cache_hit_ratio") == pytest.approx(2.0, abs=0.1)
    assert found.value("signal_quality", signal="prefix_cache_hit_ratio", quality="suspect") == 1


def test_no_lie_costs_money() -> None:
    """Of two targets that work alike, the one that lies for a page has cost no more than the other."""

    def spend(*pages: bytes) -> float:
        server = Server({"/metrics": BEFORE})
        config = Config(targets=(), prices=PRICES)
        with DrivenExporter("http://lying", config=config, connect=server.connect, **KNOWN) as exporter:
            for body in (BEFORE, BEFORE, AFTER, *pages, AFTER):
                server.routes = {"/metrics": body}
                exporter.tick()
            found = exporter.scrape()
        return found.total("cost_usd_total") + found.total("prefix_cache_savings_usd_total")

    cached = "vllm:prompt_tokens_by_source_total", "vllm:prefix_cache_hits_total"
    honest = spend(AFTER)
    assert honest > 0
    for value in ("1e308", "+Inf", "NaN"):
        lying = AFTER
        for name in (*cached, "vllm:generation_tokens_total", "vllm:prompt_tokens_total"):
            lying = change_samples(lying, name, lambda _, value=value: value)
        assert spend(lying) == pytest.approx(honest)


# --- Figures that only pages ask for: whether nobody, one or ten ask between two ticks, every state and counter is the same


# of the page's series those that say how often it was made, or by whom: none of them is of a target
_STATES = re.compile(r"^llm_serving_(?!exporter_)\w+(\{.*)? \S+$", re.MULTILINE)


def list_series(asks: int, *, lie: bool = False) -> tuple[str, list[object]]:
    """The page after twenty ticks of the recorded load, between which `asks` pages were made; and the states of each tick."""
    run = recording("vllm-0.32-mfu")
    server = Server({"/metrics": run.pages[20]})
    states: list[object] = []
    with DrivenExporter(
        "http://one", connect=server.connect, config=Config(targets=(), prices=PRICES), **KNOWN
    ) as exporter:
        exporter.tick()
        for number in range(21, 61, 2):
            page = run.pages[number]
            if lie and number == 41:
                page = change_samples(page, "vllm:prefix_cache_hits_total", lambda value: value + 1e9)
            server.routes = {"/metrics": page}
            (reading,) = exporter.tick()
            for _ in range(asks):
                exporter.scrape()
            assert reading.page.derivation is not None
            found = reading.page.derivation
            verdict = found.verdict
            states.append(
                (
                    [(one.busy, one.tick, one.server_errors) for one in found.tick_engines],
                    (verdict.state, verdict.candidate, verdict.candidate_since_monotonic_seconds),
                    [one.totals for one in reading.cost.engines],
                    dict(reading.page.implausible_total),
                )
            )
        text = exporter.scrape().text
    return "\n".join(match[0] for match in _STATES.finditer(text)), states


@pytest.mark.parametrize("asks", keep_quick([1, 10], lambda asks: asks == 1))
def test_nobodys_asking_changes_a_state_or_a_counter(asks: int) -> None:
    series, states = list_series(0)
    assert len(states) == 20
    assert series.count("\n") > 200
    assert list_series(asks) == (series, states)


def test_a_figure_is_worked_out_once_whoever_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    from llm_serving_exporter.derive import figures

    worked_out: list[object] = []
    make = figures.Computed.__init__

    class Counting(dict[object, object]):
        def __setitem__(self, key: object, value: object) -> None:
            worked_out.append(key)
            assert key not in self, "a figure was worked out twice"
            super().__setitem__(key, value)

    def begin(self: figures.Computed, handed_in: object) -> None:
        make(self, handed_in)
        self._values = Counting(self._values)
        self._known = self._values.__getitem__

    monkeypatch.setattr(figures.Computed, "__init__", begin)
    list_series(2)
    assert len(worked_out) > 500


def test_a_lie_that_only_pages_see_is_counted_once_for_its_page() -> None:
    def count(asks: int) -> set[str]:
        series, _ = list_series(asks, lie=True)
        return set(re.findall(r'implausible_values_total\{.*signal="prefix_cache_hit_ratio".*\} (\S+)', series))

    assert count(1) == count(3) != set()
