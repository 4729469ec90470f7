"""When the alerts of check phases fire and when they do not."""

from collections.abc import Mapping

from tests.pack.builders import Grows, buckets, counter, engine, firing, held, of_model
from tests.pack.promtool import Firing, Kind, Story, together


def _recorded(model: str, values: Mapping[str, str | float], role: str = "unified") -> dict[str, str]:
    """A model's recorded series; a number holds all the time."""
    return {
        f"model:llm_serving_{name}{{{of_model(model, role)}}}": text if isinstance(text, str) else held((61, text))
        for name, text in values.items()
    }


# --- ThroughputBelowBaseline: work per replica below 0.7 (0.5) of its p90 while requests wait, for 5m; warning (critical) ------------------

_WORK, _P90 = "reference_work_per_replica:rate5m", "reference_work_per_replica:p90_7d"
_QUEUED = "reference_work_per_queued_replica:rate5m"
_WAITING = "requests_waiting:sum"


def _slow(severity: str, model: str, share: str, usual: str, waiting: str, role: str = "unified") -> Firing:
    return firing(
        "ThroughputBelowBaseline",
        {"model_name": model, "role": role},
        f"{model} ({role}): each replica does {share} of its usual work while requests wait",
        f"Prefill and decode together, weighed by their reference seconds, are at {share} of what a replica usually does under a queue "
        f"(90th percentile of 7 days: {usual} reference seconds per second). {waiting} requests wait.",
        severity=severity,
    )


_THROUGHPUT = together(
    "ThroughputBelowBaseline",
    "less work than usual under a queue",
    ("4m", "12m", "40m"),
    Story(
        (Kind.FIRES, Kind.NOT_YET, Kind.RECOVERY, Kind.ONE_REPLICA),
        # 0.54 of 0.9 = 60 %; from minute 20 on 0.9 again
        _recorded("chat", {_WORK: held((20, 0.54), (41, 0.9)), _P90: 0.9, _WAITING: 5}),
        {"12m": _slow("warning", "chat", "60%", "0.9", "5")},
    ),
    Story(
        (Kind.FIRES,),
        # 40 %: worth a page and a ticket, of which the page silences the ticket
        _recorded("half", {_WORK: 0.36, _QUEUED: 0.36, _P90: 0.9, _WAITING: 120}),
        {
            moment: (_slow("warning", "half", "40%", "0.9", "120"), _slow("critical", "half", "40%", "0.9", "120"))
            for moment in ("12m", "40m")
        },
    ),
    # what waits in split pools may be KV on its way
    Story((Kind.ROLES,), _recorded("split", {_WORK: 0.1, _P90: 1, _WAITING: 5}, "decode")),
    # one client floods one of four replicas, which does its work; the others idle
    Story((Kind.BELOW,), _recorded("flooded", {_WORK: 0.3, _QUEUED: 0.85, _P90: 0.9, _WAITING: 20})),
    Story((Kind.BELOW,), _recorded("calm", {_WORK: 0.64, _P90: 0.9, _WAITING: 5})),  # 71 %
    Story((Kind.LOW_TRAFFIC,), _recorded("quiet", {_WORK: 0.1, _P90: 0.9, _WAITING: 0})),
    # a queue that is empty every fourth minute is none that lasts
    Story(
        (Kind.LOW_TRAFFIC,), _recorded("bursts", {_WORK: 0.1, _P90: 0.9, _WAITING: " ".join(["9", "9", "9", "0"] * 15)})
    ),
    Story((Kind.FIRST_WEEK,), _recorded("new", {_WORK: 0.1, _WAITING: 5})),
    # no replica is older than half an hour: there is no work per settled one
    Story((Kind.RESTART,), _recorded("rollout", {_P90: 0.9, _WAITING: 5})),
    Story((Kind.ABSENT,), _recorded("silent", {_WORK: 0.1, _P90: 0.9})),
)


