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
MOST_REPLICAS = 100_000


class Request(Struct, frozen=True):
    """A mean request, in tokens."""

    computed: float  # of its prompt
    cached: float  # of its prompt, from the prefix cache
    output: float
    context: float  # that a decode step attends to
    held: float  # of the KV cache, while it runs

    @property
    def tokens(self) -> float:
        """Of its prompt as sent, and of its answer."""
        return self.computed + self.cached + self.output


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
    first_token_seconds: float  # without a queue
    tokens_per_second: float  # prompts as sent, and answers
    kv_free: float | None  # share of the KV cache; None: not known
    binds: str  # what a higher rate meets
    # share of events beyond their threshold, by objective
    bad: Mapping[str, float]
    holds: bool


class Step(Struct, frozen=True):
    """A mean step at a batch, its prompts included."""

    seconds: float
    base_seconds: float  # of it, without prompts
    fixed_seconds: float  # of it, whatever the batch
    compute_share: float


def measure_step(server: Server, request: Request, batch: float) -> Step | None:
    """At that batch; None where a peak is not known."""
    prompts, computed = batch / max(1.0, request.output - 1), max(1.0, request.computed)
    terms = step_terms(server.roof, batch, request.context, prompts, computed, request.cached)
    least = step_terms(server.roof, min(1.0, batch), 0.0)
    if terms is None or least is None:
        return None
    memory, prefill, decode, beside, hidden = terms.scaled(server.reach.factors)
    base = memory + decode + beside
    seconds = base + prefill + hidden
    fixed = least.memory * server.reach.factors[0] + beside
    return Step(seconds, base, min(fixed, seconds), (decode + prefill) / seconds)


def serve(server: Server, request: Request, objective: Objective, rate: float, replicas: int) -> State | None:
    """Each of `replicas` at `rate` requests/s; None where no batch that fits keeps it, or a peak is not known."""
    most = largest_batch(server, request)
    batch = _find_batch(server, request, rate, most)
    if batch is None:
        return None
    step, full = (measure_step(server, request, one) for one in (batch, most))
    prompt = _prompt_seconds(server, request)
    if step is None or full is None or prompt is None:
        return None
    lasts = (request.output - 1) * step.seconds
    bad = {}
    wait = objective.seconds.get("ttft", math.inf) - step.base_seconds - prompt
    late = _no_place(request, batch, most, step, full, rate, replicas, wait) + _behind(rate * prompt, prompt, wait)
    bad["ttft"] = 1.0 if wait <= 0 else min(1.0, late)
    itl = objective.seconds.get("itl", math.inf) - step.base_seconds
    bad["itl"] = 1.0 if itl <= 0 else (1 - math.exp(-rate * step.seconds)) * math.exp(-itl / prompt)
    ends = objective.seconds.get("e2e", math.inf) - step.base_seconds - prompt
    bad["e2e"] = 1.0 if ends <= 0 else math.exp(-ends / lasts) if lasts > 0 else 0.0
    bad = {name: share for name, share in bad.items() if name in objective.seconds}
    free = None if server.kv_tokens is None else max(0.0, 1 - batch * request.held / server.kv_tokens)
    worst = max(bad, key=lambda name: bad[name], default="")
    binds = worst if worst and bad[worst] > 1 - objective.share else _what_binds(server, request, most)
    first = step.base_seconds + prompt
    holds = all(share <= 1 - objective.share for share in bad.values())
    return State(batch, step.seconds, first, rate * request.tokens, free, binds, bad, holds)


def least_replicas(server: Server, request: Request, objective: Objective, rate: float) -> tuple[int, State] | None:
    """The fewest that carry `rate` requests/s of all together within the objectives; None where none do."""
    low, high = 0, 1
    while (state := serve(server, request, objective, rate / high, high)) is None or not state.holds:
        low, high = high, high * 2
        if high > MOST_REPLICAS:
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
    return min(fitting, server.batch_limit or math.inf, 1e5)


def _prompt_seconds(server: Server, request: Request) -> float | None:
    seconds = prompt_seconds(server.roof, max(1.0, request.computed), request.cached)
    return None if seconds is None else seconds * server.reach.factors[1]


def _keeps(server: Server, request: Request, batch: float) -> float:
    """Requests/s that keep a batch."""
    step = measure_step(server, request, batch)
    prompt = _prompt_seconds(server, request)
    if step is None or prompt is None:
        return 0.0
    if request.output <= 1:
        return 1 / (prompt + step.base_seconds / batch)
    return batch / ((request.output - 1) * step.seconds)


def _find_batch(server: Server, request: Request, rate: float, most: float) -> float | None:
    if most <= 0 or _keeps(server, request, most) < rate:
        return None
    low, high = 0.0, most
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if _keeps(server, request, middle) < rate else (low, middle)
    return high


def _no_place(
    request: Request, batch: float, most: float, step: Step, full: Step, rate: float, replicas: int, wait: float
) -> float:
    """Share of requests that wait longer than that for a place in the batch of any replica."""
    # a longer batch makes longer steps, so that it varies by more than arrivals do
    deviation = math.sqrt(replicas * batch * step.seconds / step.fixed_seconds)
    beta = replicas * (most - batch) / max(deviation, 1e-9)
    if beta > 8:
        return 0.0
    density, below = math.exp(-beta * beta / 2) / math.sqrt(2 * math.pi), (1 + math.erf(beta / math.sqrt(2))) / 2
    waits = 1 / (1 + beta * below / density)
    spare = replicas * (most / (max(1e-9, request.output - 1) * full.seconds) - rate)
    return waits * math.exp(-min(700.0, max(0.0, spare * wait)))


def _behind(load: float, prompt: float, wait: float) -> float:
    """Share of requests whose prompt waits longer than that behind others."""
    return 1.0 if load >= 1 else load * math.exp(-min(700.0, wait * (1 - load) / (_QUEUED_SHARE * prompt)))


def _what_binds(server: Server, request: Request, most: float) -> str:
    """What ends the rate at the largest batch."""
    full, rate = measure_step(server, request, most), _keeps(server, request, most)
    if most < 1e5 and _keeps(server, request, 2 * most) > 1.15 * rate:
        fits = server.kv_tokens is not None and most >= server.kv_tokens / max(1.0, request.held)
        return "KV cache" if fits else "batch limit"
    return "compute" if full is not None and full.compute_share > 0.5 else "memory bandwidth"
