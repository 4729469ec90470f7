"""Golden expositions: what the exporter publishes for recorded pages, compared whole.

Pages of a run go over real HTTP through the real pipeline, store and collector, with fixed clocks ten seconds apart; the
last scrape's text is the golden. `make golden` rewrites them; the diff is the review.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families

from llm_serving_exporter.catalogue import PUBLISHED
from llm_serving_exporter.catalogue.spec import PREFIX
from llm_serving_exporter.config.types import Config
from llm_serving_exporter.cost.meters import Costs
from llm_serving_exporter.daemon.store import Store
from llm_serving_exporter.derive.derive import Settings
from llm_serving_exporter.devices.attribution import GpuCounter, Gpus
from llm_serving_exporter.devices.peaks import GpuFacts
from llm_serving_exporter.errors import FactsError
from llm_serving_exporter.expose.collector import Setup, ViewCollector
from llm_serving_exporter.expose.encode import encode
from llm_serving_exporter.facts import loader
from llm_serving_exporter.model.attempt import Attempt, Stage
from llm_serving_exporter.model.device import GpuIdentity, GpuReading, GpuReadings
from llm_serving_exporter.model.devices import DeviceSample
from llm_serving_exporter.model.drill import DrillResult, Verdict
from llm_serving_exporter.model.facts import ServerFacts
from llm_serving_exporter.model.identity import Identity
from llm_serving_exporter.model.kept_cost import Storage, StorageReport
from llm_serving_exporter.model.mode import Mode
from llm_serving_exporter.model.model_settings import ModelSettings, ServedModel
from llm_serving_exporter.model.otlp import OtlpReport
from llm_serving_exporter.model.pod import WaitingPod
from llm_serving_exporter.model.prices import Power, PriceBook, PriceStatement, Rate, RateKind, Scope
from llm_serving_exporter.model.review import ReviewRuns
from llm_serving_exporter.model.shard import Shard
from llm_serving_exporter.model.target import ExpectedReplicas, Role, Target
from llm_serving_exporter.model.tenants import TENANT_FIELDS
from llm_serving_exporter.model.weights import ModelFacts
from llm_serving_exporter.sim.recording import demo_model_config
from tests.support.builders.golden_cases import CASES, MAIN
from tests.support.builders.pipelines import make_pipeline, settings_without_gpus
from tests.support.paths import TESTS
from tests.support.servers.replica import Replica

GOLDEN = TESTS / "golden"
START = 1_795_148_000.0

# H100 SXM figures: 2 x 2619 MHz x 5120 bit / 8 = 3352.32 GB/s (facts of the GPU catalogue); one of every reading
GPU = GpuReading(
    GpuIdentity(
        "GPU-00000000-0000-0000-0000-000000000001", 0, "NVIDIA H100 80GB HBM3", "00000000:1A:00.0", 0x233010DE, 0, "hopper", (9, 0),
        85_520_809_984, 5120, 1.98e9, 2.619e9, 3.35232e12,
    ),
    memory_used_bytes=77_309_411_328, memory_reserved_bytes=502_267_904, memory_total_bytes=85_520_809_984, busy_ratio=0.98,
    memory_active_ratio=0.08, dram_bandwidth_ratio=0.625, sm_activity_ratio=0.88, tensor_activity_ratio=0.22, gpm_window_seconds=5.0,
    power_watts=630.0, power_limit_watts=700.0, energy_joules_total=123_456.789, temperature_celsius={"gpu": 61.0, "memory": 72.0},
    clock_hertz={"sm": 1.755e9, "memory": 2.619e9}, slowdown={"sw_power_cap": True, "hw_slowdown": False},
    ecc_errors_total={"corrected": 2, "uncorrected": 0}, remapped_rows={"correctable": 1, "uncorrectable": 0}, remap_pending=False,
    remap_failed=False, xid_events_total={48: 0, 79: 1}, pcie_bytes_total={"tx": 10_000_000, "rx": 20_000_000},
    nvlink_bytes_total={"tx": 30_000_000, "rx": 40_000_000},
)  # fmt: skip
# as many as the golden target has, so that its energy is known whole
OWN_GPUS = (GPU.identity.uuid, "GPU-00000000-0000-0000-0000-000000000003")
PRICES = PriceBook(
    (PriceStatement(Scope.TARGET, "replica-0", 2.5, "owned"),),
    (Rate("owned", RateKind.OWNED, includes_power=False), Rate("reserved", RateKind.RESERVED, committed_gpus=64)),
    Power(0.12, 1.3, 350.0),
    250_000.0,
)
IDENTITY = Identity(
    "prod", "chat-0", "6f9a1c1e-0000-4000-8000-000000000001", "vllm", "chat", "Deployment", "aws:///eu-west-1a/i-0", "eu-west-1",
    "p5.48xlarge", (("team", "search"),),
)  # fmt: skip
LOST_GPU = GpuReading(replace(GPU.identity, uuid="GPU-00000000-0000-0000-0000-000000000002", index=1), lost=True)


def settings(name: str, config: Config, target: Target, now: list[float], facts: ServerFacts, engines: int) -> Settings:
    """As the daemon's, with what GPM and dcgm-exporter would say; on one run what cannot be: more than the peak."""
    device = DeviceSample(
        now[0],
        2,
        gpm_ratio=1.1 if name == "vllm-0.32-spec" else 0.3,
        dcgm_ratio=0.45,
        memory_used_bytes=150e9,
    )
    return replace(settings_without_gpus(config, target, facts, engines), device=device)


