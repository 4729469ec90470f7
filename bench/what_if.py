"""`ceiling --from-prometheus` against fleets whose truth is known: `--write` simulates for minutes and writes tests/truth/what_if.toml.

A fleet of four is watched for 36 minutes; each question's truth is the least number of replicas with which the simulator holds 99 % of
first tokens within 2 s. bench.accuracy makes the table of docs/accuracy.md from the file.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from llm_serving_exporter.commands.what_if.capacity import Objective, Request, Server, least_replicas
from llm_serving_exporter.commands.what_if.reach import Window, fit_reach
from llm_serving_exporter.commands.what_if.week import find_first_token_seconds, smooth_peak
from llm_serving_exporter.model.record import replace
from llm_serving_simulator.fleet.fleet import Fleet, ReplicaSpec
from llm_serving_simulator.fleet.spec import EngineSpec
from llm_serving_simulator.fleet.workload import Burst, Lengths, Mix, PoissonWorkload, Prefixes, Profile, Step

FILE = Path("tests/truth/what_if.toml")
SECONDS, WINDOW_SECONDS, REPLICAS = 2160.0, 300.0, 4
TTFT_SECONDS, SHARE = 2.0, 0.99
ENGINES = {
    "Llama-3.1-8B, H100": (EngineSpec(), 24.0),
    "Qwen3-30B-A3B, H100": (EngineSpec(model="Qwen3-30B-A3B", max_num_seqs=128), 16.0),
    "Llama-3.1-70B, 4 x H100": (EngineSpec(model="Llama-3.1-70B-Instruct", tensor=4), 12.0),
}
_CHAT = Mix(Lengths(600), Lengths(200))
# requests/s, of the engine's usual
LOADS: dict[str, tuple[Mix, Callable[[float], Profile], float]] = {
    "chat by the hour": (_CHAT, lambda rate: Profile(rate, steps=(Step(0, 0.5), Step(600, 1.0), Step(1200, 1.6), Step(1800, 0.8))), 1.0),
    "chat in bursts": (_CHAT, lambda rate: Profile(rate, bursts=(Burst(600, 300, 2, 1200),)), 1.0),
    "code, half of it cached": (Mix(Lengths(3000, 0.5), Lengths(300), Prefixes(0.5, 4, 1500)), Profile, 0.45),
    "long answers": (Mix(Lengths(200), Lengths(800)), Profile, 0.5),
}  # fmt: skip
# traffic, GPU, and prompts by so many times
QUESTIONS = {
    "as it is": (1.0, "", 1.0), "half": (0.5, "", 1.0), "twice": (2.0, "", 1.0), "H200": (1.0, "H200", 1.0),
    "longer prompts": (1.0, "", 1.5),
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A question with its answer and the truth, in replicas."""

    engine: str
    load: str
    question: str
    answered: int
    true: int


def watch(engine: EngineSpec, mix: Mix, profile: Profile, seed: int = 1) -> tuple[list[Window], Request, list[float]]:
    """Windows of a fleet of four, its mean request, and its requests/s by window."""
    fleet, before = _fleet(engine, REPLICAS, mix, profile, seed), dict[str, tuple[float, ...]]()
    windows, rates, attended, held = [], [], [0.0, 0.0], [0.0, 0.0]
    for at in range(int(WINDOW_SECONDS), int(SECONDS) + 1, int(WINDOW_SECONDS)):
        stored = decoding = begun = 0.0
        for minute in range(5):
            fleet.advance(at - WINDOW_SECONDS + 60 * (minute + 1))
            for replica in fleet.replicas.values():
                assert replica.engine is not None
                stored, decoding = stored + replica.engine.context_tokens, decoding + replica.engine.batch
                held[0] += replica.engine.kv.usage_ratio * engine.kv_capacity_tokens
                held[1] += len(replica.engine.running)
        attended = [attended[0] + stored, attended[1] + decoding]
        for name, replica in fleet.replicas.items():
            assert replica.engine is not None
            books, now = replica.engine.books, replica.counts
            steps, computed = now.prefill_passes + now.decode_passes, now.prompt_tokens - now.prompt_hit_tokens
            counted = (
                books.itl.total, books.itl.count, steps, computed, now.prompt_hit_tokens, now.first_tokens,
                books.ttft.total, books.queue.total, books.queue.count,
            )  # fmt: skip
            waited, gaps, made, computed, cached, first, until_first, queued, left = map(
                float.__sub__, map(float, counted), map(float, before.get(name, (0,) * 9))
            )
            before[name], begun = counted, begun + first
            if gaps > 100 and first:
                batch, context, prompt = gaps / made, stored / decoding, (computed / first, cached / first)
                step, until = waited / gaps, find_first_token_seconds(until_first, first, queued, left)
                windows.append(Window(step, batch, context, computed / WINDOW_SECONDS * step, *prompt, None, until))
        rates.append(begun / WINDOW_SECONDS)
    told = fleet.totals().counts
    computed = told.prompt_tokens - told.prompt_hit_tokens
    means = [tokens / told.first_tokens for tokens in (computed, told.prompt_hit_tokens, told.generated_tokens)]
    return windows, Request(*means, attended[0] / attended[1], held[0] / held[1]), rates


