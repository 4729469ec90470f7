"""CONTRIBUTING's steps for a new configuration key, followed to the letter on a copy of the package."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from tests.support.paths import ROOT

TEXT = (ROOT / "CONTRIBUTING.md").read_text()
PRINT = """
import argparse, json, os, sys
from llm_serving_exporter.settings.config import effective
from llm_serving_exporter.settings.load import load
from llm_serving_exporter.settings.sources import add_flags
from llm_serving_exporter.daemon.service import Service
from llm_serving_exporter.errors import ConfigError

parser = argparse.ArgumentParser(allow_abbrev=False)
add_flags(parser)
found = []
for flags, environ in json.loads(sys.argv[1]):
    try:
        config = load(parser.parse_args(flags), {**os.environ, **environ})
    except ConfigError as error:
        found.append({"refused": str(error)})
        continue
    service = Service(config, lambda: config, lambda _config: None)
    stale = service._setup().gpu_stale_after_seconds
    found.append({"shown": effective(config)["gpu"], "hash": config.config_hash, "gpu_stale_after_seconds": stale})
print(json.dumps(found))
"""


def changes() -> list[tuple[str, str, str]]:
    """The diffs of the section: file, the lines before, the lines after."""
    section = TEXT[TEXT.index("**Add a configuration key.**") : TEXT.index("**Add a row for a runtime.**")]
    found = []
    for block in re.findall(r"```diff\n(.*?)```", section, re.DOTALL):
        head, *lines = dedent(block).splitlines()
        before = [line[1:] for line in lines if not line.startswith("+")]
        after = [line[1:] for line in lines if not line.startswith("-")]
        found.append((head.removeprefix("@@ "), "\n".join(before), "\n".join(after)))
    return found


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("contributed")
    package = folder / "exporter" / "llm_serving_exporter"
    shutil.copytree(ROOT / "exporter" / "llm_serving_exporter", package, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "docs").mkdir()
    shutil.copy(ROOT / "docs" / "configuration.md", folder / "docs")
    for name, before, after in changes():
        text = (folder / name).read_text()
        assert text.count(before) == 1, name
        (folder / name).write_text(text.replace(before, after))
    return folder


def run(copy: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "PYTHONPATH": str(copy / "exporter")}
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, env=environ, cwd=copy, check=False)


Words = tuple[list[str], dict[str, str]]


def load(copy: Path, *given: Words) -> list[dict[str, Any]]:
    """What comes of each of these flags and variables, all in one process."""
    common = ["--target", "a:1", "--web.listen-address", "127.0.0.1:0"]
    done = run(copy, "-c", PRINT, json.dumps([([*common, *flags], environ) for flags, environ in given]))
    assert done.returncode == 0, done.stderr
    return list(json.loads(done.stdout))


def refusals(copy: Path, *given: Words) -> list[str]:
    return [found["refused"] for found in load(copy, *given)]


def file(folder: Path, text: str) -> str:
    path = folder / "config.yml"
    path.write_text(text)
    return str(path)


def test_two_files_are_changed() -> None:
    assert [name.rpartition("/")[2] for name, _, _ in changes()] == ["config.py", "service.py"]


@pytest.mark.process
def test_file_variable_and_flag_set_it_and_the_code_uses_it(copy: Path, tmp_path: Path) -> None:
    config = ["--config.file", file(tmp_path, "gpu: {stale_intervals: 4}\n")]
    variable = {"LLM_SERVING_EXPORTER_GPU_STALE_INTERVALS": "5"}
    found = load(copy, ([], {}), (config, {}), (config, variable), ([*config, "--gpu.stale-intervals=6"], variable))
    assert [one["shown"]["stale_intervals"] for one in found] == [3, 4, 5, 6]
    # of 5 s each
    assert [one["gpu_stale_after_seconds"] for one in found] == [15.0, 20.0, 25.0, 30.0]
    assert found[0]["hash"] != found[1]["hash"]


@pytest.mark.process
def test_a_value_out_of_bounds_is_refused_wherever_it_is_written(copy: Path, tmp_path: Path) -> None:
    path = file(tmp_path, "gpu: {stale_intervals: 1}\n")
    fault = "1 is out of range. Write a whole number from 2 to 100."
    variable = "LLM_SERVING_EXPORTER_GPU_STALE_INTERVALS"
    written = (["--config.file", path], {}), (["--gpu.stale-intervals", "1"], {}), ([], {variable: "1"})
    assert refusals(copy, *written) == [
        f"{path}: gpu.stale_intervals: {fault}",
        f"flag --gpu.stale-intervals: {fault}",
        f"environment variable {variable}: {fault}",
    ]


@pytest.mark.process
def test_a_near_name_is_suggested(copy: Path, tmp_path: Path) -> None:
    path = file(tmp_path, "gpu: {stale_interval: 4}\n")
    of_file, near = refusals(
        copy, (["--config.file", path], {}), ([], {"LLM_SERVING_EXPORTER_GPU_STALE_INTERVAL": "4"})
    )
    assert of_file == f"{path}: gpu.stale_interval: this key is not known. Did you mean stale_intervals?"
    assert near.endswith("no option has this name. Did you mean LLM_SERVING_EXPORTER_GPU_STALE_INTERVALS?")


@pytest.mark.process
def test_help_and_reference_have_it(copy: Path) -> None:
    assert "LLM_SERVING_EXPORTER_GPU_STALE_INTERVALS" in run(copy, "-m", "llm_serving_exporter", "--help").stdout
    stale = run(copy, "-m", "llm_serving_exporter.docgen.generate", "--check")
    assert stale.returncode == 1
    assert "docs/configuration.md" in stale.stderr
    assert run(copy, "-m", "llm_serving_exporter.docgen.generate", "--write").returncode == 0
    row = "| `--gpu.stale-intervals` | `gpu.stale_intervals` | `3` | How many intervals a GPU's values stay when NVML no longer answers. |"
    assert row in (copy / "docs/configuration.md").read_text()
