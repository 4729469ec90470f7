"""The section `bills:` of report.yml: which bills the week is compared with, and how their lines find what was metered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from llm_serving_exporter.model.record import replace
from llm_serving_exporter.settings import kinds
from llm_serving_exporter.settings.flags import FlagReader
from llm_serving_exporter.settings.keys import Reader, elements, is_empty, key, list_reader, mapping_reader
from llm_serving_exporter.settings.options import Context, read_path
from llm_serving_exporter.settings.problems import Node, Place, shown
from llm_serving_review.bills.charge import BillError
from llm_serving_review.bills.columns import FORMATS
from llm_serving_review.bills.files import find_bill_files
from llm_serving_review.bills.mapping import LABELS, Found, read_mapping_file

_ACCOUNT = kinds.text("number of an account")
_PATTERN = kinds.text("type of an instance, or a pattern such as p5.*")
_LABEL = kinds.choice("label", LABELS)
_GPUS = kinds.integer(1, 1_000)


def _read_paths(node: Node, place: Place, context: Context) -> tuple[str, ...]:
    given = ((read_path(element, at, context), at) for element, at in elements(node, place, "paths"))
    paths = tuple(path for path, at in given if path is not None and check_bill_path(path, at))
    if not paths and not place.problems:
        place.refuse("the list is empty", "Write paths: [bills/*.csv.gz].")
    return paths


def check_bill_path(path: str, place: Place) -> bool:
    """Whether a path, folder or pattern has a bill; reported where it has none."""
    try:
        find_bill_files([path])
    except BillError as error:
        place.refuse(f"{error.fault.what}: {shown(path)}", error.fault.fix)
        return False
    return True


def _read_mapping(node: Node, place: Place, context: Context) -> Mapping[str, tuple[Found, ...]] | None:
    path = read_path(node, place, context)
    return None if path is None else read_mapping_file(path, place)


def _read_pairs(kind: kinds.Kind[Any]) -> Reader:
    read = mapping_reader(kind, "Write it as in docs/report.md.")
    return lambda node, place, context: None if is_empty(node) else read(node, place, context)


@dataclass(frozen=True, slots=True)
class BillSettings:
    """What is compared. Every path has at least one file."""

    paths: tuple[str, ...] = key(_read_paths, unset=())  # files, folders and patterns
    format: str | None = key(kinds.choice("format", FORMATS))  # focus or cur; None = by the header
    # accounts whose lines are compared; () = all
    accounts: tuple[str, ...] = key(list_reader(_ACCOUNT, "numbers of accounts in quotes"), unset=())
    # types of instances and patterns; () = all that are known to have GPUs
    instance_types: tuple[str, ...] = key(list_reader(_PATTERN, "types of instances"), unset=())
    # GPUs of an instance by its type, where neither the bill nor another instance says
    gpus_per_instance: Mapping[str, int] = key(_read_pairs(_GPUS), unset={})
    # targets, nodes, workloads or models of machines, by `normalise_resource`
    mapping: Mapping[str, tuple[Found, ...]] = key(_read_mapping, name="mapping_file", unset={})
    tags: Mapping[str, str] = key(_read_pairs(_LABEL), unset={})  # labels by tags of the bill


def read_bill_flags(bills: BillSettings | None, flags: FlagReader) -> BillSettings | None:
    """The section with the paths of `--bill`, which win over its own. A path without a bill is reported, a section without paths too."""
    paths = flags.values("--bill", kinds.PATH)
    at = Place("flag --bill", "", flags.problems)
    if paths:
        for path in paths:
            check_bill_path(path, at)
        return replace(bills or BillSettings(), paths=paths)
    if bills is not None and not bills.paths and not flags.problems:
        flags.refuse(
            "--bill", "there is no bill to compare with", "Give paths under bills: in the settings, or --bill."
        )
    return bills
