"""The price file: what GPUs cost, and from when on; rates, electricity, the budget, pools, nodes (docs/prices.md)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from llm_serving_exporter.derive.price import purchase_usd_per_gpu_hour
from llm_serving_exporter.errors import Problem
from llm_serving_exporter.facts.gpus import split_words
from llm_serving_exporter.model.hardware import GpuSpec
from llm_serving_exporter.model.pools import NodePlace, Pool, PoolKind, PoolUse, SpendRate
from llm_serving_exporter.model.prices import Power, PriceBook, PriceStatement, Rate, RateKind, Scope
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.settings import kinds
from llm_serving_exporter.settings.document import read_bounded, read_document
from llm_serving_exporter.settings.facts import GPU_MODEL
from llm_serving_exporter.settings.identity import INSTANCE_TYPE, NODE, PROVIDER_ID, REGION, ZONE
from llm_serving_exporter.settings.keys import (
    Key,
    Keys,
    Reader,
    elements,
    is_empty,
    mapping,
    names_of,
    parse_text,
    read_complete,
    read_keys,
    read_values,
    table,
    type_name,
    value,
)
from llm_serving_exporter.settings.kinds import Kind
from llm_serving_exporter.settings.problems import InvalidValueError, Node, Place, listed, nearest, shown

# --- `pools` and `nodes`: what is committed at a cloud, and where nodes stand ------------------------------------------

MOST_POOLS, MOST_NODES = 1_000, 10_000
GPUS = kinds.integer(1, 1_000_000)
_NAME = kinds.text("name", 253)


def parse_moment(text: str) -> float:
    """A date, or a time of any zone; without one it is UTC. Unix seconds. Raises InvalidValueError."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        fix = "Write it as in 2026-01-31 or 2026-01-31T08:00:00Z."
        raise InvalidValueError(f"{shown(text)} is not a date", fix) from None
    return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()


MOMENT = Kind("a date such as 2026-01-31, midnight UTC, or a time", parse_moment)
_INSTANCE = table(usd_per_hour=Key(reads=kinds.USD, required=True), gpus=Key(reads=GPUS, required=True))
_INSTANCES = table(count=Key(reads=GPUS, required=True), gpus=Key(reads=GPUS, required=True))


def read_instance_price(node: Node, place: Place, context: object) -> float | None:
    """USD per GPU and hour of a machine that is paid by the hour."""
    machine = read_complete(_INSTANCE, node, place, "Write {usd_per_hour: 55.04, gpus: 8}.")
    return None if machine is None else machine["usd_per_hour"] / machine["gpus"]


def _read_instances(node: Node, place: Place, context: object) -> float | None:
    """The GPUs of all of them."""
    machines = read_complete(_INSTANCES, node, place, "Write {count: 2, gpus: 8}: 2 machines of 8 GPUs each.")
    return None if machines is None else float(machines["count"] * machines["gpus"])


def _read_gpu_model(node: Node, place: Place, gpu: Kind[str]) -> str | None:
    return value(node, place, gpu)


_WHERE = table(region=Key(reads=REGION), zone=Key(reads=ZONE))
# what a commitment is for: exactly one of them
_FOR = table(gpu_model=Key(reads=_read_gpu_model), gpu_name=Key(reads=_NAME), instance_type=Key(reads=INSTANCE_TYPE))
# how many it is of: exactly one of them
_COUNTS = table(gpus=Key(reads=GPUS), instances=Key(reads=_read_instances))
# what each costs: exactly one of them
_PRICES = table(usd_per_gpu_hour=Key(reads=kinds.USD), instance=Key(reads=read_instance_price))
_COMMON = table(
    name=Key(reads=_NAME, required=True), kind=Key(reads=kinds.member("kind of pool", PoolKind), required=True),
    since=Key(name="from", reads=MOMENT), until=Key(reads=MOMENT), **_WHERE,
)  # fmt: skip
_SPEND_RATE = {**_FOR, **_WHERE, **_PRICES}
_FLEXIBLE = table(size_flexible=Key(reads=kinds.BOOLEAN))


def _read_rates(node: Node, place: Place, gpu: Kind[str]) -> list[SpendRate]:
    """What a GPU-hour of each kind takes from the commitment. A mistake makes the list shorter, and is reported."""
    rates = (_read_rate(element, at, gpu) for element, at in elements(node, place, "rates"))
    return [rate for rate in rates if rate is not None]


