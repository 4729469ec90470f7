"""Views built by hand, as the daemon would hold them: `fleet()` has every state of interest at one instant."""

from collections.abc import Mapping

from llm_serving_exporter.model.derived import Derived, EngineDerived, Latency, Range, SloCount, Tail
from llm_serving_exporter.model.gpu import GpuIdentity, GpuReading, GpuReadings
from llm_serving_exporter.model.numbers import Quantile
from llm_serving_exporter.model.reading import State, TargetReading, View
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.sample import Attempt, FailureReason, Stage
from llm_serving_exporter.model.snapshot import (
    COUNTER_FIELDS,
    GAUGE_FIELDS,
    HISTOGRAM_FIELDS,
    Absence,
    EngineSnapshot,
    Quality,
    ServerFacts,
    Snapshot,
)
from llm_serving_exporter.model.target import Target
from tests.support.builders.target_readings import change_reading, make_reading

NOW_UNIX = 1_795_000_000.0
NOW_MONOTONIC = 50_000.0
STALE_AFTER = 15.0

AVAILABLE = dict.fromkeys((*COUNTER_FIELDS, *HISTOGRAM_FIELDS, *GAUGE_FIELDS), Absence.AVAILABLE)


def latency(p50: float, p95: float, p99: float, events: float = 1200, low: str = "", high: str = "") -> Latency:
    quantiles = {0.5: Quantile(p50, low), 0.95: Quantile(p95, ""), 0.99: Quantile(p99, high)}
    return Latency(events, (p50 + p95) / 2, quantiles)


def engine(model: str, rank: str = "0", load: float = 1.0, **changes: object) -> tuple[EngineSnapshot, EngineDerived]:
    """One engine's reading and figures, at a load of 0 to 1."""
    snapshot = EngineSnapshot(
        model,
        rank,
        decode_tokens_total=1e6,
        requests_running=round(172 * load),
        requests_waiting=round(9 * load) if load > 0.6 else 0,
        batch_limit_requests=256,
        kv_cache_usage_ratio=0.743 * load,
        kv_cache_capacity_tokens=412_160,
        context_limit_tokens=131_072,
    )
    derived = EngineDerived(
        model,
        rank,
        phase_tokens_per_second={"prefill": 21_340.0 * load, "decode": 6_281.4 * load},
        phase_tokens_per_second_per_gpu={"prefill": 10_670.0 * load, "decode": 3_140.7 * load},
        batch_size_mean=164.2 * load,
        batch_utilization_ratio=0.671 * load,
        kv_cache_used_tokens=306_234 * load,
        kv_cache_free_tokens=412_160 - 306_234 * load,
        prefix_cache_hit_ratio=0.412,
        context_tokens_mean=1780.4,
        preemptions_per_second=0.05 * load,
        latency={
            "ttft": latency(0.184, 1.62, 2.41, events=640),
            "itl": latency(0.01, 0.0312, 0.0487, events=371_000, low="bottom"),
            "e2e": latency(6.2, 41.7, 60.0, events=604, high="top"),
            "queue": latency(0.02, 0.71, 1.3, events=604),
        },
        slo={"ttft": SloCount(182_113, 941, 2.5, 2.5), "errors": SloCount(180_240, 12)},
        tail=Tail(
            5120,
            0.0,
            12.4,
            Range(0.082, 0.131, 0.204),
            {"lower": 3.4, "expected": 4.1, "upper": 6.8},
            Quantile(81_400, ""),
        ),
    )
    return snapshot, replace(derived, **changes)


def reading(
    name: str,
    engines: list[tuple[EngineSnapshot, EngineDerived]],
    *,
    age: float = 2.1,
    absent: Mapping[str, Absence] | None = None,
    **changes: object,
) -> TargetReading:
    """A target that was read well `age` seconds ago."""
    ended = NOW_UNIX - age
    whole = make_reading(
        Target(name, f"http://{name}:8000"),
        state=State.READY,
        metrics_url=f"http://{name}:8000/metrics",
        runtime="vllm",
        facts=ServerFacts(version="0.32.0", batch_limit_requests=256, tensor_parallel_size=2),
        model_name=engines[0][0].model_name if engines else "",
        up=True,
        last=Attempt(Stage.SCRAPE, None, "", ended, 0.0061, 200, 56_379),
        attempts_total=2201,
        snapshot=Snapshot(tuple(one for one, _ in engines), "vllm", ended, NOW_MONOTONIC - age),
        derivation=Derived(
            tuple(figures for _, figures in engines),
            60.0,
            {**AVAILABLE, **(absent or {})},
            {"latency_e2e": Quality.CLIPPED, "request_prompt_tokens": Quality.LAGGING},
        ),
        start_unix_seconds=NOW_UNIX - 190_000,
    )
    return change_reading(whole, **changes)


