"""The dashboards of the default settings, which take a quarter of a second to build."""

from __future__ import annotations

from functools import cache
from typing import Any

from llm_serving_alerts.settings_file import default_settings
from llm_serving_dashboards.boards import Dashboard, build_dashboards


@cache
def default_boards() -> dict[str, Dashboard]:
    """Each by its uid; nobody changes them."""
    return {made.board.uid: made for made in build_dashboards(default_settings())}


@cache
def default_documents() -> dict[str, dict[str, Any]]:
    """What Grafana gets of each, by its uid; nobody changes it."""
    return {uid: made.document for uid, made in default_boards().items()}


def panels_of(document: dict[str, Any]) -> list[dict[str, Any]]:
    """All panels of a document, and its headings, those that a folded row hides too."""
    return [one for panel in document["panels"] for one in (panel, *panel.get("panels", ()))]
