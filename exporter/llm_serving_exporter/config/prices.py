"""The price file: what GPUs cost, by target, node or GPU model, from when on; rates, electricity, the budget (docs/prices.md)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from llm_serving_exporter.config.facts import GPU_MODEL
from llm_serving_exporter.config.pools import GPUS, MOMENT, read_instance_price, read_nodes, read_pools
from llm_serving_exporter.derive.price import purchase_usd_per_gpu_hour
from llm_serving_exporter.errors import Problem
from llm_serving_exporter.facts.gpu_names import split_words
from llm_serving_exporter.model.hardware import GpuSpec
from llm_serving_exporter.model.prices import Power, PriceBook, PriceStatement, Rate, RateKind, Scope
from llm_serving_exporter.schema import kinds
from llm_serving_exporter.schema.document import read_bounded, read_document
from llm_serving_exporter.schema.keys import Key, Reader, names_of, read_complete, read_keys, table
from llm_serving_exporter.schema.kinds import Kind
from llm_serving_exporter.schema.problems import InvalidValueError, Place, nearest, shown
from llm_serving_exporter.schema.reading import elements, is_empty, mapping, type_name, value
from llm_serving_exporter.schema.tree import Node

MOST_STATEMENTS = 10_000
SECTIONS = ("prices", "rates", "power", "budget_usd_per_month", "pools", "nodes")
_NAME = kinds.text("name", 253)


# the rate of pools is built in
_OWN_KINDS = tuple(kind for kind in RateKind if kind is not RateKind.POOL)
_ONE_OF = kinds.choice("kind of rate", tuple(kind.value for kind in _OWN_KINDS))
_RATE_KIND = Kind(_ONE_OF.expects, lambda text: RateKind(_ONE_OF.parse(text)))
_POWER = table(
    usd_per_kwh=Key(reads=kinds.decimal("USD above 0, up to 100", 0.0, 100.0)),
    pue=Key(reads=kinds.decimal("a PUE from 1 to 10", 1 - 1e-9, 10.0)),
    carbon_grams_per_kwh=Key(reads=kinds.decimal("grams above 0, up to 10000", 0.0, 10_000.0)),
)
_RATE = table(
    kind=Key(reads=_RATE_KIND),
    includes_power=Key(reads=kinds.BOOLEAN),
    committed_gpus=Key(reads=GPUS),
)
_PURCHASE = table(
    usd=Key(reads=kinds.USD, required=True),
    gpus=Key(reads=GPUS, required=True),
    years=Key(reads=kinds.decimal("years above 0, up to 50", 0.0, 50.0), required=True),
    overhead_ratio=Key(reads=kinds.decimal("a ratio from 0 to 10", -1e-12, 10.0)),
)


def _read_names(kind: Kind[str]) -> Reader:
    """A name, or a list of them."""

    def read(node: Node, place: Place, context: object) -> list[str]:
        several = list(elements(node, place, "names")) if isinstance(node, list) else [(node, place)]
        found = (value(one, at, kind) for one, at in several)
        return [name for name in found if name is not None]

    return read


def _gpu_model_kind(own: Sequence[GpuSpec]) -> Kind[str]:
    """A card of the catalogue, or one that the configuration describes."""
    known = {split_words(name) for spec in own for name in (spec.name, *spec.names)}
    return Kind(
        GPU_MODEL.expects, lambda text: text if split_words(text) in known else GPU_MODEL.parse(text), is_text=True
    )


def _read_gpu_models(node: Node, place: Place, own: Sequence[GpuSpec]) -> list[str]:
    """The same of cards."""
    found: list[str] = _read_names(_gpu_model_kind(own))(node, place, None)
    return found


def _read_purchase(node: Node, place: Place, context: object) -> float | None:
    """USD per GPU and hour of a machine that was bought."""
    found = read_complete(_PURCHASE, node, place, "Write {usd: 320000, gpus: 8, years: 4, overhead_ratio: 0.15}.")
    if found is None:
        return None
    return purchase_usd_per_gpu_hour(found["usd"], found["gpus"], found["years"], found.get("overhead_ratio", 0.0))


# what a price is for: exactly one of them
_SCOPES = {
    "target": Scope.TARGET, "node": Scope.NODE, "gpu_model": Scope.GPU_MODEL, "gpu_name": Scope.GPU_MODEL,
}  # fmt: skip
# how much it is, in USD per GPU and hour: exactly one of them
_AMOUNTS = table(
    usd_per_gpu_hour=Key(reads=kinds.USD), instance=Key(reads=read_instance_price), purchase=Key(reads=_read_purchase)
)
_STATEMENT = {
    **table(**{name: Key(reads=_read_gpu_models if name == "gpu_model" else _read_names(_NAME)) for name in _SCOPES}),
    **_AMOUNTS,
    **table(rate=Key(reads=_NAME), since=Key(name="from", reads=MOMENT)),
}
_HINTS = {
    "usd_per_hour": "Write usd_per_gpu_hour, or instance: {usd_per_hour: 55.04, gpus: 8}.",
    "price": "Write usd_per_gpu_hour.",
    "valid_from": "Write from: 2026-01-31, or 2026-01-31T08:00:00Z.",
    "gpu": "Write gpu_model (a card of the catalogue) or gpu_name (as on the series).",
    "model": "Write gpu_model.",
}


class PriceReading(NamedTuple):
    """What came of reading a price file."""

    # None where it cannot be used
    book: PriceBook | None
    # every reason why not
    problems: tuple[Problem, ...]
    # what is legal but odd, in sentences
    warnings: tuple[str, ...]


def look_at_prices(path: str, read: Callable[[Path], str] = read_bounded, own: Sequence[GpuSpec] = ()) -> PriceReading:
    """Reads a price file, and says whether its last line may be cut short: of 3600 there may be only 360 so far.

    `own`: the GPUs that the configuration describes, which prices may name too.
    """
    ends: list[str] = []

    def note_end(file: Path) -> str:
        text = read(file)
        ends.append(text[-1:])
        return text

    problems: list[Problem] = []
    book = read_prices(path, Place(path, "", problems), note_end, own)
    odd = f"{path}: there is no final newline, so that its last line may be cut short. End it with one."
    warnings = [odd] if ends and ends[0] not in ("", "\n", "\r") else []
    if book is not None:
        warnings += [f"{path}: {warning}" for warning in _doubt_pools(book)]
    return PriceReading(book, tuple(problems), tuple(warnings))


def _doubt_pools(book: PriceBook) -> Iterator[str]:
    """Where pools and prices at their rate do not go together, which is legal while one of them is yet to come."""
    priced = any(one.rate == RateKind.POOL for one in book.statements)
    if priced and not book.pools:
        yield "prices stand at the rate pool, and there are no pools: nothing is taken off them. Add pools, or write rate: on_demand."
    if book.pools and not priced:
        yield (
            "there are pools, and no price at the rate pool: no GPU is metered for them, and the review shows all of them as unused. "
            "Write rate: pool beside the uncommitted price of the GPUs that they are for."
        )


def read_prices(
    path: str, place: Place, read: Callable[[Path], str] = read_bounded, own: Sequence[GpuSpec] = ()
) -> PriceBook | None:
    """The prices that stand in the file; None where it cannot be used, which is then reported at its places."""
    before = len(place.problems)
    document = read_document(path, place, read)
    if document is None:
        return None
    if is_empty(document):
        place.refuse("the file is empty", "Write prices: [{gpu_model: H100 SXM, usd_per_gpu_hour: 2.49}].")
    section = mapping(document, place, SECTIONS)
    rates = _rates(section.get("rates"), place.key("rates"))
    statements: dict[tuple[Scope, str, float | None], PriceStatement] = {}
    used: dict[str, Rate] = dict(rates)
    for node, at in elements(section.get("prices"), place.key("prices"), "prices"):
        for one in _statements(node, at, rates, used, own):
            key = one.scope, one.value, one.from_unix_seconds
            other = statements.setdefault(key, one)
            if other is not one:
                at.refuse(
                    f"{one.scope.value} {shown(one.value)} has two prices from the same moment on", "Keep one of them."
                )
    if len(statements) > MOST_STATEMENTS:
        place.key("prices").refuse(f"more than {MOST_STATEMENTS} prices", "State them by gpu_model or node.")
    at = place.key("power")
    power = Power(**read_keys(_POWER, mapping(section.get("power"), at, names_of(_POWER)), at))
    budget = value(section.get("budget_usd_per_month"), place.key("budget_usd_per_month"), kinds.USD)
    pools = read_pools(section.get("pools"), place.key("pools"), partial(_find_gpu, own=own))
    nodes = read_nodes(section.get("nodes"), place.key("nodes"))
    if len(place.problems) > before:
        return None
    return PriceBook(tuple(statements.values()), tuple(used.values()), power, budget, pools, nodes)


def _find_gpu(node: Node, place: Place, own: Sequence[GpuSpec]) -> str | None:
    """The kind of GPU that a pool is for, as series name it."""
    found = value(node, place, _gpu_model_kind(own))
    return None if found is None else _catalogued(found, own)


def _rates(node: Node | None, place: Place) -> dict[str, Rate]:
    if node is None or is_empty(node):
        return {}
    if not isinstance(node, dict):
        place.refuse(
            f"must be a mapping (name: rate), not {type_name(node)}",
            "Write reserved: {kind: reserved, committed_gpus: 64}.",
        )
        return {}
    found = {}
    for name, own in node.items():
        at = place.key(name)
        if name == RateKind.POOL:
            at.refuse(
                "pool is the rate of the section pools, and what it is stands there", "Give this one another name."
            )
            continue
        section = mapping(own, at, names_of(_RATE))
        given = read_keys(_RATE, section, at)
        if "kind" not in given and name in set(RateKind):
            given["kind"] = RateKind(name)
        if "kind" not in section and "kind" not in given:
            at.refuse("kind is missing", f"Write kind: one of {', '.join(_OWN_KINDS)}.")
        elif "kind" in given and _named(name, at):
            found[name] = Rate(name, **given)
    return found


def _named(name: str, place: Place) -> bool:
    try:
        _NAME.parse(name)
    except InvalidValueError as error:
        place.refuse(error.what, error.fix)
        return False
    return True


def _statements(
    node: Node, place: Place, rates: dict[str, Rate], used: dict[str, Rate], own: Sequence[GpuSpec]
) -> Iterator[PriceStatement]:
    before = len(place.problems)
    if not isinstance(node, dict):
        place.refuse(
            f"must be a mapping (key: value), not {type_name(node)}", "Write {gpu_model: …, usd_per_gpu_hour: …}."
        )
        return
    section = mapping(node, place, names_of(_STATEMENT), _HINTS)
    scopes = [key for key in _SCOPES if not is_empty(section.get(key))]
    if len(scopes) != 1:
        place.refuse(
            f"a price is for {'nothing' if not scopes else ' and '.join(scopes)}",
            f"Write one of {', '.join(_SCOPES)}; a list of several is allowed.",
        )
        return
    amounts = [key for key in _AMOUNTS if not is_empty(section.get(key))]
    if len(amounts) != 1:
        place.refuse(
            "no amount is given" if not amounts else f"{' and '.join(amounts)} are given",
            "Write usd_per_gpu_hour: 2.49, or instance: {usd_per_hour: 55.04, gpus: 8}, or purchase: {…}.",
        )
    given = read_keys(_STATEMENT, section, place, own)
    name = given.get("rate", RateKind.ON_DEMAND.value)
    rate = rates.get(name)
    if rate is None and name in set(RateKind):
        rate = Rate(name, RateKind(name))
    if rate is None:
        near = nearest(name, (*rates, *RateKind))
        fix = f"Did you mean {near}?" if near else f"Write rates: {{{name}: {{kind: reserved}}}}."
        place.key("rate").refuse(f"there is no rate {shown(name)}", fix)
    if rate is None or len(place.problems) > before:
        return
    used.setdefault(rate.name, rate)
    for one in given[scopes[0]]:
        known = _catalogued(one, own) if scopes[0] == "gpu_model" else one
        yield PriceStatement(_SCOPES[scopes[0]], known, given[amounts[0]], rate.name, given.get("since"))


def _catalogued(name: str, own: Sequence[GpuSpec]) -> str:
    # a megabyte of tables: only where a price file names a card
    from llm_serving_exporter.facts import loader
    from llm_serving_exporter.facts.gpus import find

    return find(name, (*own, *loader.gpu_catalogue())).name