_OF_KIND: dict[PoolKind, Keys] = {
    PoolKind.QUANTITY: {**_FOR, **_COUNTS, **_PRICES, **_FLEXIBLE},
    PoolKind.WINDOW: {**_FOR, **_COUNTS, **table(usd=Key(reads=kinds.USD, required=True)), **_FLEXIBLE},
    PoolKind.SPEND: {
        **table(usd_per_hour=Key(reads=kinds.USD, required=True), rates=Key(reads=_read_rates, required=True)),
        **_FLEXIBLE,
    },
}
_EXAMPLES = {
    PoolKind.QUANTITY: "Write {name: …, kind: quantity, gpu_model: H100 SXM, gpus: 16, usd_per_gpu_hour: 2.10}.",
    PoolKind.WINDOW: (
        "Write {name: …, kind: window, instance_type: p5.48xlarge, instances: {count: 1, gpus: 8}, from: …, until: …, usd: 12000}."
    ),
    PoolKind.SPEND: (
        "Write {name: …, kind: spend, usd_per_hour: 40, rates: [{instance_type: p5.48xlarge, usd_per_gpu_hour: 3.10}]}."
    ),
}
_POOL_HINTS = {
    "committed_gpus": "Write gpus; committed_gpus is of a rate.",
    "valid_from": "Write from: 2026-01-31, or 2026-01-31T08:00:00Z.",
    "to": "Write until: 2026-01-31, or 2026-01-31T08:00:00Z.",
    "rate": "Remove it: GPUs of pools are metered at the rate pool.",
}


def read_pools(node: Node | None, place: Place, gpu: Kind[str]) -> tuple[Pool, ...]:
    """The pools of the section, in its order. Mistakes are reported at their places; a pool with one is left out.

    `gpu`: the kind of a GPU's name, which becomes that of the series.
    """
    pools: dict[str, Pool] = {}
    for element, at in elements(node, place, "pools"):
        pool = _read_pool(element, at, gpu)
        if pool is not None and pools.setdefault(pool.name, pool) is not pool:
            at.key("name").refuse(f"there are two pools {shown(pool.name)}", "Give each a name of its own.")
    if len(pools) > MOST_POOLS:
        place.refuse(f"more than {MOST_POOLS} pools", "Add up those that are for the same machines at the same price.")
    return tuple(pools.values())


def _read_pool(node: Node, place: Place, gpu: Kind[str]) -> Pool | None:
    before = len(place.problems)
    kind = _find_kind(node, place)
    if kind is None:
        return None
    keys = {**_COMMON, **_OF_KIND[kind]}
    section = mapping(node, place, names_of(keys), {**_POOL_HINTS, **_hint_other_kinds(kind)})
    given = read_keys(keys, section, place, gpu)
    _refuse_absent(keys, section, place, _EXAMPLES[kind])
    if kind is not PoolKind.SPEND:
        _refuse_not_one(_FOR, section, place, "what it is for")
        _refuse_not_one(_COUNTS, section, place, "how many GPUs it is of")
        if given.get("size_flexible") and "instance_type" not in section:
            place.key("size_flexible").refuse(
                "sizes are those of an instance type", "Write instance_type, or remove it."
            )
    if kind is PoolKind.QUANTITY:
        _refuse_not_one(_PRICES, section, place, "what each GPU costs")
    begin, end = given.get("since"), given.get("until")
    if kind is PoolKind.WINDOW and len(place.problems) == before and (begin is None or end is None):
        place.refuse("a window has a beginning and an end", _EXAMPLES[kind])
    if begin is not None and end is not None and end <= begin:
        place.key("until").refuse("it ends before it begins", "Write a later date; both are UTC.")
    if kind is PoolKind.SPEND and "rates" in section and not given.get("rates") and len(place.problems) == before:
        place.key("rates").refuse("there are none, so that the commitment is for nothing", _EXAMPLES[kind])
    return _make_pool(kind, given) if len(place.problems) == before else None


def _find_kind(node: Node, place: Place) -> PoolKind | None:
    if not isinstance(node, dict):
        place.refuse(f"must be a mapping (key: value), not {type_name(node)}", _EXAMPLES[PoolKind.QUANTITY])
        return None
    if is_empty(node.get("kind")):
        place.refuse("kind is missing", f"Write kind: {listed([one.value for one in PoolKind])}.")
        return None
    kind: PoolKind | None = value(node["kind"], place.key("kind"), kinds.member("kind of pool", PoolKind))
    return kind


