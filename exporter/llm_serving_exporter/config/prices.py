"""The price file: what GPUs cost, by target, node or GPU model, from when on; rates, electricity, the budget (docs/cost.md)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from llm_serving_exporter.config.facts import GPU_MODEL
from llm_serving_exporter.config.options import Setting
from llm_serving_exporter.derive.price import purchase_usd_per_gpu_hour
from llm_serving_exporter.model.prices import Power, PriceBook, PriceStatement, Rate, RateKind, Scope
from llm_serving_exporter.schema import kinds
from llm_serving_exporter.schema.document import read_bounded, read_document
from llm_serving_exporter.schema.kinds import Kind
from llm_serving_exporter.schema.problems import InvalidValueError, Place, shown
from llm_serving_exporter.schema.reading import elements, is_empty, mapping, type_name, value
from llm_serving_exporter.schema.tree import Node

MOST_STATEMENTS = 10_000
USD = kinds.decimal("USD above 0, up to 1e12", 0.0, 1e12)
_GPUS = kinds.integer(1, 1_000_000)
_NAME = kinds.text("name", 253)
_KIND = kinds.choice("kind of rate", tuple(RateKind))
_KEYS = ("prices", "rates", "power", "budget_usd_per_month")
_SCOPES = {"target": Scope.TARGET, "node": Scope.NODE, "gpu_model": Scope.GPU_MODEL, "gpu_name": Scope.GPU_MODEL}
_AMOUNTS = ("usd_per_gpu_hour", "instance", "purchase")
_HINTS = {
    "usd_per_hour": "Write usd_per_gpu_hour, or instance: {usd_per_hour: 55.04, gpus: 8}.",
    "price": "Write usd_per_gpu_hour.",
    "valid_from": "Write from: 2026-01-31, or 2026-01-31T08:00:00Z.",
    "gpu": "Write gpu_model (a card of the catalogue) or gpu_name (as on the series).",
    "model": "Write gpu_model.",
}


def _moment(text: str) -> float:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        fix = "Write it as in 2026-01-31 or 2026-01-31T08:00:00Z."
        raise InvalidValueError(f"{shown(text)} is not a date", fix) from None
    return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()


FROM = Kind("a date such as 2026-01-31, midnight UTC, or a time", _moment)


def prices_of(path: Setting, read: Callable[[Path], str] = read_bounded) -> PriceBook | None:
    """The price file that `cost.price-file` names; None where it cannot be used, which is then reported at its places."""
    return read_prices(path.value, Place(path.value, "", path.place.problems), read)


def read_prices(path: str, place: Place, read: Callable[[Path], str] = read_bounded) -> PriceBook | None:
    """The same for a path."""
    before = len(place.problems)
    document = read_document(path, place, read)
    if document is None:
        return None
    if is_empty(document):
        place.refuse("the file is empty", "Write prices: [{gpu_model: H100 SXM, usd_per_gpu_hour: 2.49}].")
    section = mapping(document, place, _KEYS)
    rates = _rates(section.get("rates"), place.key("rates"))
    statements: dict[tuple[Scope, str, float | None], PriceStatement] = {}
    used: dict[str, Rate] = dict(rates)
    for node, at in elements(section.get("prices"), place.key("prices"), "prices"):
        for one in _statements(node, at, rates, used):
            key = one.scope, one.value, one.from_unix_seconds
            other = statements.setdefault(key, one)
            if other is not one:
                at.refuse(
                    f"{one.scope.value} {shown(one.value)} has two prices from the same moment on", "Keep one of them."
                )
    if len(statements) > MOST_STATEMENTS:
        place.key("prices").refuse(f"more than {MOST_STATEMENTS} prices", "State them by gpu_model or node.")
    power = _power(section.get("power"), place.key("power"))
    budget = value(section.get("budget_usd_per_month"), place.key("budget_usd_per_month"), USD)
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
        section = mapping(own, at, ("kind", "includes_power", "committed_gpus"))
        kind = value(section.get("kind"), at.key("kind"), _KIND) or (name if name in set(RateKind) else None)
        power = value(section.get("includes_power"), at.key("includes_power"), kinds.BOOLEAN)
        committed = value(section.get("committed_gpus"), at.key("committed_gpus"), _GPUS)
        if kind is None:
            at.refuse("kind is missing", f"Write kind: one of {', '.join(RateKind)}.")
        elif _named(name, at):
            found[name] = Rate(name, RateKind(kind), True if power is None else power, committed)
    return found


def _named(name: str, place: Place) -> bool:
    try:
        _NAME.parse(name)
    except InvalidValueError as error:
        place.refuse(error.what, error.fix)
        return False
    return True


def _statements(node: Node, place: Place, rates: dict[str, Rate], used: dict[str, Rate]) -> Iterator[PriceStatement]:
    before = len(place.problems)
    if not isinstance(node, dict):
        place.refuse(
            f"must be a mapping (key: value), not {type_name(node)}", "Write {gpu_model: …, usd_per_gpu_hour: …}."
        )
        return
    section = mapping(node, place, (*_SCOPES, *_AMOUNTS, "rate", "from"), _HINTS)
    scopes = [key for key in _SCOPES if not is_empty(section.get(key))]
    if len(scopes) != 1:
        place.refuse(
            f"a price is for {'nothing' if not scopes else ' and '.join(scopes)}",
            f"Write one of {', '.join(_SCOPES)}; a list of several is allowed.",
        )
        return
    usd = _amount(section, place)
    since = value(section.get("from"), place.key("from"), FROM)
    name = value(section.get("rate"), place.key("rate"), _NAME) or RateKind.ON_DEMAND.value
    rate = rates.get(name)
    if rate is None and name in set(RateKind):
        rate = Rate(name, RateKind(name))
    if rate is None:
        place.key("rate").refuse(f"there is no rate {shown(name)}", f"Write rates: {{{name}: {{kind: reserved}}}}.")
    values = list(_values(section[scopes[0]], place.key(scopes[0]), scopes[0]))
    if rate is None or usd is None or len(place.problems) > before:
        return
    used.setdefault(rate.name, rate)
    for one in values:
        yield PriceStatement(_SCOPES[scopes[0]], one, usd, rate.name, since)


def _values(node: Node, place: Place, key: str) -> Iterator[str]:
    """The names that a price is for; a GPU model as the catalogue spells it, so that one card has one name."""
    kind = GPU_MODEL if key == "gpu_model" else _NAME
    several = list(elements(node, place, "names")) if isinstance(node, list) else [(node, place)]
    for one, at in several:
        name = value(one, at, kind)
        if name is not None:
            yield _catalogued(name) if key == "gpu_model" else name


def _catalogued(name: str) -> str:
    # a megabyte of tables: only where a price file names a card
    from llm_serving_exporter.facts import loader
    from llm_serving_exporter.facts.gpus import find
    from llm_serving_exporter.facts.peaks import peaks_of_spec

    return peaks_of_spec(find(name, loader.gpu_catalogue())).name


def _amount(section: dict[str, Node], place: Place) -> float | None:
    """USD per GPU and hour, however it is stated."""
    given = [key for key in _AMOUNTS if not is_empty(section.get(key))]
    if len(given) != 1:
        what = "no amount is given" if not given else f"{' and '.join(given)} are given"
        place.refuse(
            what, "Write usd_per_gpu_hour: 2.49, or instance: {usd_per_hour: 55.04, gpus: 8}, or purchase: {…}."
        )
        return None
    at = place.key(given[0])
    if given[0] == "usd_per_gpu_hour":
        return value(section[given[0]], at, USD)
    keys = ("usd_per_hour", "gpus") if given[0] == "instance" else ("usd", "gpus", "years", "overhead_ratio")
    own = mapping(section[given[0]], at, keys)
    gpus = value(own.get("gpus"), at.key("gpus"), _GPUS)
    if given[0] == "instance":
        usd = value(own.get("usd_per_hour"), at.key("usd_per_hour"), USD)
        if usd is None or gpus is None:
            at.refuse("usd_per_hour or gpus is missing", "Write {usd_per_hour: 55.04, gpus: 8}.")
            return None
        return usd / gpus
    usd = value(own.get("usd"), at.key("usd"), USD)
    years = value(own.get("years"), at.key("years"), kinds.decimal("years above 0, up to 50", 0.0, 50.0))
    overhead = value(
        own.get("overhead_ratio"), at.key("overhead_ratio"), kinds.decimal("a ratio from 0 to 10", -1e-12, 10.0)
    )
    if usd is None or gpus is None or years is None:
        at.refuse("usd, gpus or years is missing", "Write {usd: 320000, gpus: 8, years: 4, overhead_ratio: 0.15}.")
        return None
    return purchase_usd_per_gpu_hour(usd, gpus, years, overhead or 0.0)


def _power(node: Node | None, place: Place) -> Power:
    section = mapping(node, place, ("usd_per_kwh", "pue", "carbon_grams_per_kwh"))
    pue = value(section.get("pue"), place.key("pue"), kinds.decimal("a PUE from 1 to 10", 1 - 1e-9, 10.0))
    return Power(
        value(
            section.get("usd_per_kwh"), place.key("usd_per_kwh"), kinds.decimal("USD above 0, up to 100", 0.0, 100.0)
        ),
        1.0 if pue is None else pue,
        value(
            section.get("carbon_grams_per_kwh"),
            place.key("carbon_grams_per_kwh"),
            kinds.decimal("grams above 0, up to 10000", 0.0, 10_000.0),
        ),
    )
