"""When the alerts of the checks kv and tail fire and when they do not."""

from tests.pack.builders import firing
from tests.pack.builders_kv import flat, growing, selector
from tests.pack.promtool import Firing, cases, row
from tests.pack.samples import Fleet, document, is_

_REPLICA = {"target": "replica-0", "model_name": "chat", "role": "unified"}
_ENGINE = {"target": "replica-0", "model_name": "chat", "engine": "0", "role": "unified"}
_RANK = {**_ENGINE, "engine": "1"}  # the second data-parallel engine of the same server
_NEIGHBOUR = {**_ENGINE, "target": "replica-1"}
_OTHER_MODEL = {**_ENGINE, "target": "embed-0", "model_name": "embed"}

Series = dict[str, str]


def _shown(name: str, values: str, identity: dict[str, str] = _ENGINE, **labels: str) -> Series:
    return {selector(f"llm_serving_{name}", instance="exporter-a:10077", **identity, **labels): values}


def _usage(values: str, identity: dict[str, str] = _ENGINE) -> Series:
    return _shown("kv_cache_usage_ratio", values, identity)


def _waiting(values: str, identity: dict[str, str] = _ENGINE) -> Series:
    return _shown("requests_waiting", values, identity)


def _recorded(usage: str | None = None, mean: str | None = None, waiting: str | None = None) -> Series:
    found = {
        "engine:llm_serving_kv_cache_usage_ratio:max": usage,
        "engine:llm_serving_kv_cache_usage_ratio:avg5m": mean,
        "engine:llm_serving_requests_waiting:max": waiting,
    }
    return {selector(name, **_ENGINE): values for name, values in found.items() if values is not None}


def _saturated(usage: str, waiting: str, identity: dict[str, str] = _ENGINE) -> Firing:
    target, engine = identity["target"], identity["engine"]
    return firing(
        "KVSaturated",
        identity,
        f"chat on {target}: KV cache {usage} full and requests wait",
        f"Live requests of engine {engine} hold {usage} of the KV cache, {waiting} requests wait. The next step is preemption: what was "
        "computed is thrown away and computed again.",
    )


_KV_SATURATED = cases(
    "KVSaturated",
    row(
        "full for ten minutes while requests wait, then room again",
        _usage(flat((0.5, 10), (0.97, 25), (0.6, 20))) | _waiting(flat((3, 55))),
        {"30m": _saturated("97%", "3"), "8m": (), "18m": (), "46m": ()},
        # the last of its minutes count until 45m
    ),
    row(
        "one of two data-parallel engines, one of two replicas, one of two models",
        _usage(flat((0.97, 40)), _RANK)
        | _usage(flat((0.4, 40)))
        | _usage(flat((0.95, 40)), _NEIGHBOUR)
        | _usage(flat((0.99, 40)), _OTHER_MODEL)
        | _waiting(flat((8, 40)), _RANK)
        | _waiting(flat((8, 40)))
        | _waiting(flat((8, 40)), _NEIGHBOUR)
        | _waiting(flat((0, 40)), _OTHER_MODEL),
        {"30m": _saturated("97%", "8", _RANK)},
    ),
    row("at the threshold", _recorded(usage=flat((0.95, 40)), waiting=flat((3, 40))), "30m"),
    row("full of work that all runs", _recorded(usage=flat((1, 40)), waiting=flat((0, 40))), "30m"),
    row("nobody says whether requests wait", _recorded(usage=flat((1, 40))), "30m"),
    row("nobody says how full it is", _recorded(waiting=flat((9, 40))), "30m"),
    row(
        "the engine restarts before ten minutes are over, and has room then",
        _recorded(usage=flat((0.97, 9), ("stale", 1), ("_", 5), (0.8, 9)), waiting=flat((3, 24))),
        "23m",
    ),
    row(
        "the engine of one replica vanishes and the mean outlives it: another replica is told of all the same",
        _usage(flat((0.97, 40)))
        | _waiting(flat((3, 40)))
        | _usage(flat((0.97, 15), ("stale", 1)), _NEIGHBOUR)
        | _waiting(flat((3, 15), ("stale", 1)), _NEIGHBOUR),
        {"18m": (_saturated("97%", "3"), _saturated("97%", "unknown", _NEIGHBOUR))},
    ),
    row(
        "full for four of every six minutes: requests that end make room for a moment",
        _recorded(usage=" ".join(["0.97 0.97 0.97 0.97 0.6 0.6"] * 10), waiting=flat((3, 60))),
        {
            "29m": _saturated("97%", "3"),
            "12m": (),
            **{f"{minute}m": _saturated("97%", "3") for minute in (34, 35, 36, 59)},
        },
    ),
)


