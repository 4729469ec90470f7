"""Trees and where their outputs are kept: a folder of build/same for what the files of a tree say, made once.

What BASE's tree makes is made by BASE's own collector, in a checkout of it, so that the product's modules may move between the two.
All that this module wants of that collector is `python -m tests.same collect FOLDER [PART…]`.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import distributions
from pathlib import Path

from tests.support.paths import ROOT

KEPT = "build/same"
SOURCE_ROOTS = ("exporter", "alerts", "dashboards", ".")
# what is laid over a checkout of a commit from before there was a collector
COLLECTOR = (
    "tests/same",
    "tests/support/builders/golden_pages.py",
    "tests/support/builders/input_files.py",
    "tests/support/logging_state.py",
)
_BASE = "base"
# trees whose outputs are kept
MOST_KEPT = 8


class SameError(Exception):
    """A comparison that cannot be made; the message says why."""


@dataclass(frozen=True)
class Side:
    """A tree, and where its outputs are kept."""

    # its name in messages
    name: str
    # git's hash of its files
    tree: str
    # a checkout of it
    checkout: Path
    # of its outputs
    folder: Path

    @property
    def whole(self) -> Path:
        """A file that is there once all outputs are."""
        return self.folder / ".whole"

    @property
    def is_whole(self) -> bool:
        """Whether all outputs are there."""
        return self.whole.exists()


class Repository:
    """A git repository and its folder of outputs. Reads objects and writes none: neither index nor work tree nor a branch changes."""

    def __init__(self, root: Path = ROOT) -> None:
        self.root, self.kept = root, root / KEPT

    def git(self, *words: str, **environ: str) -> str:
        """What git answers, without the line break at its end. Raises SameError."""
        done = subprocess.run(
            ["git", "-C", str(self.root), *words],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, **environ},
        )
        if done.returncode != 0:
            raise SameError(f"git {' '.join(words)}: {done.stderr.strip() or f'exit status {done.returncode}'}")
        return done.stdout.removesuffix("\n")

    def find_base(self, stated: str = "") -> str:
        """The commit to compare with: `stated`, else where HEAD left main; where that is HEAD and the tree is clean, the commit before it.

        Raises SameError where there is no such commit.
        """
        if stated:
            return self.git("rev-parse", "--verify", f"{stated}^{{commit}}")
        head = self.git("rev-parse", "HEAD")
        branch = next((name for name in ("origin/main", "main") if self._has(name)), None)
        if branch is None:
            raise SameError("there is no branch main to compare with. State BASE=<commit>.")
        base = self.git("merge-base", "HEAD", branch)
        if base == head and not self.git("status", "--porcelain"):
            if not self._has("HEAD^1"):
                raise SameError("the first commit has none before it to compare with. State BASE=<commit>.")
            return self.git("rev-parse", "HEAD^1")
        return base

    def _has(self, revision: str) -> bool:
        try:
            self.git("rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}")
        except SameError:
            return False
        return True

    def hash_work_tree(self) -> str:
        """Git's hash of the files as they are, those included that are not added yet; it is a commit's where they are committed so."""
        with tempfile.TemporaryDirectory() as folder:
            index, objects = Path(folder) / "index", Path(folder) / "objects"
            objects.mkdir()
            shared = Path(self.git("rev-parse", "--path-format=absolute", "--git-path", "objects"))
            own = Path(self.git("rev-parse", "--path-format=absolute", "--git-path", "index"))
            if own.is_file():
                shutil.copy2(own, index)
            environ = {
                "GIT_INDEX_FILE": str(index),
                "GIT_OBJECT_DIRECTORY": str(objects),
                "GIT_ALTERNATE_OBJECT_DIRECTORIES": str(shared),
            }
            self.git("add", "--all", ".", **environ)
            return self.git("write-tree", **environ)

    def has_collector(self, commit: str) -> bool:
        """Whether a commit has a collector of its own."""
        return bool(self.git("ls-tree", commit, "tests/same/__main__.py"))

    def take_work_tree(self) -> Side:
        """The side of the files as they are."""
        tree = self.hash_work_tree()
        return Side("this tree", tree, self.root, self.kept / _key(tree))

    def take_folder(self) -> Side:
        """The same where git cannot tell: its outputs are made anew."""
        folder = self.kept / "without-git"
        shutil.rmtree(folder, ignore_errors=True)
        return Side("this tree", "", self.root, folder)

    def take_commit(self, commit: str) -> Side:
        """The side of a commit. Nothing is checked out yet: `check_out` does."""
        tree = self.git("rev-parse", f"{commit}^{{tree}}")
        laid_over = "" if self.has_collector(commit) else self._hash_collector()
        name = f"BASE {self.git('log', '-1', '--format=%h %<(72,trunc)%s', commit).rstrip()}"
        return Side(name, tree, self.kept / _BASE, self.kept / _key(tree, laid_over))

    def check_out(self, side: Side, commit: str) -> None:
        """Brings the side's checkout to the commit. Files that are the same as in the last one are left as they are, and what Python has
        compiled of them stays good."""
        index = str(self.kept / "base.index")
        side.checkout.mkdir(parents=True, exist_ok=True)
        for path in COLLECTOR:  # whose they are is not known any more
            shutil.rmtree(side.checkout / path, ignore_errors=True)
            if (side.checkout / path).is_file():
                (side.checkout / path).unlink()
        there = [f"--work-tree={side.checkout}"]
        self.git(*there, "read-tree", "--reset", "-u", commit, GIT_INDEX_FILE=index)
        self.git(*there, "checkout-index", "--all", "--force", "--quiet", GIT_INDEX_FILE=index)
        if not self.has_collector(commit):
            for path in COLLECTOR:
                source, target = self.root / path, side.checkout / path
                target.parent.mkdir(parents=True, exist_ok=True)
                if source.is_dir():
                    shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
                else:
                    shutil.copy2(source, target)

    def explain_packages(self, commit: str) -> str:
        """A sentence where the commit states other packages than this tree; "" where it states the same."""
        before, now = tomllib.loads(self.git("show", f"{commit}:pyproject.toml")), self.root / "pyproject.toml"
        names = ("dependencies", "optional-dependencies")
        after = tomllib.loads(now.read_text(encoding="utf-8"))
        changed = [name for name in names if before["project"].get(name) != after["project"].get(name)]
        changed += [name for name in ("locks",) if self.git("diff", "--name-only", commit, "--", name)]
        if not changed:
            return ""
        return (
            f"{', '.join(changed)} differ: both sides ran with this environment's packages, which BASE does not state"
        )

    def forget_old(self, needed: Iterable[Path]) -> None:
        """Removes outputs of trees that nobody has asked for lately."""
        kept = {*needed}
        folders = [path for path in self.kept.iterdir() if path.is_dir() and path.name != _BASE and path not in kept]
        for path in sorted(folders, key=lambda one: one.stat().st_mtime, reverse=True)[MOST_KEPT - len(kept) :]:
            shutil.rmtree(path, ignore_errors=True)

    def _hash_collector(self) -> str:
        found = hashlib.sha256()
        for name in COLLECTOR:
            path = self.root / name
            for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
                if file.is_file() and "__pycache__" not in file.parts:
                    found.update(f"{file.relative_to(self.root)}\n".encode() + file.read_bytes())
        return found.hexdigest()


def _key(*parts: str) -> str:
    """A name for the outputs of files and of all else that they depend on; the same for a commit and for a work tree with its files."""
    return hashlib.sha256("\n".join([*filter(None, parts), _describe_environment()]).encode()).hexdigest()[:16]


@cache
def _describe_environment() -> str:
    """Python, its packages, and the programs that make some outputs."""
    packages = sorted({f"{one.metadata['Name']} {one.version}" for one in distributions()})
    return "\n".join([sys.version, *packages, *_find_programs().values()])


@cache
def _find_programs() -> dict[str, str]:
    """The programs that make some outputs, by the variables that name them: both sides use the same, wherever it is built."""
    built = str(ROOT / ".venv/go/bin")
    found = {
        name.upper(): shutil.which(os.environ.get(name.upper(), name)) or shutil.which(name, path=built)
        for name in ("helm", "kubectl")
    }
    return {variable: path for variable, path in found.items() if path is not None}


def make_all(base: Side, new: Side, parts: Sequence[str]) -> None:
    """All outputs that are not kept, in two processes at once: BASE's by all that its own collector has, whatever it calls that.

    Raises SameError with the last words of a collector that failed.
    """
    jobs: list[tuple[Side, Sequence[str]]] = [] if base.is_whole else [(base, ())]
    missing = _list_missing(new, parts)
    halves = [missing] if jobs else [missing[0::2], missing[1::2]]
    _run_collectors([*jobs, *((new, half) for half in halves if half)])
    for side in (base, new):
        side.whole.touch()
        # asked for lately
        os.utime(side.folder)


def make_parts(side: Side, parts: Sequence[str]) -> None:
    """Some of a side's outputs, where they are not kept. Raises SameError as `make_all` does."""
    if missing := _list_missing(side, parts):
        _run_collectors([(side, missing)])


def _list_missing(side: Side, parts: Sequence[str]) -> list[str]:
    return [part for part in parts if not (side.folder / part).exists()]


def _run_collectors(jobs: Sequence[tuple[Side, Sequence[str]]]) -> None:
    started = [(side, _start_collector(side, parts)) for side, parts in jobs]
    failed = []
    for side, process in started:
        said = process.communicate()[0]
        if process.returncode != 0:
            words = "\n".join(said.strip().splitlines()[-30:])
            failed.append(f"{side.name}: its outputs could not be made:\n{words}")
    if failed:
        raise SameError("\n".join(failed))


def _start_collector(side: Side, parts: Sequence[str]) -> subprocess.Popen[str]:
    side.folder.mkdir(parents=True, exist_ok=True)
    roots = os.pathsep.join(str(side.checkout / root) for root in SOURCE_ROOTS)
    return subprocess.Popen(
        [sys.executable, "-m", "tests.same", "collect", str(side.folder), *parts],
        cwd=side.checkout,
        env={**os.environ, **_find_programs(), "PYTHONPATH": roots},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
