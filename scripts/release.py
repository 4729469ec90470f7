"""Cuts a release of the last commit: `make release VERSION=0.1.0 ARGS=--dry-run`, then the same without.

Made in a copy, into --out (default dist): NOTES.md (the changelog's section), wheel, source distribution, Debian package, Helm chart,
SBOM, and SHA256SUMS of them. The version goes wherever it stands (VERSION_PLACES), and the date into CHANGELOG.md.

Without --dry-run the files that this changed are then committed here, with the tag vVERSION. Nothing is pushed and nothing uploaded:
.ci/release makes of the tag what is published.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parents[1]
NAME = "llm-serving-exporter"
INIT, CHANGELOG = "exporter/llm_serving_exporter/__init__.py", "CHANGELOG.md"
CHART = f"deploy/helm/{NAME}"
# where the version stands, beside INIT, and what it stands behind
VERSION_PLACES = ("deploy", "docs", "README.md")
_BEFORE_VERSION = rf"version: |newTag: |{NAME}:|__version__ = \""
# PEP 440 without epochs and local parts, which neither Helm nor Debian has
_VERSION = re.compile(r"\d+\.\d+\.\d+(?:(?:a|b|rc)\d+)?")
# of the first section: not dated before its release
_HEADING = re.compile(r"^## (?P<name>\S+)(?: / (?P<date>\d{4}-\d\d-\d\d))?$", re.MULTILINE)
UNRELEASED = "Unreleased"


def main(argv: list[str]) -> int:
    """Returns the exit status; what is in the way of a release is said before anything is made."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("version", help="such as 0.1.0 or 0.2.0rc1")
    parser.add_argument("--dry-run", action="store_true", help="make everything; change, commit and tag nothing here")
    parser.add_argument(
        "--out",
        type=Path,
        default=ROOT / "dist",
        help="folder of what is made: dist, which is emptied, or an empty one",
    )
    parser.add_argument("--without", action="append", default=[], choices=tuple(PARTS), help="leave a part out")
    arguments = parser.parse_args(argv)
    version, out = arguments.version, arguments.out.resolve()
    # what is built in a copy sees no repository
    os.environ["SOURCE_REVISION"] = run("git", "rev-parse", "--short=12", "HEAD").stdout.strip()
    parts = {name: make for name, make in PARTS.items() if name not in arguments.without}
    check_version(version)
    check_out(out)
    for name in parts:
        find_program(name)
    if not arguments.dry_run:
        check_checkout(version)
    with tempfile.TemporaryDirectory(prefix=f"{NAME}-release-") as folder:
        copy = Path(folder)
        export_commit(copy)
        changed = state_version(copy, version)
        notes = date_changelog(copy, version, datetime.now(UTC).date())
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir(parents=True)
        (out / "NOTES.md").write_text(notes, encoding="utf-8")
        for make in parts.values():
            make(copy, out)
        write_sums(out)
        for path in sorted(out.iterdir()):
            say(f"made {path}")
        if arguments.dry_run:
            say(
                f"a dry run: nothing here was changed; without --dry-run this commits {', '.join(changed)} and the tag v{version}"
            )
            return 0
        for name in changed:
            shutil.copyfile(copy / name, ROOT / name)
    run("git", "commit", "--message", f"Release {version}", "--", *changed)
    run("git", "tag", "--annotate", f"v{version}", "--cleanup=verbatim", "--file", str(out / "NOTES.md"))
    say(f"committed and tagged v{version}; push both, then .ci/release makes of the tag what is published")
    return 0


def check_version(version: str) -> None:
    """Ends the script where it is no version that everything that is made can bear."""
    if not _VERSION.fullmatch(version):
        fail(f'"{version}" is no version of a release; write one as in 0.1.0 or 0.2.0rc1')


def check_out(out: Path) -> None:
    """Ends the script where the folder has what may not be ours to remove."""
    if out != ROOT / "dist" and out.exists() and (not out.is_dir() or any(out.iterdir())):
        fail(f"{out} is not an empty folder; name another with --out")


def check_checkout(version: str) -> None:
    """Ends the script where the commit is not what stands in the folder, or the tag is taken."""
    if run("git", "status", "--porcelain").stdout.strip():
        fail("files here differ from the last commit; commit or stash them (git status)")
    if run("git", "tag", "--list", f"v{version}").stdout.strip():
        fail(f"the tag v{version} is there already; a release is cut once: choose the next version")


def export_commit(folder: Path) -> None:
    """The files of the last commit."""
    packed = folder / "commit.tar"
    run("git", "archive", "--output", str(packed), "HEAD")
    # the program: Debian 12's Python, 3.11.2, unpacks without `filter`, and later ones warn about that
    run("tar", "--extract", "--file", str(packed), "--directory", str(folder))
    packed.unlink()


