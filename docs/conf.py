"""The site of docs/: `make docs` builds it into build/docs, without the network.

Pages stay where they are and read the same on a forge: the root of the sources is the checkout, so that a link from a page to METRICS.md,
to a runbook or to a file leads there in the site too. docs/index.md is a list of links under headings: the toctrees come from it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from pygments.lexers.special import TextLexer

ROOT = Path(__file__).resolve().parents[1]

project = "llm-serving-exporter"
root_doc = "docs/index"
extensions = ["myst_parser"]
include_patterns = [
    "docs/*.md",
    "METRICS.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "alerts/llm_serving_alerts/runbooks/*.md",
    "deploy/helm/llm-serving-exporter/README.md",
]
# folders are left out before they are walked
exclude_patterns = [".*", "build", "dist", "tests", "bench", "exporter", "locks", "scripts", "dashboards", "docs/img"]

# a link or an anchor that leads nowhere ends the build: `make docs` makes errors of warnings
nitpicky = True
myst_heading_anchors = 4
# examples with … in them, and languages that Pygments does not know, are shown as they are
suppress_warnings = ["misc.highlighting_failure"]

html_theme = "furo"
html_title = "llm-serving-exporter"
html_copy_source = False
html_show_sphinx = False

_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\((?!https?:|mailto:|#)([^)#\s]+)(?:#[^)]*)?\)")
_ANCHOR = re.compile(r"<a id=\"([^\"]+)\">")
_ENTRY = re.compile(r"^- \[[^\]]*\]\(([^)#]+)\.md\)", re.MULTILINE)


def read_source(_app: Any, name: str, source: list[str]) -> None:
    """Called with each page's text before it is parsed; a link to a folder or to a page outside of the site becomes its text."""
    page = ROOT / f"{name}.md"
    source[0] = _LINK.sub(lambda match: keep_link(page, match), source[0])
    for anchor in _ANCHOR.findall(source[0]):  # add_anchors makes them known under the name of their page
        source[0] = source[0].replace(f"](#{anchor})", f"]({page.name}#{anchor})")
    if name == "docs/runbooks":
        source[0] += "\n```{toctree}\n:hidden:\n:glob:\n\n/alerts/llm_serving_alerts/runbooks/*\n```\n"
    if name == root_doc:
        source[0] += "".join(make_toctree(section) for section in re.split(r"^## ", source[0], flags=re.MULTILINE)[1:])


def keep_link(page: Path, match: re.Match[str]) -> str:
    """The link as it stands, or its text where the site has no page for what it leads to."""
    path = (page.parent / match[2]).resolve()
    shown = path.is_relative_to(ROOT) and any(path.relative_to(ROOT).match(one) for one in include_patterns)
    return match[0] if path.is_file() and (path.suffix != ".md" or shown) else match[1]


def make_toctree(section: str) -> str:
    """A hidden toctree of the pages that a section of the index lists, under the section's heading."""
    caption = section.partition("\n")[0]
    pages = "\n".join(f"/{(ROOT / 'docs' / path).resolve().relative_to(ROOT)}" for path in _ENTRY.findall(section))
    return f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{pages}\n```\n"


def add_anchors(app: Any, _doctree: Any) -> None:
    """Has links to `<a id="...">` of a page found as links to headings are."""
    name = app.env.docname
    slugs = app.env.metadata[name].setdefault("myst_slugs", {})
    for anchor in _ANCHOR.findall((ROOT / f"{name}.md").read_text(encoding="utf-8")):
        slugs.setdefault(anchor, (0, anchor, anchor))


def lead_to_index(app: Any, failure: Exception | None) -> None:
    """Writes index.html at the top, which leads to the index of docs/."""
    if failure is None:
        target = f"{root_doc}.html"
        page = f'<!doctype html><title>{project}</title><meta http-equiv="refresh" content="0; url={target}"><a href="{target}">docs</a>\n'
        Path(app.outdir, "index.html").write_text(page, encoding="utf-8")


def setup(app: Any) -> dict[str, bool]:
    """Registers the above with Sphinx."""
    app.add_lexer("promql", TextLexer)
    app.connect("source-read", read_source)
    app.connect("doctree-read", add_anchors)
    app.connect("build-finished", lead_to_index)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
