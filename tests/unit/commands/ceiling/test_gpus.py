"""GPUs that `ceiling` is asked for: by name, this machine's through NVML (a stub below the real pynvml), how many."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.nvml_stub.stub import StubState, loaded_stub, stub_environment
from tests.support.builders.ceilings import answered, asked, refused, table
from tests.support.models.modelfolders import folder
from tests.support.rows import check_rows
from tests.support.waiting import PATIENCE_SECONDS

MODEL = ("--model", "Llama-3.1-8B")
GPU = ("--gpu", "H100")
BOTH = (*MODEL, *GPU)


# --- GPUs by name -----------------------------------------------------------------------------------------------------


@check_rows(
    "name",
    [
        "H100 SXM", "H100-SXM5-80GB", "NVIDIA H100 80GB HBM3", "h100", "H100", "nvidia-h100-80gb-hbm3", "H100 SXM 80GB", "H100 80GB",
        " h100  sxm5 ",
    ],
)  # fmt: skip
def test_one_gpu_in_the_forms_that_people_write(name: str) -> None:
    found = answered("Llama-3.1-8B", name)["gpu"]
    assert (found["name"], found["bandwidth_bytes_per_second"]) == ("H100 SXM 80GB", 3.35e12)
    assert found["flops_per_second"]["bf16"] == pytest.approx(989.4e12, rel=2e-4)
    assert found["flops_per_second"]["fp8"] == pytest.approx(1978.9e12, rel=2e-4)


@check_rows(
    ("name", "meant"),
    [("H100 PCIe", "H100 PCIe 80GB"), ("A100-SXM4-40GB", "A100 SXM 40GB"), ("NVIDIA A100-SXM4-80GB", "A100 SXM 80GB"),
     ("4090", "RTX 4090"), ("NVIDIA L40S", "L40S"), ("Tesla T4", "T4"), ("B200", "B200 180GB"), ("MI300X", "Instinct MI300X")],
)  # fmt: skip
def test_other_gpus(name: str, meant: str) -> None:
    assert answered("Llama-3.1-8B", name)["gpu"]["name"] == meant


@check_rows("name", ["8x H100", "H100 MIG 1g.10gb", "K80", "TPU v2", "x" * 10_000])
def test_gpus_that_are_not_there_name_the_nearest(name: str) -> None:
    (message,) = refused(*MODEL, "--gpu", name)
    assert message.startswith("flag --gpu: GPU '")
    assert "nearest: " in message
    assert len(message) < 500


# --- this machine's GPUs ----------------------------------------------------------------------------------------------


@pytest.fixture
def gpus(nvml_library: Path, tmp_path: Path) -> Iterator[StubState]:
    state = StubState(tmp_path / "state", gpus=2)
    with loaded_stub(nvml_library, state.path) as stub:
        yield state
        assert (stub.live_samples, stub.live_event_sets, stub.init_balance, stub.misuse) == (0, 0, 0, 0)


@check_rows("words", ["this one", "This  One", "this", "local"], shared=["gpus"])
def test_this_one_is_what_nvml_says(gpus: StubState, words: str) -> None:
    found = answered("Llama-3.1-8B", words)
    # 2 x 2619 MHz x 5120 bit / 8, this very board's clock
    assert found["gpu"]["bandwidth_bytes_per_second"] == 3.35232e12
    assert (found["gpu"]["bandwidth_origin"], found["gpu"]["name"]) == ("nvml", "H100 SXM 80GB")
    assert found["gpu"]["memory_bytes"] == 81559 << 20
    # one replica on one of the two
    assert found["gpu"]["count"] == 1
    assert answered("Llama-3.1-8B", words, "--memory", "40GB", "--tp", "2")["gpu"]["memory_bytes"] == 40 * 10**9


def test_this_one_of_different_gpus_is_the_lowest_of_each(gpus: StubState) -> None:
    gpus.set(
        "gpu1", name="NVIDIA A100-SXM4-80GB", pci_device_id=0x20B210DE, compute_capability="8.0", max_clock_memory=1593
    )
    found = answered("Llama-3.1-8B", "this one")["gpu"]
    assert found["name"] == "A100 SXM 80GB + H100 SXM 80GB (lowest of each)"
    assert found["bandwidth_bytes_per_second"] == 2 * 1593e6 * 5120 / 8
    assert found["flops_per_second"]["bf16"] == 312e12
    assert "fp8" not in found["flops_per_second"]


def test_this_one_under_mig_is_an_instance(gpus: StubState) -> None:
    gpus.count(1)
    gpus.mig(0, 0, "3g.40gb", 40448, gi=1)
    found = answered("Llama-3.1-8B", "this one")["gpu"]
    assert found["name"] == "H100 SXM 80GB MIG 3g.40gb"
    assert found["bandwidth_bytes_per_second"] == pytest.approx(3.35232e12 / 2)
    assert found["flops_per_second"]["bf16"] == pytest.approx(989.5e12 * 3 / 7)
    assert found["memory_bytes"] == 40448 << 20


def test_this_one_that_the_catalogue_does_not_know(gpus: StubState) -> None:
    gpus.count(1)
    gpus.set("gpu0", name="NVIDIA Future 9000", pci_device_id=0xFFFF10DE)
    found = answered(
        "Llama-3.1-8B", "this one", "--requests-per-second", "1", "--input-tokens", "5", "--output-tokens", "5"
    )
    assert found["gpu"]["flops_per_second"] == {}
    assert {each["bound"] for each in found["batches"]} == {"bandwidth"}
    assert {each["compute_tokens_per_second"] for each in found["batches"]} == {None}
    assert found["ridge_batch"] is found["first_token_floor_seconds"] is found["replicas"] is None
    assert found["notes"] == ["peak dense rate of NVIDIA Future 9000 at bf16 is not known: no compute ceiling"]
    load = ("--requests-per-second", "1", "--input-tokens", "5", "--output-tokens", "5")
    rows = table(*MODEL, "--gpu", "this one", *load)
    assert rows["peaks of one"] == "3.35 TB/s by nvml; dense rates unknown"
    assert rows["ridge batch"] == "– (a peak is not known)"
    assert rows["replicas"] == "– for 1 requests/s of 5 + 5 tokens: a peak is not known"
    gpus.drop("gpu0", "bus_width")
    nothing = answered("Llama-3.1-8B", "this one")
    assert (nothing["gpu"]["bandwidth_bytes_per_second"], nothing["batches"]) == (None, [])
    assert nothing["fit"]["max_batch"] > 0
    assert table(*MODEL, "--gpu", "this one")["peaks of one"] == "bandwidth unknown; dense rates unknown"
    encoder = answered("bge-m3", "this one", "--price", "1")["embedding"]
    assert encoder == {"tokens_per_second": None, "floor_seconds": None, "usd_per_million_tokens": None}
    gpus.drop("gpu0", "memory_total", "memory_used", "memory_reserved")
    assert refused(*MODEL, "--gpu", "this one") == [
        "flag --memory: it is missing, and the memory of NVIDIA Future 9000 is not known. Write one as in 80GB."
    ]
    assert answered("Llama-3.1-8B", "this one", "--memory", "100GB")["gpu"]["memory_bytes"] == 10**11


def test_this_one_without_gpus(gpus: StubState) -> None:
    gpus.count(0)
    assert refused(*MODEL, "--gpu", "this one") == [
        'flag --gpu: NVML shows no GPU on this machine. Name one, as in --gpu "H100 SXM".'
    ]


def test_this_one_that_fails_says_why(gpus: StubState) -> None:
    gpus.fail("sys", "nvmlInitWithFlags", 9)
    assert refused(*MODEL, "--gpu", "this one") == [
        "flag --gpu: the NVIDIA driver is not loaded on this machine, so that no GPU of it can be seen. "
        'Name one, as in --gpu "H100 SXM".'
    ]
    gpus.fail("sys", "nvmlInitWithFlags", 4)
    (message,) = refused(*MODEL, "--gpu", "this one")
    assert message.startswith("flag --gpu: no GPU of this machine can be seen: ")
    assert "gpu.enabled" not in message


@pytest.mark.process
@pytest.mark.seam("ceiling")
def test_this_one_where_there_is_no_library(tmp_path: Path) -> None:
    """A process of its own, whose loader finds no NVML; nothing of the daemon's configuration or log is in what it says."""
    (tmp_path / "libnvidia-ml.so.1").write_text("no library")
    environment = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path)}
    command = [sys.executable, "-m", "llm_serving_exporter", "ceiling", *MODEL, "--gpu", "this one"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False, env=environment
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "error: flag --gpu: NVIDIA's library libnvidia-ml.so.1 is not on this machine, so that no GPU of it can be seen. "
        'Name one, as in --gpu "H100 SXM".\n'
    )


