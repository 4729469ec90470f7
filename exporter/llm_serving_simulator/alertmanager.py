"""An Alertmanager of one's own, for the demos: it routes, groups and inhibits as configured, and sends nothing to anybody."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import yaml

from llm_serving_simulator.child import Child

# Debian's package calls the server prometheus-alertmanager
PROGRAMS = ("prometheus-alertmanager", "alertmanager")


def find_alertmanager() -> str | None:
    """Where Alertmanager is; None where it is not on PATH."""
    return next(filter(None, map(shutil.which, PROGRAMS)), None)


def silence_receivers(config: str) -> str:
    """The same configuration whose receivers have names and no integrations: who would be told is known, and nobody is."""
    document = yaml.safe_load(config)
    document["receivers"] = [{"name": receiver["name"]} for receiver in document["receivers"]]
    # only integrations use them
    document.pop("templates", None)
    return yaml.safe_dump(document, sort_keys=False)


class Alertmanager(Child):
    """The program as a child process with that configuration, made harmless by `silence_receivers`. Raises as `Child`."""

    def __init__(self, program: str, config: str, port: int = 0, cancelled: threading.Event | None = None) -> None:
        def prepare(folder: Path, address: str) -> list[str]:
            file = folder / "alertmanager.yml"
            file.write_text(silence_receivers(config), encoding="utf-8")
            return [
                program,
                f"--config.file={file}",
                f"--storage.path={folder / 'data'}",
                f"--web.listen-address={address}",
                "--cluster.listen-address=",  # no cluster of one
                "--log.level=warn",
            ]

        super().__init__("alertmanager", prepare, port, cancelled)
