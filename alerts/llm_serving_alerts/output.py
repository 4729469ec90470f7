"""What renders files shares: writing them, and labels on a command line."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
from pathlib import Path

from llm_serving_exporter.files.written import write_atomically
from llm_serving_exporter.terminal import EXIT_FAILED, EXIT_OK, print_line, print_message

# what Kubernetes takes: https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#syntax-and-character-set and .../names/
_WORD = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_NAMESPACE = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_DNS_NAME = re.compile(r"(?=.{1,253}$)[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)*")


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
    """A label of a Kubernetes object from a command line. Raises ArgumentTypeError."""
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE. Write one such as release=prometheus.")
    prefix, slash, own = name.rpartition("/")
    if not _WORD.fullmatch(own) or (slash and not _DNS_NAME.fullmatch(prefix)):
        raise argparse.ArgumentTypeError(f"{name!r} is no name of a label in Kubernetes. Write one such as release.")
    if value and not _WORD.fullmatch(value):
        raise argparse.ArgumentTypeError(
            f"{value!r} is no value of a label in Kubernetes. Write up to 63 letters, digits and any of . _ -."
        )
    return name, value


def namespace_name(text: str) -> str:
    """A namespace of Kubernetes from a command line. Raises ArgumentTypeError."""
    if not _NAMESPACE.fullmatch(text):
        raise argparse.ArgumentTypeError(
            f"{text!r} is no name of a namespace. Write up to 63 small letters, digits and dashes."
        )
    return text