def _hint_other_kinds(kind: PoolKind) -> dict[str, str]:
    """What to do about a key that another kind of pool has."""
    names, kinds_by_name = set(names_of(_OF_KIND[kind])), dict[str, list[str]]()
    for other, keys in _OF_KIND.items():
        for name in names_of(keys):
            kinds_by_name.setdefault(name, []).append(other.value)
    return {
        name: f"A {listed(others)} has it; this pool is a {kind.value}. {_EXAMPLES[kind]}"
        for name, others in kinds_by_name.items()
        if name not in names
    }


def _make_pool(kind: PoolKind, given: dict[str, Any]) -> Pool:
    gpus = float(given.get("gpus") or given.get("instances") or 0.0)
    begin, end = given.get("since"), given.get("until")
    pool = Pool(
        given["name"],
        kind,
        _make_use(given),
        gpus,
        rates=tuple(given.get("rates", ())),
        usd_per_hour=given.get("usd_per_hour", 0.0),
        from_unix_seconds=begin,
        until_unix_seconds=end,
        size_flexible=given.get("size_flexible", False),
    )
    if kind is PoolKind.QUANTITY:
        return replace(pool, usd_per_gpu_hour=_find_price(given))
    if begin is not None and end is not None and kind is PoolKind.WINDOW:
        # what was prepaid, spread evenly over its hours
        return replace(pool, usd_per_gpu_hour=given["usd"] / gpus / ((end - begin) / 3600.0))
    return pool


def _make_use(given: dict[str, Any]) -> PoolUse:
    return PoolUse(
        given.get("gpu_model") or given.get("gpu_name") or "",
        given.get("instance_type", ""),
        given.get("region", ""),
        given.get("zone", ""),
    )


def _find_price(given: dict[str, Any]) -> float:
    price: float = given["usd_per_gpu_hour"] if "usd_per_gpu_hour" in given else given["instance"]
    return price


def _read_rate(node: Node, place: Place, gpu: Kind[str]) -> SpendRate | None:
    before = len(place.problems)
    section = mapping(node, place, names_of(_SPEND_RATE), _POOL_HINTS)
    given = read_keys(_SPEND_RATE, section, place, gpu)
    if len(place.problems) == before:
        _refuse_not_one(_FOR, section, place, "what it is for")
        _refuse_not_one(_PRICES, section, place, "what each GPU costs")
    return SpendRate(_make_use(given), _find_price(given)) if len(place.problems) == before else None


def _refuse_not_one(keys: Keys, section: dict[str, Node], place: Place, what: str) -> None:
    """Reports a choice of keys of which not exactly one is given."""
    given = [name for name in names_of(keys) if not is_empty(section.get(name))]
    if len(given) != 1:
        fault = f"{listed(given, 'and')} are given" if given else "nothing says"
        place.refuse(f"{fault}{'' if given else ' ' + what}", f"Write one of {', '.join(names_of(keys))}.")


def _refuse_absent(keys: Keys, section: dict[str, Node], place: Place, example: str) -> None:
    missing = [key.name for key in keys.values() if key.required and is_empty(section.get(key.name))]
    if missing:
        place.refuse(f"{listed(missing, 'and')} {'is' if len(missing) == 1 else 'are'} missing", example)


_NODE = table(
    region=Key(reads=REGION), zone=Key(reads=ZONE), instance_type=Key(reads=INSTANCE_TYPE),
    provider_id=Key(reads=PROVIDER_ID),
)  # fmt: skip
_NODE_EXAMPLE = "Write {node: gpu-17, region: us-east-1, zone: us-east-1a, instance_type: p5.48xlarge}."


def read_nodes(node: Node | None, place: Place) -> tuple[tuple[str, NodePlace], ...]:
    """The nodes of the section with where they stand. Mistakes are reported at their places."""
    nodes: dict[str, NodePlace] = {}
    for element, at in elements(node, place, "nodes"):
        for name, described in _read_node(element, at):
            if nodes.setdefault(name, described) is not described:
                at.refuse(f"the node {shown(name)} is described twice", "Keep one of them.")
    if len(nodes) > MOST_NODES:
        place.refuse(f"more than {MOST_NODES} nodes", "Let Kubernetes say where they stand: node_data of its section.")
    return tuple(nodes.items())


