"""Makes dist/llm-serving-exporter_VERSION_ARCH.deb: the wheel of this checkout and locks/image.txt in an environment of their own.

    scripts/make_deb.py [--python 3.11] [--arch amd64] [--nfpm PATH] [--out dist]

What is compiled in the packages fits one minor version of Python, so a package is for the distributions that have it: 3.11 is
Debian 12, 3.12 Ubuntu 24.04, 3.13 Debian 13. Wheels are asked for by that version and by a platform tag, so that neither the
interpreter nor the libc of the machine that makes it shows in it. Same commit, same bytes: times are those of SOURCE_DATE_EPOCH,
or hatchling's where that is not set.

Wants the network, nfpm, and an environment with the exporter and hatchling; `make deb` sets those up.
"""

from __future__ import annotations

import argparse
import gzip
import os
import re
import shutil
import subprocess
import sys
import tomllib
from datetime import UTC, datetime
from email.utils import format_datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NAME = "llm-serving-exporter"
LIBRARY = f"usr/lib/{NAME}"
DOCS = f"usr/share/doc/{NAME}"
# Debian's name of an architecture -> that of platform tags
ARCHITECTURES = {"amd64": "x86_64", "arm64": "aarch64"}
# the least that every wheel of the lock has one for; Debian 10's
GLIBC = (2, 28)
LOCK = "locks/image.txt"
# where nobody says who makes the package: nfpm's own words
NOBODY = "Unset Maintainer <unset@localhost>"
# what a person reads beside the program, with every page of docs/
PAGES = ("README.md", "METRICS.md", "CHANGELOG.md")
EXAMPLES = ("llm-serving-exporter.example.yml", "prices.example.yml", "systemd/engines-of-other-users.conf")

_PRE_RELEASE = re.compile(r"(?<=\d)(a|b|rc)(?=\d)|(?<=\d)\.(dev)(?=\d)")
_PROGRAM = """#!/{library}/bin/python3 -I
import sys

from llm_serving_exporter.cli import main

sys.exit(main())
"""
_CHANGELOG = """{name} ({version}) unstable; urgency=medium

  * What changed: /{docs}/CHANGELOG.md

 -- {maintainer}  {date}
"""
_COPYRIGHT = """Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: {name}
Comment: the packages in /{library} beside ours have their licences in their *.dist-info folders

Files: *
Copyright: 2026 the authors of {name}
License: Apache-2.0
 On Debian systems the text of the licence is in /usr/share/common-licenses/Apache-2.0.
"""


def main(argv: list[str]) -> int:
    """Makes the package; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default="3.11", choices=("3.11", "3.12", "3.13"), help="which Python it is for")
    parser.add_argument("--arch", default="amd64", choices=tuple(ARCHITECTURES), help="Debian's name of the machine")
    parser.add_argument("--nfpm", default=str(ROOT / ".venv/go/bin/nfpm"), help="the program that packs it")
    parser.add_argument("--out", default=str(ROOT / "dist"), help="folder of the package")
    arguments = parser.parse_args(argv)
    nfpm = shutil.which("nfpm") or shutil.which(arguments.nfpm)
    if nfpm is None:
        sys.exit(
            f"error: no nfpm on PATH and none at {arguments.nfpm}; `scripts/setup.sh tools nfpm` builds it with Go"
        )
    version = read_version()
    work = ROOT / "build/deb"
    shutil.rmtree(work, ignore_errors=True)
    tree = work / "tree"
    lay_out_program(tree, work, version, arguments.python, arguments.arch)
    packaged = debian_version(version, arguments.python)
    lay_out_rest(tree, version, packaged)
    set_modes_and_times(tree)
    pack(nfpm, tree, packaged, arguments)
    return 0


def read_version() -> str:
    """Of the one place that has it, as everything else that is built reads it."""
    text = (ROOT / f"exporter/{NAME.replace('-', '_')}/__init__.py").read_text(encoding="utf-8")
    found = re.search(r'^__version__ = "([^"]+)"$', text, re.MULTILINE)
    assert found
    return found[1]


def read_maintainer() -> str:
    """Who makes the package, as Debian's own tools are told."""
    name, mail = os.environ.get("DEBFULLNAME"), os.environ.get("DEBEMAIL")
    return f"{name} <{mail}>" if name and mail else NOBODY


def debian_version(version: str, python: str) -> str:
    """Debian's form of a version of Python's, and the Python it is for: 0.2.0rc1 is 0.2.0~rc1+python3.11, which sorts before 0.2.0."""
    # a development version comes before an alpha, which two tildes say
    found = _PRE_RELEASE.sub(lambda match: f"~{match[1]}" if match[1] else f"~~{match[2]}", version)
    return f"{found}+python{python}"


