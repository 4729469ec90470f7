"""CONTRIBUTING's steps for a new model family, followed to the letter on a copy of the package."""

from __future__ import annotations

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


def block(language: str) -> str:
    section = TEXT[TEXT.index("**Add a model family.**") :]
    written = re.search(rf"```{language}\n(.*?)```", section, re.DOTALL)
    assert written is not None
    return dedent(written[1])


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package as it is, and the guide's test."""
    folder = tmp_path_factory.mktemp("contributed")
    package = folder / "exporter" / "llm_serving_exporter"
    shutil.copytree(ROOT / "exporter" / "llm_serving_exporter", package, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "acme.py").write_text(block("python") + "\n\ntest_acme_has_the_parameters_that_its_makers_publish()\n")
    return folder


def run(copy: Path) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "PYTHONPATH": str(copy / "exporter")}
    return subprocess.run(
        [sys.executable, "acme.py"], capture_output=True, text=True, env=environ, cwd=copy, check=False
    )


@pytest.mark.process
def test_rows_and_a_test_are_all_that_a_family_needs(copy: Path) -> None:
    before = run(copy)
    assert "model_type is 'acme', which no formula here covers" in before.stderr
    head, *lines = block("diff").splitlines()
    module = copy / head.removeprefix("@@ ")
    (anchor,) = (line[1:] for line in lines if not line.startswith("+"))
    text = module.read_text()
    assert text.count(anchor) == 1
    module.write_text(text.replace(anchor, "\n".join(line[1:] for line in lines)))
    after = run(copy)
    assert (after.returncode, after.stderr) == (0, "")
