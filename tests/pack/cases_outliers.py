"""When one replica is told of for being unlike its peers, and when not. Six first tokens a minute unless a story says otherwise."""

from dataclasses import dataclass

from tests.pack.builders import Grows, counter, engine, firing, held, target
from tests.pack.promtool import Firing, Kind, Story, together

MINUTES = 120
# what is wrong begins and ends
BEGIN, END = 30, 60
ALWAYS = (0, MINUTES)
# minutes in which a replica that stood still answers what waited for it, beside what comes
DRAIN = 8
OLD = -7200.0  # started, in seconds of the history


@dataclass(frozen=True)
class Replica:
    """What a replica does in each minute; what is wrong with it lasts from minute to minute."""

    first_tokens: float = 6
    seconds: float = 0.2  # a first token
    late_seconds: float | None = None  # while something is wrong
    queued_seconds: float | None = None  # of these, while something is wrong
    tokens: float | None = 500  # computed for one
    gap_seconds: float | None = None
    slow_gap_seconds: float | None = None
    batch: float = 8
    ceiling: float = 1000
    failed_share: float = 0
    wrong_share: float | None = None
    wrong: tuple[int, int] = (BEGIN, END)
    started: float = OLD
    reborn: int = 0  # its counters begin again at this minute
    restarted: int = 0  # its process begins again at this minute
    wrong_tokens: float | None = None  # computed for one, while something is wrong
    running: float | None = None  # of eight at a time
    decode_per_minute: float | None = None
    waiting: float = 0
    kv_usage: float = 0.3
    gpu: str = ""
    role: str = "unified"
    runtime: str = "vllm"
    hangs: bool = False  # while something is wrong, and answers what came meanwhile in the minutes after it


def write_replica(model: str, number: int, one: Replica) -> dict[str, str]:
    """Everything that is scraped of it."""
    name = f"{model}-{number}"
    of = engine(model, name, role=one.role)
    found = target(model, name, (MINUTES + 1, "ready"), role=one.role, runtime=one.runtime)
    found[f'llm_serving_target_start_time_seconds{{target="{name}"}}'] = (
        held((one.restarted, one.started), (MINUTES + 1 - one.restarted, one.restarted * 60.0))
        if one.restarted
        else held((MINUTES + 1, one.started))
    )
    if one.gpu:
        found[f'llm_serving_target_gpus{{target="{name}",gpu_name="{one.gpu}"}}'] = held((MINUTES + 1, 1))

    def grows(usual: float, wrong: float | None = None) -> str:
        begin, end = one.wrong
        if one.hangs:
            held_up = (end - begin) * usual if wrong is None else wrong
            drained = (DRAIN, usual + held_up / DRAIN)
            spans = ((begin, usual), (end - begin, 0.0), drained, (MINUTES - end - DRAIN, usual))
            return counter(*(Grows(samples, by) for samples, by in spans))
        if one.reborn:
            return counter(Grows(one.reborn, usual), Grows(MINUTES - one.reborn, usual, True))
        spans = ((begin, usual), (end - begin, usual if wrong is None else wrong), (MINUTES - end, usual))
        return counter(*(Grows(samples, by) for samples, by in spans if samples))

    late = None if one.late_seconds is None else one.first_tokens * one.late_seconds
    if one.hangs:
        lasts = one.wrong[1] - one.wrong[0]
        late = one.first_tokens * lasts * lasts * 60.0 / 2
        found[f"llm_serving_decode_tokens_total{{{of}}}"] = grows(480.0)
        found[f"llm_serving_requests_running{{{of}}}"] = held((MINUTES + 1, 4))
        for signal in ("requests_running", "decode_tokens_total"):
            quality = f'target="{name}",signal="{signal}",quality="live"'
            found[f"llm_serving_signal_quality{{{quality}}}"] = held((MINUTES + 1, 1))
    ttft = "llm_serving_time_to_first_token_seconds"
    found[f'{ttft}_bucket{{{of},le="+Inf"}}'] = grows(one.first_tokens)
    found[f"{ttft}_sum{{{of}}}"] = grows(one.first_tokens * one.seconds, late)
    if one.queued_seconds is not None:
        found[f"llm_serving_request_queue_time_seconds_sum{{{of}}}"] = grows(0.0, one.first_tokens * one.queued_seconds)
    if one.tokens is not None:
        found[f"llm_serving_prefill_tokens_total{{{of}}}"] = grows(
            one.first_tokens * one.tokens, None if one.wrong_tokens is None else one.first_tokens * one.wrong_tokens
        )
    for outcome in ("bad", "good"):
        usual, wrong = (
            None if share is None else one.first_tokens * (share if outcome == "bad" else 1 - share)
            for share in (one.failed_share, one.wrong_share)
        )
        events = f'{of},slo="errors",outcome="{outcome}",source="finished",threshold=""'
        found[f"llm_serving_slo_events_total{{{events}}}"] = grows(usual or 0.0, wrong)
    if one.gap_seconds is not None:
        gaps, itl = 480.0, "llm_serving_inter_token_latency_seconds"
        slow = None if one.slow_gap_seconds is None else gaps * one.slow_gap_seconds
        found[f'{itl}_bucket{{{of},le="+Inf"}}'] = grows(gaps)
        found[f"{itl}_sum{{{of}}}"] = grows(gaps * one.gap_seconds, slow)
        # a tenth of its busy time is prefill's
        for phase, seconds in (("prefill", 3.0), ("decode", 27.0)):
            found[f'llm_serving_phase_busy_seconds_total{{{of},phase="{phase}"}}'] = grows(seconds)
        for gauge, value in (("batch_size_mean", one.batch), ("decode_ceiling_tokens_per_second", one.ceiling)):
            found[f"llm_serving_{gauge}{{{of}}}"] = held((MINUTES + 1, value))
    if one.running is not None:
        for gauge, value in (("requests_running", one.running), ("batch_limit_requests", 8), ("requests_waiting", 2)):
            found[f"llm_serving_{gauge}{{{of}}}"] = held((MINUTES + 1, value))
    if one.decode_per_minute is not None:
        found[f"llm_serving_decode_tokens_total{{{of}}}"] = grows(one.decode_per_minute)
        found[f'llm_serving_phase_reference_seconds_per_token{{{of},phase="decode"}}'] = held((MINUTES + 1, 0.001))
        for gauge, value in (("requests_waiting", one.waiting), ("kv_cache_usage_ratio", one.kv_usage)):
            found[f"llm_serving_{gauge}{{{of}}}"] = held((MINUTES + 1, value))
    return found


