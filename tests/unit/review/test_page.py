"""The page in a real browser: what it shows, what it never does, and that nothing from outside is taken for its own."""

from __future__ import annotations

import html
import json
import re
from importlib import resources
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from jinja2 import UndefinedError

from llm_serving_exporter.model.record import replace
from llm_serving_review.evidence.usage import Usage
from llm_serving_review.evidence.week import parse_week, week_before
from llm_serving_review.figures.review import Review, build_review
from llm_serving_review.pages.page import SECTIONS, make_environment, render_page
from llm_serving_review.pages.summary import render_summary
from llm_serving_review.settings.settings import ApiPrice, MonthlyCosts, Settings
from tests.support.builders.costevidence import evidence, flat, fleet_of, owner, usage
from tests.support.builders.samplereview import make_sample
from tests.support.chromium import browse, needs_chromium
from tests.support.quick import keep_quick
from tests.support.servers.http_server import QuietHandler, serve

SETTINGS = Settings(
    by_labels=("team",),
    api_price=ApiPrice("An API", 1.0, 0.1, 4.0),
    purchase_usd=100_000.0,
    monthly_costs=MonthlyCosts(engineering=900.0),
    objectives={"ttft": 0.995},
)
HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>&amp;\u202e=1+1"


@pytest.fixture(scope="module")
def ordinary() -> Review:
    return build_review(fleet_of(6, 3, 2), SETTINGS)


def test_it_refers_to_nothing_outside_and_forbids_it(ordinary: Review) -> None:
    text = render_page(ordinary)
    assert "default-src 'none'" in text
    assert "unsafe" not in text
    assert not re.search(r"""(?:src|href|action|url\()\s*=?\s*["']?(?:https?:)?//""", text)
    assert re.findall(r'(?:src|href)="([^"]*)"', text) == ["data:,", "#notes"]
    # the policy would refuse them
    assert " style=" not in text
    assert not re.search(r"\son[a-z]+=", text)


def test_every_number_says_what_it_is(ordinary: Review) -> None:
    text = render_page(ordinary)
    for words in (
        "Paid for the week", "November to date", "What stands out", "What to do first", "Where it went", "Why it changed", "Models", "When",
        "By team", "A month of 730 hours at this rate, and an API", "To check invoices against", "Most expensive nodes", "Service", "Gaps",
    ):  # fmt: skip
        assert words in text, words
    for chart in re.findall(r"<svg class=\"chart[^>]*>", text):
        assert 'role="img"' in chart
        assert re.search(r'aria-label="[^"]{20,}"', chart)
    # warnings stand before the first figure
    assert text.index("Prometheus warned") < text.index('class="headline"')


def test_what_paper_leaves_out_is_said() -> None:
    text = render_page(build_review(fleet_of(40, 12, 30), SETTINGS))
    said = re.findall(r'<p class="paper soft">(\d+) more are on the screen and in the CSV', text)
    # of 40 models eight are printed, five with what changed their spend and three with how full they were; of 12 that were scaled four,
    # of 12 teams six, of 30 gaps four
    assert said == ["32", "35", "37", "8", "6", "26"]
    # nor does rounding show as a cause
    assert not re.search(r">[^<]*0\.0000000", text)


def test_nothing_from_outside_is_taken_for_html() -> None:
    text = render_page(build_review(fleet_of(3, 2, 2, HOSTILE), Settings(title=HOSTILE, by_labels=("team",))))
    assert text.count("<script") == 1
    assert "<img" not in text
    assert "onerror=alert" in text  # as text
    assert "\u202e" not in text
    assert "&lt;script&gt;alert(1)" in text


def test_templates_escape_everything_and_know_every_name_they_use() -> None:
    """What is markup is in the templates or is Markup: none of them may switch escaping off, and a wrong name is an error, not a blank."""
    folder = resources.files("llm_serving_review.pages") / "templates"
    own = [file for file in folder.iterdir() if file.name.endswith(".html")]
    of_sections = list((folder / "sections").iterdir())
    assert {file.name for file in own} == {"page.html", "first.html", "parts.html"}
    assert {file.name for file in of_sections} == {f"{name}.html" for name, _ in SECTIONS}
    for file in (*own, *of_sections):
        assert not re.search(r"\|\s*safe\b|autoescape|forceescape", file.read_text(encoding="utf-8"))
    environment = make_environment()
    assert environment.from_string("{{ text }}").render(text="<b>\u202e") == "&lt;b&gt;\ufffd"
    with pytest.raises(UndefinedError):
        environment.from_string("{{ txet }}").render(text="")


