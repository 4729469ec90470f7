"""`slo.file`: thresholds from the settings file of the alert rules, so that they are written in one place.

Only `slo.<name>.threshold` is read here. Everything else in that file is for the rules, which check it: `llm-serving-exporter rules`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path

from llm_serving_exporter.config.options import Setting, Settings
from llm_serving_exporter.schema import kinds
from llm_serving_exporter.schema.document import read_document
from llm_serving_exporter.schema.problems import Place, nearest
from llm_serving_exporter.schema.reading import is_empty, type_name, value
from llm_serving_exporter.schema.tree import Node

# errors have no threshold: an answer is one or it is not
NAMES = ("ttft", "itl", "e2e")
_FOR_RULES = {"errors", "period"}
_EXAMPLE = "Write slo: {ttft: {threshold: 2.5s}} into it, or do not give slo.file."


def read_thresholds(path: Setting, read: Callable[[Path], str], warnings: list[str]) -> dict[str, Setting]:
    """The thresholds of the file that `slo.file` names, by option name ("slo.ttft"); those that are not in it are left out.

    A key that is like one of ours is named in `warnings`: whoever wrote it meant a threshold, and the rules may know it.
    A file that cannot be used, has no section `slo`, or a threshold that is none, is reported at its place.
    """
    place = Place(path.value, "", path.place.problems)
    document = read_document(path.value, place, read)
    if document is None:
        return {}
    section = document.get("slo") if isinstance(document, dict) else None
    if section is None or is_empty(section):
        place.refuse(f"there is no section slo in this file, which {path.place} names", _EXAMPLE)
        return {}
    found = {}
    for name, (node, where) in _thresholds(section, place.key("slo"), warnings):
        seconds = value(node, where, kinds.THRESHOLD)
        if seconds is not None:
            found[f"slo.{name}"] = Setting(seconds, where, from_file=True)
    return found


def _thresholds(section: Node, place: Place, warnings: list[str]) -> Iterator[tuple[str, tuple[Node, Place]]]:
    if not isinstance(section, dict):
        place.refuse(f"must be a mapping (key: value), not {type_name(section)}", _EXAMPLE)
        return
    for other in sorted(section.keys() - NAMES - _FOR_RULES):
        warnings += _name_slip(other, NAMES, place)
    for name in NAMES:
        own = section.get(name)
        if own is None or is_empty(own):
            continue
        if not isinstance(own, dict):
            what = f"must be a mapping (key: value), not {type_name(own)}"
            place.key(name).refuse(what, f"Write {name}: {{threshold: 2.5s}}, or off for 2.5s.")
        elif "threshold" in own:
            yield name, (own["threshold"], place.key(name).key("threshold"))
        else:
            for other in sorted(own.keys() - {"objective"}):
                warnings += _name_slip(other, ("threshold",), place.key(name))


def _name_slip(key: str, known: Collection[str], place: Place) -> list[str]:
    near = nearest(key, known)
    return [] if near is None else [f"{place.key(key)}: not read, because this key is not known; did you mean {near}?"]


def overridden(thresholds: Settings, explicit: Mapping[str, Setting]) -> Iterator[str]:
    """A warning for each threshold of the file that an option given elsewhere wins over."""
    for name, unused in thresholds.items():
        if name in explicit:
            yield f"{unused.place}: not used, because {explicit[name].place} takes its place"
