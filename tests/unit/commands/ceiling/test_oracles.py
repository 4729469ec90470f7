"""The seeds' oracles that the `ceiling` command can answer, by seed and line; the others are tests of the arithmetic (tests/truth)."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from tests.support.builders.ceilings import BARE, answered, config, line, of_parameters

GIB, GB = 2**30, 10**9


@pytest.mark.parametrize(
    ("gpu", "milliseconds", "rate"),
    [("H100 SXM", 20.896, 47.857), ("H200", 14.583, 68.571), ("H100 PCIe", 34.331, 29.128)],
)
def test_O1_S0_34_O2_S0_38_O3_S0_48_70_gb(tmp_path: Path, gpu: str, milliseconds: float, rate: float) -> None:
    """70 GB of weights: 35 billion parameters in bf16, a context of one token. O3 rounds 2.039 TB/s to 2.0: 28.571 tokens/s."""
    found = line(answered(config(tmp_path, of_parameters(35)), gpu, *BARE), 1)
    assert found["ms_per_step"] == pytest.approx(milliseconds, rel=1e-4)
    assert found["tokens_per_second"] == pytest.approx(rate, rel=1e-4)


def test_O13_S1_146_O32_S4_658_O33_S4_658_140_gb(tmp_path: Path) -> None:
    found = answered(config(tmp_path, of_parameters(70)), "H100", *BARE, "--batches", "1,32")
    assert found["model"]["decode_read_parameters"] == 70 * 10**9
    assert line(found, 1)["tokens_per_second"] == pytest.approx(23.929, rel=1e-4)
    assert line(found, 32)["tokens_per_second"] == pytest.approx(768, rel=5e-3)
    assert found["fit"]["fits"] is False


@pytest.mark.parametrize(
    ("name", "billions", "fp16", "int8", "gpus"),
    [
        ("Llama-3-8B", 8.03, 16.1, 8.0, 1),
        ("Llama-3-70B", 70.6, 141.2, 70.6, 2),
        ("Llama-3.1-405B", 405.1, 810.2, 405.1, 11),
    ],
)
def test_O19_S2_84_to_86_parameters_bytes_and_gpus(
    name: str, billions: float, fp16: float, int8: float, gpus: int
) -> None:
    """405.85 billion, where the seed has 405.1 (e14). INT8 here leaves embedding and lm_head at 16 bits, as checkpoints do."""
    flags = ("--memory", "80GB", *BARE, "--batches", "1")
    found = answered(name, "A100", *flags)
    assert found["model"]["parameters_total"] / 1e9 == pytest.approx(billions, rel=2.5e-3)
    assert found["model"]["weight_bytes"] / 1e9 == pytest.approx(fp16, rel=2.5e-3)
    assert found["fit"]["least_gpus"] == gpus
    vocabulary = {"Llama-3-8B": 4096, "Llama-3-70B": 8192, "Llama-3.1-405B": 16384}[name] * 128_256
    narrow = answered(name, "A100", "--dtype", "int8", *flags)["model"]["weight_bytes"]
    assert (narrow - 2 * vocabulary) / 1e9 == pytest.approx(int8, rel=6e-3)


@pytest.mark.parametrize(
    ("name", "token", "sequence"),
    [("Llama-3-8B", 0.125, 0.5), ("Llama-3-70B", 0.3125, 1.25), ("Llama-3.1-405B", 0.4922, 1.969)],
)
def test_O20_O21_S2_99_to_102_kv_in_mib_and_gib(name: str, token: float, sequence: float) -> None:
    found = answered(name, "H100", "--kv-dtype", "bf16")
    assert found["model"]["kv_bytes_per_token"] / 2**20 == pytest.approx(token, abs=5e-5)
    assert found["fit"]["kv_bytes_per_sequence"] / GIB == pytest.approx(sequence, abs=5e-4)


# 1.25 GB and 0.5 GB a sequence: the seed takes GiB for GB (e15), so that its sequences are of 3,814 tokens
SEED_SEQUENCE = ("--context", "3814", "--memory", "80GB", "--memory-utilization", "1")


def test_O24_S2_120_to_125_memory_budget() -> None:
    """141.2 + 40 + 8 GB are 29 too many for 160; INT8 fits; half the batch does not."""

    def room(*flags: str) -> dict[str, Any]:
        return dict(answered("Llama-3-70B", "A100", "--tp", "2", *SEED_SEQUENCE, "--overhead", "4GB", *flags)["fit"])

    assert (32 * room()["kv_bytes_per_sequence"] - room()["free_kv_bytes"]) / GB == pytest.approx(29, abs=0.3)
    assert room("--dtype", "int8")["max_batch"] >= 32
    assert room()["max_batch"] < 16


def test_O25_S2_161_to_163_maximum_batch_of_70b() -> None:
    """10, and with INT8 65 where the seed has 66: its 70.6 GB count the lm_head and the embedding at 8 bits (2.1 GB)."""
    flags = ("--tp", "2", *SEED_SEQUENCE, "--overhead", "3GB")
    assert answered("Llama-3-70B", "A100", *flags)["fit"]["max_batch"] == 10
    found = answered("Llama-3-70B", "A100", *flags, "--dtype", "int8")["fit"]
    assert found["max_batch"] == 65
    assert math.floor((found["free_kv_bytes"] + 2 * 8192 * 128_256) / found["kv_bytes_per_sequence"]) == 66


def test_O26_S2_241_maximum_batch_of_8b() -> None:
    found = answered("Llama-3-8B", "A100", *SEED_SEQUENCE, "--overhead", "3GB")
    assert found["fit"]["max_batch"] == 121


@pytest.mark.parametrize(("batch", "rate", "dollars"), [(1, 192.8, 23.1), (32, 4578, 0.97)])
def test_O29_O30_S2_312_and_313_dollars(batch: int, rate: float, dollars: float) -> None:
    """$16 an hour for four H100: at the ceilings of facts e20, for the seed's 286 and 7,200 tokens/s are above them."""
    context = ("--context", "1") if batch == 1 else ("--context", "4608", "--kv-dtype", "fp8")
    flags = ("--tp", "4", "--dtype", "fp8", "--price", "4", "--batches", str(batch), *context)
    found = line(answered("Llama-3-70B", "H100", *flags), batch)
    # the lm_head of a checkpoint stays at 16 bits: 70.55 GB a step for the table's 69.50
    assert found["tokens_per_second"] == pytest.approx(rate, rel=0.02)
    assert found["usd_per_million_tokens"] == pytest.approx(16 / found["tokens_per_second"] / 3600 * 1e6)
    assert found["usd_per_million_tokens"] == pytest.approx(dollars, rel=0.02)


@pytest.mark.parametrize(
    ("gpu", "count", "price", "rate", "dollars"),
    [("H100", 2, 8.0, 1072.0, 4.15), ("A100 80GB", 2, 3.5, 640.0, 3.04), ("L40S", 4, 2.2, 553.0, 4.42)],
)
def test_S1_423_to_509_cost_script(
    tmp_path: Path, gpu: str, count: int, price: float, rate: float, dollars: float
) -> None:
    """70 billion parameters at FP16, batch 32, 70 % of the ceiling; the A100 of the seed has 2.0 TB/s for 2.039."""
    path = config(tmp_path, of_parameters(70))
    found = line(answered(path, gpu, "--tp", str(count), "--price", str(price), *BARE, "--batches", "32"), 32)
    spec = 2.039 / 2.0 if gpu.startswith("A100") else 1.0
    assert 0.7 * found["tokens_per_second"] == pytest.approx(rate * spec, rel=2e-3)
    assert found["usd_per_million_tokens"] / 0.7 == pytest.approx(dollars / spec, rel=3e-3)
