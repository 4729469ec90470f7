"""What an engine is: model, GPUs, limits. A name of the catalogues is enough for the physics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property, lru_cache

from llm_serving_exporter.derive.roof import lacks
from llm_serving_exporter.derive.work import (
    Roof,
    compute_seconds,
    kv_read_bytes,
    kv_token_bytes,
    prefill_flops,
    token_flops,
    weight_held_bytes,
    weight_read_bytes,
)
from llm_serving_exporter.errors import FactsError
from llm_serving_exporter.facts.gpus import find
from llm_serving_exporter.facts.loader import gpu_catalogue, model_facts
from llm_serving_exporter.facts.peaks import peaks_of_spec
from llm_serving_exporter.model.hardware import GpuSpec, Parallel
from llm_serving_exporter.model.record import Struct
from llm_serving_exporter.model.shape import Precision
from llm_serving_exporter.model.snapshot import Absence
from llm_serving_exporter.model.target import ModelSettings

# --- Bucket edges of the engines' histograms, unconfigured: vLLM 0.32 `vllm/v1/metrics/buckets.py`, SGLang 0.5.23 `metrics_collector.py`.


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
    edges: list[float] = []
    power = 1
    while power <= context_limit_tokens:
        edges += [float(digit * power) for digit in (1, 2, 5) if digit * power <= context_limit_tokens]
        power *= 10
    return tuple(edges)


def sglang_edges() -> Edges:
    """SGLang's; its token edges do not depend on the context. Phases and steps have no histogram there: one bucket."""
    return Edges(
        _SGLANG_TTFT, _SGLANG_ITL, _SGLANG_ITL, _SGLANG_E2E, _SGLANG_QUEUE, (), _SGLANG_TOKENS, _SGLANG_TOKENS, (), ()
    )


# --- What a step of an engine costs: the exporter's own roofline, at the share of the peaks that real kernels reach.
#
# A step takes max(bytes / (bandwidth x efficiency), FLOPs / (peak x efficiency)) plus a fixed overhead. Bytes and FLOPs are those of
# `derive.work`; as their sums are linear in tokens and contexts for full attention, the coefficients are read off once. Under pipeline
# parallelism B sequences go round in min(B, p) micro-batches, as in `derive.roof`: weights are read once for each, KV and FLOPs are
# spread; a prompt's chunk passes the stages one after the other.


# long enough that the term of attention is not lost in the digits of the matrices'
_LONG_TOKENS = float(1 << 20)


class Chunk(Struct, frozen=True):
    """A part of a prompt that a step computes."""

    tokens: int  # of this part
    prefix_tokens: int  # before it, already in the KV cache
    last: bool  # whether it ends the prompt, so that a token is sampled


class Ramp(Struct, frozen=True):
    """Decode steps of one batch, whose contexts grow by a token a step: the first step, and what each next one adds.

    The larger of the two times counts, with `overhead` beside it.
    """

    memory: float  # seconds of the first step at the memory bandwidth
    memory_more: float  # seconds that each next step adds
    computing: float  # seconds of the first step at the compute peak
    computing_more: float  # seconds that each next step adds
    overhead: float  # seconds of each step beside
    moved_bytes: float  # of the first step, all micro-batches together
    moved_bytes_more: float  # that each next step adds
    compute_seconds: float  # of the first step at the dense peak, all micro-batches together
    compute_seconds_more: float  # that each next step adds
    micro_batches: int  # into which the batch is split, one a pipeline stage at most


class Work(Struct, frozen=True):
    """One step."""

    seconds: float  # how long it takes
    moved_bytes: float  # from and to HBM
    compute_seconds: float  # at the dense peak


