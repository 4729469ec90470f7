"""The whole daemon with 2,000 targets at 15 s beside vmagent with the same: `.venv/bin/python -m bench.fleet`, about four minutes.

Every target is one of 2,000 paths of one nginx, whose page moves each second; model and GPUs of each are stated, the dearest case. Both
programs read them in the same seconds. First nobody asks for our page; then it is read every 15 s, as Prometheus reads it: as
OpenMetrics and compressed. It prints CPU, resident memory, and how far apart the ticks of one target come, as nginx sees them.
"""

from __future__ import annotations

import http.client
import json
import re
import tempfile
import time
import zlib
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from bench.peers import PROMETHEUS_ACCEPTS, VMAGENT, Nginx, Program, moving_pages, scrape_config, start_exporter
from bench.pictures import draw_ticks, write_picture
from bench.shared import describe_high, make_parser, repeat, require_bytecode, say
from llm_serving_simulator.replay import demo_model_config
from tests.support.servers.server_process import free_port

OURS, THEIRS = "ours", "vmagent"
# what each calls itself
AGENTS = {"llm-serving-exporter": OURS, "vm_promscrape": THEIRS}
_ASKED = re.compile(r"(?P<at>[0-9.]+) /(?P<target>replica-[0-9]+)/metrics (?P<agent>[\w-]+)")
# until each window has its minute
WARM_UP_SECONDS = 75.0

# program -> target -> when it was asked, in seconds
Asked = Mapping[str, Mapping[str, list[float]]]


@dataclass(frozen=True)
class Span:
    # Unix seconds of its begin and its end
    begin: float
    end: float
    # CPU seconds by program
    cpu: Mapping[str, float]
    # seconds that each of our pages took, and its bytes on the wire and unpacked
    pages: tuple[tuple[float, int, int], ...]


def make_configs(nginx: Nginx, targets: int, interval: float) -> tuple[dict[str, object], dict[str, Any]]:
    """Ours and vmagent's."""
    paths = [f"/replica-{number}/metrics" for number in range(targets)]
    known = {"model": {"config": demo_model_config()}, "gpu_model": "H100 SXM", "gpu_count": 1}
    listed = [{"name": path[1:-8], "url": nginx.url, "metrics_path": path, **known} for path in paths]
    ours: dict[str, object] = {"gpu": {"enabled": False}, "scrape": {"interval": f"{interval:g}s"}, "targets": listed}
    theirs = scrape_config((nginx.address,), f"{interval:g}s")
    theirs["scrape_configs"][0]["static_configs"] = [
        {"targets": [nginx.address], "labels": {"__metrics_path__": path, "replica": path[1:-8]}} for path in paths
    ]
    return ours, theirs


def read_page(port: int, look: Callable[[bytes], None] = lambda _part: None) -> tuple[float, int, int]:
    """Asks for our page as Prometheus does. Seconds, bytes on the wire, bytes unpacked; `look` gets each part of it."""
    started = time.monotonic()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", "/metrics", headers={"Accept": PROMETHEUS_ACCEPTS, "Accept-Encoding": "gzip"})
    answer = connection.getresponse()
    assert answer.status == 200, answer.status
    unpacker, wire, size = zlib.decompressobj(31), 0, 0
    while block := answer.read(1 << 20):
        wire += len(block)
        part = unpacker.decompress(block)
        size += len(part)
        look(part)
    connection.close()
    return time.monotonic() - started, wire, size


def count_lines(port: int, *starts: str) -> dict[str, int]:
    """How many of our page's lines begin so and have a value that is not 0."""
    found = dict.fromkeys(starts, 0)
    rest = b""

    def look(part: bytes) -> None:
        nonlocal rest
        *lines, rest = (rest + part).split(b"\n")
        for line in lines:
            for start in starts:
                if line.startswith(start.encode()):
                    found[start] += float(line.rsplit(b" ", 1)[1]) != 0

    read_page(port, look)
    return found


def measure_span(programs: Mapping[str, Program], seconds: float, port: int | None, interval: float) -> Span:
    """`port`: our web server's, whose page is read every `interval`; None: nobody reads it."""
    before = {name: program.cpu_seconds() for name, program in programs.items()}
    begin, pages = time.time(), list[tuple[float, int, int]]()
    scraper = nullcontext() if port is None else repeat(interval, lambda: pages.append(read_page(port)), at_once=True)
    with scraper:
        time.sleep(seconds)
        after = {name: program.cpu_seconds() for name, program in programs.items()}
        end = time.time()
    return Span(begin, end, {name: after[name] - before[name] for name in programs}, tuple(pages))


