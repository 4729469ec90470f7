"""When the alerts of check cost fire and when they do not. Money is slow: most histories have a sample every five minutes."""

from __future__ import annotations

from collections.abc import Mapping

from tests.pack.builders import NOTHING, Grows, counter, engine, firing, held, of_model, target
from tests.pack.promtool import Case, Firing, Kind, Story, together

EVERY = "5m"
HOUR = 12  # samples
DAY = 24 * HOUR


def _model(model: str, name: str, values: str, role: str = "unified", extra: str = "") -> dict[str, str]:
    return {f"model:llm_serving_{name}{{{of_model(model, role)}{extra}}}": values}


def _labels(model: str, role: str = "unified") -> dict[str, str]:
    return {"model_name": model, "role": role}


def _variables(model: str, role: str = "unified") -> str:
    return f"var-model_name={model}&var-role={role}"


def _with_gap(value: float, before: int, gap: int, after: int) -> str:
    """A series that ends and comes back: the exporter restarts, and nothing carries over."""
    return f"{held((before, value))} stale {NOTHING}x{gap - 1} {held((after, value))}"


# --- CostPerTokenUp: six hours' USD per million tokens above 1.5 x the median of 7 days; for 6h; warning -----------------------------------

_NOW, _USUAL = "cost_usd_per_million_tokens:ratio6h_compared", "cost_usd_per_million_tokens:median7d"


def _price(model: str, now: str | float | None, usual: float | None = 2.0, role: str = "unified") -> dict[str, str]:
    found = {}
    if now is not None:
        found |= _model(model, _NOW, now if isinstance(now, str) else held((14 * HOUR, now)), role)
    if usual is not None:
        found |= _model(model, _USUAL, held((14 * HOUR, usual)), role)
    return found


def _dear(model: str, now: str, role: str = "unified") -> Firing:
    return firing(
        "CostPerTokenUp",
        "warning",
        "cost",
        _labels(model, role),
        f"{model} ({role}): a million tokens cost {now} USD",
        f"Over six hours, idle and down time included, a million tokens (prompt as sent and generated) cost {now} USD; usually it is "
        "2 (median of 7 days).",
        "see whether the tokens became fewer or the GPUs more",
        _variables(model, role),
    )


_PER_TOKEN = together(
    "CostPerTokenUp",
    "dearer than it usually is",
    ("5h52m", "6h12m", "13h2m"),
    Story(
        (Kind.FIRES, Kind.NOT_YET, Kind.RECOVERY, Kind.ONE_REPLICA),
        _price("chat", held((12 * HOUR, 3.2), (2 * HOUR, 2))),
        {"6h12m": (_dear("chat", "3.2"),)},
    ),
    Story(
        (Kind.FIRES, Kind.ROLES),
        # each pool by its own median
        {**_price("split", 3.5, role="decode"), **_price("split", 2.5, role="prefill")},
        {moment: (_dear("split", "3.5", "decode"),) for moment in ("6h12m", "13h2m")},
    ),
    # half as much again, not more
    Story((Kind.BELOW,), {**_price("even", 3), **_price("calm", 2.9)}),
    # of fewer tokens than a million nothing is recorded to be compared; the median is that of better days
    Story((Kind.LOW_TRAFFIC,), _price("small", None)),
    Story((Kind.FIRST_WEEK,), _price("new", 9, None)),
    # ten minutes without an exporter after three hours: six hours begin anew, and are over at nine
    Story((Kind.RESTART,), _price("again", _with_gap(3.2, 3 * HOUR, 2, 11 * HOUR)), {"13h2m": (_dear("again", "3.2"),)}),
    # without a price there is neither
    Story((Kind.ABSENT,), _price("free", None, None) | _model("free", "tokens:rate1h", held((14 * HOUR, 500)))),
    interval=EVERY,
)  # fmt: skip


# --- IdleSpend: more than 0.6 of a day's spend idle, 18 hours of it seen; for 1h; info -----------------------------------------------------


