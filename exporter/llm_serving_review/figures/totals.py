"""What of a week counts, its totals over all owners or some, and unit costs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from math import fsum

from llm_serving_exporter.model.record import Struct, field, replace
from llm_serving_exporter.model.target import Role
from llm_serving_exporter.render.numbers import percent
from llm_serving_review.evidence.usage import Extra, Line, Owner, Usage, sum_by_hour
from llm_serving_review.settings.settings import ApiPrice
from llm_serving_review.tables.sums import group_by_key, sum_by_key, sum_known

# --- Formulas of the review, one function each. None: unknown. docs/internals-report.md has them in words.


MILLION = 1e6
# the price file's own month: 8760 / 12
MONTH_HOURS = 730.0
# the month of the total cost of ownership: 30 days
TCO_MONTH_HOURS = 720.0


def usd_per_million(usd: float | None, tokens: float | None) -> float | None:
    """USD for a million tokens; None without tokens."""
    return usd / tokens * MILLION if usd is not None and tokens else None


def ratio(above: float | None, below: float | None) -> float | None:
    """above / below; None where either is unknown or `below` is 0."""
    return above / below if above is not None and below else None


def change(after: float | None, before: float | None) -> float | None:
    """Relative change, 0.08 for 8 % more; None without something to compare with."""
    return after / before - 1 if after is not None and before else None


def allocated(phase_usd: float, prefill_usd: float, decode_usd: float, all_usd: float) -> float | None:
    """A phase's share of all cost of a target, idle and down time included; None where neither phase has a cost."""
    productive = prefill_usd + decode_usd
    return phase_usd * all_usd / productive if productive > 0 else None


def total_cost_of_ownership(
    gpus: float, usd_per_gpu_hour: float, other_usd_per_month: float, hours: float = TCO_MONTH_HOURS
) -> float:
    """USD a month: GPUs by the hour plus all other costs."""
    return gpus * usd_per_gpu_hour * hours + other_usd_per_month


def api_usd(price: ApiPrice, prompt_tokens: float, cached_tokens: float, output_tokens: float) -> float:
    """What an API would have charged. `prompt_tokens` are those that clients sent; the cached ones among them have a price of their own."""
    cached = min(cached_tokens, prompt_tokens)
    return (
        (prompt_tokens - cached) * price.input_usd_per_million
        + cached * price.cached_input_usd_per_million
        + output_tokens * price.output_usd_per_million
    ) / MILLION


def break_even_tokens(own_usd_per_month: float, api_usd_per_million: float | None) -> float | None:
    """Tokens a month for which the API would charge as much as own serving costs at any load; None where the API is free."""
    return own_usd_per_month / api_usd_per_million * MILLION if api_usd_per_million else None


class Payback(Struct, frozen=True):
    """When a purchase is paid back."""

    months: float | None  # until then; None for never, or where that is not known
    reason: str = ""  # why never, or why nobody knows, as a sentence; "" otherwise
    is_known: bool = True  # whether it is known


def payback(purchase_usd: float, api_usd_per_month: float, own_usd_per_month: float) -> Payback:
    """Months until monthly savings against the API have paid for a purchase."""
    saving = api_usd_per_month - own_usd_per_month
    if saving <= 0:
        words = "as much as" if saving == 0 else "less than"
        return Payback(
            None, f"The API would cost {words} serving the tokens here, so nothing is saved to pay the purchase back."
        )
    return Payback(purchase_usd / saving)


# --- Chooses which of a week's tokens, requests and objective events count, so that each counts once and only where its cost is known.
# Pure.
#
# A front end counts again what its workers count, and with split pools both sides count the prompts. Tokens of a target without a price
# would make those of the others look cheap, and GPU time of a target that counts none would make them look dear: a quotient has both sides
# of the same engines.


# whose events say what users had, the first that has any
_OBSERVERS = (Role.FRONTEND, Role.UNIFIED, Role.DECODE, Role.PREFILL)
# which pool's count is taken where a model has both
_POOL = {
    "prompt_tokens": Role.PREFILL,
    "cached_tokens": Role.PREFILL,
    "decode_tokens": Role.DECODE,
    "requests": Role.DECODE,
}

