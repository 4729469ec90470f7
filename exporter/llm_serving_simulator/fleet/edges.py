"""Bucket edges of the engines' histograms, unconfigured: vLLM 0.32 `vllm/v1/metrics/buckets.py`, SGLang 0.5.23 `metrics_collector.py`."""

from __future__ import annotations

from llm_serving_exporter.model.record import Struct

_VLLM_TTFT = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560,
)  # fmt: skip
_VLLM_ITL = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80)
_VLLM_REQUEST = (0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680)
_VLLM_ITERATION = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
_VLLM_PREEMPTIONS = (1, 2, 3, 4, 5, 10, 20)

_SGLANG_TTFT = (0.1, 0.2, 0.4, 0.6, 0.8, 1, 2, 4, 6, 8, 10, 20, 40, 60, 80, 100, 200, 400)
_SGLANG_E2E = (*_SGLANG_TTFT, 600, 1200, 1800, 2400)
_SGLANG_ITL = (
    0.002, 0.004, 0.006, 0.008, 0.01, 0.015, 0.02, 0.025, 0.03, 0.035, 0.04, 0.06, 0.08, 0.1, 0.2, 0.4, 0.6, 0.8, 1, 2, 4, 6, 8,
)  # fmt: skip
_SGLANG_QUEUE = (
    0, 0.001, 0.005, 0.01, 0.05, 0.1, 0.2, 0.5, 1, 2, 3, 4, 5, 10, 15, 20, 30, 40, 50, 60, 70, 80, 90, 100, 200, 300, 400, 500,
    600, 700, 800, 900, 1000, 1200, 1400, 1600, 1800, 2000, 2500, 3000,
)  # fmt: skip
_SGLANG_TOKENS = (
    100, 300, 500, 700, 1000, 1500, 2000, 3000, 4000, 5000, 6000, 7000, 8000, 9000, 10000, 12500, 15000, 17500, 20000, 22500,
    25000, 27500, 30000, 35000, 40000, 60000, 80000, 100000, 200000, 300000, 400000, 600000, 800000, 1000000, 1100000,
)  # fmt: skip


class Edges(Struct, frozen=True):
    """Upper bounds of histogram buckets."""

    ttft: tuple[float, ...]  # seconds
    itl: tuple[float, ...]  # seconds
    tpot: tuple[float, ...]  # seconds
    e2e: tuple[float, ...]  # seconds
    queue: tuple[float, ...]  # seconds
    phase: tuple[float, ...]  # seconds, of prefill and decode time
    prompt: tuple[float, ...]  # tokens
    generation: tuple[float, ...]  # tokens
    iteration: tuple[float, ...]  # tokens of one step
    preemptions: tuple[float, ...]  # of one request


def vllm_edges(context_limit_tokens: int) -> Edges:
    """vLLM's. Its token edges are 1, 2 and 5 times powers of ten up to max_model_len."""
    tokens = vllm_token_edges(context_limit_tokens)
    return Edges(
        _VLLM_TTFT, _VLLM_ITL, _VLLM_ITL, _VLLM_REQUEST, _VLLM_REQUEST, _VLLM_REQUEST, tokens, tokens, _VLLM_ITERATION, _VLLM_PREEMPTIONS
    )  # fmt: skip


def vllm_token_edges(context_limit_tokens: int) -> tuple[float, ...]:
    """The 1-2-5 series while it is not above the limit."""
    found: list[float] = []
    power = 1
    while power <= context_limit_tokens:
        found += [float(digit * power) for digit in (1, 2, 5) if digit * power <= context_limit_tokens]
        power *= 10
    return tuple(found)


def sglang_edges() -> Edges:
    """SGLang's; its token edges do not depend on the context. Phases and steps have no histogram there: one bucket."""
    return Edges(
        _SGLANG_TTFT, _SGLANG_ITL, _SGLANG_ITL, _SGLANG_E2E, _SGLANG_QUEUE, (), _SGLANG_TOKENS, _SGLANG_TOKENS, (), ()
    )
