"""What the collector withdraws when it grows old, and that one target's fault leaves the others."""

from __future__ import annotations

import re

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest

from llm_serving_exporter.daemon.store import Store
from llm_serving_exporter.expose import serving
from llm_serving_exporter.expose.collector import Setup, ViewCollector
from llm_serving_exporter.model.cost import Method, TargetCost
from llm_serving_exporter.model.gpu import GpuIdentity, GpuReading, GpuReadings
from llm_serving_exporter.model.hardware import TargetGpus
from llm_serving_exporter.model.later import Later
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.sample import Attempt, Stage
from llm_serving_exporter.model.snapshot import Absence
from llm_serving_exporter.model.target import Identity, Target, WaitingPod
from tests.support.builders.snapshots import snapshot_of
from tests.support.builders.target_readings import change_reading

PLACE = 'namespace="",node="",pod=""'
PAGE = 'vllm:num_requests_running{engine="0",model_name="m"} 3\n'


def exposed(store: Store, now: float, *, all_buckets: bool = False) -> str:
    registry = CollectorRegistry()
    setup = Setup(15.0, 20.0, "node-a", all_buckets=all_buckets)
    registry.register(ViewCollector(store.view, lambda: setup, lambda: now))
    return generate_latest(registry).decode()


@pytest.mark.parametrize(("age", "shown"), [(14.0, True), (16.0, False)])
def test_serving_series_vanish_when_they_are_stale(age: float, shown: bool) -> None:
    store, target = Store(), Target("a", "http://127.0.0.1:9")
    known = {"runtime": "vllm", "model_name": "m", "total": TargetGpus(2, "L40S")}
    store.put_target(change_reading(store.add_target(target), snapshot=snapshot_of(PAGE, at=100.0), **known))
    text = exposed(store, 100.0 + age)
    assert f'llm_serving_target_gpus{{container="",gpu_name="L40S",{PLACE},target="a"}} 2.0' in text
    assert ("llm_serving_requests_running" in text) is shown
    assert f'llm_serving_target_sample_age_seconds{{container="",{PLACE},target="a"}} {age}' in text
    assert (
        'llm_serving_target_info{container="",group="",instance_type="",model_name="m",namespace="",node="",pod="",provider_id="",region="",'
        'role="unified",runtime="vllm",target="a",version="",workload="",workload_kind=""} 1.0'
    ) in text


def test_a_target_that_was_never_up_says_why_it_has_no_cost() -> None:
    store, target = Store(), Target("a", "http://127.0.0.1:9")
    signals = {"gpu_seconds_total": Absence.AVAILABLE, "cost_usd_total": Absence.NO_PRICE}
    signals["cost_usd_per_million_tokens"] = Absence.NO_PRICE
    store.put_target(
        replace(store.add_target(target), cost=TargetCost((), None, Method.ROOFLINE, "", Later(lambda: signals)))
    )
    text = exposed(store, 100.0)
    lines = [line for line in text.splitlines() if line.startswith("llm_serving_signal")]
    found = {("no_price", "cost_usd_total"), ("target_down", "cost_usd_per_million_tokens")}
    assert lines == [
        *(
            f'llm_serving_signals{{container="",{PLACE},state="{state}",target="a"}} {number}.0'
            for state, number in (("available", 1), ("absent", 2))
        ),
        *(
            f'llm_serving_signal_available{{container="",{PLACE},reason="{reason}",signal="{signal}",target="a"}} 0.0'
            for reason, signal in sorted(found)
        ),
    ]


def test_buckets_that_nothing_reads_are_there_where_they_are_asked_for() -> None:
    page = PAGE
    for name in ("time_to_first_token_seconds", "request_decode_time_seconds"):
        page += f"# TYPE vllm:{name} histogram\n"
        for edge, count in (("0.5", 2), ("1", 5), ("+Inf", 6)):
            page += f'vllm:{name}_bucket{{engine="0",le="{edge}",model_name="m"}} {count}\n'
        page += f'vllm:{name}_sum{{engine="0",model_name="m"}} 7.5\nvllm:{name}_count{{engine="0",model_name="m"}} 6\n'
    store, target = Store(), Target("a", "http://127.0.0.1:9")
    store.put_target(change_reading(store.add_target(target), snapshot=snapshot_of(page, at=100.0)))

    def published(name: str, text: str) -> list[tuple[str, str]]:
        return re.findall(rf'^llm_serving_{name}_(bucket|sum|count)\{{.*?(?:,le="(.+?)".*)?\}} ', text, re.MULTILINE)

    few, every = exposed(store, 101.0), exposed(store, 101.0, all_buckets=True)
    whole = [("bucket", "0.5"), ("bucket", "1.0"), ("bucket", "+Inf"), ("count", ""), ("sum", "")]
    assert published("time_to_first_token_seconds", few) == whole
    assert published("request_decode_time_seconds", few) == whole[2:]
    assert published("request_decode_time_seconds", every) == whole


@pytest.mark.parametrize(("age", "shown"), [(19.0, True), (21.0, False)])
def test_a_driver_that_hangs_does_not_look_alive(age: float, shown: bool) -> None:
    store = Store()
    gpu = GpuReading(GpuIdentity("GPU-1", 0, "NVIDIA H100 80GB HBM3"), power_watts=300.0)
    store.put_gpus(GpuReadings(Attempt(Stage.GPU, None, "", 0.0, 0.004), "nvml", 100.0, (gpu,)))
    text = exposed(store, 100.0 + age)
    assert ("llm_serving_gpu_power_watts" in text) is shown
    assert f"llm_serving_nvml_up {float(shown)}" in text


def test_a_target_that_cannot_be_rendered_leaves_the_others(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store = Store()
    for name in ("a", "b"):
        target = Target(name, f"http://127.0.0.1/{name}")
        store.put_target(change_reading(store.add_target(target), snapshot=snapshot_of(PAGE, at=100.0)))
    passed_through = serving.add_serving

    def broken(families: object, reading: object) -> None:
        if reading.target.name == "a":
            raise RuntimeError("bug")
        passed_through(families, reading)

    monkeypatch.setattr(serving, "add_serving", broken)
    text = exposed(store, 101.0)
    labels = f'container="",engine="0",model_name="m",{PLACE},role="unified",target="b"'
    assert f"llm_serving_requests_running{{{labels}}} 3.0" in text
    assert 'target="a"' in text
    assert "series of target a could not be rendered" in caplog.text


def test_pods_that_wait_are_counted_by_workload_with_the_model_of_their_workload() -> None:
    store = Store()
    target = Target("a", "http://127.0.0.1:9", identity=Identity(namespace="llm", pod="chat-1", workload="chat"))
    store.put_target(change_reading(store.add_target(target), model_name="m"))
    store.put_values(
        waiting=(
            WaitingPod("llm", "chat-2", "chat", "Deployment", "", "unified"),
            WaitingPod("llm", "chat-3", "chat", "Deployment", "", "unified"),
            WaitingPod("other", "chat-2", "chat", "Deployment", "said", "decode"),
        )
    )
    text = exposed(store, 100.0)
    blank = (
        'instance_type="",model_name="{}",namespace="{}",node="",pod="",provider_id="",region="",role="{}",'
        'workload="chat",workload_kind="Deployment"'
    )
    for labels, number in ((("m", "llm", "unified"), 2.0), (("said", "other", "decode"), 1.0)):
        assert f'llm_serving_pods_waiting{{container="",{blank.format(*labels)}}} {number}' in text
    store.put_values(waiting=())
    assert "llm_serving_pods_waiting{" not in exposed(store, 100.0)
