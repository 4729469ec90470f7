"""CONTRIBUTING's steps for a new runtime, followed to the letter on a copy of the package."""

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

from llm_serving_simulator.replay import Recording
from tests.support.paths import ROOT
from tests.support.servers.replica import Replica

pytestmark = pytest.mark.process

TEXT = (ROOT / "CONTRIBUTING.md").read_text()


def blocks(language: str) -> list[str]:
    section = TEXT[TEXT.index("**Add a runtime.**") : TEXT.index("**Test on a GPU.**")]
    return [dedent(found) for found in re.findall(rf"```{language}\n(.*?)```", section, re.DOTALL)]


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package with the table and its line in the order, and nothing else changed by hand."""
    folder = tmp_path_factory.mktemp("contributed")
    package = folder / "exporter" / "llm_serving_exporter"
    shutil.copytree(ROOT / "exporter" / "llm_serving_exporter", package, ignore=shutil.ignore_patterns("__pycache__"))
    # it has words of its own between its tables
    (folder / "docs").mkdir()
    shutil.copy(ROOT / "docs" / "configuration.md", folder / "docs")
    (table,), (line,) = blocks("yaml"), blocks("diff")
    (package / "engines" / "tables" / "acme.yml").write_text(table)
    tables = package / "docgen" / "tables.py"
    before = tables.read_text()
    tables.write_text(before.replace("ORDER = (\n", f"ORDER = (\n{line.removeprefix('+')}"))
    assert tables.read_text() != before
    done = run(folder, "-m", "llm_serving_exporter.docgen.tables", "--write")
    assert done.returncode == 0, done.stderr
    return folder


def run(copy: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "PYTHONPATH": str(copy / "exporter")}
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, env=environ, cwd=copy, check=False)


def capture(folder: Path) -> Recording:
    """The page of CONTRIBUTING as a recording, packed by the script that it names."""
    run_folder = folder / "acme-2.1"
    run_folder.mkdir(exist_ok=True)
    (run_folder / "0000.prom").write_text(blocks("text")[0])
    (run_folder / "timestamps.tsv").write_text("index\tunix\tseconds\tstatus\n0\t1795000000.0\t0.001\t200\n")
    packed = folder / "acme-2.1.tar.xz"
    subprocess.run([sys.executable, ROOT / "scripts" / "pack_recordings.py", run_folder, packed], check=True)
    return Recording.load(packed)


def test_the_new_runtime_is_recognised_and_read(copy: Path, tmp_path: Path) -> None:
    page = capture(tmp_path).pages[0]
    with Replica({"/metrics": page}) as server:
        done = run(
            copy,
            "-m",
            "llm_serving_exporter",
            "once",
            "--target",
            server.url,
            "--json",
            "--wait",
            "100ms",
            "--no-gpu.enabled",
        )
    assert done.returncode == 0, done.stderr
    reading = json.loads(done.stdout)
    assert (reading["runtime"], reading["state"]) == ("acme", "ready")
    engine = reading["engines"][0]
    counted = {
        "prompt_tokens_total": 1200.0, "prefill_tokens_total": 1000.0, "cached_prompt_tokens_total": 200.0, "decode_tokens_total": 640.0,
        "requests_running": 3.0, "requests_waiting": 1.0,
    }  # fmt: skip
    assert {name: engine[name] for name in counted} == counted
    first_token = engine["time_to_first_token_seconds"]
    assert (first_token["edges"], first_token["cumulative"]) == ([0.1, 1.0], [7.0, 9.0])
    assert first_token["sum"] == pytest.approx(1.45)
    assert reading["signals"]["kv_cache_usage_ratio"] == "not_exported"


@pytest.mark.e2e
def test_it_stands_in_the_support_matrix(copy: Path) -> None:
    done = run(copy, "-m", "llm_serving_exporter.docgen.generate", "--write")
    assert done.returncode == 0, done.stderr
    written = (copy / "docs" / "runtimes.md").read_text()
    assert "[ACME Serve](#acme-serve)" in written
    assert "- `inter_token_latency_seconds`: its page has a mean only\n" in written


def test_the_checks_say_what_is_still_amiss(copy: Path) -> None:
    script = (
        "from llm_serving_exporter.engines.check import faults\n"
        "from llm_serving_exporter.engines.registry import RUNTIMES\n"
        "print(*faults(RUNTIMES['acme']), sep='\\n')"
    )
    done = run(copy, "-c", script)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == ""