def _idle(model: str, share: str | float, seen: str | None, role: str = "unified") -> dict[str, str]:
    """Idle time costs 2.5 USD an hour, 60 a day."""
    found = _model(model, "idle_cost:ratio1d", share if isinstance(share, str) else held((24 * HOUR, share)), role)
    found |= _model(model, "cost_usd:increase1d", held((24 * HOUR, 60)), role, ',phase="idle"')
    if seen is not None:
        found |= _model(model, "cost_usd:increase1h", seen, role, ',phase="idle"')
    return found


_ALL_DAY = held((24 * HOUR, 2.5))


def _wasted(model: str, share: str, role: str = "unified") -> Firing:
    return firing(
        "IdleSpend",
        "info",
        "cost",
        _labels(model, role),
        f"{model} ({role}): {share} of its GPU time was paid for and idle",
        f"In the last day 60 USD went to GPUs that served nothing, {share} of all that the model cost.",
        "context for a review; nobody is notified",
        _variables(model, role),
    )


# hours 0 to 17 are eighteen, an hour later it fires
_IDLE = together(
    "IdleSpend",
    "most of a day is idle",
    ("17h52m", "18h12m", "23h2m"),
    Story(
        (Kind.FIRES, Kind.NOT_YET, Kind.RECOVERY, Kind.ONE_REPLICA),
        _idle("chat", held((22 * HOUR, 0.67), (2 * HOUR, 0.5)), _ALL_DAY),
        {"18h12m": (_wasted("chat", "67%"),)},
    ),
    Story(
        (Kind.FIRES, Kind.ROLES),
        {**_idle("split", 0.9, _ALL_DAY, "prefill"), **_idle("split", 0.2, _ALL_DAY, "decode")},
        {moment: (_wasted("split", "90%", "prefill"),) for moment in ("18h12m", "23h2m")},
    ),
    Story((Kind.BELOW,), _idle("calm", 0.6, _ALL_DAY)),
    # a night of fourteen hours
    Story((Kind.FIRST_WEEK,), _idle("new", 0.95, f"{NOTHING}x{10 * HOUR} {held((14 * HOUR, 2.5))}")),
    Story(
        (Kind.RESTART,),
        _idle("again", _with_gap(0.7, 17 * HOUR + 6, 2, 6 * HOUR), _ALL_DAY),
        {"23h2m": (_wasted("again", "70%"),)},
    ),
    Story((Kind.ABSENT,), _idle("free", 0.9, None)),
    interval=EVERY,
)


# --- BudgetExceeded: mean USD per hour of 7 days x 730 above the budget, 24 hours seen; for 6h; warning ------------------------------------


def _scope(cluster: str, extra: str = "") -> str:
    return f'{{cluster="{cluster}"{extra}}}'


def _pace(cluster: str, rate: str | float, budget: str | float | None, seen: str = "") -> dict[str, str]:
    found = {
        f"fleet:llm_serving_cost_usd_per_hour:avg7d{_scope(cluster)}": rate
        if isinstance(rate, str)
        else held((41 * HOUR, rate)),
        f"fleet:llm_serving_cost_usd:increase1h{_scope(cluster)}": seen or held((41 * HOUR, 4)),
    }
    if budget is not None:
        text = budget if isinstance(budget, str) else held((41 * HOUR, budget))
        found[f"llm_serving_cost_budget_usd_per_month{_scope(cluster)}"] = text
    return found


def _over(month: str, budget: str, hours: str, cluster: str = "") -> Firing:
    return firing(
        "BudgetExceeded",
        "warning",
        "cost",
        {"cluster": cluster} if cluster else {},
        f"{cluster} a month at this pace costs {month} USD, more than the budget".strip(),
        f"The last 7 days make {month} USD in a month of 730 hours, GPU time and energy. The budget is {budget} USD. "
        f"Hours of the week that were seen: {hours}.",
        "see which model grew, and what of it is idle",
        f"var-cluster={cluster}" if cluster else "",
    )


