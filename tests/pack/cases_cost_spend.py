"""IdleSpend and BudgetExceeded: when they fire and when they do not."""

from __future__ import annotations

from tests.pack.builders import NOTHING, Grows, counter, engine, firing, held, told
from tests.pack.builders_cost import EVERY, HOUR, with_gap
from tests.pack.promtool import Case, Firing, Kind, Story, together

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
    "9h2m",
    (_over("2920", "2900", "9"),),
    interval=EVERY,
    rules="cost_hours",
    more=(("7h52m", ()),),
)


CASES = (_BUDGET, _BUDGET_RAW)
