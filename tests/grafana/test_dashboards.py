"""Every dashboard in a real Grafana: `GRAFANA_URL=http://… make test-grafana`."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs, urlparse

import pytest

from llm_serving_dashboards.boards import Dashboard, build_dashboards
from tests.grafana.conftest import Grafana
from tests.grafana.looking import Looked, Seen, looking
from tests.simweek.build import week_settings

pytestmark = pytest.mark.grafana

MADE = build_dashboards(week_settings())
EACH = pytest.mark.parametrize("made", MADE, ids=[made.board.uid for made in MADE])
HOME = "llm-serving-home"
MODEL = "kv-pressure"


def test_all_of_them_are_there(grafana: Grafana) -> None:
    found = {one["uid"]: one["folderTitle"] for one in grafana.get("/api/search?type=dash-db&tag=llm-serving")}
    assert {made.board.uid for made in MADE} == set(found)
    assert set(found.values()) == {"LLM serving"}


@EACH
@pytest.mark.parametrize(("width", "theme"), [(1440, "dark"), (1920, "light")])
def test_every_panel_is_drawn_and_nothing_complains(
    grafana: Grafana, browser: Any, made: Dashboard, width: int, theme: str
) -> None:
    with looking(browser, grafana.address(made.board.uid), width, 3000, theme) as seen:
        panels = seen.panels()
        assert seen.complaints == []
    wanted = {panel.title: panel for panel in made.board.panels}
    assert set(panels) == set(wanted)
    for title, found in panels.items():
        assert not found.failed, (title, found.text)
        # where there may be nothing, the reason stands there
        assert not found.empty or wanted[title].may_be_empty, (title, found.text)
        assert "No data" not in found.text, title
    assert_apart(panels)


def assert_apart(panels: dict[str, Seen]) -> None:
    """No panel lies on another."""
    boxes = list(panels.items())
    for number, (title, one) in enumerate(boxes):
        x, y, width, height = one.box
        for other_title, other in boxes[number + 1 :]:
            left, top, wide, high = other.box
            apart = x + width <= left + 1 or left + wide <= x + 1 or y + height <= top + 1 or top + high <= y + 1
            assert apart, (title, other_title)


@EACH
def test_variables_fill_and_all_is_chosen(grafana: Grafana, browser: Any, made: Dashboard) -> None:
    names = [one for one in made.document["templating"]["list"] if one["type"] == "query"]
    assert names
    with looking(browser, grafana.address(made.board.uid)) as seen:
        for variable in names:
            assert offered(seen, variable["label"]), variable["name"]
        assert seen.complaints == []


def offered(seen: Looked, label: str) -> list[str]:
    """Opens a variable and reads what can be chosen beside all."""
    page = seen.page
    opened = page.get_by_test_id(f"data-testid Dashboard template variables submenu Label {label}").locator("xpath=..")
    opened.locator("input").click()
    page.wait_for_selector("[role=option]", timeout=10_000)
    found = [one.inner_text().strip() for one in page.get_by_role("option").all()]
    page.keyboard.press("Escape")
    return [one for one in found if one not in ("", "All")]


def test_choosing_a_model_changes_the_panels_and_the_links(grafana: Grafana, browser: Any) -> None:
    with looking(browser, grafana.address(HOME)) as seen:
        before = seen.panels()["Error rate"].legend
        page = seen.page
        label = page.get_by_test_id("data-testid Dashboard template variables submenu Label model name")
        label.locator("xpath=..").locator("input").click()
        page.get_by_role("option", name=MODEL, exact=True).click()
        page.keyboard.press("Escape")
        seen.settle()
        panels = seen.panels()
        assert seen.complaints == []
    assert len(before) > 5
    # every model of these hours has the same role
    assert [one.strip() for one in panels["Error rate"].legend] == [MODEL]
    for title in ("Phases", "TTFT", "KV cache", "Tail", "Node loss"):
        (link,) = panels[title].links
        assert parse_qs(urlparse(link).query)["var-model_name"] == [MODEL]


def test_links_land_with_variables_and_time(grafana: Grafana, browser: Any) -> None:
    address = grafana.address(HOME, **{"var__model_name": MODEL})
    with looking(browser, address) as seen:
        links = {title: panel.links for title, panel in seen.panels().items() if panel.links}
    uids = {made.board.uid for made in MADE}
    assert len(links) == 9
    for title, (link,) in links.items():
        assert urlparse(link).path.split("/")[2] in uids, title
        with looking(browser, f"{link}&kiosk") as landed:
            here = parse_qs(urlparse(landed.page.url).query)
            assert here["from"] == parse_qs(urlparse(link).query)["from"]
            # a page of GPUs has no models
            assert here.get("var-model_name") in (None, [MODEL])
            assert landed.panels()
            assert landed.complaints == []


def test_every_dashboard_leads_to_the_others(grafana: Grafana, browser: Any) -> None:
    with looking(browser, grafana.address(HOME)) as seen:
        seen.page.get_by_test_id("data-testid Dashboard link dropdown").click()
        seen.page.wait_for_timeout(1500)
        links = seen.page.eval_on_selector_all('a[href*="/d/llm-serving"]', "all => all.map(one => one.pathname)")
    assert {path.split("/")[2] for path in links} >= {made.board.uid for made in MADE} - {HOME}
