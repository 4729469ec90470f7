"""The mapping file: machines as a bill names them -> what was metered on them. CSV with a line of headers, or YAML."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from llm_serving_exporter.settings.document import LARGEST_FILE_BYTES, read_bounded, read_document
from llm_serving_exporter.settings.keys import is_empty, type_name
from llm_serving_exporter.settings.problems import Node, Place, Scalar, listed
from llm_serving_review.bills.csv_rows import find_delimiter
from llm_serving_review.bills.resources import normalise_resource

# what a machine can be mapped to, the most telling first
LABELS = ("target", "node", "workload", "model_name")
_RESOURCE = "resource"
_MOST_ENTRIES = 50_000
_EXAMPLE = "Write resource,target in its first line and a machine in each other."


class Found(NamedTuple):
    """One thing that was metered."""

    label: str  # one of LABELS
    value: str  # the label's value


def read_mapping_file(path: str, place: Place) -> Mapping[str, tuple[Found, ...]] | None:
    """What each machine is mapped to, by `normalise_resource`; a machine may stand in several lines. None where the file cannot be used,
    which is then reported."""
    at = Place(path, "", place.problems)
    before = len(at.problems)
    entries = _read_csv(path, at) if path.lower().endswith(".csv") else _read_yaml(read_document(path, at), at)
    found: dict[str, dict[Found, None]] = {}
    for number, (resource, one) in enumerate(entries):
        if number >= _MOST_ENTRIES:
            at.refuse(f"there are more than {_MOST_ENTRIES:,} machines", "Map nodes by tags instead.")
            break
        found.setdefault(normalise_resource(resource), {})[one] = None
    if len(at.problems) == before and not found:
        at.refuse("the file maps no machine", _EXAMPLE)
    return None if len(at.problems) > before else {resource: tuple(ones) for resource, ones in found.items()}


def _read_csv(path: str, at: Place) -> Iterator[tuple[str, Found]]:
    try:
        text = read_bounded(Path(path))
        if len(text) > LARGEST_FILE_BYTES:
            at.refuse("the file is larger than 1 MiB", "Map nodes by tags instead.")
            return
        lines = text.splitlines(keepends=True)
        rows = csv.reader(lines, delimiter=find_delimiter(lines[0] if lines else ""))
        header = [name.strip().lower() for name in next(rows, [])]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        cause = error.strerror if isinstance(error, OSError) and error.strerror else "it is not CSV in UTF-8"
        at.refuse(f"the file cannot be read: {cause}", "Check its path and how it was saved.")
        return
    labels = [(header.index(label), label) for label in LABELS if label in header]
    if _RESOURCE not in header or not labels:
        at.refuse(f"the headers must be {_RESOURCE} and one of {listed(LABELS)}", _EXAMPLE)
        return
    position = header.index(_RESOURCE)
    try:
        for row in rows:
            if not any(row):
                continue
            cells = [cell.strip() for cell in row] + [""] * (len(header) - len(row))
            one = next((Found(label, cells[index]) for index, label in labels if cells[index]), None)
            if not cells[position] or one is None:
                at.refuse(
                    f"line {rows.line_num} has no {_RESOURCE if not cells[position] else listed(LABELS)}", _EXAMPLE
                )
                return
            yield cells[position], one
    except csv.Error as error:
        # behind the dash is advice for programmers, which differs from Python to Python
        at.refuse(f"line {rows.line_num} is not CSV: {str(error).partition(' - ')[0]}", _EXAMPLE)


def _read_yaml(node: Node | None, at: Place) -> Iterator[tuple[str, Found]]:
    if node is None or is_empty(node):
        return
    if not isinstance(node, dict):
        at.refuse(f"must be a mapping (machine: what runs there), not {type_name(node)}", "Write i-0abc: {target: …}.")
        return
    for resource, content in node.items():
        here = at.key(resource)
        if not isinstance(content, dict) or not content or not set(content) <= set(LABELS):
            here.refuse(f"must be a mapping with {listed(LABELS)}", "Write i-0abc: {target: …}.")
            continue
        label = next(label for label in LABELS if label in content)
        named = content[label]
        values = named if isinstance(named, list) else [named]
        for one in values:
            if isinstance(one, Scalar) and one.text:
                yield resource, Found(label, one.text)
            else:
                here.key(label).refuse(f"must be a name, not {type_name(one)}", "Write a name, or a list of names.")