@pytest.mark.process
def test_this_one_in_a_process_of_its_own(nvml_library: Path, tmp_path: Path) -> None:
    state = StubState(tmp_path / "state")
    environment = {**os.environ, **stub_environment(nvml_library, state.path)}
    command = [sys.executable, "-m", "llm_serving_exporter", "ceiling", *MODEL, "--gpu", "this one", "--json"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False, env=environment
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["gpu"]["bandwidth_bytes_per_second"] == 3.35232e12


# --- how many GPUs ----------------------------------------------------------------------------------------------------


@check_rows(
    ("words", "spread"),
    [
        ("", (1, 1, 1)),
        ("--tp 8", (8, 8, 1)),
        ("--gpus 8", (8, 8, 1)),
        ("--gpus 8 --pp 2", (8, 4, 2)),
        ("--pp 4", (4, 1, 4)),
        ("--tp 2 --pp 3", (6, 2, 3)),
        ("--gpus 6 --tp 2 --pp 3", (6, 2, 3)),
    ],
)
def test_gpus_tensor_and_pipeline(words: str, spread: tuple[int, int, int]) -> None:
    found = answered("Llama-3.1-8B", "H100", *words.split())["gpu"]
    assert (found["count"], found["tensor_parallel_size"], found["pipeline_parallel_size"]) == spread


@check_rows(
    ("text", "batches"),
    [("1,8,32", [1, 8, 32]), ("1, 8 ,32 ", [1, 8, 32]), ("8,1,8", [8, 1]), ("7", [7]), ("10000000", [10_000_000])],
)
def test_batches_are_answered_in_their_order_each_once(text: str, batches: list[int]) -> None:
    assert [each["batch"] for each in answered("Llama-3.1-8B", "H100", "--batches", text)["batches"]] == batches


@pytest.mark.process
def test_an_answer_that_nobody_takes_is_no_traceback() -> None:
    command = [sys.executable, "-m", "llm_serving_exporter", "ceiling", *BOTH]
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=PATIENCE_SECONDS, check=False
        )
    assert (done.returncode, done.stderr) == (1, "error: the answer cannot be written: No space left on device\n")
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as gone:
        done = subprocess.run(
            command, stdout=gone, stderr=subprocess.PIPE, text=True, timeout=PATIENCE_SECONDS, check=False
        )
    assert (done.returncode, done.stderr) == (1, "")


def test_the_same_question_has_the_same_answer() -> None:
    assert asked(*BOTH, "--json").out == asked(*BOTH, "--json").out


def test_help_is_grouped_and_its_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gpus: StubState) -> None:
    found = asked("--help")
    assert (found.status, found.err) == (0, "")
    groups = (
        "the model:",
        "the GPUs of one replica:",
        "the question:",
        "a load to serve:",
        "last week's load:",
        "examples:",
    )
    assert [group for group in groups if f"\n{group}" in found.out] == list(groups)
    examples = re.findall(r"^  llm-serving-exporter (ceiling .*)$", found.out, re.MULTILINE)
    # the fifth asks a Prometheus: tests/unit/commands/what_if
    assert ["--from-prometheus" in example for example in examples] == [False, False, False, False, True]
    monkeypatch.chdir(folder(tmp_path))
    for example in examples[:4]:
        done = asked(*shlex.split(example)[1:])
        assert (done.status, done.err) == (0, ""), example