def _filling(now: str, text: str) -> Firing:
    return firing(
        "KVSaturated",
        _ENGINE,
        f"chat on replica-0: KV cache {now} full and requests wait",
        f"Live requests of engine 0 hold {now} of the KV cache, 2 requests wait. {text}",
    )


def _rising(step: float, start: float, samples: int) -> str:
    return growing((step, samples), start=start)


_FILLING = cases(
    "KVSaturated",
    row(
        "1.3 percent more each minute, from 65 on",
        # 15 minutes later it is 19.5 points more: above 100 from 80.5 on, at 12m; ten minutes later it is told
        _recorded(mean=f"{_rising(0.013, 0.65, 24)} {flat((0.7, 20))}", waiting=flat((2, 44))),
        {"22m": _filling("93.6%", "The line of the last 15m passes 100% within 15m."), "20m": (), "40m": ()},
    ),
    row(
        "half a percent a minute is not full within 15m",
        _recorded(mean=_rising(0.005, 0.7, 40), waiting=flat((2, 40))),
        "38m",  # at 38m it is 89 %, 15m later 96.5 %
    ),
    row(
        "a steep line that is still below 80 %",
        # from the second minute on it would be full 15m later; at 11m it is at 76 %
        _recorded(mean=_rising(0.06, 0.1, 14), waiting=flat((2, 14))),
        "11m",
    ),
    row("no request waits", _recorded(mean=_rising(0.01, 0.7, 31), waiting=flat((0, 31))), "29m"),
    row("nobody says whether requests wait", _recorded(mean=_rising(0.01, 0.7, 31)), "29m"),
)


def _preempting(ratio: str) -> Firing:
    return firing(
        "PreemptionStorm",
        _REPLICA,
        f"chat on replica-0: {ratio} preemptions per finished request",
        f"In 10m there were {ratio} preemptions for each finished request. Each throws away KV that has to be computed again: users see "
        "answers that pause, and prefill work grows.",
    )


def _preempted(preemptions: str, stopped: str, cut: str = flat((0, 60)), identity: dict[str, str] = _ENGINE) -> Series:
    return (
        _shown("preemptions_total", preemptions, identity)
        | _shown("requests_finished_total", stopped, identity, reason="stop")
        | _shown("requests_finished_total", cut, identity, reason="length")
    )


_PREEMPTION_STORM = cases(
    "PreemptionStorm",
    row(
        "twelve preemptions for a hundred finished requests, both data-parallel engines together, then none",
        # a minute: 0.33 + 0.33 preemptions, (2 + 0.75) x 2 requests; in 10m 6.6 for 55, each stretched alike by increase()
        _preempted(growing((0.33, 31), (0, 25)), growing((2, 56)), growing((0.75, 56)))
        | _preempted(growing((0.33, 31), (0, 25)), growing((2, 56)), growing((0.75, 56)), _RANK)
        | _preempted(growing((0.1, 56)), growing((10, 56)), identity=_NEIGHBOUR),
        {"28m": _preempting("0.12"), "14m": (), "45m": ()},
    ),
    row("nine for a hundred", _preempted(growing((0.9, 40)), growing((10, 40))), "30m"),
    row(
        "four requests a minute: 40 in 10m are too few to judge", _preempted(growing((4, 40)), growing((4, 40))), "30m"
    ),
    row(
        "the engine restarts and counts from 0",
        _preempted(flat((1000, 20), (0, 20)), growing((10, 20), start=5000) + " " + growing((10, 20))),
        {"25m": (), "35m": ()},
    ),
    row(
        "an engine that counts no preemptions",
        _shown("requests_finished_total", growing((10, 40)), reason="stop"),
        "30m",
    ),
)


def _hits(rate: str | None, median: str | None) -> Series:
    found = {
        "model:llm_serving_prefix_cache_hit:ratio_increase30m": rate,
        "model:llm_serving_prefix_cache_hit:median7d": median,
    }
    return {
        selector(name, model_name="chat", role="unified"): values
        for name, values in found.items()
        if values is not None
    }