# 4 x 730 = 2920; hours 0 to 23 are a day, and six hours later it fires
_BUDGET = together(
    "BudgetExceeded",
    "the pace of a week and the budget of a month",
    ("28h52m", "29h12m", "40h2m"),
    Story(
        (Kind.FIRES, Kind.NOT_YET, Kind.RECOVERY),
        _pace("eu", held((35 * HOUR, 4), (6 * HOUR, 3.9)), 2900),
        {"29h12m": (_over("2920", "2900", "30", "eu"),)},
    ),
    Story((Kind.BELOW,), _pace("us", 4, 2920)),
    Story((Kind.ABSENT,), _pace("free", 4, None)),
    # a price file of an hour ago, of twenty hours ago
    Story((Kind.FIRST_WEEK,), _pace("new", 4, 100, f"{NOTHING}x{20 * HOUR} {held((21 * HOUR, 4))}")),
    # of two exporters one has not got the new budget yet
    Story(
        (Kind.BELOW,),
        _pace("pair", 4, None)
        | {
            f"llm_serving_cost_budget_usd_per_month{_scope('pair', f',instance={instance!r}')}".replace("'", '"'): held(
                (41 * HOUR, budget)
            )
            for instance, budget in (("a", 2900), ("b", 3000))
        },
    ),
    # nobody says the budget for ten minutes
    Story(
        (Kind.RESTART,),
        _pace("again", 4, _with_gap(2900, 26 * HOUR, 2, 15 * HOUR)),
        {"40h2m": (_over("2920", "2900", "41", "again"),)},
    ),
    interval=EVERY,
    rules="cost_clusters",
)


def _spent(identity: str, samples: int, **by_phase: float) -> dict[str, str]:
    name = "llm_serving_cost_usd_total"
    return {
        f'{name}{{{identity},phase="{phase}",rate="h100",method="roofline"}}': counter(Grows(samples, by))
        for phase, by in by_phase.items()
    }


_BUDGET_RAW = Case(
    "BudgetExceeded",
    "from the counters, energy beside GPU time",
    # 0.3 USD every five minutes are 3.6 an hour, and 0.4 of energy: 4 x 730 = 2920; without the energy 2628
    {
        **_spent(engine("chat"), 10 * HOUR, idle=0.2, decode=0.05, prefill=0.05),
        f"llm_serving_energy_cost_usd_total{{{engine('chat')}}}": counter(Grows(10 * HOUR, 0.4 / HOUR)),
        "llm_serving_cost_budget_usd_per_month{}": held((10 * HOUR, 2900)),
    },
    # six hours of history, and two in which it lasts
    "9h2m",
    (_over("2920", "2900", "9"),),
    interval=EVERY,
    rules="cost_hours",
    more=(("7h52m", ()),),
)


# --- TokenExplosion: tokens/s of an hour above 3 x the median of this hour, that above 100; for 30m; warning -------------------------------

_TOKENS, _MEDIAN = "tokens:rate1h", "tokens:past_hour_median7d"


def _traffic(model: str, now: str | float | None, usual: float | None = 120, role: str = "unified") -> dict[str, str]:
    found = {}
    if now is not None:
        found |= _model(model, _TOKENS, now if isinstance(now, str) else held((100, now)), role)
    if usual is not None:
        found |= _model(model, _MEDIAN, held((100, usual)), role)
    return found


def _exploded(model: str, now: str, usual: str = "120", role: str = "unified") -> Firing:
    return firing(
        "TokenExplosion",
        "warning",
        "cost",
        _labels(model, role),
        f"{model} ({role}): far more tokens than usual, {now} per second",
        f"Over the last hour it was {now} tokens/s, computed in prefill or generated; at this hour it usually is {usual} (median of the last "
        "days).",
        "find the client: a loop, a job, or prompts that the cache no longer finds",
        _variables(model, role),
    )


