"""The tables of docs/accuracy.md about `ceiling --from-prometheus`: phases of an H100, and simulated fleets."""

from __future__ import annotations

import statistics
import tomllib
from collections.abc import Iterator

from bench.what_if import FILE
from tests.support.builders.steppedphases import RUNS, tell


def list_phases_told() -> Iterator[str]:
    """A row for each phase that others were told from: how far off, at worst which."""
    yield "| recording | measured in `prefill` and | other phases | off, rms | at worst |"
    yield "|---|---|---|---|---|"
    for run in RUNS:
        told = list(tell(run))
        for by in dict.fromkeys(one.by for one in told):
            of = [one for one in told if one.by == by]
            worst = max(of, key=lambda one: abs(one.off))
            rms = statistics.fmean(one.off * one.off for one in of) ** 0.5
            yield f"| {run} | {by} | {len(of)} | {100 * rms:.0f} % | {worst.phase}, {100 * worst.off:+.0f} % |"


def list_fleets() -> Iterator[str]:
    """A row for each fleet and load: answered and true replicas by question."""
    cases = tomllib.loads(FILE.read_text(encoding="utf-8"))["case"]
    questions = list(dict.fromkeys(case["question"] for case in cases))
    yield f"| fleet | load | {' | '.join(questions)} |"
    yield f"|---|---{'|---' * len(questions)}|"
    for engine, load in dict.fromkeys((case["engine"], case["load"]) for case in cases):
        of = {case["question"]: case for case in cases if (case["engine"], case["load"]) == (engine, load)}
        pairs = " | ".join(f"{of[one]['answered']}, {of[one]['true']}" for one in questions)
        yield f"| {engine} | {load} | {pairs} |"
    off = [case["answered"] - case["true"] for case in cases]
    dear = [case["answered"] / case["true"] - 1 for case in cases]
    yield ""
    yield (
        f"Of {len(off)} questions {off.count(0)} are exact, {sum(abs(one) <= 1 for one in off)} within one replica, "
        f"{sum(one < 0 for one in off)} too low. $/M is what replicas cost over the tokens of the load: of as many replicas it is "
        f"the same, of those that are answered it is within 10 % in {sum(abs(one) <= 0.1 for one in dear)}."
    )
