"""The lengths of an engine's last finished requests, kept by the exporter: the last hour or the last 1,000, whichever is longer.

Engines count since their start. What a window of one's own needs beside the newest page is an earlier one to subtract, far enough back.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import NamedTuple

from llm_serving_exporter.derive.tail import FEWEST, measure_tail
from llm_serving_exporter.model.derived import Tail
from llm_serving_exporter.model.numbers import Histogram
from llm_serving_exporter.model.record import Struct, replace
from llm_serving_exporter.model.snapshot import EngineSnapshot, Snapshot

SPAN_SECONDS, SPAN_REQUESTS = 3600.0, 1000.0
# how far apart the earlier counts are: within the hour in time, before it in requests; the window is too long by no more than that
APART_SECONDS, APART_REQUESTS = 300.0, SPAN_REQUESTS / 16
# the figures are of an hour: worked out at most so often, once there are any
REFRESH_SECONDS = 60.0
# engines that come and go, as replicas on a Ray node
MOST_ENGINES = 64


class Lengths(NamedTuple):
    """Histograms of finished requests' lengths in tokens."""

    # of the prompts
    prompts: Histogram
    # of the outputs; None where the engine has none, or none yet
    outputs: Histogram | None


class Point(NamedTuple):
    """What had been counted at a moment, earlier lives of the engine included."""

    # the moment; -inf: before anything that is known
    monotonic_seconds: float
    # the counts
    lengths: Lengths


class History(Struct, frozen=True):
    """The lengths of one engine's requests over time."""

    # oldest first, at least one; the window begins with the first
    points: tuple[Point, ...]
    # counted by earlier lives
    carried: Lengths | None
    # what this life has counted; None: a new one, without a page yet
    last: Lengths | None
    tail: Tail
    # when they were computed (monotonic)
    worked_out_seconds: float


# (model_name, engine) -> its history
Histories = Mapping[tuple[str, str], History]


def follow_lengths(histories: Histories, snapshot: Snapshot, *, new_life: bool = False) -> Histories:
    """The histories with one more page. `new_life`: the engine restarted before it.

    A restart says nothing about how long requests are, so that what was counted before it stays in the window: an engine that restarts
    often would otherwise never be seen to finish enough of them. Other bucket edges, as with a longer context, start a new history.
    """
    if new_life:
        histories = {key: _folded(history) for key, history in histories.items()}
    found: dict[tuple[str, str], History] = {}
    for engine in snapshot.engines:
        if engine.request_prompt_tokens is None:
            continue
        key = engine.model_name, engine.engine
        read = Lengths(engine.request_prompt_tokens, engine.request_generation_tokens)
        before = histories.get(key)
        after = None if before is None else _gone_on(before, read, engine, snapshot)
        found[key] = after or _begun(read, engine, snapshot)
    # a page may lack an engine for a while, or its lengths until the first request after a restart
    if histories.keys() <= found.keys():
        return found
    both = {**histories, **found}
    return both if len(both) <= MOST_ENGINES else found


def _folded(history: History) -> History:
    if history.last is None:
        return history
    return replace(history, carried=_together(history.carried, history.last), last=None)


def _begun(read: Lengths, engine: EngineSnapshot, snapshot: Snapshot) -> History:
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
    return _worked_out(History((first,), None, read, Tail(0.0), now), read, engine, now)


def _covers_whole_life(read: Lengths, snapshot: Snapshot) -> bool:
    """Whether all that this life has counted is within the last hour or the last 1,000 requests."""
    start = snapshot.process_start_unix_seconds
    young = start is not None and snapshot.unix_seconds - start <= SPAN_SECONDS
    return young or read.prompts.count <= SPAN_REQUESTS


def _gone_on(before: History, read: Lengths, engine: EngineSnapshot, snapshot: Snapshot) -> History | None:
    """The history with this page; None where it cannot be joined to what was counted before."""
    last, known, now = before.last, before.tail, snapshot.monotonic_seconds
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
        now - before.worked_out_seconds >= REFRESH_SECONDS
        or (known.observed < FEWEST and (last is None or last.prompts.count != read.prompts.count))
        or known.capacity_tokens != engine.kv_cache_capacity_tokens
        or known.context_limit_tokens != engine.context_limit_tokens
    )
    after = History(before.points, before.carried, read, known, before.worked_out_seconds)
    if not due:
        return after
    total = _together(before.carried, read)
    return None if total is None else _worked_out(after, total, engine, now)


def _together(carried: Lengths | None, read: Lengths) -> Lengths | None:
    """Of earlier lives and of this one; None where their edges differ."""
    if carried is None:
        return read
    prompts, outputs = read.prompts.plus(carried.prompts), read.outputs or carried.outputs
    if read.outputs is not None and carried.outputs is not None:
        outputs = read.outputs.plus(carried.outputs)
        if outputs is None:
            return None
    return None if prompts is None else Lengths(prompts, outputs)


def _worked_out(history: History, total: Lengths, engine: EngineSnapshot, now: float) -> History:
    """The history with the figures of the window that ends now. `total`: what has been counted, earlier lives included."""
    points = _kept(history.points, total, now)
    begin = points[0].lengths
    prompts, outputs = total.prompts.since(begin.prompts), total.outputs
    if outputs is not None and begin.outputs is not None:
        outputs = outputs.since(begin.outputs)
    if prompts is None or (outputs is None and total.outputs is not None):  # other edges of the outputs alone
        return _worked_out(replace(history, points=(Point(now, total),)), total, engine, now)
    found = measure_tail(prompts, outputs, engine.kv_cache_capacity_tokens, engine.context_limit_tokens)
    return replace(history, points=points, tail=found, worked_out_seconds=now)


def _kept(points: tuple[Point, ...], total: Lengths, now: float) -> tuple[Point, ...]:
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
    kept = [points[begin]]
    for point in points[begin + 1 :]:
        young = now - point.monotonic_seconds < SPAN_SECONDS
        if young or point.lengths.prompts.count - kept[-1].lengths.prompts.count >= APART_REQUESTS:
            kept.append(point)
    return tuple(kept)