_POOLS = frozenset({Role.PREFILL, Role.DECODE})
# phases of time in which a target served nothing; what of its cost may lie elsewhere, such as while it started
_AT_REST = frozenset({"idle", "down"})
_LITTLE_WORK = 0.05

Place = tuple[Extra, str]
Shares = list[float]


class _Priced(Struct, frozen=True):
    """The share of GPU time that has a price, by hour."""

    targets: dict[Place, Shares]  # by target
    models: dict[Place, Shares]  # by model


def count_once(usage: Usage, identity: Sequence[str] = ()) -> Usage:
    """The usage with only what counts. `identity`: labels that tell fleets apart; models of the same name in two fleets are two models."""

    model = _find_model(identity)
    priced = _Priced(_find_priced_shares(usage, lambda owner: owner.who), _find_priced_shares(usage, model))

    def keep_counted(name: str) -> tuple[Line, ...]:
        return _keep_once(name, _keep_priced(getattr(usage, name), priced, model), model)

    return replace(
        usage,
        prefill_tokens=keep_counted("prefill_tokens"),
        decode_tokens=keep_counted("decode_tokens"),
        prompt_tokens=keep_counted("prompt_tokens"),
        cached_tokens=keep_counted("cached_tokens"),
        requests=keep_counted("requests"),
        slo=_keep_observed(usage.slo, model),
    )


class Counting(Struct, frozen=True):
    """Owners whose GPU time stands over a sum, because what is summed is counted there."""

    tokens: frozenset[Owner]  # over prompt tokens as sent and generated ones
    of_phase: Mapping[str, frozenset[Owner]]  # over tokens of a phase, by its name
    requests: frozenset[Owner]
    cached: frozenset[Owner]  # over prompt tokens of which the cached ones are counted


def find_counting(usage: Usage, identity: Sequence[str] = ()) -> Counting:
    """Of usage as it counts, after `count_once`.

    An engine counts by itself, or a front end or the other pool of its model counts for it. One that served nothing bears its model's
    tokens with the others; one that worked and counted nothing does not.
    """
    model = _find_model(identity)
    all_usd = sum_by_key((line.owner, line.total) for line in usage.cost)
    work_usd = sum_by_key((line.owner, line.total) for line in usage.cost if line.of[0] not in _AT_REST)
    at_rest = {owner for owner, usd in all_usd.items() if work_usd.get(owner, 0.0) <= _LITTLE_WORK * usd}

    def find(*names: str) -> frozenset[Owner]:
        own = {name: sum_by_key((line.owner, line.total) for line in getattr(usage, name)) for name in names}
        roles = {name: _find_roles(getattr(usage, name), model) for name in names}
        there = {name: {model(owner) for owner in owners} for name, owners in own.items()}

        def by_others(owner: Owner, name: str) -> bool:
            of_model, side = roles[name].get(model(owner), set()), _POOL.get(name)
            if owner.role in _POOLS and owner.role != side and of_model & ({side} if side else _POOLS):
                return True
            # without a name nobody knows whose replica it is
            is_borne = owner in at_rest and bool(owner.model_name) and model(owner) in there[name]
            return Role.FRONTEND in of_model or is_borne

        return frozenset(
            owner
            for owner in {*all_usd, *(owner for owners in own.values() for owner in owners)}
            if all(owner in own[name] or by_others(owner, name) for name in names)
            and (any(own[name].get(owner) for name in names) or all(by_others(owner, name) for name in names))
        )

    return Counting(
        find("prompt_tokens", "decode_tokens"),
        {"prefill": find("prefill_tokens"), "decode": find("decode_tokens")},
        find("requests"),
        find("prompt_tokens", "cached_tokens"),
    )


def _find_model(identity: Sequence[str]) -> Callable[[Owner], Place]:
    def model(owner: Owner) -> Place:
        return tuple((name, owner.label(name)) for name in identity), owner.model_name

    return model


def _find_priced_shares(usage: Usage, place: Callable[[Owner], Place]) -> dict[Place, Shares]:
    """The share of GPU time that has a price, by place and hour: 1 where only the cost is known, 0 where there is no price."""
    found = {}
    for who, lines in group_by_key((place(line.owner), line) for line in usage.gpu_seconds).items():
        count = len(lines[0].hours)
        priced, whole = sum_by_hour((line for line in lines if line.of[1]), count), sum_by_hour(lines, count)
        found[who] = [(part or 0.0) / all_ if all_ else 0.0 for part, all_ in zip(priced, whole, strict=True)]
    for line in usage.cost:
        into_shares = found.setdefault(place(line.owner), [0.0] * len(line.hours))
        for index, value in enumerate(line.hours):
            if value and not into_shares[index]:
                into_shares[index] = 1.0
    return found


