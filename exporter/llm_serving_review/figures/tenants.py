"""The engines' cost by tenant: shares from gateways, money from the engines, model by model and hour by hour. Pure.

A gateway and an engine never count the same: requests that are tried again, answers from the gateway's own cache, streams that break off,
another tokenizer. So a gateway says only how tokens divide among tenants; how many there were, and what they cost, the engines say.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from math import fsum
from typing import Any, NamedTuple

from llm_serving_exporter.model.record import Struct
from llm_serving_review.evidence.context import TenantUsage
from llm_serving_review.evidence.usage import Hours
from llm_serving_review.figures.totals import ratio, usd_per_million
from llm_serving_review.tables.facts import NOW, FactTable, read_fleet
from llm_serving_review.tables.sums import group_by_key, sum_known

# --- What the division of the spend by tenant comes to: rows, and how far gateways and engines agree.


# beyond these a reader should know why
LEAST_SCALE, MOST_SCALE = 0.9, 1.1

Fleet = tuple[str, ...]


class TenantCost(Struct, frozen=True):
    """One tenant's tokens of one model as the gateway counted them, and its part of what the engines cost. Nothing is below 0."""

    tenant: str  # the tenant's name as it is published; "" for what no tenant explains
    kind: str  # team, key, user, header or adapter; "" for what no tenant explains
    fleet: Fleet  # values of the identity labels of the fleet
    model_name: str  # as the engine serves it; of an external model as it was asked for
    served: bool  # whether engines serve the model; else it has no cost here
    prompt_tokens: float  # prompt tokens as sent
    # of these, what was cached: as the gateway knows it, else by the model's mean; None where no engine serves the model and none are known
    cached_tokens: float | None
    cached_is_mean: bool  # whether that is the model's mean
    decode_tokens: float  # generated tokens
    requests: float | None  # finished requests; None where no gateway counts them
    prefill_usd: float = 0.0
    decode_usd: float = 0.0
    prefill_rest_usd: float = 0.0  # of idle, down and unattributed time, as much of it as goes with prefill
    decode_rest_usd: float = 0.0  # ... with decode; of hours without prefill and decode all of it

    @property
    def busy_usd(self) -> float:
        """Of prefill and decode."""
        return self.prefill_usd + self.decode_usd

    @property
    def rest_usd(self) -> float:
        """Of idle, down and unattributed time."""
        return self.prefill_rest_usd + self.decode_rest_usd

    @property
    def usd(self) -> float:
        """All of it."""
        return self.busy_usd + self.rest_usd

    @property
    def input_usd_per_million(self) -> float | None:
        """USD a million prompt tokens as sent."""
        return usd_per_million(self.prefill_usd + self.prefill_rest_usd, self.prompt_tokens) if self.served else None

    @property
    def uncached_usd_per_million(self) -> float | None:
        """USD a million prompt tokens that were not cached, with cached ones at 0: together the same money."""
        computed = self.prompt_tokens - (self.cached_tokens or 0.0)
        return usd_per_million(self.prefill_usd + self.prefill_rest_usd, computed) if self.served else None

    @property
    def output_usd_per_million(self) -> float | None:
        """USD a million generated tokens."""
        return usd_per_million(self.decode_usd + self.decode_rest_usd, self.decode_tokens) if self.served else None


class Scale(Struct, frozen=True):
    """How much more or less the engines counted than the gateway, of one model in the hours in which both counted."""

    fleet: Fleet  # values of the identity labels of the fleet
    model_name: str  # as the engine serves it
    prompt: float | None  # engines' over gateway's prompt tokens; None where either counted none
    decode: float | None  # the same of generated tokens

    @property
    def flagged(self) -> bool:
        """Whether either is so far from 1 that the reader should know why."""
        return any(value is not None and not LEAST_SCALE <= value <= MOST_SCALE for value in (self.prompt, self.decode))


class TenantSplit(Struct, frozen=True):
    """The whole spend by tenant: the rows and what no tenant explains add up to it."""

    rows: tuple[TenantCost, ...]  # the most expensive first, external ones last
    unexplained: tuple[TenantCost, ...]  # what no tenant explains, by model, the most expensive first
    scales: tuple[Scale, ...]  # by model that gateways and engines both count

    @property
    def usd(self) -> float:
        """The whole spend."""
        return fsum(row.usd for row in (*self.rows, *self.unexplained))

    @property
    def unexplained_usd(self) -> float:
        """What no tenant explains."""
        return fsum(row.usd for row in self.unexplained)


