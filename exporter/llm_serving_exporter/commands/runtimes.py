"""Command `runtimes`: the built-in tables, to look at or to start a table of one's own from."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from itertools import takewhile

from llm_serving_exporter import __version__
from llm_serving_exporter.engines.registry import RUNTIMES
from llm_serving_exporter.settings.flags import CommandParser
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
