"""A simulated day of three teams behind a gateway with two workers, and who really caused what on the engine.

A twentieth of the requests is tried again, a thirtieth is broken off by its client and counted by no gateway, a tenth comes from the
gateway's own cache, and the gateway's tokenizer counts 8 % more than the engine's. The gateway restarts at noon.
The clock is the simulation's own.
"""

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from llm_serving_exporter.model.numbers import add_up

HOURS, TICKS_AN_HOUR = 24, 6
RETRIED, BROKEN_OFF, FROM_CACHE, TOKENIZER = 0.05, 0.03, 0.10, 1.08
ALIAS, SERVED, OUTSIDE = "gpt-4o", "llama", "claude"
# USD of an hour by phase
PREFILL_USD, DECODE_USD, IDLE_USD = 3.0, 5.0, 2.0


@dataclass(frozen=True)
class Team:
    # as the gateway's label has it
    name: str
    # a tick's requests at the busiest time
    requests: int
    prompt: int
    output: int
    # of a prompt, what the engine has already
    cached: float
    # the name that it asks for
    asks_for: str = SERVED


TEAMS = (
    Team("search", 180, 2000, 150, 0.5),
    Team("ads", 120, 600, 500, 0.1, ALIAS),
    Team("None", 60, 300, 200, 0.3),
)  # fmt: skip
# asks the gateway for a model that no engine here serves
OUTSIDER = Team("search", 20, 1000, 100, 0.0, OUTSIDE)


@dataclass
class Day:
    """Pages of the gateway, one a tick, and what the engine did, hour by hour."""

    pages: list[str] = field(default_factory=list)
    # by hour: tokens by (team, phase)
    engine: list[Counter[tuple[str, str]]] = field(default_factory=list)

    def usd_of(self, team: str) -> dict[str, float]:
        """What the team really caused, by phase; idle time goes with the busy time of its hour."""
        found = dict.fromkeys(("prefill", "decode", "idle"), 0.0)
        for hour in self.engine:
            prefill = PREFILL_USD * hour[team, "prefill"] / sum_phase(hour, "prefill")
            decode = DECODE_USD * hour[team, "decode"] / sum_phase(hour, "decode")
            found["prefill"] += prefill
            found["decode"] += decode
            found["idle"] += IDLE_USD * (prefill + decode) / (PREFILL_USD + DECODE_USD)
        return found


def sum_phase(hour: Counter[tuple[str, str]], phase: str) -> float:
    return add_up(value for (_, of), value in hour.items() if of == phase)


def simulate(seed: int = 23, *, knows_cached: bool = True) -> Day:
    """`knows_cached`: whether the engine tells the gateway how much of a prompt was cached."""
    dice = random.Random(seed)  # a simulation
    day = Day()
    # of each worker: (team, model, family) -> tokens; they share one folder, so that any page has the sum
    workers: list[Counter[tuple[str, str, str]]] = [Counter(), Counter()]
    for hour in range(HOURS):
        done: Counter[tuple[str, str]] = Counter()
        busy = 0.25 + 0.75 * (8 <= hour < 20)
        for tick in range(TICKS_AN_HOUR):
            if (hour, tick) == (12, 0):
                workers = [Counter(), Counter()]
            for team in (*TEAMS, OUTSIDER):
                for _ in range(round(team.requests * busy)):
                    worker = workers[dice.random() < 0.4]
                    for family, tokens in _serve(team, dice, done if team is not OUTSIDER else Counter(), knows_cached):
                        worker[team.name, team.asks_for, family] += round(tokens * TOKENIZER)
            day.pages.append(_write(workers[0] + workers[1]))
        day.engine.append(done)
    return day


def _serve(
    team: Team, dice: random.Random, done: Counter[tuple[str, str]], knows_cached: bool
) -> Iterator[tuple[str, float]]:
    """One request: adds what the engine does to `done`, yields what the gateway counts."""
    prompt, output = (round(size * dice.uniform(0.5, 1.5)) for size in (team.prompt, team.output))
    cached = prompt * team.cached
    counted = [("input", prompt), ("output", output)] + ([("input_cached", cached)] if knows_cached else [])
    if dice.random() < FROM_CACHE:
        yield from counted
        return
    broken_off = dice.random() < BROKEN_OFF
    if dice.random() < RETRIED:  # the first try fails half way
        _compute(done, team, prompt, cached, output * dice.random())
    _compute(done, team, prompt, cached, output * (dice.random() if broken_off else 1.0))
    if not broken_off:
        yield from counted


def _compute(done: Counter[tuple[str, str]], team: Team, prompt: float, cached: float, output: float) -> None:
    for phase, tokens in (("prompt", prompt), ("cached", cached), ("prefill", prompt - cached), ("decode", output)):
        done[team.name, phase] += round(tokens)


def _write(counts: Counter[tuple[str, str, str]]) -> str:
    lines = []
    for family in ("input", "input_cached", "output"):
        name = f"litellm_{family}_tokens_metric_total"
        lines.append(f"# TYPE {name} counter")
        for (team, model, of), tokens in counts.items():
            if of == family:
                lines.append(
                    f'{name}{{requested_model="{model}",team="None",team_alias="{team}",user_email="a@b.c"}} {tokens}'
                )
    name = "litellm_requests_metric_total"
    return "\n".join([*lines, f"# TYPE {name} counter", f'{name}{{team_alias="None"}} 1', ""])
