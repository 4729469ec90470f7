"""What reading a configuration needs to know about its surroundings, and what it notes on the way."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Host:
    """The host of the exporter: its own name, and the name of its node (NODE_NAME, else the same)."""

    name: str
    node: str


@dataclass(frozen=True, slots=True)
class Context:
    """`folder`: where relative paths start, None = the working directory. `runtimes`: names of those that have a table.

    `secret_variables` collects the environment variables that the configuration names, `warnings` what is legal
    but odd.
    """

    host: Host
    environ: Mapping[str, str]
    runtimes: Collection[str]
    folder: str | None = None
    secret_variables: set[str] = field(default_factory=set)
    warnings: list[str] = field(default_factory=list)

    def resolve(self, path: str) -> str:
        """A path of the file, made relative to the file's folder."""
        return path if self.folder is None else os.path.join(self.folder, path)
