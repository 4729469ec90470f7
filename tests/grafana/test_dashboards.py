"""Every dashboard in a real Grafana: `GRAFANA_URL=http://… make test-grafana`."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs, urlparse

import pytest

from llm_serving_alerts.alerting import ALERTS
from llm_serving_alerts.declare import FIRING_PANEL
from llm_serving_dashboards.boards import Dashboard, build_dashboards
from llm_serving_dashboards.shared_panels import MOST_NAMED
from tests.grafana.conftest import Grafana
from tests.grafana.looking import Looked, Seen, looking
from tests.simweek.build import week_settings

pytestmark = pytest.mark.grafana

MADE = build_dashboards(week_settings())
EACH = pytest.mark.parametrize("made", MADE, ids=[made.board.uid for made in MADE])
HOME, EMBEDDING = "llm-serving-home", "llm-serving-embedding"
MATRIX = "Models and checks"
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
    with looking(browser, grafana.address(made.board.uid), width, 3600, theme) as seen:
        for row in made.board.rows:
            if row.folded:
                seen.page.get_by_test_id(f"data-testid dashboard-row-title-{row.title}").click()
                seen.settle()
        panels = seen.panels()
        assert seen.complaints == []
    wanted = {panel.title if panel.look.titled else "": panel for panel in made.board.panels}
    # Grafana draws what comes into view: a page of runbooks is longer
    assert set(panels) == set(wanted) if made.board.variables else set(panels) <= set(wanted)
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
    # those of legends are hidden
    names = [one for one in made.document["templating"]["list"] if one["type"] == "query" and not one["hide"]]
    assert bool(names) == bool(made.board.variables)
    with looking(browser, grafana.address(made.board.uid)) as seen:
        for variable in names:
            found = offered(seen, variable["label"])
            # of servers that generate nothing there may be none
            assert found or made.board.uid == EMBEDDING, variable["name"]
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
    assert len(before) == MOST_NAMED
    # every model of these hours has the same role
    assert panels["Error rate"].legend == [MODEL]
    # the matrix has its row alone
    chosen = [parse_qs(urlparse(link).query).get("var-model_name") for link in panels[MATRIX].links]
    assert [MODEL] in chosen
    assert all(one in ([MODEL], ["$__all"], None) for one in chosen)


def test_links_land_with_variables_and_time(grafana: Grafana, browser: Any) -> None:
    address = grafana.address(HOME, **{"var__model_name": MODEL})
    with looking(browser, address) as seen:
        links = [link for link in seen.panels()[MATRIX].links if f"var-model_name={MODEL}" in link or "gpu" in link]
    boards = {made.board.uid: made for made in MADE}
    # nine checks, what limits the model, three figures, its replicas, and its name
    assert len({*links}) >= 13
    for link in dict.fromkeys(links):
        asked = parse_qs(urlparse(link).query)
        uid = urlparse(link).path.split("/")[2]
        with looking(browser, f"{link}&kiosk") as landed:
            here = parse_qs(urlparse(landed.page.url).query)
            assert here["from"] == asked["from"]
            # a page of GPUs has no models
            assert here.get("var-model_name") in (None, [MODEL]), link
            shown = landed.panels()
            assert landed.complaints == []
        if number := asked.get("viewPanel"):
            (alone,) = [one for one in boards[uid].document["panels"] if f"panel-{one['id']}" == number[0]]
            assert {*shown} == {alone["title"]}


def test_the_worst_stands_on_the_first_screen(grafana: Grafana, browser: Any) -> None:
    """Of 1080 pixels, with the menus around it: the sentence, and the matrix with all of its rows."""
    with looking(browser, grafana.address(HOME).replace("&kiosk", ""), 1920, 1080) as seen:
        panels = seen.panels()
    # the frame of the matrix may be cut, none of its seventeen rows
    ends = {title: panels[title].box[1] + panels[title].box[3] for title in ("", MATRIX)}
    assert ends[""] < panels[MATRIX].box[1]
    assert ends[MATRIX] <= 1080 + 15
    words = panels[MATRIX].text
    assert "page" in words or "ticket" in words


def list_ill_cells(seen: Looked) -> list[str]:
    """Where the cells of the matrix lead that say page or ticket."""
    panel = f'[data-testid="data-testid Panel header {MATRIX}"]'
    is_ill = "one => ['page', 'ticket'].includes(one.innerText.trim())"
    found: list[str] = seen.page.eval_on_selector_all(f"{panel} a", f"all => all.filter({is_ill}).map(one => one.href)")
    return list(dict.fromkeys(found))


def test_each_ill_cell_leads_to_where_the_fault_is_seen(grafana: Grafana, browser: Any) -> None:
    """On the whole dashboard: its first screen begins with an alert that fires about what is chosen, and its panel shows something."""
    with looking(browser, grafana.address(HOME)) as seen:
        cells = list_ill_cells(seen)
    assert len(cells) >= 5
    declared = {one.name: one for one in ALERTS}
    for link in cells:
        uid = urlparse(link).path.split("/")[2]
        with looking(browser, f"{link}&kiosk", 1920, 3000) as landed:
            panels = landed.panels()
            assert landed.complaints == []
        first = panels[FIRING_PANEL]
        assert first.box[1] + first.box[3] <= 1080
        told = [declared[word] for word in first.text.split() if word in declared]
        assert told, (link, first.text)
        shown = [one for one in told if one.shown.uid == uid]
        assert shown, (link, first.text)
        for one in shown:
            assert not panels[one.shown.panel].empty, (link, one.name)
        # its name leads to its runbook
        assert all(urlparse(there).path.split("/")[2] == "llm-serving-runbooks" for there in first.links)
        assert len({*first.links}) >= len({one.name for one in told})


def test_the_name_of_an_alert_opens_its_runbook(grafana: Grafana, browser: Any) -> None:
    with looking(browser, grafana.address(HOME)) as seen:
        links = [link for link in seen.panels()[""].links if "runbooks" in link]
        assert links
    with looking(browser, f"{links[0]}&kiosk") as landed:
        ((title, panel),) = landed.panels().items()
        assert landed.complaints == []
    assert title.removeprefix("LLMServing") in {one.name for one in ALERTS}
    assert "Meaning" in panel.text


def test_every_dashboard_leads_to_the_others(grafana: Grafana, browser: Any) -> None:
    with looking(browser, grafana.address(HOME)) as seen:
        seen.page.get_by_test_id("data-testid Dashboard link dropdown").click()
        seen.page.wait_for_timeout(1500)
        links = seen.page.eval_on_selector_all('a[href*="/d/llm-serving"]', "all => all.map(one => one.pathname)")
    assert {path.split("/")[2] for path in links} >= {made.board.uid for made in MADE} - {HOME}
