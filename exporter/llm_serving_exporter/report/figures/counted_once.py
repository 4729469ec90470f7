"""Chooses which of a week's tokens, requests and objective events count, so that each counts once and only where its cost is known. Pure.

A front end counts again what its workers count, and with split pools both sides count the prompts. Tokens of a target without a price
would make those of the others look cheap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from llm_serving_exporter.model.frozen import dataclass
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

    # by target
    targets: dict[Place, Shares]
    # by model
    models: dict[Place, Shares]


def count_once(usage: Usage, identity: Sequence[str] = ()) -> Usage:
    """The usage with only what counts. `identity`: labels that tell fleets apart; models of the same name in two fleets are two models."""

    def model(owner: Owner) -> Place:
        return tuple((name, owner.label(name)) for name in identity), owner.model_name

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


def _find_priced_shares(usage: Usage, place: Callable[[Owner], Place]) -> dict[Place, Shares]:
    """The share of GPU time that has a price, by place and hour: 1 where only the cost is known, 0 where there is no price."""
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
        pools = {Role.PREFILL, Role.DECODE}
        return name not in _POOL or owner.role not in pools or not pools <= there or owner.role == _POOL[name]

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
