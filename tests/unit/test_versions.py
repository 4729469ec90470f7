"""The table of docs/releases.md calls tested what ran: pins, declared ranges and this machine's programs say the same."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
import tomllib
from collections.abc import Callable
from typing import NamedTuple

import pytest

from llm_serving_alerts.rules import PORTABLE
from tests.support.paths import ROOT
from tests.support.servers.server_process import find_program
from tests.support.yaml_text import load_yaml

PAGE = (ROOT / "docs/releases.md").read_text()
SETUP = (ROOT / "scripts/setup.sh").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


class Line(NamedTuple):
    """A row of the table."""

    tested: str  # version
    by: str  # make targets
    supported: str  # in words


def read_table() -> dict[str, Line]:
    rows = re.findall(
        r"^\| ([^|]+) \| ([^|]+) \| ([^|]+) \| ([^|]+) \|$",
        PAGE.partition("## Versions that were tested")[2],
        re.MULTILINE,
    )
    return {name: Line(*cells) for name, *cells in rows[1:]}


TABLE = read_table()


def ask(program: str, pattern: str) -> str | None:
    """What a program of this machine says its version is; None: it is not here."""
    found = find_program(program) or shutil.which(program)
    if found is None:
        return None
    done = subprocess.run([found, "--version"], capture_output=True, text=True, timeout=60, check=False)
    match = re.search(pattern, done.stdout + done.stderr)
    return match[1] if match else None


def ask_package(name: str) -> str | None:
    """The upstream part of a Debian package's version: its program does not say it."""
    if shutil.which("dpkg-query") is None:
        return None
    done = subprocess.run(["dpkg-query", "-W", "-f=${Version}", name], capture_output=True, text=True, check=False)
    match = re.match(r"(?:\d+:)?([\d.]+)", done.stdout)
    return match[1] if match and done.returncode == 0 else None


def pinned_prometheus3() -> str:
    """What scripts/setup.sh builds, which does not say it itself. Prometheus tags its module v0.315.0 for 3.15.0."""
    (module,) = re.findall(r"prometheus/prometheus@v0\.3(\d\d)\.(\d+)", SETUP)
    return f"3.{int(module[0])}.{module[1]}"


# row -> the version on this machine; rows whose programs are named by variables or other machines are not here
HERE: dict[str, Callable[[], str | None]] = {
    "Python": lambda: ".".join(platform.python_version_tuple()[:2]),
    "Prometheus": lambda: ask("prometheus", r"version ([\d.]+)"),
    "Prometheus 3": lambda: pinned_prometheus3() if find_program("prometheus3") else None,
    "Alertmanager": lambda: ask("prometheus-alertmanager", r"version ([\d.]+)"),
    "VictoriaMetrics, vmalert": lambda: ask_package("victoria-metrics"),
    "systemd": lambda: ask("systemd-analyze", r"systemd (\d+)"),
}


def test_the_table_has_these_rows_and_each_names_a_target_that_there_is() -> None:
    assert len(TABLE) == 10
    assert HERE.keys() <= TABLE.keys()
    targets = set(re.findall(r"^([a-z0-9-]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for name, row in TABLE.items():
        asked = re.findall(r"`make ([a-z0-9-]+)`", row.by)
        assert asked, name
        assert set(asked) <= targets, name


@pytest.mark.process
@pytest.mark.parametrize("name", HERE)
def test_what_runs_here_is_what_the_table_calls_tested(name: str) -> None:
    version = HERE[name]()
    if version is None:
        pytest.skip(f"{name} is not on this machine, or does not say its version")
    if version not in TABLE[name].tested.split(", "):
        pytest.skip(
            f"here is {name} {version}, docs/releases.md has {TABLE[name].tested}: if all passes here, name both"
        )


def test_what_is_built_for_the_tests_is_what_the_table_has() -> None:
    (helm,) = re.findall(r"helm\.sh/helm/v3/cmd/helm@v([\d.]+)", SETUP)
    assert TABLE["Helm"].tested == helm
    assert TABLE["Prometheus 3"].tested == pinned_prometheus3()


def test_what_is_supported_is_what_is_declared() -> None:
    pythons = re.findall(r"Programming Language :: Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    assert TABLE["Python"].supported == f"{pythons[0]} to {pythons[-1]}"
    assert PROJECT["requires-python"] == f">={pythons[0]}"
    for name, word in (("Prometheus", "Prometheus"), ("VictoriaMetrics, vmalert", "vmalert")):
        (least,) = re.findall(rf"{word} ([\d.]+) and newer", PORTABLE.about)
        assert TABLE[name].supported.startswith(f"{least} and newer")
    chart = load_yaml((ROOT / "deploy/helm/llm-serving-exporter/Chart.yaml").read_text())
    (least,) = re.findall(r">=(\d+\.\d+)\.0", chart["kubeVersion"])
    assert TABLE["Kubernetes API server"].supported.startswith(f"{least} and newer")
    assert (
        f"Helm {TABLE['Helm'].supported.removesuffix(' and newer')} or newer"
        in (ROOT / "docs/kubernetes.md").read_text()
    )


def test_what_is_tested_is_in_the_supported_range() -> None:
    for name, row in TABLE.items():
        least = re.match(r"[\d.]+", row.supported)
        if least:
            versions = [re.findall(r"\d+", one) for one in (least[0], *row.tested.split(", "))]
            wanted, *tested = ([*map(int, version)] for version in versions)
            assert all(one >= wanted for one in tested), name
