"""The landing page in a real browser: it renders as meant, with its style, in light and dark, wide and narrow."""

import html
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from llm_serving_exporter.web.exchange import Handler, Response
from llm_serving_exporter.web.pages.landing import render_landing
from tests.support.builders import views
from tests.support.chromium import browse, needs_chromium

pytestmark = needs_chromium


def page() -> bytes:
    return render_landing(
        views.fleet(),
        now_unix=views.NOW_UNIX,
        now_monotonic=views.NOW_MONOTONIC,
        stale_after_seconds=views.STALE_AFTER,
        version="0.1.0",
        telemetry_path="/metrics",
    )


@pytest.fixture
def served(make_server) -> Iterator[tuple[str, list[str]]]:
    """The page's URL on the real server, and every path that the browser asks for."""
    asked: list[str] = []

    def root(_request: object) -> Response:
        asked.append("/")
        return Response(200, "text/html; charset=utf-8", page())

    def icon(_request: object) -> Response:
        asked.append("/favicon.ico")
        return Response(404, "text/plain", b"")

    routes: dict[str, dict[str, Handler]] = {"/": {"GET": root}, "/favicon.ico": {"GET": icon}}
    return make_server(routes=routes).url, asked


def pixels(png: bytes) -> tuple[int, int, set[tuple[int, int, int]], tuple[int, int, int]]:
    """Width, height, every colour and the colour of the top left corner of an 8-bit RGB or RGBA PNG (W3C PNG, section 9)."""
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    at, packed, width, height, size = 8, b"", 0, 0, 0
    while at < len(png):
        length, kind = struct.unpack_from(">I4s", png, at)
        data = png[at + 8 : at + 8 + length]
        if kind == b"IHDR":
            width, height, depth, colour = struct.unpack_from(">IIBB", data)
            assert depth == 8
            size = {2: 3, 6: 4}[colour]
        elif kind == b"IDAT":
            packed += data
        at += length + 12
    raw, stride = zlib.decompress(packed), width * size
    above, colours, corner = bytes(stride), set(), None
    for number in range(height):
        kind_of_filter, start = raw[number * (stride + 1)], number * (stride + 1) + 1
        line = bytearray(raw[start : start + stride])
        for i in range(stride):
            left, up = line[i - size] if i >= size else 0, above[i]
            before = above[i - size] if i >= size else 0
            if kind_of_filter == 1:
                line[i] = (line[i] + left) & 255
            elif kind_of_filter == 2:
                line[i] = (line[i] + up) & 255
            elif kind_of_filter == 3:
                line[i] = (line[i] + (left + up) // 2) & 255
            elif kind_of_filter == 4:
                guess = left + up - before
                line[i] = (line[i] + min((left, up, before), key=lambda value: abs(guess - value))) & 255
        above = bytes(line)
        colours.update(zip(line[0::size], line[1::size], line[2::size], strict=True))
        corner = corner or (line[0], line[1], line[2])
    assert corner is not None
    return width, height, colours, corner


def shoot(folder: Path, url: str, *more: str) -> tuple[set[tuple[int, int, int]], tuple[int, int, int]]:
    shot = folder / "page.png"
    browse(folder, "--window-size=700,420", f"--screenshot={shot}", *more, url)
    width, height, colours, corner = pixels(shot.read_bytes())
    assert (width, height) == (700, 420)
    return colours, corner


@pytest.mark.process
@pytest.mark.seam("Chromium")
def test_the_served_page_renders_with_its_style_and_asks_for_nothing_else(served, tmp_path):
    url, asked = served
    colours, corner = shoot(tmp_path, url)
    # --page, --card, --good-back, --bad-back and --fill of the light style: page, card, badges, bar
    assert corner == (0xF4, 0xF5, 0xF7)
    assert {(0xFF, 0xFF, 0xFF), (0xDC, 0xF3, 0xE4), (0xFD, 0xE4, 0xE1), (0x3B, 0x7D, 0xDD)} <= colours
    assert asked == ["/"]


@pytest.mark.e2e
def test_a_dark_desktop_gets_a_dark_page(served, tmp_path):
    url, _ = served
    colours, corner = shoot(tmp_path, url, "--blink-settings=preferredColorScheme=0")
    assert corner == (0x12, 0x15, 0x1B)
    assert {(0x1B, 0x20, 0x29), (0x17, 0x36, 0x25), (0x5B, 0x97, 0xEE)} <= colours


MEASURE = """
<!DOCTYPE html><title>-</title><body>%s<script>
addEventListener("load", () => {
  document.title = [...document.querySelectorAll("iframe")].map(frame => {
    const page = frame.contentDocument, root = page.documentElement;
    const badges = [...page.querySelectorAll(".badge")].filter(badge => badge.getBoundingClientRect().width > 20).length;
    const last = page.querySelector("footer").getBoundingClientRect();
    return [root.scrollWidth <= root.clientWidth, badges, page.querySelectorAll("section").length, last.height > 0].join(" ");
  }).join("; ");
});
</script></body>
"""


@pytest.mark.process
def test_the_page_fits_wide_and_narrow_windows(tmp_path):
    frames = "".join(
        f'<iframe style="width:{width}px;height:900px" srcdoc="{html.escape(page().decode())}"></iframe>'
        for width in (320, 420, 768, 1280)
    )
    harness = tmp_path / "harness.html"
    harness.write_text(MEASURE % frames)
    dom = browse(tmp_path, "--window-size=1400,1000", "--dump-dom", harness.as_uri()).stdout
    title = dom.partition("<title>")[2].partition("</title>")[0]
    # 5 chips of the summary, a badge for each of 4 targets, 2 slow-down reasons; 4 targets and the GPUs
    assert title == "; ".join(["true 11 5 true"] * 4)