def state_version(folder: Path, version: str) -> list[str]:
    """Puts it wherever the former one stands; returns the files that are to be committed, the changelog with them."""
    former = re.search(r'^__version__ = "([^"]+)"$', (folder / INIT).read_text(encoding="utf-8"), re.MULTILINE)
    if former is None:
        fail(f"{INIT} states no __version__")
    stated = re.compile(rf"(?i)({_BEFORE_VERSION}){re.escape(former[1])}(?![\w.])")
    changed = [CHANGELOG]
    places = [folder / INIT]
    for place in VERSION_PLACES:
        path = folder / place
        places += [path] if path.is_file() else sorted(one for one in path.rglob("*") if one.is_file())
    for path in places:
        before = path.read_bytes()
        after = stated.sub(rf"\g<1>{version}", before.decode("utf-8", "surrogateescape")).encode(
            "utf-8", "surrogateescape"
        )
        if after != before:
            path.write_bytes(after)
            changed.append(path.relative_to(folder).as_posix())
    return changed


def date_changelog(folder: Path, version: str, day: date) -> str:
    """Gives the changelog's first section its name and date; returns the notes, which are its text.

    Ends the script where that section is of another version, or says nothing.
    """
    path = folder / CHANGELOG
    text = path.read_text(encoding="utf-8")
    headings = list(_HEADING.finditer(text))
    if not headings or headings[0]["name"] not in (UNRELEASED, version):
        begins = headings[0][0] if headings else "nothing"
        fail(f"{CHANGELOG} begins with {begins}; its first section is to be ## {UNRELEASED} or ## {version}")
    first = headings[0]
    end = headings[1].start() if len(headings) > 1 else len(text)
    notes = text[first.end() : end].strip()
    if not notes:
        fail(f"{CHANGELOG} says nothing under {first[0]}; write what a user gets")
    path.write_text(f"{text[: first.start()]}## {version} / {day}{text[first.end() :]}", encoding="utf-8")
    return f"{notes}\n"


def make_distributions(copy: Path, out: Path) -> None:
    """Wheel and source distribution."""
    run(find_program("wheel"), "build", "-d", str(out), of=copy)


def make_deb(copy: Path, out: Path) -> None:
    """The Debian package, by this checkout's interpreter."""
    roots = os.pathsep.join(str(copy / root) for root in ("exporter", "alerts", "dashboards"))
    command = (sys.executable, "scripts/make_deb.py", "--nfpm", find_program("deb"), "--out", str(out))
    run(*command, of=copy, told={"PYTHONPATH": roots})


def make_chart(copy: Path, out: Path) -> None:
    """The Helm chart."""
    run(find_program("chart"), "package", CHART, "--destination", str(out), of=copy)


def make_sbom(copy: Path, out: Path) -> None:
    """What is in the container, by the Makefile's own recipe."""
    environment = Path(find_program("sbom")).parents[1]
    (copy / ".venv-release").symlink_to(environment)
    run("make", "--old-file=.venv-release/.stamp", "sbom", of=copy)
    shutil.move(copy / f"dist/{NAME}.cdx.json", out)


# what is made, in this order
PARTS: Mapping[str, Callable[[Path, Path], None]] = {
    "wheel": make_distributions,
    "deb": make_deb,
    "chart": make_chart,
    "sbom": make_sbom,
}
# part -> the program that makes it, and what installs that
PROGRAMS = {
    "wheel": ("hatchling", "scripts/setup.sh release"),
    "deb": ("nfpm", "scripts/setup.sh tools nfpm"),
    "chart": ("helm", "scripts/setup.sh tools helm"),
    "sbom": ("cyclonedx-py", "scripts/setup.sh release"),
}
FOLDERS = (".venv-release/bin", ".venv/go/bin", Path(sys.executable).parent)


def find_program(part: str) -> str:
    """The path of the program that makes this part; ends the script where it is not installed."""
    name, remedy = PROGRAMS[part]
    for folder in FOLDERS:
        if found := shutil.which(name, path=str(ROOT / folder)):
            return found
    return shutil.which(name) or fail(
        f"{name}, which makes the {part}, is not installed: {remedy}, or --without {part}"
    )


def write_sums(out: Path) -> None:
    """SHA256SUMS, as `sha256sum --check` reads it."""
    sums = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in sorted(out.iterdir())]
    (out / "SHA256SUMS").write_text("".join(sums), encoding="ascii")


def run(*command: str, of: Path = ROOT, told: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Runs a program in that folder; the script ends with what it said where it fails."""
    environment = os.environ | dict(told or {})
    done = subprocess.run(command, cwd=of, env=environment, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        fail(f"{' '.join(command[:4])} … ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done


def say(text: str) -> None:
    """A line to whoever cuts the release."""
    print(text)  # noqa: T201  # a script


def fail(text: str) -> NoReturn:
    """Ends the script with this error."""
    sys.exit(f"error: {text}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
