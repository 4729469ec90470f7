"""What each replica showed in five minutes, and sums of these, beside what makes others its peers: the ground that `outliers` compares on.

Peers serve the same model in the same role by the same runtime on the same kind of GPU. Sums of blocks are a quarter of an hour (three) or,
for replicas that few requests reach, half an hour or an hour (six, twelve).
"""

from __future__ import annotations

from collections.abc import Callable

from llm_serving_alerts.promql import ENGINE, HOUR, MINUTE, TARGET, Dialect, buckets, clauses, series, sums
from llm_serving_alerts.records.stalled import STALLED
from llm_serving_alerts.records.targets import of_kind
from llm_serving_alerts.rules import MINUTELY_SECONDS, Group, Record
from llm_serving_alerts.settings import Settings

BLOCK_SECONDS = 300.0
# the first of these that has events enough is looked at
SPANS_SECONDS = (15 * MINUTE, HOUR / 2, HOUR)
SHORT_SECONDS = SPANS_SECONDS[0]
AGE = "target:llm_serving_replica_age:seconds"
PEER = "target:llm_serving_peer:info"
FIRST_TOKENS = "target:llm_serving_first_tokens:increase5m"
WAITED = "target:llm_serving_first_token_seconds:increase5m"
COMPUTED = "target:llm_serving_computed_prompt_tokens:increase5m"
JUDGED = "target:llm_serving_judged_prompt_tokens:increase5m"
_EXCUSED, _LEFT_OUT = "target:llm_serving_queue:excused", "target:llm_serving_queue:left_out"
GAPS = "target:llm_serving_token_gaps:increase5m"
GAP_SECONDS = "target:llm_serving_token_gap_seconds:increase5m"
CEILING_SECONDS = "target:llm_serving_token_gap_ceiling_seconds:increase5m"
FAILED, ENDED = "target:llm_serving_failed_requests:increase5m", "target:llm_serving_ended_requests:increase5m"
# x the prompt tokens of its peers, or of its own usual five minutes: so much more makes a queue that is nobody's fault
MORE_LOAD, USUAL_SECONDS = 1.25, HOUR
# of the batch or of the KV cache: whoever waits then waits for room
FULL = 0.9
# of the time to first token, that is spent in such a queue: less is within the factor that makes an outlier
MOST_QUEUED = 0.25
# the median of the others, as a quantile of all where the replica itself is the highest; from six on the difference is within the spread
QUANTILE_OF_OTHERS = {3: 0.25, 4: 1 / 3, 5: 0.375}


def peers(dialect: Dialect) -> str:
    """What replicas share that are each other's peers."""
    return dialect.labels("model_name", "role", "gpu_name", "runtime")


