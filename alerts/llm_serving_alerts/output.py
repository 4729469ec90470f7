"""What renders files shares: writing them, checking those that are committed, and labels on a command line."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from llm_serving_exporter.terminal import EXIT_FAILED, EXIT_OK, print_line, print_message


def written(folder: Path, files: Mapping[str, str], option: str) -> int:
    """Writes files by name below a folder and prints where; 1 where that fails. `option`: that chose the folder."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8")
            print_line(str(folder / name))
    except OSError as error:
        print_message(f"error: {error.filename or folder} cannot be written: {error.strerror}; choose another {option}")
        return EXIT_FAILED
    return EXIT_OK


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
        print_message(
            f"out of date: {', '.join(stale)}; run `make generate`, remove what is not made any more, commit the result"
        )
    return 1 if stale else 0


def name_value(text: str) -> tuple[str, str]:
    """A label from a command line. Raises ArgumentTypeError."""
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value
