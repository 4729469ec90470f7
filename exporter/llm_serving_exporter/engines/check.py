"""What is wrong with a table, built-in or a configuration's."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from math import isfinite

from llm_serving_exporter.engines.check_row import (
    FIELDS,
    SAMPLE,
    Fault,
    Path,
    label_faults,
    name_of,
    near,
    row_faults,
    version_faults,
)
from llm_serving_exporter.engines.mapping import ERRORS, Fingerprint, Mark, PageKind, Row, Runtime
from llm_serving_exporter.model.record import replace

# what a whole class of processes has, so that it tells no runtime from another
GENERIC = ("http_", "python_", "process_", "go_", "promhttp_")
SLO_NAMES = ("ttft", "itl", "e2e")
RUNTIME_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
MOST_DIGITS = 17  # of a double


def faults(runtime: Runtime) -> list[Fault]:
    """Everything that is wrong with a table; [] for a sound one."""
    found = [*_identity(runtime), *_page(runtime), *_labels(runtime), *_recognition(runtime), *_rest(runtime)]
    for number, row in enumerate(runtime.rows):
        found += [Fault(("rows", number, *fault.path), fault.what, fault.fix) for fault in row_faults(row)]
        if row.born_at_first_event and not runtime.born_at_first_event:
            what, fix = (
                "it has no effect where counters are there from the start",
                "Say it of the runtime too, or remove it.",
            )
            found.append(Fault(("rows", number, "born_at_first_event"), what, fix))
        if any(other.field == row.field and _same_reading(other, row) for other in runtime.rows[:number]):
            found.append(Fault(("rows", number), "an earlier row reads the same", "Remove it."))
    return found


def _identity(runtime: Runtime) -> Iterator[Fault]:
    if not RUNTIME_NAME.fullmatch(runtime.name) or runtime.name == "auto" or len(runtime.name) > 63:
        yield Fault(
            ("name",),
            f'"{runtime.name}" is not a name for a runtime',
            "Write lower-case words with dashes, as in acme-serve.",
        )
    if not runtime.title.strip():
        yield Fault(("title",), "the title is empty", "Write the product's name.")
    yield from version_faults(("versions",), runtime.versions)
    for method, versions in runtime.kv_as_calibrated.items():
        yield from version_faults(("kv_as_calibrated", method), versions)


def _page(runtime: Runtime) -> Iterator[Fault]:
    if not runtime.paths:
        yield Fault(("paths",), "there is no path", "Write the path of its metrics page, as in [/metrics].")
    for number, path in enumerate(runtime.paths):
        if not path.startswith("/"):
            yield Fault(("paths", number), f'"{path}" is not a path', "Write one that starts with /, as in /metrics.")
    if (runtime.read_page is not None) != (runtime.kind is PageKind.JSON):
        yield Fault(("read_page",), "read_page and a page of kind json belong together")
    if runtime.kind is PageKind.NONE:
        return
    if not runtime.rows:
        yield Fault(("rows",), "there is no row", "Write one for each field that the page can fill.")
    own = runtime.prefixes or None
    first = [name_of(text) for row in runtime.rows for text in row.samples[:1]]
    if first and not any(name.startswith(own) if own else not name.startswith(GENERIC) for name in first):
        what = "begins with one of them" if own else "only this runtime has"
        yield Fault(
            ("prefixes",),
            f"no row reads a sample that {what}: pages of others would count as its, or none would",
            "Write what its families begin with, and a row that reads one of them.",
        )
    for number, prefix in enumerate(runtime.prefixes):
        yield from _prefix(("prefixes", number), prefix)


def _prefix(path: Path, prefix: str) -> Iterator[Fault]:
    if not SAMPLE.fullmatch(prefix):
        yield Fault(
            path, f'"{prefix}" cannot begin the name of a sample', "Write letters, digits, _ and :, as in acme_."
        )
    elif _is_generic(prefix, is_prefix=True):
        yield Fault(
            path, f'"{prefix}" begins what every process has', "Write what only this runtime's families begin with."
        )


def _labels(runtime: Runtime) -> Iterator[Fault]:
    columns: tuple[tuple[str, Iterable[str]], ...] = (
        ("model_labels", runtime.model_labels),
        ("engine_labels", runtime.engine_labels),
        ("replica_label", (runtime.replica_label,) if runtime.replica_label is not None else ()),
        ("rank_labels", runtime.rank_labels),
        ("only", runtime.only),
        ("never", runtime.never),
        ("not_users", [label for one in runtime.not_users for label in one]),
    )
    for column, labels in columns:
        for label in labels:
            yield from label_faults((column,), label)
    for label in sorted(
        {*runtime.rank_labels} & {*runtime.model_labels, *runtime.engine_labels, runtime.replica_label}
    ):
        yield Fault(
            ("rank_labels",),
            f'"{label}" also tells engines apart',
            "A rank belongs to one engine: keep the label in one place.",
        )
    for label, values in runtime.only.items():
        if not values:
            yield Fault(
                ("only", label), "no value is allowed, so that nothing would be read", 'Write the values, "" for none.'
            )


def _recognition(runtime: Runtime) -> Iterator[Fault]:
    for number, one in enumerate(runtime.fingerprints):
        path: Path = ("fingerprints", number)
        yield from _fingerprint(path, one)


def _fingerprint(path: Path, one: Fingerprint) -> Iterator[Fault]:
    marks = [(("all_of", number), mark) for number, mark in enumerate(one.all_of)]
    wrong = False
    for place, mark in (*marks, *((("none_of", number), mark) for number, mark in enumerate(one.none_of))):
        for fault in _mark((*path, *place), mark):
            wrong = True
            yield fault
    if not one.all_of:
        yield Fault(
            path, "it names nothing that has to be on the page", "Write what only this runtime has on its page."
        )
    elif not wrong and all(
        _is_generic(mark.name.rstrip("*"), is_prefix=mark.name.endswith("*")) for mark in one.all_of
    ):
        yield Fault(
            path,
            f"{', '.join(mark.name for mark in one.all_of)} would recognise any server",
            "Name a sample that only this runtime has.",
        )


def _mark(path: Path, mark: Mark) -> Iterator[Fault]:
    if not SAMPLE.fullmatch(mark.name.removesuffix("*")):
        yield Fault(
            path, f'"{mark.name}" is not the name of a sample', "Write one, or a prefix that ends in *, as in acme_*."
        )
    if mark.label is not None:
        yield from label_faults(path, mark.label)


def _is_generic(name: str, *, is_prefix: bool) -> bool:
    return name.startswith(GENERIC) or (is_prefix and any(generic.startswith(name) for generic in GENERIC))


def _rest(runtime: Runtime) -> Iterator[Fault]:
    for column, name in (("living", runtime.living), ("start_sample", runtime.start_sample)):
        if name is not None and not SAMPLE.fullmatch(name):
            yield Fault((column,), f'"{name}" is not the name of a sample', "Write a name without labels.")
    for number, pair in enumerate(runtime.respelt):
        for prefix in pair:
            yield from _prefix(("respelt", number), prefix)
    if runtime.significant_digits is not None and not 1 <= runtime.significant_digits <= MOST_DIGITS:
        yield Fault(
            ("significant_digits",), f"{runtime.significant_digits} is out of range", f"Write 1 to {MOST_DIGITS}."
        )
    for column, paths in (
        ("endpoints", [endpoint.path for endpoint in runtime.endpoints]),
        ("polls", [poll.path for poll in runtime.polls]),
        ("shows", [path for path, _ in runtime.shows]),
    ):
        for number, path in enumerate(paths):
            if not path.startswith("/"):
                yield Fault((column, number), f'"{path}" is not a path', "Write one that starts with /.")
    for name, edges in runtime.default_edges.items():
        if name not in SLO_NAMES:
            yield Fault(("default_edges", name), "there is no such SLO", f"Known: {', '.join(SLO_NAMES)}.")
        elif not edges or any(not (isfinite(edge) and edge > 0) for edge in edges) or sorted(set(edges)) != list(edges):
            yield Fault(
                ("default_edges", name),
                "the edges are not positive and ascending",
                "Write seconds, the smallest first.",
            )
    read = {row.field for row in runtime.rows}
    for field in runtime.missing:
        if field not in (*FIELDS, ERRORS):
            yield Fault(("missing", field), "there is no such field", near(field, FIELDS))
        elif field in read:
            yield Fault(("missing", field), "the field has a row", "Keep one of them.")
        elif not runtime.missing[field].strip():
            yield Fault(("missing", field), "the reason is empty", "Write why the runtime cannot give it.")


def _same_reading(one: Row, other: Row) -> bool:
    """Whether the texts are all that two rows differ in."""
    silent = {"caveat": "", "source": ""}
    return replace(one, **silent) == replace(other, **silent)  # type: ignore[arg-type]  # both are texts