# --- TrafficVanished: below a fifth of the median of this hour and of a week ago, nothing waits, replicas are up; for 15m; warning ---------

_TOKENS, _MEDIAN, _WEEK = "tokens:rate5m", "tokens:same_hour_median7d", "tokens:same_hour_week_ago"
_READY = "ready_replicas:sum"


def _vanished(model: str, now: str, median: str, week: str, role: str = "unified") -> Firing:
    return firing(
        "TrafficVanished",
        {"model_name": model, "role": role},
        f"{model} ({role}): traffic has vanished: {now} tokens/s",
        f"The replicas are up and nothing waits, but they serve {now} tokens/s; at this hour it was "
        f"{median} (median of the last days) and {week} a week ago.",
    )


def _traffic(
    model: str, now: str | float, role: str = "unified", without: str = "", **other: str | float
) -> dict[str, str]:
    """100 tokens/s at this hour, 120 a week ago, two replicas, nothing waits, unless said otherwise."""
    values = {"median": 100, "week": 120, "waiting": 0, "ready": 2, "now": now, **other}
    values.pop(without, None)
    names = {
        "lowest": "tokens:same_hour_lowest_median7d",
        "now": _TOKENS,
        "median": _MEDIAN,
        "week": _WEEK,
        "waiting": _WAITING,
        "ready": _READY,
    }
    return _recorded(model, {names[key]: content for key, content in values.items()}, role)


_TRAFFIC = together(
    "TrafficVanished",
    "far less than at this hour of other days",
    ("14m", "16m", "50m"),
    Story(
        (Kind.FIRES, Kind.NOT_YET, Kind.RECOVERY),
        _traffic("chat", held((30, 0.5), (31, 90))),
        {"16m": _vanished("chat", "0.5", "100.0", "120.0")},
    ),
    Story(
        (Kind.FIRES, Kind.ONE_REPLICA, Kind.ROLES),
        # the tokens of a decode pool are its own traffic; the prefill pool of the same model has its usual
        {**_traffic("split", 0, "decode", ready=1), **_traffic("split", 110, "prefill", ready=1)},
        {moment: _vanished("split", "0.0", "100.0", "120.0", "decode") for moment in ("16m", "50m")},
    ),
    # an engine that has nothing to do may stop saying how many wait
    Story(
        (Kind.FIRES,),
        _traffic("mum", 0, waiting="0 0 0 stale", lowest=80),
        {moment: _vanished("mum", "0.0", "100.0", "120.0") for moment in ("16m", "50m")},
    ),
    # a job of twenty minutes in every hour
    Story((Kind.BELOW,), _traffic("bursts", 0, lowest=0)),
    Story((Kind.BELOW,), _traffic("calm", 20)),  # a fifth, not less
    Story((Kind.BELOW,), _traffic("holiday", 5, week=6)),  # a week ago it was quiet as well
    Story((Kind.BELOW,), _traffic("jam", 0, waiting=3)),  # what waits has not gone
    Story((Kind.BELOW,), _traffic("down", 0, ready=0)),  # another alert's
    Story((Kind.LOW_TRAFFIC,), {**_traffic("small", 0, median=10), **_traffic("lately", 0, week=10)}),
    Story((Kind.FIRST_WEEK,), {**_traffic("young", 0, without="week"), **_traffic("new", 0, without="median")}),
    # all replicas restarted: two samples make a rate, and before there is none
    Story((Kind.RESTART,), _traffic("rollout", f"{held((10, 100))} stale _x9 {held((41, 80))}")),
    Story((Kind.ABSENT,), {**_traffic("mute", 0, without="waiting"), **_traffic("unknown", 0, without="ready")}),
)


# --- PrefillStarvesDecode: unified, p95 between tokens above 0.2 s, prefill above half of busy time, 500 events in 10m; for 10m ----------

_ITL_EDGES = ("0.1", "0.2", "0.4", "+Inf")
# p95 = 0.2 + 0.2 x (95 - 90) / 10
_STUTTERS = {"0.1": 90, "0.4": 10}


