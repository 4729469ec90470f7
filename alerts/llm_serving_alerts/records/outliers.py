"""Replicas against their peers: how fast, how often wrong, how much work under a queue, and which of them are unlike the others.

A replica is held against what its peers would show in its place. Speed is judged by event and by what there was to do, and whichever is
better counts: long prompts, cold prefixes and full batches make the first worse, short prompts and small batches the second.
"""

from __future__ import annotations

from collections.abc import Callable

from llm_serving_alerts.promql import MINUTE, TARGET, Dialect, clauses
from llm_serving_alerts.records.outlier_blocks import (
    BLOCK_SECONDS,
    CEILING_SECONDS,
    ENDED,
    FAILED,
    FIRST_TOKENS,
    GAP_SECONDS,
    GAPS,
    JUDGED,
    SHORT_SECONDS,
    WAITED,
    added,
    as_peer,
    blocks,
    median_of_others,
    own_span,
    peers,
    with_enough,
)
from llm_serving_alerts.rules import MINUTELY_SECONDS, Group, Record
from llm_serving_alerts.settings import AlertSettings, Settings

# what is compared, as the label `of` says it
TTFT, DECODE, ERRORS, QUEUE = "ttft", "decode", "errors", "queue"
OWN, PEERS = "target:llm_serving_compared:own", "target:llm_serving_compared:peers"
OUTLIER = "target:llm_serving_outlier:own"
AGAINST = "target:llm_serving_pace_against_peers:ratio"
# of two replicas nobody knows which one is the odd one
LEAST_REPLICAS = 3
# events of the last five minutes, else of the last quarter of an hour, that say whether it goes on
RECENT_EVENTS = 5
# a queue that lasts: one that came and went says nothing of the replica; one behind a full KV cache has its reason
QUEUE_SECONDS, KV_FULL = 10 * MINUTE, 0.8
# of a normal distribution, the median distance from the median is so much of a standard deviation
NORMAL = 1.4826

_USUAL, _SPREAD = "model_gpu:llm_serving_pace_against_peers:median", "model_gpu:llm_serving_pace_against_peers:mad"
_RECENT = "target:llm_serving_pace_of_late:mean"
_NOISE = "target:llm_serving_failed_requests:share_deviation"
_PACE, _PACE_BY_WORK = "target:llm_serving_pace:mean", "target:llm_serving_pace_by_work:mean"
_MIDDLE, _MIDDLE_BY_WORK = "model_gpu:llm_serving_pace:median", "model_gpu:llm_serving_pace_by_work:median"
_FAILED_SUM, _ENDED_SUM = "target:llm_serving_failed_requests:sum", "target:llm_serving_ended_requests:sum"
_WORK = "target:llm_serving_reference_work:avg15m"


def outliers(dialect: Dialect, settings: Settings) -> tuple[Group, ...]:
    """What replicas show, what their peers would, and who is unlike them. Every two minutes: a quarter of an hour moves slowly."""
    interval = 2 * MINUTELY_SECONDS / dialect.time_scale
    parts = (("pace", _paces), ("shares", _shares), ("found", _compared))
    compared = (Group(f"llm-serving.outliers.{name}", made(dialect, settings), interval) for name, made in parts)
    return (blocks(dialect, settings), *compared)


