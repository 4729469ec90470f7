"""The runbooks as an exporter serves them: over HTTP, whole, escaped, behind its passwords, and only where asked for."""

import http.client
import re
from collections.abc import Iterator
from contextlib import contextmanager
from html import unescape
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from markdown_it import MarkdownIt  # of import-linter's terminal; a reader of Markdown that is not ours

from llm_serving_exporter.daemon.service import Service
from llm_serving_exporter.render.runbooks import find_runbook, list_runbooks, read_runbook
from llm_serving_exporter.settings.config import Config, GpuConfig, WebConfig
from llm_serving_exporter.web.pages.runbooks import LONGEST_TEXT, render_runbook
from tests.support.builders.landingpage import Page
from tests.support.paths import ROOT
from tests.support.rows import check_rows
from tests.support.servers.webclient import HASH, basic, write
from tests.support.waiting import PATIENCE_SECONDS

FOLDER = ROOT / "alerts/llm_serving_alerts/runbooks"
NAMES = [one.name for one in list_runbooks()]


@contextmanager
def exporter(*, runbooks: bool, config_file: str | None = None) -> Iterator[Service]:
    web = WebConfig(listen_addresses=("127.0.0.1:0",), runbooks=runbooks, config_file=config_file)
    config = Config(targets=(), gpu=GpuConfig(enabled=False), web=web)
    service = Service(config, lambda: config, lambda _config: None)
    service.start()
    try:
        yield service
    finally:
        service.close()


def ask(service: Service, path: str, method: str = "GET", **headers: str) -> tuple[int, str, str]:
    parts = urlsplit(service.url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=PATIENCE_SECONDS)
    try:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.headers["Content-Type"], answer.read().decode()
    finally:
        connection.close()


@pytest.fixture(scope="module")
def serving() -> Iterator[Service]:
    with exporter(runbooks=True) as service:
        yield service


def letters(text: str) -> str:
    """What a reader sees, without spaces and bullets, which are the style's."""
    return re.sub(r"[\s•]+", "", unescape(re.sub(r"<[^>]*>", "", text)))


def test_the_list_leads_to_every_runbook_that_there_is(serving: Service) -> None:
    assert sorted(NAMES) == sorted(path.stem for path in FOLDER.glob("LLM*.md"))
    for path in ("/runbooks/", "/runbooks"):
        status, kind, body = ask(serving, path)
        assert (status, kind) == (200, "text/html; charset=utf-8")
        page = Page(body)
        assert [row[0] for row in page.rows] == NAMES
        for name in NAMES:
            assert f'href="/runbooks/{name}"' in body
    assert 'href="/runbooks/"' in ask(serving, "/")[2]


@check_rows("name", NAMES, shared=["serving"])
def test_a_runbook_is_served_whole_as_another_reader_of_markdown_reads_it(name: str, serving: Service) -> None:
    text = (FOLDER / f"{name}.md").read_text()
    status, kind, body = ask(serving, f"/runbooks/{name}")
    assert (status, kind) == (200, "text/html; charset=utf-8")
    assert not {"script", "img", "iframe"} & Page(body).tags
    main = re.search(r"<main>(.*)</main>", body, re.DOTALL)
    assert main
    # the numbers of lists are text with us and style with others
    mine = re.sub(r'<p class="item">\d+\.', "", main[1])
    assert letters(mine) == letters(MarkdownIt("commonmark").enable("table").render(text))


def test_links_lead_to_runbooks_that_there_are_and_to_no_file_of_the_repository(serving: Service) -> None:
    for name in NAMES:
        body = ask(serving, f"/runbooks/{name}")[2]
        for address in re.findall(r'href="([^"]*)"', body):
            assert address in ("/", "/runbooks/") or address.startswith("https://") or ask(serving, address)[0] == 200


def test_what_is_no_runbook_is_no_page_and_nothing_is_written(serving: Service) -> None:
    for path in (
        "/runbooks/README",
        "/runbooks/../settings.yml",
        "/runbooks/LLMServingNo",
        "/runbooks/%2e%2e/settings.yml",
    ):
        assert ask(serving, path)[0] in (400, 404), path
    assert ask(serving, "/runbooks/", "POST")[0] == 405
    assert ask(serving, "/runbooks/LLMServingStalled", "HEAD")[2] == ""


def test_they_are_off_unless_asked_for() -> None:
    with exporter(runbooks=False) as service:
        assert ask(service, "/runbooks/")[0] == 404
        assert ask(service, "/runbooks/LLMServingStalled")[0] == 404
        assert "runbooks" not in ask(service, "/")[2]


def test_they_are_protected_as_every_page(tmp_path: Path) -> None:
    with exporter(runbooks=True, config_file=write(tmp_path, f"basic_auth_users: {{alice: {HASH}}}")) as service:
        assert ask(service, "/runbooks/")[0] == 401
        assert ask(service, "/runbooks/LLMServingStalled")[0] == 401
        right = basic("alice", "correct horse")
        assert ask(service, "/runbooks/LLMServingStalled", Authorization=right)[0] == 200


def test_markup_in_a_text_stays_text_and_a_long_one_is_cut() -> None:
    hostile = (
        '# <b>&</b>\n\n## "><script>x</script>\n<img src=x> `<i>` **<u>** [<s>](javascript:alert(1)) [t](https://a.example/"onclick=x)\n'
        "[k](Known.md#a) [n](Unknown.md)\n- <li>\n1. <ol>\n```\n</pre><script>\n```\n| <th> | `|` |\n```\nnever ends <x>"
    )
    body = render_runbook("<name>", hostile, {"Known"}).decode()
    page = Page(body)  # its tags pair up
    assert {"b", "script", "img", "i", "u", "s", "li", "ol", "th"} & page.tags == set()
    assert "javascript:" not in body
    assert 'href="https://a.example/&#34;onclick=x"' in body
    assert 'href="/runbooks/Known#a"' in body
    assert "Unknown" not in body
    assert len(render_runbook("n", "x<" * LONGEST_TEXT, set())) < 6 * LONGEST_TEXT


def test_a_name_is_found_with_or_without_its_prefix() -> None:
    known = list_runbooks()
    for word in ("LLMServingStalled", "Stalled", "stalled", "llmservingstalled", "LLMServingStalled.md"):
        assert find_runbook(word, known) == "LLMServingStalled"
    assert find_runbook("Stall", known) is None
    assert read_runbook("LLMServingStalled").startswith("# LLMServingStalled\n")
