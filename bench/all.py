"""All figures of docs/performance.md about CPU, memory and start in one command: `.venv/bin/python -m bench.all --out FOLDER`.

About 35 minutes on a machine with nothing else to do. FOLDER gets what each bench
printed and its figures as JSON, all tables as Markdown in `tables.md`, and the pictures: CPU a scrape against the size of the page, CPU
of the daemon against its targets, and the gaps between the ticks of most targets.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.cycle import SCRAPED
from bench.pictures import Line, draw_lines, write_picture
from bench.shared import make_parser, require_bytecode, say, write_table
from tests.support.builders.recordings import page as recorded_page

TARGETS = (1, 50, 200, 500, 2000)

# what a bench wrote with --json
Figures = Mapping[str, Any]


@dataclass(frozen=True)
class Step:
    # its module is bench.NAME, its files begin with `file`
    name: str
    file: str
    arguments: tuple[str, ...] = ()
    # whether it takes --json
    figures: bool = True


def list_steps(out: Path) -> list[Step]:
    steps = [Step("cycle", "cycle", ("--runs", "5", "--seconds", "8")), Step("start", "start", figures=False)]
    for number in TARGETS:
        picture = ("--picture", str(out / "ticks.svg")) if number == TARGETS[-1] else ()
        steps.append(Step("fleet", f"fleet-{number}", ("--targets", str(number), "--seconds", "60", *picture)))
    return steps


def run_step(step: Step, out: Path) -> tuple[str, str]:
    """What it printed, and "" or how it failed. A step that fails is told, and the others go on."""
    words = [sys.executable, "-m", f"bench.{step.name}", *step.arguments]
    if step.figures:
        words += ["--json", str(out / f"{step.file}.json")]
    say(f"\n$ python {' '.join(words[1:])}")
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            say(line.rstrip("\n"))
            lines.append(line)
    text = "".join(lines)
    (out / f"{step.file}.txt").write_text(text)
    return text, f"bench.{step.name} ended with {process.returncode}" if process.returncode else ""


def keep_tables(printed: str) -> list[str]:
    return [line for line in printed.splitlines() if line.startswith("|")]


def list_pages(cycle: Figures | None, usual_bytes: int) -> list[tuple[float, float, float]]:
    """Whole KB of each page, our CPU milliseconds scraped every third tick, vmagent's; the usual page's are medians of runs."""
    if cycle is None or not cycle["runs"]:
        return []
    ours, theirs = (statistics.median(one[key] for one in cycle["runs"]) for key in (SCRAPED, "vmagent"))
    pages = [(round(usual_bytes / 1000), ours, theirs)]
    for page in cycle["pages"]:
        pages.append((round(page["bytes"] / 1000), page["ours_ms"], page["vmagent_ms"]))
    return sorted(pages)


def tabulate_fleets(fleets: Iterable[Figures]) -> list[str]:
    """A row for each number of targets: percent of a core and MB, of ours and of vmagent."""
    heads = "targets", "ours, not scraped", "ours, scraped", "vmagent", "ours, most resident", "vmagent, most resident"
    rows = []
    for fleet in fleets:
        shares, peak = fleet["cpu_share"], fleet["peak_resident_bytes"]
        cells = [f"{fleet['targets']:,}"]
        for each in shares.values():
            ratio = f", {each['ours'] / each['vmagent']:.2f} x" if each["vmagent"] else ""
            cells.append(f"{100 * each['ours']:.2f} %{ratio}")
        cells.append(f"{100 * shares['unscraped']['vmagent']:.2f} %")
        rows.append((*cells, *(f"{peak[name] / 1e6:.0f} MB" for name in ("ours", "vmagent"))))
    return list(write_table(heads, rows))


def draw_pages(pages: Sequence[tuple[float, float, float]], out: Path) -> None:
    """CPU a scrape against the size of the page."""
    lines = [
        Line("ours, /metrics read every third tick", "ours", [(size, ours) for size, ours, _ in pages]),
        Line("vmagent", "peer", [(size, theirs) for size, _, theirs in pages]),
    ]
    write_picture(draw_lines("CPU a scrape by size of the page", "KB", "ms", lines), out / "page-size.svg")


def draw_fleets(fleets: Sequence[Figures], out: Path) -> None:
    """CPU against the number of targets. What was too little to be counted, in steps of 10 ms, is not drawn."""

    def points(what: str, program: str) -> list[tuple[float, float]]:
        shares = [(fleet["targets"], 100 * fleet["cpu_share"][what][program]) for fleet in fleets]
        return [(targets, share) for targets, share in shares if share > 0]

    lines = [
        Line("ours, nobody reads /metrics", "ours", points("unscraped", "ours")),
        Line("ours, /metrics read every 15 s", "ours-scraped", points("scraped", "ours")),
        Line("vmagent", "peer", points("unscraped", "vmagent")),
    ]
    seen = [line for line in lines if line.points]
    if seen:
        title = "CPU by number of targets at 15 s, both scales logarithmic"
        write_picture(draw_lines(title, "targets", "% of a core", seen, logarithmic=True), out / "targets.svg")


def main() -> None:
    parser = make_parser("all", __doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder of tables, figures and pictures")
    arguments = parser.parse_args()
    require_bytecode()
    out: Path = arguments.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    say(f"load of the machine before: {os.getloadavg()[0]:.2f}")
    tables, problems = list[str](), list[str]()
    figures: dict[str, Figures] = {}
    for step in list_steps(out):
        path = out / f"{step.file}.json"
        path.unlink(missing_ok=True)  # those of a run before are not of this one
        printed, problem = run_step(step, out)
        if problem:
            problems.append(problem)
            continue
        if step.figures:
            figures[step.file] = json.loads(path.read_text())
        said = printed.splitlines()
        tables += [f"\n## {step.file}\n", *(keep_tables(printed) or [f"- {line}" for line in said if line])]
    fleets = [each for name, each in figures.items() if name.startswith("fleet-")]
    pages = list_pages(figures.get("cycle"), len(recorded_page("vllm-0.32-mfu", 60)))
    if len(pages) > 1:
        draw_pages(pages, out)
    if fleets:
        draw_fleets(fleets, out)
        tables += ["\n## targets\n", *tabulate_fleets(fleets)]
    (out / "tables.md").write_text("\n".join(tables).lstrip() + "\n")
    say(f"\n{(out / 'tables.md').read_text()}")
    if problems:
        raise SystemExit("; ".join(problems))


if __name__ == "__main__":
    main()
