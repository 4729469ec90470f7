"""What `make dist` makes: the same bytes wherever and whenever it is made, and in it what the commands need."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

from llm_serving_exporter import __version__
from tests.support.paths import ROOT

pytestmark = pytest.mark.e2e
pytest.importorskip("hatchling", reason="hatchling, which builds, is not installed: make has it from locks/build.txt")

WHEEL = f"llm_serving_exporter-{__version__}-py3-none-any.whl"
SDIST = f"llm_serving_exporter-{__version__}.tar.gz"


def build(source: Path, out: Path, *only: str) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(out), *only]
    environment = {key: value for key, value in os.environ.items() if key != "SOURCE_DATE_EPOCH"}
    # no commit of the moment: a working tree may have changes, and what is made of the source distribution has the one that came with it
    environment["SOURCE_REVISION"] = "0123456789ab"
    done = subprocess.run(command, cwd=source, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Both of this tree, and the wheel of the source distribution that came of it, unpacked elsewhere."""
    folder = tmp_path_factory.mktemp("dist")
    first, again = folder / "first", folder / "again"
    build(ROOT, first)
    subprocess.run(["tar", "--extract", "--gzip", "--file", str(first / SDIST), "--directory", str(folder)], check=True)
    source = folder / SDIST.removesuffix(".tar.gz")
    for path in source.rglob("*"):
        os.utime(path, (1, 1))
    build(source, again, "-t", "wheel")
    return first, again


def test_a_wheel_is_the_same_bytes_from_another_folder_at_another_time_and_from_the_source_distribution(
    made: tuple[Path, Path],
) -> None:
    first, again = made
    assert {path.name for path in first.iterdir()} == {WHEEL, SDIST}
    assert (
        hashlib.sha256((again / WHEEL).read_bytes()).digest() == hashlib.sha256((first / WHEEL).read_bytes()).digest()
    )


def test_a_source_distribution_holds_no_trace_of_who_made_it_and_when(made: tuple[Path, Path]) -> None:
    with tarfile.open(made[0] / SDIST) as archive:
        members = archive.getmembers()
    # the moment that hatchling writes where SOURCE_DATE_EPOCH says none: 2 February 2020
    assert {(member.mtime, member.uid, member.gid, member.uname, member.gname) for member in members} == {
        (1580601600, 0, 0, "", "")
    }
    assert {member.mode for member in members} <= {0o644, 0o755}
    # the header of gzip has a time of its own, in bytes 4 to 7
    assert int.from_bytes((made[0] / SDIST).read_bytes()[4:8], "little") == 1580601600


def test_the_wheel_holds_what_the_commands_read_and_no_test(made: tuple[Path, Path]) -> None:
    with zipfile.ZipFile(made[0] / WHEEL) as wheel:
        names = set(wheel.namelist())
        metadata = Parser().parsestr(wheel.read(f"llm_serving_exporter-{__version__}.dist-info/METADATA").decode())
    for root in ("exporter", "alerts", "dashboards"):
        packages = [str(path.parent) for path in (ROOT / root).glob("*/__init__.py")]
        tracked = subprocess.run(
            ["git", "-C", str(ROOT), "ls-files", "-z", *packages], capture_output=True, text=True, check=True
        ).stdout.split("\0")
        expected = {path.removeprefix(f"{root}/") for path in tracked if path and (ROOT / path).is_file()}
        assert expected <= names, sorted(expected - names)[:5]
    assert not [name for name in names if name.startswith(("tests/", "docs/", "bench/"))]
    assert (metadata["Name"], metadata["Version"]) == ("llm-serving-exporter", __version__)
    # twine 6.2 refuses 2.5, and what is refused cannot be uploaded
    assert metadata["Metadata-Version"] == "2.4"
    assert metadata["Description-Content-Type"] == "text/markdown"
    extras = metadata.get_all("Provides-Extra") or []
    assert {"dashboards", "kubernetes"} <= set(extras)


def test_the_source_distribution_holds_what_it_takes_to_build_read_and_check(made: tuple[Path, Path]) -> None:
    with tarfile.open(made[0] / SDIST) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    for path in (
        "pyproject.toml", "hatch_build.py", "LICENSE", "README.md", "CHANGELOG.md", "METRICS.md", "Makefile", "locks/run.txt",
        "scripts/setup.sh", "exporter/llm_serving_exporter/REVISION",
        "docs/rules.md", "deploy/systemd/llm-serving-exporter.service", "tests/unit/test_cli.py", "PKG-INFO",
    ):  # fmt: skip
        assert path in names, path
    assert not [name for name in names if name.startswith((".git/", ".venv", "dist/"))]
