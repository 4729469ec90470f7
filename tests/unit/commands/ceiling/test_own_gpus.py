"""`ceiling` of cards that the catalogue does not have: described in a file, or by flags."""

from __future__ import annotations

from pathlib import Path

import pytest

from llm_serving_exporter.settings.problems import shown
from tests.support.builders.ceilings import answered, document, line, refused
from tests.support.rows import check_rows

MODEL = ("--model", "Llama-3.1-8B")
FLAGS = ("--memory", "96GB", "--gpu-bandwidth", "1.8TB/s", "--gpu-tflops", "bf16=400,fp8=800")


def described(tmp_path: Path, text: str) -> str:
    path = tmp_path / "gpus.yml"
    path.write_text(text)
    return str(path)


def test_a_card_by_flags() -> None:
    found = answered("Llama-3.1-8B", "Acme X1", *FLAGS, "--batches", "1,512", "--context", "1")
    assert (found["gpu"]["name"], found["gpu"]["memory_bytes"]) == ("Acme X1", 96 * 10**9)
    assert (found["gpu"]["bandwidth_bytes_per_second"], found["gpu"]["bandwidth_origin"]) == (1.8e12, "config")
    assert found["gpu"]["flops_per_second"] == {"bf16": 400e12, "fp8": 800e12}
    # 7.5e9 parameters of two bytes; of two FLOP
    assert line(found, 1)["bandwidth_tokens_per_second"] == pytest.approx(1.8e12 / (2 * 7_504_924_672), rel=1e-4)
    assert line(found, 512)["compute_tokens_per_second"] == pytest.approx(400e12 / (2 * 7_504_924_672), rel=1e-3)
    assert found["notes"] == []


def test_flags_beside_a_name_of_the_catalogue_replace_its_figures() -> None:
    found = answered("Llama-3.1-8B", "H100", "--gpu-bandwidth", "3TB/s")["gpu"]
    assert (found["bandwidth_bytes_per_second"], found["bandwidth_origin"]) == (3e12, "config")
    assert (found["flops_per_second"]["bf16"], found["memory_bytes"]) == (989.5e12, 81559 << 20)
    found = answered("Llama-3.1-8B", "MI308X", "--gpu-tflops", "bf16=200")["gpu"]
    assert (found["flops_per_second"], found["bandwidth_bytes_per_second"]) == ({"bf16": 200e12}, 5.3e12)


def test_a_card_by_a_file_that_may_be_the_daemons(tmp_path: Path) -> None:
    card = "{name: Acme X1, memory: 96GB, bandwidth: 1.8TB/s, tflops: {bf16: 400}, bandwidth_upper: 2TB/s}"
    daemon = described(tmp_path, f"gpu_models: [{card}]\ntargets: ['http://a:1']\n")
    found = document(*MODEL, "--gpu", "acme x1", "--gpu-spec", daemon, "--batches", "1")
    assert (found["gpu"]["name"], found["gpu"]["bandwidth_origin"]) == ("Acme X1", "config")
    it = line(found, 1)
    assert it["tokens_per_second_upper"] == pytest.approx(it["tokens_per_second"] * 2 / 1.8)
    assert found["notes"] == [
        "published of Acme X1: bandwidth 1800 to 2000 GB/s; tokens/s count the figures above, at best the highest"
    ]
    # the only one of a file needs no --gpu; a file may be one description, or a list of them
    assert document(*MODEL, "--gpu-spec", daemon, "--batches", "1") == found
    assert document(*MODEL, "--gpu-spec", described(tmp_path, card), "--batches", "1") == found
    assert document(*MODEL, "--gpu-spec", described(tmp_path, f"[{card}]"), "--batches", "1") == found


