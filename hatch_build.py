"""Writes the git commit into what is built, for `llm-serving-exporter --version`."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

# where settings/flags.py looks for it, and what a build without a repository, such as a container's, is given instead
_PACKAGE, _FILE, _VARIABLE = "llm_serving_exporter", "REVISION", "SOURCE_REVISION"


class RevisionHook(BuildHookInterface[Any]):
    """An editable installation gets no such file: it asks git itself, so that it never shows an old commit."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Adds the file, unless nobody knows the commit. One that came with a source distribution is added in the same way (pyproject.toml
        excludes it), so that it stands at the same place of the archive: the bytes are those of a build from the commit."""
        if version == "editable":
            return
        source = Path(self.root, "exporter", _PACKAGE, _FILE)
        came_with = source.read_text(encoding="ascii").strip() if source.exists() else ""
        revision = came_with or os.environ.get(_VARIABLE, "").strip() or _asked_of_git(self.root)
        if not revision:
            return
        self._folder = tempfile.TemporaryDirectory(prefix="llm-serving-exporter-build-")
        made = Path(self._folder.name, _FILE)
        made.write_text(f"{revision}\n", encoding="ascii")
        prefix = "exporter/" if self.target_name == "sdist" else ""
        build_data["force_include"][str(made)] = f"{prefix}{_PACKAGE}/{_FILE}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Removes what `initialize` made."""
        folder = getattr(self, "_folder", None)
        if folder is not None:
            folder.cleanup()


def _asked_of_git(root: str) -> str:
    """ "" where this is no checkout or there is no git."""
    if not Path(root, ".git").exists():
        return ""
    command = ["git", "-C", root, "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=5, check=True).stdout.strip()  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return ""
