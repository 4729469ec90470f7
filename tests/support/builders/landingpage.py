"""The landing page as a reader finds it: text, tables and links of the HTML."""

from html.parser import HTMLParser

from llm_serving_exporter.model.reading import View
from llm_serving_exporter.web.pages.landing import render_landing
from tests.support.builders import views

VOID = {"meta", "link", "br", "img"}


class Page(HTMLParser):
    """Text by section, rows of tables, links; raises where tags do not pair up."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.sections: dict[str, str] = {}
        self.rows: list[list[str]] = []
        self.links: dict[str, str] = {}
        self.tags: set[str] = set()
        self.text = ""
        self._section = ""
        self._link = ""
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
        if tag == "a":
            self._link = dict(attrs).get("href") or ""
        if tag == "section":
            self._section = f"section {len(self.sections)}"
            self.sections[self._section] = ""
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag
        if tag == "section":
            self._section = ""

    def handle_data(self, data: str) -> None:
        if "style" in self.open:
            return
        self.text += data + " "
        if self._section:
            self.sections[self._section] += data + " "
        if "td" in self.open or "th" in self.open:
            self.rows[-1][-1] = f"{self.rows[-1][-1]} {data}".strip()
        if "a" in self.open:
            self.links[data] = self._link

    def card(self, name: str) -> str:
        found = [" ".join(text.split()) for text in self.sections.values() if text.startswith(name)]
        assert len(found) == 1
        return found[0]

    def row(self, start: str) -> list[str]:
        found = [row for row in self.rows if row[0] == start]
        assert found, start
        return found[0]


def page_of(view: View, **changes: object) -> Page:
    arguments = {
        "now_unix": views.NOW_UNIX,
        "now_monotonic": views.NOW_MONOTONIC,
        "stale_after_seconds": views.STALE_AFTER,
        "version": "0.1.0",
        "telemetry_path": "/metrics",
        **changes,
    }
    return Page(render_landing(view, **arguments).decode())


def landing_bytes(view: View) -> bytes:
    return render_landing(
        view,
        now_unix=views.NOW_UNIX,
        now_monotonic=views.NOW_MONOTONIC,
        stale_after_seconds=15,
        version="0",
        telemetry_path="/metrics",
    )
