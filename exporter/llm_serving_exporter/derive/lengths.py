"""The lengths of an engine's last finished requests, kept by the exporter: the last hour or the last 1,000, whichever is longer.

Engines count since their start. What a window of one's own needs beside the newest page is an earlier one to subtract, far enough back.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from math import inf
from typing import NamedTuple

from llm_serving_exporter.model.derived import Range, Tail
from llm_serving_exporter.model.numbers import Histogram, add_up
from llm_serving_exporter.model.record import Struct, replace
from llm_serving_exporter.model.snapshot import EngineSnapshot, Snapshot

# --- The long-context tail from the lengths of finished requests: what the longest 1 % hold, and how many such requests fit.
#
# Held is counted in tokens of context, prompt and output, each request once: the KV that it holds at its end. A weight by the time that a
# request holds it would be truer to the cache at a moment, but an engine does not say which prompt has which output, and with any pairing
# allowed the longest prompts may hold theirs for a token or for thousands. Where the time does not depend on the prompt, both shares agree
# but for the part of the output (docs/internals-tail.md).


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
    mean = _drop_contradictions(prompts, context_limit_tokens)[0].mean() if prompts.count >= FEWEST_OF_A_MEAN else None
    tail = Tail(
        prompts.count, capacity_tokens=capacity_tokens, context_limit_tokens=context_limit_tokens, prompt_mean=mean
    )
    p99 = prompts.quantile(RANK)
    if prompts.count < FEWEST or p99 is None:
        return tail
    prompts, limit = _drop_contradictions(prompts, context_limit_tokens)
    outputs = _drop_contradictions(outputs, None)[0] if outputs is not None else None
    prompt, output = prompts.mean(), outputs.mean() if outputs is not None else None
    fit = None
    if output is not None and capacity_tokens is not None:
        fit = requests_fit(prompts, output, capacity_tokens, limit)
    return replace(
        tail,
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
    high = _bound_edge(prompts.edges[place] if place < len(prompts.edges) else inf, low, context_limit_tokens)
    p99 = prompts.quantile(RANK)
    middle = min(p99.value, high) if p99 is not None and not p99.clipped else None
    return {
        bound: capacity_tokens / (prompt + output_tokens)
        for bound, prompt in (("lower", high), ("expected", middle), ("upper", low))
        if prompt is not None and 0 < prompt + output_tokens < inf
    }


def _bound_edge(edge: float, low: float, limit: float | None) -> float:
    return edge if limit is None or limit <= low else min(edge, limit)


class _Bucket(NamedTuple):
    """Events between two lengths."""

    events: float  # how many
    low: float  # the shortest of them
    high: float  # the longest of them, may be infinite
    mean: float  # their mean where they are spread evenly; finite


def bound_longest(histogram: Histogram, part: float, limit: float | None = None) -> Range | None:
    """Tokens that the longest `part` of the events have, as a mean over all events: what the buckets and the exact sum allow.

    Expected: evenly spread inside a bucket, beyond the top edge what that leaves of the sum, scaled to the sum. None without events or
    sum.
    """
    if histogram.count <= 0 or histogram.sum is None:
        return None
    buckets = _buckets(histogram, limit)
    least, most = _add_up_least(buckets), _add_up_most(buckets)
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
    spare -= min(spare, _add_up_most(rest) - _add_up_least(rest))
    to_cut = min(spare, cut.events * (cut.high - cut.low))
    lower = _add_up_least(whole) + spare - to_cut + of_cut * (cut.events * cut.low + to_cut)
    # most: all at their upper edges, or all that the sum leaves of the others at their lower edges
    outside = _add_up_least(rest) + (1 - of_cut) * cut.events * cut.low
    upper = min(_add_up_most(whole) + of_cut * cut.events * cut.high, total - outside)

    even = add_up(bucket.events * bucket.mean for bucket in buckets)
    within = min(cut.high - cut.mean, cut.mean - cut.low) * (1 - of_cut)
    expected = add_up(bucket.events * bucket.mean for bucket in whole) + of_cut * cut.events * (cut.mean + within)
    if even > 0:
        expected *= total / even
    return Range(lower / histogram.count, min(max(expected, lower), upper) / histogram.count, upper / histogram.count)


def _add_up_least(buckets: Sequence[_Bucket]) -> float:
    return add_up(bucket.events * bucket.low for bucket in buckets)


def _add_up_most(buckets: Sequence[_Bucket]) -> float:
    return add_up(bucket.events * bucket.high for bucket in buckets)


def _buckets(histogram: Histogram, limit: float | None) -> list[_Bucket]:
    """Buckets with events, the longest first."""
    buckets = []
    below = low = even = 0.0
    for edge, cumulative in zip(histogram.edges, histogram.cumulative, strict=True):
        events = cumulative - below
        if events > 0:
            high = _bound_edge(edge, low, limit)
            buckets.append(_Bucket(events, low, high, (low + high) / 2))
            even += events * (low + high) / 2
        below, low = cumulative, edge
    beyond = histogram.count - below
    if beyond > 0:
        high, left = _bound_edge(inf, low, limit), (histogram.sum or 0.0) - even
        buckets.append(_Bucket(beyond, low, high, min(max(left / beyond, low), high)))
    buckets.reverse()
    return buckets


def _drop_contradictions(histogram: Histogram, limit: float | None) -> tuple[Histogram, float | None]:
    """The histogram without its sum where that contradicts the buckets, and the limit, None where either contradicts it."""
    buckets = _buckets(histogram, limit)
    if not buckets:
        return histogram, limit
    total = histogram.sum
    beyond = total is not None and total > _add_up_most(buckets) * (1 + CONTRADICTION)
    if limit is not None and (beyond or buckets[0].low >= limit):
        limit, buckets = None, _buckets(histogram, None)
    if total is not None and not _add_up_least(buckets) * (1 - CONTRADICTION) <= total <= _add_up_most(buckets) * (
        1 + CONTRADICTION
    ):
        histogram = replace(histogram, sum=None)
    return histogram, limit


# --- The lengths themselves, from page to page.


SPAN_SECONDS, SPAN_REQUESTS = 3600.0, 1000.0
# how far apart the earlier counts are: within the hour in time, before it in requests; the window is too long by no more than that
APART_SECONDS, APART_REQUESTS = 300.0, SPAN_REQUESTS / 16
# the figures are of an hour: worked out at most so often, once there are any
REFRESH_SECONDS = 60.0
# engines that come and go, as replicas on a Ray node
MOST_ENGINES = 64


class Lengths(NamedTuple):
    """Histograms of finished requests' lengths in tokens."""

    prompts: Histogram  # of the prompts
    outputs: Histogram | None  # of the outputs; None where the engine has none, or none yet


