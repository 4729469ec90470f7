"""IdleSpend, BudgetExceeded, CostPerTokenUp, TokenExplosion and ReportMissed: when they fire and when they do not. Money is slow: most histories have a sample every five minutes."""

from collections.abc import Mapping

from tests.pack.builders import EVERY_ALERT, NOTHING, Grows, counter, engine, firing, held, of_model, told
from tests.pack.promtool import Case, Firing, Kind, Story, together

EVERY = "5m"
HOUR = 12  # samples


def recorded(model: str, name: str, values: str, role: str = "unified", extra: str = "") -> dict[str, str]:
    """What a rule recorded of a model."""
    return {f"model:llm_serving_{name}{{{of_model(model, role)}{extra}}}": values}


def labels(model: str, role: str = "unified") -> dict[str, str]:
    """Those of an alert of a model."""
    return {"model_name": model, "role": role}


def with_gap(value: float, before: int, gap: int, after: int) -> str:
    """A series that ends and comes back: the exporter restarts, and nothing carries over."""
    return f"{held((before, value))} stale {NOTHING}x{gap - 1} {held((after, value))}"


# --- costPerTokenUp and TokenExplosion: when they fire and when they do not ---


# --- CostPerTokenUp: six hours' USD per million tokens above 1.5 x the median of 7 days; for 6h; warning -----------------------------------

_NOW, _USUAL = "cost_usd_per_million_tokens:ratio6h_compared", "cost_usd_per_million_tokens:median7d"


def _price(model: str, now: str | float | None, usual: float | None = 2.0, role: str = "unified") -> dict[str, str]:
    found = {}
    if now is not None:
        found |= recorded(model, _NOW, now if isinstance(now, str) else held((14 * HOUR, now)), role)
    if usual is not None:
        found |= recorded(model, _USUAL, held((14 * HOUR, usual)), role)
    return found


def _dear(model: str, now: str, role: str = "unified") -> Firing:
    return firing(
        "CostPerTokenUp",
        labels(model, role),
        f"{model} ({role}): a million tokens cost {now} USD",
        f"Over six hours, idle and down time included, a million tokens (prompt as sent and generated) cost {now} USD; usually it is "
        "2 (median of 7 days).",
    )


_PER_TOKEN = together(
    "CostPerTokenUp",
    "dearer than it usually is",
    ("5h52m", "6h12m", "13h2m"),
    Story(
        (Kind.FIRES, Kind.NOT_YET, Kind.RECOVERY, Kind.ONE_REPLICA),
        _price("chat", held((12 * HOUR, 3.2), (2 * HOUR, 2))),
        {"6h12m": _dear("chat", "3.2")},
    ),
    Story(
        (Kind.FIRES, Kind.ROLES),
        # each pool by its own median
        {**_price("split", 3.5, role="decode"), **_price("split", 2.5, role="prefill")},
        {moment: _dear("split", "3.5", "decode") for moment in ("6h12m", "13h2m")},
    ),
    # half as much again, not more
    Story((Kind.BELOW,), {**_price("even", 3), **_price("calm", 2.9)}),
    # of fewer tokens than a million nothing is recorded to be compared; the median is that of better days
    Story((Kind.LOW_TRAFFIC,), _price("small", None)),
    Story((Kind.FIRST_WEEK,), _price("new", 9, None)),
    # ten minutes without an exporter after three hours: six hours start again, and are over at nine
    Story((Kind.RESTART,), _price("again", with_gap(3.2, 3 * HOUR, 2, 11 * HOUR)), {"13h2m": _dear("again", "3.2")}),
    # without a price there is neither
    Story((Kind.ABSENT,), _price("free", None, None) | recorded("free", "tokens:rate1h", held((14 * HOUR, 500)))),
    interval=EVERY,
)  # fmt: skip


# --- TokenExplosion: tokens/s of an hour above 3 x the median of this hour, that above 100; for 30m; warning -------------------------------

_TOKENS, _MEDIAN = "tokens:rate1h", "tokens:past_hour_median7d"


