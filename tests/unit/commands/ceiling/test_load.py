"""`ceiling` for a load: replicas, and encoders, which do not decode."""

from __future__ import annotations

import math

import pytest

from tests.support.builders.ceilings import answered, table

# --- replicas ---------------------------------------------------------------------------------------------------------

LOAD = ("--requests-per-second", "10", "--input-tokens", "500", "--output-tokens", "200")


def test_O38_S4_1273_replicas_by_hand() -> None:
    """replicas = peak_rps x (in + out) / (tps_replica x target_util) x redundancy, with our rate of a replica."""
    found = answered("Llama-3.1-70B", "H100", "--tp", "4", *LOAD, "--redundancy", "1.3", "--target-utilization", "0.7")
    # a replica at its ceilings: the prompt's FLOPs, then 199 steps at the batch that 700 tokens a sequence leave room for
    prompt = (2 * 500 * 68_452_352_000 + 2 * 128_256 * 8192 + 80 * 4 * 8192 * 500 * 501 / 2) / (4 * 989.5e12)
    batch = math.floor(found["fit"]["free_kv_bytes"] / (700 * 327_680))
    step = max(
        (139_006_066_688 + batch * 600 * 327_680) / (4 * 3.35e12),
        batch * (139_006_066_688 + 80 * 4 * 8192 * 600) / (4 * 989.5e12),
    )
    rate = 700 / (prompt + 199 * step / batch)
    assert found["tokens_per_second_per_replica"] == pytest.approx(rate, rel=1e-4)
    exact = 10 * 700 / (0.6 * found["tokens_per_second_per_replica"] * 0.7) * 1.3
    assert found["replicas_exact"] == pytest.approx(exact)
    assert found["replicas"] == math.ceil(exact)


def test_efficiency_share_and_redundancy_scale_the_replicas() -> None:
    def exact(*flags: str) -> float:
        return float(answered("Llama-3.1-8B", "L4", *LOAD, *flags)["replicas_exact"])

    usual = exact()
    assert exact("--efficiency", "0.3") == pytest.approx(2 * usual)
    assert exact("--target-utilization", "0.35") == pytest.approx(2 * usual)
    assert exact("--redundancy", "1.5") == pytest.approx(1.5 * usual)
    assert answered("Llama-3.1-8B", "L4", *LOAD[2:], "--requests-per-second", "0")["replicas"] == 0
    rows = table("--model", "Llama-3.1-8B", "--gpu", "L4", *LOAD, "--requests-per-second", "100", "--price", "0.7")
    whole = answered("Llama-3.1-8B", "L4", *LOAD, "--requests-per-second", "100")["replicas"]
    assert rows["replicas"].startswith(f"{whole} for 100 requests/s of 500 + 200 tokens, ${0.7 * whole:.2f} an hour")


def test_replicas_that_cannot_be_told_say_why() -> None:
    found = answered("Llama-3.1-405B", "H100", *LOAD)
    assert (found["replicas"], found["replicas_exact"], found["tokens_per_second_per_replica"]) == (None, None, None)
    assert table("--model", "Llama-3.1-405B", "--gpu", "H100", *LOAD)["replicas"].endswith(
        "a request does not fit a replica"
    )


def test_an_encoders_replicas_count_its_input() -> None:
    found = answered("bge-m3", "A100 80GB", "--requests-per-second", "1000", "--input-tokens", "512")
    rate = answered("bge-m3", "A100 80GB", "--prompt", "512")["embedding"]["tokens_per_second"]
    assert found["tokens_per_second_per_replica"] == rate
    assert found["replicas_exact"] == pytest.approx(1000 * 512 / (rate * 0.6 * 0.7))


# --- encoders ---------------------------------------------------------------------------------------------------------


def test_an_encoder_has_tokens_per_second_and_no_decode() -> None:
    """Facts B.7: peak / (2 N + 4 L h s); bge-m3 has 24 layers of 1,024 and 4,096, and a norm behind its tables."""
    found = answered("bge-m3", "A100 80GB", "--prompt", "512", "--price", "2")
    assert found["model"]["decode_read_parameters"] == 24 * 12_596_224 + 2 * 1024
    rate = 312e12 / (2 * 302e6 + 4 * 24 * 1024 * 512)
    assert found["embedding"]["tokens_per_second"] == pytest.approx(rate, rel=5e-3)
    assert found["embedding"]["usd_per_million_tokens"] == pytest.approx(2 / 3600 / rate * 1e6, rel=5e-3)
    assert found["first_token_floor_seconds"] is None
    rows = table("--model", "bge-m3", "--gpu", "A100 80GB", "--prompt", "512")
    assert rows["parameters"] == "568M, 302M passed by each token"
    assert rows["embedding"] == "477k tokens/s at these peaks, inputs of 512 tokens"
    assert "first token" not in rows
    assert "ridge batch" not in rows


def test_an_encoder_of_512_positions_is_asked_for_512() -> None:
    assert answered("bge-large", "L4")["context_tokens"] == 512
    # RoBERTa's position table starts behind the padding token's index
    assert answered("multilingual-e5-large", "L4")["context_tokens"] == 512
    assert answered("bge-m3", "L4")["context_tokens"] == 4096
    assert answered("bge-m3", "L4")["model"]["context_limit_tokens"] == 8192
