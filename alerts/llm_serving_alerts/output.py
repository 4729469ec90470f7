"""What renders files shares: writing them, checking those that are committed, and labels on a command line."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path


def written(folder: Path, files: Mapping[str, str], option: str) -> int:
    """Writes files by name below a folder and prints where; 1 where that fails. `option`: that chose the folder."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8")
            sys.stdout.write(f"{folder / name}\n")
    except OSError as error:
        sys.stderr.write(
            f"error: {error.filename or folder} cannot be written: {error.strerror}; choose another {option}\n"
        )
        return 1
    return 0


def generated(
    program: str, about: str | None, wanted: Mapping[Path, str], stands: Iterable[Path], argv: Sequence[str] | None
) -> int:
    """Writes or checks every generated file below the current folder; 1 where one differs or should not be there.

    `wanted`: texts by file; `stands`: what lies in the folders that hold nothing else.
    """
    parser = argparse.ArgumentParser(prog=program, description=about)
    how = parser.add_mutually_exclusive_group(required=True)
    how.add_argument("--write", action="store_true", help="write the files")
    how.add_argument("--check", action="store_true", help="fail where a file differs from what would be written")
    arguments = parser.parse_args(argv)
    stale = [str(path) for path in sorted(stands) if path not in wanted]
    for path, text in wanted.items():
        if arguments.write:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        elif not path.is_file() or path.read_text(encoding="utf-8") != text:
            stale.append(str(path))
    if stale:
        sys.stderr.write(
            f"out of date: {', '.join(stale)}; run `make generate`, remove what is not made any more, commit the result\n"
        )
    return 1 if stale else 0


def name_value(text: str) -> tuple[str, str]:
    """A label from a command line. Raises ArgumentTypeError."""
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value
