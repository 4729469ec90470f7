"""Command `runbook`: what to do about an alert, on a terminal. Alerts name it where the rules' settings have no `runbook_url`."""

from __future__ import annotations

from collections.abc import Sequence

from llm_serving_exporter.render.runbooks import PREFIX, RunbookEntry, find_runbook, list_runbooks, read_runbook
from llm_serving_exporter.settings.flags import CommandParser
from llm_serving_exporter.settings.problems import nearest, shown
from llm_serving_exporter.terminal import EXIT_FAILED, EXIT_OK, EXIT_USAGE, print_line, print_message

_EPILOG = """examples:
  llm-serving-exporter runbook                              every runbook, one a line
  llm-serving-exporter runbook LLMServingKVSaturated | less

Started with --web.runbooks, the exporter serves them at /runbooks/ too."""


def run(words: Sequence[str]) -> int:
    """Prints the runbook, or without a name the list; 0 good, 1 where there is nobody to print to, 2 for a name that is none."""
    parser = CommandParser(
        "runbook",
        usage="llm-serving-exporter runbook [ALERT]",
        description="What to do about an alert: meaning, queries, first steps, false alarms.",
        epilog=_EPILOG,
    )
    parser.add_argument("alert", nargs="?", metavar="ALERT", help=f"name of an alert, with or without {PREFIX}")
    wanted = parser.parse_args(words).alert
    runbooks = list_runbooks()
    if wanted is None:
        return EXIT_OK if print_line(_list(runbooks)) else EXIT_FAILED
    name = find_runbook(wanted, runbooks)
    if name is None:
        print_message(f"error: there is no runbook {shown(wanted)}. {_suggest(wanted, runbooks)}")
        return EXIT_USAGE
    return EXIT_OK if print_line(read_runbook(name).rstrip("\n")) else EXIT_FAILED


def _list(runbooks: Sequence[RunbookEntry]) -> str:
    width = max((len(each.name) for each in runbooks), default=0)
    return "\n".join(f"{each.name:<{width}}  {each.severities:<18}{each.fires_when}" for each in runbooks)


def _suggest(wanted: str, runbooks: Sequence[RunbookEntry]) -> str:
    names = {each.name.removeprefix(PREFIX): each.name for each in runbooks}
    near = nearest(wanted.removeprefix(PREFIX), names)
    return f"Did you mean {names[near]}?" if near else "llm-serving-exporter runbook lists them."