_DROPPED = firing(
    "HitRateDropped",
    {"model_name": "chat", "role": "unified"},
    "chat (unified): prefix cache hits down to 10%",
    "10% of the looked-up tokens were found in 30m; usually it is 22%. Prefill computes again what it used to find.",
)
_EMBED_HITS = {
    selector(name, model_name="embed", role="unified"): flat((0.5, 90))
    for name in ("model:llm_serving_prefix_cache_hit:ratio_increase30m", "model:llm_serving_prefix_cache_hit:median7d")
}

_HIT_RATE_DROPPED = cases(
    "HitRateDropped",
    row(
        "less than half of what is usual, while another model is as ever",
        _hits(flat((0.22, 10), (0.1, 50), (0.2, 30)), flat((0.22, 90))) | _EMBED_HITS,
        {"55m": _DROPPED, "35m": (), "75m": ()},
    ),
    row("half of what is usual", _hits(flat((0.3, 60)), flat((0.6, 60))), "55m"),
    row("a model that never finds much", _hits(flat((0.01, 60)), flat((0.2, 60))), "55m"),
    row("first week: nothing is usual yet", _hits(flat((0.01, 60)), None), "55m"),
    row("too little is looked up to say", _hits(None, flat((0.6, 60))), "55m"),
)


CASES = (*_KV_SATURATED, *_FILLING, *_PREEMPTION_STORM, *_HIT_RATE_DROPPED)


def _looked_up(model: str, queried: float, hit: float, started: float) -> Series:
    """Tokens a minute, of a replica that started at that moment."""
    identity = {"target": f"{model}-0", "model_name": model, "role": "unified"}
    target = {"target": f"{model}-0"}
    return {
        selector("llm_serving_target_info", **identity, runtime="vllm"): flat((1, 45)),
        selector("llm_serving_target_state", **target, state="ready"): flat((1, 45)),
        selector("llm_serving_target_start_time_seconds", **target): flat((started, 45)),
        selector("llm_serving_prefix_cache_query_tokens_total", **identity, engine="0"): growing((queried, 45)),
        selector("llm_serving_prefix_cache_hit_tokens_total", **identity, engine="0"): growing((hit, 45)),
    }


_MEDIAN = "model:llm_serving_prefix_cache_hit:median7d"  # nothing before three days
_RATE = "model:llm_serving_prefix_cache_hit:ratio_increase30m"
_FULL = {"target": "full-0", "model_name": "full", "role": "unified"}
_FLEETS = (
    # two engines, scraped twice, 0.4 and 0.6 of 1,000 tokens each
    Fleet(
        "full",
        {
            selector(f"llm_serving_{name}", instance=instance, **_FULL, engine=engine): flat((value, 45))
            for instance in ("exporter-a:10077", "exporter-b:10077")
            for engine, usage in (("0", 0.4), ("1", 0.6))
            for name, value in (
                ("kv_cache_usage_ratio", usage),
                ("kv_cache_used_tokens", 1000 * usage),
                ("kv_cache_capacity_tokens", 1000),
            )
        },
        (
            is_("engine:llm_serving_kv_cache_usage_ratio:avg5m", 0.4, target="full-0", engine="0"),
            is_("model:llm_serving_kv_cache_usage_ratio:max", 0.6),
            is_("model:llm_serving_kv_cache_used_tokens:sum", 1000),
            is_("model:llm_serving_kv_cache_usage:ratio", 0.5),
        ),
    ),
    # 400 a minute are 12,000 in 30m, a quarter of them found
    Fleet("enough", _looked_up("enough", 400, 100, -7200), (is_(_RATE, 0.25), is_(_MEDIAN, None))),
    # 300 a minute are 9,000
    Fleet("few", _looked_up("few", 300, 75, -7200), (is_(_RATE, None),)),
    # started at minute 20, so that at minute 41 it is 21m old: an empty cache is no drop
    Fleet("fresh", _looked_up("fresh", 400, 0, 1200), (is_(_RATE, None),)),
)

SAMPLES = {"kv.samples.yml": document(_FLEETS, "kv", "41m")}


# --- when the alerts of check tail fire and when they do not ---


_MODEL = {"model_name": "chat", "role": "unified"}
_TAIL_ENGINE = {"target": "replica-0", "engine": "0", **_MODEL}
_TAIL_NEIGHBOUR = {"target": "replica-1", "engine": "0", **_MODEL}
_TAIL_OTHER_MODEL = {"target": "embed-0", "engine": "0", "model_name": "embed", "role": "unified"}