class Point(NamedTuple):
    """What had been counted at a moment, earlier lives of the engine included."""

    monotonic_seconds: float  # the moment; -inf: before anything that is known
    lengths: Lengths  # the counts


class LengthHistory(Struct, frozen=True):
    """The lengths of one engine's requests over time."""

    points: tuple[Point, ...]  # oldest first, at least one; the window begins with the first
    carried: Lengths | None  # counted by earlier lives
    last: Lengths | None  # what this life has counted; None: a new one, without a page yet
    tail: Tail
    measured_seconds: float  # when they were computed (monotonic)


# (model_name, engine) -> its history
LengthHistories = Mapping[tuple[str, str], LengthHistory]


def follow_lengths(histories: LengthHistories, snapshot: Snapshot, *, new_life: bool = False) -> LengthHistories:
    """The histories with one more page. `new_life`: the engine restarted before it.

    A restart says nothing about how long requests are, so that what was counted before it stays in the window: an engine that restarts
    often would otherwise never be seen to finish enough of them. Other bucket edges, as with a longer context, start a new history.
    """
    if new_life:
        histories = {key: _carry_over(history) for key, history in histories.items()}
    followed: dict[tuple[str, str], LengthHistory] = {}
    for engine in snapshot.engines:
        if engine.request_prompt_tokens is None:
            continue
        key = engine.model_name, engine.engine
        read = Lengths(engine.request_prompt_tokens, engine.request_generation_tokens)
        before = histories.get(key)
        after = None if before is None else _add_page(before, read, engine, snapshot)
        followed[key] = after or _begin(read, engine, snapshot)
    # a page may lack an engine for a while, or its lengths until the first request after a restart
    if histories.keys() <= followed.keys():
        return followed
    both = {**histories, **followed}
    return both if len(both) <= MOST_ENGINES else followed


def _carry_over(history: LengthHistory) -> LengthHistory:
    if history.last is None:
        return history
    return replace(history, carried=_add_lives(history.carried, history.last), last=None)


