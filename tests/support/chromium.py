"""Chromium without a window: what a page looks like, and what its scripts make of it."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.waiting import PATIENCE_SECONDS

_CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
needs_chromium = pytest.mark.skipif(_CHROMIUM is None, reason="no chromium on PATH")
_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--hide-scrollbars", "--disable-dev-shm-usage",
)  # fmt: skip


def browse(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Opens what the arguments name; the profile is kept in the folder."""
    command = [str(_CHROMIUM), *_FLAGS, f"--user-data-dir={folder / 'profile'}", *arguments]
    return subprocess.run(command, capture_output=True, check=True, timeout=PATIENCE_SECONDS, text=True)