def _keep_priced(lines: Iterable[Line], priced: _Priced, model: Callable[[Owner], Place]) -> tuple[Line, ...]:
    """Lines, only in the hours in which their target has a cost; for a front end, in which its model has one."""
    found = []
    for line in lines:
        owner = line.owner
        shares = priced.targets.get(owner.who)
        if owner.role == Role.FRONTEND and (shares is None or not any(shares)):
            shares = priced.models.get(model(owner))
        if shares is None or not any(shares):
            continue
        hours = tuple(
            value * share if value is not None and share else None
            for value, share in zip(line.hours, shares, strict=True)
        )
        found.append(line if hours == line.hours else Line(owner, line.of, hours))
    return tuple(found)


def _keep_once(name: str, lines: tuple[Line, ...], model: Callable[[Owner], Place]) -> tuple[Line, ...]:
    """Drops front ends whose workers count as well, and of split pools the side that does not count as a user would."""
    roles = _find_roles(lines, model)

    def kept(owner: Owner) -> bool:
        there = roles.get(model(owner), set())
        if owner.role == Role.FRONTEND:
            return not there - {Role.FRONTEND}
        return name not in _POOL or owner.role not in _POOLS or not there >= _POOLS or owner.role == _POOL[name]

    return tuple(line for line in lines if kept(line.owner))


def _keep_observed(lines: tuple[Line, ...], model: Callable[[Owner], Place]) -> tuple[Line, ...]:
    """For each objective of a model, the events counted nearest to its users."""
    chosen = []
    for slo in sorted({line.of[0] for line in lines}):
        of_slo = tuple(line for line in lines if line.of[0] == slo)
        roles = _find_roles(of_slo, model)
        for line in of_slo:
            there = roles.get(model(line.owner), set())
            nearest = next((role for role in _OBSERVERS if role in there), line.owner.role)
            if line.owner.role == nearest:
                chosen.append(line)
    return tuple(chosen)


def _find_roles(lines: Iterable[Line], model: Callable[[Owner], Place]) -> dict[Place, set[str]]:
    """The roles of each model that counted anything."""
    found: dict[Place, set[str]] = {}
    for line in lines:
        if line.total:
            found.setdefault(model(line.owner), set()).add(line.owner.role)
    return found


# --- A week's usage -> totals over all owners or some, and unit costs.


PHASES = ("prefill", "decode", "idle", "down", "unattributed")
STATES = ("busy", "idle", "down", "unknown")
TOKEN_PHASES = ("prefill", "decode")
_JOULES_PER_KWH = 3.6e6

# of the spend: where less is not counted, nothing is said of it
_LEAST_UNCOUNTED = 0.005

Chosen = Callable[[Owner], bool]


class Counted(Struct, frozen=True):
    """Both sides of a unit cost: GPU time and tokens of the same engines. None: nothing was counted, which is not 0."""

    usd: float | None  # GPU time
    prompt_tokens: float | None  # as clients sent them, cached ones included
    cached_tokens: float | None  # that the prefix cache had
    decode_tokens: float | None