_EXPLOSION = together(
    "TokenExplosion",
    "far more tokens than at this hour of other days",
    ("29m30s", "31m30s", "90m30s"),
    Story(
        (Kind.FIRES, Kind.NOT_YET, Kind.RECOVERY, Kind.ONE_REPLICA),
        _traffic("chat", held((60, 400), (40, 200))),
        {"31m30s": (_exploded("chat", "400"),)},
    ),
    Story(
        (Kind.FIRES, Kind.ROLES),
        # the front end counts what its workers count; where nobody reads them it counts for them
        {
            **_traffic("split", 900, 200, "prefill"),
            **_traffic("split", 300, 200, "decode"),
            **_traffic("split", 1200, 300, "frontend"),
            **_traffic("hidden", 1200, 300, "frontend"),
        },
        {
            moment: (_exploded("split", "900", "200", "prefill"), _exploded("hidden", "1.2k", "300", "frontend"))
            for moment in ("31m30s", "90m30s")
        },
    ),
    Story((Kind.BELOW,), _traffic("calm", 360)),
    Story((Kind.LOW_TRAFFIC,), _traffic("toy", 5000, 100)),
    Story((Kind.FIRST_WEEK,), _traffic("new", 5000, None)),
    Story((Kind.RESTART,), _traffic("again", _with_gap(400, 20, 10, 70)), {"90m30s": (_exploded("again", "400"),)}),
    Story((Kind.ABSENT,), _traffic("mute", None)),
    # the prefix cache finds nothing any more, and all is computed again
    Story(
        (Kind.BELOW,),
        {
            **_traffic("uncached", 5000),
            **_model("uncached", "prefix_cache_hit:ratio_increase30m", held((100, 0.1)), "unified"),
            **_model("uncached", "prefix_cache_hit:median7d", held((100, 0.6)), "unified"),
        },
    ),
)


# --- UnpricedGPU: no price for a target while others have one; for 1h; info ----------------------------------------------------------------

_PRICED = {'llm_serving_gpu_price_usd_per_hour{target="other-0",gpu_name="H100 SXM",rate="h100"}': held((121, 2.5))}


def _signal(name: str, reason: str, values: str | float = 0.0, instance: str = "") -> dict[str, str]:
    told = f'instance="{instance}",' if instance else ""
    text = values if isinstance(values, str) else held((121, values))
    return {f'llm_serving_signal_available{{{told}target="{name}",signal="cost_usd_total",reason="{reason}"}}': text}


def _unpriced(model: str, name: str, reason: str, role: str = "unified") -> Firing:
    return firing(
        "UnpricedGPU",
        "info",
        "cost",
        {"target": name, **_labels(model, role)},
        f"{model} on {name}: its GPU time has no price",
        f"Other targets have one. Reason: {reason} - what is said of the fleet's cost leaves this target out.",
        "state its price, or whose the GPU is, in the price file",
        f"var-target={name}&{_variables(model, role)}",
    )


_UNPRICED = together(
    "UnpricedGPU",
    "others have a price",
    ("59m30s", "61m30s", "110m30s"),
    Story(
        (Kind.FIRES, Kind.NOT_YET, Kind.RECOVERY, Kind.ONE_REPLICA),
        {
            **_PRICED,
            **target("chat"),
            **_signal("chat-0", "no_price", f"{held((90, 0))} stale"),
            **_signal("chat-0", "", f"{NOTHING}x90 {held((31, 1))}"),
        },
        {"61m30s": (_unpriced("chat", "chat-0", "no_price"),)},
    ),
    Story(
        (Kind.FIRES, Kind.ROLES),
        {
            **target("split", role="prefill"),
            **_signal("split-0", "gpu_claimed_twice"),
            # a front end has no GPU
            **target("split", "router", role="frontend"),
            **_signal("router", "other_role"),
        },
        {moment: (_unpriced("split", "split-0", "gpu_claimed_twice", "prefill"),) for moment in ("61m30s", "110m30s")},
    ),
    Story(
        (Kind.FIRES,),
        {**target("two", "two-0"), **_signal("two-0", "price_ambiguous")},
        {moment: (_unpriced("two", "two-0", "price_ambiguous"),) for moment in ("61m30s", "110m30s")},
    ),
    # other reasons are other alerts'
    Story((Kind.BELOW,), {**target("dark"), **_signal("dark-0", "no_gpus")}),
    # of two exporters one has the prices
    Story((Kind.BELOW,), {**target("pair"), **_signal("pair-0", "no_price", instance="a"), **_signal("pair-0", "", 1, "b")}),
    Story(
        (Kind.RESTART,),
        {**target("again"), **_signal("again-0", "no_price", _with_gap(0, 30, 10, 81))},
        {"110m30s": (_unpriced("again", "again-0", "no_price"),)},
    ),
    Story((Kind.ABSENT,), target("silent")),
    records=False,
)  # fmt: skip

