"""What the two scripts of the first seed (S1) print when they are run: facts model-math A.1, second table."""

from __future__ import annotations

import math

import pytest

from llm_serving_exporter.derive.planning import usd_per_million_tokens
from llm_serving_exporter.derive.roof import Ceiling, decode_ceiling
from llm_serving_exporter.derive.work import Roof
from llm_serving_exporter.model.hardware import GpuPeaks
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.shape import ModelFacts
from tests.support.models.roofs import A100_ROUNDED, H100, L40S, LLAMA_70B, flat, roof
from tests.support.rows import check_rows


def ceiling(it: Roof, batch: float) -> Ceiling:
    found = decode_ceiling(it, batch, 0)
    assert found is not None
    return found


# its model: 4 d x d attention and 2 FFN matrices a layer; Llama-3-70B has 3 FFN matrices and 8 KV heads, so 60.1 B is 15 % low (e7)
MATRICES = 80 * (4 * 8192**2 + 2 * 8192 * 28672)


def scripted() -> ModelFacts:
    return flat(MATRICES)


def test_S1_214_to_224_size_of_the_script_s_model() -> None:
    """e7."""
    with_table = MATRICES + 128_256 * 8192
    assert round(with_table / 1e9, 1) == 60.1
    assert with_table / LLAMA_70B.parameters_total == pytest.approx(1 - 0.148, abs=5e-4)


@pytest.mark.parametrize(
    ("peaks", "ridge", "milliseconds", "percent", "tokens"),
    [(H100, 295.34, 35.26, (0.3, 2.7, 10.8, 43.3), (28.4, 226.9, 907.6, 3630.5)),
     (A100_ROUNDED, 156.0, 59.06, (0.6, 5.1, 20.5, 82.1), (16.9, 135.5, 541.9, 2167.4)),
     (L40S, 418.98, 136.7, (0.2, 1.9, 7.6, 30.6), (7.3, 58.5, 234.1, 936.3))],
    ids=["H100", "A100", "L40S"],
)  # fmt: skip
def test_S1_181_to_350_script_of_arithmetic_intensity(
    peaks: GpuPeaks, ridge: float, milliseconds: float, percent: tuple[float, ...], tokens: tuple[float, ...]
) -> None:
    found = [ceiling(roof(scripted(), peaks), batch) for batch in (1, 8, 32, 128)]
    assert [one.intensity_flops_per_byte for one in found] == pytest.approx([1, 8, 32, 128])
    assert [one.ridge_flops_per_byte for one in found] == pytest.approx([ridge] * 4, abs=5e-3)
    assert [one.step_seconds * 1e3 for one in found] == pytest.approx([milliseconds] * 4, abs=0.05)
    assert [
        100 * one.intensity_flops_per_byte / (one.ridge_flops_per_byte or math.nan) for one in found
    ] == pytest.approx(percent, abs=0.05)
    assert [one.tokens_per_second for one in found] == pytest.approx(tokens, abs=0.051)


@check_rows(
    ("terabytes", "price", "gpus", "tokens", "usd", "hourly"),
    [(3.35, 8.00, 2, 1072.0, 4.15, 16.00), (2.00, 3.50, 2, 640.0, 3.04, 7.00), (0.864, 2.20, 4, 553.0, 4.42, 8.80),
     (0.600, 1.50, 8, 768.0, 4.34, 12.00)],
    ids=["H100", "A100", "L40S", "A10G"],
)  # fmt: skip
def test_S1_423_to_509_script_of_cost(
    terabytes: float, price: float, gpus: int, tokens: float, usd: float, hourly: float
) -> None:
    """70 B FP16 at batch 32 and 0.7 of the bandwidth. The bandwidth of all GPUs counts, whatever the script's comment says (e11)."""
    reached = replace(H100, bandwidth_bytes_per_second=0.7 * terabytes * 1e12)
    found = ceiling(roof(flat(70e9), reached, gpus), 32).tokens_per_second
    assert found == pytest.approx(tokens, abs=0.05)
    assert gpus * price == hourly
    assert usd_per_million_tokens(gpus * price, found) == pytest.approx(usd, abs=0.005)
