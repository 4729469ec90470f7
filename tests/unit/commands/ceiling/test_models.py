"""Models that `ceiling` is asked for: by name and by config.json, folders, caches, formats."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.builders.ceilings import answered, config, table
from tests.support.models.modelfolders import LLAMA, MODELOPT_FP8, cached, folder
from tests.support.models.shapes import config_of, read_counts
from tests.support.rows import check_rows

MODEL_KEYS = {"parameters_total", "decode_read_parameters", "kv_bytes_per_token", "weight_bytes"}


# --- by catalogue name, and from a config.json -------------------------------------------------------------------------

# facts table B.8 and others whose layers attend in one way
COUNTS = {name: counts for name, counts in read_counts().items() if "layers" in counts}
# the table writes them otherwise
IN_CATALOGUE = {"Mistral-Small-24B": "Mistral-Small-24B-Instruct-2501", "DeepSeek-V3": "DeepSeek-R1",
                "Llama-3.1-70B": "Llama-3.3-70B-Instruct"}  # fmt: skip


def check_counts(model: dict[str, Any], name: str) -> None:
    keys = {"parameters_total": "parameters", "decode_read_parameters": "read", "kv_bytes_per_token": "kv_bytes"}
    assert {key: model[key] for key in keys} == {key: COUNTS[name][counted] for key, counted in keys.items()}


@check_rows("name", COUNTS)
def test_counts_by_name(name: str) -> None:
    model = answered(IN_CATALOGUE.get(name, name), "H200", "--kv-dtype", "bf16", "--batches", "1")["model"]
    check_counts(model, name)
    assert all(type(model[key]) is int for key in MODEL_KEYS)


@check_rows("name", COUNTS)
def test_counts_from_a_config_json(tmp_path: Path, name: str) -> None:
    path = config(tmp_path, config_of(name))
    model = answered(path, "H200", "--kv-dtype", "bf16", "--dtype", "bf16", "--batches", "1")["model"]
    check_counts(model, name)
    assert model["weight_bytes"] == 2 * COUNTS[name]["parameters"]


# --- where a model comes from -----------------------------------------------------------------------------------------


def test_a_folder_a_file_and_a_cache_say_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = folder(tmp_path / "small")
    cached(tmp_path / "hub", "acme/small")
    ways = (str(place), f"{place}/", str(place / "config.json"), str(tmp_path / "hub" / "models--acme--small"))
    models = [answered(way, "L4")["model"] for way in ways]
    models.append(answered("acme/small", "L4", "--hf-cache", str(tmp_path / "hub"))["model"])
    monkeypatch.chdir(tmp_path)
    models += [answered(way, "L4")["model"] for way in ("small", "./small", "small/config.json")]
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    models.append(answered("acme/small", "L4")["model"])
    assert {model["parameters_total"] for model in models} == {models[0]["parameters_total"]}
    assert "acme/small" in {model["name"] for model in models}


def test_names_with_organisation_suffix_and_format() -> None:
    def model(name: str) -> dict[str, Any]:
        return dict(answered(name, "H100", "--batches", "1")["model"])

    assert model("meta-llama/Llama-3.1-8B-Instruct")["parameters_total"] == 8_030_261_248
    assert model("llama3.1:8b")["parameters_total"] == 8_030_261_248
    assert model("Qwen/Qwen2.5-72B-Instruct-AWQ")["weight_formats"] == ["bf16", "int4_g128_zp"]
    assert "fp8" in model("neuralmagic/Meta-Llama-3.1-8B-Instruct-FP8")["weight_formats"]


def test_a_checkpoints_own_quantisation_and_kv_dtype_count(tmp_path: Path) -> None:
    fields = {**LLAMA, "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}
    assert answered(config(tmp_path / "block", fields), "H100")["model"]["weight_formats"] == ["bf16", "fp8_block"]
    folder(tmp_path / "modelopt", quantisation=str(MODELOPT_FP8).replace("'", '"').encode())
    found = answered(str(tmp_path / "modelopt"), "H100")["model"]
    assert (found["weight_formats"], found["kv_format"]) == (["bf16", "fp8"], "fp8_e4m3")
    assert answered(str(tmp_path / "modelopt"), "H100", "--kv-dtype", "auto")["model"]["kv_format"] == "bf16"
    assert answered(str(tmp_path / "modelopt"), "H100", "--dtype", "bf16")["model"]["weight_formats"] == ["bf16"]


@check_rows(
    ("name", "formats", "gib"),
    [
        # one node of eight H200 holds the FP8 that its card and the engines' recipes name; Base and Reasoning are bf16
        ("mistralai/Mistral-Large-3-675B-Instruct-2512", {"bf16", "fp8"}, (625, 640)),
        ("mistralai/Mistral-Large-3-675B-Base-2512", {"bf16"}, (1250, 1260)),
        ("mistralai/Mistral-Large-3-675B-Instruct-2512-BF16", {"bf16"}, (1250, 1260)),
        ("mistralai/Mistral-Large-3-675B-Instruct-2512-NVFP4", {"bf16", "nvfp4"}, (345, 365)),
        ("mistral-large-3-fp8", {"bf16", "fp8"}, (625, 640)),
        ("mistralai/Ministral-3-8B-Instruct-2512", {"bf16", "fp8"}, (8.5, 9.5)),
        ("mistralai/Ministral-3-8B-Reasoning-2512", {"bf16"}, (15, 16.5)), ("mistralai/Ministral-3-8B-Base-2512", {"bf16"}, (15, 16.5)),
        ("mistralai/Ministral-3-14B-Instruct-2512", {"bf16", "fp8"}, (13, 15)),
        ("mistralai/Mistral-Small-4-119B-2603", {"bf16", "fp8"}, (110, 114)),
        ("mistralai/Mistral-Medium-3.5-128B", {"bf16", "fp8"}, (117, 121)),
        ("mistralai/Devstral-Small-2-24B-Instruct-2512", {"bf16", "fp8"}, (22, 24)),
        ("mistralai/Devstral-2-123B-Instruct-2512", {"bf16", "fp8"}, (117, 121)),
        # its card: Base "FP8 Mixed", the other "FP4 + FP8 Mixed"
        ("deepseek-ai/DeepSeek-V4-Flash-Base", {"bf16", "fp8_block"}, (260, 280)),
        ("deepseek-ai/DeepSeek-V4-Flash", {"bf16", "fp8_block", "mxfp4_w4a8"}, (140, 160)),
        # 642 GB, a draft layer with it
        ("deepseek-ai/DeepSeek-V3.2-Exp", {"bf16", "fp8_block"}, (620, 642)),
    ],
)  # fmt: skip
def test_the_format_in_which_a_name_is_published(name: str, formats: set[str], gib: tuple[float, float]) -> None:
    found = answered(name, "H200", "--tp", "8")
    assert set(found["model"]["weight_formats"]) == formats
    assert gib[0] * 2**30 < found["model"]["weight_bytes"] < gib[1] * 2**30
    assert found["fit"]["fits"] is (gib[1] < 1000)
    assert found["model"]["weight_formats_assumed"] is False


def test_a_format_that_nobody_states_is_said_to_be_assumed() -> None:
    found = answered("Qwen/Qwen3-32B")
    assert found["model"]["weight_formats_assumed"] is True
    assert "weights assumed bf16 (its row states no format)" in found["model"]["origin"]
    rows = table("--model", "Qwen/Qwen3-32B", "--gpu", "H200")
    assert rows["weights"].endswith(" in assumed bf16")
    for stated in ("Qwen/Qwen3-32B-FP8", "Qwen/Qwen3-32B-AWQ", "deepseek-ai/DeepSeek-R1", "Kimi-K2-Thinking"):
        assert answered(stated)["model"]["weight_formats_assumed"] is False
    assert answered("Qwen/Qwen3-32B", "H200", "--dtype", "bf16")["model"]["weight_formats_assumed"] is False


@check_rows(
    "name",
    [
        "BAAI/bge-reranker-v2-m3", "Qwen/Qwen3-Embedding-0.6B", "Qwen/Qwen3-Reranker-8B", "jinaai/jina-embeddings-v3",
        "nomic-ai/nomic-embed-text-v1.5", "google/embeddinggemma-300m", "nvidia/llama-nemotron-rerank-1b-v2",
        "intfloat/multilingual-e5-small",
    ],
)  # fmt: skip
def test_embedders_and_rerankers_have_a_ceiling_of_prompt_tokens(name: str) -> None:
    found = answered(name, "L4", "--prompt", "512")
    assert found["model"]["encoder"] is True
    assert found["batches"] == []
    rate = 2 * found["model"]["decode_read_parameters"] * found["embedding"]["tokens_per_second"]
    assert 0.5 * 121e12 < rate <= 121e12
