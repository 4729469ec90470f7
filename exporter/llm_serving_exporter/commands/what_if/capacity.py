"""What replicas carry: a mean step at a batch, the rate of requests that keeps it, and whether objectives hold then.

A batch B goes with the rate B / ((o - 1) t), o tokens of an answer and t its step, prompts included. What waits is worked out as for many
servers in heavy traffic (Halfin and Whitt 1981): places in the batch run out, or prompts queue before one another.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from llm_serving_exporter.commands.what_if.reach import Reach, prompt_seconds, step_terms
from llm_serving_exporter.derive.work import Roof
from llm_serving_exporter.model.record import Struct, field

# half of the variance of a prompt's time over its mean squared, and one: lengths of prompts scatter by two thirds of their mean
_QUEUED_SHARE = 0.72
_HALVINGS = 60
# where nothing limits it
_ANY_BATCH = 1e5
_MOST_REPLICAS = 100_000


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
    # share of events beyond their threshold, by objective
    bad: Mapping[str, float]
    holds: bool


class Step(Struct, frozen=True):
    """A mean step at a batch, its prompts included."""

    batch: float
    seconds: float
    base_seconds: float  # of it, without prompts
    fixed_seconds: float  # of it, whatever the batch
    prompt_seconds: float  # of one prompt alone
    compute_share: float
    requests_per_second: float  # that keep the batch


def measure_step(server: Server, request: Request, batch: float) -> Step:
    """At that batch."""
    factors, computed, gaps = server.reach.factors, max(1.0, request.computed), request.output - 1
    terms = step_terms(server.roof, batch, request.context, batch / max(1.0, gaps), computed, request.cached)
    memory, prefill, decode, beside, hidden = terms.scaled(factors)
    base = memory + decode + beside
    seconds = base + prefill + hidden
    fixed = step_terms(server.roof, min(1.0, batch), 0.0).memory * factors[0] + beside
    prompt = prompt_seconds(server.roof, computed, request.cached) * factors[1]
    rate = batch / (gaps * seconds) if gaps > 0 else 1 / (prompt + base / batch)
    return Step(batch, seconds, base, min(fixed, seconds), prompt, (decode + prefill) / seconds, rate)


def serve(server: Server, request: Request, objective: Objective, rate: float, replicas: int) -> State | None:
    """Each of `replicas` at `rate` requests/s; None where no batch that fits keeps it."""
    most = largest_batch(server, request)
    if most <= 0:
        return None
    full = measure_step(server, request, most)
    if full.requests_per_second < rate:
        return None
    low, high = 0.0, most
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        less = measure_step(server, request, middle).requests_per_second < rate
        low, high = (middle, high) if less else (low, middle)
    step = measure_step(server, request, high)
    bad = _list_bad(step, full, request, objective.seconds, rate, replicas)
    worst = max(bad, key=lambda name: bad[name], default="")
    binds = worst if worst and bad[worst] > 1 - objective.share else find_bound(server, request)
    free = None if server.kv_tokens is None else max(0.0, 1 - step.batch * request.held / server.kv_tokens)
    holds = all(share <= 1 - objective.share for share in bad.values())
    return State(step.batch, step.seconds, rate * request.tokens, free, binds, bad, holds)


def least_replicas(server: Server, request: Request, objective: Objective, rate: float) -> tuple[int, State] | None:
    """The fewest that carry `rate` requests/s of all together within the objectives; None where none do."""
    low, high = 0, 1
    while (state := serve(server, request, objective, rate / high, high)) is None or not state.holds:
        low, high = high, high * 2
        if high > _MOST_REPLICAS:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        found = serve(server, request, objective, rate / middle, middle)
        if found is not None and found.holds:
            high, state = middle, found
        else:
            low = middle
    return high, state


def largest_batch(server: Server, request: Request) -> float:
    """Sequences that run at once: what the engine is told, and what the KV cache holds; a rank's share counts for all of them."""
    fitting = math.inf if server.kv_tokens is None else server.kv_tokens / max(1.0, request.held)
    return min(fitting, server.batch_limit or math.inf, _ANY_BATCH)


def _list_bad(
    step: Step, full: Step, request: Request, limits: Mapping[str, float], rate: float, replicas: int
) -> dict[str, float]:
    """Share of events beyond their threshold, by objective that has one."""
    prompt, lasts = step.prompt_seconds, (request.output - 1) * step.seconds
    bad = {}
    for name, limit in limits.items():
        left = limit - step.base_seconds - (0.0 if name == "itl" else prompt)
        if left <= 0:
            bad[name] = 1.0
        elif name == "ttft":
            bad[name] = min(
                1.0, _wait_for_place(step, full, rate, replicas, left) + _wait_behind(rate * prompt, prompt, left)
            )
        elif name == "itl":
            bad[name] = -math.expm1(-rate * step.seconds) * math.exp(-left / prompt)
        elif name == "e2e":
            bad[name] = math.exp(-left / lasts) if lasts > 0 else 0.0
    return bad


def _wait_for_place(step: Step, full: Step, rate: float, replicas: int, wait: float) -> float:
    """Share of requests that wait longer than that for a place in the batch of any replica."""
    # a longer batch makes longer steps, so that it varies by more than arrivals do
    deviation = math.sqrt(replicas * step.batch * step.seconds / step.fixed_seconds)
    beta = replicas * (full.batch - step.batch) / max(deviation, 1e-9)
    if beta > 8:
        return 0.0
    density, below = math.exp(-beta * beta / 2) / math.sqrt(2 * math.pi), (1 + math.erf(beta / math.sqrt(2))) / 2
    waits = 1 / (1 + beta * below / density)
    spare = replicas * (full.requests_per_second - rate)
    return waits * math.exp(-min(700.0, max(0.0, spare * wait)))


def _wait_behind(load: float, prompt: float, wait: float) -> float:
    """Share of requests whose prompt waits longer than that behind others."""
    return 1.0 if load >= 1 else load * math.exp(-min(700.0, wait * (1 - load) / (_QUEUED_SHARE * prompt)))


def find_bound(server: Server, request: Request) -> str:
    """What ends the rate at the largest batch."""
    most = largest_batch(server, request)
    fits = server.kv_tokens is not None and most >= server.kv_tokens / max(1.0, request.held)
    if most <= 0:
        return "KV cache"
    full, twice = (measure_step(server, request, batch) for batch in (most, 2 * most))
    if most < _ANY_BATCH and twice.requests_per_second > 1.15 * full.requests_per_second:
        return "KV cache" if fits else "batch limit"
    return "compute" if full.compute_share > 0.5 else "memory bandwidth"
