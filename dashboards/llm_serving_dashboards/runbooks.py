"""The dashboard of runbooks: a panel an alert, so that each is a click away from where the alert is shown."""

from __future__ import annotations

import re

from llm_serving_alerts.settings import Settings
from llm_serving_dashboards.firing import RUNBOOKS_UID, list_runbooks
from llm_serving_dashboards.panels import Board, Look, Panel, Row, Visualization
from llm_serving_dashboards.queries import QueryBuilder
from llm_serving_exporter.render.runbooks import read_runbook

VARIABLES: tuple[str, ...] = ()
# [text](file.md#anchor), with nothing before the file's name or with folders
_LINK = re.compile(r"\[([^\]]+)\]\((?:\.\./)*([\w/.-]+)(?:#[\w-]+)?\)")
# code stands between two of these
_FENCE = "```"
# the end of a line that goes on
_WRAPPED = re.compile(r"(?<=\S)\n(?=[^\s#|*\-\d])")
_HEIGHT = 24


def build_board(queries: QueryBuilder) -> Board:
    """Every alert that somebody is told of, in the order of the checks."""
    names = list_runbooks(queries.settings)
    panels = tuple(
        Panel(
            name,
            f"The runbook of {name}.",
            Visualization.TEXT,
            Look(width=24, height=_HEIGHT),
            text=_read(name, queries.settings),
        )
        for name in names
    )
    return Board(
        RUNBOOKS_UID,
        "LLM serving: runbooks",
        "What each alert means, where to look, and what to do. The name of an alert on another dashboard leads to its own.",
        VARIABLES,
        (Row("", panels),),
    )


def _read(name: str, settings: Settings) -> str:
    """Its Markdown; links to other runbooks lead to their panels, and of pages that are not in Grafana only the name is left."""
    known = list_runbooks(settings)

    def lead(link: re.Match[str]) -> str:
        words, file = link.groups()
        other = file.removesuffix(".md")
        if other in known:
            return f"[{words}](d/{RUNBOOKS_UID}?viewPanel=panel-{known.index(other) + 1})"
        return words if file.endswith(words.strip("`")) else f"{words} ({file})"

    # the panel has the name
    _, _, text = read_runbook(name).partition("\n")
    return _join_lines(_LINK.sub(lead, text.strip()))


def _join_lines(text: str) -> str:
    """Markdown with each paragraph on one line: kubectl keeps an object once more in an annotation, of 256 KiB at most."""
    parts = text.split(_FENCE)
    parts[::2] = [_WRAPPED.sub(" ", part) for part in parts[::2]]
    return _FENCE.join(parts)
