"""`make release`: what is made of a commit, what stands in its way, what it commits and tags."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from datetime import date
from pathlib import Path

import pytest

from llm_serving_exporter import __version__
from scripts import release
from tests.support.helm import need_tool
from tests.support.paths import ROOT

# none that is a part of another number in the tree
NEXT = "9.8.7"
CHANGELOG = """# Changelog

## Unreleased

- [FEATURE] A board.

## 0.0.9 / 2026-01-01

- [FEATURE] All that was before.
"""
LEAVE_ALL = [word for part in release.PARTS for word in ("--without", part)]


def git(folder: Path, *words: str) -> str:
    whose = ("-c", "user.name=Jane Doe", "-c", "user.email=jane@example.com", "-c", "commit.gpgsign=false")
    done = subprocess.run(("git", *whose, *words), cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout


def cut(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = (sys.executable, "scripts/release.py", *words)
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository with the script, a version and a changelog."""
    folder = tmp_path / "checkout"
    for name in ("scripts/release.py", release.INIT, f"{release.CHART}/Chart.yaml", "docs/start-kubernetes.md"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, folder / name)
    (folder / "README.md").write_text("# A project of 0.1.0 parts\n")
    (folder / "CHANGELOG.md").write_text(CHANGELOG)
    (folder / ".gitignore").write_text("dist/\n")
    git(folder, "init", "--quiet")
    git(folder, "config", "user.name", "Jane Doe")
    git(folder, "config", "user.email", "jane@example.com")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "--message", "All of it")
    return folder


@pytest.mark.process
def test_a_release_is_a_commit_and_a_tag_with_its_notes(checkout: Path) -> None:
    done = cut(checkout, NEXT, *LEAVE_ALL)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].startswith(f"committed and tagged v{NEXT}; push both")
    assert git(checkout, "status", "--porcelain") == ""
    changed = git(checkout, "show", "--name-only", "--format=%s").split("\n")
    assert changed[0] == f"Release {NEXT}"
    assert set(changed[2:-1]) == {
        release.INIT,
        f"{release.CHART}/Chart.yaml",
        "docs/start-kubernetes.md",
        "CHANGELOG.md",
    }
    assert f'__version__ = "{NEXT}"' in (checkout / release.INIT).read_text()
    assert re.search(
        rf"^## {re.escape(NEXT)} / \d{{4}}-\d\d-\d\d$", (checkout / "CHANGELOG.md").read_text(), re.MULTILINE
    )
    assert "- [FEATURE] A board." in git(checkout, "tag", "--list", "--format=%(contents)", f"v{NEXT}")
    again = cut(checkout, NEXT, *LEAVE_ALL)
    assert again.returncode == 1
    assert again.stderr == f"error: the tag v{NEXT} is there already; a release is cut once: choose the next version\n"


@pytest.mark.process
def test_a_dry_run_changes_nothing_here(checkout: Path) -> None:
    before = git(checkout, "rev-parse", "HEAD")
    done = cut(checkout, NEXT, "--dry-run", *LEAVE_ALL)
    assert done.returncode == 0, done.stderr
    assert (git(checkout, "rev-parse", "HEAD"), git(checkout, "tag"), git(checkout, "status", "--porcelain")) == (
        before,
        "",
        "",
    )
    assert (checkout / "dist/NOTES.md").read_text() == "- [FEATURE] A board.\n"


@pytest.mark.process
def test_a_file_that_is_not_committed_is_in_the_way(checkout: Path) -> None:
    (checkout / "README.md").write_text("changed\n")
    done = cut(checkout, NEXT, *LEAVE_ALL)
    assert (done.returncode, done.stderr) == (
        1,
        "error: files here differ from the last commit; commit or stash them (git status)\n",
    )


@pytest.mark.process
def test_a_folder_with_what_somebody_else_put_there_is_left_alone(checkout: Path, tmp_path: Path) -> None:
    (tmp_path / "letters").mkdir()
    kept = tmp_path / "letters/one.txt"
    kept.write_text("Dear Jane")
    done = cut(checkout, NEXT, "--dry-run", "--out", str(kept.parent), *LEAVE_ALL)
    assert (done.returncode, done.stderr) == (
        1,
        f"error: {kept.parent} is not an empty folder; name another with --out\n",
    )
    assert kept.read_text() == "Dear Jane"