def _traffic(model: str, now: str | float | None, usual: float | None = 120, role: str = "unified") -> dict[str, str]:
    found = {}
    if now is not None:
        found |= recorded(model, _TOKENS, now if isinstance(now, str) else held((100, now)), role)
    if usual is not None:
        found |= recorded(model, _MEDIAN, held((100, usual)), role)
    return found


def _exploded(model: str, now: str, usual: str = "120", role: str = "unified") -> Firing:
    return firing(
        "TokenExplosion",
        labels(model, role),
        f"{model} ({role}): far more tokens than usual, {now} per second",
        f"Over the last hour it was {now} tokens/s, computed in prefill or generated; at this hour it usually is {usual} (median of the last "
        "days).",
    )


_EXPLOSION = together(
    "TokenExplosion",
    "far more tokens than at this hour of other days",
    ("29m30s", "31m30s", "90m30s"),
    Story(
        (Kind.FIRES, Kind.NOT_YET, Kind.RECOVERY, Kind.ONE_REPLICA),
        _traffic("chat", held((60, 400), (40, 200))),
        {"31m30s": _exploded("chat", "400")},
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
    Story((Kind.RESTART,), _traffic("again", with_gap(400, 20, 10, 70)), {"90m30s": _exploded("again", "400")}),
    Story((Kind.ABSENT,), _traffic("mute", None)),
    # the prefix cache finds nothing any more, and all is computed again
    Story(
        (Kind.BELOW,),
        {
            **_traffic("uncached", 5000),
            **recorded("uncached", "prefix_cache_hit:ratio_increase30m", held((100, 0.1)), "unified"),
            **recorded("uncached", "prefix_cache_hit:median7d", held((100, 0.6)), "unified"),
        },
    ),
)


_TOKEN_CASES = (_PER_TOKEN, _EXPLOSION)


# --- idleSpend and BudgetExceeded: when they fire and when they do not ---


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
        {"cluster": cluster} if cluster else {},
        f"{cluster} a month at this pace costs {month} USD, more than the budget".strip(),
        f"The last 7 days make {month} USD in a month of 730 hours, GPU time and energy. The budget is {budget} USD. "
        f"Hours of the week that were seen: {hours}.",
        rules="cost_clusters" if cluster else EVERY_ALERT,
    )


