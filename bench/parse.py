"""Times of reading one page, best of N, as ratios to a plain pass over its lines. Compare ratios; milliseconds are the machine's.

usage: python bench/parse.py [PAGE [NEXT_PAGE]] [--best-of N]

PAGE defaults to page 60 of the recording vllm-0.32-mfu in tests/captures, NEXT_PAGE to the .prom file after PAGE in its
folder (in the archive: page 61), or PAGE itself. "steady" alternates the two, so that every value that moved is read anew.
"""

from __future__ import annotations

import argparse
import re
import tarfile
import time
import tracemalloc
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from llm_serving_exporter.fetch.exposition import parse_text
from llm_serving_exporter.fetch.page import PageParser
from llm_serving_exporter.model.sample import Page

ARCHIVE = Path(__file__).parents[1] / "tests/captures/vllm-0.32-mfu.tar.xz"
NUMBER = rb"(?:-?+[0-9]++(?:\.[0-9]*+)?+(?:e[+-][0-9]++)?+|NaN|[+-]Inf)"


def best_milliseconds(run: Callable[[], object], best_of: int) -> float:
    best = float("inf")
    for _ in range(best_of):
        started = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - started)
    return best * 1000


def plain_pass(body: bytes) -> dict[str, str]:
    """The peer: decode, split, cut each sample line at its last blank, put the strings into a dict."""
    found = {}
    for line in body.decode().split("\n"):
        if line and line[0] != "#":
            series, _, value = line.rpartition(" ")
            found[series] = value
    return found


def page_pattern(body: bytes) -> re.Pattern[bytes]:
    """The rejected way: the whole page as one pattern with a hole for each value."""
    lines = []
    for line in body.split(b"\n"):
        series, _, _ = line.rpartition(b" ")
        is_sample = line and line[:1] != b"#"
        lines.append(re.escape(series) + b" (" + NUMBER + b")" if is_sample else re.escape(line))
    return re.compile(b"\n".join(lines))


def kept_bytes(make: Callable[[], object]) -> tuple[int, int]:
    """What `make` leaves allocated, and its peak."""
    tracemalloc.start()
    kept = make()
    sizes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    del kept
    return sizes


def some_names(text: str, enough: int = 250) -> frozenset[str]:
    """Names of at least `enough` samples, about what a mapping reads of a vLLM page: no runtime internals, no `_created`."""
    counts = Counter(key.name for key in parse_text(text, openmetrics=False).keys)
    chosen: set[str] = set()
    for name in sorted(counts, reverse=True):
        if sum(counts[known] for known in chosen) >= enough:
            break
        if not name.startswith(("python_", "process_")) and not name.endswith("_created"):
            chosen.add(name)
    return frozenset(chosen)


def read_pages(path: Path | None, following: Path | None) -> tuple[str, bytes, bytes]:
    if path is None:
        with tarfile.open(ARCHIVE) as archive:
            bodies = [archive.extractfile(name) for name in ("0060.prom", "0061.prom")]
            first, second = (body.read() for body in bodies if body is not None)
        return f"{ARCHIVE.name} 0060.prom", first, second
    if following is None:
        pages = sorted(path.parent.glob("*.prom"))
        later = pages[pages.index(path) + 1 :] if path in pages else []
        following = later[0] if later else path
    return path.name, path.read_bytes(), following.read_bytes()


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("page", nargs="?", type=Path)
    options.add_argument("next_page", nargs="?", type=Path)
    options.add_argument("--best-of", type=int, default=400)
    asked = options.parse_args()
    name, first_body, second_body = read_pages(asked.page, asked.next_page)
    text = second_body.decode()

    def page(body: bytes) -> Page:
        return Page(body, "text/plain; version=0.0.4", 0.0, 0.0)

    first, second = page(first_body), page(second_body)
    some = some_names(text)
    changed = sum(map(bytes.__ne__, first_body.split(b"\n"), second_body.split(b"\n")))
    count = parse_text(text, openmetrics=False).series_count
    print(f"{name}: {len(first_body)} bytes, {count} samples; {changed} lines differ on the next page")

    plain = best_milliseconds(lambda: plain_pass(second_body), asked.best_of)
    rows = [("plain pass: split, rpartition, dict of strings", plain)]
    for choice, wanted in (("all", None), ("some", some.__contains__)):
        parser = PageParser(wanted)
        size = len(parser.parse(first).values)
        label = f"{choice} wanted: {size} samples"

        def alternate(parser: PageParser = parser) -> None:
            parser.parse(first)
            parser.parse(second)

        rows.append((f"steady, {label}", best_milliseconds(alternate, asked.best_of) / 2))
        idle = best_milliseconds(lambda parser=parser: parser.parse(second), asked.best_of)
        rows.append((f"steady and nothing moves, {label}", idle))
        strict = best_milliseconds(lambda wanted=wanted: PageParser(wanted).parse(second), asked.best_of // 4)
        rows.append((f"first page, strict, {label}", strict))
    re.purge()
    started = time.perf_counter()
    pattern = page_pattern(first_body)
    compiling = (time.perf_counter() - started) * 1000
    if pattern.fullmatch(second_body):
        matching = best_milliseconds(
            lambda: tuple(map(float, pattern.fullmatch(second_body).groups())),
            asked.best_of,
        )
        rows += [("rejected: one pattern of the page, match", matching), ("rejected: compile it, once", compiling)]
    oracle = best_milliseconds(lambda: list(text_string_to_metric_families(text)), max(3, asked.best_of // 20))
    rows.append(("prometheus_client's text parser", oracle))
    for label, milliseconds in rows:
        print(f"{label:<55} {milliseconds:8.3f} ms {milliseconds / plain:8.2f} x")

    def steady_parser() -> PageParser:
        parser = PageParser()
        parser.parse(first)
        parser.parse(second)
        return parser

    def uncached_pattern() -> re.Pattern[bytes]:
        re.purge()
        return page_pattern(first_body)

    for label, make in (("parser, all wanted", steady_parser), ("rejected: one pattern of the page", uncached_pattern)):
        kept, peak = kept_bytes(make)
        print(f"{label:<55} {kept / 1000:8.0f} kB kept {peak / 1000:6.0f} kB peak")
    re.purge()


if __name__ == "__main__":
    main()
