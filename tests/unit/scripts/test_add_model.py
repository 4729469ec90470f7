"""Rows of the catalogue made from config.json files: few fields, the same facts, and what --check finds."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from llm_serving_exporter.facts import loader
from llm_serving_exporter.facts.models import parse
from llm_serving_exporter.model.shape import ModelFacts
from llm_serving_exporter.model.target import ModelSettings
from tests.support.models import published
from tests.support.paths import ROOT
from tests.support.quick import keep_quick
from tests.support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.process

NOISE = {
    "bos_token_id": 1,
    "rope_theta": 1e6,
    "initializer_range": 0.02,
    "transformers_version": "5.0",
    "use_cache": True,
    "sliding_window": None,
}
# as DeepSeek-V3.1-NVFP4 is published: attention by layer and name, and the layers that are drafts
LAYERS = [
    f"model.layers.{layer}.self_attn.{name}" for layer in range(61) for name in ("q_a_proj", "q_b_proj", "kv_b_proj")
]
NVFP4 = {"producer": {"name": "modelopt"}, "quantization": {
    "quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8", "group_size": 16, "exclude_modules": ["lm_head", "model.layers.61*", *LAYERS],
}}  # fmt: skip
MIXED = {"quantization": {"quant_algo": "MIXED_PRECISION", "kv_cache_quant_algo": "FP8", "quantized_layers": {
    f"model.layers.{layer}.mlp.experts.{expert}.{name}": {"quant_algo": "NVFP4", "group_size": 16}
    for layer in range(48) for expert in range(4) for name in ("gate_proj", "up_proj", "down_proj")
}}}  # fmt: skip
DEEPSEEK = published.DEEPSEEK_V3
QWEN = published.QWEN3_30B


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(ROOT / "scripts/add_model.py"), *arguments],
        capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False,
    )  # fmt: skip


def _folder(at: Path, config: dict[str, Any], quantisation: dict[str, Any] | None = None) -> Path:
    at.mkdir()
    (at / "config.json").write_text(json.dumps(config))
    if quantisation is not None:
        (at / "hf_quant_config.json").write_text(json.dumps(quantisation))
    return at


def _same(one: ModelFacts, other: ModelFacts) -> bool:
    return (one.groups, one.kv_format, one.kv_bytes_per_token, one.geometry.attention, one.geometry.recurrent) == (
        other.groups, other.kv_format, other.kv_bytes_per_token, other.geometry.attention, other.geometry.recurrent,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("config", "quantisation", "longest"),
    keep_quick(
        [
            ({**QWEN, **NOISE}, None, 600),
            ({**DEEPSEEK, **NOISE}, NVFP4, 900),
            ({**QWEN, **NOISE}, MIXED, 900),
            (published.KIMI_K3, None, 2000),
            (published.NEMOTRON_3_NANO, None, 900),
            (published.QWEN3_5_35B_A3B, None, 900),
        ],
        lambda one: one[2] == 600 or one[1] is NVFP4,
    ),
    ids=("moe", "nvfp4", "mixed", "nested", "hybrid", "tower"),
)
def test_a_row_states_few_fields_and_gives_the_same_answer(
    tmp_path: Path, config: dict[str, Any], quantisation: dict[str, Any] | None, longest: int
) -> None:
    place = _folder(tmp_path / "made-7b", config, quantisation)
    made = _run(str(place), "--source", "here")
    assert (made.returncode, made.stderr) == (0, "")
    assert len(made.stdout) < longest
    assert not any(noise in made.stdout for noise in ("rope_theta", "initializer_range", "bos_token_id"))
    (entry,) = parse(tomllib.loads(made.stdout), catalogue="mine")
    assert (entry.name, entry.source) == ("made-7b", "here")
    rows = tmp_path / "rows.toml"
    rows.write_text(made.stdout)
    named = loader.model_facts(ModelSettings(name="made-7b"), own=str(rows))
    assert _same(named, loader.model_facts(ModelSettings(config=str(place))))


def test_beside_a_base_only_what_is_its_own_is_stated(tmp_path: Path) -> None:
    config = {
        **QWEN,
        **NOISE,
        "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128], "fmt": "e4m3"},
    }
    made = _run(
        str(_folder(tmp_path / "x", config)),
        "--source",
        "here",
        "--base",
        "Qwen3-30B-A3B",
        "--name",
        "acme/X-FP8",
        "--also",
        "X8",
    )
    assert (made.returncode, made.stderr) == (0, "")
    row = tomllib.loads(made.stdout)["model"][0]
    assert row.keys() <= {"name", "also", "base", "source", "quantization", "config"}
    assert (row["name"], row["also"], row["base"]) == ("acme/X-FP8", ["X8"], "Qwen3-30B-A3B")
    assert row["quantization"]["weight_block_size"] == [128, 128]


def test_check_says_what_a_name_gives_otherwise(tmp_path: Path) -> None:
    same = _run("--check", str(_folder(tmp_path / "Qwen--Qwen3-30B-A3B", {**QWEN, **NOISE})))
    assert (same.returncode, same.stdout) == (0, "Qwen--Qwen3-30B-A3B: the same\n")
    smaller = {**QWEN, "num_hidden_layers": 47}
    other = _run("--check", str(_folder(tmp_path / "Qwen3-30B-A3B", smaller)))
    assert other.returncode == 1
    assert "Qwen3-30B-A3B: weight bytes: " in other.stdout


def test_what_cannot_be_understood_is_refused(tmp_path: Path) -> None:
    made = _run(str(_folder(tmp_path / "y", {"model_type": "lama9"})), str(tmp_path / "none.json"), "--source", "here")
    assert (made.returncode, made.stdout) == (1, "")
    assert "model_type is 'lama9', which no formula here covers" in made.stderr
    assert "none.json" in made.stderr
