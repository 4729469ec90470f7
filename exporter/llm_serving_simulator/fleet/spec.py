"""What an engine is: model, GPUs, limits. A name of the catalogues is enough for the physics."""

from __future__ import annotations

from functools import cached_property

from llm_serving_exporter.derive.work import Roof, kv_token_bytes, weight_held_bytes
from llm_serving_exporter.facts.gpus import find
from llm_serving_exporter.facts.loader import gpu_catalogue, model_facts
from llm_serving_exporter.facts.peaks import peaks_of_spec
from llm_serving_exporter.model.hardware import GpuSpec, Parallel
from llm_serving_exporter.model.record import Struct
from llm_serving_exporter.model.target import ModelSettings
from llm_serving_simulator.fleet.cost import StepCost
from llm_serving_simulator.fleet.edges import Edges, sglang_edges, vllm_edges

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
        found = self.kv_blocks
        if found is None:
            gpus = self.roof.parallel.gpus
            room = gpus * (self.gpu_spec.memory_bytes * self.memory_utilisation - _SET_ASIDE_BYTES)
            found = int((room - weight_held_bytes(self.roof)) / (kv_token_bytes(self.roof) * self.block_tokens))
        if found * self.block_tokens < self.context_limit_tokens:
            raise ValueError(
                f"{self.model} on {self.roof.parallel.gpus} x {self.gpu} has room for {max(found, 0) * self.block_tokens} tokens of KV "
                f"cache, less than one request of context_limit_tokens {self.context_limit_tokens}: take more GPUs, or a smaller limit"
            )
        return found

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
