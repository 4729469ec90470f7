"""The dashboards of the default settings, and queries of panels, asked of promtool over series that a test writes down."""

from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from llm_serving_alerts.render import RECORDS, rule_files
from llm_serving_alerts.settings import Settings
from llm_serving_alerts.settings_file import default_settings
from llm_serving_dashboards.boards import Dashboard, build_dashboards
from tests.pack.judging import ask, expect
from tests.support.yaml_text import load_yaml


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


# --- queries of panels, asked of promtool over series that a test writes down ---


def write_series(name: str, values: str, **labels: str) -> dict[str, str]:
    """A series as promtool's unit tests have it: `values` such as "1x20" or "0+60x20", one a minute."""
    written = ",".join(f'{label}="{value}"' for label, value in labels.items())
    return {"series": f"{name}{{{written}}}", "values": values}


def ask_promtool(
    tmp_path: Path,
    series: Iterable[Mapping[str, str]],
    asked: Mapping[str, Mapping[str, float]],
    *,
    at: str = "15m",
    settings: Settings | None = None,
) -> None:
    """Fails where a query at that time has other values than those expected, by their labels as PromQL writes them.

    `settings`: those of their recording rules that the queries rest on are evaluated too.
    """
    groups = load_yaml(rule_files(settings)[f"{RECORDS}.yml"])["groups"] if settings is not None else []
    questions = [expect(expression, at, found) for expression, found in asked.items()]
    history = {one["series"]: one["values"] for one in series}
    assert not ask(tmp_path, history, questions, {"records.yml": groups})