class Totals(Struct, frozen=True):
    """Sums over a week. None: nothing was counted, which is not 0."""

    usd: float | None = None  # GPU time
    usd_by_phase: Mapping[str, float] = field(default_factory=dict)  # GPU time by phase
    gpu_hours: float | None = None  # in all states
    gpu_hours_by_state: Mapping[str, float] = field(default_factory=dict)  # busy, idle, down, unknown
    unpriced_gpu_hours: float = 0.0  # part of `gpu_hours` that is in no cost
    prefill_tokens: float | None = None  # prompt tokens that were computed
    decode_tokens: float | None = None
    prompt_tokens: float | None = None  # prompt tokens as clients sent them, cached ones included
    cached_tokens: float | None = None  # prompt tokens that the prefix cache had
    requests: float | None = None
    energy_kwh: float | None = None  # energy of the GPUs
    energy_usd: float | None = None  # electricity that the GPU rates do not include
    carbon_kg: float | None = None  # kilograms of CO2 equivalent
    savings_usd: float | None = None  # GPU time that the prefix cache saved
    # by phase, with idle and down time borne by the tokens of the same target
    allocated_usd: Mapping[str, float] = field(default_factory=dict)
    # cost that no token bears, because its target did neither phase, or counts no tokens of it
    tokenless_usd: float = 0.0
    # of engines whose tokens, prompt as sent and generated, are counted; None where that is all of them
    counted: Counted | None = None
    # `usd_by_phase` of engines whose tokens of that phase are counted; None where that is all of them
    counted_usd_by_phase: Mapping[str, float] | None = None
    requests_usd: float | None = None  # `usd` of engines whose requests are counted; None where that is all of them
    # `prompt_tokens` of engines whose cached ones are counted; None where that is all of them
    cacheable_tokens: float | None = None

    @property
    def all_usd(self) -> float | None:
        """GPU time and electricity."""
        return sum_known((self.usd, self.energy_usd))

    @property
    def of_tokens(self) -> Counted:
        """Both sides of what a token costs."""
        return self.counted or Counted(self.usd, self.prompt_tokens, self.cached_tokens, self.decode_tokens)

    @property
    def tokens(self) -> float | None:
        """Prompt as sent and generated, of engines that count both; None where none does."""
        counted = self.of_tokens
        if counted.prompt_tokens is None or counted.decode_tokens is None:
            return None
        return counted.prompt_tokens + counted.decode_tokens

    @property
    def tokens_share(self) -> float | None:
        """Share of the spend whose tokens are counted: the others' money is in no unit cost."""
        return ratio(self.of_tokens.usd, self.usd)

    @property
    def requests_share(self) -> float | None:
        """Share of the spend whose requests are counted."""
        return ratio(self.usd if self.requests_usd is None else self.requests_usd, self.usd)

    def phase_tokens(self, phase: str) -> float | None:
        """Tokens computed (prefill) or generated (decode)."""
        return self.prefill_tokens if phase == "prefill" else self.decode_tokens

    def busy_usd_per_million(self, phase: str) -> float | None:
        """Of the phase's own GPU time, of engines that count its tokens."""
        of = self.usd_by_phase if self.counted_usd_by_phase is None else self.counted_usd_by_phase
        return usd_per_million(of.get(phase), self.phase_tokens(phase))

    def allocated_usd_per_million(self, phase: str) -> float | None:
        """With idle and down time borne by the tokens."""
        return usd_per_million(self.allocated_usd.get(phase), self.phase_tokens(phase))

    @property
    def blended_usd_per_million(self) -> float | None:
        """All GPU cost of engines whose tokens are counted, over these."""
        return usd_per_million(self.of_tokens.usd, self.tokens)

    @property
    def usd_per_request(self) -> float | None:
        """All GPU cost of engines whose requests are counted, over these, whatever the reason of their end."""
        return ratio(self.usd if self.requests_usd is None else self.requests_usd, self.requests)

    @property
    def usd_per_thousand_requests(self) -> float | None:
        """The same of a thousand."""
        return None if self.usd_per_request is None else 1000 * self.usd_per_request

    @property
    def tokens_per_usd(self) -> float | None:
        """All tokens over all GPU cost of engines that count them."""
        return ratio(self.tokens, self.of_tokens.usd)

    def share(self, phase: str) -> float | None:
        """A phase's share of the cost."""
        return ratio(self.usd_by_phase.get(phase, 0.0), self.usd)

    @property
    def cached_ratio(self) -> float | None:
        """Cached prompt tokens over prompt tokens as sent, of engines that count both."""
        return ratio(self.cached_tokens, self.prompt_tokens if self.cacheable_tokens is None else self.cacheable_tokens)


def say_counted(share: float | None, what: str = "tokens") -> str:
    """Of how much of the spend a unit cost is: `of the 12 % of the spend whose tokens are counted`; "" where it is of all of it."""
    if share is None or share >= 1 - _LEAST_UNCOUNTED:
        return ""
    return f"of the {percent(share, 0)} of the spend whose {what} are counted"