def holds(engine: EngineSpec, replicas: int, mix: Mix, profile: Profile) -> bool:
    """Whether so many replicas do, by the simulator, for other requests of the same kind."""
    fleet = _fleet(engine, replicas, mix, profile, 2)
    for at in range(360, int(SECONDS) + 1, 360):
        fleet.advance(at)
        if fleet.waiting > 3000 * replicas:
            return False
    seconds = fleet.truth(0, SECONDS).ttft_seconds
    return sum(one <= TTFT_SECONDS for one in seconds) >= SHARE * fleet.totals().arrived


def answer(engine_name: str, load_name: str, questions: Sequence[str] = tuple(QUESTIONS)) -> Iterator[Case]:
    """The questions about one fleet under one load."""
    engine, usual = ENGINES[engine_name]
    mix, make_profile, share = LOADS[load_name]
    windows, request, rates = watch(engine, mix, make_profile(usual * share))
    reach, peak = fit_reach(engine.roof, windows), smooth_peak(rates, SHARE)
    for name in questions:
        traffic, gpu, longer = QUESTIONS[name]
        there = replace(engine, gpu=gpu) if gpu else engine
        asked = replace(request, computed=request.computed + (longer - 1) * (request.computed + request.cached))
        more = (longer - 1) * (request.computed + request.cached)
        asked = replace(asked, context=request.context + more, held=request.held + more)
        server = Server(there.roof, reach, there.kv_capacity_tokens, there.max_num_seqs)
        found = least_replicas(server, asked, Objective(SHARE, {"ttft": TTFT_SECONDS}), peak * traffic)
        assert found is not None
        prompts = replace(
            mix.prompt, median=mix.prompt.median * longer + (longer - 1) * mix.prefixes.share * mix.prefixes.tokens
        )
        there_mix = replace(mix, prompt=prompts)
        profile, true = make_profile(usual * share * traffic), found[0]
        while not holds(there, true, there_mix, profile):
            true += 1
        while true > 1 and holds(there, true - 1, there_mix, profile):
            true -= 1
        yield Case(engine_name, load_name, name, found[0], true)


def _fleet(engine: EngineSpec, replicas: int, mix: Mix, profile: Profile, seed: int) -> Fleet:
    specs = [ReplicaSpec(f"replica-{number}", (f"node-{number}",), engine) for number in range(replicas)]
    return Fleet(specs, PoissonWorkload(profile, [mix], seed))


def _answer_all(names: tuple[str, str]) -> list[Case]:
    return list(answer(*names))


def main() -> int:
    """Simulates and writes."""
    with ProcessPoolExecutor(2) as pool:
        found = pool.map(_answer_all, [(engine, load) for engine in ENGINES for load in LOADS])
        lines = ["# written by python -m bench.what_if --write"]
        for one in chain.from_iterable(found):
            told = f'engine = "{one.engine}"\nload = "{one.load}"\nquestion = "{one.question}"'
            lines.append(f"\n[[case]]\n{told}\nanswered = {one.answered}\ntrue = {one.true}")
    FILE.write_text("\n".join([*lines, ""]), encoding="utf-8")
    return 0


if __name__ == "__main__":
    if sys.argv[1:] != ["--write"]:
        sys.exit(f"{__doc__}")
    sys.exit(main())
