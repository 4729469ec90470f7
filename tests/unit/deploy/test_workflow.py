"""The workflow of the forge: what it runs are our own targets, and actionlint has nothing against it."""

from __future__ import annotations

import re
import subprocess
from typing import Any

import pytest

from tests.support.helm import find_tool
from tests.support.paths import ROOT
from tests.support.waiting import PATIENCE_SECONDS
from tests.support.yaml_text import load_yaml

FILE = ROOT / ".github/workflows/ci.yml"
WORKFLOW: dict[Any, Any] = load_yaml(FILE.read_text())
# of the job that has never run here
UNPROVEN = "image"


def test_every_step_is_a_target_of_ours_but_of_the_one_job_that_says_that_it_is_unproven() -> None:
    targets = set(re.findall(r"^([a-z0-9-]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE))
    ran = [(name, step["run"]) for name, job in WORKFLOW["jobs"].items() for step in job["steps"] if "run" in step]
    assert {run.removeprefix("make ") for name, run in ran if name != UNPROVEN} <= targets
    assert [run.split(" ")[0] for name, run in ran if name == UNPROVEN] == [".ci/release"]
    assert re.search(rf"# unproven: .*\n  {UNPROVEN}:\n", FILE.read_text())


def test_it_does_what_a_clean_machine_must_pass() -> None:
    done = {step.get("run") for job in WORKFLOW["jobs"].values() for step in job["steps"]}
    listed = re.findall(r"^make_all (.*)$", (ROOT / ".ci/run").read_text(), re.MULTILINE)
    assert len(listed) == 4
    assert {f"make {target}" for target in " ".join(listed[1:]).split()} <= done
    assert {"make audit", "make dist", "make deb", "make sbom"} <= done


def test_only_the_release_may_write_and_each_job_ends() -> None:
    assert WORKFLOW["permissions"] == {"contents": "read"}
    for name, job in WORKFLOW["jobs"].items():
        assert "permissions" not in job or name == UNPROVEN
        assert 0 < job["timeout-minutes"] <= 60
    assert set(WORKFLOW["jobs"][UNPROVEN]["needs"]) == set(WORKFLOW["jobs"]) - {UNPROVEN}


def test_it_tests_the_pythons_that_the_package_names() -> None:
    classifiers = re.findall(r'"Programming Language :: Python :: (3\.\d+)"', (ROOT / "pyproject.toml").read_text())
    assert WORKFLOW["jobs"]["test"]["strategy"]["matrix"]["python"] == classifiers


@pytest.mark.packages
def test_actionlint_finds_nothing() -> None:
    actionlint = find_tool("actionlint")
    if actionlint is None:
        pytest.skip("no actionlint on PATH; `make test-packages` builds it where Go is installed")
    done = subprocess.run(
        [actionlint, str(FILE)], capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
