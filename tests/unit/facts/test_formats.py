"""Bits per stored weight (facts model-math D.5) and the names that people write."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_serving_exporter.errors import FactsError
from llm_serving_exporter.facts import formats
from llm_serving_exporter.facts.quantisation import uniform, weigh
from llm_serving_exporter.model.shape import Precision
from llm_serving_exporter.model.snapshot import Absence
from tests.support.models.quantising import stored_bytes
from tests.support.models.shapes import shape_of
from tests.support.rows import check_rows

LLAMA_8B = shape_of("Llama-3.1-8B")

GIB = 2**30


@check_rows(
    ("name", "bits", "multiplied"),
    [
        ("bf16", 16.0, Precision.BF16),
        ("fp16", 16.0, Precision.BF16),
        ("fp32", 32.0, Precision.FP32),
        ("fp8", 8.0, Precision.FP8),
        ("fp8-block", 8.002, Precision.FP8),
        ("fp8_w8a16", 8.0, Precision.BF16),
        ("int8", 8.0, Precision.INT8),
        ("int8_w8a16", 8.0, Precision.BF16),
        ("mxfp8", 8.25, Precision.FP8),
        ("mxfp4", 4.25, Precision.BF16),
        ("nvfp4", 4.5, Precision.FP4),
        ("nvfp4_w4a16", 4.5, Precision.BF16),
        ("int4", 4.125, Precision.BF16),
        ("w4a8", 4.125, Precision.FP8),
        ("awq", 4.156, Precision.BF16),
        ("gptq", 4.156, Precision.BF16),
        ("gpt-fast-int4", 5.0, Precision.BF16),
        ("nf4", 4.5, Precision.BF16),
        ("nf4_double", 4.127, Precision.BF16),
        ("q4_0", 4.5, Precision.INT8),
        ("q4_1", 5.0, Precision.INT8),
        ("q5_0", 5.5, Precision.INT8),
        ("q5_1", 6.0, Precision.INT8),
        ("q8_0", 8.5008, Precision.INT8),
        ("q6_k", 6.5633, Precision.INT8),
        ("q4_k_m", 4.8944, Precision.INT8),
        ("q4_k_s", 4.6672, Precision.INT8),
        ("q5_k_m", 5.7036, Precision.INT8),
        ("iq4_xs", 4.4597, Precision.INT8),
    ],
)
def test_named_formats_have_the_bits_of_table_d5(name: str, bits: float, multiplied: Precision) -> None:
    found = formats.named(name)
    assert found.bits == pytest.approx(bits, abs=0.0005)
    assert found.multiplied is multiplied


@check_rows(
    ("name", "bits"), [("Q2_K", 2.625), ("Q3_K", 3.4375), ("Q4_K", 4.5), ("Q5_K", 5.5), ("Q6_K", 6.5625), ("Q8_0", 8.5)]
)
def test_gguf_blocks_have_the_bits_of_table_d5(name: str, bits: float) -> None:
    assert formats.GGUF_BLOCK_BITS[name.lower()] == bits


@check_rows(
    ("name", "gib"),
    # llama.cpp tools/quantize/README.md, Llama-3.1-8B: "size (GiB)"
    [
        ("Q4_K_M", 4.58), ("Q8_0", 7.95), ("F16", 14.96), ("IQ1_S", 1.87), ("IQ2_XS", 2.42), ("IQ3_M", 3.52), ("IQ4_NL", 4.38),
        ("IQ4_XS", 4.17), ("Q2_K", 2.95), ("Q3_K_L", 4.02), ("Q4_K_S", 4.36), ("Q5_K_M", 5.33), ("Q6_K", 6.14),
    ],
)  # fmt: skip
def test_gguf_files_of_llama_8b_have_their_published_size(name: str, gib: float) -> None:
    groups = weigh(LLAMA_8B, uniform(LLAMA_8B, formats.named(name)))
    assert stored_bytes(groups, 0) / GIB == pytest.approx(gib, abs=0.006)


@check_rows(
    ("bits", "group_size", "zero_point", "stored"),
    [
        (4, 128, False, 4.125),
        (4, 128, True, 4.15625),
        (3, 128, True, 3.1484375),
        (8, 32, False, 8.5),
        (2, 64, True, 2.28125),
        (4, -1, True, 4.0),
    ],
)
def test_integers_add_scale_and_zero_point_per_group(
    bits: int, group_size: int, zero_point: bool, stored: float
) -> None:
    assert formats.integer(bits, group_size, zero_point=zero_point).bits == stored


@given(st.integers(2, 8), st.integers(-1, 4096), st.booleans(), st.sampled_from(Precision))
def test_one_name_never_means_two_layouts(bits: int, size: int, zero_point: bool, rate: Precision) -> None:
    """A group of weights is keyed by format; equal names with other bits or rates would hide one of them."""
    made = formats.integer(bits, size, zero_point=zero_point, multiplied=rate)
    for other in (formats.INT8, formats.INT8_WEIGHT_ONLY, formats.integer(bits, size, multiplied=rate)):
        assert (made.name == other.name) == (made == other)


@check_rows("text", ["BF16", " bfloat16 ", "torch.bfloat16", "BFloat16"])
def test_names_are_taken_in_any_spelling(text: str) -> None:
    assert formats.named(text) is formats.BF16


def test_a_name_that_is_none_is_refused_with_those_there_are() -> None:
    with pytest.raises(FactsError, match=r"'int5' is not known; known are .*awq.*q4_k_m") as caught:
        formats.named("int5")
    assert caught.value.reason == Absence.MODEL_UNKNOWN.value


def test_every_name_listed_is_taken() -> None:
    assert all(0 < formats.named(name).bits <= 32 for name in formats.names())
