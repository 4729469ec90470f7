"""What `ceiling` answers: shape, ceilings by hand, memory, context; all through the command line."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from llm_serving_exporter.facts import loader
from tests.support.builders.ceilings import answered, asked, config, document, line, table
from tests.support.models.modelfolders import LLAMA, folder, index
from tests.support.models.shapes import whole_catalogue
from tests.support.rows import check_rows

GIB = 2**30
MODEL_KEYS = {"parameters_total", "decode_read_parameters", "kv_bytes_per_token", "weight_bytes"}
BATCH_KEYS = {"batch", "tokens_per_second", "ms_per_step", "bound", "usd_per_million_tokens"}


# --- the shape of the answer ------------------------------------------------------------------------------------------


# every eighth: one of each family, in a few seconds
@check_rows("entry", lambda: whole_catalogue()[::8], ids=lambda entry: entry.name)
def test_every_model_of_the_catalogue_has_a_whole_answer(entry: Any) -> None:
    """Consistent with itself, whatever the model: one of 0.6 GB or of 1 TB, dense, MoE, MLA, hybrid, encoder, on one GPU."""
    found = answered(entry.name, "L40S", "--price", "1.5", "--batches", "1,3,64")
    assert found["model"].keys() >= MODEL_KEYS
    assert found["fit"].keys() >= {"fits", "free_kv_bytes", "max_batch"}
    assert type(found["fit"]["fits"]) is bool
    assert type(found["fit"]["free_kv_bytes"]) is int
    assert found["gpu"]["bandwidth_bytes_per_second"] == 864e9
    assert found["gpu"]["flops_per_second"]["bf16"] > 0
    if found["model"]["encoder"]:
        assert (found["batches"], found["fit"]["max_batch"], found["ridge_batch"]) == ([], None, None)
        assert found["model"]["kv_bytes_per_token"] == 0
        assert found["embedding"]["tokens_per_second"] > 0
        return
    assert [each["batch"] for each in found["batches"]] == [1, 3, 64]
    per_sequence, free = found["fit"]["kv_bytes_per_sequence"], found["fit"]["free_kv_bytes"]
    assert found["fit"]["max_batch"] == free // per_sequence
    assert found["fit"]["fits"] is (found["fit"]["max_batch"] >= 1)
    assert (found["fit"]["shortfall_bytes"] > 0) is not found["fit"]["fits"]
    for each in found["batches"]:
        assert each.keys() >= BATCH_KEYS
        assert type(each["batch"]) is int
        assert each["bound"] in ("bandwidth", "compute")
        assert each["ms_per_step"] == pytest.approx(1000 * each["batch"] / each["tokens_per_second"])
        assert each["usd_per_million_tokens"] == pytest.approx(1.5 / 3600 / each["tokens_per_second"] * 1e6)
        slower = min(each["bandwidth_tokens_per_second"], each["compute_tokens_per_second"])
        assert each["tokens_per_second"] == pytest.approx(slower)
        assert each["fits"] is (each["batch"] <= found["fit"]["max_batch"])
    rates = [each["tokens_per_second"] for each in found["batches"]]
    assert rates == sorted(rates)


def test_a_model_that_does_not_fit_still_gets_its_answer() -> None:
    found = answered("Llama-3.1-405B", "H100 SXM", "--price", "2")
    assert (found["fit"]["fits"], found["fit"]["max_batch"], found["fit"]["free_kv_bytes"]) == (False, 0, 0)
    assert len(found["batches"]) == 9
    # 811.7 GB and 2.1 GB of one sequence in GPUs of which 77.0 GB may be used
    assert (
        found["fit"]["least_gpus"] == math.ceil((2 * 405_853_388_800 + 4096 * 516_096) / (0.9 * 85_520_809_984)) == 11
    )
    said = asked("--model", "Llama-3.1-405B", "--gpu", "H100").out
    assert "fits          no: " in said
    assert "they need at least 11 such GPUs" in said
    assert said.count("does not fit") == 9 + 1


def test_prices_are_of_all_gpus_for_an_hour() -> None:
    one = answered("Llama-3.1-8B", "H100", "--price", "3", "--batches", "1")
    four = answered("Llama-3.1-8B", "H100", "--price", "3", "--batches", "1", "--tp", "4")
    # four times the GPUs, four times the rate: a million tokens cost the same
    assert line(four, 1)["usd_per_million_tokens"] == pytest.approx(line(one, 1)["usd_per_million_tokens"])
    assert four["gpu"]["count"] == 4
    assert line(answered("Llama-3.1-8B", "H100", "--price", "0"), 1)["usd_per_million_tokens"] == 0.0
    assert line(answered("Llama-3.1-8B"), 1)["usd_per_million_tokens"] is None
    rows = table("--model", "Llama-3.1-8B", "--gpu", "H100", "--price", "3", "--tp", "4")
    assert rows["price"] == "$12.00 an hour"


# --- ceilings by hand -------------------------------------------------------------------------------------------------

# GB that a step reads: weights as facts table C has them (their two or three digits), KV of 4,096 tokens by B.8 and B.9
BY_HAND = [
    # model, GPU, flags, batch, GB of weights, GB of KV a sequence and step, TB/s of all GPUs
    ("Llama-3.1-8B", "A100 80GB", (), 1, 15.01, 0.5369, 2.039),
    ("Llama-3.1-8B", "H100", (), 32, 15.01, 0.5369, 3.35),
    ("Llama-3.1-70B", "H100", ("--tp", "4"), 1, 139.0, 1.3422, 4 * 3.35),
    ("Llama-3.1-70B", "H200", ("--tp", "2", "--dtype", "fp8"), 16, 70.55, 1.3422, 2 * 4.8),
    ("Llama-3.1-70B", "H100", ("--tp", "4", "--dtype", "fp8", "--kv-dtype", "fp8"), 32, 70.55, 0.6711, 4 * 3.35),
    ("Mixtral-8x7B", "H100", ("--tp", "2"), 8, 84.1, 0.5369, 2 * 3.35),
    ("Mixtral-8x7B", "H100", ("--tp", "2"), 64, 93.1, 0.5369, 2 * 3.35),
    ("Qwen3-30B-A3B", "A100 80GB", (), 1, 6.08, 0.4027, 2.039),
    ("Qwen3-30B-A3B", "A100 80GB", (), 8, 25.8, 0.4027, 2.039),
    ("gpt-oss-120b", "H100", (), 8, 16.8, 0.1557, 3.35),
    ("gpt-oss-20b", "H100", (), 64, 12.6, 0.1038, 3.35),
    # 72.7 - 1.2 of embedding, halved by int4 to 4.125 bits but for the lm_head: (71.46 - 1.246) x 0.515625 + 2.49
    ("Qwen2.5-72B", "A100 80GB", ("--dtype", "int4"), 4, 38.70, 1.3422, 2.039),
    # sliding windows of 1,024 on 52 of 62 layers
    ("Gemma-3-27B", "H100", (), 1, 54.02, 0.7717, 3.35),
]  # fmt: skip


@check_rows(("model", "gpu", "flags", "batch", "weights", "kv", "terabytes"), BY_HAND)
def test_bandwidth_ceilings_by_hand(
    model: str, gpu: str, flags: tuple[str, ...], batch: int, weights: float, kv: float, terabytes: float
) -> None:
    found = line(answered(model, gpu, "--batches", str(batch), *flags), batch)
    assert found["bound"] == "bandwidth"
    assert found["ms_per_step"] == pytest.approx((weights + batch * kv) / terabytes, rel=5e-3)


def test_compute_binds_a_dense_model_without_context_from_the_ridge_on() -> None:
    """Facts D.3: 295 tokens on H100, 989.5 TFLOP/s over 3.35 TB/s; FP8 the same; int4 with 16-bit arithmetic 77."""
    # one token of 524,288 bytes of KV a sequence moves the batch from 295.4 to 298.9
    flags = ("--context", "1", "--batches", "298,299")
    found = answered("Llama-2-7B", "H100", *flags)
    assert [each["bound"] for each in found["batches"]] == ["bandwidth", "compute"]
    assert found["weights_ridge_batch"] == pytest.approx(295.4, abs=0.1)
    assert answered("Llama-2-7B", "H100", "--dtype", "fp8")["weights_ridge_batch"] == pytest.approx(295.4, rel=0.02)
    assert answered("Llama-2-7B", "H100", "--dtype", "int4")["weights_ridge_batch"] == pytest.approx(77, rel=0.05)
    # 2 x 6,607,343,616 FLOPs a token at 989.5 TFLOP/s, and attention over one token
    assert found["batches"][1]["tokens_per_second"] == pytest.approx(989.5e12 / (2 * 6_607_343_616), rel=1e-3)


def test_first_token_floor_is_the_prompts_flops_at_the_peak() -> None:
    """Facts A.3: 29.7 TFLOP for 8B and 2,048 tokens, 30.0 ms on H100 in bf16; 582.8 for 70B and 4,096, 73.6 ms on four in fp8."""
    small = answered("Llama-3.1-8B", "H100", "--prompt", "2048")
    assert small["first_token_floor_seconds"] == pytest.approx(30.0e-3, rel=2e-3)
    assert small["prompt_tokens"] == 2048
    assert small["context_tokens"] == 4096
    # the table divides attention by FP8's rate too; here it runs at BF16's: 22.5 of 582.8 TFLOP
    large = answered("Llama-3.1-70B", "H100", "--tp", "4", "--dtype", "fp8")["first_token_floor_seconds"]
    assert large == pytest.approx((560.3 / (4 * 1979) + 22.5 / (4 * 989.5)), rel=5e-3)
    assert table("--model", "Llama-3.1-8B", "--gpu", "H100", "--prompt", "2048")["first token"].startswith(
        "30 ms at these peaks"
    )


def test_pipeline_stages_add_no_bandwidth_at_batch_1_and_spread_the_kv() -> None:
    """Facts D.3: B x n x BW / (W + max(B/p, 1) x K)."""
    plain = answered("Llama-3.1-70B", "H100", "--tp", "4", "--batches", "1,8")
    staged = answered("Llama-3.1-70B", "H100", "--tp", "4", "--pp", "2", "--batches", "1,8")
    assert (staged["gpu"]["count"], staged["gpu"]["pipeline_parallel_size"]) == (8, 2)
    assert line(staged, 1)["tokens_per_second"] == pytest.approx(line(plain, 1)["tokens_per_second"])
    step = (2 * 69_503_033_344 + 4 * 4096 * 327_680) / (4 * 3.35e12)
    assert line(staged, 8)["tokens_per_second"] == pytest.approx(8 / step)


def test_tensor_parallelism_beyond_the_kv_heads_keeps_copies() -> None:
    found = answered("Qwen3-30B-A3B", "H100", "--tp", "8", "--batches", "1")
    assert found["fit"]["kv_bytes_per_sequence"] == 2 * 98_304 * 4096
    assert found["model"]["kv_bytes_per_token"] == 98_304
    assert found["notes"] == ["8 tensor-parallel ranks share 4 KV heads: each head is kept 2 times"]
    latent = answered("DeepSeek-V3", "H200", "--tp", "8", "--batches", "1")
    assert latent["fit"]["kv_bytes_per_sequence"] == 8 * 70_272 * 4096
    assert (
        "each of the 8 tensor-parallel ranks keeps the whole KV cache: MLA has one latent for all heads; --dp or --dcp avoid that"
        in latent["notes"]
    )


def test_a_kv_cache_of_8_bits_halves_the_kv_alone() -> None:
    wide, narrow = (answered("Llama-3.1-8B", "H100", "--kv-dtype", dtype) for dtype in ("bf16", "fp8"))
    assert (wide["model"]["kv_bytes_per_token"], narrow["model"]["kv_bytes_per_token"]) == (131_072, 65_536)
    assert wide["model"]["weight_bytes"] == narrow["model"]["weight_bytes"]
    assert wide["fit"]["free_kv_bytes"] == narrow["fit"]["free_kv_bytes"]
    assert narrow["fit"]["max_batch"] in (2 * wide["fit"]["max_batch"], 2 * wide["fit"]["max_batch"] + 1)


def test_kv_is_told_in_full_and_kept_by_window() -> None:
    """Facts B.9: gpt-oss-120b has 18 full and 18 sliding layers of 128 tokens."""
    found = answered("gpt-oss-120b", "H100", "--context", "8192")
    assert found["model"]["kv_bytes_per_token"] == 73_728
    assert found["fit"]["kv_bytes_per_sequence"] == 18 * 2048 * (8192 + 128)


def test_recurrent_state_is_kept_and_read_with_the_kv() -> None:
    found = answered("Nemotron-3-Nano-30B-A3B", "H100", "--batches", "1")
    state = found["model"]["state_bytes_per_sequence"]
    assert state == pytest.approx(49.1e6, rel=2e-3)
    assert found["fit"]["kv_bytes_per_sequence"] == state + 4096 * found["model"]["kv_bytes_per_token"]
    halved = answered("Nemotron-3-Nano-30B-A3B", "H100", "--state-dtype", "bf16")["model"]["state_bytes_per_sequence"]
    assert halved < 0.51 * state
    assert "of recurrent state a sequence" in table("--model", "Nemotron-3-Nano", "--gpu", "H100")["KV cache"]


# --- memory -----------------------------------------------------------------------------------------------------------


def test_memory_its_share_and_the_overhead_by_hand() -> None:
    weights, sequence = 2 * 8_030_261_248, 131_072 * 1000
    flags = ("--context", "1000", "--memory", "24GB", "--memory-utilization", "0.8", "--overhead", "1.5GB", "--tp", "2")
    found = answered("Llama-3.1-8B", "L4", *flags)
    free = 2 * (0.8 * 24e9 - 1.5e9) - weights
    assert found["fit"]["free_kv_bytes"] == pytest.approx(free, abs=2)
    assert found["fit"]["max_batch"] == math.floor(free / sequence)
    assert answered("Llama-3.1-8B", "L4", "--memory", "24GiB")["gpu"]["memory_bytes"] == 24 * GIB
    assert answered("Llama-3.1-8B", "L4", "--memory", "79.6 gib")["gpu"]["memory_bytes"] == int(79.6 * GIB)
    assert "(80 % of 22.4 GiB a GPU, less 1.4 GiB)" in table("--model", "Llama-3.1-8B", "--gpu", "L4", *flags)["fits"]


def test_a_checkpoint_that_holds_more_takes_more_memory(tmp_path: Path) -> None:
    """A vision tower is in the checkpoint: kept beside the weights, not read by a step."""
    plain = 2 * answered(str(folder(tmp_path / "plain")), "L4")["model"]["parameters_total"]
    extra = plain // 10
    with_tower = folder(tmp_path / "tower", {**LLAMA, "vision_config": {"depth": 2}}, index=index(plain + extra))
    small, large = (answered(str(tmp_path / name), "L4", "--memory", "1GB") for name in ("plain", "tower"))
    assert large["model"]["checkpoint_bytes"] == plain + extra
    assert small["model"]["weight_bytes"] == large["model"]["weight_bytes"] == plain
    assert small["fit"]["free_kv_bytes"] - large["fit"]["free_kv_bytes"] == pytest.approx(extra, abs=1)
    assert line(small, 1) == line(large, 1)
    assert "not counted: vision tower" in large["notes"]
    assert any("the checkpoint holds" in note for note in large["notes"])
    assert with_tower.is_dir()


def test_a_checkpoint_of_another_format_is_not_believed(tmp_path: Path) -> None:
    plain = 2 * answered(str(folder(tmp_path / "plain")), "L4")["model"]["parameters_total"]
    folder(tmp_path / "wide", index=index(2 * plain))
    small, wide = (answered(str(tmp_path / name), "L4") for name in ("plain", "wide"))
    assert small["fit"]["free_kv_bytes"] == wide["fit"]["free_kv_bytes"]
    assert any("if the checkpoint holds nothing else, state the weight format" in note for note in wide["notes"])


# --- what a GPU cannot do ---------------------------------------------------------------------------------------------


def test_weights_without_a_path_of_their_own_run_at_bf16_and_that_is_said() -> None:
    found = answered("Llama-3.1-8B", "A100 80GB", "--dtype", "fp8", "--batches", "100000", "--context", "1")
    assert found["notes"] == ["A100 SXM 80GB has no fp8 rate: such weights are dequantised and multiplied at bf16"]
    assert line(found, 100_000)["compute_tokens_per_second"] == pytest.approx(312e12 / (2 * 7_504_924_672), rel=1e-2)
    assert answered("Llama-3.1-8B", "H100", "--dtype", "fp8")["notes"] == []


def test_without_the_rate_that_is_needed_there_is_a_bandwidth_ceiling_alone() -> None:
    """FP32 weights on a GPU of which that rate is not known (there are such rows)."""
    gpus = [spec for spec in loader.gpu_catalogue() if "fp32" not in spec.flops]
    assert gpus
    found = answered("Llama-3.2-1B", gpus[0].name, "--dtype", "fp32", "--batches", "1,512")
    assert {each["bound"] for each in found["batches"]} == {"bandwidth"}
    assert {each["compute_tokens_per_second"] for each in found["batches"]} == {None}
    assert (found["ridge_batch"], found["first_token_floor_seconds"]) == (None, None)
    assert "is not known: no compute ceiling" in found["notes"][0]


def test_every_gpu_of_the_catalogue_answers() -> None:
    for spec in loader.gpu_catalogue():
        found = answered("Qwen3-30B-A3B", spec.name, "--batches", "1,256", "--price", "1")
        assert found["gpu"]["name"] == spec.name
        assert found["gpu"]["memory_bytes"] == spec.memory_bytes
        # 3.04e9 parameters and 4,096 tokens of KV
        expected = spec.bandwidth_bytes_per_second / (2 * 3_041_867_776 + 4096 * 98_304)
        assert line(found, 1)["bandwidth_tokens_per_second"] == pytest.approx(expected)


# --- context ----------------------------------------------------------------------------------------------------------


def test_a_context_beyond_the_models_is_answered_and_does_not_fit(tmp_path: Path) -> None:
    path = config(tmp_path / "short", {**LLAMA, "max_position_embeddings": 2048})
    usual, beyond = (
        document("--model", path, "--gpu", "L4"),
        document("--model", path, "--gpu", "L4", "--context", "3000"),
    )
    assert (usual["context_tokens"], usual["notes"]) == (2048, [])
    assert usual["model"]["context_limit_tokens"] == 2048
    assert beyond["context_tokens"] == 3000
    (said,) = beyond["fit"]["refusals"]
    assert said.startswith("engines refuse 3000 tokens of context: short is made for 2048 by its config")
    assert (beyond["notes"], beyond["fit"]["fits"]) == ([said], False)
    assert beyond["fit"]["max_batch"] > 0, "there is memory for it"
    assert not any(each["fits"] for each in beyond["batches"])
    assert document("--model", path, "--gpu", "L4", "--prompt", "3000")["notes"] == beyond["notes"]