def _read_node(node: Node, place: Place) -> Iterator[tuple[str, NodePlace]]:
    before = len(place.problems)
    section = mapping(node, place, ("node", *names_of(_NODE)))
    names = section.pop("node", None)
    several = (
        list(elements(names, place.key("node"), "names")) if isinstance(names, list) else [(names, place.key("node"))]
    )
    given = read_keys(_NODE, section, place)
    if len(place.problems) > before:
        return
    if is_empty(names) or not several:
        place.refuse("node is missing", _NODE_EXAMPLE)
        return
    if not given:
        place.refuse("nothing is said of it", _NODE_EXAMPLE)
        return
    if len(several) > 1 and "provider_id" in given:
        place.key("provider_id").refuse("it names one machine, and there are several nodes", "Describe each by itself.")
        return
    stated = NodePlace(**given)
    for element, at in several:
        name = value(element, at, NODE)
        if name is not None:
            yield name, stated


# --- `prices`, `rates`, `power`, `budget_usd_per_month` ----------------------------------------------------------------

MOST_STATEMENTS = 10_000
SECTIONS = ("prices", "rates", "power", "budget_usd_per_month", "pools", "nodes")
# the rate of pools is built in
_OWN_KINDS = tuple(kind for kind in RateKind if kind is not RateKind.POOL)
_ONE_OF = kinds.choice("kind of rate", tuple(kind.value for kind in _OWN_KINDS))
_RATE_KIND = Kind(_ONE_OF.expects, lambda text: RateKind(_ONE_OF.parse(text)))
_POWER = table(
    usd_per_kwh=Key(reads=kinds.decimal("USD above 0, up to 100", 0.0, 100.0)),
    pue=Key(reads=kinds.decimal("a PUE from 1 to 10", 1 - 1e-9, 10.0)),
    carbon_grams_per_kwh=Key(reads=kinds.decimal("grams above 0, up to 10000", 0.0, 10_000.0)),
)
_RATE = table(kind=Key(reads=_RATE_KIND), includes_power=Key(reads=kinds.BOOLEAN), committed_gpus=Key(reads=GPUS))
_PURCHASE = table(
    usd=Key(reads=kinds.USD, required=True),
    gpus=Key(reads=GPUS, required=True),
    years=Key(reads=kinds.decimal("years above 0, up to 50", 0.0, 50.0), required=True),
    overhead_ratio=Key(reads=kinds.decimal("a ratio from 0 to 10", -1e-12, 10.0)),
)


def _read_names(kind: Kind[str]) -> Reader:
    """A name, or a list of them."""

    def read(node: Node, place: Place, context: object) -> list[str]:
        if isinstance(node, list):
            return read_values(node, place, kind, "names")
        name = value(node, place, kind)
        return [] if name is None else [name]

    return read


def _gpu_kind(described: Sequence[GpuSpec]) -> Kind[str]:
    """A card of the catalogue, or one that the configuration describes -> its name as series have it."""
    names = {split_words(name) for spec in described for name in (spec.name, *spec.names)}

    def parse(text: str) -> str:
        if split_words(text) not in names:
            GPU_MODEL.parse(text)
        # a megabyte of tables: only where a price file names a card
        from llm_serving_exporter.facts import loader
        from llm_serving_exporter.facts.gpus import find

        return find(text, (*described, *loader.gpu_catalogue())).name

    return Kind(GPU_MODEL.expects, parse, is_text=True)


def _read_gpu_models(node: Node, place: Place, gpu: Kind[str]) -> list[str]:
    names: list[str] = _read_names(gpu)(node, place, None)
    return names


def _read_purchase(node: Node, place: Place, context: object) -> float | None:
    """USD per GPU and hour of a machine that was bought."""
    purchase = read_complete(_PURCHASE, node, place, "Write {usd: 320000, gpus: 8, years: 4, overhead_ratio: 0.15}.")
    if purchase is None:
        return None
    return purchase_usd_per_gpu_hour(
        purchase["usd"], purchase["gpus"], purchase["years"], purchase.get("overhead_ratio", 0.0)
    )


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
    problems: tuple[Problem, ...]
    # what is legal but odd, in sentences
    warnings: tuple[str, ...]


