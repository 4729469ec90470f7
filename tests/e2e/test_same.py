"""The collector of `make same` over this very tree: its outputs come from the tree alone, and each kind of change is told with its file."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.same.__main__ import PARTS
from tests.same.compare import compare_folders
from tests.same.trees import SOURCE_ROOTS
from tests.support.paths import ROOT

pytestmark = pytest.mark.e2e

NO_SOURCES = shutil.ignore_patterns(".git", ".venv*", "*_cache", ".hypothesis", "build", "dist", "__pycache__")
# file, what stands there, what takes its place; and the outputs that say so, of parts that take a second or so
CHANGES = {
    "a message": (
        "exporter/llm_serving_exporter/fetch/connect.py",
        "nothing listens on {where}",
        "nobody listens on {where}",
        ("daemon/web/target-gone.txt",),
    ),
    "a HELP text": (
        "exporter/llm_serving_exporter/catalogue/serving.py",
        "Requests that are waiting to run now.",
        "Requests that queue.",
        ("generated/METRICS.md", "daemon/otlp/request.txt"),
    ),
    "a log line": (
        "exporter/llm_serving_exporter/daemon/jobs.py",
        '"configuration reloaded, %s"',
        '"configuration read again, %s"',
        ("daemon/log.logfmt",),
    ),
    "a board's title": (
        "dashboards/llm_serving_dashboards/kv.py",
        "LLM serving: KV cache and long contexts",
        "LLM serving: KV cache, long contexts",
        ("generated/dashboards/rendered/llm-serving-kv.json",),
    ),
    "a flag's help": (
        "exporter/llm_serving_exporter/cli.py",
        "time between the two samples",
        "time from one sample to the other",
        ("help/once.txt",),
    ),
    "the order of labels": (
        "exporter/llm_serving_exporter/expose/families.py",
        "for name in sorted((*shared, *own)):",
        "for name in sorted((*shared, *own), key=lambda one: (one in own, one)):",
        ("kubernetes/metrics.txt", "daemon/pages/tick-10.openmetrics"),
    ),
}


def collect(root: Path, folder: Path, parts: Iterable[str] = PARTS, **environ: str) -> Path:
    """Outputs of the tree at `root`, made by a process with this environment."""
    roots = os.pathsep.join(str(root / name) for name in SOURCE_ROOTS)
    command = [sys.executable, "-m", "tests.same", "collect", str(folder), *parts]
    done = subprocess.run(
        command, cwd=root, env={**os.environ, **environ, "PYTHONPATH": roots}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return collect(ROOT, tmp_path_factory.mktemp("here"), PYTHONHASHSEED="1", COLUMNS="60", TZ="America/New_York")


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """This tree elsewhere."""
    found = tmp_path_factory.mktemp("elsewhere") / "a folder with a longer name"
    return Path(shutil.copytree(ROOT, found, ignore=NO_SOURCES))


def test_outputs_come_from_the_tree_alone(here: Path, copy: Path, tmp_path: Path) -> None:
    """Not from the folder, the hash seed, the terminal's width, the zone, the home folder, the language or what is in the environment."""
    other = tmp_path / "tmp"
    other.mkdir()
    there = collect(
        copy,
        tmp_path / "there",
        PYTHONHASHSEED="2",
        COLUMNS="200",
        TZ="Asia/Tokyo",
        HOME=str(tmp_path),
        LANG="tr_TR.UTF-8",
        TMPDIR=str(other),
        NODE_NAME="some-node",
        LLM_SERVING_EXPORTER_LOG_FORMAT="json",
    )
    assert {path.name for path in here.iterdir()} == set(PARTS)
    assert compare_folders(here, there) == []


def test_each_kind_of_change_is_told_with_its_file(here: Path, copy: Path, tmp_path: Path) -> None:
    for name, (file, before, after, _told) in CHANGES.items():
        text = (copy / file).read_text(encoding="utf-8")
        assert text.count(before) == 1, name
        (copy / file).write_text(text.replace(before, after), encoding="utf-8")
    parts = {one.partition("/")[0] for *_, told in CHANGES.values() for one in told}
    changed = collect(copy, tmp_path / "changed", [part for part in PARTS if part in parts])
    found = [one.name for one in compare_folders(here, changed)]
    for name, (_file, _before, _after, told) in CHANGES.items():
        for wanted in told:
            assert [one for one in found if one.startswith(wanted)], (name, wanted)
