"""A file -> its tree, or the reason why not. Bounded in size."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from llm_serving_exporter.schema.json_tree import parse_json
from llm_serving_exporter.schema.problems import Place
from llm_serving_exporter.schema.tree import Node
from llm_serving_exporter.schema.yaml_tree import parse_yaml

LARGEST_FILE_BYTES = 2**20


def read_bounded(path: Path) -> str:
    """The text of a file, at most one byte above the limit. Raises OSError, UnicodeDecodeError."""
    with path.open("rb") as file:
        return file.read(LARGEST_FILE_BYTES + 1).decode("utf-8-sig", errors="strict")


def read_document(path: str, place: Place, read: Callable[[Path], str] = read_bounded) -> Node | None:
    """The tree of the file at `path`; None where the file cannot be used, which is then reported at `place`."""
    try:
        text = read(Path(path))
    except FileNotFoundError:
        place.refuse("the file does not exist", "Check the path.")
        return None
    except IsADirectoryError:
        place.refuse("this is a folder", "Give the path of a file.")
        return None
    except UnicodeDecodeError as error:
        # a text cut at the limit may end within a character
        if error.end >= LARGEST_FILE_BYTES:
            _refuse_size(place)
        else:
            place.refuse(f"byte {error.start} is not UTF-8", "Save the file as UTF-8 text.")
        return None
    except (OSError, ValueError) as error:
        cause = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        place.refuse(f"the file cannot be read: {cause}", "Check its path and permissions.")
        return None
    if len(text.encode(errors="replace")) > LARGEST_FILE_BYTES:
        _refuse_size(place)
        return None
    return parse_json(text, place) if path.lower().endswith(".json") else parse_yaml(text, place)


def _refuse_size(place: Place) -> None:
    place.refuse("the file is larger than 1 MiB", "Split its targets over files of file_sd.")