def read_asked(log: Path, begin: float, end: float) -> Asked:
    """When each target was asked, by whom, between two moments."""
    found: dict[str, dict[str, list[float]]] = {name: defaultdict(list) for name in AGENTS.values()}
    with log.open() as lines:
        for match in filter(None, map(_ASKED.match, lines)):
            at, program = float(match["at"]), AGENTS.get(match["agent"])
            if program is not None and begin <= at <= end:
                found[program][match["target"]].append(at)
    return found


def report_span(what: str, span: Span, asked: Asked, interval: float) -> None:
    say(f"\n{what}, {span.end - span.begin:.0f} s")
    for name, cpu in span.cpu.items():
        ticks = sum(len(times) for times in asked[name].values())
        gaps = [later - earlier for times in asked[name].values() for earlier, later in pairwise(sorted(times))]
        missed = sum(round(gap / interval) - 1 for gap in gaps if gap > 1.5 * interval)
        off = [100 * abs(gap - interval) / interval for gap in gaps]
        each = f"{1000 * cpu / ticks:.3f} ms each" if ticks else "none to divide by"
        spacing = "no target was asked twice"
        if off:
            spacing = f"off the interval {describe_high(off, '%', 1)}, most {max(off):.1f} %; {missed} missed"
        say(f"  {name:<8} {cpu:6.2f} CPU s, {ticks} ticks, {each}; {spacing}")
    if span.cpu[THEIRS]:
        say(f"  ours is {span.cpu[OURS] / span.cpu[THEIRS]:.2f} x vmagent's")
    for seconds, wire, size in span.pages:
        say(f"  page: {seconds:.2f} s, {wire / 1e6:.1f} MB on the wire, {size / 1e6:.1f} MB unpacked")


def main() -> None:
    parser = make_parser("fleet", __doc__)
    parser.add_argument("--targets", type=int, default=2000)
    parser.add_argument("--interval", type=float, default=15.0)
    parser.add_argument("--seconds", type=float, default=60.0, help="of each of the two spans (default 60)")
    parser.add_argument("--warm-up", type=float, default=WARM_UP_SECONDS, help="seconds before them (default 75)")
    parser.add_argument("--picture", type=Path, help="where the picture of the ticks goes, an SVG")
    parser.add_argument("--json", type=Path, help="where the figures go, too")
    arguments = parser.parse_args()
    require_bytecode()
    targets, interval, seconds = arguments.targets, arguments.interval, arguments.seconds
    pages = moving_pages()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        log = folder / "asked.log"
        nginx = Nginx(next(pages), folder, log=log)
        ours, theirs = make_configs(nginx, targets, interval)
        daemon, port = start_exporter(folder, ours)
        with (
            nginx.program,
            VMAGENT.start(folder, nginx, theirs, free_port()) as peer,
            daemon as exporter,
            repeat(1.0, lambda: nginx.show(next(pages))),
        ):
            programs = {OURS: exporter, THEIRS: peer}
            time.sleep(arguments.warm_up)
            unscraped = measure_span(programs, seconds, None, interval)
            resident = {name: program.resident_bytes() for name, program in programs.items()}
            scraped = measure_span(programs, seconds, port, interval)
            peak = {name: program.peak_resident_bytes() for name, program in programs.items()}
            up, ceiling = "llm_serving_target_up{", "llm_serving_decode_ceiling_ratio{"
            found = count_lines(port, up, ceiling)
        asked = read_asked(log, unscraped.begin, unscraped.end)
        report_span("nobody asks for our page", unscraped, asked, interval)
        report_span(
            f"our page is read every {interval:g} s", scraped, read_asked(log, scraped.begin, scraped.end), interval
        )
        if arguments.picture is not None:
            write_picture(draw_ticks(asked, interval), arguments.picture)
        if arguments.json is not None:
            spans = {"unscraped": unscraped, "scraped": scraped}
            shares = {
                what: {each: cpu / (span.end - span.begin) for each, cpu in span.cpu.items()}
                for what, span in spans.items()
            }
            figures = {"cpu_share": shares, "resident_bytes": resident, "peak_resident_bytes": peak}
            arguments.json.write_text(
                json.dumps({"targets": targets, "interval_seconds": interval, **figures}, indent=1)
            )
    say("")
    for name in programs:
        say(
            f"resident, {name}: {resident[name] / 1e6:.0f} MB before the first page, at most {peak[name] / 1e6:.0f} MB; "
            f"{resident[name] / targets / 1000:.0f} and {peak[name] / targets / 1000:.0f} KB a target"
        )
    if found[up] != targets or found[ceiling] != targets:
        raise SystemExit(f"not every target is up and fully known: {found}; the measurement says little")


if __name__ == "__main__":
    main()
