"""What renders files shares: writing them, and labels on a command line."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

from llm_serving_exporter.files.written import write_atomically
from llm_serving_exporter.terminal import EXIT_FAILED, EXIT_OK, print_line, print_message


def written(folder: Path, files: Mapping[str, str], option: str) -> int:
    """Writes files by name below a folder and prints where; 1 where that fails. `option`: that chose the folder."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            write_atomically(folder / name, text.encode())
            print_line(str(folder / name))
    except OSError as error:
        print_message(f"error: {error.filename or folder} cannot be written: {error.strerror}; choose another {option}")
        return EXIT_FAILED
    return EXIT_OK


def name_value(text: str) -> tuple[str, str]:
    """A label from a command line. Raises ArgumentTypeError."""
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE. Write one such as release=prometheus.")
    return name, value
