"""Replicas against their peers: what each showed in five minutes, how fast, how often wrong, and which of them are unlike the others."""

from __future__ import annotations

from collections.abc import Callable

from llm_serving_alerts.promql import ENGINE, HOUR, MINUTE, TARGET, Dialect, buckets, clauses, series, sums
from llm_serving_alerts.records.targets import of_kind
from llm_serving_alerts.records.traffic import STALLED
from llm_serving_alerts.rules import MINUTELY_SECONDS, Group, Record, write_records
from llm_serving_alerts.settings import AlertSettings, Settings

# --- What each replica showed in five minutes, and sums of these, beside what makes others its peers: the ground that `outliers` compares
# on.
#
# Peers serve the same model in the same role by the same runtime on the same kind of GPU. Sums of blocks are a quarter of an hour (three)
# or, for replicas that few requests reach, half an hour or an hour (six, twelve).

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
    records = write_records(f"""
        ## seconds since the start of each ready replica
        {AGE} = {_age(dialect)}
        ## 1 for each ready replica past its first minutes, and those after it stood still, with what its peers share
        {PEER} = {_peer(dialect, settings)}
        ## prompt tokens that it computed in 5m
        {COMPUTED} = {_settled(dialect, _grown(dialect, series("prefill_tokens_total")))}
        ## gaps between two tokens of an answer in 5m
        {GAPS} = {_settled(dialect, gaps)}
        ## their seconds, added up, without the share of prefill in its busy time
        {GAP_SECONDS} = ({gap_seconds}) * on ({by_target}) {busy("decode")} / on ({by_target}) ({busy("prefill|decode")} > 0)
        ## what these gaps would take at the decode ceiling of the replica's own batch and context
        {CEILING_SECONDS} = {_settled(dialect, f"{gaps} * on ({dialect.key(*ENGINE)}) group_left () ({least_gap})")}
        ## 1 for a replica whose queue is made by what it was given, not by itself
        {_EXCUSED} =
          # more to compute than its peers
          ({than_peers}) * 0 + 1
          # or, as bursts may hit all of them, more than in most of its last hour
          or on ({by_target}) ({than_itself}) * 0 + 1
          # or no room for more at some moment, where it is asked besides whether its decode is slow
          or on ({by_target}) ({no_room} and on ({by_target}) {CEILING_SECONDS}) * 0 + 1
        ## seconds in such a queue, where they are a good part of the time to first token: no measure of the replica
        {_LEFT_OUT} = {waited} and on ({by_target}) {excusing}
        ## first tokens of a settled replica in 5m, but for those behind such a queue
        {FIRST_TOKENS} = {_settled(dialect, _count(dialect, "time_to_first_token_seconds"))} {counts}
        ## how long requests waited for these, added up
        {WAITED} = {first_seconds} {counts}
        ## prompt tokens that were computed for them
        {JUDGED} = {COMPUTED} {counts}
        ## requests that ended in 5m
        {ENDED} = {count("")}
        ## requests that ended with an error in 5m
        {FAILED} = {count(bad)} or on ({by_target}) {ENDED} * 0
    """)
    return Group("llm-serving.outliers.blocks", records, MINUTELY_SECONDS)


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
    by_count = [
        f"quantile by ({by}) ({quantile if replica_is_highest else 1 - quantile:.10g}, {value}) and on ({by}) {count} == {number}"
        for number, quantile in QUANTILE_OF_OTHERS.items()
    ]
    by_count.append(f"quantile by ({by}) (0.5, {value}) and on ({by}) {count} > {max(QUANTILE_OF_OTHERS)}")
    return " or ".join(by_count)


# --- Replicas against their peers: how fast, how often wrong, how much work under a queue, and which of them are unlike the others.
#
# A replica is held against what its peers would show in its place. Speed is judged by event and by what there was to do, and whichever is
# better counts: long prompts, cold prefixes and full batches make the first worse, short prompts and small batches the second.

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
    interval = 2 * MINUTELY_SECONDS
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
        *write_records(f"""
            ## requests that ended, over 15m with events enough, else over 30m or 1h
            {_ENDED_SUM} = {with_enough(dialect, settings, ENDED, lambda of_span: of_span(ENDED))}
            ## those of them that ended with an error
            {_FAILED_SUM} = {with_enough(dialect, settings, ENDED, lambda of_span: of_span(FAILED))}
        """),
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
        *write_records(f"""
            ## what a replica shows: seconds an event (ttft, decode), share of errors, or work under a queue
            {OWN} = max by ({by_target}, of) ({_PACE})
            ## the same: share of errors
            {OWN}{{of="{ERRORS}"}} = max by ({by_target}) ({_FAILED_SUM} / {_ENDED_SUM})
            ## the same: work while requests have waited for 10m beside free KV cache
            {OWN}{{of="{QUEUE}"}} =
              # its work
              max by ({by_target}) ({_WORK})
              # while requests wait
              and on ({by_target}) {waits} > 0
              # and it does something, else it is stuck
              and on ({by_target}) {does}
              # all of it since it began
              and on ({by_target}) {settled}
              # and they do not wait for room
              unless on ({by_target}) {full}
            ## what its peers would show in its place
            {PEERS} = max by ({by_target}, of) ({_PACE} / {AGAINST})
            ## the same, of all peers together
            {PEERS}{{of="{ERRORS}"}} = max by ({by_target}) ({others} and on ({group}) {several})
            ## the same: median of their work
            {PEERS}{{of="{QUEUE}"}} = max by ({by_target}) ({_WORK} * 0 + on ({group}) group_left () ({idlest}))
        """),
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
