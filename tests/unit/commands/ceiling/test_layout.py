"""`ceiling` for a replica over data-parallel ranks, spread experts, cut contexts and speculation, and what engines refuse of it."""

from __future__ import annotations

import re

import pytest

from llm_serving_exporter.derive import planning as bounds
from tests.support.builders.ceilings import answered, asked, line, refused, table
from tests.support.paths import ROOT
from tests.support.rows import check_rows

R1 = ("DeepSeek-R1", "H200", "--kv-dtype", "fp8", "--context", "8000")


def test_deepseek_with_attention_data_parallelism_and_expert_parallelism() -> None:
    found = answered(*R1, "--tp", "1", "--dp", "8", "--ep", "8", "--batches", "64,256")
    sizes = {key: value for key, value in found["gpu"].items() if key == "count" or key.endswith("_size")}
    assert sizes == {
        "count": 8, "tensor_parallel_size": 1, "pipeline_parallel_size": 1, "data_parallel_size": 8, "expert_parallel_size": 8,
        "decode_context_parallel_size": 1,
    }  # fmt: skip
    tensor = answered(*R1, "--tp", "8", "--batches", "256")
    # each rank keeps the KV of its own sequences, once
    assert found["fit"]["kv_bytes_per_sequence"] * 8 == tensor["fit"]["kv_bytes_per_sequence"]
    assert found["fit"]["max_batch"] > 4 * tensor["fit"]["max_batch"]
    assert found["fit"]["max_batch"] % 8 == 0
    assert line(found, 256)["tokens_per_second"] > line(tensor, 256)["tokens_per_second"]
    assert table("--model", *R1[:1], "--gpu", *R1[1:], "--dp", "8", "--ep", "8")["GPUs"] == (
        "8 x H200 SXM 141GB, tensor 1, pipeline 1, data 8, expert 8"
    )


def test_experts_that_are_not_spread_are_kept_by_every_rank() -> None:
    found = answered(*R1, "--tp", "1", "--dp", "8")
    assert found["fit"]["fits"] is False
    assert (
        "the routed experts are kept 8 times; --ep 8 spreads them over all ranks, as engines do with expert parallelism"
    ) in found["notes"]


def test_the_bounds_of_a_batch() -> None:
    (one,) = answered(*R1, "--tp", "8", "--batches", "64")["batches"]
    assert one["tokens_per_second_lower"] < one["tokens_per_second"] < one["tokens_per_second_upper"]
    (dense,) = answered("Llama-3.1-8B", "H100", "--batches", "64")["batches"]
    assert dense["tokens_per_second_lower"] is None
    assert dense["tokens_per_second_upper"] == pytest.approx(dense["tokens_per_second"])


def test_decode_context_parallelism_spares_copies_of_the_latent() -> None:
    whole, cut = (answered(*R1, "--tp", "8", "--dcp", size) for size in ("1", "8"))
    assert whole["fit"]["kv_bytes_per_sequence"] == 8 * cut["fit"]["kv_bytes_per_sequence"]
    assert whole["gpu"]["count"] == cut["gpu"]["count"] == 8
    assert not any("keeps the whole KV cache" in note for note in cut["notes"])


def test_speculation_by_hand() -> None:
    flags = ("Llama-3.1-70B", "H100", "--tp", "4", "--batches", "1")
    (plain,) = answered(*flags)["batches"]
    found = answered(*flags, "--spec", "3", "--acceptance", "0.5")
    assert found["speculation"] == {"drafts": 3, "acceptance": 0.5, "tokens_per_step": 1.875}
    (drafted,) = found["batches"]
    assert drafted["tokens_per_second"] == pytest.approx(1.875 * plain["tokens_per_second"])
    assert drafted["tokens_per_second_upper"] == pytest.approx(4 * plain["tokens_per_second_upper"])
    assert drafted["ms_per_step"] == pytest.approx(plain["ms_per_step"])
    unknown = answered(*flags, "--spec", "3")
    assert unknown["batches"][0]["tokens_per_second"] == pytest.approx(plain["tokens_per_second"])
    assert any("--acceptance says how many" in note for note in unknown["notes"])


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (("--tp", "3"), "engines refuse tensor parallelism of 3: Llama-3.1-70B has 64 attention heads"),
        (("--tp", "8", "--dcp", "2"), "vLLM refuses decode context parallelism of 2"),
    ],
)
def test_what_engines_refuse_does_not_fit(flags: tuple[str, ...], told: str) -> None:
    found = answered("Llama-3.1-70B", "B200", *flags)
    assert found["fit"]["fits"] is False
    assert found["fit"]["refusals"][0].startswith(told)
    assert found["notes"][0] == found["fit"]["refusals"][0]
    said = asked("--model", "Llama-3.1-70B", "--gpu", "B200", *flags).out
    assert "fits          no: engines refuse it, see below" in said
    assert f"note: {told}" in said