def fleet(model: str, *replicas: Replica) -> dict[str, str]:
    """Replicas of a model, by number."""
    return {
        name: values
        for number, one in enumerate(replicas)
        for name, values in write_replica(model, number, one).items()
    }


_WELL = Replica()
_LATE = Replica(late_seconds=4.2)


def _told(model: str, number: int, summary: str, description: str, role: str = "unified") -> Firing:
    name = f"{model}-{number}"
    return firing(
        "ReplicaOutlier",
        {"model_name": model, "role": role, "target": name},
        f"{model} on {name}: {summary}",
        f"{description} Peers: replicas of the same model, role, runtime and kind of GPU.",
        action=f"look at {name} alone; drain and restart it if the others carry the load",
    )


_LATE_FOR = (
    "Mean time to first token, over 15m or, of few requests, 30m or 1h: {own}. Its peers would take {peers} for as many prompt tokens to be computed. "
    "Long prompts, a cold cache and the queue behind more prompts than usual are allowed for."
)
_SLOW = (
    "Mean time between two tokens, without prefill's share: {own}. Its peers would take {peers} at its batch and context, by the distance to each "
    "one's own decode ceiling."
)


def _is_late(model: str, number: int, own: str, peers: str, role: str = "unified") -> Firing:
    summary = f"first tokens after {own}, its peers would need {peers}"
    return _told(model, number, summary, _LATE_FOR.format(own=own, peers=peers), role)


def _is_slow(model: str, number: int, own: str, peers: str, role: str = "unified") -> Firing:
    summary = f"{own} between tokens, its peers would need {peers}"
    return _told(model, number, summary, _SLOW.format(own=own, peers=peers), role)


def _fails(model: str, number: int, own: str, peers: str) -> Firing:
    return _told(
        model, number, f"{own} of its requests fail, {peers} of its peers'",
        f"{own} of the requests that ended here ended with an error, {peers} of those of its peers together. Chance does not explain it.",
    )  # fmt: skip