def blocks(dialect: Dialect, settings: Settings) -> Group:
    """Five minutes of each settled replica: its first minutes, with cold caches, are in no block."""
    by_target = dialect.labels(*TARGET)

    def count(matchers: str) -> str:
        identity = (*ENGINE, "slo", "outcome", "source", "threshold")
        events = series("slo_events_total", f'slo="errors"{matchers}')
        return _settled(dialect, dialect.one(dialect.increase(events, BLOCK_SECONDS), *identity))

    def busy(phases: str) -> str:
        seconds = dialect.increase(series("phase_busy_seconds_total", f'phase=~"{phases}"'), BLOCK_SECONDS)
        return f"sum by ({by_target}) ({dialect.one(seconds, *ENGINE, 'phase')})"

    bad = ',outcome="bad"'
    gaps = _count(dialect, "inter_token_latency_seconds")
    batch, ceiling = (
        dialect.bare(dialect.apply_over_time("avg_over_time", series(gauge), BLOCK_SECONDS), *ENGINE)
        for gauge in ("batch_size_mean", "decode_ceiling_tokens_per_second")
    )
    # what a step of such a batch takes at its ceiling
    least_gap = f"{batch} / ({ceiling} > 0)"
    first_seconds, queue_seconds = (
        _settled(dialect, _grown(dialect, sums(name)))
        for name in ("time_to_first_token_seconds", "request_queue_time_seconds")
    )
    load, group = as_peer(dialect, COMPUTED), peers(dialect)
    # a queue outlasts what made it
    excusing = f"({_EXCUSED} or on ({by_target}) {dialect.offset(_EXCUSED, BLOCK_SECONDS)})"
    waited = f"({queue_seconds}) > on ({by_target}) {MOST_QUEUED:g} * ({first_seconds})"
    counts = f"unless on ({by_target}) {_LEFT_OUT}"
    gap_seconds = _settled(dialect, _grown(dialect, sums("inter_token_latency_seconds")))
    usual = dialect.apply_over_time("quantile_over_time", f"0.5, {COMPUTED}", USUAL_SECONDS)
    than_peers = f"max by ({by_target}) ({load} > on ({group}) group_left () {MORE_LOAD:g} * quantile by ({group}) (0.5, {load}))"
    than_itself = f"{COMPUTED} > on ({by_target}) {MORE_LOAD:g} * {usual}"
    running = dialect.apply_over_time("max_over_time", "target:llm_serving_requests_running:sum", BLOCK_SECONDS)
    fullest = f"max by ({by_target}) (engine:llm_serving_kv_cache_usage_ratio:avg5m)"
    no_room = (
        f"({fullest} > {FULL:g} or on ({by_target}) {running} / target:llm_serving_batch_limit_requests:sum > {FULL:g})"
    )
    records = (
        Record(AGE, _age(dialect), "seconds since the start of each ready replica"),
        Record(
            PEER,
            _peer(dialect, settings),
            "1 for each ready replica past its first minutes, and those after it stood still, with what its peers share",
        ),
        Record(
            COMPUTED,
            _settled(dialect, _grown(dialect, series("prefill_tokens_total"))),
            "prompt tokens that it computed in 5m",
        ),
        Record(GAPS, _settled(dialect, gaps), "gaps between two tokens of an answer in 5m"),
        Record(
            GAP_SECONDS,
            f"({gap_seconds}) * on ({by_target}) {busy('decode')} / on ({by_target}) ({busy('prefill|decode')} > 0)",
            "their seconds, added up, without the share of prefill in its busy time",
        ),
        Record(
            CEILING_SECONDS,
            _settled(dialect, f"{gaps} * on ({dialect.key(*ENGINE)}) group_left () ({least_gap})"),
            "what these gaps would take at the decode ceiling of the replica's own batch and context",
        ),
        Record(
            _EXCUSED,
            clauses(
                ("more to compute than its peers", f"({than_peers}) * 0 + 1"),
                (
                    "or, as bursts may hit all of them, more than in most of its last hour",
                    f"or on ({by_target}) ({than_itself}) * 0 + 1",
                ),
                (
                    "or no room for more at some moment, where it is asked besides whether its decode is slow",
                    f"or on ({by_target}) ({no_room} and on ({by_target}) {CEILING_SECONDS}) * 0 + 1",
                ),
            ),
            "1 for a replica whose queue is made by what it was given, not by itself",
        ),
        Record(
            _LEFT_OUT,
            f"{waited} and on ({by_target}) {excusing}",
            "seconds in such a queue, where they are a good part of the time to first token: no measure of the replica",
        ),
        Record(
            FIRST_TOKENS,
            f"{_settled(dialect, _count(dialect, 'time_to_first_token_seconds'))} {counts}",
            "first tokens of a settled replica in 5m, but for those behind such a queue",
        ),
        Record(WAITED, f"{first_seconds} {counts}", "how long requests waited for these, added up"),
        Record(JUDGED, f"{COMPUTED} {counts}", "prompt tokens that were computed for them"),
        Record(ENDED, count(""), "requests that ended in 5m"),
        Record(
            FAILED,
            f"{count(bad)} or on ({by_target}) {ENDED} * 0",
            "requests that ended with an error in 5m",
        ),
    )
    return Group("llm-serving.outliers.blocks", records, MINUTELY_SECONDS / dialect.time_scale)