def sum_usage(usage: Usage, chosen: Chosen = lambda owner: True, counting: Counting | None = None) -> Totals:
    """Totals over the owners that `chosen` accepts. `counting`: of this usage, None to find it for fleets without identity labels."""
    counts = counting or find_counting(usage)

    def one(lines: Iterable[Line], of: Collection[Owner] | None = None) -> float | None:
        return sum_known(line.total for line in lines if chosen(line.owner) and (of is None or line.owner in of))

    def each(lines: Iterable[Line]) -> dict[str, float]:
        return sum_by_key((line.of[0], line.total) for line in lines if chosen(line.owner))

    cost = [line for line in usage.cost if chosen(line.owner)]

    def narrow(owners: frozenset[Owner], *summed: Iterable[Line]) -> frozenset[Owner] | None:
        """None where that is all of them."""
        every = all(line.owner in owners for lines in (cost, *summed) for line in lines if chosen(line.owner))
        return None if every else owners

    hours_by_state = {state: seconds / 3600 for state, seconds in each(usage.gpu_seconds).items()}
    joules, grams = one(usage.energy_joules), one(usage.carbon_grams)
    by_phase = {phase: narrow(counts.of_phase[phase]) for phase in TOKEN_PHASES}
    borne, tokenless = _allocate(cost, by_phase)
    both = narrow(counts.tokens, usage.prompt_tokens, usage.decode_tokens)
    requests, cached = narrow(counts.requests), narrow(counts.cached, usage.prompt_tokens)
    return Totals(
        usd=one(usage.cost),
        usd_by_phase=each(usage.cost),
        gpu_hours=fsum(hours_by_state.values()) if hours_by_state else None,
        gpu_hours_by_state=hours_by_state,
        unpriced_gpu_hours=fsum(
            line.total for line in usage.gpu_seconds if not line.of[1] and chosen(line.owner)
        ) / 3600,
        prefill_tokens=one(usage.prefill_tokens),
        decode_tokens=one(usage.decode_tokens),
        prompt_tokens=one(usage.prompt_tokens),
        cached_tokens=one(usage.cached_tokens),
        requests=one(usage.requests),
        energy_kwh=None if joules is None else joules / _JOULES_PER_KWH,
        energy_usd=one(usage.energy_cost),
        carbon_kg=None if grams is None else grams / 1000,
        savings_usd=one(usage.savings),
        allocated_usd=borne,
        tokenless_usd=tokenless,
        counted=None if both is None else Counted(
            *(one(lines, both) for lines in (usage.cost, usage.prompt_tokens, usage.cached_tokens, usage.decode_tokens))
        ),
        counted_usd_by_phase=None if by_phase == dict.fromkeys(TOKEN_PHASES) else {
            phase: one((line for line in cost if line.of[0] == phase), owners) or 0.0 for phase, owners in by_phase.items()
        },
        requests_usd=None if requests is None else one(usage.cost, requests) or 0.0,
        cacheable_tokens=None if cached is None else one(usage.prompt_tokens, cached) or 0.0,
    )  # fmt: skip


def _allocate(cost: Iterable[Line], counting: Mapping[str, Collection[Owner] | None]) -> tuple[dict[str, float], float]:
    """USD by phase with idle and down time borne by the tokens, and what no token bears. `counting`: by phase, who counts its tokens; None
    for all."""
    borne: dict[str, list[float]] = {phase: [] for phase in TOKEN_PHASES}
    nobody = []
    for owner, phases in sum_by_owner(cost).items():
        prefill, decode, everything = phases.get("prefill", 0.0), phases.get("decode", 0.0), fsum(phases.values())
        for phase in TOKEN_PHASES:
            share = allocated(phases.get(phase, 0.0), prefill, decode, everything)
            who = counting[phase]
            if share is not None and (who is None or owner in who):
                borne[phase].append(share)
            else:
                nobody.append(share or 0.0)
        if prefill + decode <= 0:
            nobody.append(everything)
    return {phase: fsum(shares) for phase, shares in borne.items()}, fsum(nobody)


def sum_by_owner(lines: Iterable[Line]) -> dict[Owner, dict[str, float]]:
    """Sums by owner and by the first of the line's own labels."""
    of_owner = group_by_key((line.owner, (line.of[0], line.total)) for line in lines)
    return {owner: sum_by_key(pairs) for owner, pairs in of_owner.items()}