def model(name: str, settings: ModelSettings, served: ServedModel) -> ModelFacts | FactsError:
    """The model of the real vLLM recordings; the others served none, and stand for a mixture of experts."""
    small = name.startswith("vllm-") and "0.17" not in name
    known = ModelSettings(config=demo_model_config()) if small else ModelSettings(name="Qwen3-30B-A3B")
    return replace(loader.model_facts(known, served), origin="golden")


def rendered(name: str, target_labels: tuple[str, ...] = ()) -> CollectorRegistry:
    case = CASES[name]
    now = [0.0]
    store, config, costs = Store(), Config(targets=()), Costs()
    # one run has no price
    prices = replace(PRICES, statements=()) if name == "vllm-0.32-mfu-unreadable" else PRICES
    priced = replace(config, prices=prices)
    steps = case.steps()
    with Replica(steps[0]) as server:
        settled = {
            "gpu_count": 2,
            "gpu_model": "H100 SXM",
            **({"batch_limit_requests": 16} if "vllm-0" in name else {}),
            **case.target,
        }
        target = Target("replica-0", server.url, group="golden", identity=IDENTITY, nodes=("node-a",), **settled)
        store.add_target(target)
        costs.begin_target(target)
        store.put_config("0" * 64, True, START)
        forced = partial(settings, name, config, target, now)
        pipeline = make_pipeline(target, now, settings=forced, unix_start=START, models=partial(model, name))
        passed = Attempt(Stage.GPU, None, "", START, 0.004)
        gpus = (GPU, LOST_GPU)
        for number, routes in enumerate(steps):
            server.show(routes)
            now[0] += 10.0
            reading = pipeline.tick()
            found = GpuCounter().keep_known(reading, reading, None, Gpus(), GpuFacts())
            reading = replace(reading, gpu_uuids=OWN_GPUS, gpu_origin="configured", target_gpus=found)
            # 630 W for ten seconds a tick
            drawn = tuple(
                replace(GPU, identity=replace(GPU.identity, uuid=uuid), energy_joules_total=6300.0 * number)
                for uuid in OWN_GPUS
            )
            driver = GpuReadings(passed, "nvml", now[0], drawn, "580.105.08")
            store.put_target(costs.advance_target(reading, driver, priced, monotonic=now[0], unix=START + now[0]))
            pipeline.refresh_facts()
        pipeline.close()
    # one run is in Kubernetes
    in_kubernetes = name == "vllm-0.32-dp2"
    store.put_gpus(
        GpuReadings(passed, "nvml", now[0], gpus, "580.105.08"),
        GpuFacts().find_peaks(gpus),
        node_gpus=8 if in_kubernetes else None,
    )
    store.put_kubelet(passed if in_kubernetes else None)
    store.put_dcgm(True)
    store.put_review(ReviewRuns(START - 7200, START - 3600, START - 3500, START + 597_600))
    store.put_drills((DrillResult("tiny-llama", Role.UNIFIED, START - 3600, START - 90_000, Verdict.FAILED),))
    if name == "vllm-0.32-dp2":
        store.put_waiting((WaitingPod("llm", "chat-7d9-x2", "chat", "Deployment", "tiny-llama", "unified"),))
    registry = CollectorRegistry()
    setup = Setup(
        15.0,
        15.0,
        "node-a",
        (ExpectedReplicas("tiny-llama", "unified", 2),),
        START,
        "0.0.0",
        "3.0.0",
        PRICES,
        Shard(2, 4) if name == "vllm-0.32-dp2" else None,
        config.attribution,
        target_labels,
        Mode.CENTRAL if name == "vllm-0.32-dp2" else Mode.NODE,
        web_refusals={"slow": 2, "denied": 0},
        web_certificate_expiry=START + 90 * 86_400,
        otlp=OtlpReport({"sent": 3, "failed": 1}, 0, START + 10) if name == "vllm-0.32-dp2" else None,
        storage=StorageReport(Storage.DISK, START + 10, 0) if name == "vllm-0.32-dp2" else StorageReport(),
    )
    registry.register(ViewCollector(store.view, lambda: setup, lambda: now[0] + 1.0))
    return registry


def read_lines(page: bytes) -> list[tuple[str, float | str]]:
    """Lines in their order, the numbers of samples read as numbers."""
    cut = [line.rpartition(" ") for line in page.decode().splitlines()]
    return [(start, number if start.startswith("#") else float(number)) for start, _, number in cut]


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> tuple[str, CollectorRegistry]:
    return request.param, rendered(request.param)


