"""The long-context tail from the lengths of finished requests: what the longest 1 % hold, and how many such requests fit.

Held is counted in tokens of context, prompt and output, each request once: the KV that it holds at its end. A weight by the time
that a request holds it would be truer to the cache at a moment, but an engine does not say which prompt has which output, and with
any pairing allowed the longest prompts may hold theirs for a token or for thousands. Where the time does not depend on the prompt,
both shares agree but for the part of the output (docs/internals-tail.md).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from math import inf
from typing import NamedTuple

from llm_serving_exporter.model.derived import Range, Tail
from llm_serving_exporter.model.numbers import Histogram, add_up
from llm_serving_exporter.model.record import replace

# the longest 1 % of fewer requests is less than one of them
FEWEST = 100.0
# fewer say too little about the mean of those to come
FEWEST_OF_A_MEAN = 8
LONGEST, RANK = 0.01, 0.99
# a page may be read between an event's sum and its bucket: so far the two may contradict each other
CONTRADICTION = 0.01


def measure_tail(
    prompts: Histogram, outputs: Histogram | None, capacity_tokens: float | None, context_limit_tokens: float | None
) -> Tail:
    """Figures of the requests in two histograms of lengths in tokens. Only `observed` and the mean prompt below FEWEST requests.

    `outputs` None: not known, nor what needs them. No prompt is longer than `context_limit_tokens`; a limit that what was observed
    contradicts is not used, nor is a sum that contradicts its buckets.
    """
    mean = _believed(prompts, context_limit_tokens)[0].mean() if prompts.count >= FEWEST_OF_A_MEAN else None
    known = Tail(
        prompts.count, capacity_tokens=capacity_tokens, context_limit_tokens=context_limit_tokens, prompt_mean=mean
    )
    p99 = prompts.quantile(RANK)
    if prompts.count < FEWEST or p99 is None:
        return known
    prompts, limit = _believed(prompts, context_limit_tokens)
    outputs = _believed(outputs, None)[0] if outputs is not None else None
    prompt, output = prompts.mean(), outputs.mean() if outputs is not None else None
    fit = None
    if output is not None and capacity_tokens is not None:
        fit = requests_fit(prompts, output, capacity_tokens, limit)
    return replace(
        known,
        beyond_top_bucket_ratio=(prompts.count - prompts.cumulative[-1]) / prompts.count,
        amplification_ratio=p99.value / prompt if prompt else None,
        kv_share_ratio=estimate_kv_share(prompts, outputs, limit) if outputs is not None else None,
        requests_fit=fit or {},
        prompt_p99=p99,
    )


def estimate_kv_share(prompts: Histogram, outputs: Histogram, context_limit_tokens: float | None) -> Range | None:
    """Share of all tokens of context, prompt and output, that the requests with the longest 1 % of the prompts have.

    Bounds: the longest prompts as short, and as long, as buckets and exact sum allow, with the shortest outputs there are, and with the
    longest. Expected: lengths spread evenly inside a bucket, outputs that do not depend on prompts. None without events or sums.
    """
    held = bound_longest(prompts, LONGEST, context_limit_tokens)
    most, others = bound_longest(outputs, LONGEST), bound_longest(outputs, 1 - LONGEST)
    prompt, output = prompts.mean(), outputs.mean()
    if held is None or most is None or others is None or prompt is None or output is None or prompt + output <= 0:
        return None
    context = prompt + output
    return Range(
        (held.lower + max(0.0, output - others.upper)) / context,
        (held.expected + LONGEST * output) / context,
        (held.upper + most.upper) / context,
    )


def requests_fit(
    prompts: Histogram, output_tokens: float, capacity_tokens: float, context_limit_tokens: float | None
) -> dict[str, float]:
    """How many requests of p99 prompt and mean output the KV cache holds: with p99 at its bucket's edges, and where interpolated.

    A bound without an edge is not there: above the top finite edge only the longest context bounds p99. `prompts` has events and edges.
    """
    place = bisect_left(prompts.cumulative, RANK * prompts.count)
    low = prompts.edges[place - 1] if place else 0.0
    high = _high(prompts.edges[place] if place < len(prompts.edges) else inf, low, context_limit_tokens)
    p99 = prompts.quantile(RANK)
    middle = min(p99.value, high) if p99 is not None and not p99.clipped else None
    return {
        bound: capacity_tokens / (prompt + output_tokens)
        for bound, prompt in (("lower", high), ("expected", middle), ("upper", low))
        if prompt is not None and 0 < prompt + output_tokens < inf
    }


def _high(edge: float, low: float, limit: float | None) -> float:
    return edge if limit is None or limit <= low else min(edge, limit)


class _Bucket(NamedTuple):
    """Events between two lengths."""

    # how many
    events: float
    # the shortest of them
    low: float
    # the longest of them, may be infinite
    high: float
    # their mean where they are spread evenly; finite
    mean: float


def bound_longest(histogram: Histogram, part: float, limit: float | None = None) -> Range | None:
    """Tokens that the longest `part` of the events have, as a mean over all events: what the buckets and the exact sum allow.

    Expected: evenly spread inside a bucket, beyond the top edge what that leaves of the sum, scaled to the sum. None without events or
    sum.
    """
    if histogram.count <= 0 or histogram.sum is None:
        return None
    buckets = _buckets(histogram, limit)
    least, most = _least(buckets), _most(buckets)
    total = min(max(histogram.sum, least), most)

    # from the longest down: whole buckets, of the next one a part, and the rest
    wanted = part * histogram.count
    place = 0
    while place < len(buckets) - 1 and buckets[place].events < wanted:
        wanted -= buckets[place].events
        place += 1
    whole, cut, rest = buckets[:place], buckets[place], buckets[place + 1 :]
    of_cut = min(1.0, wanted / cut.events)

    # least: what the sum has beyond the lower edges goes to the rest first, then to the bucket that is cut, of which it has its part
    spare = total - least
    spare -= min(spare, _most(rest) - _least(rest))
    to_cut = min(spare, cut.events * (cut.high - cut.low))
    lower = _least(whole) + spare - to_cut + of_cut * (cut.events * cut.low + to_cut)
    # most: all at their upper edges, or all that the sum leaves of the others at their lower edges
    outside = _least(rest) + (1 - of_cut) * cut.events * cut.low
    upper = min(_most(whole) + of_cut * cut.events * cut.high, total - outside)

    even = add_up(one.events * one.mean for one in buckets)
    within = min(cut.high - cut.mean, cut.mean - cut.low) * (1 - of_cut)
    expected = add_up(one.events * one.mean for one in whole) + of_cut * cut.events * (cut.mean + within)
    if even > 0:
        expected *= total / even
    return Range(lower / histogram.count, min(max(expected, lower), upper) / histogram.count, upper / histogram.count)


def _least(buckets: Sequence[_Bucket]) -> float:
    return add_up(one.events * one.low for one in buckets)


def _most(buckets: Sequence[_Bucket]) -> float:
    return add_up(one.events * one.high for one in buckets)


def _buckets(histogram: Histogram, limit: float | None) -> list[_Bucket]:
    """Buckets with events, the longest first."""
    found = []
    below = low = even = 0.0
    for edge, cumulative in zip(histogram.edges, histogram.cumulative, strict=True):
        events = cumulative - below
        if events > 0:
            high = _high(edge, low, limit)
            found.append(_Bucket(events, low, high, (low + high) / 2))
            even += events * (low + high) / 2
        below, low = cumulative, edge
    beyond = histogram.count - below
    if beyond > 0:
        high, left = _high(inf, low, limit), (histogram.sum or 0.0) - even
        found.append(_Bucket(beyond, low, high, min(max(left / beyond, low), high)))
    found.reverse()
    return found


def _believed(histogram: Histogram, limit: float | None) -> tuple[Histogram, float | None]:
    """The histogram without its sum where that contradicts the buckets, and the limit, None where either contradicts it."""
    buckets = _buckets(histogram, limit)
    if not buckets:
        return histogram, limit
    total = histogram.sum
    beyond = total is not None and total > _most(buckets) * (1 + CONTRADICTION)
    if limit is not None and (beyond or buckets[0].low >= limit):
        limit, buckets = None, _buckets(histogram, None)
    if total is not None and not _least(buckets) * (1 - CONTRADICTION) <= total <= _most(buckets) * (1 + CONTRADICTION):
        histogram = replace(histogram, sum=None)
    return histogram, limit
