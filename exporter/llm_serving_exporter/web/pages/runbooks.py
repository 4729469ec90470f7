"""The runbooks as pages for a browser, off unless asked for: the Markdown of the package -> HTML without scripts or parts from elsewhere.

Knows what our runbooks are written in, and shows anything else as the text that it is: headings, paragraphs, lists, fenced code, tables,
code and bold words, links. A link to another runbook leads there; one to another file of the repository is its words alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum, auto
from functools import partial

from markupsafe import Markup, escape

from llm_serving_exporter.render.html import fill, join
from llm_serving_exporter.render.runbooks import RunbookEntry, list_runbooks, read_runbook
from llm_serving_exporter.web.exchange import Handler, Request, Response
from llm_serving_exporter.web.pages.landing import STYLE

PATH = "/runbooks/"
# the longest that we have written is a tenth of it
LONGEST_TEXT = 200_000
_HTML = "text/html; charset=utf-8"
_FENCE = "```"
_ITEM = re.compile(r"(?:[-*]|(\d{1,3}\.)) +")
_INLINE = re.compile(r"`([^`]+)`|\*\*([^*]+)\*\*|\[([^\]]+)\]\(([^)\s]+)\)")
_SIBLING = re.compile(r"(\w+)\.md(#[\w-]+)?")
_HEADING = re.compile(r"##? +\S")
_RULE = re.compile(r"[|: -]+")
_CELLS = re.compile(r"(?<!\\)\|")
_OWN_STYLE = Markup(
    "main { max-width: 900px; } pre { overflow-x: auto; padding: 10px 12px; background: var(--card); border: 1px solid var(--line); "
    "border-radius: 6px; } h2 { margin-top: 26px; } .item { padding-left: 22px; text-indent: -22px; }"
)


class _Block(Enum):
    CODE = auto()
    TABLE = auto()
    HEADING = auto()
    WORDS = auto()


def make_routes() -> Mapping[str, Mapping[str, Handler]]:
    """Path -> method -> handler of every runbook that is installed, and of their list."""
    known = list_runbooks()

    def show_index(_request: Request) -> Response:
        return Response(200, _HTML, render_index(known))

    def show(name: str, _request: Request) -> Response:
        return Response(200, _HTML, render_runbook(name, read_runbook(name), {one.name for one in known}))

    pages = {f"{PATH}{one.name}": {"GET": partial(show, one.name)} for one in known}
    return {PATH: {"GET": show_index}, PATH.rstrip("/"): {"GET": show_index}, **pages}


def render_index(known: Sequence[RunbookEntry]) -> bytes:
    """The list of runbooks as UTF-8."""
    rows = (
        fill(
            '<tr><th class="text" scope="row"><a href="{}">{}</a></th><td class="text">{}</td><td class="text">{}</td></tr>',
            f"{PATH}{one.name}",
            one.name,
            one.severities,
            one.fires_when,
        )
        for one in known
    )
    return _page(
        "Runbooks", fill('<h1>Runbooks</h1><div class="scroll" tabindex="0"><table>{}</table></div>', join(rows))
    )


def render_runbook(name: str, text: str, known: set[str]) -> bytes:
    """A runbook as UTF-8. `text`: its Markdown, of which at most `LONGEST_TEXT` characters are shown; `known`: those that may be linked."""
    return _page(name, join(_render_blocks(text[:LONGEST_TEXT], known)))


def _page(title: str, body: Markup) -> bytes:
    page = fill(
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><title>{}</title><style>{}{}</style></head>'
        '<body><header><nav><a href="/">Exporter</a> <a href="{}">Runbooks</a></nav></header><main>{}</main></body></html>',
        title,
        STYLE,
        _OWN_STYLE,
        PATH,
        body,
    )
    return page.encode("utf-8", "replace")


def _render_blocks(text: str, known: set[str]) -> Iterator[Markup]:
    for kind, lines in _split_blocks(text.splitlines()):
        if kind is _Block.CODE:
            yield fill("<pre>{}</pre>", escape("\n".join(lines)))
        elif kind is _Block.TABLE:
            rows = (
                _CELLS.split(line.strip().removeprefix("|").removesuffix("|"))
                for line in lines
                if not _RULE.fullmatch(line)
            )
            cells = (
                join(fill('<td class="text">{}</td>', _render_inline(cell.strip(), known)) for cell in row)
                for row in rows
            )
            yield fill(
                '<div class="scroll" tabindex="0"><table>{}</table></div>',
                join(fill("<tr>{}</tr>", row) for row in cells),
            )
        elif kind is _Block.HEADING:
            level, words = ("h2", lines[0][3:]) if lines[0].startswith("## ") else ("h1", lines[0][2:])
            yield fill('<{} id="{}">{}</{}>', level, _anchor(words), escape(words), level)
        else:
            yield _render_paragraph(lines, known)


def _split_blocks(lines: Sequence[str]) -> Iterator[tuple[_Block, list[str]]]:
    """Headings, code without its fences, tables, list items and paragraphs, in their order."""
    open_kind, kept = _Block.WORDS, list[str]()
    for line in lines:
        fenced = line.lstrip().startswith(_FENCE)
        if open_kind is _Block.CODE and not fenced:
            kept.append(line)
            continue
        kind = (
            _Block.TABLE if line.lstrip().startswith("|") else _Block.HEADING if _HEADING.match(line) else _Block.WORDS
        )
        begins = fenced or kind is not open_kind or kind is _Block.HEADING or not line.strip() or _ITEM.match(line)
        if begins and kept:
            yield open_kind, kept
            kept = []
        if fenced:
            open_kind = _Block.WORDS if open_kind is _Block.CODE else _Block.CODE
        else:
            open_kind = kind
            kept += [line.strip()] if line.strip() else []
    if kept:
        yield open_kind, kept


def _render_paragraph(lines: Sequence[str], known: set[str]) -> Markup:
    words = " ".join(lines)
    item = _ITEM.match(words)
    if item is None:
        return fill("<p>{}</p>", _render_inline(words, known))
    return fill('<p class="item">{} {}</p>', item[1] or "•", _render_inline(words[item.end() :], known))


def _render_inline(words: str, known: set[str]) -> Markup:
    pieces, position = [], 0
    for found in _INLINE.finditer(words):
        code, bold, label, address = found.groups()
        pieces.append(escape(words[position : found.start()]))
        if code is not None:
            pieces.append(fill("<code>{}</code>", escape(code)))
        elif bold is not None:
            pieces.append(fill("<strong>{}</strong>", escape(bold)))
        else:
            pieces.append(_render_link(label, address, known))
        position = found.end()
    return join((*pieces, escape(words[position:])))


def _render_link(label: str, address: str, known: set[str]) -> Markup:
    sibling = _SIBLING.fullmatch(address)
    if sibling is not None and sibling[1] in known:
        return fill('<a href="{}">{}</a>', f"{PATH}{sibling[1]}{sibling[2] or ''}", escape(label))
    if address.startswith(("https://", "http://")):
        return fill('<a href="{}" rel="noreferrer">{}</a>', escape(address), escape(label))
    return escape(label)


def _anchor(heading: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", heading.lower()).strip("-")
