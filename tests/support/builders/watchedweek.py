"""Records of a fleet of Llama-3.1-8B on H100s, as rules would have left them, by a step whose time is known: OpenMetrics for promtool."""

import math
from collections.abc import Iterator

from llm_serving_exporter.commands.what_if.capacity import Objective, Request, Server, serve
from llm_serving_exporter.commands.what_if.reach import Reach, step_terms
from llm_serving_exporter.derive.work import Roof
from llm_serving_exporter.facts.gpus import find
from llm_serving_exporter.facts.loader import gpu_catalogue, model_facts
from llm_serving_exporter.facts.peaks import peaks_of_spec
from llm_serving_exporter.model.hardware import Parallel
from llm_serving_exporter.model.target import ModelSettings

MODEL, HOUR, MINUTE = "meta-llama/Llama-3.1-8B-Instruct", 3600.0, 60.0
REPLICAS, USD, KV_TOKENS, BATCH_LIMIT = 4, 2.0, 432_000, 256
REQUEST = Request(600.0, 200.0, 240.0, 920.0, 930.0)
# an engine whose reads take place while it computes prompts
FACTORS, QUEUE_SECONDS = (1.3, 1.6, 0.1, 0.001, 0.9), 0.004


def truth() -> Server:
    """A replica as it is."""
    peaks = peaks_of_spec(find("H100 SXM", gpu_catalogue()))
    roof = Roof(model_facts(ModelSettings(name=MODEL)), peaks, Parallel())
    return Server(roof, Reach(FACTORS), KV_TOKENS, BATCH_LIMIT)


def requests_per_second(hour: float) -> float:
    """Of the fleet: between 8 and 40 over a day."""
    return 24 + 16 * math.cos(2 * math.pi * (hour - 14) / 24)


def list_records(end: float, hours: int, *, load: float = 1.0, kept: str = "") -> Iterator[str]:
    """Lines up to a moment in Unix seconds. `load`: factor of it, 0: nobody asks for anything. `kept`: what is in the names of all."""
    names: dict[str, list[str]] = {}
    gaps, waited, begun, first = ([0.0] * REPLICAS for _ in range(4))
    for minute in range(hours * 60 + 1):
        at = end - hours * HOUR + minute * MINUTE
        rate = load * requests_per_second(at / HOUR % 24)
        for name, labels, value in (*_samples(rate, gaps, waited, begun, first), *_counters(minute)):
            names.setdefault(name, []).append(f"{name}{{{labels}}} {value!r} {at:.3f}\n")
    for name, lines in names.items():
        if kept in name:
            yield from lines
    yield "# EOF\n"


def _counters(minute: int) -> Iterator[tuple[str, str, float]]:
    """GPU time and its cost, as the review reads them."""
    for number in range(REPLICAS):
        target = f'target="replica-{number}",model_name="{MODEL}",role="unified"'
        yield "llm_serving_gpu_seconds_total", f'{target},state="busy",rate="hourly"', minute * MINUTE
        cost = f'{target},phase="decode",rate="hourly",method="roofline"'
        yield "llm_serving_cost_usd_total", cost, minute * MINUTE / HOUR * USD
        price = f'{target},gpu_name="H100 SXM 80GB",rate="hourly"'
        yield "llm_serving_gpu_price_usd_per_hour", price, USD
    yield "llm_serving_rate_info", 'rate="hourly",kind="on_demand"', 1.0


def _samples(
    rate: float, gaps: list[float], waited: list[float], begun: list[float], first: list[float]
) -> Iterator[tuple[str, str, float]]:
    model = f'model_name="{MODEL}",role="unified"'
    sent, decoded = rate * (REQUEST.computed + REQUEST.cached), rate * REQUEST.output
    yield "model:llm_serving_targets:count", model, REPLICAS
    yield "model:llm_serving_ready_replicas:sum", model, REPLICAS
    yield "model:llm_serving_present_replicas:sum", model, REPLICAS
    yield "model:llm_serving_largest_node_replicas:max", model, 1
    yield "model:llm_serving_requests_finished:rate5m", f'{model},reason="stop"', rate
    yield "model:llm_serving_prompt_tokens:rate5m", model, sent
    state = serve(truth(), REQUEST, Objective(), rate / REPLICAS, REPLICAS) if rate else None
    batch, step = (state.batch, state.step_seconds) if state is not None else (0.0, 0.01)
    prompts = 1 + batch / (REQUEST.output - 1)
    alone = step_terms(truth().roof, batch, REQUEST.context, prompts, REQUEST.computed, REQUEST.cached, steps=1.0)
    yield "model:llm_serving_requests_running:sum", model, REPLICAS * batch
    yield "model:llm_serving_kv_cache_used_tokens:sum", model, REPLICAS * batch * REQUEST.held
    yield "model:llm_serving_kv_cache_usage_ratio:max", model, batch * REQUEST.held / KV_TOKENS
    yield "model:llm_serving_cost_usd:increase1h", f'{model},phase="decode"', REPLICAS * USD
    for phase, tokens in (("prefill", rate * REQUEST.computed), ("decode", decoded)):
        yield "model:llm_serving_phase_tokens:rate5m", f'{model},phase="{phase}"', tokens
    for number in range(REPLICAS):
        target = f'target="replica-{number}",{model}'
        events = decoded / REPLICAS * (1 - 1 / REQUEST.output) * MINUTE
        gaps[number] += events
        waited[number] += events * step
        begun[number] += rate / REPLICAS * MINUTE
        first[number] += rate / REPLICAS * MINUTE * (sum(alone.scaled(FACTORS)) + QUEUE_SECONDS)
        yield "target:llm_serving_gpus:max", f'{target},gpu_name="H100 SXM 80GB"', 1
        yield "target:llm_serving_kv_cache_capacity_tokens:sum", target, KV_TOKENS
        yield "target:llm_serving_batch_limit_requests:sum", target, BATCH_LIMIT
        yield "target:llm_serving_gpu_seconds:increase1h", f'{target},state="busy"', HOUR
        yield "target:llm_serving_requests_running:sum", target, batch
        for phase, tokens in (("prefill", rate * REQUEST.computed), ("decode", decoded)):
            yield "target:llm_serving_phase_tokens:rate5m", f'{target},phase="{phase}"', tokens / REPLICAS
        if batch:
            yield "target:llm_serving_batch_size_mean:max", target, batch
            yield "target:llm_serving_context_tokens_mean:max", target, REQUEST.context
        engine = f'{target},engine="0"'
        yield "llm_serving_kv_cache_usage_ratio", engine, 0.1
        yield "llm_serving_inter_token_latency_seconds_sum", engine, waited[number]
        yield "llm_serving_inter_token_latency_seconds_bucket", f'{engine},le="+Inf"', gaps[number]
        yield "llm_serving_time_to_first_token_seconds_sum", engine, first[number]
        yield "llm_serving_time_to_first_token_seconds_bucket", f'{engine},le="+Inf"', begun[number]
        yield "llm_serving_request_queue_time_seconds_sum", engine, begun[number] * QUEUE_SECONDS
        yield "llm_serving_request_queue_time_seconds_bucket", f'{engine},le="+Inf"', begun[number]
        yield (
            "llm_serving_slo_events_total",
            f'{engine},slo="ttft",outcome="good",source="page",threshold="2.5"',
            gaps[number],
        )
