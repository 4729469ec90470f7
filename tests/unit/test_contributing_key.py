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

import pytest

from tests.support.paths import ROOT

TEXT = (ROOT / "CONTRIBUTING.md").read_text()
PRINT = """
import argparse, json, os, sys
from llm_serving_exporter.config.effective import effective
from llm_serving_exporter.config.load import load
from llm_serving_exporter.config.options import add_flags
from llm_serving_exporter.daemon.service import Service
from llm_serving_exporter.errors import ConfigError

parser = argparse.ArgumentParser(allow_abbrev=False)
add_flags(parser)
try:
    config = load(parser.parse_args(sys.argv[1:]), os.environ)
except ConfigError as error:
    sys.exit(str(error))
service = Service(config, lambda: config, lambda _config: None)
stale = service._setup().gpu_stale_after_seconds
print(json.dumps({"shown": effective(config)["gpu"], "hash": config.config_hash, "gpu_stale_after_seconds": stale}))
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


def run(copy: Path, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "PYTHONPATH": str(copy / "exporter"), **environ}
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, env=environ, cwd=copy, check=False)


def load(copy: Path, *flags: str, **environ: str) -> dict[str, object]:
    done = run(copy, "-c", PRINT, "--target", "a:1", "--web.listen-address", "127.0.0.1:0", *flags, **environ)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def refusal(copy: Path, *flags: str, **environ: str) -> str:
    done = run(copy, "-c", PRINT, "--target", "a:1", *flags, **environ)
    assert done.returncode == 1, done.stdout
    return done.stderr.strip()


def file(folder: Path, text: str) -> str:
    path = folder / "config.yml"
    path.write_text(text)
    return str(path)


def test_two_files_are_changed() -> None:
    assert [name.rpartition("/")[2] for name, _, _ in changes()] == ["types.py", "service.py"]


def test_file_variable_and_flag_set_it_and_the_code_uses_it(copy: Path, tmp_path: Path) -> None:
    config = ("--config.file", file(tmp_path, "gpu: {stale_intervals: 4}\n"))
    variable = {"LLM_SERVING_EXPORTER_GPU_STALE_INTERVALS": "5"}
    by_default, by_file = load(copy), load(copy, *config)
    found = [
        by_default, by_file, load(copy, *config, **variable), load(copy, *config, "--gpu.stale-intervals=6", **variable)
    ]  # fmt: skip
    assert [one["shown"]["stale_intervals"] for one in found] == [3, 4, 5, 6]
    # of 5 s each
    assert [one["gpu_stale_after_seconds"] for one in found] == [15.0, 20.0, 25.0, 30.0]
    assert by_default["hash"] != by_file["hash"]


def test_a_value_out_of_bounds_is_refused_wherever_it_is_written(copy: Path, tmp_path: Path) -> None:
    path = file(tmp_path, "gpu: {stale_intervals: 1}\n")
    fault = "1 is out of range. Write a whole number from 2 to 100."
    assert refusal(copy, "--config.file", path) == f"{path}: gpu.stale_intervals: {fault}"
    assert refusal(copy, "--gpu.stale-intervals", "1") == f"flag --gpu.stale-intervals: {fault}"
    variable = "LLM_SERVING_EXPORTER_GPU_STALE_INTERVALS"
    assert refusal(copy, **{variable: "1"}) == f"environment variable {variable}: {fault}"


def test_a_near_name_is_suggested(copy: Path, tmp_path: Path) -> None:
    path = file(tmp_path, "gpu: {stale_interval: 4}\n")
    said = f"{path}: gpu.stale_interval: this key is not known. Did you mean stale_intervals?"
    assert refusal(copy, "--config.file", path) == said
    near = refusal(copy, LLM_SERVING_EXPORTER_GPU_STALE_INTERVAL="4")
    assert near.endswith("no option has this name. Did you mean LLM_SERVING_EXPORTER_GPU_STALE_INTERVALS?")


def test_help_and_reference_have_it(copy: Path) -> None:
    assert "LLM_SERVING_EXPORTER_GPU_STALE_INTERVALS" in run(copy, "-m", "llm_serving_exporter", "--help").stdout
    stale = run(copy, "-m", "llm_serving_exporter.docgen.generate", "--check")
    assert stale.returncode == 1
    assert "docs/configuration.md" in stale.stderr
    assert run(copy, "-m", "llm_serving_exporter.docgen.generate", "--write").returncode == 0
    row = "| `--gpu.stale-intervals` | `gpu.stale_intervals` | `3` | How many intervals a GPU's values stay when NVML no longer answers. |"
    assert row in (copy / "docs/configuration.md").read_text()