def _idles(model: str, number: int, own: str, peers: str, waiting: str) -> Firing:
    return _told(
        model, number, f"requests wait at it while it does {own} of work, its peers {peers}",
        f"Requests have waited here for 10m beside free KV cache; it does {own} reference seconds of work per second, the median of its peers is "
        f"{peers}. {waiting} wait.",
    )  # fmt: skip


# a block of five minutes is whole at 35m; two of three are bad at 44m; the last of them has left the window at 75m
_MOMENTS = ("29m", "39m", "44m", "84m")
_RECOVERED = together(
    "ReplicaOutlier",
    "first tokens later than its peers', and no longer",
    _MOMENTS,
    Story(
        (Kind.FIRES, Kind.NOT_YET, Kind.RECOVERY),
        fleet("chat", _WELL, _WELL, _WELL, _LATE),
        {"44m": _is_late("chat", 3, "2.867s", "200ms")},
    ),
    rules="outliers",
)
_TTFT = together(
    "ReplicaOutlier",
    "first tokens later than its peers'",
    # of a hundred replicas: the second half of the story is told above of a few
    _MOMENTS[:-1],
    # of three, five and seven, two of them sick, which the median of five and seven bears
    Story((Kind.FIRES,), fleet("three", _LATE, _WELL, _WELL), {"44m": _is_late("three", 0, "2.867s", "200ms")}),
    Story(
        (Kind.FIRES,),
        fleet("seven", _WELL, _LATE, _WELL, _WELL, _LATE, _WELL, _WELL),
        {"44m": (_is_late("seven", 1, "2.867s", "200ms"), _is_late("seven", 4, "2.867s", "200ms"))},
    ),
    # the same prompts three times as long on another kind of GPU, and behind another runtime
    Story(
        (Kind.BELOW,),
        fleet("kinds", *[Replica(gpu="H100")] * 3, *[Replica(gpu="L40S", seconds=0.8)] * 2),
    ),
    Story((Kind.BELOW,), fleet("runtimes", *[_WELL] * 3, *[Replica(runtime="sglang", seconds=0.8)] * 2)),
    # long prompts or cold prefixes: longer by token they are not; short prompts or warm ones: longer by first token they are not
    Story((Kind.BELOW,), fleet("long", _WELL, _WELL, _WELL, Replica(seconds=1.8, tokens=5000))),
    Story((Kind.BELOW,), fleet("warm", _WELL, _WELL, _WELL, Replica(seconds=0.15, tokens=20))),
    Story((Kind.BELOW,), fleet("near", *[Replica(seconds=0.5)] * 3, Replica(seconds=0.5, late_seconds=0.98, wrong=ALWAYS))),
    # a burst of requests at one replica: they wait for one another
    Story((Kind.BELOW,), fleet("burst", _WELL, _WELL, _WELL, Replica(late_seconds=4.2, queued_seconds=4.0, tokens=900))),
    # the same of two of three, at one of which more wait
    Story(
        (Kind.BELOW,),
        fleet(
            "bursts",
            Replica(late_seconds=4.2, queued_seconds=4.0, wrong_tokens=1500, wrong=(30, 40)),
            Replica(late_seconds=0.9, queued_seconds=0.7, wrong_tokens=1500, wrong=(30, 40)),
            _WELL,
        ),
    ),
    # five minutes of it, by whatever
    Story((Kind.BELOW,), fleet("short", _WELL, _WELL, _WELL, Replica(late_seconds=9, wrong=(30, 35)))),
    # those who wait at a full batch wait for room; where that is not full, it does not admit them
    Story(
        (Kind.BELOW,),
        fleet("slots", *[Replica(gap_seconds=0.01)] * 3, Replica(gap_seconds=0.01, running=8, late_seconds=4.2, queued_seconds=4.0)),
    ),
    Story(
        (Kind.FIRES,),
        fleet("room", *[Replica(gap_seconds=0.01)] * 3, Replica(gap_seconds=0.01, running=4, late_seconds=4.2, queued_seconds=4.0)),
        {"44m": _is_late("room", 3, "2.867s", "200ms")},
    ),
    # nobody knows of a batch whether it is slow
    Story(
        (Kind.FIRES,),
        fleet("unknown", _WELL, _WELL, _WELL, Replica(running=8, late_seconds=4.2, queued_seconds=4.0)),
        {"44m": _is_late("unknown", 3, "2.867s", "200ms")},
    ),
    # the same with no more to do than its peers: it does not admit what it is sent
    Story(
        (Kind.FIRES,),
        fleet("stuck", _WELL, _WELL, _WELL, Replica(late_seconds=4.2, queued_seconds=4.0)),
        {"44m": _is_late("stuck", 3, "2.867s", "200ms")},
    ),
    # five times as long, and nobody notices
    Story((Kind.BELOW,), fleet("small", *[Replica(seconds=0.03)] * 3, Replica(seconds=0.15))),
    # replicas that are unlike each other anyway
    Story((Kind.BELOW,), fleet("motley", *(Replica(seconds=seconds) for seconds in (0.2, 0.5, 0.9, 1.4, 2, 4.5)))),
    # of two nobody knows which
    Story((Kind.ONE_REPLICA,), {**fleet("pair", _WELL, _LATE), **fleet("single", _LATE)}),
    # 48 an hour; two of three have too few, so that nobody knows what is usual
    Story((Kind.LOW_TRAFFIC,), fleet("seldom", _WELL, _WELL, _WELL, Replica(0.8, late_seconds=9, wrong=ALWAYS))),
    Story((Kind.LOW_TRAFFIC,), fleet("rare", Replica(0.5), Replica(0.5), Replica(late_seconds=9, wrong=ALWAYS))),
    # its counters began again, and a young one's first ten minutes are no block
    Story((Kind.RESTART,), fleet("reborn", _WELL, _WELL, _WELL, Replica(reborn=28))),
    Story((Kind.RESTART,), fleet("young", _WELL, _WELL, _WELL, Replica(12, late_seconds=9, wrong=(30, 40), started=1800))),
    # for twelve minutes nothing moved, of which Stalled has told; what waited for it was answered in the minutes after it
    Story((Kind.RECOVERY,), fleet("woken", _WELL, _WELL, _WELL, Replica(hangs=True, wrong=(22, 34)))),
    Story((Kind.ABSENT,), fleet("bare", *[Replica(tokens=None)] * 3, Replica(tokens=None, late_seconds=4.2))),
    Story((Kind.ABSENT,), fleet("nameless", *[Replica(runtime="")] * 3, Replica(runtime="", late_seconds=4.2))),
    # prefill and decode of one model are not compared, two of each are not enough
    Story(
        (Kind.ROLES,),
        fleet("split", *[Replica(role="prefill")] * 2, *[Replica(role="decode", seconds=1.5)] * 2),
    ),
    rules="outliers",
    # the same records are asked twice below, of fewer replicas
    doubled=False,
)  # fmt: skip