def look_at_prices(
    path: str, read: Callable[[Path], str] = read_bounded, described: Sequence[GpuSpec] = ()
) -> PriceReading:
    """Reads a price file, and says whether its last line may be cut short: of 3600 there may be only 360 so far.

    `described`: the GPUs that the configuration describes, which prices may name too.
    """
    ends: list[str] = []

    def note_end(file: Path) -> str:
        text = read(file)
        ends.append(text[-1:])
        return text

    problems: list[Problem] = []
    book = read_prices(path, Place(path, "", problems), note_end, described)
    odd = f"{path}: there is no final newline, so that its last line may be cut short. End it with one."
    warnings = [odd] if ends and ends[0] not in ("", "\n", "\r") else []
    if book is not None:
        warnings += [f"{path}: {warning}" for warning in _doubt_pools(book)]
    return PriceReading(book, tuple(problems), tuple(warnings))


def _doubt_pools(book: PriceBook) -> Iterator[str]:
    """Where pools and prices at their rate do not go together, which is legal while one of them is yet to come."""
    priced = any(statement.rate == RateKind.POOL for statement in book.statements)
    if priced and not book.pools:
        yield "prices stand at the rate pool, and there are no pools: nothing is taken off them. Add pools, or write rate: on_demand."
    if book.pools and not priced:
        yield (
            "there are pools, and no price at the rate pool: no GPU is metered for them, and the review shows all of them as unused. "
            "Write rate: pool beside the uncommitted price of the GPUs that they are for."
        )


def read_prices(
    path: str, place: Place, read: Callable[[Path], str] = read_bounded, described: Sequence[GpuSpec] = ()
) -> PriceBook | None:
    """The prices that stand in the file; None where it cannot be used, which is then reported at its places."""
    before, gpu = len(place.problems), _gpu_kind(described)
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
        for statement in _statements(node, at, rates, used, gpu):
            key = statement.scope, statement.value, statement.from_unix_seconds
            other = statements.setdefault(key, statement)
            if other is not statement:
                at.refuse(
                    f"{statement.scope.value} {shown(statement.value)} has two prices from the same moment on",
                    "Keep one of them.",
                )
    if len(statements) > MOST_STATEMENTS:
        place.key("prices").refuse(f"more than {MOST_STATEMENTS} prices", "State them by gpu_model or node.")
    at = place.key("power")
    power = Power(**read_keys(_POWER, mapping(section.get("power"), at, names_of(_POWER)), at))
    budget = value(section.get("budget_usd_per_month"), place.key("budget_usd_per_month"), kinds.USD)
    pools = read_pools(section.get("pools"), place.key("pools"), gpu)
    nodes = read_nodes(section.get("nodes"), place.key("nodes"))
    if len(place.problems) > before:
        return None
    return PriceBook(tuple(statements.values()), tuple(used.values()), power, budget, pools, nodes)


def _rates(node: Node | None, place: Place) -> dict[str, Rate]:
    if node is None or is_empty(node):
        return {}
    if not isinstance(node, dict):
        place.refuse(
            f"must be a mapping (name: rate), not {type_name(node)}",
            "Write reserved: {kind: reserved, committed_gpus: 64}.",
        )
        return {}
    rates = {}
    for name, rate_node in node.items():
        at = place.key(name)
        if name == RateKind.POOL:
            at.refuse(
                "pool is the rate of the section pools, and what it is stands there", "Give this one another name."
            )
            continue
        section = mapping(rate_node, at, names_of(_RATE))
        given = read_keys(_RATE, section, at)
        if "kind" not in given and name in set(RateKind):
            given["kind"] = RateKind(name)
        if "kind" not in section and "kind" not in given:
            at.refuse("kind is missing", f"Write kind: one of {', '.join(_OWN_KINDS)}.")
        elif "kind" in given and parse_text(name, at, _NAME) is not None:
            rates[name] = Rate(name, **given)
    return rates


def _statements(
    node: Node, place: Place, rates: dict[str, Rate], used: dict[str, Rate], gpu: Kind[str]
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
    given = read_keys(_STATEMENT, section, place, gpu)
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
    for priced in given[scopes[0]]:
        yield PriceStatement(_SCOPES[scopes[0]], priced, given[amounts[0]], rate.name, given.get("since"))
