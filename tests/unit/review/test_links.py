"""Links to the dashboards: they lead to boards and variables that exist, at the time of the figure, and are there only where asked for."""

from __future__ import annotations

import re
from urllib.parse import parse_qs, urlsplit

import pytest

from llm_serving_alerts.settings_file import default_settings
from llm_serving_dashboards.boards import build_dashboards
from llm_serving_exporter.model.record import replace
from llm_serving_review.figures.review import build_review
from llm_serving_review.pages import tables as links
from llm_serving_review.pages.page import render_page
from llm_serving_review.pages.tables import link_board
from tests.support.builders.costevidence import fleet_of
from tests.support.builders.samplereview import SETTINGS, WEEK, make_evidence, make_past, make_sample


def test_every_board_exists_and_has_the_variables() -> None:
    boards = {made.board.uid: made.board for made in build_dashboards(default_settings())}
    assert set(links.BOARDS) <= set(boards)
    assert {links.MODEL_VARIABLE, links.TARGET_VARIABLE} <= set(boards[links.COST].variables)


def addresses(text: str) -> list[str]:
    return [found.replace("&amp;", "&") for found in re.findall(r'href="(https?://[^"]*)"', text)]


def test_the_page_leads_to_the_week_the_models_and_the_unusual_hour() -> None:
    found = addresses(render_page(make_sample()))
    assert {urlsplit(one).netloc for one in found} == {"grafana.example.com"}
    queries = [(urlsplit(one).path, parse_qs(urlsplit(one).query)) for one in found]
    week = {"from": [str(round(1000 * WEEK.begin))], "to": [str(round(1000 * WEEK.end))]}
    for board in (links.HOME, links.COST, links.LATENCY):
        assert (f"/d/{board}", week) in queries
    assert (f"/d/{links.COST}", {**week, "var-model_name": ["Qwen/Qwen3-32B"]}) in queries
    # the gap on Saturday from 2 to 14, an hour before to one after
    (gap,) = make_evidence().gaps or ()
    around = {"from": [str(round(1000 * (gap.begin - 3600)))], "to": [str(round(1000 * (gap.end + 3600)))]}
    assert (f"/d/{links.EXPORTER}", around) in queries
    # Thursday from 9:00, an hour before to two after
    nine = WEEK.begin + 3 * 86_400 + 9 * 3600
    hour = {"from": [str(round(1000 * (nine - 3600)))], "to": [str(round(1000 * (nine + 3 * 3600)))]}
    chosen = {"var-model_name": ["Qwen/Qwen3-32B"], "var-target": ["qwen-batch-0:8000"]}
    assert (f"/d/{links.COST}", {**hour, **chosen}) in queries


def test_without_a_grafana_there_is_no_link() -> None:
    text = render_page(build_review(make_evidence(), replace(SETTINGS, dashboards_url=""), make_past()))
    assert addresses(text) == []
    assert re.findall(r'href="([^"]*)"', text) == ["data:,", "#notes"]


@pytest.mark.parametrize("name", ['"><script>alert(1)</script>', "a&var-target=b", "ä ö/#?"])
def test_names_cannot_leave_their_place_in_an_address(name: str) -> None:
    made = build_review(fleet_of(1, 1, 0, name), SETTINGS)
    found = [one for one in addresses(render_page(made)) if "var-" in one]
    (query,) = {urlsplit(one).query for one in found}
    assert parse_qs(query)["var-model_name"] == [f"{name}/0"]
    assert "var-target" not in parse_qs(query)
    assert link_board(made, links.COST, 0, 1).endswith("?from=0&to=1000")
