"""Which price is in force for a target's GPUs (design section 8): target over node over GPU model, valid-from in UTC."""

from __future__ import annotations

import math
from collections.abc import Sequence

from llm_serving_exporter.model.cost import Price, PriceBook, PriceStatement, Scope
from llm_serving_exporter.model.snapshot import Absence

# how `hardware` joins the kinds of a target with GPUs of several
_JOINS_KINDS = " + "
# and what it calls a slice of a card: "H100 SXM 80GB MIG 1g.10gb", "Instinct MI300X part 1/8"
_SLICES = (" MIG", " part 1/")


def find_price(
    book: PriceBook, target: str, nodes: Sequence[str], gpu_name: str, at_unix_seconds: float
) -> Price | Absence:
    """The price of one GPU of the target at a time. `nodes`: those it spans, () = not known; `gpu_name`: as `target_gpus` has it.

    NO_PRICE where nothing is stated that has begun; PRICE_AMBIGUOUS where its nodes, or its several kinds of GPU, cost differently.
    """
    own = _in_force(book, Scope.TARGET, target, at_unix_seconds)
    if own is not None:
        return _price(book, own)
    kinds = {_of_kind(book, kind, at_unix_seconds) for kind in gpu_name.split(_JOINS_KINDS)}
    found: set[PriceStatement | None] = set()
    for node in nodes or ("",):
        of_node = _in_force(book, Scope.NODE, node, at_unix_seconds)
        found |= kinds if of_node is None else {of_node}
    terms = {None if one is None else (one.usd_per_gpu_hour, one.rate) for one in found}
    if len(terms) > 1:
        return Absence.PRICE_AMBIGUOUS
    statement = found.pop()
    return Absence.NO_PRICE if statement is None else _price(book, statement)


def _of_kind(book: PriceBook, kind: str, at: float) -> PriceStatement | None:
    """A slice has the price of its card, of which its target has a share."""
    own = _in_force(book, Scope.GPU_MODEL, kind, at)
    card = kind
    for mark in _SLICES:
        card = card.partition(mark)[0]
    return own or _in_force(book, Scope.GPU_MODEL, card, at)


def _in_force(book: PriceBook, scope: Scope, value: str, at: float) -> PriceStatement | None:
    """The statement with the latest beginning that has passed."""
    begun = [
        (-math.inf if one.from_unix_seconds is None else one.from_unix_seconds, one)
        for one in book.statements
        if one.scope is scope and one.value == value
    ]
    return max((found for found in begun if found[0] <= at), key=lambda found: found[0], default=(0.0, None))[1]


def _price(book: PriceBook, statement: PriceStatement) -> Price:
    rate = next(rate for rate in book.rates if rate.name == statement.rate)
    return Price(statement.usd_per_gpu_hour, rate)


def purchase_usd_per_gpu_hour(usd: float, gpus: int, years: float, overhead_ratio: float) -> float:
    """A purchase as a rate: price x (1 + overhead) / (years x 8760 h), of one of its GPUs (design section 8)."""
    return usd * (1 + overhead_ratio) / (years * 8760.0) / gpus
