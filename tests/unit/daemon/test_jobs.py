"""The composition root: discovery that follows its files, a wall clock that jumps, what a reload keeps."""

from __future__ import annotations

import json
import os
import random
import socket
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from llm_serving_exporter.daemon.file_jobs import PRICES_EVERY_SECONDS
from llm_serving_exporter.daemon.jobs import DISCOVERY_EVERY_SECONDS, FIRST_WITHIN_SECONDS, Daemon
from llm_serving_exporter.daemon.schedule import MAX_THREADS
from llm_serving_exporter.daemon.timetable import Run, Timetable
from llm_serving_exporter.engines.mapping import Fingerprint, Mark, Row, Runtime
from llm_serving_exporter.engines.registry import RUNTIMES, reads_otherwise
from llm_serving_exporter.errors import ConfigError, Problem
from llm_serving_exporter.expose.collector import Setup, ViewCollector
from llm_serving_exporter.expose.encode import encode
from llm_serving_exporter.fetch import connect as lookup
from llm_serving_exporter.gpus.node_gpus import open_gpus
from llm_serving_exporter.model.gpu import GpuIdentity, GpuProcess, GpuReading, GpuReadings
from llm_serving_exporter.model.hardware import TargetGpus
from llm_serving_exporter.model.reading import State, TargetReading
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.sample import Attempt, Stage
from llm_serving_exporter.model.snapshot import Absence
from llm_serving_exporter.model.target import HttpSettings, Identity, Target
from llm_serving_exporter.settings.config import Config, DcgmConfig, GpuConfig, SloConfig
from llm_serving_exporter.settings.discovery import FileDiscovery
from tests.support.builders.configuration import load_text
from tests.support.builders.exporterpages import amd_labels, amd_page
from tests.support.builders.handschedule import Driven, HandSchedule
from tests.support.builders.recordings import recording
from tests.support.quick import keep_quick
from tests.support.servers import faultbehaviours as fault
from tests.support.servers.driven_exporter import HandClock
from tests.support.servers.faultserver import FaultServer
from tests.support.servers.replica import Replica
from tests.support.servers.stepped import SteppedServer

YEAR = 365 * 86_400.0