def _itl(identity: str, *spans: tuple[int, Mapping[str, float]], reborn: int = -1) -> dict[str, str]:
    return buckets("inter_token_latency_seconds", identity, *spans, reborn=reborn, edges=_ITL_EDGES)


def _busy(identity: str, prefill: str, decode: str, unattributed: str = "") -> dict[str, str]:
    found = {"prefill": prefill, "decode": decode, "unattributed": unattributed or counter(Grows(60, 0))}
    return {
        f'llm_serving_phase_busy_seconds_total{{{identity},phase="{phase}"}}': text for phase, text in found.items()
    }


def _half_busy(identity: str, prefill: float, decode: float, unattributed: float = 0) -> dict[str, str]:
    return _busy(identity, *(counter(Grows(60, seconds)) for seconds in (prefill, decode, unattributed)))


def _starves(model: str) -> Firing:
    return firing(
        "PrefillStarvesDecode",
        {"model_name": model, "role": "unified"},
        f"{model} (unified): prefill starves decode, p95 inter-token latency 300ms",
        "The 95th percentile between two tokens is 300ms (threshold 0.2s) and prefill takes more than 50% of the busy time: "
        "answers stutter while prompts are computed.",
    )


_STARVES = together(
    "PrefillStarvesDecode",
    "answers stutter while prompts are computed",
    ("12m", "20m", "38m"),
    Story(
        (Kind.FIRES, Kind.NOT_YET, Kind.ONE_REPLICA, Kind.RECOVERY),
        # 500 events are there after 5 minutes; 36 of 48 busy seconds a minute are prefill; from minute 25 on no gap is long
        {
            **_itl(engine("chat"), (25, _STUTTERS), (35, {"0.1": 100})),
            **_half_busy(engine("chat"), 36, 12),
        },
        {"20m": _starves("chat")},
    ),
    Story(
        (Kind.RESTART,),
        {
            **_itl(engine("reborn"), (8, _STUTTERS), (52, _STUTTERS), reborn=1),
            **_busy(engine("reborn"), counter(Grows(8, 36), Grows(52, 36, True)), counter(Grows(8, 12), Grows(52, 12, True))),
        },
        {moment: _starves("reborn") for moment in ("20m", "38m")},
    ),
    # p95 = 0.2, not above; the same with half of the time, not more; with a third of it that nobody can attribute
    Story((Kind.BELOW,), {**_itl(engine("calm"), (60, {"0.1": 90, "0.2": 5, "0.4": 5})), **_half_busy(engine("calm"), 36, 12)}),
    Story((Kind.BELOW,), {**_itl(engine("even"), (60, _STUTTERS)), **_half_busy(engine("even"), 24, 24)}),
    Story((Kind.BELOW,), {**_itl(engine("dark"), (60, _STUTTERS)), **_half_busy(engine("dark"), 22, 6, 20)}),
    # 49 a minute are 490 in ten
    Story((Kind.LOW_TRAFFIC,), {**_itl(engine("seldom"), (60, {"0.1": 39, "0.4": 10})), **_half_busy(engine("seldom"), 36, 12)}),
    Story((Kind.LOW_TRAFFIC,), {**_itl(engine("idle"), (60, {})), **_half_busy(engine("idle"), 0, 0)}),
    Story((Kind.ABSENT,), {**_itl(engine("dense"), (60, _STUTTERS)), **_half_busy(engine("bare"), 36, 12)}),
    Story(
        (Kind.ROLES,),
        # on a replica that only decodes nobody's prompt can be in the way, whatever the split of its busy time says
        {
            **_itl(engine("split", role="decode"), (60, _STUTTERS)),
            **_half_busy(engine("split", role="decode"), 36, 12),
        },
    ),
)  # fmt: skip

CASES = (_THROUGHPUT, _TRAFFIC, _STARVES)