# of an hour: where engines counted more than so many times what the gateway did, the rest is no tenant's. Retries and tokenizers do not
# double tokens; requests past the gateway do, and an hour of which the gateway was read for less than half
MOST_EXPLAINED = 2.0

Place = tuple[Fleet, str]
Who = tuple[str, str]


class _Sums(NamedTuple):
    """What a row comes to, in USD but for the last."""

    prefill: float = 0.0
    decode: float = 0.0
    prefill_rest: float = 0.0  # of other time that goes with prefill
    decode_rest: float = 0.0  # of other time that goes with decode
    cached: float = 0.0  # prompt tokens


class _Counted(Struct, frozen=True):
    """One tenant's counts of one model, by hour; a row of `tenant_counts`."""

    tenant: str
    kind: str
    prompt: Hours  # prompt tokens as sent
    generated: Hours  # generated tokens
    cached: Hours  # cached prompt tokens
    requests: float | None  # finished requests of the week; None where its gateways count none

    @property
    def who(self) -> Who:
        """The tenant."""
        return self.tenant, self.kind


def split_by_tenant(facts: FactTable, tenants: TenantUsage) -> TenantSplit | None:
    """Divides the cost of the week. None where no gateway counts by tenant."""
    if tenants.empty:
        return None
    for name in ("prompt", "decode", "cached", "requests"):
        facts.add(NOW, f"tenant {name}", ("tenant", "kind"), getattr(tenants, name))
    rows: list[TenantCost] = []
    unexplained: list[TenantCost] = []
    scales: list[Scale] = []
    counted = group_by_key(
        (_take_place(row), _Counted(**row)) for row in _list_rows(facts, "select * from tenant_counts")
    )
    engines = {_take_place(row): _Engine(**row) for row in _list_rows(facts, "select * from engine")}
    for place, engine in sorted(engines.items(), key=lambda item: item[0]):
        mine = {one.who: one for one in counted.pop(place, ())}
        if mine:
            scales.append(Scale(*place, *engine.measure_scale(mine.values())))
        divided, nobody = engine.divide(place, mine)
        rows += divided
        if nobody.usd:
            unexplained.append(nobody)
    rows += [_make_row(place, one, cached=sum_known(one.cached)) for place, each in counted.items() for one in each]
    rows.sort(
        key=lambda row: (not row.served, -row.usd, -row.prompt_tokens - row.decode_tokens, row.tenant, row.model_name)
    )
    return TenantSplit(tuple(rows), tuple(sorted(unexplained, key=lambda row: -row.usd)), tuple(scales))


def _list_rows(facts: FactTable, query: str) -> Iterator[dict[str, Any]]:
    """Rows; hours without any line are unknown."""
    nothing = (None,) * len(facts.weeks[NOW].hours)
    for row in facts.rows(query):
        yield {name: nothing if value is None and name != "requests" else value for name, value in row.items()}


def _take_place(row: dict[str, Any]) -> Place:
    return read_fleet(row.pop("fleet")), row.pop("model_name")


