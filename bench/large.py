"""The largest pages known, side by side with vmagent: `make bench`, or `python -m bench.large`.

The design's budget, CPU per cycle at most vmagent's on the same page, was set on vLLM's page of 56 KB. These are Dynamo's front end
(114 KB) and SGLang with eight data-parallel ranks (made from a recorded page by the facts' rules: every scheduler series eight times).
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from bench.run import idle_share, metric, peer_cycle_ms, say, scrape_config, vmagent
from bench.servers import Nginx, free_port
from llm_serving_exporter.config.types import Config
from llm_serving_exporter.glance import Glance
from llm_serving_exporter.model.model_settings import ModelSettings
from llm_serving_exporter.model.target import Target
from llm_serving_exporter.model_facts import ModelBook
from llm_serving_exporter.pipeline import TargetPipeline
from llm_serving_exporter.sim.carry import Carry
from tests.made.sglang_ranks import page as sglang_ranks
from tests.recordings import recording


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


def our_cycle_ms(nginx: Nginx, pages: Iterator[bytes], rounds: int) -> float:
    """Mean CPU of a tick, the model known."""
    ticks = [0]
    target = Target(
        "bench",
        nginx.url,
        metrics_path="/metrics",
        model=ModelSettings(name="Qwen3-30B-A3B"),
        gpu_model="H100 SXM",
        gpu_count=8,
    )
    pipeline = TargetPipeline(
        target,
        partial(Glance(Config(targets=()), (target,), None).settings, target),
        60.0,
        models=ModelBook(None).of,
        monotonic=lambda: time.monotonic() + 5.0 * ticks[0],
    )
    costs = []
    for _ in range(rounds):
        nginx.show(next(pages))
        ticks[0] += 1
        before = time.process_time()
        reading = pipeline.tick()
        costs.append(time.process_time() - before)
        assert reading.up, reading.problem
        pipeline.refresh_facts()
    pipeline.close()
    return 1000 * statistics.mean(costs[len(costs) // 10 :])


def vmagent_cycle_ms(folder: Path, nginx: Nginx, seconds: float) -> float:
    target = f"'127.0.0.1:{nginx.port}'"
    with vmagent(folder, nginx, scrape_config(folder, "none", "", "20ms"), free_port()) as program:
        idle = idle_share(program)
    port = free_port()
    with vmagent(folder, nginx, scrape_config(folder, "fast", target, "20ms"), port) as program:
        scrapes = partial(metric, f"http://127.0.0.1:{port}/metrics", "vm_promscrape_scrapes_total")
        return peer_cycle_ms(program, scrapes, seconds, idle)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.large", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=400, help="cycles of ours (default 400)")
    parser.add_argument("--seconds", type=float, default=10.0, help="seconds that vmagent scrapes (default 10)")
    arguments = parser.parse_args()
    rows = []
    for name in ("dynamo-frontend", "sglang-8-ranks"):
        pages = moving(name)
        body = next(pages)
        with tempfile.TemporaryDirectory() as folder:
            nginx = Nginx(body, Path(folder))
            with nginx.program:
                say(f"measuring {name}, about {arguments.seconds + 30:.0f} s …")
                ours = our_cycle_ms(nginx, pages, arguments.rounds)
                theirs = vmagent_cycle_ms(Path(folder), nginx, arguments.seconds)
        rows.append(
            f"| {name:<16} | {len(body) / 1000:>6.0f} KB | {ours:>8.2f} ms | {theirs:>8.2f} ms | {ours / theirs:>8.2f} x |"
        )
    say("")
    say(f"| {'page':<16} | {'size':>9} | {'our cycle':>11} | {'vmagent':>11} | {'ours is':>10} |")
    say(f"|{'-' * 18}|{'-' * 11}|{'-' * 13}|{'-' * 13}|{'-' * 12}|")
    for row in rows:
        say(row)


if __name__ == "__main__":
    main()