def test_bf16_on_a_card_without_it_does_not_fit() -> None:
    assert answered("Qwen2.5-3B", "T4")["fit"]["fits"] is False
    assert answered("Qwen2.5-3B", "T4", "--dtype", "fp16")["fit"]["fits"] is True


@check_rows(
    ("flags", "told"),
    [
        (
            ("--tp", "2", "--dp", "4", "--ep", "3"),
            "flag --ep: 3 does not divide tensor 2 x data 4. Write a divisor of 8",
        ),
        (("--tp", "8", "--dcp", "3"), "flag --dcp: 3 does not divide tensor 8."),
        (("--dp", "64", "--tp", "128"), "flag --dp: that makes 8192 GPUs."),
        (
            ("--gpus", "8", "--dp", "3"),
            "flag --gpus: 8 GPUs are no whole number of replicas of tensor 1 x pipeline 1 x data 3.",
        ),
        (
            ("--gpus", "8", "--dp", "2", "--tp", "2"),
            "flag --gpus: tensor 2 x pipeline 1 x data 2 is one replica of 4 GPUs, not 8.",
        ),
        (("--acceptance", "0.5"), "flag --acceptance: there are no drafts to accept. Write --spec"),
        (("--spec", "2", "--acceptance", "1.5"), 'flag --acceptance: "1.5" is not a probability from 0 to 1.'),
        (("--spec", "-1"), "flag --spec:"),
        (("--dp", "0"), "flag --dp:"),
    ],
)
def test_layouts_that_cannot_be(flags: tuple[str, ...], told: str) -> None:
    (said,) = refused("--model", "DeepSeek-R1", "--gpu", "H200", *flags)
    assert said.startswith(told)


def test_experts_of_a_dense_model() -> None:
    (said,) = refused("--model", "Llama-3.1-8B", "--gpu", "H200", "--tp", "2", "--ep", "2")
    assert said == "flag --ep: Llama-3.1-8B has no routed experts. Leave it away."


def test_gpus_alone_make_one_group_of_each_rank() -> None:
    found = answered(*R1, "--gpus", "16", "--dp", "8", "--ep", "16")
    assert (found["gpu"]["tensor_parallel_size"], found["gpu"]["count"]) == (2, 16)


# --- one use each -----------------------------------------------------------------------------------------------------------


def test_only_what_is_called_at_best_follows_the_upper_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replicas, prices, arms and notes rest on what is expected, whatever nothing real is above."""
    load = ("--requests-per-second", "20", "--input-tokens", "2000", "--output-tokens", "300")
    words = (*R1, "--tp", "1", "--dp", "8", "--ep", "8", "--price", "3", "--batches", "1,64,512", *load)
    before = answered(*words)
    real = bounds._fastest_rank
    monkeypatch.setattr(bounds, "_fastest_rank", lambda *arguments: 7 * real(*arguments))
    after = answered(*words)
    for one, other in zip(before["batches"], after["batches"], strict=True):
        assert other.pop("tokens_per_second_upper") == pytest.approx(7 * one.pop("tokens_per_second_upper"))
    assert before["replicas"] > 0
    assert before == after


def test_nothing_but_the_command_knows_the_upper_bound() -> None:
    """Neither limiter, ratios, cost split nor reference seconds can rest on it."""
    package = ROOT / "exporter/llm_serving_exporter"
    told = {"upper_tokens_per_second", "flops_upper", "bandwidth_upper_bytes_per_second", "bound_decode"}
    knowing = {
        str(path.relative_to(package))
        for path in package.rglob("*.py")
        if told & set(re.findall(r"\w+", path.read_text(encoding="utf-8")))
    }
    # where peaks come from may say the highest, too
    knowing = {path for path in knowing if not path.startswith(("facts/", "devices/"))}
    assert knowing == {
        "derive/planning.py", "model/hardware.py", "commands/ceiling/answer.py", "commands/ceiling/table.py",
    }  # fmt: skip