@pytest.mark.parametrize("version", ["", "1.0", "v1.0.0", "1.0.0.dev1", "1.0.0-rc.1", "1.0.0+local"])
def test_a_version_that_not_all_parts_can_bear_is_refused(version: str) -> None:
    with pytest.raises(SystemExit, match=f'error: "{re.escape(version)}" is no version of a release'):
        release.check_version(version)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("# Changelog\n", "begins with nothing"),
        ("## 0.9.0 / 2026-01-01\n\n- [CHANGE] x\n", "begins with ## 0.9.0 / 2026-01-01"),
        ("## Unreleased\n\n\n## 0.9.0 / 2026-01-01\n\n- [CHANGE] x\n", "says nothing under ## Unreleased"),
    ],
)
def test_a_changelog_without_its_section_is_refused(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "CHANGELOG.md").write_text(text)
    with pytest.raises(SystemExit, match=said):
        release.date_changelog(tmp_path, NEXT, date(2026, 2, 1))


def test_the_version_is_stated_wherever_it_stood(tmp_path: Path) -> None:
    for place in (release.INIT, *release.VERSION_PLACES):
        source, target = ROOT / place, tmp_path / place
        target.parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if source.is_dir() else shutil.copyfile)(source, target)
    changed = release.state_version(tmp_path, NEXT)
    assert {release.INIT, f"{release.CHART}/Chart.yaml", "deploy/kustomize/base/kustomization.yaml"} <= set(changed)
    # none of it is left, but for numbers that it is a part of
    former = re.compile(rf"(?<![\w.]){re.escape(__version__)}(?![\w.])")
    texts = {path: path.read_text(errors="replace") for path in tmp_path.rglob("*") if path.is_file()}
    assert [path for path, text in texts.items() if former.search(text)] == []


def check_made(out: Path) -> None:
    """What every dry run of this tree has to have made."""
    sums = (out / "SHA256SUMS").read_text().splitlines()
    assert {line.partition("  ")[2] for line in sums} == {path.name for path in out.iterdir()} - {"SHA256SUMS"}
    for line in sums:
        told, _, name = line.partition("  ")
        assert hashlib.sha256((out / name).read_bytes()).hexdigest() == told
    with zipfile.ZipFile(out / f"llm_serving_exporter-{NEXT}-py3-none-any.whl") as wheel:
        assert f"\nVersion: {NEXT}\n" in wheel.read(f"llm_serving_exporter-{NEXT}.dist-info/METADATA").decode()
        assert len(wheel.read("llm_serving_exporter/REVISION").strip()) == 12
    with tarfile.open(out / f"llm_serving_exporter-{NEXT}.tar.gz") as source:
        member = source.extractfile(f"llm_serving_exporter-{NEXT}/CHANGELOG.md")
        assert member is not None
        assert f"\n## {NEXT} / " in member.read().decode()
    with tarfile.open(out / f"{release.NAME}-{NEXT}.tgz") as chart:
        member = chart.extractfile(f"{release.NAME}/Chart.yaml")
        assert member is not None
        assert {f"version: {NEXT}", f"appVersion: {NEXT}"} <= set(member.read().decode().splitlines())
    assert (out / "NOTES.md").read_text().strip()


@pytest.mark.packages
def test_what_a_dry_run_makes_of_this_tree(tmp_path: Path) -> None:
    need_tool("helm")
    done = cut(ROOT, NEXT, "--dry-run", "--out", str(tmp_path / "out"), "--without", "deb", "--without", "sbom")
    assert done.returncode == 0, done.stderr
    check_made(tmp_path / "out")


@pytest.mark.deb
def test_a_dry_run_makes_everything(tmp_path: Path) -> None:
    need_tool("helm")
    need_tool("nfpm")
    done = cut(ROOT, NEXT, "--dry-run", "--out", str(tmp_path / "out"))
    assert done.returncode == 0, done.stderr
    check_made(tmp_path / "out")
    bill = json.loads((tmp_path / "out" / f"{release.NAME}.cdx.json").read_text())
    assert (bill["bomFormat"], bill["metadata"]["component"]["name"]) == ("CycloneDX", release.NAME)
    (package,) = (tmp_path / "out").glob(f"{release.NAME}_{NEXT}+python*.deb")
    asked = subprocess.run(("dpkg-deb", "--field", str(package), "Version"), capture_output=True, text=True, check=True)
    assert asked.stdout.startswith(f"{NEXT}+python")
