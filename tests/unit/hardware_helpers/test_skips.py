"""The hardware tests themselves, run over a stub of NVML: what they say where a machine cannot show what they test."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.nvml_stub.stub import StubState, stub_environment
from tests.support.paths import ROOT
from tests.support.quick import keep_quick
from tests.support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.process

TEST = "tests/hardware/test_roofline.py::test_copied_bytes_and_gpm_give_the_same_ratio"


def run(environment, test=TEST):
    command = [sys.executable, "-m", "pytest", "-m", "hardware", "-q", "-p", "no:cacheprovider", test]
    return subprocess.run(
        command, cwd=ROOT, env={**os.environ, "COLUMNS": "1000", **environment}, capture_output=True, text=True,
        timeout=PATIENCE_SECONDS, check=False,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("card", "says"),
    keep_quick(
        [
            (
                "ampere",
                "GPM, which Hopper and newer have, measures nothing here (NVIDIA A100-SXM4-80GB: not_supported)",
            ),
            ("mig", "every GPU here is in MIG mode"),
            ("busy", "something else works on every GPU here"),
            ("full", "the loops need 9 GiB of GPU memory, which is held by something else"),
        ],
        lambda one: one[0] == "mig",
    ),
)
def test_a_card_that_cannot_show_it_is_skipped_with_its_reason(nvml_library, tmp_path, card, says):
    state = StubState(tmp_path / "state.txt")
    state.update("gpu0", {"gpm:2": 0.5})
    if card == "ampere":
        state.update(
            "gpu0", {"name": "NVIDIA A100-SXM4-80GB", "architecture": 7, "compute_capability": "8.0", "gpm": 0}
        )
    elif card == "mig":
        state.mig(0, 0, "1g.10gb", 9856, gi=9)
    elif card == "busy":
        state.update("gpu0", {"gpm:2": 40.0})
    else:
        state.set("gpu0", memory_used=75_000 << 20)
    done = run(stub_environment(nvml_library, state.path))
    assert done.returncode == 0, done.stdout
    assert says in done.stdout
    assert "1 skipped" in done.stdout


@pytest.mark.parametrize(
    ("gpus", "url", "status", "says"),
    [
        (1, "", 0, "LLM_ENGINE_URL is not set"),
        (0, "http://127.0.0.1:9", 1, "these tests need a real NVIDIA GPU: GPU 0: Invalid Argument"),
    ],
)
def test_an_engine_is_asked_for_and_then_a_gpu(nvml_library, tmp_path, gpus, url, status, says):
    state = StubState(tmp_path / "state.txt", gpus)
    done = run({**stub_environment(nvml_library, state.path), "LLM_ENGINE_URL": url}, "tests/hardware/test_engine.py")
    assert done.returncode == status, done.stdout
    assert says in done.stdout


def test_a_gpu_that_cuda_cannot_use_is_a_failure_not_a_skip(nvml_library, tmp_path):
    state = StubState(tmp_path / "state.txt")
    state.update("gpu0", {"gpm:2": 0.5})
    done = run({**stub_environment(nvml_library, state.path), "CUDA_VISIBLE_DEVICES": ""})
    assert done.returncode == 1
    assert "NVML shows this GPU, but the copy loop cannot run on it" in done.stdout
    assert "NVIDIA_DRIVER_CAPABILITIES with compute" in done.stdout