class _Engine(Struct, frozen=True):
    """A model's cost and tokens by hour, as its engines count them; a row of `engine`."""

    prefill_usd: Hours
    decode_usd: Hours
    rest_usd: Hours
    prompt: Hours
    cached: Hours
    computed: Hours
    generated: Hours

    @property
    def sent(self) -> Hours:
        """Prompt tokens as sent, else those that were computed."""
        return self.prompt if any(self.prompt) else self.computed

    def measure_scale(self, mine: Collection[_Counted]) -> tuple[float | None, float | None]:
        """Engines' tokens over the gateway's."""
        return (
            _measure(self.sent, [one.prompt for one in mine]),
            _measure(self.generated, [one.generated for one in mine]),
        )

    def share_cached(self) -> list[float]:
        """Of the prompts by hour; of the week, for hours that do not say it."""
        mean = ratio(sum_known(self.cached), sum_known(self.prompt)) or 0.0
        return [
            min(1.0, mean if (value := ratio(cached, prompt)) is None else value)
            for cached, prompt in zip(self.cached, self.prompt, strict=True)
        ]

    def divide(self, place: Place, mine: Mapping[Who, _Counted]) -> tuple[list[TenantCost], TenantCost]:
        """A row for each tenant, and what none of them explains."""
        # a gateway that says cached tokens at all says those of every tenant: one without any had none
        knows = any(value for one in mine.values() for value in one.cached)
        booked: list[tuple[Who | None, _Sums]] = []
        cached_share, of_engines = self.share_cached(), self.sent
        for hour in range(len(self.rest_usd)):
            sent, cached, computed, generated = {}, {}, {}, {}
            for who, one in mine.items():
                prompt = sent[who] = one.prompt[hour] or 0.0
                cached[who] = min(prompt, (one.cached[hour] or 0.0) if knows else prompt * cached_share[hour])
                computed[who], generated[who] = prompt - cached[who], one.generated[hour] or 0.0
            # what all had cached was computed for somebody all the same: the end of each prompt
            weights = computed if any(computed.values()) else sent
            prefill = _share(weights, fsum(sent.values()), of_engines[hour])
            decode = _share(generated, fsum(generated.values()), self.generated[hour])
            booked += self._book(hour, cached, prefill, decode)
        hours = group_by_key(booked)
        sums = {who: _Sums(*map(fsum, zip(*hours.get(who, (_Sums(),)), strict=True))) for who in (*mine, None)}
        rows = [
            _make_row(place, one, cached=sums[who].cached, is_mean=not knows, sums=sums[who])
            for who, one in mine.items()
        ]
        return rows, _make_row(place, _Counted("", "", (), (), (), 0.0), cached=0.0, sums=sums[None])

    def _book(
        self, hour: int, cached: Mapping[Who, float], prefill: Mapping[Who, float], decode: Mapping[Who, float]
    ) -> Iterator[tuple[Who | None, _Sums]]:
        """One hour's cost, with the tenants' shares of each phase; what the shares leave is nobody's, whom None stands for."""
        prefill_usd, decode_usd = self.prefill_usd[hour] or 0.0, self.decode_usd[hour] or 0.0
        rest_usd, busy_usd = self.rest_usd[hour] or 0.0, prefill_usd + decode_usd
        parts = (prefill_usd / busy_usd, decode_usd / busy_usd) if busy_usd else _weigh(prefill, decode)
        shares: dict[Who | None, tuple[float, float]] = {
            who: (prefill.get(who, 0.0), decode.get(who, 0.0)) for who in cached
        }
        # rounding must not make a row of its own
        shares[None] = _leave(prefill), _leave(decode)
        for who, (of_prefill, of_decode) in shares.items():
            rest = rest_usd * parts[0] * of_prefill, rest_usd * parts[1] * of_decode
            yield who, _Sums(prefill_usd * of_prefill, decode_usd * of_decode, *rest, cached[who] if who else 0.0)


def _make_row(
    place: Place, one: _Counted, *, cached: float | None, is_mean: bool = False, sums: _Sums | None = None
) -> TenantCost:
    """`sums`: None for a model that no engine serves."""
    usd = sums or _Sums()
    return TenantCost(
        tenant=one.tenant,
        kind=one.kind,
        fleet=place[0],
        model_name=place[1],
        served=sums is not None,
        prompt_tokens=fsum(value or 0.0 for value in one.prompt),
        cached_tokens=cached,
        cached_is_mean=is_mean,
        decode_tokens=fsum(value or 0.0 for value in one.generated),
        requests=one.requests,
        prefill_usd=usd.prefill,
        decode_usd=usd.decode,
        prefill_rest_usd=usd.prefill_rest,
        decode_rest_usd=usd.decode_rest,
    )


def _share(weights: Mapping[Who, float], of_gateways: float, of_engines: float | None) -> dict[Who, float]:
    """Each tenant's share of an hour's cost of one phase, by weights; together 1, less where the engines counted far more tokens than the
    gateways. {} without any weight."""
    total = fsum(weights.values())
    if total <= 0:
        return {}
    explained = min(1.0, MOST_EXPLAINED * of_gateways / of_engines) if of_engines else 1.0
    return {who: explained * value / total for who, value in weights.items()}


def _leave(shares: Mapping[Who, float]) -> float:
    left = 1.0 - fsum(shares.values())
    return left if left > 1e-9 else 0.0


def _weigh(prefill: Mapping[Who, float], decode: Mapping[Who, float]) -> tuple[float, float]:
    """How an hour without prefill and decode cost divides: by the phase of which tokens are known, half each where both are."""
    if bool(prefill) == bool(decode):
        return (0.5, 0.5) if prefill else (0.0, 1.0)
    return (1.0, 0.0) if prefill else (0.0, 1.0)


def _measure(engines: Hours, gateways: Sequence[Hours]) -> float | None:
    """Engines' over gateways' tokens in the hours in which both counted some."""
    seen = [fsum(one[hour] or 0.0 for one in gateways) for hour in range(len(engines))]
    both = [(value, counted) for value, counted in zip(engines, seen, strict=True) if value and counted]
    return ratio(fsum(value for value, _ in both), fsum(counted for _, counted in both))
