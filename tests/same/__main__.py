"""What a user sees of this product, made and compared: `python -m tests.same compare`, `check`, `generate` or `collect FOLDER [PART…]`.

`make same`, `make check` and `make generate` run it; CONTRIBUTING.md says how to read what it says. `collect` is how one commit asks
another for its outputs: its words do not change.
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.same.compare import compare_files, compare_folders, describe, list_outputs
from tests.same.trees import Repository, SameError, make_all, make_parts
from tests.support.paths import ROOT

# what makes them stands in `parts`, which imports the product: only a collector's process does
GENERATED = "generated"
# every other one is made by a second process where one side is known: the halves take as long
PARTS = (GENERATED, "messages", "answers", "golden", "help", "daemon", "kubernetes", "review", "deploy")
# a collector needs twenty seconds of a processor; on a busy machine many times as long
LONGEST_SECONDS = 1200
# folders that hold nothing but generated files
GENERATED_FOLDERS = (
    "alerts/rendered",
    "dashboards/rendered",
    "dashboards/provisioning",
    "deploy/helm/llm-serving-exporter/files/rules",
    "deploy/helm/llm-serving-exporter/files/dashboards",
)


def main(argv: Sequence[str] | None = None) -> int:
    """0: nothing differs; 1: something does, or could not be made."""
    arguments = _parser().parse_args(argv)
    try:
        if arguments.command == "collect":
            return _collect(Path(arguments.folder), arguments.parts or PARTS)
        if arguments.command == "generate":
            return _generate()
        if arguments.command == "check":
            return check(Repository())
        return compare(Repository(), arguments.base, new_allowed=arguments.new == "allowed")
    except SameError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def compare(repository: Repository, stated: str = "", *, new_allowed: bool = False) -> int:
    """Compares all outputs of the files as they are with those of BASE, and prints the differences."""
    commit = repository.find_base(stated)
    base, new = repository.take_commit(commit), repository.take_work_tree()
    print(f"the files as they are, against {base.name}")
    if base.tree == new.tree:
        print("no file differs from BASE: there is nothing to compare")
        return 0
    if not base.is_whole:
        repository.check_out(base, commit)
    make_all(base, new, PARTS)
    repository.forget_old((base.folder, new.folder))
    differences = compare_folders(base.folder, new.folder)
    if sentence := repository.explain_packages(commit):
        print(f"note: {sentence}")
    if not differences:
        count = len(list_outputs(new.folder))
        print(f"same: {count} outputs, byte for byte")
        return 0
    print(describe(differences))
    if new_allowed and all(one.kind == "new" for one in differences):
        return 0
    print("Is it meant? Then the commit message says what differs. New outputs alone are taken with NEW=allowed.")
    return 1


def check(repository: Repository) -> int:
    """Compares the generated files with what the sources make, and names each that is stale."""
    try:
        tree = repository.take_work_tree()
    except SameError:  # no checkout of git's, or one of somebody else's: nothing says whether a file has changed since
        tree = repository.take_folder()
    make_parts(tree, (GENERATED,))
    stale = list_stale(tree.folder / GENERATED, repository.root)
    if stale:
        print(
            f"out of date: {', '.join(stale)}; run `make generate`, remove what is not made any more, commit the result"
        )
        print(describe(compare_files(repository.root, tree.folder / GENERATED, stale)))
    return 1 if stale else 0


def list_stale(made: Path, root: Path) -> list[str]:
    """Files of the repository that are not what was made, and those that are not made any more."""
    wanted = {path.relative_to(made).as_posix(): path for path in made.rglob("*") if path.is_file()}
    stale = {
        name
        for name, path in wanted.items()
        if not (root / name).is_file() or (root / name).read_bytes() != path.read_bytes()
    }
    for folder in GENERATED_FOLDERS:
        there = (path.relative_to(root).as_posix() for path in (root / folder).rglob("*") if path.is_file())
        stale |= {name for name in there if name not in wanted}
    return sorted(stale)


def _collect(folder: Path, parts: Sequence[str]) -> int:
    from tests.same.surroundings import fix_surroundings

    # on a clock that stands still something that waits would wait for ever
    faulthandler.dump_traceback_later(LONGEST_SECONDS, exit=True)
    fix_surroundings()
    from tests.same.parts import collect

    collect(folder, parts)
    return 0


def _generate() -> int:
    """Writes every generated file, in the order in which some are made of others."""
    from tests.same.internals import list_generators

    for make in list_generators():
        for path, text in make().items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.same", description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("compare", help="with BASE; exit status 1 where something differs")
    one.add_argument("--base", default="", help="a commit; default: where HEAD left main, or the commit before")
    one.add_argument(
        "--new", default="", choices=("", "allowed"), help="whether outputs that BASE does not have may be there"
    )
    commands.add_parser("check", help="the generated files; exit status 1 where one is out of date")
    commands.add_parser("generate", help="write the generated files")
    one = commands.add_parser("collect", help="make the outputs of the tree in the current folder")
    one.add_argument("folder")
    one.add_argument("parts", nargs="*", help=f"{', '.join(PARTS)}; default: all")
    return parser


if __name__ == "__main__":
    os.chdir(ROOT)
    sys.exit(main())