def lay_out_program(tree: Path, work: Path, version: str, python: str, arch: str) -> None:
    """The environment: what `python -m venv` makes of it, without its pip; the packages of the lock; ours."""
    library = tree / LIBRARY
    (library / "bin").mkdir(parents=True)
    (library / "pyvenv.cfg").write_text(
        f"home = /usr/bin\ninclude-system-site-packages = false\nversion = {python}\n", encoding="ascii"
    )
    (library / "bin/python3").symlink_to(f"/usr/bin/python{python}")
    program = library / "bin" / NAME
    program.write_text(_PROGRAM.format(library=LIBRARY), encoding="ascii")
    packages = library / f"lib/python{python}/site-packages"
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(work))
    major, least = GLIBC
    tags = [f"--platform=manylinux_{major}_{minor}_{ARCHITECTURES[arch]}" for minor in range(least, 4, -1)]
    common = [
        "-m",
        "pip",
        "--disable-pip-version-check",
        "install",
        "--quiet",
        "--no-compile",
        "--target",
        str(packages),
    ]
    fitting = [
        *tags,
        f"--platform=manylinux2014_{ARCHITECTURES[arch]}",
        f"--python-version={python}",
        "--only-binary=:all:",
    ]
    run(sys.executable, *common, *fitting, "--no-deps", "--require-hashes", "-r", LOCK)
    # from a folder and not by its path, which would be kept in it
    run(sys.executable, *common, "--no-deps", "--no-index", "--find-links", str(work), f"{NAME}=={version}")
    # commands of other packages, which begin with the path of this machine's interpreter
    shutil.rmtree(packages / "bin", ignore_errors=True)


def lay_out_rest(tree: Path, version: str, packaged: str) -> None:
    """Unit, man page, what a person reads. `packaged`: Debian's form of the version."""
    unit = (ROOT / f"deploy/systemd/{NAME}.service").read_text(encoding="utf-8")
    write(tree / f"lib/systemd/system/{NAME}.service", packaged_unit(unit))
    # of this environment: the packages just laid out may be for another machine
    said = run(sys.executable, "-m", "llm_serving_exporter", "--help", told={"COLUMNS": "100"}).stdout
    write(tree / f"usr/share/man/man1/{NAME}.1.gz", gzip.compress(man_page(said, version).encode(), mtime=0))
    docs = tree / DOCS
    write(docs / "copyright", _COPYRIGHT.format(name=NAME, library=LIBRARY))
    date = format_datetime(datetime.fromtimestamp(read_moment(), UTC))
    told = {"name": NAME, "version": packaged, "docs": DOCS, "maintainer": read_maintainer(), "date": date}
    write(docs / "changelog.gz", gzip.compress(_CHANGELOG.format(**told).encode(), mtime=0))
    write(tree / f"usr/share/lintian/overrides/{NAME}", (ROOT / "deploy/deb/lintian-overrides").read_bytes())
    for page in (*PAGES, *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md")))):
        write(docs / page, (ROOT / page).read_bytes())
    for path in EXAMPLES:
        write(docs / "examples" / Path(path).name, (ROOT / "deploy" / path).read_bytes())


def packaged_unit(text: str) -> str:
    """The unit of deploy/systemd for the package's paths, with the page that it brings."""
    lines = text.replace(f"/opt/{NAME}/bin/", "/usr/bin/").splitlines(keepends=True)
    start = lines.index("[Unit]\n")
    return "".join(lines[start:]).replace("[Unit]\n", f"[Unit]\nDocumentation=man:{NAME}(1)\n", 1)


def man_page(said: str, version: str) -> str:
    """A page of section 1 out of what --help prints."""
    escaped = said.replace("\\", "\\e").replace("-", "\\-")
    lines = [f"\\&{line}" if line.startswith((".", "'")) else line for line in escaped.splitlines()]
    title = NAME.upper().replace("-", "\\-")
    name = NAME.replace("-", "\\-")
    return "\n".join(
        [
            f'.TH {title} 1 "" "{name} {version}"',
            ".SH NAME",
            f"{name} \\- Prometheus exporter for LLM servers and their GPUs",
            ".SH SYNOPSIS",
            f".B {name}",
            "[COMMAND] [OPTIONS]",
            ".SH DESCRIPTION",
            ".nf",
            *lines,
            ".fi",
            ".SH FILES",
            f"/etc/{NAME}/exporter.yml: the configuration of the service.",
            f"/{DOCS}/docs: every page of the documentation.\n",
        ]
    )


def read_moment() -> int:
    """Unix seconds that everything in the package bears."""
    # where nothing is built, versions are looked at without hatchling
    from hatchling.builders.utils import get_reproducible_timestamp

    return int(get_reproducible_timestamp())


def set_modes_and_times(tree: Path) -> None:
    """What the umask, the clock and the order of files of this machine would otherwise show."""
    moment = read_moment()
    for path in sorted(tree.rglob("*")):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or path.parent == tree / LIBRARY / "bin" else 0o644)
        os.utime(path, (moment, moment), follow_symlinks=False)


def pack(nfpm: str, tree: Path, version: str, arguments: argparse.Namespace) -> None:
    """Has nfpm make the package of the tree."""
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"].get("urls", {})
    told = {
        "DEB_ARCH": arguments.arch,
        "DEB_VERSION": version,
        "DEB_PYTHON": f"python{arguments.python}",
        "DEB_GLIBC": "{}.{}".format(*GLIBC),
        "DEB_MAINTAINER": read_maintainer(),
        "DEB_HOMEPAGE": urls.get("Homepage", ""),
        "DEB_TREE": str(tree),
        "SOURCE_DATE_EPOCH": str(read_moment()),
    }
    target = Path(arguments.out, f"{NAME}_{version}_{arguments.arch}.deb")
    target.parent.mkdir(parents=True, exist_ok=True)
    run(nfpm, "package", "--config", "deploy/deb/nfpm.yaml", "--packager", "deb", "--target", str(target), told=told)
    print(target)  # noqa: T201  # a script


def write(path: Path, content: str | bytes) -> None:
    """Writes a file, with the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)


def run(*command: str, told: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Runs a program at the root of the checkout; what it says goes to the terminal where it fails, and the script ends."""
    environment = os.environ | (told or {})
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        sys.exit(f"error: {' '.join(command[:4])} … ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
