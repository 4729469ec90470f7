"""Why the spend changed, in the two or three sentences that a human would say. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import fsum

from llm_serving_exporter.render.numbers import usd
from llm_serving_review.figures.change import Change
from llm_serving_review.figures.movements import Kind, Movement

# each cause for a table or a chart
CAUSE_WORDS = {
    "came_and_went": "Came and went",
    "list_price": "List price",
    "rate": "Rate",
    "hardware": "Hardware",
    "volume": "Tokens",
    "mix": "Mix",
    "idle": "Idle",
    "efficiency": "Efficiency",
    "left_out": "Not compared",
}
# of the change: a smaller cause is in the table, not in a sentence
_LEAST_SHARE = 0.1
_MOST_CAUSES = 3
_MOST_NAMES = 2


def write_causes(change: Change, this: str = "the week", one_before: str = "the week before") -> tuple[str, ...]:
    """What moved the spend and what held against it, the largest first; at most two sentences, and a third where part of the weeks is
    compared with nothing. `this`, `one_before`: how sentences call what is compared."""
    total = change.split.total
    moved = f"GPU time cost {usd(abs(total))} {'more' if total > 0 else 'less'} than {one_before}"
    parts = _list_parts(change)
    # where causes cancel each other out, they and not their sum say what is large
    least = _LEAST_SHARE * max(abs(total), max((abs(value) for value, _ in parts), default=0.0))
    large = sorted((part for part in parts if abs(part[0]) >= max(least, 0.005)), key=lambda part: -abs(part[0]))
    along = [part for part in large if part[0] * total > 0][:_MOST_CAUSES]
    against = [part for part in large if part[0] * total <= 0][:_MOST_CAUSES]
    said = []
    if round(100 * total) == 0:
        said.append(f"GPU time cost the same as {one_before}.")
    elif along:
        said.append(f"{moved}: {_join(along)}.")
    else:
        said.append(f"{moved}.")
    if against:
        other = "more" if total <= 0 else "less"
        said.append(f"Against that, {_join(against, other)}.")
    left_out = [
        f"{usd(value)} of {of}"
        for value, of in ((change.left_out_usd, this), (change.left_out_before_usd, one_before))
        if value >= 0.005
    ]
    if left_out:
        said.append(f"Not compared: {' and '.join(left_out)}, because the same hours of the other one are not known.")
    return tuple(said)


def _join(parts: Sequence[tuple[float, str]], more: str = "") -> str:
    word = f" {more}" if more else ""
    return ", ".join(f"{usd(abs(value))}{word} because {why}" for value, why in parts)


def _list_parts(change: Change) -> list[tuple[float, str]]:
    """Each cause with its USD and its reason; what came and what went stand apart."""
    split = change.split
    found = [(getattr(split, cause), write(change)) for cause, write in _REASONS.items()]
    came = fsum(one.usd for one in change.movements if one.kind == Kind.CAME)
    went = [one for one in change.movements if one.kind == Kind.WENT]
    # in cents, so that both add up to their part
    gone = round(split.came_and_went - round(came, 2), 2)
    if came:
        found.append((round(came, 2), f"{_name(change.movements, Kind.CAME)} came"))
    if went or gone:
        found.append((gone, f"{_name(change.movements, Kind.WENT)} went"))
    return found


def _name(movements: Sequence[Movement], kind: Kind) -> str:
    names = [one.name for one in movements if one.kind == kind]
    rest = len(names) - _MOST_NAMES
    if rest > 0:
        return f"{', '.join(names[:_MOST_NAMES])} and {rest} more"
    return " and ".join(names) or "other things"


def _write_hardware(change: Change) -> str:
    moved = [one for one in change.movements if one.kind == Kind.MOVED and abs(one.usd) >= 0.005]
    if not moved:
        return "work moved to other kinds of GPU"
    first = moved[0]
    count = (
        f"{first.replicas:.0f} replica{'' if round(first.replicas) == 1 else 's'} of " if first.replicas >= 0.5 else ""
    )
    rest = f", and {len(moved) - 1} more moved" if len(moved) > 1 else ""
    return f"{count}{first.model_name or first.name} moved {first.detail}{rest}"


def _choose(cause: str, less: str, more: str) -> Callable[[Change], str]:
    return lambda change: more if getattr(change.split, cause) > 0 else less


_REASONS: dict[str, Callable[[Change], str]] = {
    "list_price": _choose("list_price", "list prices fell", "list prices rose"),
    "rate": _choose("rate", "GPUs ran at cheaper rates", "GPUs ran at dearer rates"),
    "hardware": _write_hardware,
    "volume": _choose("volume", "fewer tokens were served", "more tokens were served"),
    "mix": _choose("mix", "tokens moved to cheaper models or phases", "tokens moved to dearer models or phases"),
    "idle": _choose("idle", "GPUs stood idle less", "GPUs stood idle more"),
    "efficiency": _choose("efficiency", "a token took less busy GPU time", "a token took more busy GPU time"),
    "left_out": _choose("left_out", "hours are known of one week only", "hours are known of one week only"),
}
