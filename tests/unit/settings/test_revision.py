"""Which commit --version shows: the build's, the checkout's, or none."""

import subprocess
from pathlib import Path

import pytest

from llm_serving_exporter.settings.flags import revision

pytestmark = pytest.mark.process


def checkout(root: Path) -> tuple[Path, str]:
    """A repository with a package in it as this one has, and its commit."""
    package = root / "exporter" / "llm_serving_exporter"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    git = ["git", "-C", str(root), "-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "first"]):
        subprocess.run([*git, *words], check=True)
    commit = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
    return package, commit


@pytest.mark.seam("git")
def test_a_checkout_is_asked_and_says_whether_it_was_changed(tmp_path: Path) -> None:
    package, commit = checkout(tmp_path)
    assert revision(package) == commit[:12]
    (package / "__init__.py").write_text("changed")
    assert revision(package) == f"{commit[:12]}-dirty"


def test_what_the_build_wrote_wins(tmp_path: Path) -> None:
    package, _ = checkout(tmp_path)
    (package / "REVISION").write_text("0123456789ab\n")
    assert revision(package) == "0123456789ab"


def test_the_repository_around_an_environment_is_not_ours(tmp_path: Path) -> None:
    checkout(tmp_path)
    package = tmp_path / "lib" / "llm_serving_exporter"
    package.mkdir(parents=True)
    assert revision(package) == "unknown"


def test_no_git_is_no_revision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package, _ = checkout(tmp_path)
    monkeypatch.setenv("PATH", "")
    assert revision(package) == "unknown"
