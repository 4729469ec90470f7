"""Evidence made by hand, for what is worked out from it and how it is shown."""

from collections.abc import Mapping
from zoneinfo import ZoneInfo

from llm_serving_exporter.model.record import name_fields
from llm_serving_review.evidence.usage import (
    Book,
    Episode,
    Evidence,
    Extra,
    Fleet,
    Gap,
    Gauge,
    Hours,
    Line,
    Owner,
    Usage,
)
from llm_serving_review.evidence.week import Week, parse_week, week_before
from llm_serving_review.figures.totals import Totals, read_totals
from llm_serving_review.tables.facts import BEFORE, NOW, FactTable

UTC = ZoneInfo("UTC")
WEEK = parse_week("2026-W46", UTC)
NO_USAGE = Usage()


def owner(target: str = "a:8000", model: str = "m", role: str = "unified", **extra: str) -> Owner:
    return Owner(tuple(extra.items()), target, model, role)


def flat(whose: Owner, of: tuple[str, ...], total: float, hours: int = 168) -> Line:
    """A total spread evenly."""
    return Line(whose, of, (total / hours,) * hours)


def usage(
    whose: Owner,
    usd: Mapping[str, float],
    prefill: float = 0.0,
    decode: float = 0.0,
    rate: str = "spot",
    price: float = 2.0,
) -> Usage:
    """A target's week: USD by phase, tokens; GPU time follows from the price."""
    state = {"idle": "idle", "down": "down", "unattributed": "unknown"}
    seconds: dict[str, float] = {}
    for phase, value in usd.items():
        name = state.get(phase, "busy")
        seconds[name] = seconds.get(name, 0.0) + value / price * 3600
    return Usage(
        cost=tuple(flat(whose, (phase, rate, "roofline"), value) for phase, value in usd.items()),
        gpu_seconds=tuple(flat(whose, (name, rate), value) for name, value in seconds.items()),
        prefill_tokens=(flat(whose, (), prefill),),
        decode_tokens=(flat(whose, (), decode),),
        prompt_tokens=(flat(whose, (), 1.25 * prefill),),
        cached_tokens=(flat(whose, (), 0.25 * prefill),),
        requests=(flat(whose, (), decode / 250),),
        slo=(flat(whose, ("ttft", "good"), 990.0), flat(whose, ("ttft", "bad"), 10.0)),
    )


def joined(*parts: Usage) -> Usage:
    """Several targets."""
    names = name_fields(Usage)
    return Usage(**{name: tuple(line for part in parts for line in getattr(part, name)) for name in names})


def gauge(hours: Hours | float, **labels: str) -> Gauge:
    return Gauge(labels, hours if isinstance(hours, tuple) else (hours,) * 168)


def facts_of(now: Usage, before: Usage = NO_USAGE, identity: tuple[str, ...] = (), week: Week = WEEK) -> FactTable:
    """Both weeks with only what counts."""
    return FactTable({NOW: (week, now), BEFORE: (week_before(week, UTC), before)}, identity)


def totals_of(now: Usage, identity: tuple[str, ...] = ()) -> Totals:
    """Over all owners."""
    return read_totals(facts_of(now, identity=identity)).get((NOW, ""), Totals())


def evidence(now: Usage, earlier: Usage, **more: object) -> Evidence:
    return Evidence(WEEK, week_before(WEEK, UTC), now, earlier, **more)


def fleet_of(models: int, teams: int, gaps: int, name: str = "model") -> Evidence:
    """Many models, teams, nodes and gaps; `name` begins every name that comes from outside."""
    parts, earlier, prices, nodes = [], [], [], []
    for number in range(models):
        extra: Extra = (("team", f"{name}-team-{number % teams}"),)
        whose = Owner(extra, f"{name}-target-{number}:8000", f"{name}/{number}", "unified")
        usd = {"prefill": 30.0 + number, "decode": 60.0 + number, "idle": 80.0, "down": 2.0, "unattributed": 1.0}
        parts.append(usage(whose, usd, 9e8, 1e8, rate=f"{name}-rate"))
        earlier.append(usage(whose, {**usd, "idle": 60.0}, 8e8, 0.9e8, rate=f"{name}-rate"))
        prices.append(gauge(2.0, target=whose.target, gpu_name=f"{name}-gpu", rate=f"{name}-rate"))
        nodes.append(gauge(1.0, target=whose.target, node=f"{name}-node-{number}"))
    model = {"model_name": f"{name}/0", "role": "unified"}
    holes = tuple(
        Gap(
            (),
            f"{name}-target-{number}:8000",
            WEEK.begin + 7200 * number,
            WEEK.begin + 7200 * number + 600,
            True,
            1.0,
            2.0,
        )
        for number in range(gaps)
    )
    return evidence(
        joined(*parts),
        joined(*earlier),
        book=Book(
            prices=tuple(prices),
            nodes=tuple(nodes),
            committed=(gauge(float(models), rate=f"{name}-rate"),),
            rates={f"{name}-rate": "reserved"},
            budget_usd_per_month=1000.0,
        ),
        fleet=Fleet(
            present=(gauge(3.0, **model),),
            required=(gauge(1.0, **model, reserve="none"), gauge(2.0, **model, reserve="nodes")),
            bandwidth=(gauge(0.4, **model, source="gpm"),),
            batch=(gauge(0.2, **model),),
        ),
        episodes=(Episode(f"LLMServing{name}", "critical", name, WEEK.begin, WEEK.begin + 600),),
        gaps=holes,
        methods=(("roofline", f"{name}"),),
        notes=(f"Prometheus warned: {name}",),
    )
