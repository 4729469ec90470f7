"""Which of a week's tokens, requests and objective events count, so that each stands once, beside its cost. Pure.

A front end counts what its workers count again, and of split pools both sides count the prompts. A token that a target made without a
price would make the others' look cheap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from llm_serving_exporter.model.target import Role
from llm_serving_exporter.report.evidence.usage import Extra, Line, Owner, Usage

# whose events say what users had, the first that has any
_OBSERVERS = (Role.FRONTEND, Role.UNIFIED, Role.DECODE, Role.PREFILL)
# which pool's count is taken where a model has both
_POOL = {
    "prompt_tokens": Role.PREFILL,
    "cached_tokens": Role.PREFILL,
    "decode_tokens": Role.DECODE,
    "requests": Role.DECODE,
}

Place = tuple[Extra, str]
Shares = list[float]


@dataclass(frozen=True, slots=True)
class _Priced:
    """The share of GPU time that has a price, by hour."""

    targets: dict[Place, Shares]
    models: dict[Place, Shares]


def count_once(usage: Usage, identity: Sequence[str] = ()) -> Usage:
    """The usage with what counts alone. `identity`: labels that tell fleets apart, in which a model of one name may be another."""

    def model(owner: Owner) -> Place:
        return tuple((name, owner.label(name)) for name in identity), owner.model_name

    priced = _Priced(_find_priced_shares(usage, lambda owner: owner.who), _find_priced_shares(usage, model))

    def of(name: str) -> tuple[Line, ...]:
        return _keep_once(name, _keep_priced(getattr(usage, name), priced, model), model)

    return replace(
        usage,
        prefill_tokens=of("prefill_tokens"),
        decode_tokens=of("decode_tokens"),
        prompt_tokens=of("prompt_tokens"),
        cached_tokens=of("cached_tokens"),
        requests=of("requests"),
        slo=_keep_observed(usage.slo, model),
    )


def _find_priced_shares(usage: Usage, place: Callable[[Owner], Place]) -> dict[Place, Shares]:
    """By place and hour: what of its GPU time has a price; 1 where only its cost is known, 0 where it has none."""
    seconds: dict[Place, list[list[float]]] = {}
    for line in usage.gpu_seconds:
        into = seconds.setdefault(place(line.owner), [[0.0, 0.0] for _ in line.hours])
        for index, value in enumerate(line.hours):
            into[index][1] += value or 0.0
            into[index][0] += (value or 0.0) if line.of[1] else 0.0
    found = {who: [part / all_ if all_ else 0.0 for part, all_ in hours] for who, hours in seconds.items()}
    for line in usage.cost:
        into_shares = found.setdefault(place(line.owner), [0.0] * len(line.hours))
        for index, value in enumerate(line.hours):
            if value and not into_shares[index]:
                into_shares[index] = 1.0
    return found


def _keep_priced(lines: Iterable[Line], priced: _Priced, model: Callable[[Owner], Place]) -> tuple[Line, ...]:
    """Lines in the hours that have a cost: of their target, of a front end that of its model."""
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
    """No front end where what is behind it counts as well, and of split pools the one that counts it as a user would."""
    roles = _find_roles(lines, model)

    def kept(owner: Owner) -> bool:
        there = roles.get(model(owner), set())
        if owner.role == Role.FRONTEND:
            return not there - {Role.FRONTEND}
        pools = {Role.PREFILL, Role.DECODE}
        return name not in _POOL or owner.role not in pools or not pools <= there or owner.role == _POOL[name]

    return tuple(line for line in lines if kept(line.owner))


def _keep_observed(lines: tuple[Line, ...], model: Callable[[Owner], Place]) -> tuple[Line, ...]:
    """Of each objective of a model the events that are nearest to its users."""
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
    """Roles of a model that counted anything."""
    found: dict[Place, set[str]] = {}
    for line in lines:
        if line.total:
            found.setdefault(model(line.owner), set()).add(line.owner.role)
    return found
