"""Chooses which of a week's tokens, requests and objective events count, so that each counts once and only where its cost is known. Pure.

A front end counts again what its workers count, and with split pools both sides count the prompts. Tokens of a target without a price
would make those of the others look cheap, and GPU time of a target that counts none would make them look dear: a quotient has both sides
of the same engines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from llm_serving_exporter.model.record import Struct, replace
from llm_serving_exporter.model.target import Role
from llm_serving_review.evidence.usage import Extra, Line, Owner, Usage, sum_by_hour
from llm_serving_review.tables.sums import group_by_key, sum_by_key

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
