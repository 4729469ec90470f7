"""Which tests may start a program, and which of those are quick."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import ROOT, TESTS

CONFTEST = """
from tests.support.programs import ProgramWatch

def pytest_configure(config):
    config.addinivalue_line("markers", "process: starts a program")
    config.pluginmanager.register(ProgramWatch())
"""
PAGE = """
import subprocess, sys
import pytest

def start():
    subprocess.run([sys.executable, "-c", ""], check=True)

def test_alone():
    pass

def test_unsaid():
    start()

@pytest.mark.process
def test_said():
    start()

@pytest.fixture(scope="module")
def started():
    start()

def test_shared(started):
    pass

def test_shared_later(started):
    pass
"""
# where this product meets programs of others, and its own as users start them
SEAMS = {
    "Alertmanager", "Chromium", "NVML", "Prometheus", "VictoriaMetrics", "amtool", "commands", "daemon", "demo", "kubectl",
    "promtool", "promtool and vmalert", "systemd",
}  # fmt: skip


@pytest.mark.process
def test_a_test_that_starts_a_program_and_does_not_say_so_fails_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_page.py").write_text(PAGE)
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "-rA", "--rootdir", str(tmp_path), str(tmp_path)],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    told = re.findall(r"ERROR at teardown of (\w+) _+\nit starts (\S+): mark it `process`", ran.stdout)
    assert {name for name, _ in told} == {"test_unsaid", "test_shared", "test_shared_later"}, ran.stdout
    assert {program for _, program in told} == {Path(sys.executable).name}


def test_each_seam_is_met_by_a_quick_test() -> None:
    found = {
        name
        for path in TESTS.rglob("test_*.py")
        for name in re.findall(r'^@pytest\.mark\.seam\("([^"]+)"\)', path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert found >= SEAMS