# 4 x 730 = 2920; hours 0 to 23 are a day, and six hours later it fires
_BUDGET = together(
    "BudgetExceeded",
    "the pace of a week and the budget of a month",
    ("28h52m", "29h12m", "40h2m"),
    Story(
        (Kind.FIRES, Kind.NOT_YET, Kind.RECOVERY),
        _pace("eu", held((35 * HOUR, 4), (6 * HOUR, 3.9)), 2900),
        {"29h12m": _over("2920", "2900", "30", "eu")},
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
        _pace("again", 4, with_gap(2900, 26 * HOUR, 2, 15 * HOUR)),
        {"40h2m": _over("2920", "2900", "41", "again")},
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
    told(
        {
            **_spent(engine("chat"), 10 * HOUR, idle=0.2, decode=0.05, prefill=0.05),
            f"llm_serving_energy_cost_usd_total{{{engine('chat')}}}": counter(Grows(10 * HOUR, 0.4 / HOUR)),
            "llm_serving_cost_budget_usd_per_month{}": held((10 * HOUR, 2900)),
        }
    ),
    # six hours of history, and two in which it lasts
    {"9h2m": _over("2920", "2900", "9"), "7h52m": ()},
    interval=EVERY,
    rules="cost_hours",
)


_SPEND_CASES = (_BUDGET, _BUDGET_RAW)


# --- reportMissed: when it fires and when it does not ---


# --- ReportMissed: due more than a day ago and no success since; for 1h; warning -----------------------------------------------------------

# 23 hours before the history begins: it is a day late after one, and fires after two
_DUE = -82_800
_WEEK = 604_800


def _report(
    cluster: str,
    due: str | float | None,
    success: str | float | None,
    instance: str = "a",
    following: str | float | None = None,
    exporter: str | None = None,
) -> Mapping[str, str]:
    found = {}
    names = "report_due", "report_last_success", "report_next_due"
    values = {f"{name}_timestamp_seconds": value for name, value in zip(names, (due, success, following), strict=True)}
    for name, value in {**values, "exporter_build_info": exporter}.items():
        if value is not None:
            text = value if isinstance(value, str) else held((250, value))
            found[f'llm_serving_{name}{{cluster="{cluster}",instance="{instance}"}}'] = text
    return found


def _until(samples: int, value: float) -> str:
    """A series that ends for good."""
    return f"{held((samples, value))} stale"


def _late(cluster: str, due: str, success: str) -> Firing:
    return firing(
        "ReportMissed",
        {"cluster": cluster},
        f"{cluster} the cost review is overdue by {due}",
        f"The last one that was written, and sent where that is configured: {success} ago.",
        rules="cost_clusters",
    )


_MISSED = together(
    "ReportMissed",
    "a day late",
    ("1h50m", "2h10m", "4h"),
    Story(
        (Kind.FIRES, Kind.NOT_YET, Kind.RECOVERY),
        # the last one was on time; after three hours somebody makes the missing one
        _report("eu", _DUE, held((180, _DUE - _WEEK), (70, 10_800))),
        {"2h10m": _late("eu", "1d 1h 10m 0s", "8d 1h 10m 0s")},
    ),
    Story(
        (Kind.FIRES, Kind.FIRST_WEEK),
        _report("never", _DUE, None),
        {"2h10m": _late("never", "1d 1h 10m 0s", "unknown"), "4h": _late("never", "1d 3h 0m 0s", "unknown")},
    ),
    Story((Kind.BELOW,), {**_report("done", _DUE, _DUE), **_report("today", -43_200, _DUE - _WEEK)}),
    # one of a pair makes the review, both know when it was due
    Story((Kind.BELOW,), {**_report("pair", _DUE, None), **_report("pair", _DUE, _DUE + 60, "b")}),
    Story(
        (Kind.RESTART,),
        _report("again", with_gap(_DUE, 90, 10, 150), _DUE - _WEEK),
        # an exporter that is away does not make it come
        {"2h10m": _late("again", "1d 1h 10m 0s", "8d 1h 10m 0s"), "4h": _late("again", "1d 3h 0m 0s", "8d 3h 0m 0s")},
    ),
    # the exporter with the schedule is gone for good before its next review is due
    Story(
        (Kind.FIRES,),
        _report(
            "gone",
            _until(40, _DUE - _WEEK),
            _until(40, _DUE - _WEEK),
            following=_until(40, _DUE),
            exporter=_until(40, 1),
        ),
        {"2h10m": _late("gone", "1d 1h 10m 0s", "8d 1h 10m 0s"), "4h": _late("gone", "1d 3h 0m 0s", "8d 3h 0m 0s")},
    ),
    # another one has taken over, or nobody wants reviews of it any more
    Story(
        (Kind.BELOW,),
        {
            **_report("taken", _until(40, _DUE - _WEEK), _until(40, _DUE - _WEEK), following=_until(40, _DUE)),
            **_report("taken", _DUE, _DUE + 60, "b", following=_DUE + _WEEK, exporter=held((250, 1))),
            **_report(
                "unasked",
                _until(40, _DUE - _WEEK),
                _until(40, _DUE - _WEEK),
                following=_until(40, _DUE),
                exporter=held((250, 1)),
            ),
        },
    ),
    # one that is there and does nothing
    Story(
        (Kind.FIRES,),
        _report("stuck", _DUE - _WEEK, _DUE - _WEEK, following=_DUE, exporter=held((250, 1))),
        {"2h10m": _late("stuck", "1d 1h 10m 0s", "8d 1h 10m 0s"), "4h": _late("stuck", "1d 3h 0m 0s", "8d 3h 0m 0s")},
    ),
    # no schedule, or none that was due yet
    Story((Kind.ABSENT,), _report("none", None, _DUE - _WEEK)),
    records=False,
    rules="cost_clusters",
)


_REVIEW_CASES = (_MISSED,)

CASES = (*_TOKEN_CASES, *_SPEND_CASES, *_REVIEW_CASES)