# 72 first tokens in an hour: 54 of them in 45 minutes
_CANARY = together(
    "ReplicaOutlier",
    "a canary is told of when it has had fifty requests, and not much longer than it is sick",
    ("44m", "58m", "84m", "101m"),
    Story(
        (Kind.FIRES, Kind.RECOVERY),
        fleet("canary", _WELL, _WELL, _WELL, _WELL, Replica(1.2, late_seconds=6.2, wrong=(0, 80))),
        {moment: _is_late("canary", 4, "6.2s", "200ms") for moment in ("58m", "84m")},
    ),
    rules="outliers",
)

_GAPS = Replica(gap_seconds=0.01)
_DECODE = together(
    "ReplicaOutlier",
    "more seconds between tokens than its peers at its batch and context",
    _MOMENTS,
    Story(
        (Kind.FIRES,),
        # 10 ms less a tenth, 30 ms less a tenth in two of three blocks
        fleet("decode", _GAPS, _GAPS, _GAPS, Replica(gap_seconds=0.01, slow_gap_seconds=0.03)),
        {"44m": _is_slow("decode", 3, "21ms", "9ms")},
    ),
    Story(
        (Kind.FIRES, Kind.ROLES),
        fleet("pools", *[Replica(gap_seconds=0.01, role="decode")] * 2, Replica(gap_seconds=0.01, slow_gap_seconds=0.03, role="decode")),
        {"44m": _is_slow("pools", 2, "21ms", "9ms", "decode")},
    ),
    # one cause, one alert
    Story(
        (Kind.FIRES,),
        fleet("both", _GAPS, _GAPS, _GAPS, Replica(gap_seconds=0.01, slow_gap_seconds=0.03, late_seconds=4.2)),
        {
            "44m": _told(
                    "both", 3, "21ms between tokens, its peers would need 9ms; first tokens after 2.867s, its peers would need 200ms",
                    f"{_SLOW.format(own='21ms', peers='9ms')} {_LATE_FOR.format(own='2.867s', peers='200ms')}",
                )
        },
    ),
    Story((Kind.BELOW,), fleet("moment", _GAPS, _GAPS, _GAPS, Replica(gap_seconds=0.01, slow_gap_seconds=0.05, wrong=(30, 35)))),
    # a full batch takes longer, and its ceiling says so
    Story((Kind.BELOW,), fleet("full", _GAPS, _GAPS, _GAPS, Replica(gap_seconds=0.04, batch=64, ceiling=2000))),
    # a small one is further from its ceiling, and no slower
    Story((Kind.BELOW,), fleet("hollow", _GAPS, _GAPS, _GAPS, Replica(gap_seconds=0.01, batch=1, ceiling=500))),
    Story((Kind.BELOW,), fleet("almost", _GAPS, _GAPS, _GAPS, Replica(gap_seconds=0.0125))),
    Story((Kind.ABSENT,), fleet("factless", *[Replica(gap_seconds=0.01, ceiling=0)] * 3, Replica(gap_seconds=0.03, ceiling=0))),
    rules="outliers",
)  # fmt: skip