def _age(dialect: Dialect) -> str:
    age = dialect.age(dialect.bare(series("target_start_time_seconds"), "target"))
    return f"(target:llm_serving_ready:max == 1) * on ({dialect.key('target')}) group_left () {age}"


def _peer(dialect: Dialect, settings: Settings) -> str:
    of_target = dialect.key("target")
    ready = f"(({AGE} > bool {dialect.length(settings.alerts['ReplicaOutlier']['settle'])}) == 1)"
    known = series("target_info", 'runtime!=""')
    # two exporters of a pair may be of two versions: one of them is enough
    runtime = f"topk by ({of_target}) (1, {dialect.bare(known, 'target', 'runtime')})"
    settled = f"{of_kind(dialect, ready)} * on ({of_target}) group_left (runtime) {runtime} * 0 + 1"
    # what waited for an engine that stood still says nothing of its pace, and Stalled has told of it
    stood_still = dialect.apply_over_time("max_over_time", STALLED, settings.alerts["ReplicaOutlier"]["settle"])
    return clauses(
        ("past its first minutes", f"({settled})"),
        ("and past those after it stood still", f"unless on ({of_target}) {stood_still}"),
    )


def _grown(dialect: Dialect, selector: str) -> str:
    return dialect.one(dialect.increase(selector, BLOCK_SECONDS), *ENGINE)


def _count(dialect: Dialect, histogram: str) -> str:
    # also of engines whose histogram has no count
    return _grown(dialect, buckets(histogram, 'le="+Inf"'))


def _settled(dialect: Dialect, by_engine: str) -> str:
    by_target = dialect.labels(*TARGET)
    return f"sum by ({by_target}) ({by_engine}) and on ({by_target}) {PEER}"


def added(dialect: Dialect, record: str, seconds: float) -> str:
    """Blocks of so many seconds, added up."""
    return dialect.apply_over_time("sum_over_time", record, seconds, BLOCK_SECONDS)


def own_span(dialect: Dialect, seconds: float) -> str:
    """Replicas that began before so many seconds: what came before a restart is another process's. A block more, because a moment without a
    value is looked at as it was up to five minutes before."""
    return f"{AGE} > {dialect.length(seconds + BLOCK_SECONDS)}"


def as_peer(dialect: Dialect, by_target: str) -> str:
    """Series by replica with the labels that peers share."""
    return f"({by_target}) * on ({dialect.labels(*TARGET)}) group_left (gpu_name, runtime) {PEER}"


def with_enough(dialect: Dialect, settings: Settings, counted: str, made: Callable[[Callable[[str], str]], str]) -> str:
    """What `made` makes of sums of blocks: of the last quarter of an hour where that has events enough, else of the last half, else of the
    last hour; with the labels that peers share. `counted`: the record of events."""
    by_target, least = dialect.labels(*TARGET), settings.alerts["ReplicaOutlier"]["events"]

    def sum_events(seconds: float) -> str:
        def of_span(record: str) -> str:
            return added(dialect, record, seconds)

        enough = f"{of_span(counted)} >= {least:g}"
        return f"{made(of_span)} and on ({by_target}) {enough} and on ({by_target}) {own_span(dialect, seconds)}"

    return as_peer(dialect, f" or on ({by_target}) ".join(sum_events(seconds) for seconds in SPANS_SECONDS))


def median_of_others(dialect: Dialect, value: str, by: str, *, replica_is_highest: bool = True) -> str:
    """The median of a replica's peers without itself, where at least three are compared: exact for three to five of them, as seen by one
    that is the highest (or the lowest) of all; the median of all where there are more."""
    count = f"count by ({by}) ({value})"
    found = [
        f"quantile by ({by}) ({quantile if replica_is_highest else 1 - quantile:.10g}, {value}) and on ({by}) {count} == {number}"
        for number, quantile in QUANTILE_OF_OTHERS.items()
    ]
    found.append(f"quantile by ({by}) (0.5, {value}) and on ({by}) {count} > {max(QUANTILE_OF_OTHERS)}")
    return " or ".join(found)