def until(holds: Callable[[], bool], seconds: float = 15.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "did not come about"
        time.sleep(0.02)


def config_for(*targets: Target, **more: object) -> Config:
    return Config(targets=targets, gpu=GpuConfig(enabled=False), **more)


def reading(daemon: Daemon, name: str) -> TargetReading:
    found = daemon.store.target(name)
    assert found is not None
    return found


class Watched:
    """A daemon in real time, its main loop in a thread."""

    def __init__(self, daemon: Daemon) -> None:
        self.daemon, self.stopping, self.reloading = daemon, threading.Event(), threading.Event()

    def __enter__(self) -> Watched:
        self.daemon.start()
        self._thread = threading.Thread(target=self.daemon.run, args=(self.stopping, self.reloading))
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stopping.set()
        self._thread.join()
        self.daemon.stop()


def test_many_targets_are_read_soon_and_from_then_on_all_over_their_interval() -> None:
    table = Timetable(lambda _low, _high: 0.0)

    class Planned(HandSchedule):
        def every(
            self, name: str, seconds: float, job: Run, delay_seconds: float = 0.0, phase_seconds: float | None = None
        ) -> None:
            table.add(name, seconds, job, delay_seconds, phase_seconds)

    targets = [Target(f"replica-{number}", "http://127.0.0.1:1", interval_seconds=15.0) for number in range(90)]
    schedule = Planned(HandClock())
    daemon = Daemon(config_for(*targets), lambda: config_for(*targets), lambda _config: None, schedule=schedule)
    daemon.start()
    firsts = {job.name for job in table.take_due(FIRST_WITHIN_SECONDS)}
    assert firsts >= {f"target {target.name}" for target in targets}
    table.take_due(60.0)
    following = sorted(job.due_at for job in table.take_due(90.0) if job.name.startswith("target"))
    assert len(following) == 90
    # a second for six of them
    apart = [later - earlier for earlier, later in pairwise(following)]
    assert max(apart) < 0.5
    daemon.stop()


def test_discovered_targets_come_change_and_go_with_their_file(tmp_path: Path) -> None:
    file = tmp_path / "targets.json"
    with SteppedServer(recording("vllm-0.32")) as engine:
        address = engine.url.removeprefix("http://")
        file.write_text(json.dumps([{"targets": [address], "labels": {"name": "first", "role": "decode"}}]))
        defaults = Target("", "", interval_seconds=0.2)
        config = config_for(discovery=(FileDiscovery((str(file),), defaults),))
        with Driven(config) as driven:
            daemon = driven.after(1.0)
            assert reading(daemon, "first").page.up is True
            assert reading(daemon, "first").target.role == "decode"

            file.write_text(json.dumps([{"targets": [address], "labels": {"name": "second"}}]))
            driven.after(DISCOVERY_EVERY_SECONDS + 1.0)
            assert reading(daemon, "second").page.up is True
            assert daemon.store.target("first") is None

            file.write_text("[{")
            driven.after(DISCOVERY_EVERY_SECONDS)
            assert str(file) in daemon.store.view().discovery_problems[0]
            assert daemon.store.view().discovery_failures_total == 1
            assert reading(daemon, "second").page.up is True  # the last good targets stay

            file.write_text("[]")
            driven.after(DISCOVERY_EVERY_SECONDS)
            assert daemon.store.view().targets == ()
            assert daemon.store.view().discovery_problems == ()


def page_of(driven: Driven, *target_labels: str) -> str:
    setup = Setup(15.0, 20.0, "n", target_labels=target_labels)
    return encode(ViewCollector(driven.daemon.store.view, lambda: setup, driven.clock.monotonic), "")[0].decode()


def gpu_seconds(daemon: Daemon, name: str) -> float | None:
    """Of all states; None before the first tick."""
    cost = reading(daemon, name).cost
    return None if cost is None else sum(sum(one.totals.gpu_seconds.values()) for one in cost.engines)


def test_another_pod_under_the_same_name_and_address_is_never_a_continuation() -> None:
    """Addresses are reused: what the pod before it counted, cost and remembered is not its own."""
    with SteppedServer(recording("vllm-0.32")) as engine:
        engine.show(60)
        first = Target(
            "prod/chat-0:8000",
            engine.url,
            identity=Identity("prod", "chat-0", "uid-1"),
            gpu_count=2,
            interval_seconds=1.0,
        )
        second = replace(first, identity=replace(first.identity, pod_uid="uid-2"))
        configs = [config_for(first)]
        with Driven(configs[0], lambda: configs[-1]) as driven:
            daemon = driven.after(10.0)
            before = reading(daemon, first.name)
            assert gpu_seconds(daemon, first.name) == 20.0
            assert before.page.derived.window_seconds == 10.0
            late = before
            configs.append(config_for(second))
            assert daemon.reload() is None
            assert reading(daemon, first.name) == TargetReading(second)
            # a tick of the pod before it that was under way is nobody's now
            daemon.store.put_target(late)
            assert reading(daemon, first.name) == TargetReading(second)
            driven.after(0.0)
            after = reading(daemon, first.name)
            assert after.page.attempts_total == 1
            assert gpu_seconds(daemon, first.name) == 0.0
            assert after.page.derived.window_seconds == 0.0
            driven.after(5.0)
            assert gpu_seconds(daemon, first.name) == 10.0


@pytest.mark.parametrize("change", ["pod", "container", "namespace"])
def test_another_place_under_the_same_name_is_another_target(change: str) -> None:
    with SteppedServer(recording("vllm-0.32")) as engine:
        engine.show(60)
        first = Target("chat", engine.url, identity=Identity("prod", "chat-0", "", "vllm"), interval_seconds=1.0)
        configs = [config_for(first)]
        with Driven(configs[0], lambda: configs[-1]) as driven:
            daemon = driven.after(3.0)
            configs.append(config_for(replace(first, identity=replace(first.identity, **{change: "other"}))))
            daemon.reload()
            assert reading(daemon, "chat").page.attempts_total == 0


def test_a_target_that_is_only_relabelled_goes_on(tmp_path: Path) -> None:
    file = tmp_path / "targets.json"

    def write(**labels: str) -> None:
        file.write_text(json.dumps([{"targets": [address], "labels": {"name": "chat", "gpu_count": "2", **labels}}]))

    with SteppedServer(recording("vllm-0.32")) as engine:
        engine.show(60)
        address = engine.url.removeprefix("http://")
        write(team="search", node="n1", namespace="prod", group="blue")
        config = config_for(discovery=(FileDiscovery((str(file),), Target("", "", interval_seconds=1.0)),))
        with Driven(config) as driven:
            daemon = driven.after(10.0)
            before = reading(daemon, "chat")
            assert 'team="search"' in page_of(driven)
            write(team="ads", node="n2", namespace="live", group="green", workload="chat")
            driven.after(DISCOVERY_EVERY_SECONDS)
            after = reading(daemon, "chat")
            assert after.page.attempts_total == before.page.attempts_total + DISCOVERY_EVERY_SECONDS
            assert gpu_seconds(daemon, "chat") == 2 * (after.page.attempts_total - 1)
            assert after.page.derived.window_seconds == after.page.attempts_total - 1
            page = page_of(driven, "team")
            shown = 'group="green",instance_type="",model_name="tiny-llama",namespace="live",node="n2"'
            assert shown in page
            assert 'team="search"' not in page
            assert 'team="ads"' in page


@pytest.mark.parametrize("step", keep_quick([-20 * YEAR, 20 * YEAR], lambda step: step < 0))
def test_a_step_of_the_wall_clock_is_said_and_moves_no_tick(
    step: float, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(random, "uniform", lambda low, high: low)  # both are read at once
    offset = [0.0]
    with SteppedServer(recording("vllm-0.32")) as engine:
        rare, often = (
            Target(name, engine.url, interval_seconds=each) for name, each in (("rare", 60.0), ("often", 0.2))
        )
        config = config_for(rare, often)
        daemon = Daemon(config, lambda: config, lambda _config: None, wall=lambda: time.time() + offset[0])
        with Watched(daemon):
            until(
                lambda: (
                    reading(daemon, "rare").page.attempts_total == 1
                    and reading(daemon, "often").page.attempts_total > 1
                )
            )
            offset[0] = step
            until(lambda: "the wall clock moved by" in caplog.text)
            before = reading(daemon, "often").page.attempts_total
            until(lambda: reading(daemon, "often").page.attempts_total >= before + 3)
            assert reading(daemon, "rare").page.attempts_total == 1
            last = reading(daemon, "often").page.derived
            assert 0 < last.window_seconds < 60
    # once, and no step was said before there was one
    ((moved, *_),) = (record.args for record in caplog.records if "the wall clock moved by" in record.msg)
    assert moved == pytest.approx(step, abs=1.0)


def test_servers_and_names_that_hang_hold_up_no_other_target(monkeypatch: pytest.MonkeyPatch) -> None:
    released = threading.Event()
    real = lookup.get_addresses

    def get_addresses(host: str, port: int) -> lookup.Found:
        if host.endswith(".invalid"):
            released.wait(30.0)
        return real(host, port)

    monkeypatch.setattr(lookup, "get_addresses", get_addresses)
    with SteppedServer(recording("vllm-0.32")) as engine, socket.create_server(("127.0.0.1", 0), backlog=256) as silent:
        # the kernel takes their connections, and nobody ever answers
        hanging = [f"http://127.0.0.1:{silent.getsockname()[1]}"] * 60
        hanging += [f"http://name-{number}.invalid:8000" for number in range(60)]
        http = HttpSettings(timeout_seconds=60.0)
        stuck = [Target(f"stuck-{number}", url, interval_seconds=61.0, http=http) for number, url in enumerate(hanging)]
        config = config_for(*stuck, Target("good", engine.url, interval_seconds=0.1))
        daemon = Daemon(config, lambda: config, lambda _config: None)
        # so that they are all under way
        monkeypatch.setattr(random, "uniform", lambda low, high: low)
        try:
            with Watched(daemon):
                until(lambda: reading(daemon, "good").page.attempts_total >= 10)
                assert all(reading(daemon, target.name).page.attempts_total == 0 for target in stuck)
                assert sum(thread.name.startswith(("job", "step")) for thread in threading.enumerate()) <= MAX_THREADS
        finally:
            released.set()


def test_the_main_loop_reloads_when_a_signal_asks_for_it() -> None:
    configs = [config_for(config_hash="a"), config_for(config_hash="b")]
    daemon = Daemon(configs[0], lambda: configs[1], lambda _config: None)
    with Watched(daemon) as watched:
        assert daemon.store.view().config_hash == "a"
        watched.reloading.set()
        until(lambda: daemon.store.view().config_hash == "b")
    assert not watched.reloading.is_set()


def test_a_reload_keeps_windows_of_unchanged_targets_and_takes_new_thresholds() -> None:
    with SteppedServer(recording("vllm-0.32")) as engine, SteppedServer(recording("vllm-0.32")) as other:
        engine.show(60)
        kept, gone = Target("kept", engine.url, interval_seconds=0.2), Target("gone", other.url, interval_seconds=0.2)
        configs = [config_for(kept, gone, config_hash="a")]
        with Driven(configs[0], lambda: configs[-1]) as driven:
            daemon = driven.after(1.0)
            before = reading(daemon, "kept")
            assert before.page.attempts_total >= 3
            configs.append(config_for(kept, slo=SloConfig(ttft_seconds=1.0), config_hash="b"))
            assert daemon.reload() is None
            assert daemon.store.target("gone") is None
            assert daemon.store.view().config_hash == "b"

            def counted_at() -> float | None:
                derived = reading(daemon, "kept").page.derived
                return derived.engines[0].slo["ttft"].counted_seconds if derived else None

            driven.after(0.2)
            assert counted_at() == 1.0
            assert reading(daemon, "kept").page.attempts_total > before.page.attempts_total
            assert reading(daemon, "kept").server.restarts_total == 0


def test_a_reload_reads_the_file_of_thresholds_again_and_a_bad_one_changes_nothing(tmp_path: Path) -> None:
    rules = tmp_path / "rules.yml"
    with SteppedServer(recording("vllm-0.32")) as engine:
        text = f"targets: [{{url: '{engine.url}', name: a, interval: 200ms}}]\ngpu: {{enabled: false}}\nslo: {{file: rules.yml}}\n"

        def load() -> Config:
            return load_text(tmp_path, text)

        def configured() -> float | None:
            derived = reading(daemon, "a").page.derived
            return derived.engines[0].slo["ttft"].configured_seconds if derived else None

        engine.show(60)
        rules.write_text("slo: {ttft: {threshold: 1s}}\n")
        with Driven(load(), load) as driven:
            daemon = driven.after(0.2)
            assert configured() == 1.0
            before = daemon.store.view().config_hash
            rules.write_text("slo: {ttft: {threshold: 2.5s}}\n")
            assert daemon.reload() is None
            driven.after(0.2)
            assert configured() == 2.5
            after = daemon.store.view().config_hash
            assert after != before
            rules.write_text("slo: {ttft: {threshold: soon}}\n")
            error = daemon.reload()
            assert error is not None
            assert str(error).startswith(f"{rules}: slo.ttft.threshold: ")
            view = daemon.store.view()
            assert (view.reload_ok, view.config_hash) == (False, after)
            assert configured() == 2.5


def test_web_settings_that_are_in_force_again_are_not_said_to_have_changed(caplog: pytest.LogCaptureFixture) -> None:
    first = config_for()
    other = replace(first, web=replace(first.web, enable_lifecycle=not first.web.enable_lifecycle))
    configs = [other]
    with Driven(first, lambda: configs[-1]) as driven:
        daemon = driven.after(0.1)
        for config, said in ((other, 1), (other, 2), (first, 2)):
            configs.append(config)
            assert daemon.reload() is None
            assert caplog.text.count("web settings changed: they take effect at the next start only") == said
            assert daemon.web_waits == (config is other)


def test_a_bad_reload_changes_nothing() -> None:
    problem = Problem("exporter.yml", "targets", "is not a list", "Start each target with a dash.")

    def load() -> Config:
        raise ConfigError(problem)

    with SteppedServer(recording("vllm-0.32")) as engine:
        config = config_for(Target("replica-0", engine.url, interval_seconds=0.2), config_hash="a")
        with Driven(config, load) as driven:
            daemon = driven.after(0.2)
            assert reading(daemon, "replica-0").page.up is True
            error = daemon.reload()
            assert error.problems == (problem,)
            assert (daemon.store.view().reload_ok, daemon.store.view().config_hash) == (False, "a")
            seen = reading(daemon, "replica-0").page.attempts_total
            driven.after(0.2)
            assert reading(daemon, "replica-0").page.attempts_total == seen + 1


def test_a_repaired_price_file_counts_whatever_is_wrong_with_the_configuration(tmp_path: Path) -> None:
    prices = tmp_path / "prices.yml"
    prices.write_text("prices: [{gpu_model: H100 SXM, usd_per_gpu_hour: 2}]")
    good = [True]

    def load() -> Config:
        if not good[0]:
            raise ConfigError(Problem("exporter.yml", "", "it is broken", ""))
        return config_for(price_file=str(prices))

    def price() -> float | None:
        book = daemon.config.prices
        return None if book is None else book.statements[0].usd_per_gpu_hour

    with Driven(load(), load) as driven:
        daemon = driven.after(PRICES_EVERY_SECONDS)
        assert price() == 2.0
        good[0] = False
        assert daemon.reload() is not None
        prices.write_text("prices: [{gpu_model: H100 SXM, usd_per_gpu_hour: 3}]")
        driven.after(2 * PRICES_EVERY_SECONDS)
        assert price() == 3.0
        assert not daemon.store.view().reload_ok
        good[0] = True
        assert daemon.reload() is None
        driven.after(PRICES_EVERY_SECONDS)
        assert price() == 3.0
        assert daemon.store.view().reload_ok
        prices.write_text("prices: nonsense")
        driven.after(2 * PRICES_EVERY_SECONDS)
        assert not daemon.store.view().reload_ok
        assert price() == 3.0
        # a reload takes what is good of the configuration, and keeps the prices
        assert daemon.reload() is None
        assert not daemon.store.view().reload_ok
        assert price() == 3.0


def test_a_daemon_starts_without_a_price_file_that_can_be_used_and_takes_it_when_it_can(tmp_path: Path) -> None:
    prices = tmp_path / "prices.yml"
    config = config_for(Target("chat", "http://127.0.0.1:9", gpu_count=1, gpu_model="L40S"), price_file=str(prices))

    def why(daemon: Daemon) -> Absence:
        cost = reading(daemon, "chat").cost
        return cost.signals["cost_usd_total"]

    with Driven(config) as driven:
        daemon = driven.after(1.0)
        assert why(daemon) is Absence.PRICES_UNUSABLE
        assert not daemon.store.view().reload_ok
        prices.write_text("prices: [{target: chat, usd_per_gpu_hour: 3}]\n")
        driven.after(PRICES_EVERY_SECONDS)
        assert why(daemon) is Absence.PRICES_UNUSABLE
        driven.after(2 * PRICES_EVERY_SECONDS + 30.0)
        assert why(daemon) is Absence.AVAILABLE
        assert daemon.store.view().reload_ok


def test_a_reload_takes_a_changed_table_and_keeps_the_windows_of_others(tmp_path: Path) -> None:
    """Targets that a changed table reads, or may now recognise, start anew; one that says another runtime does not."""
    page = "# TYPE acme_tokens_total counter\nacme_tokens_total 640\n# TYPE acme_running gauge\nacme_running 3\nacme_busy 5\n"
    text = """
scrape: {{interval: 200ms}}
file_sd: [{{files: [sd.yml]}}]
targets:
- {{name: said, url: '{0}', runtime: acme}}
- {{name: recognised, url: '{0}', metrics_path: /metrics}}
- {{name: other, url: '{1}', runtime: vllm}}
runtimes:
- name: acme
  prefixes: [acme_]
  fingerprints: acme_tokens_total
  rows:
  - {{field: decode_tokens_total, samples: acme_tokens_total}}
  - {{field: requests_running, samples: acme_running}}
"""
    (tmp_path / "sd.yml").write_text("[]")
    with Replica({"/metrics": page}) as acme, SteppedServer(recording("vllm-0.32")) as engine:
        written = [text.format(acme.url, engine.url)]

        def load() -> Config:
            return load_text(tmp_path, written[-1], "--no-gpu.enabled")

        def running(name: str) -> float | None:
            snapshot = reading(daemon, name).page.snapshot
            return snapshot.engines[0].requests_running if snapshot else None

        with Driven(load(), load) as driven:
            daemon = driven.after(1.0)
            assert running("said") == running("recognised") == 3.0
            assert reading(daemon, "other").page.attempts_total >= 3
            before = reading(daemon, "other").page.attempts_total
            written.append(written[0].replace("acme_running}", "acme_busy}"))
            assert daemon.reload() is None
            driven.after(0.4)
            assert running("said") == running("recognised") == 5.0
            assert reading(daemon, "other").page.attempts_total >= before

            # without the table the one is nobody's, and the other's setting is refused: nothing changes then
            written.append(written[0].partition("runtimes:")[0])
            assert daemon.reload() is not None
            assert running("said") == 5.0
            written.append(written[-1].replace(", runtime: acme", ", runtime: auto"))
            assert daemon.reload() is None
            driven.after(0.4)
            assert (reading(daemon, "recognised").page.up, reading(daemon, "said").page.up) == (False, False)

            # a discovered target may name a table that a reload brought
            (tmp_path / "sd.yml").write_text(
                f"- {{targets: ['{acme.url.removeprefix('http://')}'], labels: {{__metrics_path__: /metrics/, runtime: acme}}}}"
            )
            driven.after(DISCOVERY_EVERY_SECONDS)
            assert "acme" in str(daemon.store.view().discovery_problems)
            written.append(written[0])
            assert daemon.reload() is None
            assert daemon.store.view().discovery_problems == ()


def test_only_targets_that_a_changed_table_concerns_start_anew() -> None:
    table = Runtime("acme", "ACME", (Row("requests_running", ("acme_running",)),), prefixes=("acme_",))
    marked = replace(table, fingerprints=(Fingerprint((Mark("acme_running"),)),))
    fork = Runtime("fork", "Fork", (), prefixes=("vllm:",), fingerprints=(Fingerprint((Mark("vllm:fork_info"),)),))
    auto, named, other = (Target("a", "http://a:1", runtime=runtime) for runtime in (None, "acme", "vllm"))
    vllm = RUNTIMES["vllm"]
    targets = ((auto, None), (auto, marked), (auto, vllm), (named, marked), (other, vllm))
    changes = {
        "a table that only its name recognises": ((), (table,), [False, True, False, True, False]),
        "it gets a fingerprint": ((table,), (marked,), [True, False, False, True, False]),
        "it is changed": ((marked,), (replace(marked, living="acme_up"),), [True, True, False, True, False]),
        "nothing": ((marked,), (marked,), [False] * 5),
        "a fork of vLLM's": ((marked,), (marked, fork), [True, False, True, False, False]),
    }
    for what, (before, after, expected) in changes.items():
        found = [reads_otherwise(target, current, before, after) for target, current in targets]
        assert found == expected, what


class CountingSource:
    """A source of GPU readings that counts its life."""

    def __init__(self, *gpus: GpuReading) -> None:
        self.reads = self.closes = 0
        self.gpus = gpus

    def read(self) -> GpuReadings:
        self.reads += 1
        return GpuReadings(Attempt(Stage.GPU, None, "", 0.0, 0.0), "nvml", float(self.reads), self.gpus)

    def close(self) -> None:
        self.closes += 1


def test_gpus_are_opened_once_kept_over_reloads_and_closed_when_switched_off() -> None:
    sources: list[CountingSource] = []

    def make(_config: Config) -> CountingSource:
        sources.append(CountingSource())
        return sources[-1]

    on = Config(targets=(Target("a", "http://127.0.0.1:9"),), gpu=GpuConfig(interval_seconds=0.1))
    configs = [on]
    with Driven(on, lambda: configs[-1], make) as driven:
        daemon = driven.after(0.3)
        assert sources[0].reads > 2
        assert daemon.reload() is None
        assert len(sources) == 1
        configs.append(replace(on, gpu=GpuConfig(enabled=False)))
        assert daemon.reload() is None
        assert sources[0].closes == 1
        assert daemon.store.view().gpus is None
        configs.append(on)
        assert daemon.reload() is None
        driven.after(0.1)
        assert len(sources) == 2
        assert sources[1].reads > 0
    assert sources[1].closes == 1


def test_the_gpus_of_a_server_are_known_before_it_was_ever_up_and_stay_when_it_goes() -> None:
    source = CountingSource(GpuReading(GpuIdentity("GPU-1", 0, "NVIDIA H100 80GB HBM3")))
    with Replica() as server:
        never = Target("never", "http://127.0.0.1:9", interval_seconds=0.2, gpu_count=8, gpu_model="H200")
        here = Target("here", server.url, interval_seconds=0.2, gpus=("GPU-1",))
        server.show({"/metrics": 'vllm:num_requests_running{engine="0",model_name="m"} 3\n'})
        config = Config(targets=(never, here), gpu=GpuConfig(interval_seconds=0.1))
        with Driven(config, gpu_source=lambda _config: source) as driven:
            daemon = driven.after(0.5)
            assert reading(daemon, "here").gpus.total == TargetGpus(1, "H100 SXM 80GB")
            assert reading(daemon, "never").page.up is False
            assert reading(daemon, "never").gpus.total == TargetGpus(8, "H200 SXM 141GB")
            assert reading(daemon, "here").page.up is True
            server.refuse()
            driven.after(0.2)
            assert reading(daemon, "here").page.up is False
            assert reading(daemon, "here").gpus.total == TargetGpus(1, "H100 SXM 80GB")


def test_another_server_of_the_same_name_does_not_inherit_its_gpus() -> None:
    # both servers live in this process, which the GPU's process list names first and then no more
    gpu = GpuReading(GpuIdentity("GPU-1", 0, "NVIDIA H100 80GB HBM3"), processes=(GpuProcess(os.getpid(), None),))
    source = CountingSource(gpu)
    with SteppedServer(recording("vllm-0.32")) as first, SteppedServer(recording("vllm-0.32")) as second:

        def config(*targets: Target) -> Config:
            return Config(targets=targets, gpu=GpuConfig(interval_seconds=0.1))

        configs = [config(Target("a", first.url, interval_seconds=0.2))]
        with Driven(configs[0], lambda: configs[-1], lambda _config: source) as driven:
            daemon = driven.after(0.5)
            assert reading(daemon, "a").gpus.origin == "process"
            source.gpus = (replace(gpu, processes=()),)
            driven.after(0.5)
            assert reading(daemon, "a").gpus.uuids == ("GPU-1",)  # away for a moment
            moved = (Target("a", second.url, interval_seconds=0.2), Target("b", first.url, interval_seconds=0.2))
            configs.append(config(*moved))
            assert daemon.reload() is None
            driven.after(0.5)
            assert "process lists do not show" in reading(daemon, "a").gpus.origin
            assert reading(daemon, "a").gpus.uuids == ()


def test_a_target_that_is_not_tried_yet_is_unknown_not_down() -> None:
    daemon = Daemon(config_for(), lambda: config_for(), lambda _config: None)
    daemon.store.add_target(Target("a", "http://127.0.0.1:9"))
    assert (reading(daemon, "a").server.state, reading(daemon, "a").page.up) == (State.UNKNOWN, None)


def test_a_dcgm_exporter_that_cannot_be_asked_does_not_end_a_reload() -> None:
    """A URL that no checked configuration has: the rest of the configuration holds."""
    broken = DcgmConfig("ftp://127.0.0.1:1")
    target = Target("a", "http://127.0.0.1:1")
    daemon = Daemon(config_for(target), lambda: config_for(target, dcgm=broken), lambda _config: None)
    daemon.start()
    try:
        assert daemon.reload() is None
        view = daemon.store.view()
        assert (view.dcgm_ok, view.reload_ok, [reading.target.name for reading in view.targets]) == (False, True, ["a"])
    finally:
        daemon.stop()


def test_a_device_exporter_takes_nvmls_place_at_a_reload_and_one_that_cannot_be_asked_does_not_end_it() -> None:
    target = Target("a", "http://127.0.0.1:1")
    page = amd_page(amd_labels()).encode()
    with FaultServer({"/metrics": fault.page(page)}) as server:
        wanted = [
            config_for(target, device_exporter=DcgmConfig(server.url)),
            config_for(target, device_exporter=DcgmConfig("ftp://127.0.0.1:1")),
        ]
        daemon = Daemon(config_for(target), lambda: wanted.pop(0), open_gpus)
        daemon.start()
        try:
            assert daemon.store.view().gpus is None
            assert daemon.reload() is None
            until(lambda: daemon.store.view().gpus is not None)
            read = daemon.store.view().gpus
            assert read.source == "amd_device_metrics_exporter"
            assert [gpu.identity.name for gpu in read.gpus] == ["Instinct MI300X"]
            assert daemon.reload() is None
            assert (daemon.store.view().gpus, daemon.store.view().reload_ok) == (None, True)
        finally:
            daemon.stop()