def _paces(dialect: Dialect, settings: Settings) -> tuple[Record, ...]:
    """Seconds an event, and seconds by what there was to do, of which the better one counts."""
    group, by_target = f"{peers(dialect)}, of", dialect.labels(*TARGET)
    measures = (
        (TTFT, WAITED, FIRST_TOKENS, JUDGED, "a first token", "a computed prompt token"),
        (DECODE, GAP_SECONDS, GAPS, CEILING_SECONDS, "a gap between tokens", "a second at its decode ceiling"),
    )
    rules = []
    for of, seconds, events, work, event, unit in measures:
        for record, over, about in ((_PACE, events, event), (_PACE_BY_WORK, work, unit)):

            def mean(of_span: Callable[[str], str], seconds: str = seconds, over: str = over) -> str:
                return f"{of_span(seconds)} / ({of_span(over)} > 0)"

            what = f"seconds for {about}, over 15m with events enough, else over 30m or 1h"
            rules.append(Record(record, with_enough(dialect, settings, events, mean), what, {"of": of}))
        of_5m, of_15m = (
            f"{which(seconds)} / ({which(events)} >= {RECENT_EVENTS})"
            for which in (lambda record: record, lambda record: added(dialect, record, SHORT_SECONDS))
        )
        about = f"seconds for {event} over 5m, or 15m, of few events too"
        rules.append(Record(_RECENT, f"{of_5m} or on ({by_target}) {of_15m}", about, {"of": of}))
    for middle, record in ((_MIDDLE, _PACE), (_MIDDLE_BY_WORK, _PACE_BY_WORK)):
        about = (
            "median of the replicas of one model, role, runtime and kind of GPU, without the slowest of three to five"
        )
        rules.append(Record(middle, median_of_others(dialect, record, group), about))
    by_event, by_work = (
        f"{record} / on ({group}) group_left () {middle}"
        for record, middle in ((_PACE, _MIDDLE), (_PACE_BY_WORK, _MIDDLE_BY_WORK))
    )
    apart = f"abs({AGAINST} - on ({group}) group_left () {_USUAL})"
    rules += [
        Record(
            AGAINST,
            f"{by_event} <= {by_work} or {by_work}",
            "times as long as its peers would take in its place: by event or by work, whichever is less",
        ),
        Record(_USUAL, median_of_others(dialect, AGAINST, group), "its median over the replicas"),
        Record(_SPREAD, median_of_others(dialect, apart, group), "their median distance from that"),
    ]
    return tuple(rules)


def _shares(dialect: Dialect, settings: Settings) -> tuple[Record, ...]:
    """Errors, and work under a queue."""
    by_target, group = dialect.labels(*TARGET), peers(dialect)
    failed, ended = f"sum by ({group}) ({_FAILED_SUM})", f"sum by ({group}) ({_ENDED_SUM})"
    share = f"({failed} / ({ended} > 0))"
    work = dialect.apply_over_time("avg_over_time", "target:llm_serving_reference_work:rate5m", SHORT_SECONDS)
    return (
        Record(
            _ENDED_SUM,
            with_enough(dialect, settings, ENDED, lambda of_span: of_span(ENDED)),
            "requests that ended, over 15m with events enough, else over 30m or 1h",
        ),
        Record(
            _FAILED_SUM,
            with_enough(dialect, settings, ENDED, lambda of_span: of_span(FAILED)),
            "those of them that ended with an error",
        ),
        Record(
            _NOISE,
            # one event more: so that few events are as wide as their long tail
            f"max by ({by_target}) (sqrt(({share} * (1 - {share}) + on ({group}) group_right () 1 / {_ENDED_SUM}) / {_ENDED_SUM}))",
            "by how much the share of errors of so many requests varies by chance",
        ),
        Record(_WORK, as_peer(dialect, work), "reference seconds of work that a replica does per second, over 15m"),
    )


