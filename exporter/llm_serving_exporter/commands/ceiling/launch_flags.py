"""What the flags of each engine's start command say, as far as it concerns a ceiling, and the layout that they mean together.

Engines call the same things by other names, or other things by the same. vLLM's tensor-parallel size is of one data-parallel rank, and its
ranks share the experts of a mixture-of-experts model (https://docs.vllm.ai/en/latest/serving/data_parallel_deployment.html). SGLang's and
TensorRT-LLM's is of the whole group, which data-parallel attention divides into ranks (sglang/srt/runtime_context.py;
tensorrt_llm/mapping.py: attention's own tensor-parallel size is 1 under enable_attention_dp).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field

from llm_serving_exporter.model.frozen import dataclass
from llm_serving_exporter.model.hardware import Parallel

# what flags say that stand alone
WITHOUT_VALUE = ("attention_dp", "expert_parallel")
# what they say that is a word, and what not of the layout: another engine may have the same flag
WORDS = {
    "model": "name", "dtype": "dtype", "quantization": "format", "kv_cache_dtype": "dtype", "algorithm": "name",
    "drafting": "settings", "file": "name",
}  # fmt: skip
SHARE = "memory_share"
# of drafts: tokens drafted a step; tokens checked a step, of which one is no draft; steps of a drafter that may draft several tokens each
DRAFTS = ("drafts", "checked", "draft_steps", "draft_width")
NO_LAYOUT = {*WORDS, *DRAFTS, SHARE}

# by what a flag says: tensor, pipeline, data, expert, context, attention_dp, expert_parallel -> its number; 1 for a flag without one
Sizes = Mapping[str, int]

_OFFLOADED = "keeps weights in the host's memory: more fits than said here, and each step takes longer"
_KV_SIZE = "says how much memory the KV cache has, and is not read: how many sequences fit may differ"
_COPIES = "keeps experts more than once: less fits than said here"
_OWN_LAYOUTS = frozenset({"deepseek_v4"})
_OVERRIDES = "changes the model's config.json, and is not read"


@dataclass(frozen=True, slots=True)
class Dialect:
    """How one engine is started."""

    # of the engine
    name: str
    # words one of which its command holds
    words: tuple[str, ...]
    # flag, with `-` for `_` -> what it says
    flags: Mapping[str, str]
    # word behind which the model stands without a flag; "": it always has one
    serve: str
    # what the flags say -> the layout; ValueError where the engine would refuse them
    spread: Callable[[Sizes], Parallel]
    # flags that spread the work in a way that is not known here, unless they say 1
    unknown: frozenset[str] = frozenset()
    # flags that make what is worked out wrong -> how, unless they say 0 or nothing
    caveats: Mapping[str, str] = field(default_factory=dict)
    # families of models that it keeps the KV cache of in a layout of their own, which its flag calls "fp8" (`Runtime.kv_as_calibrated`)
    own_layouts: frozenset[str] = frozenset()
    # whether a flag may be cut short, as argparse lets it
    abbreviates: bool = True


def _spread_vllm(said: Sizes) -> Parallel:
    tensor, data = said.get("tensor", 1), said.get("data", 1)
    experts = tensor * data if data > 1 or "expert_parallel" in said else 1
    return Parallel(tensor, said.get("pipeline", 1), data, experts, said.get("context", 1))


def _spread_group(said: Sizes) -> Parallel:
    """SGLang: plain data parallelism is whole copies."""
    tensor, data, context = said.get("tensor", 1), said.get("data", 1), said.get("context", 1)
    if "attention_dp" not in said:
        return Parallel(tensor, said.get("pipeline", 1), data, said.get("expert", 1), context)
    if tensor % data:
        raise ValueError(f"data-parallel attention of {data} does not divide the tensor-parallel size of {tensor}")
    return Parallel(tensor // data, said.get("pipeline", 1), data, tensor, context)


def _spread_trtllm(said: Sizes) -> Parallel:
    """Each GPU is a rank of attention under enable_attention_dp."""
    tensor = said.get("tensor", 1)
    if "attention_dp" in said:
        return Parallel(1, said.get("pipeline", 1), tensor, tensor)
    return Parallel(tensor, said.get("pipeline", 1), 1, said.get("expert", 1))


# of vLLM 0.32 (engine/arg_utils.py), SGLang 0.5.23 (srt/arg_groups/fields), trtllm-serve 1.2 (commands/serve.py), and what they were before
DIALECTS = (
    Dialect(
        "vLLM", ("vllm",),
        {
            "--tensor-parallel-size": "tensor", "-tp": "tensor", "--pipeline-parallel-size": "pipeline", "-pp": "pipeline",
            "--data-parallel-size": "data", "-dp": "data", "--enable-expert-parallel": "expert_parallel", "-ep": "expert_parallel",
            "--decode-context-parallel-size": "context", "-dcp": "context", "--model": "model", "--dtype": "dtype",
            "--quantization": "quantization", "-q": "quantization", "--kv-cache-dtype": "kv_cache_dtype",
            "--gpu-memory-utilization": SHARE, "--speculative-config": "drafting", "-sc": "drafting", "--spec-method": "algorithm",
            "--spec-model": "algorithm", "--speculative-model": "algorithm", "--spec-tokens": "drafts",
            "--num-speculative-tokens": "drafts", "--speculative-config.num-speculative-tokens": "drafts",
            "--speculative-config.method": "algorithm", "--speculative-config.model": "algorithm", "--config": "file",
        },
        "serve", _spread_vllm,
        own_layouts=_OWN_LAYOUTS,
        # each adds GPUs that keep the same weights (config/parallel.py: world_size)
        unknown=frozenset({"--prefill-context-parallel-size", "-pcp"}),
        caveats={
            "--cpu-offload-gb": _OFFLOADED, "--offload-group-size": _OFFLOADED, "--moe-cpu-budget-gb": _OFFLOADED,
            "--kv-cache-memory-bytes": _KV_SIZE, "--num-gpu-blocks-override": _KV_SIZE, "--hf-overrides": _OVERRIDES,
            "--num-redundant-experts": _COPIES, "--eplb-config.num-redundant-experts": _COPIES,
        },
    ),
    Dialect(
        "SGLang", ("sglang",),
        {
            "--tp": "tensor", "--tp-size": "tensor", "--tensor-parallel-size": "tensor", "--pp-size": "pipeline", "--pp": "pipeline",
            "--pipeline-parallel-size": "pipeline", "--dp": "data", "--dp-size": "data", "--data-parallel-size": "data",
            "--ep": "expert", "--ep-size": "expert", "--expert-parallel-size": "expert", "--enable-dp-attention": "attention_dp",
            "--dcp-size": "context", "--decode-context-parallel-size": "context",
            "--model-path": "model", "--model": "model", "--dtype": "dtype", "--quantization": "quantization",
            "--kv-cache-dtype": "kv_cache_dtype", "--mem-fraction-static": SHARE, "--speculative-algorithm": "algorithm",
            "--speculative-num-steps": "draft_steps", "--speculative-eagle-topk": "draft_width",
            "--speculative-num-draft-tokens": "checked", "--speculative-dflash-block-size": "checked",
            "--speculative-dspark-block-size": "drafts", "--config": "file",
        },
        "", _spread_group,
        own_layouts=_OWN_LAYOUTS,
        # parts of the tensor-parallel group that keep the same attention or the same experts
        unknown=frozenset({
            "--attn-cp-size", "--attention-context-parallel-size", "--moe-dp-size", "--moe-data-parallel-size", "--dwdp-size",
        }),
        caveats={
            "--cpu-offload-gb": _OFFLOADED, "--offload-group-size": _OFFLOADED, "--kt-num-gpu-experts": _OFFLOADED,
            "--kt-weight-path": _OFFLOADED, "--max-total-tokens": _KV_SIZE, "--json-model-override-args": _OVERRIDES,
            "--ep-num-redundant-experts": _COPIES,
        },
    ),
    Dialect(
        "TensorRT-LLM", ("trtllm", "tensorrt"),
        {
            "--tp-size": "tensor", "--tensor-parallel-size": "tensor", "--pp-size": "pipeline", "--pipeline-parallel-size": "pipeline",
            "--ep-size": "expert", "--moe-expert-parallel-size": "expert", "--expert-parallel-size": "expert",
            "--enable-attention-dp": "attention_dp", "--model": "model", "--kv-cache-dtype": "kv_cache_dtype", "--config": "file",
            "--extra-llm-api-options": "file",
        },
        "trtllm-serve", _spread_trtllm,
        unknown=frozenset({"--cp-size", "--context-parallel-size"}),
        # a share of what the weights leave, not of the whole memory
        caveats={"--kv-cache-free-gpu-memory-fraction": _KV_SIZE, "--free-gpu-memory-fraction": _KV_SIZE},
        abbreviates=False,
    ),
)  # fmt: skip
ENGINES = tuple(dialect.name for dialect in DIALECTS)