def test_exposition_equals_the_golden(case: tuple[str, CollectorRegistry], request: pytest.FixtureRequest) -> None:
    name, registry = case
    text = generate_latest(registry).decode()
    # what is served comes from an encoder of our own, which writes labels from text made ahead, and numbers in other digits
    assert read_lines(encode(registry, "text/plain")[0]) == read_lines(text.encode())
    assert read_lines(encode(registry, "application/openmetrics-text")[0]) == read_lines(generate_openmetrics(registry))
    golden = GOLDEN / f"{name}.prom"
    if request.config.getoption("--golden-update"):
        golden.write_text(text)
    assert text.splitlines() == golden.read_text().splitlines()

    in_openmetrics = {
        (sample.name, frozenset(sample.labels.items()), sample.value)
        for family in parse_openmetrics(generate_openmetrics(registry).decode())
        for sample in family.samples
    }
    in_text = {
        (sample.name, frozenset(sample.labels.items()), sample.value)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert in_openmetrics == in_text


def test_target_labels_stand_on_every_series_of_the_target() -> None:
    page = encode(rendered("vllm-0.32-saturated", ("namespace", "workload", "team")), "text/plain")[0].decode()
    chosen = {"namespace": "prod", "workload": "chat", "team": "search"}
    found = [sample for family in text_string_to_metric_families(page) for sample in family.samples]
    of_target = [sample for sample in found if "target" in sample.labels]
    assert len({sample.name for sample in of_target}) > 80
    assert all(chosen.items() <= sample.labels.items() for sample in of_target)


MOST_SERIES = 350


def test_a_target_has_at_most_so_many_series_where_everything_is_known_of_it() -> None:
    page = text_string_to_metric_families((GOLDEN / f"{MAIN}.prom").read_text())
    found = [sample for family in page for sample in family.samples if "target" in sample.labels]
    # model, GPUs and prices are known
    reasons = {sample.labels["reason"] for sample in found if sample.name == f"{PREFIX}signal_available"}
    assert reasons == {"not_exported", "not_configured", "no_ridge"}
    assert any(sample.name == f"{PREFIX}cost_usd_total" for sample in found)
    assert len(found) <= MOST_SERIES


# declared, but on no golden: each with its reason
NOT_IN_GOLDENS = {
    "implausible_values_total": "there where a value cannot be true; no recording has one: tests/unit/targets/test_implausible.py reads it",
    "target_replica_ranks": "there for targets that are a part of a replica: tests/unit/targets/test_replicas.py reads it",
    "device_exporter_up": "there where GPUs are read from AMD's or Intel's exporter: tests/unit/expose/test_device_exporter.py reads it",
    "target_fault_info": "there for targets that nobody reaches: tests/unit/expose/test_faults.py reads it",
    "model_gpu_memory_bytes": "of Ollama and Xinference's supervisor: tests/unit/normalise/test_gpu_only.py and test_xinference.py read it",
    **dict.fromkeys(
        TENANT_FIELDS, "of gateways where tenants.by asks for it: tests/unit/targets/test_tenants.py reads it"
    ),
}


def test_every_family_of_the_catalogue_is_on_some_golden_and_nothing_else() -> None:
    seen = set()
    for name in CASES:
        for family in text_string_to_metric_families((GOLDEN / f"{name}.prom").read_text()):
            seen |= {sample.name.removeprefix(PREFIX) for sample in family.samples}
    seen = {name.removesuffix("_bucket").removesuffix("_count").removesuffix("_sum") for name in seen}
    declared = {metric.name for metric in PUBLISHED.values()}
    assert seen <= declared
    assert declared - seen <= set(NOT_IN_GOLDENS)


def test_every_series_has_the_labels_that_the_catalogue_declares_and_its_identity() -> None:
    """All that is read here is written by the collector: what forgets the identity of a target is found whatever part of it writes it."""
    for name in CASES:
        for family in text_string_to_metric_families((GOLDEN / f"{name}.prom").read_text()):
            metric = PUBLISHED[family.name + ("_total" if family.type == "counter" else "")]
            for sample in family.samples:
                own = {"team"} if metric.whole_identity else set()
                assert set(sample.labels) - {"le"} == {*metric.labels, *metric.identity_labels} | own, sample


def test_rates_per_gpu_of_a_data_parallel_server_divide_by_its_engines_only() -> None:
    # two engines on two GPUs: one each, although families without an engine label stand under engine=""
    text = (GOLDEN / "vllm-0.32-dp2.prom").read_text()
    values = {
        (sample.name, sample.labels["engine"], sample.labels["phase"]): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if "phase" in sample.labels
    }
    for engine in ("0", "1"):
        for phase in ("prefill", "decode"):
            rate = values["llm_serving_phase_tokens_per_second", engine, phase]
            assert values["llm_serving_phase_tokens_per_second_per_gpu", engine, phase] == rate > 0