def _begin(read: Lengths, engine: EngineSnapshot, snapshot: Snapshot) -> LengthHistory:
    """Of an engine that is seen for the first time.

    What it counted before is in the window where it is known to be no older than that; else the window begins with this page.
    """
    now, start = snapshot.monotonic_seconds, snapshot.process_start_unix_seconds
    first = Point(now, read)
    if _covers_whole_life(read, snapshot):
        edges = read.prompts.edges
        nothing = Histogram(edges, (0.0,) * len(edges), 0.0, None if read.prompts.sum is None else 0.0)
        # the two clocks are of two hosts
        first = Point(-inf if start is None else now - max(0.0, snapshot.unix_seconds - start), Lengths(nothing, None))
    return _measure_window(LengthHistory((first,), None, read, Tail(0.0), now), read, engine, now)


def _covers_whole_life(read: Lengths, snapshot: Snapshot) -> bool:
    """Whether all that this life has counted is within the last hour or the last 1,000 requests."""
    start = snapshot.process_start_unix_seconds
    young = start is not None and snapshot.unix_seconds - start <= SPAN_SECONDS
    return young or read.prompts.count <= SPAN_REQUESTS


def _add_page(before: LengthHistory, read: Lengths, engine: EngineSnapshot, snapshot: Snapshot) -> LengthHistory | None:
    """The history with this page; None where it cannot be joined to what was counted before."""
    last, tail, now = before.last, before.tail, snapshot.monotonic_seconds
    if last is None:
        if not _covers_whole_life(read, snapshot):
            return None  # older than a new life is: a long time without a page, or several servers in turn
    elif read.prompts.count < last.prompts.count:
        return None
    elif read.outputs is None:
        read = Lengths(read.prompts, last.outputs)  # missing for a moment
    if read.prompts.edges != before.points[0].lengths.prompts.edges:
        return None
    due = (
        now - before.measured_seconds >= REFRESH_SECONDS
        or (tail.observed < FEWEST and (last is None or last.prompts.count != read.prompts.count))
        or tail.capacity_tokens != engine.kv_cache_capacity_tokens
        or tail.context_limit_tokens != engine.context_limit_tokens
    )
    after = LengthHistory(before.points, before.carried, read, tail, before.measured_seconds)
    if not due:
        return after
    total = _add_lives(before.carried, read)
    return None if total is None else _measure_window(after, total, engine, now)


def _add_lives(carried: Lengths | None, read: Lengths) -> Lengths | None:
    """Of earlier lives and of this one; None where their edges differ."""
    if carried is None:
        return read
    prompts, outputs = read.prompts.plus(carried.prompts), read.outputs or carried.outputs
    if read.outputs is not None and carried.outputs is not None:
        outputs = read.outputs.plus(carried.outputs)
        if outputs is None:
            return None
    return None if prompts is None else Lengths(prompts, outputs)


def _measure_window(history: LengthHistory, total: Lengths, engine: EngineSnapshot, now: float) -> LengthHistory:
    """The history with the figures of the window that ends now. `total`: what has been counted, earlier lives included."""
    points = _drop_old_points(history.points, total, now)
    begin = points[0].lengths
    prompts, outputs = total.prompts.since(begin.prompts), total.outputs
    if outputs is not None and begin.outputs is not None:
        outputs = outputs.since(begin.outputs)
    if prompts is None or (outputs is None and total.outputs is not None):  # other edges of the outputs alone
        return _measure_window(replace(history, points=(Point(now, total),)), total, engine, now)
    tail = measure_tail(prompts, outputs, engine.kv_cache_capacity_tokens, engine.context_limit_tokens)
    return replace(history, points=points, tail=tail, measured_seconds=now)


def _drop_old_points(points: tuple[Point, ...], total: Lengths, now: float) -> tuple[Point, ...]:
    """The points with what is counted now, where it is due, and without those that no window needs any more."""
    count = total.prompts.count
    newest = points[-1]
    if now - newest.monotonic_seconds >= APART_SECONDS and count != newest.lengths.prompts.count:
        points = (*points, Point(now, total))
    begin = 0
    for place, point in enumerate(points):
        old = now - point.monotonic_seconds >= SPAN_SECONDS
        if old and count - point.lengths.prompts.count >= SPAN_REQUESTS:
            begin = place
    remaining = [points[begin]]
    for point in points[begin + 1 :]:
        young = now - point.monotonic_seconds < SPAN_SECONDS
        if young or point.lengths.prompts.count - remaining[-1].lengths.prompts.count >= APART_REQUESTS:
            remaining.append(point)
    return tuple(remaining)