@check_rows(
    ("words", "told"),
    [
        (("--gpu", "Acme X1", "--gpu-bandwidth", "1.8"), 'flag --gpu-bandwidth: "1.8" has no unit. Write 1.8TB/s.'),
        (
            ("--gpu", "Acme X1", "--gpu-tflops", "400"),
            'flag --gpu-tflops: "400" is not a rate of fp32, bf16, fp8, int8, fp4.',
        ),
        (("--gpu", "Acme X1", "--gpu-tflops", "bf16=4e14"), 'flag --gpu-tflops: "4e14" is more than any GPU does.'),
        (
            ("--gpu", "Acme X1", "--gpu-bandwidth", "1TB/s"),
            "flag --memory: it is missing, and the catalogue does not know",
        ),
        (
            ("--gpu", "Acme X1", "--memory", "80GB", "--gpu-tflops", "bf16=4"),
            "flag --gpu-bandwidth: it is missing, and",
        ),
        (("--gpu", "this one", "--gpu-bandwidth", "1TB/s"), "flag --gpu: NVML says what this one is."),
        (("--gpu-bandwidth", "1TB/s"), "flag --gpu: it is missing."),
        (("--gpu", "H100", "--gpu-spec", "/nowhere.yml"), "/nowhere.yml: the file does not exist."),
    ],
)
def test_what_is_wrong_is_said(words: tuple[str, ...], told: str) -> None:
    messages = refused(*MODEL, *words)
    assert any(told in message for message in messages), messages


def test_a_file_that_is_wrong_says_where_and_nothing_of_the_name(tmp_path: Path) -> None:
    path = described(tmp_path, "gpu_models: [{name: Acme X1, memory: 96GB, bandwidth: 3.35}]")
    assert refused(*MODEL, "--gpu", "Acme X1", "--gpu-spec", path) == [
        f'{path}: gpu_models[0].bandwidth: "3.35" has no unit. Write 3.35TB/s.'
    ]
    empty = described(tmp_path, "gpu_models: []")
    assert refused(*MODEL, "--gpu", "H100", "--gpu-spec", empty) == [
        f"flag --gpu-spec: {shown(empty)} describes no GPU. Write gpu_models: as in docs/ceiling-command.md."
    ]


def test_what_is_published_beside_a_figure_is_said_and_at_best() -> None:
    """B300: FP4 at 12,600 to 15,000 TFLOP/s, depending on whose page it is."""
    found = answered("Llama-3.1-8B", "B300", "--dtype", "nvfp4", "--batches", "1,8192", "--context", "1")
    assert found["notes"][0].startswith(
        "published of B300 288GB: bandwidth 7750 to 8000 GB/s, fp4 12600 to 15000 TFLOP/s; tokens/s count the figures above"
    )
    assert found["gpu"]["flops_per_second"]["fp4"] == 14e15
    many = line(found, 8192)
    assert many["bound"] == "compute"
    assert many["tokens_per_second_upper"] > many["tokens_per_second"] * 1.04


@check_rows(
    ("gpu", "bandwidth", "rates"),
    [
        ("MI300X", 5.3e12, {"fp32", "bf16", "fp8", "int8"}),
        ("TPU v6e", 1.638e12, {"bf16", "fp8", "int8"}),
        ("Trainium2", 2.9e12, {"fp32", "bf16", "fp8"}),
        ("Gaudi 3", 3.7e12, {"bf16", "fp8"}),
        ("GB10", 273e9, {"fp32", "bf16", "fp8", "fp4"}),
        ("Apple M4 Max", 546e9, set()),
        ("Jetson AGX Orin", 204.8e9, {"fp32", "bf16", "int8"}),
    ],
)
def test_devices_that_nvml_does_not_see(gpu: str, bandwidth: float, rates: set[str]) -> None:
    """Without a compute capability the formats are those that have a rate."""
    found = answered("Llama-3.2-1B", gpu, "--dtype", "fp8", "--batches", "1")
    assert found["gpu"]["bandwidth_bytes_per_second"] == bandwidth
    assert set(found["gpu"]["flops_per_second"]) == rates
    assert found["fit"]["refusals"] == []
    without = any("has no fp8 rate" in note for note in found["notes"])
    assert without == (bool(rates) and "fp8" not in rates)


@check_rows(
    ("gpu", "refused_bf16"),
    [("V100", True), ("T4", True), ("P100", True), ("Quadro RTX 8000", True), ("A2", False), ("MI210", False)],
)
def test_bf16_is_refused_where_a_card_has_fp16_alone(gpu: str, refused_bf16: bool) -> None:
    assert bool(answered("Llama-3.2-1B", gpu, "--batches", "1")["fit"]["refusals"]) == refused_bf16
    assert answered("Llama-3.2-1B", gpu, "--dtype", "fp16", "--batches", "1")["fit"]["refusals"] == []