_WORKS = Replica(decode_per_minute=12_000)
_QUEUE_AND_ERRORS = together(
    "ReplicaOutlier",
    "errors that its peers have not; little work under a queue",
    ("29m", "44m", "84m"),
    Story(
        (Kind.FIRES,),
        # half of them, in two of three blocks
        fleet("errors", _WELL, _WELL, _WELL, Replica(wrong_share=0.5)),
        {"44m": _fails("errors", 3, "33.33%", "0%")},
    ),
    # eight requests in five minutes, of which it has failed all before it was restarted at 46m
    Story(
        (Kind.FIRES, Kind.RESTART),
        fleet("renewed", _WELL, _WELL, _WELL, Replica(1.6, wrong_share=1, wrong=(0, 45), restarted=46)),
        {"44m": _fails("renewed", 3, "100%", "0%")},
    ),
    # what all of them have is nobody's own; 4 % are few
    Story((Kind.BELOW,), fleet("common", *[Replica(failed_share=0.25)] * 3, Replica(failed_share=0.3))),
    Story((Kind.BELOW,), fleet("few", _WELL, _WELL, _WELL, Replica(failed_share=0.04))),
    # one of eleven may be chance
    Story((Kind.LOW_TRAFFIC,), fleet("luckless", _WELL, _WELL, _WELL, Replica(failed_share=0.09))),
    Story(
        (Kind.FIRES,),
        # a livelock: five tokens a second while fourteen wait
        fleet("livelock", _WORKS, _WORKS, _WORKS, Replica(decode_per_minute=300, waiting=14)),
        {moment: _idles("livelock", 3, "0.005", "0.2", "14") for moment in ("29m", "44m", "84m")},
    ),
    # long contexts fill its cache; nothing waits; its peers do as little
    Story((Kind.BELOW,), fleet("contexts", _WORKS, _WORKS, _WORKS, Replica(decode_per_minute=300, waiting=14, kv_usage=0.9))),
    Story((Kind.LOW_TRAFFIC,), fleet("spared", _WORKS, _WORKS, _WORKS, Replica(decode_per_minute=300))),
    Story((Kind.BELOW,), fleet("alike", *[Replica(decode_per_minute=300, waiting=14)] * 4)),
    # nothing at all is another alert's
    Story((Kind.LOW_TRAFFIC,), fleet("hung", _WORKS, _WORKS, _WORKS, Replica(first_tokens=0, decode_per_minute=0, waiting=14))),
    rules="outliers",
)  # fmt: skip

CASES = (_RECOVERED, _TTFT, _CANARY, _DECODE, _QUEUE_AND_ERRORS)
