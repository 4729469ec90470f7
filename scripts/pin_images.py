"""Copies deploy/ with the digest of every image in it, for a release: what was tried is what is pulled. Nothing is pinned by hand.

    scripts/pin_images.py OUT [--own REPOSITORY@sha256:…] [--resolver 'COMMAND {}']

Each `image: NAME:TAG` and `FROM NAME:TAG` becomes NAME:TAG@sha256:…, the digest that the resolver prints for it. `--own` is the exporter's
own image once it is pushed: it takes the place of its name in the compose files and in the chart's values. Ends with 1, and says why, where
a digest cannot be had; nothing of OUT is meant to be used then.
"""

from __future__ import annotations

import argparse
import re
import shlex
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
OWN = "llm-serving-exporter"
RESOLVER = "docker buildx imagetools inspect {} --format '{{{{.Manifest.Digest}}}}'"
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_OWN = re.compile(r"(?P<repository>[a-z0-9.:/_-]+)@(?P<digest>sha256:[0-9a-f]{64})")
_IMAGE = re.compile(
    r"^(?P<before>\s*(?:- )?image: *|FROM +)(?P<name>[a-z0-9][\w./-]*(?::[\w.-]+)?)(?P<after>(?= |$).*)$", re.MULTILINE
)


class ResolveError(Exception):
    """A digest cannot be had."""


def resolve(command: str, image: str) -> str:
    """The digest of an image by its name and tag. Raises ResolveError."""
    words = shlex.split(command.format(image))
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False)  # noqa: S603  # the command of whoever releases
    except OSError as error:
        raise ResolveError(f"{image}: {words[0]} cannot be run: {error.strerror}") from None
    digest = done.stdout.strip()
    if done.returncode or not _DIGEST.fullmatch(digest):
        raise ResolveError(f"{image}: `{shlex.join(words)}` gave no digest: {(done.stderr or digest).strip()[:300]}")
    return digest


def pin_text(text: str, command: str, known: dict[str, str], own: str | None) -> str:
    """A manifest, compose file or Dockerfile with a digest behind each image. `known`: those asked for already."""

    def pin(found: re.Match[str]) -> str:
        name = found["name"]
        if name.partition(":")[0] == OWN:
            return f"{found['before']}{own or name}{found['after']}"
        if name not in known:
            known[name] = resolve(command, name)
        return f"{found['before']}{name}@{known[name]}{found['after']}"

    return _IMAGE.sub(pin, text)


def pin_values(text: str, own: re.Match[str]) -> str:
    """The chart's values with the repository and digest of the exporter's own image."""
    text, repositories = re.subn(rf"^(  repository: ){OWN}$", rf"\g<1>{own['repository']}", text, flags=re.MULTILINE)
    text, digests = re.subn(r'^(  digest: )""$', rf'\g<1>"{own["digest"]}"', text, flags=re.MULTILINE)
    if (repositories, digests) != (1, 1):
        raise ResolveError("values.yaml has no image with a repository and a digest to fill in")
    return text


def main(argv: list[str]) -> int:
    """Writes OUT; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--own", type=_OWN.fullmatch)
    parser.add_argument("--resolver", default=RESOLVER)
    arguments = parser.parse_args(argv)
    shutil.copytree(ROOT / "deploy", arguments.out, dirs_exist_ok=True)
    pin = partial(pin_text, command=arguments.resolver, known={}, own=arguments.own[0] if arguments.own else None)
    try:
        for path in sorted(arguments.out.rglob("*")):
            if path.name == "Dockerfile" or (path.suffix == ".yml" and path.is_file()):
                text = path.read_text(encoding="utf-8")
                if (pinned := pin(text)) != text:
                    path.write_text(pinned, encoding="utf-8")
                    print(path)  # noqa: T201  # a script
        if arguments.own:
            values = arguments.out / "helm" / OWN / "values.yaml"
            values.write_text(pin_values(values.read_text(encoding="utf-8"), arguments.own), encoding="utf-8")
    except ResolveError as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201  # a script
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
