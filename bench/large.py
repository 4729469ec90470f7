"""The largest pages known, side by side with vmagent: `make bench`, or `python -m bench.large`.

The design's budget, CPU per cycle at most vmagent's on the same page, was set on vLLM's page of 56 KB. These are Dynamo's front end
(102 KB) and SGLang with eight data-parallel ranks (made from a recorded page by the facts' rules: every scheduler series eight times).
"""

from __future__ import annotations

import argparse
import itertools
import json
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from bench.cycle import Asking, OurCycle, idle_share, metric, say, scrape_config, show_pages, side_by_side, vmagent
from bench.servers import Nginx, free_port
from llm_serving_exporter.model.target import ModelSettings, Target
from llm_serving_simulator.replay import Carry
from tests.made.sglang_ranks import page as sglang_ranks
from tests.support.builders.recordings import recording


def moving(name: str) -> Iterator[bytes]:
    """Pages that differ as pages of a loaded server differ, second after second, counters going on for ever."""
    if name == "dynamo-frontend":
        run = recording("dynamo-1.6.1-frontend")
        pages = [run.pages[number] for number in (52, 56)]
    else:
        # a model name of usual length, which stands on every line
        made = (sglang_ranks(8, dp=True, number=number) for number in (46, 58))
        pages = [page.replace(b"tiny-llama", b"meta-llama/Llama-3.3-70B-Instruct") for page in made]
    carry = Carry(pages[0], pages[1])
    for tick in itertools.count():
        yield carry.page(pages[tick % 2], tick // 2)


def side_by_side_ms(
    folder: Path, nginx: Nginx, pages: Callable[[], Iterator[bytes]], seconds: float
) -> tuple[list[float], float]:
    """Ours, the model known, by what is asked of it, and vmagent's."""
    model = ModelSettings(name="Qwen3-30B-A3B")
    address = f"'127.0.0.1:{nginx.port}'"
    with vmagent(folder, nginx, scrape_config(folder, "none", "", "20ms"), free_port()) as program:
        idle = idle_share(program)
    ours = [
        OurCycle(
            Target("bench", nginx.url, metrics_path=f"/{asking.name}", model=model, gpu_model="H100 SXM", gpu_count=8),
            nginx.place(asking.name), pages, asking, roofline=False,
        )
        for asking in Asking
    ]  # fmt: skip
    port = free_port()
    with (
        show_pages(nginx, pages(), count=200),
        vmagent(folder, nginx, scrape_config(folder, "fast", address, "20ms"), port) as program,
    ):
        scrapes = partial(metric, f"http://127.0.0.1:{port}/metrics", "vm_promscrape_scrapes_total")
        found = side_by_side(ours, program, scrapes, seconds, idle)
    for one in ours:
        one.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.large", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=10.0, help="seconds of measuring each page (default 10)")
    parser.add_argument("--json", type=Path, help="where the figures go, too")
    arguments = parser.parse_args()
    rows, found = [], []
    for name in ("dynamo-frontend", "sglang-8-ranks"):
        pages = partial(moving, name)
        body = next(pages())
        with tempfile.TemporaryDirectory() as folder:
            nginx = Nginx(body, Path(folder))
            with nginx.program:
                say(f"measuring {name}, about {arguments.seconds + 30:.0f} s …")
                ours, theirs = side_by_side_ms(Path(folder), nginx, pages, arguments.seconds)
        rows.append(
            f"| {name:<16} | {len(body) / 1000:>6.0f} KB | {theirs:>8.2f} ms |"
            + "".join(f" {one:>8.2f} ms | {one / theirs:>8.2f} x |" for one in ours)
        )
        by_asking = {asking.name: one for asking, one in zip(Asking, ours, strict=True)}
        found.append({"page": name, "bytes": len(body), "vmagent_ms": theirs, "ours_ms": by_asking})
    say("")
    say(
        f"| {'page':<16} | {'size':>9} | {'vmagent':>11} | {'scraped':>11} | {'ours is':>10} | {'everything':>11} | {'ours is':>10} |"
    )
    say(f"|{'-' * 18}|{'-' * 11}" + f"|{'-' * 13}" + f"|{'-' * 13}|{'-' * 12}" * 2 + "|")
    for row in rows:
        say(row)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps({"pages": found}, indent=1))


if __name__ == "__main__":
    main()