def _shown(name: str, values: str, identity: dict[str, str] = _TAIL_ENGINE, **labels: str) -> Series:
    return {selector(f"llm_serving_{name}", instance="exporter-a:10077", **identity, **labels): values}


def _fit(lower: str, upper: float, observed: float, identity: dict[str, str] = _TAIL_ENGINE) -> Series:
    return (
        _shown("long_context_requests_fit", lower, identity, bound="lower")
        | _shown("long_context_requests_fit", flat((upper, 80)), identity, bound="upper")
        | _shown("long_context_requests_observed", flat((observed, 80)), identity)
    )


def _waiting(values: str, identity: dict[str, str] = _TAIL_ENGINE) -> Series:
    return _shown("requests_waiting", values, identity)


_QUEUE = _waiting(flat((1, 80)))

_FEW = firing(
    "LongContextFewFit",
    _MODEL,
    "chat (unified): only 3.5 requests of p99 length fit the KV cache",
    "At least 3.5 and at most 6.0 requests with a prompt of the 99th percentile and a mean answer fit one engine. A few of them at once, and "
    "everyone else waits.",
)

_FEW_FIT = cases(
    "LongContextFewFit",
    row(
        "3.5 fit the worse of two engines; another model has room",
        _fit(flat((9, 5), (3.5, 45), (9, 20)), 6, 1100)
        | _fit(flat((8, 80)), 12, 5000, _TAIL_NEIGHBOUR)
        | _fit(flat((30, 80)), 40, 5000, _TAIL_OTHER_MODEL)
        | _QUEUE,
        {"45m": _FEW, "30m": (), "60m": ()},
    ),
    row("four fit", _fit(flat((4, 80)), 6, 5000) | _QUEUE, "60m"),
    row("nobody waits", _fit(flat((3.5, 80)), 6, 1100) | _waiting(flat((0, 80))), "60m"),
    row("nobody says whether requests wait", _fit(flat((3.5, 80)), 6, 1100), "60m"),
    row(
        "one minute of every twenty somebody waits: a twentieth of the time",
        _fit(flat((3.5, 80)), 6, 1100) | _waiting(flat(*(((1, 1), (0, 19)) * 4))),
        "60m",
    ),
    row(
        "two minutes of every ten somebody waits",
        _fit(flat((3.5, 80)), 6, 1100) | _waiting(flat(*(((1, 2), (0, 8)) * 8))),
        {"60m": _FEW},
    ),
    row(
        "nobody waits, and requests are preempted",
        _fit(flat((3.5, 80)), 6, 1100) | _waiting(flat((0, 80))) | _shown("preemptions_total", growing((1, 80))),
        {"60m": _FEW},
    ),
    row(
        "an engine that has just started says two from its first 900 requests, the others know better",
        _fit(flat((2, 80)), 3, 900) | _fit(flat((8, 80)), 12, 5000, _TAIL_NEIGHBOUR) | _QUEUE,
        "60m",
    ),
    row(
        "no lower bound: the longest bucket has no upper edge",
        {name: values for name, values in _fit(flat((2, 80)), 3, 5000).items() if 'bound="lower"' not in name} | _QUEUE,
        "60m",
    ),
)


def _share(lower: str, observed: float, usage: float, identity: dict[str, str] = _TAIL_ENGINE) -> Series:
    return (
        _shown("long_context_kv_share_ratio", lower, identity, bound="lower")
        | _shown("long_context_kv_share_ratio", flat((0.9, 80)), identity, bound="upper")
        | _shown("long_context_requests_observed", flat((observed, 80)), identity)
        | _shown("kv_cache_usage_ratio", flat((usage, 80)), identity)
    )


TAIL_CASES = _FEW_FIT

_FIT = "model:llm_serving_long_context_requests_fit:min"
_WORST = (
    Fleet(
        "chat",
        _fit(flat((2.5, 10)), 6, 5000)
        | _fit(flat((8, 10)), 5, 900, _TAIL_NEIGHBOUR)
        | _share(flat((0.1, 10)), 5000, 0.9)
        | _share(flat((0.45, 10)), 900, 0.4, _TAIL_NEIGHBOUR),
        (
            is_(_FIT, 2.5, bound="lower"),
            is_(_FIT, 5, bound="upper"),
            is_("model:llm_serving_long_context_kv_share_ratio:max", 0.45, bound="lower"),
            is_("model:llm_serving_long_context_requests_observed:max", 5000),
        ),
    ),
)
TAIL_SAMPLES = {"tail.samples.yml": document(_WORST, "tail", "8m")}
