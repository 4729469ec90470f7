"""Files that are made from the sources and committed: they are written, or compared with what would be written."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from llm_serving_exporter.terminal import print_message


def write_or_check(
    program: str, about: str | None, wanted: Mapping[Path, str], existing: Iterable[Path], argv: Sequence[str] | None
) -> int:
    """Runs a command with `--write` and `--check` over generated files; 1 where one differs or should not exist.

    `wanted`: the text of each file. `existing`: the files in folders that hold nothing but generated ones. Paths are relative to
    the current folder.
    """
    parser = argparse.ArgumentParser(prog=program, description=about)
    how = parser.add_mutually_exclusive_group(required=True)
    how.add_argument("--write", action="store_true", help="write the files")
    how.add_argument("--check", action="store_true", help="fail where a file differs from what would be written")
    arguments = parser.parse_args(argv)
    stale = [str(path) for path in sorted(existing) if path not in wanted]
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