class StepCost:
    """Costs of one engine's steps.

    Raises FactsError where a peak is not known, for an encoder, and for attention with a window, which is not modelled.
    """

    def __init__(
        self, roof: Roof, *, bandwidth_efficiency: float, compute_efficiency: float, overhead_seconds: float
    ) -> None:
        _refuse(roof)
        self.roof = roof
        self._overhead = overhead_seconds
        assert roof.peaks.bandwidth_bytes_per_second is not None
        self.bandwidth = roof.peaks.bandwidth_bytes_per_second * roof.parallel.tensor
        self._real_bandwidth = self.bandwidth * bandwidth_efficiency
        self._compute_efficiency = compute_efficiency
        self._stages = roof.parallel.pipeline
        self._weights = _weights(roof)
        self._state = kv_read_bytes(roof, 0.0)
        self._kv = kv_read_bytes(roof, 1.0) - self._state
        self._kv_token = kv_token_bytes(roof)
        self._token = _seconds(roof, token_flops(roof, 0.0))
        self._look = _seconds(roof, token_flops(roof, 1.0)) - self._token
        single, many = (_seconds(roof, prefill_flops(roof, tokens, 0.0, 0.0)) for tokens in (1.0, _LONG_TOKENS))
        # matrices a token, attention a pair of tokens: single = m + a, many = m N + a N (N + 1) / 2
        self._pair = (many - _LONG_TOKENS * single) / (_LONG_TOKENS * (_LONG_TOKENS - 1) / 2)
        self._matrices = single - self._pair
        self._sample = _seconds(roof, prefill_flops(roof, 1.0, 0.0, 1.0)) - single

    def decode(self, batch: int, contexts: int) -> Ramp:
        """Decode steps of `batch` sequences whose contexts, in tokens, add up to `contexts` in the first of them."""
        micro_batches = max(1, min(batch, self._stages))
        share = 1.0 / micro_batches
        weights = self._weights(batch * share, True)
        kv, kv_more = self._state * batch + self._kv * contexts, self._kv * batch
        compute, compute_more = self._token * batch + self._look * contexts, self._look * batch
        return Ramp(
            memory=(weights + share * kv) / self._real_bandwidth,
            memory_more=share * kv_more / self._real_bandwidth,
            computing=share * compute / self._compute_efficiency,
            computing_more=share * compute_more / self._compute_efficiency,
            overhead=self._overhead,
            moved_bytes=weights * micro_batches + kv,
            moved_bytes_more=kv_more,
            compute_seconds=compute,
            compute_seconds_more=compute_more,
            micro_batches=micro_batches,
        )

    def mixed(self, batch: int, contexts: int, chunks: Iterable[Chunk]) -> Work:
        """One step of `batch` decoding sequences, contexts as above, and chunks of prompts."""
        micro_batches = max(1, min(batch, self._stages))
        share = 1.0 / micro_batches
        tokens, sampled, prompt_bytes, prompt_seconds = 0, batch > 0, 0.0, 0.0
        for chunk in chunks:
            tokens += chunk.tokens
            sampled = sampled or chunk.last
            prompt_bytes += chunk.tokens * self._kv_token
            if chunk.prefix_tokens:
                prompt_bytes += self._state + self._kv * chunk.prefix_tokens
            prompt_seconds += self.prefill_seconds(chunk)
        weights = self._weights(batch * share + tokens, sampled)
        kv = self._state * batch + self._kv * contexts
        compute = self._token * batch + self._look * contexts
        memory = (weights + share * kv + prompt_bytes) / self._real_bandwidth
        computing = (share * compute + prompt_seconds) / self._compute_efficiency
        return Work(
            seconds=max(memory, computing) + self._overhead,
            moved_bytes=weights * micro_batches + kv + prompt_bytes,
            compute_seconds=compute + prompt_seconds,
        )

    def prefill_seconds(self, chunk: Chunk) -> float:
        """Time that a chunk's FLOPs need at the dense peak of one stage's GPUs."""
        pairs = chunk.tokens * chunk.prefix_tokens + chunk.tokens * (chunk.tokens + 1) / 2
        return self._matrices * chunk.tokens + self._pair * pairs + (self._sample if chunk.last else 0.0)


def _weights(roof: Roof) -> Callable[[float, bool], float]:
    """Weight bytes of a step by its tokens, and whether one of them is sampled from."""

    @lru_cache(maxsize=8192)
    def read(tokens: float, sampled: bool) -> float:
        return weight_read_bytes(roof, tokens, sampled=sampled).expected

    if roof.model.geometry.experts:
        return read
    dense = {sampled: weight_read_bytes(roof, 1.0, sampled=sampled).expected for sampled in (True, False)}
    return lambda _tokens, sampled: dense[sampled]


def _seconds(roof: Roof, flops: Mapping[Precision, float]) -> float:
    seconds = compute_seconds(roof, flops, gpus=roof.parallel.tensor)
    assert seconds is not None  # _refuse() has asked for every rate
    return seconds


def _refuse(roof: Roof) -> None:
    for lack in lacks(roof):
        raise FactsError(lack.reason.value, lack.sentence, "choose a model and a GPU of which both ceilings are known")
    if any(group.most_tokens is not None for group in roof.model.geometry.attention):
        raise FactsError(
            Absence.ARCHITECTURE_UNKNOWN.value,
            f"{roof.model.name} has attention with a window or of picked tokens, which the simulated engine does not model",
            "choose a model with full attention, such as Llama-3.1-8B",
        )


# --- The engine


VLLM, SGLANG = "vllm", "sglang"
RUNTIMES = (VLLM, SGLANG)

