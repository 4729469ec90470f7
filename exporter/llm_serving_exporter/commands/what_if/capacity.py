"""What replicas carry: a mean step at a batch, the rate of requests that keeps it, and whether objectives hold then.

A batch B goes with the rate B / ((o - 1) t), o tokens (2 at least) of an answer and t its step, prompts included. What waits is worked out
as for many servers in heavy traffic (Halfin and Whitt 1981): places in the batch run out, or prompts queue before one another.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping

from llm_serving_exporter.commands.what_if.reach import PART_TOKENS, Reach, step_terms
from llm_serving_exporter.derive.work import Roof
from llm_serving_exporter.model.numbers import add_up
from llm_serving_exporter.model.record import Struct, field

# variance of a prompt's or an answer's length over its mean squared, and one: lengths scatter by two thirds of their mean
_LENGTHS_SCATTER = 1.44
# where nothing limits it
_ANY_BATCH = 1e5
_MOST_REPLICAS = 100_000
# parts of the largest batch to which a batch is worked out
_BATCH_PARTS = 1 << 30


class Request(Struct, frozen=True):
    """A mean request, in tokens."""

    computed: float  # of its prompt
    cached: float  # of its prompt, from the prefix cache
    output: float
    context: float  # that a decode step attends to
    held: float  # of the KV cache, while it runs

    @property
    def sent(self) -> float:
        """Of its prompt."""
        return self.computed + self.cached

    @property
    def tokens(self) -> float:
        """Of its prompt as sent, and of its answer."""
        return self.sent + self.output


class Server(Struct, frozen=True):
    """One replica."""

    roof: Roof
    reach: Reach
    kv_tokens: float | None  # that fit; None: not known, no limit
    batch_limit: float | None  # None: not known, no limit


class Objective(Struct, frozen=True):
    """What has to hold: thresholds in seconds by name (ttft, itl, e2e), and the share of events within them."""

    share: float = 0.99
    seconds: Mapping[str, float] = field(default_factory=dict)


class State(Struct, frozen=True):
    """A replica at a rate."""

    batch: float
    step_seconds: float
    tokens_per_second: float  # prompts as sent, and answers
    kv_free: float | None  # share of the KV cache; None: not known
    binds: str  # what a higher rate meets
    holds: bool


class Step(Struct, frozen=True):
    """A mean step at a batch, its prompts included."""

    batch: float
    seconds: float
    base_seconds: float  # of it, without prompts
    prompt_seconds: float  # that a prompt adds where prompts queue
    compute_share: float
    requests_per_second: float  # that keep the batch


def measure_step(server: Server, request: Request, batch: float) -> Step:
    """At that batch."""
    roof, factors, computed = server.roof, server.reach.factors, max(1.0, request.computed)
    # an answer of one token, as in a pool that only prefills, takes a step too
    prompts = batch / max(1.0, request.output - 1)
    terms = step_terms(roof, batch, request.context, prompts, computed, request.cached)
    memory, prefill, decode, beside, hidden = terms.scaled(factors)
    base = memory + decode + beside
    seconds = base + prefill + hidden
    # where prompts queue, each step is full of them
    full = step_terms(roof, batch, request.context, 1.0, computed, request.cached, computed / PART_TOKENS)
    prompt = add_up(full.scaled(factors))
    return Step(batch, seconds, base, prompt, (decode + prefill) / seconds, prompts / seconds)


def serve(server: Server, request: Request, objective: Objective, rate: float, replicas: int) -> State | None:
    """Each of `replicas` at `rate` requests/s; None where no batch that fits keeps it."""
    most, limit = largest_batch(server, request)
    if most <= 0:
        return None
    full = measure_step(server, request, most)
    if full.requests_per_second < rate:
        return None

    def step_at(part: int) -> Step:
        return measure_step(server, request, most * part / _BATCH_PARTS)

    part = bisect_left(range(1, _BATCH_PARTS), rate, key=lambda part: step_at(part).requests_per_second)
    step = step_at(part + 1)
    # a router evens out requests, not what they hold
    scatter = 1 + (_LENGTHS_SCATTER - 1) * replicas if limit == "KV cache" else 1.0
    bad = _list_bad(step, full, request, objective.seconds, rate, replicas, scatter)
    worst = max(bad, key=lambda name: bad[name], default="")
    holds = not bad or bad[worst] <= 1 - objective.share
    free = None if server.kv_tokens is None else max(0.0, 1 - step.batch * request.held / server.kv_tokens)
    binds = find_bound(server, request) if holds else worst
    return State(step.batch, step.seconds, rate * request.tokens, free, binds, holds)


def least_replicas(server: Server, request: Request, objective: Objective, rate: float) -> tuple[int, State] | None:
    """The fewest that carry `rate` requests/s of all together within the objectives; None where none do."""

    def carry(replicas: int) -> State | None:
        state = serve(server, request, objective, rate / replicas, replicas)
        return state if state is not None and state.holds else None

    least = 1 + bisect_left(range(1, _MOST_REPLICAS), True, key=lambda replicas: carry(replicas) is not None)
    state = carry(least)
    return None if state is None else (least, state)


def largest_batch(server: Server, request: Request) -> tuple[float, str]:
    """Sequences that run at once, and what allows no more: the KV cache, what the engine is told, or "" for nothing. A rank's share counts
    for all of them."""
    fitting = math.inf if server.kv_tokens is None else server.kv_tokens / max(1.0, request.held)
    limits = (fitting, "KV cache"), (server.batch_limit or math.inf, "batch limit"), (_ANY_BATCH, "")
    return min(limits, key=lambda limit: limit[0])


def _list_bad(
    step: Step, full: Step, request: Request, limits: Mapping[str, float], rate: float, replicas: int, scatter: float
) -> dict[str, float]:
    """Share of events beyond their threshold, by objective that has one. `scatter`: of what a sequence takes of what is full first."""
    prompt, lasts = step.prompt_seconds, (request.output - 1) * step.seconds
    bad = {}
    for name, limit in limits.items():
        left = limit - step.base_seconds - (0.0 if name == "itl" else prompt)
        if left <= 0:
            bad[name] = 1.0
        elif name == "ttft":
            waits = _wait_for_place(step, full, rate, replicas, scatter, left)
            bad[name] = min(1.0, waits + _wait_behind(rate * prompt, prompt, replicas, left))
        elif name == "itl":
            bad[name] = -math.expm1(-rate * step.seconds) * math.exp(-left / prompt)
        elif name == "e2e":
            bad[name] = math.exp(-left / lasts) if lasts > 0 else 0.0
    return bad


def _wait_for_place(step: Step, full: Step, rate: float, replicas: int, scatter: float, wait: float) -> float:
    """Share of requests that wait longer than that for a place in the batch of any replica."""
    # a longer batch makes longer steps: the less the rate grows with it, the more it varies
    batches, rates = full.batch / step.batch, full.requests_per_second / rate
    if batches <= 1 or rates <= 1:
        return 1.0
    deviation = math.sqrt(replicas * step.batch * scatter * math.log(batches) / math.log(rates))
    beta = replicas * (full.batch - step.batch) / deviation
    if beta > 8:
        return 0.0
    density, below = math.exp(-beta * beta / 2) / math.sqrt(2 * math.pi), (1 + math.erf(beta / math.sqrt(2))) / 2
    waits = 1 / (1 + beta * below / density)
    spare = replicas * (full.requests_per_second - rate)
    return waits * math.exp(-min(700.0, max(0.0, spare * wait)))


def _wait_behind(load: float, prompt: float, replicas: int, wait: float) -> float:
    """Share of requests whose prompt waits longer than that behind others (Kingman 1962)."""
    # a router that keeps replicas even gives each its turn, more or less
    scatter = (replicas**-0.5 + _LENGTHS_SCATTER - 1) / 2
    return 1.0 if load >= 1 else load * math.exp(-min(700.0, wait * (1 - load) / (scatter * prompt)))


def find_bound(server: Server, request: Request) -> str:
    """What ends the rate at the largest batch."""
    most, limit = largest_batch(server, request)
    if most <= 0:
        return limit
    full, twice = (measure_step(server, request, batch) for batch in (most, 2 * most))
    if limit and twice.requests_per_second > 1.15 * full.requests_per_second:
        return limit
    return "compute" if full.compute_share > 0.5 else "memory bandwidth"
