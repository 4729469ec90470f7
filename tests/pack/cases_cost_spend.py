"""IdleSpend and BudgetExceeded: when they fire and when they do not."""

from __future__ import annotations

from tests.pack.builders import NOTHING, Grows, counter, engine, firing, held
from tests.pack.builders_cost import EVERY, HOUR, labels, recorded, variables, with_gap
from tests.pack.promtool import Case, Firing, Kind, Story, together

# --- IdleSpend: more than 0.6 of a day's spend idle, 18 hours of it seen; for 1h; info -----------------------------------------------------


def _idle(model: str, share: str | float, seen: str | None, role: str = "unified") -> dict[str, str]:
    """Idle time costs 2.5 USD an hour, 60 a day."""
    found = recorded(model, "idle_cost:ratio1d", share if isinstance(share, str) else held((24 * HOUR, share)), role)
    found |= recorded(model, "cost_usd:increase1d", held((24 * HOUR, 60)), role, ',phase="idle"')
    if seen is not None:
        found |= recorded(model, "cost_usd:increase1h", seen, role, ',phase="idle"')
    return found


_ALL_DAY = held((24 * HOUR, 2.5))


def _wasted(model: str, share: str, role: str = "unified") -> Firing:
    return firing(
        "IdleSpend",
        "info",
        "cost",
        labels(model, role),
        f"{model} ({role}): {share} of its GPU time was paid for and idle",
        f"In the last day 60 USD went to GPUs that served nothing, {share} of all that the model cost.",
        "context for a review; nobody is notified",
        variables(model, role),
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
        _idle("again", with_gap(0.7, 17 * HOUR + 6, 2, 6 * HOUR), _ALL_DAY),
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
        _pace("again", 4, with_gap(2900, 26 * HOUR, 2, 15 * HOUR)),
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


CASES = (_IDLE, _BUDGET, _BUDGET_RAW)
