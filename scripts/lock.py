"""Writes locks/*.txt: every package that is installed here or in the container, pinned with the hashes of all its files.

One lock serves Python 3.11 to 3.13: what differs between them and between systems has a marker on its line. Pins stay until `--upgrade`
is given, so that a run after a change of pyproject.toml changes what that change needs. Wants the network and the tools of the extra
`release`; `make lock` sets those up.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# lock -> extras of the project
LOCKS = {
    "run": (),
    "dev": ("dev",),
    "image": ("dashboards", "kubernetes", "otlp"),
    "grafana": ("grafana",),
    "fuzz": ("fuzz",),
    "docs": ("docs",),
    "release": ("release",),
}
# what hatchling needs beside itself for an editable installation
EDITABLE = "editables>=0.5,<1"
OLDEST_PYTHON = "3.11"
_HEADER = (
    "# Made by `make lock` from pyproject.toml: never edit it.\n"
    "# No address of an index stands here: any that has the same files will do.\n"
)
_COMPILE = (
    "compile",
    "--universal",
    f"--python-version={OLDEST_PYTHON}",
    "--generate-hashes",
    "--no-annotate",
    "--no-header",
    "--no-emit-index-url",
    "--no-emit-find-links",
    "--quiet",
)


def main(argv: list[str]) -> int:
    """Writes every lock; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--upgrade", action="store_true", help="take the newest versions that pyproject.toml allows")
    upgrade = ["--upgrade"] if parser.parse_args(argv).upgrade else []
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        build = Path(folder, "build.in")
        build.write_text("\n".join([*project["build-system"]["requires"], EDITABLE]) + "\n", encoding="utf-8")
        write_lock("build", [str(build), *upgrade])
    for name, extras in LOCKS.items():
        write_lock(name, ["pyproject.toml", *(f"--extra={extra}" for extra in extras), *upgrade])
    return 0


def write_lock(name: str, words: list[str]) -> None:
    """Has uv write one lock, which keeps the pins that are there, and puts the header above it."""
    path = ROOT / "locks" / f"{name}.txt"
    uv = Path(sys.executable).with_name("uv")
    # a person's own configuration of uv or pip must not show in the lock
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PIP_FIND_LINKS")}
    command = [str(uv), "pip", *_COMPILE, "--no-config", "--output-file", str(path), *words]
    subprocess.run(command, cwd=ROOT, env=environment, check=True, stdout=subprocess.DEVNULL)  # noqa: S603  # our own tool and words
    path.write_text(_HEADER + path.read_text(encoding="utf-8").removeprefix(_HEADER), encoding="utf-8")
    pins = [line for line in path.read_text(encoding="utf-8").splitlines() if line[:1].isalnum()]
    print(f"locks/{name}.txt: {len(pins)} packages")  # noqa: T201  # a script


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
