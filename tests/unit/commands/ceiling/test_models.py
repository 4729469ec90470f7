"""Models that `ceiling` is asked for: every row of facts table B.8 by name and by config.json, folders, caches, formats."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.builders.ceilings import answered, config
from tests.support.models import dense_models, hybrid_models, moe_models
from tests.support.models.modelfolders import LLAMA, MODELOPT_FP8, cached, folder
from tests.support.rows import check_rows

MODEL_KEYS = {"parameters_total", "decode_read_parameters", "kv_bytes_per_token", "weight_bytes"}


# --- table B.8: every row by its catalogue name, and from a config.json -----------------------------------------------

_MOE = {name: (fields, total, read, kv) for name, (fields, total, _, read, kv, *_) in moe_models.TABLE.items()}
_JAMBA = {"Jamba-v0.1": (hybrid_models.JAMBA, 51_570_323_328, 11_841_875_840, 16_384)}
TABLE_B8: dict[str, tuple[dict[str, Any], int, int, int]] = {**dense_models.TABLE, **_MOE, **_JAMBA}
# the table writes them otherwise
IN_CATALOGUE = {
    "Mistral-Small-24B-2501": "Mistral-Small-24B-Instruct-2501", "Gemma-3-27B text": "Gemma-3-27B", "DeepSeek-V3": "DeepSeek-R1",
    "Llama-3.1-70B": "Llama-3.3-70B-Instruct", "Llama-4-Scout (text)": "Llama-4-Scout", "Llama-4-Maverick (text)": "Llama-4-Maverick",
}  # fmt: skip


def test_the_table_has_all_rows_of_the_facts() -> None:
    assert len(TABLE_B8) == 22 + 13


@check_rows("name", TABLE_B8)
def test_B8_by_name(name: str) -> None:
    _, total, read, kv = TABLE_B8[name]
    model = answered(IN_CATALOGUE.get(name, name), "H200", "--kv-dtype", "bf16", "--batches", "1")["model"]
    assert (model["parameters_total"], model["decode_read_parameters"], model["kv_bytes_per_token"]) == (
        total,
        read,
        kv,
    )
    assert all(type(model[key]) is int for key in MODEL_KEYS)


@check_rows("name", TABLE_B8)
def test_B8_from_a_config_json(tmp_path: Path, name: str) -> None:
    fields, total, read, kv = TABLE_B8[name]
    path = config(tmp_path, fields)
    model = answered(path, "H200", "--kv-dtype", "bf16", "--dtype", "bf16", "--batches", "1")["model"]
    assert (model["parameters_total"], model["decode_read_parameters"], model["kv_bytes_per_token"]) == (
        total,
        read,
        kv,
    )
    assert model["weight_bytes"] == 2 * total


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
