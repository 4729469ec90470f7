"""The locks hold what pyproject.toml wants, for each Python, by hash and from no index in particular; nothing is installed beside them."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, requires
from importlib.metadata import version as installed
from pathlib import Path

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support.paths import ROOT
from tests.support.rows import check_rows

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LOCKS = {path.stem: path for path in sorted((ROOT / "locks").glob("*.txt"))}
# lock -> extras of the project, "" for its own dependencies
EXTRAS = {
    "run": [""],
    "dev": ["", "dev", "dashboards", "kubernetes", "bills-parquet", "otlp"],
    "image": ["", "dashboards", "kubernetes", "otlp"],
    "grafana": ["", "grafana", "dev", "dashboards", "kubernetes", "bills-parquet", "otlp"],
    "fuzz": ["", "fuzz", "dev", "dashboards", "kubernetes", "bills-parquet", "otlp"],
    "docs": ["", "docs", "dev", "dashboards", "kubernetes", "bills-parquet", "otlp"],
    "release": ["", "release"],
}
PYTHONS = ("3.11", "3.12", "3.13")
PINNED = re.compile(r"(?P<name>[a-z0-9-]+)==(?P<version>[0-9][\w.]*)(?: ; (?P<marker>[^\\]+?))? \\")
HASH = re.compile(r"    --hash=sha256:[0-9a-f]{64}( \\)?")
# what installs: a command with pip in it
INSTALLERS = ("Makefile", "scripts/setup.sh", ".ci/run", ".ci/release", "deploy/container/Dockerfile")


def environment(python: str) -> dict[str, str]:
    return {**default_environment(), "python_version": python, "python_full_version": f"{python}.9", "extra": ""}


def pins(lock: str, python: str) -> dict[str, str]:
    """Name -> version of what the lock installs there."""
    found = {}
    for line in LOCKS[lock].read_text().splitlines():
        if (match := PINNED.fullmatch(line)) is not None:
            one = Requirement(
                f"{match['name']}=={match['version']}" + (f" ; {match['marker']}" if match["marker"] else "")
            )
            if one.marker is None or one.marker.evaluate(environment(python)):
                assert match["name"] not in found, "pinned twice"
                found[match["name"]] = match["version"]
    return found


def test_these_are_the_locks() -> None:
    assert set(LOCKS) == {*EXTRAS, "build"}


@check_rows("lock", LOCKS)
def test_a_lock_holds_pins_and_hashes_and_nothing_else(lock: str) -> None:
    text = LOCKS[lock].read_text()
    assert "://" not in text
    first, second, *lines = text.splitlines()
    assert first.startswith("# Made by `make lock`")
    assert second.startswith("# No address of an index")
    hashes = 0
    for line in [*reversed(lines)]:
        if HASH.fullmatch(line):
            hashes += 1
        else:
            # no index, no path, no editable, no package without a hash
            assert PINNED.fullmatch(line), line
            assert hashes, line
            hashes = 0


@check_rows("python", PYTHONS)
@check_rows("lock", EXTRAS)
def test_a_lock_holds_what_the_project_wants_on_each_python(lock: str, python: str) -> None:
    found = pins(lock, python)
    for extra in EXTRAS[lock]:
        for text in PROJECT["optional-dependencies"][extra] if extra else PROJECT["dependencies"]:
            wanted = Requirement(text)
            if wanted.name != PROJECT["name"]:
                assert wanted.specifier.contains(found[canonicalize_name(wanted.name)]), text


def test_the_lock_of_the_build_holds_the_backend_and_what_editables_need() -> None:
    found = pins("build", "3.11")
    for text in tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]:
        assert Requirement(text).specifier.contains(found[canonicalize_name(Requirement(text).name)])
    assert "editables" in found


@check_rows("python", PYTHONS)
@check_rows("lock", ["run", "dev", "image", "build"])
def test_what_a_locked_package_needs_is_locked_too(lock: str, python: str) -> None:
    """As far as the packages are installed here as locked: their own metadata says what they need."""
    found, seen = pins(lock, python), 0
    for name in found:
        try:
            needs = [Requirement(text) for text in requires(name) or ()]
            if installed(name) != found[name]:
                continue
        except PackageNotFoundError:
            continue
        seen += 1
        for need in needs:
            if need.marker is None or need.marker.evaluate(environment(python)):
                version = found.get(canonicalize_name(need.name))
                assert version is not None, f"{name} needs {need}"
                assert need.specifier.contains(version), f"{name} needs {need}"
    if seen <= 2:
        pytest.skip(f"hardly a package of locks/{lock}.txt is installed here as locked: make installs them")


def test_locks_agree_on_versions() -> None:
    """What is tried is what runs: a package has one version in all locks but that of the tools of a release."""
    versions: dict[str, set[str]] = {}
    for lock in LOCKS.keys() - {"release"}:
        for name, version in pins(lock, "3.11").items():
            versions.setdefault(name, set()).add(version)
    assert {name: found for name, found in versions.items() if len(found) > 1} == {}


@check_rows("name", INSTALLERS)
def test_nothing_is_installed_but_by_hash_or_from_here(name: str) -> None:
    commands = re.sub(r"\\\n\s*", "", (ROOT / name).read_text()).splitlines()
    installs = [
        part
        for line in commands
        if not line.lstrip().startswith("#")
        for part in line.split("&&")
        if "pip" in part and " install" in part
    ]
    for command in installs:
        by_hash, from_here = "--require-hashes" in command, "--no-index" in command and "--no-deps" in command
        assert by_hash != from_here, command
    assert installs or name not in ("scripts/setup.sh", "deploy/container/Dockerfile")


def test_the_project_is_installed_without_dependencies_or_a_build_of_its_own() -> None:
    assert "--no-index --no-deps --no-build-isolation --editable ." in (ROOT / "scripts" / "setup.sh").read_text()


@pytest.mark.process
def test_a_release_is_examined_and_described() -> None:
    script = (ROOT / ".ci" / "release").read_text()
    assert subprocess.run(["bash", "-n", str(ROOT / ".ci" / "release")]).returncode == 0
    for step in ("audit", "make --no-print-directory dist", "make --no-print-directory sbom", "pin_images.py"):
        assert step in script
    check = re.search(r"^check:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert check is not None
    assert "audit" not in check[1], "a check must pass without the network"


@pytest.mark.parametrize(
    ("heading", "pattern", "folders"),
    [
        ("Leave grafanalib", r"\bcore\.([A-Z]\w+)|\b(DashboardEncoder)\b", ["dashboards"]),
        (
            "Leave APScheduler 3",
            r"\b(CronTrigger)\b|\b(get_next_fire_time)\b|\b(from_crontab)\b",
            ["exporter", "alerts"],
        ),
    ],
)
def test_the_page_names_what_is_used_of_a_package_that_may_die(heading: str, pattern: str, folders: list[str]) -> None:
    page = (ROOT / "docs" / "dependencies.md").read_text().split(f"## {heading}\n")[1].split("\n## ")[0]
    said = re.findall(r"`([A-Za-z_.]+)[(`]", page.split("**What is used:**")[1].split("\n\n")[0])
    named = {word for name in said if "/" not in name for word in name.split(".")} - {"py"}
    sources = [path.read_text() for folder in folders for path in (ROOT / folder).rglob("*.py")]
    used = {name for source in sources for found in re.findall(pattern, source) for name in found if name}
    assert used
    assert used - named == set()
    assert {name for name in named if name[0].isupper()} - used == set()


# --- images ---------------------------------------------------------------------------------------------------------


def test_no_image_is_pinned_by_hand() -> None:
    found = [
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "deploy").rglob("*")
        if path.is_file() and re.search(r"@sha256:[0-9a-f]{64}", path.read_text())
    ]
    assert found == []


def pin_images(out: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "scripts" / "pin_images.py"), str(out), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


@pytest.mark.process
def test_a_release_pins_every_image_to_what_the_registry_says(tmp_path: Path) -> None:
    digests = tmp_path / "digests"
    digests.write_text('#!/bin/sh\nprintf %s "$1" | sha256sum | sed "s/\\(.*\\)  -/sha256:\\1/"\n')
    digests.chmod(0o755)
    own = "registry.example.com:5000/team/llm-serving-exporter@sha256:" + "9" * 64
    done = pin_images(tmp_path / "deploy", "--own", own, "--resolver", f"{digests} {{}}")
    assert (done.returncode, done.stderr) == (0, "")
    pinned = 0
    for path in (tmp_path / "deploy").rglob("*"):
        if path.name == "Dockerfile" or path.suffix == ".yml":
            for image in re.findall(r"^(?:FROM|\s*(?:- )?image:) +([^\s{]+)", path.read_text(), re.MULTILINE):
                assert re.fullmatch(r"\S+@sha256:[0-9a-f]{64}", image), f"{path}: {image}"
                pinned += 1
    assert pinned >= 7
    values = (tmp_path / "deploy" / "helm" / "llm-serving-exporter" / "values.yaml").read_text()
    assert "  repository: registry.example.com:5000/team/llm-serving-exporter\n" in values
    assert f'  digest: "sha256:{"9" * 64}"\n' in values


@pytest.mark.process
@pytest.mark.parametrize("resolver", ["false {}", "echo latest {}", "no-such-program {}"])
def test_a_digest_that_cannot_be_had_ends_the_release(tmp_path: Path, resolver: str) -> None:
    done = pin_images(tmp_path / "deploy", "--resolver", resolver)
    assert done.returncode == 1
    assert "python:3.11-slim" in done.stderr or "prom/prometheus" in done.stderr
    assert "Traceback" not in done.stderr
