"""The KV cache's own dtype."""

from __future__ import annotations

from typing import Any

import pytest

from llm_serving_exporter.errors import FactsError
from llm_serving_exporter.facts import formats
from llm_serving_exporter.facts.formats import kv_format, kv_names
from llm_serving_exporter.facts.quantisation import kv_hint
from tests.support.rows import check_rows


@check_rows(
    ("text", "name", "size"),
    [
        ("auto", "bf16", 2.0),
        ("bfloat16", "bf16", 2.0),
        ("FP16", "fp16", 2.0),
        ("float32", "fp32", 4.0),
        ("fp8", "fp8_e4m3", 1.0),
        ("fp8-e4m3", "fp8_e4m3", 1.0),
        ("fp8_e5m2", "fp8_e5m2", 1.0),
        ("int8", "int8", 1.0),
        ("nvfp4", "nvfp4", 0.5625),
        ("q8_0", "q8_0", 1.0625),
        ("q4_0", "q4_0", 0.5625),
        ("fp8_ds_mla", "fp8_ds_mla", 656 / 576),
        # vLLM's and SGLang's own layouts: bytes of a token as their code says them
        ("nvfp4_ds_mla", "nvfp4_ds_mla", 352 / 576),
        ("nvfp4_4over6", "nvfp4_4over6", 0.5625),
        ("mxfp8", "mxfp8", 33 / 32),
        ("fp4_mx_block16", "fp4_mx_block16", 9 / 16),
        ("fp4_e2m1", "fp4_mx_block16", 9 / 16),
        ("int8_per_token_head", "int8_per_token_head", 1.0),
    ],
)
def test_names_and_bytes_per_element(text: str, name: str, size: float) -> None:
    found = kv_format(text, formats.BF16)
    assert (found.name, found.bytes) == (name, size)


def test_auto_is_the_models_dtype() -> None:
    assert kv_format("auto", formats.FP16).name == "fp16"


def test_scales_per_token_and_head_weigh_by_head_size() -> None:
    assert kv_format("fp8_per_token_head", formats.BF16, head_size=128).bytes == 1 + 4 / 128


def test_a_name_that_is_none_is_refused_with_those_there_are() -> None:
    with pytest.raises(FactsError, match=r"'fp5' is not known; known are auto, .*fp8_e5m2"):
        kv_format("fp5", formats.BF16)


def test_every_name_listed_is_taken() -> None:
    assert all(0 < kv_format(name, formats.BF16).bytes <= 4 for name in kv_names())


@check_rows(
    ("config", "hf_quant_config", "expected"),
    [
        # nvidia/Llama-3.1-70B-Instruct-FP8
        ({}, {"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}}, "fp8_e4m3"),
        # nvidia/MiniMax-M2.5-NVFP4
        (
            {"quantization_config": {"quant_method": "modelopt", "kv_cache_scheme": {"dynamic": False, "num_bits": 8, "type": "float"}}},
            None,
            "fp8_e4m3",
        ),
        # Qwen/Qwen3-32B-FP8-Static-PerTensor
        ({"quantization_config": {"quant_algo": "FP8", "kv_cache_scheme": "FP8"}}, None, "fp8_e4m3"),
        # nvidia/DeepSeek-V4-Flash-NVFP4; moonshotai/Kimi-K2.5
        ({}, {"quantization": {"quant_algo": "MIXED_PRECISION", "kv_cache_quant_algo": None}}, None),
        ({"quantization_config": {"quant_method": "compressed-tensors", "kv_cache_scheme": None}}, None, None),
        ({}, {"quantization": {"kv_cache_quant_algo": "NVFP4"}}, "nvfp4"),
        ({"quantization_config": {"quant_method": "fp8"}}, None, None),
        ({"quantization_config": {"kv_cache_scheme": {"type": [], "num_bits": 8}}}, None, None),
        ({}, None, None),
    ],
)  # fmt: skip
def test_what_the_checkpoint_was_calibrated_for(
    config: dict[str, Any], hf_quant_config: Any, expected: str | None
) -> None:
    assert kv_hint(config, hf_quant_config) == expected