_NO_PRICES = Case(
    "UnpricedGPU",
    "no target has a price: nobody asked for costs",
    {**target("chat"), **_signal("chat-0", "no_price")},
    "110m30s",
    records=False,
    kinds=frozenset((Kind.ABSENT,)),
)


# --- ReportMissed: due more than a day ago and no success since; for 1h; warning -----------------------------------------------------------

# 23 hours before the history begins: it is a day late after one, and fires after two
_DUE = -82_800
_WEEK = 604_800


def _report(
    cluster: str, due: str | float | None, success: str | float | None, instance: str = "a"
) -> Mapping[str, str]:
    found = {}
    for name, value in (("due", due), ("last_success", success)):
        if value is not None:
            text = value if isinstance(value, str) else held((250, value))
            series = f"llm_serving_report_{name}_timestamp_seconds"
            found[f'{series}{{cluster="{cluster}",instance="{instance}"}}'] = text
    return found


def _late(cluster: str, due: str, success: str) -> Firing:
    return firing(
        "ReportMissed",
        "warning",
        "cost",
        {"cluster": cluster},
        f"{cluster} the cost review was due {due} ago and has not come",
        f"The last one that was written, and sent where that is configured: {success} ago.",
        "read the exporter's log for the review's failure",
        f"var-cluster={cluster}",
    )


_MISSED = together(
    "ReportMissed",
    "a day late",
    ("1h50m", "2h10m", "4h"),
    Story(
        (Kind.FIRES, Kind.NOT_YET, Kind.RECOVERY),
        # the last one was on time; after three hours somebody makes the missing one
        _report("eu", _DUE, held((180, _DUE - _WEEK), (70, 10_800))),
        {"2h10m": (_late("eu", "1d 1h 10m 0s", "8d 1h 10m 0s"),)},
    ),
    Story(
        (Kind.FIRES, Kind.FIRST_WEEK),
        _report("never", _DUE, None),
        {
            "2h10m": (_late("never", "1d 1h 10m 0s", "unknown"),),
            "4h": (_late("never", "1d 3h 0m 0s", "unknown"),),
        },
    ),
    Story((Kind.BELOW,), {**_report("done", _DUE, _DUE), **_report("today", -43_200, _DUE - _WEEK)}),
    # one of a pair makes the review, both know when it was due
    Story((Kind.BELOW,), {**_report("pair", _DUE, None), **_report("pair", _DUE, _DUE + 60, "b")}),
    Story(
        (Kind.RESTART,),
        _report("again", _with_gap(_DUE, 90, 10, 150), _DUE - _WEEK),
        # an exporter that is away does not make it come
        {
            "2h10m": (_late("again", "1d 1h 10m 0s", "8d 1h 10m 0s"),),
            "4h": (_late("again", "1d 3h 0m 0s", "8d 3h 0m 0s"),),
        },
    ),
    # no schedule, or none that was due yet
    Story((Kind.ABSENT,), _report("none", None, _DUE - _WEEK)),
    records=False,
    rules="cost_clusters",
)

CASES = (_PER_TOKEN, _IDLE, _BUDGET, _BUDGET_RAW, _EXPLOSION, _UNPRICED, _NO_PRICES, _MISSED)