ABSENT = {
    "speculative_draft_tokens_total": Absence.NOT_EXPORTED,
    "speculative_accepted_tokens_total": Absence.NOT_EXPORTED,
    "slo_itl": Absence.NOT_CONFIGURED,
    "slo_e2e": Absence.NOT_CONFIGURED,
    "http_responses_total": Absence.IDLE,
}


def failure(reason: FailureReason, detail: str, ago: float, stage: Stage = Stage.SCRAPE) -> Attempt:
    return Attempt(stage, reason, detail, NOW_UNIX - ago, 4.0)


def down(name: str = "chat-1", age: float = 154.0) -> TargetReading:
    """A target that answered once and is gone since; its last good figures are still held."""
    detail = "http://chat-1:8000: connection refused; is the engine running?"
    failures = tuple(failure(FailureReason.REFUSED, detail, ago) for ago in (18.0, 13.0, 8.0, 3.0))
    return reading(
        name,
        [engine("meta-llama/Llama-3.3-70B-Instruct")],
        age=age,
        state=State.DOWN,
        up=False,
        last=failures[-1],
        recent_failures=failures,
        failures_total={(Stage.SCRAPE, FailureReason.REFUSED): 30},
        problem=detail,
    )


def gpu(index: int, busy: float = 0.97, **changes: object) -> GpuReading:
    uuid = f"GPU-{index}b1d5c9e-51f0-4d55-8c1a-9a0e3f7c2d1{index}"
    whole = GpuReading(
        GpuIdentity(uuid, index, "NVIDIA H100 80GB HBM3", memory_total_bytes=85_520_809_984),
        memory_used_bytes=77_100_000_000,
        memory_total_bytes=85_520_809_984,
        busy_ratio=busy,
        memory_active_ratio=0.61,
        dram_bandwidth_ratio=0.584,
        sm_activity_ratio=0.82,
        tensor_activity_ratio=0.31,
        gpm_window_seconds=5.0,
        power_watts=611.4,
        power_limit_watts=700.0,
        temperature_celsius={"gpu": 61.0, "memory": 74.0},
        slowdown={"sw_power_cap": False, "hw_thermal_slowdown": False},
    )
    return replace(whole, **changes)


def gpus(*readings: GpuReading, reason: FailureReason | None = None, detail: str = "", age: float = 1.4) -> GpuReadings:
    attempt = Attempt(Stage.GPU, reason, detail, NOW_UNIX - age, 0.0092)
    return GpuReadings(attempt, "nvml", NOW_MONOTONIC - age, readings, "570.86.15")


def view(*targets: TargetReading, gpu_readings: GpuReadings | None = None, **changes: object) -> View:
    whole = View(targets, gpu_readings, {}, None, {}, "ab" * 32, True, NOW_UNIX - 3600, 0, ())
    return replace(whole, **changes)


def fleet() -> View:
    """vLLM at load on two GPUs, one target down, a data-parallel one with eight ranks, one that is loading."""
    chat = reading(
        "chat-0",
        [engine("meta-llama/Llama-3.3-70B-Instruct")],
        absent=ABSENT,
        uuids=(gpu(0).identity.uuid, gpu(1).identity.uuid),
        origin="process",
        recent_failures=(failure(FailureReason.TIMEOUT, "http://chat-0:8000: no answer within 4 s", 4000),),
    )
    ranks = [
        engine(
            "deepseek-ai/DeepSeek-V3.1",
            str(rank),
            load=0.35 + 0.08 * rank,
            batch_utilization_ratio=None,
            phase_tokens_per_second_per_gpu={},
            slo={"ttft": SloCount(9000 + rank, 40.0, 2.5, 2.0)},
        )
        for rank in range(8)
    ]
    parallel = reading(
        "moe-dp8",
        ranks,
        absent={
            **ABSENT,
            "batch_limit_requests": Absence.NOT_CONFIGURED,
            "batch_utilization_ratio": Absence.NOT_CONFIGURED,
            "phase_tokens_per_second_per_gpu": Absence.GPUS_UNKNOWN,
        },
        origin="the target's URL does not name this host: set gpus or gpu_count",
    )
    loading = make_reading(
        Target("new-0", "http://new-0:8000"),
        state=State.LOADING,
        metrics_url="http://new-0:8000/metrics",
        up=False,
        last=failure(FailureReason.LOADING, "HTTP 503: Loading model", 2.0),
        recent_failures=(failure(FailureReason.LOADING, "HTTP 503: Loading model", 2.0),),
        attempts_total=4,
        problem="HTTP 503: Loading model",
    )
    hot = gpu(1, busy=0.94, slowdown={"sw_power_cap": True, "hw_thermal_slowdown": True}, power_watts=698.0)
    return view(chat, down(), parallel, loading, gpu_readings=gpus(gpu(0), hot))
