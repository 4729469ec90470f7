"""Folders of models as they lie on disk, and what is asked of their quantisation."""

import json
import os
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from llm_serving_exporter.facts.quantisation import Assignment, assign
from llm_serving_exporter.model.numbers import add_up
from llm_serving_exporter.model.shape import Geometry, WeightGroup

# --- Model folders and Hugging Face caches as they lie on disk, made in a test's own directory


# 8 layers of a small Llama
LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 256,
    "num_hidden_layers": 8,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "intermediate_size": 1024,
    "vocab_size": 4096,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
FP8: dict[str, Any] = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}
MODELOPT_FP8: dict[str, Any] = {
    "quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8", "exclude_modules": ["lm_head"]}
}
REVISION = "0e9e39f249a16976918f6564b8830bc894c89659"


def index(total_size: object) -> bytes:
    """A safetensors index, metadata first as Hugging Face writes it."""
    tensors = {
        f"model.layers.{number}.mlp.up_proj.weight": "model-00001-of-00002.safetensors" for number in range(2000)
    }
    return json.dumps({"metadata": {"total_size": total_size}, "weight_map": tensors}, indent=2).encode()


def single(tensor_bytes: int) -> bytes:
    """A safetensors file: length, header, tensors."""
    header = json.dumps({"x": {"dtype": "U8", "shape": [tensor_bytes], "data_offsets": [0, tensor_bytes]}}).encode()
    return struct.pack("<Q", len(header)) + header + bytes(tensor_bytes)


def folder(place: Path, config: Mapping[str, Any] | None = None, **files: bytes) -> Path:
    """A folder with a config.json and other files; `_` in their names stands for `.` where it ends in an extension known here."""
    place.mkdir(parents=True, exist_ok=True)
    (place / "config.json").write_text(json.dumps(LLAMA if config is None else config))
    for name, content in files.items():
        (place / NAMES[name]).write_bytes(content)
    return place


NAMES = {"index": "model.safetensors.index.json", "quantisation": "hf_quant_config.json", "single": "model.safetensors"}


def cached(
    hub: Path,
    repository: str,
    config: Mapping[str, Any] | None = None,
    *,
    revision: str = REVISION,
    main: str | None = "",
    **files: bytes,
) -> Path:
    """A model in a hub cache as huggingface_hub lays it out: blobs, snapshots of links to them, refs/main. `main`: None = no refs."""
    place = hub / ("models--" + repository.replace("/", "--"))
    snapshot = place / "snapshots" / revision
    snapshot.mkdir(parents=True)
    (place / "blobs").mkdir(exist_ok=True)
    contents = {"config.json": json.dumps(LLAMA if config is None else config).encode()}
    contents |= {NAMES[name]: content for name, content in files.items()}
    for name, content in contents.items():
        blob = place / "blobs" / f"{revision[:8]}-{name}"
        blob.write_bytes(content)
        (snapshot / name).symlink_to(os.path.relpath(blob, snapshot))
    if main is not None:
        (place / "refs").mkdir(exist_ok=True)
        (place / "refs" / "main").write_text(main or revision)
    return place


# --- Shorthand of the tests of quantisation configs: what a config gives to which modules


def given_to(assignment: Assignment, leaf: str) -> dict[str, int]:
    """Places by format of the modules whose path ends so."""
    return {
        share.format.name: share.places
        for share in assignment.shares
        if share.module.path.split(".{}.")[-1].endswith(leaf)
    }


def quantised(geometry: Geometry, **settings: Any) -> Assignment:
    return assign({"torch_dtype": "bfloat16", "quantization_config": settings}, None, geometry)


def by_modelopt(geometry: Geometry, **quantization: Any) -> Assignment:
    return assign(
        {"torch_dtype": "bfloat16"}, {"producer": {"name": "modelopt"}, "quantization": quantization}, geometry
    )


def group(**weights: Any) -> dict[str, Any]:
    return {"targets": ["Linear"], "weights": weights}


def stored_bytes(groups: Iterable[WeightGroup], experts: int) -> float:
    """All weights as kept in GPU memory; `experts` of a layer (geometry.experts)."""
    return add_up(
        group.fixed_bytes + group.lm_head_bytes + group.embedding_bytes + experts * group.expert_bytes
        for group in groups
    )


def step_bytes(groups: Iterable[WeightGroup], experts_touched: float) -> float:
    """Weights that one decode step reads with so many routed experts of each layer touched; the experts of one token at batch 1."""
    return add_up(group.fixed_bytes + group.lm_head_bytes + experts_touched * group.expert_bytes for group in groups)
