"""Command `runtimes`: the built-in tables, to look at or to start a table of one's own from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib.resources import files
from itertools import takewhile
from textwrap import wrap

from llm_serving_exporter import __version__
from llm_serving_exporter.engines.check import FIELDS, formula
from llm_serving_exporter.engines.mapping import Fingerprint, Mark, PageKind, Row, Runtime
from llm_serving_exporter.engines.registry import RUNTIMES
from llm_serving_exporter.model.snapshot import EXPORTED_FIELDS, Quality
from llm_serving_exporter.model.target import Target
from llm_serving_exporter.settings.flags import CommandParser
from llm_serving_exporter.settings.kinds import format_duration
from llm_serving_exporter.settings.problems import did_you_mean, shown
from llm_serving_exporter.terminal import EXIT_FAILED, EXIT_OK, EXIT_USAGE, print_line, print_message

_EPILOG = """examples:
  llm-serving-exporter runtimes                      every table, one a line
  llm-serving-exporter runtimes --show vllm >> exporter.yml

What is printed is a part of a configuration file: change what differs, and name it as you like. Pages that
the built-in table knows are then read by yours. What each key means: docs/mapping.md."""


def run(words: Sequence[str]) -> int:
    """Prints a table, or without a name the list; 0 good, 1 where there is nobody to print to, 2 for a name that is none."""
    parser = CommandParser(
        "runtimes",
        usage="llm-serving-exporter runtimes [--show RUNTIME]",
        description="The tables that say how each runtime's metrics page is read.",
        epilog=_EPILOG,
    )
    parser.add_argument("--show", metavar="RUNTIME", help="print this one's table as a configuration file has it")
    wanted = parser.parse_args(words).show
    if wanted is None:
        width = max(map(len, RUNTIMES))
        text = "\n".join(
            f"{table.name:<{width}}  {table.title:<36}  {table.versions}".rstrip() for table in RUNTIMES.values()
        )
    elif wanted in RUNTIMES:
        text = make_section(wanted)
    else:
        print_message(f"error: flag --show: there is no table {shown(wanted)}. {did_you_mean(wanted, RUNTIMES)}")
        return EXIT_USAGE
    return EXIT_OK if print_line(text) else EXIT_FAILED


def make_section(name: str) -> str:
    """A built-in table as a file's `runtimes:`, under a name of its own."""
    path = files("llm_serving_exporter.engines").joinpath(f"tables/{name}.yml")
    lines = path.read_text(encoding="utf-8").splitlines()
    about = list(takewhile(lambda line: line.startswith("#"), lines))
    table = [f"    {line}" if line else "" for line in lines[len(about) + 1 :]]
    head = f"# The built-in table {name} of llm-serving-exporter {__version__}."
    return "\n".join((head, *about, "runtimes:", f"  - name: own-{name}", *table))


# --- what check-config says of targets and of tables of the file -------------------------------------------------------

_WIDTH = 120


def target_lines(targets: Iterable[Target]) -> list[str]:
    """One line a target: its name, its URL, whose page it is."""
    rows = [(target.name, target.url, target.runtime or "found out from the page") for target in targets]
    names, urls = (max((len(row[column]) for row in rows), default=0) for column in (0, 1))
    return [f"  {name:<{names}}  {url:<{urls}}  {runtime}" for name, url, runtime in rows]


def table_lines(table: Runtime, where: str, builtin: Iterable[Runtime]) -> list[str]:
    """A table: where it stands, its page, how it is recognised, and a line a field; fields of the table that it is based on as one."""
    base = next((other for other in builtin if other.rows and table.rows[-len(other.rows) :] == other.rows), None)
    inherited = base.rows if base is not None else ()
    added = table.rows[: len(table.rows) - len(inherited)]
    nothing = f"nothing: only a target with runtime: {table.name} is read by it"
    lines = [
        f"runtime {table.name} ({table.title}), {where}",
        f"  page           {', '.join(table.paths)}",
        f"  recognised by  {', or '.join(map(_fingerprint_text, table.fingerprints)) or nothing}",
        f"  model_name     {_from_label(table.model_labels) or 'as the target is configured'}",
        f"  engine         {_from_label(table.engine_labels) or '0'}",
    ]
    below = {row.field for row in inherited}
    fields = [field for field in FIELDS if any(row.field == field for row in added)]
    width = max((len(field) for field in fields), default=0)
    title = base.title if base is not None else ""
    for field in fields:
        ways = [_way(row) for row in added if row.field == field] + [f"as {title}"] * (field in below)
        lines.append(f"  {field:<{width}}  {'; else '.join(ways)}")
    lines += _list_fields(f"as {title}", [field for field in FIELDS if field in below and field not in fields])
    if table.kind is not PageKind.NONE:
        lines += _list_fields(
            "not read", [field for field in EXPORTED_FIELDS if field not in below and field not in fields]
        )
    return lines


def _list_fields(what: str, fields: Sequence[str]) -> list[str]:
    text = f"{what}: {', '.join(fields)}"
    return wrap(text, _WIDTH, initial_indent="  ", subsequent_indent="    ") if fields else []


def _from_label(labels: Sequence[str]) -> str:
    return f"from the label {', else '.join(labels)}" if labels else ""


def _fingerprint_text(fingerprint: Fingerprint) -> str:
    text = " with ".join(map(_mark_text, fingerprint.all_of))
    return f"{text} without {' or '.join(map(_mark_text, fingerprint.none_of))}" if fingerprint.none_of else text


def _mark_text(mark: Mark) -> str:
    return mark.name if mark.label is None else f"{mark.name}{{{mark.label}}}"


def _way(row: Row) -> str:
    versions = f", versions {row.versions}" if row.versions else ""
    every = f" ({format_duration(row.refresh_seconds)})" if row.refresh_seconds else ""
    return f"{formula(row)}{versions}" + (f", {row.quality.value}{every}" if row.quality is not Quality.LIVE else "")
