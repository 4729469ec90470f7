"""Which revision of the source this is: written into the package when it is built, asked of git in a source checkout."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]
# what hatch_build.py puts into a wheel
BUILT = "REVISION"
UNKNOWN = "unknown"
_PATIENCE_SECONDS = 5.0


def revision(package: Path = _PACKAGE) -> str:
    """The git commit, "-dirty" after it where the checkout has changes; "unknown" where neither the build nor git says it."""
    try:
        return (package / BUILT).read_text(encoding="ascii").strip() or UNKNOWN
    except (OSError, ValueError):
        return _asked_of_git(package)


def _asked_of_git(package: Path) -> str:
    root, git = package.parents[1], shutil.which("git")
    # installed into an environment inside somebody else's repository, that repository is not ours
    if git is None or package.parent.name != "exporter" or not (root / ".git").exists():
        return UNKNOWN
    command = [git, "-C", str(root), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        # a program found on PATH, arguments of ours, no shell
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE_SECONDS, check=True)  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return UNKNOWN
    return done.stdout.strip() or UNKNOWN
