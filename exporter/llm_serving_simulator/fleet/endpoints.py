"""What a simulated server answers beside its page: as much of it as somebody reads."""

from __future__ import annotations

import json
from functools import lru_cache

from llm_serving_simulator.fleet.page_vllm import VLLM_VERSION
from llm_serving_simulator.fleet.spec import VLLM, EngineSpec

SGLANG_VERSION = "0.5.23"


@lru_cache(maxsize=64)
def _vllm(spec: EngineSpec, start_unix_seconds: int) -> dict[str, bytes]:
    model = {
        "id": spec.served_name, "object": "model", "created": start_unix_seconds, "owned_by": "vllm", "root": spec.model,
        "parent": None, "max_model_len": spec.context_limit_tokens,
    }  # fmt: skip
    config = {
        "model_config": {
            "model": spec.model, "served_model_name": spec.served_name, "dtype": "torch.bfloat16",
            "max_model_len": spec.context_limit_tokens, "quantization": None,
        },
        "cache_config": {"block_size": spec.block_tokens, "cache_dtype": "auto", "num_gpu_blocks": spec.usable_blocks + 1},
        "parallel_config": {
            "tensor_parallel_size": spec.tensor, "pipeline_parallel_size": spec.pipeline, "data_parallel_size": 1,
            "is_moe_model": bool(spec.roof.model.geometry.experts),
        },
        "scheduler_config": {"max_num_seqs": spec.max_num_seqs, "max_num_batched_tokens": spec.max_num_batched_tokens},
        "speculative_config": None,
    }  # fmt: skip
    return _bytes(
        {
            "/version": {"version": spec.version or VLLM_VERSION},
            "/v1/models": {"object": "list", "data": [model]},
            # with VLLM_SERVER_DEV_MODE=1
            "/server_info": {"vllm_config": config},
        }
    )


@lru_cache(maxsize=64)
def _sglang(spec: EngineSpec, start_unix_seconds: int) -> dict[str, bytes]:
    model = {
        "id": spec.served_name, "object": "model", "created": start_unix_seconds, "owned_by": "sglang", "root": spec.model,
        "max_model_len": spec.context_limit_tokens,
    }  # fmt: skip
    info = {
        "model_path": spec.model, "served_model_name": spec.served_name, "version": spec.version or SGLANG_VERSION, "tp_size": spec.tensor,
        "pp_size": spec.pipeline, "dp_size": 1, "enable_dp_attention": False, "context_length": spec.context_limit_tokens,
        "max_running_requests": spec.max_num_seqs, "chunked_prefill_size": spec.max_num_batched_tokens,
        "dtype": "bfloat16", "quantization": None, "kv_cache_dtype": "auto", "speculative_algorithm": None,
        "max_total_num_tokens": spec.kv_capacity_tokens,
        "internal_states": [{"effective_max_running_requests_per_dp": spec.max_num_seqs}],
    }  # fmt: skip
    loads = {
        "version": spec.version or SGLANG_VERSION, "accelerator": f"NVIDIA {spec.gpu_spec.names[0]}", "num_accelerators": spec.gpus,
        "loads": [{"dp_rank": 0, "max_running_requests": spec.max_num_seqs}],
    }  # fmt: skip
    return _bytes(
        {
            "/server_info": info,
            "/get_server_info": info,
            "/v1/models": {"object": "list", "data": [model]},
            "/v1/loads": loads,
        }
    )


def side_answers(spec: EngineSpec, start_unix_seconds: float) -> dict[str, bytes]:
    """JSON by path, of a server that started then."""
    return (_vllm if spec.runtime == VLLM else _sglang)(spec, int(start_unix_seconds))


def _bytes(documents: dict[str, object]) -> dict[str, bytes]:
    return {path: json.dumps(document).encode() for path, document in documents.items()}