def test_nothing_from_outside_is_taken_for_markdown() -> None:
    text = render_summary(build_review(fleet_of(3, 2, 2, "a|b](http://x)\n# **@channel** <!here>`"), SETTINGS))
    body = text.split("\n", 1)[1]
    assert "\n# " not in body
    for mark in ("](http", "**@", "<!here", "@channel**"):
        assert mark not in body.replace("\\", "\\\\") or f"\\{mark[0]}" in body
    assert not re.search(r"(?<!\\)[<>@`]", body)
    # a chat makes a link of it
    assert "://" not in body
    rows = [line for line in body.splitlines() if line.startswith("|")]
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {6}


def test_a_summary_is_one_screen() -> None:
    lines = render_summary(build_review(fleet_of(60, 10, 40), SETTINGS)).splitlines()
    assert len(lines) <= 40


def test_a_week_alone_and_a_bare_one_have_a_page() -> None:
    one = usage(owner(), {"idle": 5.0})
    text = render_page(build_review(evidence(one, Usage()), Settings()))
    assert "nothing to compare with" in text
    assert not re.search(r">[^<]*\b(nan|None|inf)\b", text[: text.index("<script>")])
    without_tokens = Usage(cost=one.cost, gpu_seconds=one.gpu_seconds)
    text = render_page(build_review(evidence(without_tokens, without_tokens), Settings()))
    assert "<dt>A million tokens</dt><dd>–" in text


@pytest.mark.parametrize(("week", "cells"), [("2026-W13", 167), ("2026-W43", 169)])
def test_weeks_with_clock_changes_have_a_cell_for_each_hour(week: str, cells: int) -> None:
    zone = ZoneInfo("Europe/Berlin")
    found = parse_week(week, zone)
    lines = {
        "cost": (flat(owner(), ("idle", "r", "x"), 5.0, cells),),
        "gpu_seconds": (flat(owner(), ("idle", "r"), 5.0, cells),),
    }
    whole = evidence(usage(owner(), {"idle": 1.0}), usage(owner(), {"idle": 1.0}))
    whole = replace(whole, week=found, previous=week_before(found, zone), usage=Usage(**lines), usage_before=Usage())
    text = render_page(build_review(whole, Settings(timezone=zone.key)))
    heat = text[text.index("Idle GPU-hours</h3>") :]
    heat = heat[: heat.index("</svg>")]
    boxes = re.findall(r'<rect class="h\d" x="([\d.]+)" y="(\d+)"[^>]*><title>', heat)
    assert len(boxes) == len(set(boxes)) == cells


HARNESS = """<!DOCTYPE html><meta charset="utf-8"><title>-</title><body>%s<script>
addEventListener("load", () => {
  const told = [...document.querySelectorAll("iframe")].map(frame => {
    const page = frame.contentDocument, root = page.documentElement;
    const drawn = [...page.querySelectorAll("svg.chart")].filter(one => one.getBoundingClientRect().height > 10).length;
    const table = [...page.querySelectorAll("table")].find(one => one.caption.textContent === "Cost by model");
    const names = () => [...table.tBodies[0].rows].map(row => row.cells[0].textContent);
    const before = names(), head = table.tHead.rows[0].cells;
    head[1].click(); head[1].click();
    const after = names(), sorted = head[1].getAttribute("aria-sort");
    head[0].click();
    const style = frame.contentWindow.getComputedStyle(table.tBodies[0].rows[0].cells[1]);
    return {width: frame.clientWidth, wide: root.scrollWidth, drawn, before, after, sorted, named: names(), align: style.textAlign};
  });
  document.title = JSON.stringify(told);
});
</script></body>"""


