"""The page in a real browser on a phone, two screens and a sheet of A4, light and dark, with the longest names and the largest sums.

Chromium lays the page out; a script reads from the DOM where each text is. Media queries are switched on by rewriting them, so that paper
and dark are measured like the rest.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llm_serving_exporter.model.cost import Pool, PoolBook, PoolKind, PoolUse, SpendRate
from llm_serving_exporter.model.record import name_fields, replace
from llm_serving_exporter.render.numbers import usd
from llm_serving_review.bills.review import add_bills
from llm_serving_review.evidence.context import TenantUsage
from llm_serving_review.evidence.usage import Evidence, Gauge, Line, Owner, Usage
from llm_serving_review.evidence.week import span_of
from llm_serving_review.figures.review import Review, build_review
from llm_serving_review.pages.page import render_page
from llm_serving_review.settings.settings import ApiPrice, BillSettings, MonthlyCosts, Settings
from tests.support.builders import bills
from tests.support.builders.costevidence import UTC, WEEK, flat, fleet_of, gauge
from tests.support.builders.samplereview import make_past, make_sample
from tests.support.chromium import browse, needs_chromium
from tests.support.quick import keep_quick

# as long as a Hugging Face repository with its owner, a pod in a namespace, a Kubernetes label (63), without a place to break
LONGEST = (
    "an-organisation-whose-name-is-long/A-Model-Of-Which-The-Name-Goes-On-And-On-70B-Instruct-FP8-dynamic-" + "x" * 60
)
# 200 characters
AWKWARD = f"""=HYPERLINK("http://x/'y'";1)<b>|`*_#[a](b)é汉\u202e&amp;/{"w" * 152}"""
SETTINGS = Settings(
    by_labels=("team",),
    api_price=ApiPrice(LONGEST, 1.0, 0.1, 4.0),
    purchase_usd=100_000.0,
    monthly_costs=MonthlyCosts(engineering=900.0),
    objectives={"ttft": 0.995},
    dashboards_url="https://grafana.example.com",
)
# A4 less the margins of the style sheet, at 96 dots an inch
SHEET_WIDTH, SHEET_HEIGHT = 718, 1054

_POLICY = re.compile(r'<meta http-equiv="Content-Security-Policy"[^>]*>')
HARNESS = """<!DOCTYPE html><meta charset="utf-8"><title>-</title><body>%s<script>
const measure = frame => {
  const page = frame.contentDocument, view = frame.contentWindow, root = page.documentElement, wide = root.clientWidth;
  const style = node => view.getComputedStyle(node);
  const clip = (rect, from) => {
    let box = {left: rect.left, right: rect.right, top: rect.top, bottom: rect.bottom};
    for (let node = from; node && node !== page.body; node = node.parentElement) {
      if (style(node).overflowX !== "visible") {
        const edge = node.getBoundingClientRect();
        box = {left: Math.max(box.left, edge.left), right: Math.min(box.right, edge.right), top: Math.max(box.top, edge.top),
          bottom: Math.min(box.bottom, edge.bottom)};
      }
    }
    return box;
  };
  const texts = [], outside = [];
  const walker = page.createTreeWalker(page.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const of = node.parentElement;
    if (!node.data.trim() || of.closest("script, style, title, caption, defs")) continue;
    const range = page.createRange();
    range.selectNodeContents(node);
    const lines = of.namespaceURI.endsWith("svg") ? [of.getBoundingClientRect()] : [...range.getClientRects()];
    for (const line of lines) {
      const chart = of.closest("svg") && of.closest("svg").getBoundingClientRect();
      if (chart && (line.left < chart.left - 1 || line.right > chart.right + 1)) outside.push(node.data);
      const box = clip(line, of);
      if (box.right - box.left > 1 && box.bottom - box.top > 1) texts.push({node, of, box, said: node.data.trim().slice(0, 60)});
    }
  }
  const overlaps = [];
  texts.sort((a, b) => a.box.top - b.box.top);
  texts.forEach((one, at) => {
    for (let next = at + 1; next < texts.length && texts[next].box.top < one.box.bottom - 2; next++) {
      const other = texts[next];
      if (other.node === one.node) continue;
      const across = Math.min(one.box.right, other.box.right) - Math.max(one.box.left, other.box.left);
      const down = Math.min(one.box.bottom, other.box.bottom) - Math.max(one.box.top, other.box.top);
      // a line's box is taller than its letters
      if (across > 1 && down > 4) overlaps.push([one.said, other.said, Math.round(across), Math.round(down)]);
    }
    const card = one.of.closest(".card, .tiles > div, .note");
    if (card && one.box.right > card.getBoundingClientRect().right + 0.5) outside.push(one.said);
  });
  // what may end in dots is a name; a figure may not
  for (const line of page.querySelectorAll("line.mark, line.limit")) {
    const at = line.getBoundingClientRect(), y = (at.top + at.bottom) / 2;
    for (const text of line.closest("svg").querySelectorAll("text")) {
      const box = text.getBoundingClientRect(), tall = box.bottom - box.top;
      if (at.right > box.left && at.left < box.right && at.right - at.left > 3 && y > box.top + tall / 4 && y < box.bottom - tall / 4) {
        overlaps.push(["a line", text.textContent]);
      }
    }
  }
  const whole = "td:not(.t), tfoot th, dd, dt, .sum, .worth, .model .soft, h1, h2, li, .first p";
  const cut = [...page.querySelectorAll(whole)].filter(node => node.getClientRects().length && !node.closest(".note")
    && node.scrollWidth > node.clientWidth + 1 && style(node).display !== "inline").map(node => node.textContent.trim().slice(0, 60));
  const parse = text => (text.match(/[\\d.]+/g) || []).map(Number);
  const light = ([r, g, b]) => [r, g, b].map(c => (c /= 255) <= .04045 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4)
    .reduce((sum, c, at) => sum + c * [.2126, .7152, .0722][at], 0);
  const behind = node => {
    for (; node; node = node.parentElement) {
      const colour = parse(style(node).backgroundColor);
      if (colour.length === 3 || colour[3] > 0.99) return colour;
    }
    return [255, 255, 255];
  };
  const faint = [];
  for (const {of, said} of texts) {
    const svg = of.namespaceURI.endsWith("svg"), front = light(parse(style(of)[svg ? "fill" : "color"])), back = light(behind(of));
    const ratio = (Math.max(front, back) + .05) / (Math.min(front, back) + .05);
    if (ratio < 4.5) faint.push([said, Math.round(10 * ratio) / 10]);
  }
  const first = page.querySelector(".first").getBoundingClientRect();
  // tables whose last column is pushed out of their card
  const pushed = [...page.querySelectorAll(".scroll")].filter(node => node.scrollWidth > node.clientWidth + 1)
    .map(node => node.closest("section, .card")?.querySelector("h2, h3")?.textContent);
  return {wide: root.scrollWidth - wide, pushed, overlaps: overlaps.slice(0, 8), outside: outside.slice(0, 8), cut: cut.slice(0, 8),
    faint: faint.slice(0, 8), first: Math.ceil(first.bottom), texts: texts.length};
};
addEventListener("load", () => {
  document.title = JSON.stringify(Object.fromEntries([...document.querySelectorAll("iframe")].map(one => [one.id, measure(one)])));
});
</script></body>"""


def change_hours(usage: Usage, change: Callable[[int, float], float]) -> Usage:
    """Its cost, changed hour by hour."""
    cost = tuple(
        Line(
            line.owner,
            line.of,
            tuple(None if usd is None else change(hour, usd) for hour, usd in enumerate(line.hours)),
        )
        for line in usage.cost
    )
    return replace(usage, cost=cost)


def longest_evidence() -> Evidence:
    made = fleet_of(6, 3, 2, LONGEST)
    book = replace(made.book, budget_usd_per_month=1_234_567_890.0)
    notes = tuple(f"{number}: {LONGEST} {LONGEST}" for number in range(9))
    names = {"workload_kind": "Deployment", "namespace": LONGEST}
    workloads = tuple(
        gauge(1.0, target=price.labels["target"], workload=f"{LONGEST}-{number}", **names)
        for number, price in enumerate(made.book.prices)
    )
    dear = change_hours(made.usage, lambda hour, usd: 1e6 * usd)
    dear_before = change_hours(made.usage_before, lambda hour, usd: 0.9e6 * usd)
    return replace(made, usage=dear, usage_before=dear_before, book=replace(book, workloads=workloads), notes=notes)


def longest() -> Review:
    return build_review(longest_evidence(), replace(SETTINGS, title=f"Cost of {LONGEST}"), make_past())


def everything(folder: Path) -> Review:
    """Pools, a bill, tenants and an unusual day beside all else, of names of 200 characters that mean something elsewhere."""
    made = longest_evidence()
    pooled = {line.owner for line in made.usage.cost[: len(made.usage.cost) // 2]}

    def put_in_pools(lines: tuple[Line, ...]) -> tuple[Line, ...]:
        return tuple(
            Line(line.owner, (line.of[0], "pool", *line.of[2:]), line.hours) if line.owner in pooled else line
            for line in lines
        )

    now, before = (
        replace(usage, cost=put_in_pools(usage.cost), gpu_seconds=put_in_pools(usage.gpu_seconds))
        for usage in (made.usage, made.usage_before)
    )
    # Thursday was three times as dear
    now = change_hours(now, lambda hour, usd: (3 if 72 <= hour < 96 else 1) * usd)
    cards = sorted({gauge.labels["gpu_name"] for gauge in made.book.prices})
    pools = PoolBook(
        (
            Pool(f"{AWKWARD}-q", PoolKind.QUANTITY, PoolUse(gpu_name=cards[0]), 1.0, 912_345.6),
            Pool(f"{AWKWARD}-s", PoolKind.SPEND, PoolUse(), usd_per_hour=7e6, rates=(SpendRate(PoolUse(gpu_name=cards[0]), 1e6),)),
        )
    )  # fmt: skip
    tenants = TenantUsage(
        *(
            tuple(
                flat(Owner((), "gateway", one.model_name, "frontend"), (f"{AWKWARD}-{number}", "team"), 1e8)
                for number, one in enumerate(sorted(pooled, key=lambda owner: owner.model_name))
            )
            for _ in range(2)
        )
    )
    prices = tuple(Gauge({**one.labels, "rate": "pool"}, one.hours) for one in made.book.prices)
    book = replace(made.book, prices=(*made.book.prices, *prices))
    evidence = replace(made, usage=now, usage_before=before, book=book, pools=pools, tenants=tenants)
    rows = bills.list_focus_rows((bills.SAME, bills.NOT_METERED, bills.COVERED))
    path = bills.write_bill(folder, ({**row, "ResourceId": f"{AWKWARD}-{row['ResourceId']}"} for row in rows))
    settings = replace(SETTINGS, title=f"Cost of {LONGEST}", bills=BillSettings((str(path),)))
    review = build_review(evidence, settings, make_past())
    return add_bills(review, evidence, settings, WEEK.end + 30 * 86_400, lambda text: None)


def span() -> Review:
    """The first day of a fleet."""
    day = span_of(WEEK.begin + 10 * 86_400, 24, UTC)
    made = fleet_of(4, 2, 0)

    def cut(gauges: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(replace(gauge, hours=gauge.hours[:24]) for gauge in gauges)

    usage = Usage(
        **{
            name: tuple(Line(line.owner, line.of, line.hours[:24]) for line in getattr(made.usage, name))
            for name in name_fields(Usage)
            if name != "unread"
        }
    )
    book = replace(
        made.book, prices=cut(made.book.prices), nodes=cut(made.book.nodes), committed=cut(made.book.committed)
    )
    fleet = replace(made.fleet, present=(), required=(), bandwidth=(), batch=())
    weeks = {"week": day, "previous": span_of(day.begin, 24, UTC), "usage": usage, "usage_before": Usage()}
    return build_review(replace(made, **weeks, gaps=(), book=book, fleet=fleet), SETTINGS)


def lay_out(page: str, folder: Path, *, dark: bool) -> dict[str, Any]:
    """What is found at each width."""
    page = _POLICY.sub("", page)
    # a white sheet whatever the screen is
    paper = page.replace("@media print", "@media all")
    if dark:
        page = page.replace("(prefers-color-scheme: dark)", "all")
    frames = "".join(
        f'<iframe id="{name}" style="width:{width}px;height:1080px;border:0" srcdoc="{html.escape(text)}"></iframe>'
        for name, width, text in (
            ("phone", 400, page), ("screen", 1280, page), ("wide", 1920, page), ("paper", SHEET_WIDTH, paper),
        )
    )  # fmt: skip
    file = folder / "harness.html"
    file.write_text(HARNESS % frames)
    done = browse(folder, "--window-size=2000,1200", "--dump-dom", file.as_uri())
    found: dict[str, Any] = json.loads(html.unescape(done.stdout.partition("<title>")[2].partition("</title>")[0]))
    return found


def check_laid_out(found: dict[str, Any]) -> None:
    for name, told in found.items():
        assert told["texts"] > 100
        for what in ("overlaps", "outside", "cut", "faint"):
            assert told[what] == [], (name, what)
        # a phone scrolls down only, and its tables sideways
        assert told["wide"] <= 0, name
        assert name == "phone" or told["pushed"] == [], name


@pytest.mark.process
@needs_chromium
@pytest.mark.parametrize("dark", keep_quick([False, True], lambda dark: not dark), ids=["light", "dark"])
@pytest.mark.parametrize(
    "review", keep_quick([make_sample, longest, span], lambda one: one is longest), ids=["sample", "longest", "span"]
)
def test_nothing_overlaps_is_cut_off_or_faint(review: Any, dark: bool, tmp_path: Path) -> None:
    found = lay_out(render_page(review()), tmp_path, dark=dark)
    assert set(found) == {"phone", "screen", "wide", "paper"}
    check_laid_out(found)
    if review is not longest:
        assert found["screen"]["first"] <= 1080
        assert found["wide"]["first"] <= 1080
    # page one is one sheet, whatever it holds
    assert found["paper"]["first"] <= SHEET_HEIGHT


@needs_chromium
@pytest.mark.e2e
def test_pools_bills_tenants_and_unusual_days_go_together(tmp_path: Path) -> None:
    review = everything(tmp_path)
    assert all(row.used_usd > 0 for row in review.pools.rows)
    assert review.beyond.unusual
    page = render_page(review)
    # what is paid is the headline, after pools
    assert review.invoice_usd == pytest.approx(
        (review.now.usd or 0.0) + sum(value for _, value in review.list_beside())
    )
    assert review.invoice_usd != pytest.approx(review.now.usd)
    assert usd(review.invoice_usd) in page
    found = lay_out(page, tmp_path, dark=False)
    check_laid_out(found)
    assert found["paper"]["first"] <= SHEET_HEIGHT


@pytest.mark.process
@needs_chromium
def test_what_is_wrong_would_be_found(tmp_path: Path) -> None:
    broken = "</style><style>.worth { margin-left: -200px; } .below { color: #ccc !important; } .parts dd { width: 9px; overflow: hidden; }"
    found = lay_out(render_page(make_sample()).replace("</style>", f"{broken}</style>", 1), tmp_path, dark=False)
    for name in ("screen", "paper"):
        for what in ("overlaps", "faint", "cut"):
            assert found[name][what], (name, what)


def test_a_black_and_white_print_tells_phases_apart() -> None:
    """What stands side by side in a chart differs in lightness by a step, or has a pattern."""
    style = re.search(r"<style>(.*?)</style>", render_page(make_sample()), re.S)
    printed = style[1][style[1].index("@media print") :]
    patterned = set(re.findall(r"\.(\w+)(?:, \.(\w+))? \{ fill: url\(#", style[1])[0]) | {"unattributed", "ahead"}
    assert {"down", "up"} <= patterned
    grey = {}
    for name in ("prefill", "decode", "idle"):
        colour = re.search(rf"--{name}: #(..)(..)(..)", printed)
        red, green, blue = (int(part, 16) for part in colour.groups())
        grey[name] = 0.299 * red + 0.587 * green + 0.114 * blue
    assert grey["decode"] - grey["prefill"] > 50
    assert grey["idle"] - grey["decode"] > 30