# activations, graphs and buffers that an engine sets aside on each GPU before it sizes its KV cache
_SET_ASIDE_BYTES = 4 << 30


class EngineSpec(Struct, frozen=True, dict=True):
    """One engine: `tensor` x `pipeline` GPUs that serve a model."""

    model: str = "meta-llama/Llama-3.1-8B-Instruct"  # as the catalogue finds it
    gpu: str = "H100 SXM"  # as the catalogue finds it
    runtime: str = VLLM  # whose page it shows
    tensor: int = 1  # GPUs of a pipeline stage
    pipeline: int = 1  # stages
    max_num_seqs: int = 256  # largest batch
    max_num_batched_tokens: int = 2048  # largest step
    context_limit_tokens: int = 32768  # of prompt and answer together
    block_tokens: int = 16  # tokens of a KV block
    kv_blocks: int | None = None  # usable blocks of the KV cache; None: what `memory_utilisation` leaves
    memory_utilisation: float = 0.9  # share of the GPUs' memory that the engine uses
    prefix_caching: bool = True  # whether prompts share KV blocks
    max_waiting: int | None = None  # requests that may wait, more are rejected; None: any number
    bandwidth_efficiency: float = 0.8  # share of the peak bandwidth that steps reach
    compute_efficiency: float = 0.6  # share of the dense peak that steps reach
    overhead_seconds: float = 0.0008  # of a step, beside reading and computing
    loading_seconds: float = 60.0  # from start to ready
    alias: str = ""  # name that it is served under; "": the model's own
    version: str = ""  # that it says it is; "": the runtime's recorded one
    lacks: tuple[str, ...] = ()  # families that its page does not have, by the names of their TYPE lines

    def __post_init__(self) -> None:
        if self.runtime not in RUNTIMES:
            raise ValueError(f"runtime {self.runtime!r} is not simulated; choose one of {', '.join(RUNTIMES)}")
        if self.max_num_batched_tokens <= self.max_num_seqs:
            # every running sequence decodes in every step, and a prompt must get on beside them
            raise ValueError("max_num_batched_tokens must be above max_num_seqs")
        for name in ("bandwidth_efficiency", "compute_efficiency", "memory_utilisation"):
            if not 0 < getattr(self, name) <= 1:
                raise ValueError(f"{name} must be above 0 and at most 1")

    @property
    def served_name(self) -> str:
        """What its page and its endpoints call it."""
        return self.alias or self.model

    @cached_property
    def gpu_spec(self) -> GpuSpec:
        """The catalogue's row. Raises FactsError where it has none."""
        return find(self.gpu, gpu_catalogue())

    @cached_property
    def roof(self) -> Roof:
        """Model and peaks. Raises FactsError where the catalogues do not have them."""
        facts = model_facts(ModelSettings(name=self.model))
        return Roof(facts, peaks_of_spec(self.gpu_spec), Parallel(self.tensor, self.pipeline))

    @cached_property
    def cost(self) -> StepCost:
        """What steps cost. Raises FactsError for a model that is not simulated."""
        return StepCost(
            self.roof,
            bandwidth_efficiency=self.bandwidth_efficiency,
            compute_efficiency=self.compute_efficiency,
            overhead_seconds=self.overhead_seconds,
        )

    @cached_property
    def usable_blocks(self) -> int:
        """KV blocks of the engine. Raises ValueError where there is no room for one request of full length."""
        blocks = self.kv_blocks
        if blocks is None:
            gpus = self.roof.parallel.gpus
            room = gpus * (self.gpu_spec.memory_bytes * self.memory_utilisation - _SET_ASIDE_BYTES)
            blocks = int((room - weight_held_bytes(self.roof)) / (kv_token_bytes(self.roof) * self.block_tokens))
        if blocks * self.block_tokens < self.context_limit_tokens:
            raise ValueError(
                f"{self.model} on {self.roof.parallel.gpus} x {self.gpu} has room for {max(blocks, 0) * self.block_tokens} tokens of KV "
                f"cache, less than one request of context_limit_tokens {self.context_limit_tokens}: take more GPUs, or a smaller limit"
            )
        return blocks

    @property
    def kv_capacity_tokens(self) -> int:
        """Tokens that the KV cache holds."""
        return self.usable_blocks * self.block_tokens

    @property
    def gpus(self) -> int:
        """GPUs of the engine."""
        return self.tensor * self.pipeline

    @property
    def edges(self) -> Edges:
        """Bucket edges of its runtime."""
        return vllm_edges(self.context_limit_tokens) if self.runtime == VLLM else sglang_edges()
