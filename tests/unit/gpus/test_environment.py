"""GPUs that an engine's environment names: real processes, and a written /proc for what cannot be read."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from llm_serving_exporter.gpus.processes import find_environment_gpus
from tests.support.builders.procfolders import Process, write_proc_folder
from tests.support.rows import check_rows
from tests.support.waiting import PATIENCE_SECONDS

ONE, TWO = (f"GPU-0a1b2c3d-0000-4000-8000-00000000000{n}" for n in (1, 2))
SLICE = "MIG-0a1b2c3d-0000-4000-8000-000000000003"


@check_rows(
    ("given", "taken", "found"),
    [
        (ONE, None, (ONE,)),
        (f"{TWO},{ONE}", None, (ONE, TWO)),
        (f" {ONE} , {TWO} ", None, (ONE, TWO)),
        (SLICE, None, (SLICE,)),
        ("all", None, ()),
        ("void", None, ()),
        ("none", None, ()),
        ("", None, ()),
        (None, None, ()),
        ("0,1", None, ()),
        # a part of a UUID may be another card's
        ("GPU-0a1b2c3d", None, ()),
        (f"{ONE},1", None, ()),
        # which of them the process takes
        (f"{ONE},{TWO}", TWO, (TWO,)),
        ("all", TWO, (TWO,)),
        (f"{ONE},{TWO}", "0,1", (ONE, TWO)),
        (f"{ONE},{TWO}", "1", ()),
        (f"{ONE},{TWO}", "0,0", ()),
        (ONE, "0", (ONE,)),
        ("all", "0", ()),
        # a process that is to see none: an engine on the CPU beside a GPU
        (f"{ONE},{TWO}", "", ()),
        (ONE, "", ()),
        (ONE, "-1", ()),
        (ONE, "NoDevFiles", ()),
        (ONE, "1", ()),
        (f"{ONE},{TWO}", "1,0", (ONE, TWO)),
        (f"{ONE},{TWO}", "0,-1", ()),
        # every card of the node by name, as a container that was given no card of its own may say it
        (f"{ONE},all", None, ()),
        (f"{ONE},", None, ()),
    ],
)
def test_only_full_uuids_say_something(
    tmp_path: Path, given: str | None, taken: str | None, found: tuple[str, ...]
) -> None:
    words = {"NVIDIA_VISIBLE_DEVICES": given, "CUDA_VISIBLE_DEVICES": taken, "NVIDIA_VISIBLE_DEVICES_BEFORE": SLICE}
    environment = {name: value for name, value in words.items() if value is not None}
    root = write_proc_folder(tmp_path, Process(7, environment=environment))
    assert find_environment_gpus([7], root) == found


def test_the_workers_of_an_engine_add_up(tmp_path: Path) -> None:
    root = write_proc_folder(
        tmp_path,
        Process(7, environment={"NVIDIA_VISIBLE_DEVICES": "all"}),
        Process(8, environment={"CUDA_VISIBLE_DEVICES": ONE}),
        Process(9, environment={"CUDA_VISIBLE_DEVICES": TWO}),
        Process(10, environment={"CUDA_VISIBLE_DEVICES": SLICE}, readable=False),
    )
    assert find_environment_gpus([7, 8, 9, 10, 11], root) == (ONE, TWO)


def test_nothing_else_of_the_environment_gets_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    secret = "hunter2"  # the canary
    root = write_proc_folder(
        tmp_path, Process(7, environment={"HF_TOKEN": secret, "NVIDIA_VISIBLE_DEVICES": f"{ONE},{secret}"})
    )
    assert secret not in repr(find_environment_gpus([7], root)) + caplog.text
    (root / "7/environ").write_bytes(b"\xff\xfe=\0" * 10 + b"NVIDIA_VISIBLE_DEVICES=" + ONE.encode())
    assert find_environment_gpus([7], root) == (ONE,)


@pytest.mark.process
def test_a_real_process() -> None:
    environment = {**os.environ, "NVIDIA_VISIBLE_DEVICES": ONE}
    environment.pop("CUDA_VISIBLE_DEVICES", None)
    command = [sys.executable, "-c", "print(flush=True); input()"]
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            process.stdout.readline()
            assert find_environment_gpus([process.pid]) == (ONE,)
        finally:
            process.communicate(b"\n", timeout=PATIENCE_SECONDS)
