"""What a step of an engine costs: the exporter's own roofline, at the share of the peaks that real kernels reach.

A step takes max(bytes / (bandwidth x efficiency), FLOPs / (peak x efficiency)) plus a fixed overhead. Bytes and FLOPs are those of
`derive.work`; as their sums are linear in tokens and contexts for full attention, the coefficients are read off
once. Under pipeline parallelism B sequences go round in min(B, p) micro-batches, as in `derive.roof`: weights are read once for each,
KV and FLOPs are spread; a prompt's chunk passes the stages one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache

from llm_serving_exporter.derive.roof import lacks
from llm_serving_exporter.derive.work import (
    Roof,
    compute_seconds,
    kv_read_bytes,
    kv_token_bytes,
    prefill_flops,
    token_flops,
    weight_read_bytes,
)
from llm_serving_exporter.errors import FactsError
from llm_serving_exporter.model.record import Struct
from llm_serving_exporter.model.shape import Precision
from llm_serving_exporter.model.snapshot import Absence

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
        one, many = (_seconds(roof, prefill_flops(roof, tokens, 0.0, 0.0)) for tokens in (1.0, _LONG_TOKENS))
        # matrices a token, attention a pair of tokens: one = m + a, many = m N + a N (N + 1) / 2
        self._pair = (many - _LONG_TOKENS * one) / (_LONG_TOKENS * (_LONG_TOKENS - 1) / 2)
        self._matrices = one - self._pair
        self._sample = _seconds(roof, prefill_flops(roof, 1.0, 0.0, 1.0)) - one

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
    found = compute_seconds(roof, flops, gpus=roof.parallel.tensor)
    assert found is not None  # _refuse() has asked for every rate
    return found


def _refuse(roof: Roof) -> None:
    for lack in lacks(roof):
        raise FactsError(lack.reason.value, lack.sentence, "choose a model and a GPU of which both ceilings are known")
    if any(group.most_tokens is not None for group in roof.model.geometry.attention):
        raise FactsError(
            Absence.ARCHITECTURE_UNKNOWN.value,
            f"{roof.model.name} has attention with a window or of picked tokens, which the simulated engine does not model",
            "choose a model with full attention, such as Llama-3.1-8B",
        )
