"""The golden pages' series: a recorded or made run over real HTTP, through the real pipeline, store and collector, with fixed clocks.

Ticks are ten seconds apart; `golden_registry` holds what the last one publishes.
"""

from functools import partial

from prometheus_client import CollectorRegistry

from llm_serving_exporter.cost.meters import Costs
from llm_serving_exporter.daemon.store import Store
from llm_serving_exporter.derive.derive import DeriveSettings
from llm_serving_exporter.errors import FactsError
from llm_serving_exporter.expose.collector import Setup, ViewCollector
from llm_serving_exporter.facts import loader
from llm_serving_exporter.gpus.attribution import GpuCounter, GpuFacts, Gpus
from llm_serving_exporter.model.cost import (
    Power,
    PriceBook,
    PriceStatement,
    Rate,
    RateKind,
    Scope,
    Storage,
    StorageReport,
)
from llm_serving_exporter.model.gpu import GpuIdentity, GpuReading, GpuReadings
from llm_serving_exporter.model.reading import DrillResult, DrillVerdict, OtlpReport, ReviewRuns
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.sample import Attempt, Stage
from llm_serving_exporter.model.shape import ModelFacts
from llm_serving_exporter.model.snapshot import ServerFacts
from llm_serving_exporter.model.target import (
    ExpectedReplicas,
    Identity,
    Mode,
    ModelSettings,
    Role,
    ServedModel,
    Shard,
    Target,
    WaitingPod,
)
from llm_serving_exporter.model.window import DeviceSample
from llm_serving_exporter.settings.config import Config
from llm_serving_simulator.replay import demo_model_config
from tests.support.builders.golden_cases import CASES
from tests.support.builders.pipelines import make_pipeline, settings_without_gpus
from tests.support.builders.target_readings import change_reading
from tests.support.servers.replica import Replica

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


def _fix_settings(
    name: str, config: Config, target: Target, now: list[float], facts: ServerFacts, engines: int
) -> DeriveSettings:
    """As the daemon's, with what GPM and dcgm-exporter would say; on one run what cannot be: more than the peak."""
    device = DeviceSample(
        now[0], 2, gpm_ratio=1.1 if name == "vllm-0.32-spec" else 0.3, dcgm_ratio=0.45, memory_used_bytes=150e9
    )
    return replace(settings_without_gpus(config, target, facts, engines), device=device)


def _find_model(name: str, settings: ModelSettings, served: ServedModel) -> ModelFacts | FactsError:
    """The model of the real vLLM recordings; the others served none, and stand for a mixture of experts."""
    small = name.startswith("vllm-") and "0.17" not in name
    known = ModelSettings(config=demo_model_config()) if small else ModelSettings(name="Qwen3-30B-A3B")
    return replace(loader.model_facts(known, served), origin="golden")


def golden_registry(name: str, target_labels: tuple[str, ...] = ()) -> CollectorRegistry:
    """What is published of a case of `golden_cases`."""
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
        forced = partial(_fix_settings, name, config, target, now)
        pipeline = make_pipeline(target, now, settings=forced, unix_start=START, models=partial(_find_model, name))
        passed = Attempt(Stage.GPU, None, "", START, 0.004)
        gpus = (GPU, LOST_GPU)
        for number, routes in enumerate(steps):
            server.show(routes)
            now[0] += 10.0
            reading = pipeline.tick()
            found = GpuCounter().keep_known(reading, reading, None, Gpus(), GpuFacts())
            reading = change_reading(reading, uuids=OWN_GPUS, origin="configured", total=found)
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
    store.put_values(dcgm_ok=True)
    store.put_values(review=ReviewRuns(START - 7200, START - 3600, START - 3500, START + 597_600))
    store.put_values(
        drills=(DrillResult("tiny-llama", Role.UNIFIED, START - 3600, START - 90_000, DrillVerdict.FAILED),)
    )
    if name == "vllm-0.32-dp2":
        store.put_values(waiting=(WaitingPod("llm", "chat-7d9-x2", "chat", "Deployment", "tiny-llama", "unified"),))
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