@pytest.mark.process
@needs_chromium
def test_charts_are_drawn_tables_sort_and_a_phone_scrolls_down_only(ordinary: Review, tmp_path: Path) -> None:
    text = render_page(ordinary)
    frames = "".join(
        f'<iframe style="width:{width}px;height:900px" srcdoc="{html.escape(text)}"></iframe>' for width in (390, 1280)
    )
    file = tmp_path / "harness.html"
    file.write_text(HARNESS % frames)
    done = browse(tmp_path, "--window-size=1400,1000", "--enable-logging=stderr", "--dump-dom", file.as_uri())
    assert "CONSOLE" not in done.stderr
    told = json.loads(html.unescape(done.stdout.partition("<title>")[2].partition("</title>")[0]))
    assert [one["wide"] <= one["width"] for one in told] == [True, True]
    for one in told:
        # month and weeks on page one; phases, causes, days, weeks, month, three maps
        assert one["drawn"] == 10
        # the dearest first, turned round by the second click, then by name
        assert one["before"] == [f"model/{number}" for number in (5, 4, 3, 2, 1, 0)]
        assert one["after"] == one["before"][::-1]
        assert one["sorted"] == "ascending"
        assert one["named"] == sorted(one["before"])
        assert one["align"] == "right"


@pytest.mark.process
@pytest.mark.seam("Chromium")
@needs_chromium
def test_it_asks_for_nothing_and_complains_of_nothing(tmp_path: Path) -> None:
    text = render_page(build_review(fleet_of(3, 2, 2, HOSTILE), SETTINGS)).encode()
    asked: list[str] = []

    class Handler(QuietHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.answer(200, text, "text/html; charset=utf-8")

    with serve(Handler) as url:
        done = browse(tmp_path, "--enable-logging=stderr", "--virtual-time-budget=3000", "--dump-dom", f"{url}/report")
    assert asked == ["/report"]
    assert "CONSOLE" not in done.stderr
    assert 'class="can"' in done.stdout  # its own script ran under its own policy


@pytest.mark.process
@needs_chromium
@pytest.mark.parametrize(
    ("models", "teams", "gaps", "sheets"), keep_quick([(2, 2, 0, 3), (40, 12, 30, 4)], lambda one: one[0] == 2)
)
def test_it_prints_on_few_sheets(models: int, teams: int, gaps: int, sheets: int, tmp_path: Path) -> None:
    """Page one, then two or three; that page one is one sheet is measured in test_page_layout.py."""
    file = tmp_path / "report.html"
    file.write_text(render_page(build_review(fleet_of(models, teams, gaps), SETTINGS)))
    browse(tmp_path, "--no-pdf-header-footer", f"--print-to-pdf={tmp_path / 'report.pdf'}", file.as_uri())
    # PDF 32000-1, 7.7.3.3: a page object each
    assert len(re.findall(rb"/Type\s*/Page\b", (tmp_path / "report.pdf").read_bytes())) <= sheets


def test_hours_stand_beside_what_they_were_spent_on() -> None:
    week = usage(owner(), {"decode": 20.0, "idle": 4.0, "unattributed": 6.0}, 1e6, 1e6)
    # an hour of a GPU that was busy, of which no token was known
    text = render_page(build_review(evidence(week, week), Settings()))
    where = text[text.index("Spend by what it went to") :]
    row = re.search(r"Unattributed.*?</tr>", where)
    assert row is not None
    assert row[0].endswith("<td>–</td></tr>")
    assert "Prefill, decode and unattributed share 10.0 busy GPU-hours and 3.0 of unknown state." in where


# --- the sample of the documentation; `make check` says whether it is what today's code makes


def test_the_sample_shows_everything() -> None:
    """Each part of the page has something to show, or a reader would not see that it exists."""
    made = make_sample()
    assert len(made.actions) == 3
    assert made.change is not None
    assert made.beyond.month is not None
    assert sum(1 for week in made.beyond.trend if week.known is None) == 2
    assert [day.day for day in made.beyond.unusual] == [3]
    assert made.gaps
    assert made.notes == () or made.missing_parts == ()