def _compared(dialect: Dialect, settings: Settings) -> tuple[Record, ...]:
    """Own figures and those of the peers."""
    by_target, group = dialect.labels(*TARGET), peers(dialect)
    failed, ended = f"sum by ({group}) ({_FAILED_SUM})", f"sum by ({group}) ({_ENDED_SUM})"
    several = f"count by ({group}) ({_ENDED_SUM}) >= {LEAST_REPLICAS}"
    others = f"({failed} - on ({group}) group_right () {_FAILED_SUM}) / ({ended} - on ({group}) group_right () {_ENDED_SUM} > 0)"
    waits = dialect.apply_over_time("min_over_time", "target:llm_serving_requests_waiting:sum", QUEUE_SECONDS)
    full = f"max by ({by_target}) (engine:llm_serving_kv_cache_usage_ratio:avg5m) >= {KV_FULL:g}"
    least = settings.alerts["ReplicaOutlier"]["events"] / BLOCK_SECONDS
    does = f"sum by ({by_target}) (target:llm_serving_phase_tokens:rate5m) >= {least:.4g}"
    settled = own_span(dialect, SHORT_SECONDS)
    idlest = median_of_others(dialect, _WORK, group, replica_is_highest=False)
    return (
        Record(
            OWN,
            f"max by ({by_target}, of) ({_PACE})",
            "what a replica shows: seconds an event (ttft, decode), share of errors, or work under a queue",
        ),
        Record(
            OWN, f"max by ({by_target}) ({_FAILED_SUM} / {_ENDED_SUM})", "the same: share of errors", {"of": ERRORS}
        ),
        Record(
            OWN,
            clauses(
                ("its work", f"max by ({by_target}) ({_WORK})"),
                ("while requests wait", f"and on ({by_target}) {waits} > 0"),
                ("and it does something, else it is stuck", f"and on ({by_target}) {does}"),
                ("all of it since it began", f"and on ({by_target}) {settled}"),
                ("and they do not wait for room", f"unless on ({by_target}) {full}"),
            ),
            "the same: work while requests have waited for 10m beside free KV cache",
            {"of": QUEUE},
        ),
        Record(PEERS, f"max by ({by_target}, of) ({_PACE} / {AGAINST})", "what its peers would show in its place"),
        Record(
            PEERS,
            f"max by ({by_target}) ({others} and on ({group}) {several})",
            "the same, of all peers together",
            {"of": ERRORS},
        ),
        Record(
            PEERS,
            f"max by ({by_target}) ({_WORK} * 0 + on ({group}) group_left () ({idlest}))",
            "the same: median of their work",
            {"of": QUEUE},
        ),
        *_found(dialect, settings),
    )


def _found(dialect: Dialect, settings: Settings) -> tuple[Record, ...]:
    """Who is unlike its peers, with its own figure."""
    own = settings.alerts["ReplicaOutlier"]
    kinds = clauses(
        ("first tokens", f"({_slow(dialect, own, TTFT)})"),
        ("decode", f"or ({_slow(dialect, own, DECODE)})"),
        ("errors", f"or ({_fails(dialect, own)})"),
        ("little work under a queue", f"or {_both(QUEUE)[0]} < {own['work_below']:g} * {_both(QUEUE)[1]}"),
    )
    return (Record(OUTLIER, kinds, "a replica that is unlike its peers, with its own figure"),)


def _both(of: str) -> tuple[str, str]:
    return f'{OWN}{{of="{of}"}}', f'{PEERS}{{of="{of}"}}'


def _slow(dialect: Dialect, own: AlertSettings, of: str) -> str:
    by_target, group = dialect.labels(*TARGET), f"{peers(dialect)}, of"
    its, theirs = _both(of)
    against = f'{AGAINST}{{of="{of}"}}'
    apart = f"({_USUAL} + {own['spreads'] * NORMAL:.4g} * {_SPREAD})"
    return clauses(
        (
            "many times as long as its peers would take",
            f"{its} and on ({by_target}) {against} > {own[f'{of}_above']:g}",
        ),
        (
            "further away than they are from one another",
            f"and on ({by_target}) {against} > on ({group}) group_left () {apart}",
        ),
        ("and somebody notices", f"and on ({by_target}) {its} - {theirs} > {own[f'{of}_least']:g}"),
        (
            "a burst is over soon, and of an hour much may be long over",
            f'unless on ({by_target}) {_RECENT}{{of="{of}"}} <= on ({by_target}) {own[f"{of}_above"]:g} * {theirs}',
        ),
    )


def _fails(dialect: Dialect, own: AlertSettings) -> str:
    by_target = dialect.labels(*TARGET)
    its, theirs = _both(ERRORS)
    return clauses(
        ("many of its requests fail", f"{its} > {own['errors_least']:g}"),
        ("many times as many as its peers'", f"and on ({by_target}) {its} > {own['errors_above']:g} * {theirs}"),
        (
            "and more than by chance",
            f"and on ({by_target}) {its} - {theirs} > on ({by_target}) {own['spreads']:g} * {_NOISE}",
        ),
    )
