"""The price file: what GPUs cost, by target, node or GPU model, from when on; rates, electricity, the budget (docs/cost.md)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from llm_serving_exporter.config.facts import GPU_MODEL
from llm_serving_exporter.derive.price import purchase_usd_per_gpu_hour
from llm_serving_exporter.errors import Problem
from llm_serving_exporter.facts.gpu_names import split_words
from llm_serving_exporter.model.hardware import GpuSpec
from llm_serving_exporter.model.prices import Power, PriceBook, PriceStatement, Rate, RateKind, Scope
from llm_serving_exporter.schema import kinds
from llm_serving_exporter.schema.document import read_bounded, read_document
from llm_serving_exporter.schema.keys import Key, Reader, names_of, read_complete, read_keys, table
from llm_serving_exporter.schema.kinds import Kind
from llm_serving_exporter.schema.problems import InvalidValueError, Place, shown
from llm_serving_exporter.schema.reading import elements, is_empty, mapping, type_name, value
from llm_serving_exporter.schema.tree import Node

MOST_STATEMENTS = 10_000
_GPUS = kinds.integer(1, 1_000_000)
_NAME = kinds.text("name", 253)


def _moment(text: str) -> float:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        fix = "Write it as in 2026-01-31 or 2026-01-31T08:00:00Z."
        raise InvalidValueError(f"{shown(text)} is not a date", fix) from None
    return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()


FROM = Kind("a date such as 2026-01-31, midnight UTC, or a time", _moment)
_POWER = table(
    usd_per_kwh=Key(reads=kinds.decimal("USD above 0, up to 100", 0.0, 100.0)),
    pue=Key(reads=kinds.decimal("a PUE from 1 to 10", 1 - 1e-9, 10.0)),
    carbon_grams_per_kwh=Key(reads=kinds.decimal("grams above 0, up to 10000", 0.0, 10_000.0)),
)
_RATE = table(
    kind=Key(reads=kinds.member("kind of rate", RateKind)),
    includes_power=Key(reads=kinds.BOOLEAN),
    committed_gpus=Key(reads=_GPUS),
)
_INSTANCE = table(usd_per_hour=Key(reads=kinds.USD, required=True), gpus=Key(reads=_GPUS, required=True))
_PURCHASE = table(
    usd=Key(reads=kinds.USD, required=True),
    gpus=Key(reads=_GPUS, required=True),
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


def _read_gpu_models(node: Node, place: Place, own: Sequence[GpuSpec]) -> list[str]:
    """The same of cards: of the catalogue's, or of those that the configuration describes."""
    known = {split_words(name) for spec in own for name in (spec.name, *spec.names)}
    kind = Kind(
        GPU_MODEL.expects, lambda text: text if split_words(text) in known else GPU_MODEL.parse(text), is_text=True
    )
    found: list[str] = _read_names(kind)(node, place, None)
    return found


def _read_instance(node: Node, place: Place, context: object) -> float | None:
    """USD per GPU and hour of a machine that is paid by the hour."""
    found = read_complete(_INSTANCE, node, place, "Write {usd_per_hour: 55.04, gpus: 8}.")
    return None if found is None else found["usd_per_hour"] / found["gpus"]


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
    usd_per_gpu_hour=Key(reads=kinds.USD), instance=Key(reads=_read_instance), purchase=Key(reads=_read_purchase)
)
_STATEMENT = {
    **table(**{name: Key(reads=_read_gpu_models if name == "gpu_model" else _read_names(_NAME)) for name in _SCOPES}),
    **_AMOUNTS,
    **table(rate=Key(reads=_NAME), since=Key(name="from", reads=FROM)),
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
    return PriceReading(book, tuple(problems), (odd,) if ends and ends[0] not in ("", "\n", "\r") else ())


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
    section = mapping(document, place, ("prices", "rates", "power", "budget_usd_per_month"))
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
    if len(place.problems) > before:
        return None
    return PriceBook(tuple(statements.values()), tuple(used.values()), power, budget)


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
        given = read_keys(_RATE, mapping(own, at, names_of(_RATE)), at)
        if "kind" not in given and name in set(RateKind):
            given["kind"] = RateKind(name)
        if "kind" not in given:
            at.refuse("kind is missing", f"Write kind: one of {', '.join(RateKind)}.")
        elif _named(name, at):
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
        place.key("rate").refuse(f"there is no rate {shown(name)}", f"Write rates: {{{name}: {{kind: reserved}}}}.")
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
