"""The price file: what GPUs cost, and from when on; rates, electricity, the budget, pools, nodes (docs/prices.md)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from llm_serving_exporter.errors import Problem
from llm_serving_exporter.facts.gpus import find, split_words
from llm_serving_exporter.model.cost import (
    Pool,
    PoolKind,
    PoolUse,
    Power,
    PriceBook,
    PriceStatement,
    Rate,
    RateKind,
    Scope,
    SpendRate,
)
from llm_serving_exporter.model.hardware import GpuSpec
from llm_serving_exporter.model.target import NodePlace
from llm_serving_exporter.settings import keys, kinds
from llm_serving_exporter.settings.document import read_bounded, read_document
from llm_serving_exporter.settings.facts import GPU_MODEL
from llm_serving_exporter.settings.identity import INSTANCE_TYPE, NODE, PROVIDER_ID, REGION, ZONE
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
_INSTANCE = keys.table(usd_per_hour=keys.Key(kinds.USD, required=True), gpus=keys.Key(GPUS, required=True))
_INSTANCES = keys.table(count=keys.Key(GPUS, required=True), gpus=keys.Key(GPUS, required=True))


def read_instance_price(node: Node, place: Place, context: object) -> float | None:
    """USD per GPU and hour of a machine that is paid by the hour."""
    machine = keys.read_complete(_INSTANCE, node, place, "Write {usd_per_hour: 55.04, gpus: 8}.")
    return None if machine is None else machine["usd_per_hour"] / machine["gpus"]


def _read_instances(node: Node, place: Place, context: object) -> float | None:
    """The GPUs of all of them."""
    machines = keys.read_complete(_INSTANCES, node, place, "Write {count: 2, gpus: 8}: 2 machines of 8 GPUs each.")
    return None if machines is None else float(machines["count"] * machines["gpus"])


def _read_rates(node: Node, place: Place, gpu: Kind[str]) -> list[SpendRate]:
    """What a GPU-hour of each kind takes from the commitment. A mistake makes the list shorter, and is reported."""
    rates = (_read_rate(element, at, gpu) for element, at in keys.elements(node, place, "rates"))
    return [rate for rate in rates if rate is not None]


_WHERE = keys.table(region=REGION, zone=ZONE)
# what a commitment is for: exactly one of them. The context of readers here is the kind of a card's name, by which `value` reads it
_FOR = keys.table(gpu_model=keys.value, gpu_name=_NAME, instance_type=INSTANCE_TYPE)
_COUNTS = keys.table(gpus=GPUS, instances=_read_instances)  # how many it is of: exactly one of them
_PRICES = keys.table(usd_per_gpu_hour=kinds.USD, instance=read_instance_price)  # what each costs: exactly one of them
_POOL_KIND = kinds.member("kind of pool", PoolKind)
_COMMON = keys.table(
    name=keys.Key(_NAME, required=True), kind=keys.Key(_POOL_KIND, required=True), since=keys.Key(MOMENT, name="from"), until=MOMENT,
    **_WHERE,
)  # fmt: skip
_SPEND_RATE = {**_FOR, **_WHERE, **_PRICES}
_SPEND = keys.table(usd_per_hour=keys.Key(kinds.USD, required=True), rates=keys.Key(_read_rates, required=True))
_FLEXIBLE = keys.table(size_flexible=kinds.BOOLEAN)
_OF_KIND: dict[PoolKind, keys.Keys] = {
    PoolKind.QUANTITY: {**_FOR, **_COUNTS, **_PRICES, **_FLEXIBLE},
    PoolKind.WINDOW: {**_FOR, **_COUNTS, **keys.table(usd=keys.Key(kinds.USD, required=True)), **_FLEXIBLE},
    PoolKind.SPEND: {**_SPEND, **_FLEXIBLE},
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
    for element, at in keys.elements(node, place, "pools"):
        pool = _read_pool(element, at, gpu)
        if pool is not None and pools.setdefault(pool.name, pool) is not pool:
            at.key("name").refuse(f"there are two pools {shown(pool.name)}", "Give each a name of its own.")
    if len(pools) > MOST_POOLS:
        place.refuse(f"more than {MOST_POOLS} pools", "Add up those that are for the same machines at the same price.")
    return tuple(pools.values())


def _read_pool(node: Node, place: Place, gpu: Kind[str]) -> Pool | None:
    if not isinstance(node, dict):
        place.refuse(f"must be a mapping (key: value), not {keys.type_name(node)}", _EXAMPLES[PoolKind.QUANTITY])
        return None
    if keys.is_empty(node.get("kind")):
        place.refuse("kind is missing", f"Write kind: {listed([kind.value for kind in PoolKind])}.")
        return None
    kind = keys.value(node["kind"], place.key("kind"), _POOL_KIND)
    if kind is None:
        return None
    example = _EXAMPLES[kind]
    section = keys.Section({**_COMMON, **_OF_KIND[kind]}, node, place, gpu, {**_POOL_HINTS, **_hint_other_kinds(kind)})
    section.refuse_missing(example, or_empty=True)
    given = section.values
    if kind is not PoolKind.SPEND:
        section.refuse_unless_one(_FOR, "what it is for")
        section.refuse_unless_one(_COUNTS, "how many GPUs it is of")
        if given.get("size_flexible") and "instance_type" not in section.nodes:
            what = "sizes are those of an instance type"
            place.key("size_flexible").refuse(what, "Write instance_type, or remove it.")
    if kind is PoolKind.QUANTITY:
        section.refuse_unless_one(_PRICES, "what each GPU costs")
    begin, end = given.get("since"), given.get("until")
    if kind is PoolKind.WINDOW and section.is_sound and (begin is None or end is None):
        place.refuse("a window has a beginning and an end", example)
    if begin is not None and end is not None and end <= begin:
        place.key("until").refuse("it ends before it begins", "Write a later date; both are UTC.")
    if kind is PoolKind.SPEND and "rates" in section.nodes and not given.get("rates") and section.is_sound:
        place.key("rates").refuse("there are none, so that the commitment is for nothing", example)
    return _make_pool(kind, given) if section.is_sound else None


def _hint_other_kinds(kind: PoolKind) -> dict[str, str]:
    """What to do about a key that another kind of pool has."""
    names_by_kind = {other: keys.names_of(columns) for other, columns in _OF_KIND.items()}
    foreign = {name for names in names_by_kind.values() for name in names if name not in names_by_kind[kind]}
    owners = {name: listed([other for other, names in names_by_kind.items() if name in names]) for name in foreign}
    return {name: f"A {of} has it; this pool is a {kind.value}. {_EXAMPLES[kind]}" for name, of in owners.items()}


def _make_pool(kind: PoolKind, given: dict[str, Any]) -> Pool:
    gpus = float(given.get("gpus") or given.get("instances") or 0.0)
    begin, end = given.get("since"), given.get("until")
    usd_per_gpu_hour = _find_price(given)
    if kind is PoolKind.WINDOW and begin is not None and end is not None:
        # what was prepaid, spread evenly over its hours
        usd_per_gpu_hour = given["usd"] / gpus / ((end - begin) / 3600.0)
    return Pool(
        given["name"],
        kind,
        _make_use(given),
        gpus,
        usd_per_gpu_hour=usd_per_gpu_hour,
        rates=tuple(given.get("rates", ())),
        usd_per_hour=given.get("usd_per_hour", 0.0),
        from_unix_seconds=begin,
        until_unix_seconds=end,
        size_flexible=given.get("size_flexible", False),
    )


def _make_use(given: dict[str, Any]) -> PoolUse:
    gpu = given.get("gpu_model") or given.get("gpu_name") or ""
    return PoolUse(gpu, given.get("instance_type", ""), given.get("region", ""), given.get("zone", ""))


def _find_price(given: dict[str, Any]) -> float:
    return float(given.get("usd_per_gpu_hour") or given.get("instance") or 0.0)


def _read_rate(node: Node, place: Place, gpu: Kind[str]) -> SpendRate | None:
    section = keys.Section(_SPEND_RATE, node, place, gpu, _POOL_HINTS)
    if section.is_sound:
        section.refuse_unless_one(_FOR, "what it is for")
        section.refuse_unless_one(_PRICES, "what each GPU costs")
    return SpendRate(_make_use(section.values), _find_price(section.values)) if section.is_sound else None


_NODE = keys.table(region=REGION, zone=ZONE, instance_type=INSTANCE_TYPE, provider_id=PROVIDER_ID)
_NODE_EXAMPLE = "Write {node: gpu-17, region: us-east-1, zone: us-east-1a, instance_type: p5.48xlarge}."


def read_nodes(node: Node | None, place: Place) -> tuple[tuple[str, NodePlace], ...]:
    """The nodes of the section with where they stand. Mistakes are reported at their places."""
    nodes: dict[str, NodePlace] = {}
    for element, at in keys.elements(node, place, "nodes"):
        for name, described in _read_node(element, at):
            if nodes.setdefault(name, described) is not described:
                at.refuse(f"the node {shown(name)} is described twice", "Keep one of them.")
    if len(nodes) > MOST_NODES:
        place.refuse(f"more than {MOST_NODES} nodes", "Let Kubernetes say where they stand: node_data of its section.")
    return tuple(nodes.items())


def _read_node(node: Node, place: Place) -> Iterator[tuple[str, NodePlace]]:
    is_sound = place.watch()
    section = keys.mapping(node, place, ("node", *keys.names_of(_NODE)))
    names = section.pop("node", None)
    several = [] if names is None else keys.one_or_several(names, place.key("node"), "names")
    given = keys.read_keys(_NODE, section, place)
    if not is_sound():
        return
    if keys.is_empty(names) or not several:
        place.refuse("node is missing", _NODE_EXAMPLE)
    elif not given:
        place.refuse("nothing is said of it", _NODE_EXAMPLE)
    elif len(several) > 1 and "provider_id" in given:
        place.key("provider_id").refuse("it names one machine, and there are several nodes", "Describe each by itself.")
    else:
        stated = NodePlace(**given)
        for element, where in several:
            if (name := keys.value(element, where, NODE)) is not None:
                yield name, stated


# --- `prices`, `rates`, `power`, `budget_usd_per_month` ----------------------------------------------------------------

MOST_STATEMENTS = 10_000
SECTIONS = ("prices", "rates", "power", "budget_usd_per_month", "pools", "nodes")
_OWN_KINDS = tuple(kind for kind in RateKind if kind is not RateKind.POOL)  # the rate of pools is built in
_POWER = keys.table(
    usd_per_kwh=kinds.decimal("USD above 0, up to 100", 0.0, 100.0),
    pue=kinds.decimal("a PUE from 1 to 10", 1 - 1e-9, 10.0),
    carbon_grams_per_kwh=kinds.decimal("grams above 0, up to 10000", 0.0, 10_000.0),
)
_RATE = keys.table(kind=kinds.member("kind of rate", _OWN_KINDS), includes_power=kinds.BOOLEAN, committed_gpus=GPUS)
_PURCHASE = keys.table(
    usd=keys.Key(kinds.USD, required=True),
    gpus=keys.Key(GPUS, required=True),
    years=keys.Key(kinds.decimal("years above 0, up to 50", 0.0, 50.0), required=True),
    overhead_ratio=kinds.decimal("a ratio from 0 to 10", -1e-12, 10.0),
)


def _read_purchase(node: Node, place: Place, context: object) -> float | None:
    """USD per GPU and hour of a machine that was bought."""
    bought = keys.read_complete(_PURCHASE, node, place, "Write {usd: 320000, gpus: 8, years: 4, overhead_ratio: 0.15}.")
    if bought is None:
        return None
    return purchase_usd_per_gpu_hour(bought["usd"], bought["gpus"], bought["years"], bought.get("overhead_ratio", 0.0))


def _read_names(node: Node, place: Place, kind: Kind[str]) -> list[str]:
    """A name, or a list of them."""
    names = (keys.value(element, at, kind) for element, at in keys.one_or_several(node, place, "names"))
    return [name for name in names if name is not None]


def _read_any_names(node: Node, place: Place, gpu: object) -> list[str]:
    return _read_names(node, place, _NAME)


def _gpu_kind(described: Sequence[GpuSpec]) -> Kind[str]:
    """A card of the catalogue, or one that the configuration describes -> its name as series have it."""
    names = {split_words(name) for spec in described for name in (spec.name, *spec.names)}

    def parse(text: str) -> str:
        if split_words(text) not in names:
            GPU_MODEL.parse(text)
        # a megabyte of tables: only where a price file names a card
        from llm_serving_exporter.facts import loader

        return find(text, (*described, *loader.gpu_catalogue())).name

    return Kind(GPU_MODEL.expects, parse, is_text=True)


# what a price is for: exactly one of them
_SCOPES = {
    "target": Scope.TARGET, "node": Scope.NODE, "gpu_model": Scope.GPU_MODEL, "gpu_name": Scope.GPU_MODEL,
}  # fmt: skip
# how much it is, in USD per GPU and hour: exactly one of them
_AMOUNTS = keys.table(usd_per_gpu_hour=kinds.USD, instance=read_instance_price, purchase=_read_purchase)
_STATEMENT = {
    **keys.table(target=_read_any_names, node=_read_any_names, gpu_model=_read_names, gpu_name=_read_any_names),
    **_AMOUNTS,
    **keys.table(rate=_NAME, since=keys.Key(MOMENT, name="from")),
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

    book: PriceBook | None  # None where it cannot be used
    problems: tuple[Problem, ...]
    warnings: tuple[str, ...]  # what is legal but odd, in sentences


def look_at_prices(
    path: str, read: Callable[[Path], str] = read_bounded, described: Sequence[GpuSpec] = ()
) -> PriceReading:
    """Reads a price file, and says whether its last line may be cut short: of 3600 there may be only 360 so far.

    `described`: the GPUs that the configuration describes, which prices may name too.
    """
    texts: list[str] = []
    problems: list[Problem] = []

    def keep(file: Path) -> str:
        texts.append(read(file))
        return texts[0]

    book = read_prices(path, Place(path, "", problems), keep, described)
    odd = f"{path}: there is no final newline, so that its last line may be cut short. End it with one."
    warnings = [odd] if texts and not f"\n{texts[0]}".endswith(("\n", "\r")) else []
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
    is_sound, gpu = place.watch(), _gpu_kind(described)
    document = read_document(path, place, read)
    if document is None:
        return None
    if keys.is_empty(document):
        place.refuse("the file is empty", "Write prices: [{gpu_model: H100 SXM, usd_per_gpu_hour: 2.49}].")
    section = keys.mapping(document, place, SECTIONS)
    rates = _rates(*section.find_key("rates"))
    statements: dict[tuple[Scope, str, float | None], PriceStatement] = {}
    used: dict[str, Rate] = dict(rates)
    for node, at in section.elements("prices", "prices"):
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
    power = Power(**keys.Section(_POWER, *section.find_key("power")).values)
    budget = section.value("budget_usd_per_month", kinds.USD)
    pools, nodes = read_pools(*section.find_key("pools"), gpu), read_nodes(*section.find_key("nodes"))
    if not is_sound():
        return None
    return PriceBook(tuple(statements.values()), tuple(used.values()), power, budget, pools, nodes)


def _rates(node: Node | None, place: Place) -> dict[str, Rate]:
    if node is None or keys.is_empty(node):
        return {}
    rates, example = {}, "Write reserved: {kind: reserved, committed_gpus: 64}."
    for name, rate_node in keys.free_mapping(node, place, example, form="(name: rate)").items():
        at = place.key(name)
        if name == RateKind.POOL:
            what = "pool is the rate of the section pools, and what it is stands there"
            at.refuse(what, "Give this one another name.")
            continue
        section = keys.Section(_RATE, rate_node, at)
        given = section.values
        if "kind" not in given and name in set(RateKind):
            given["kind"] = RateKind(name)
        if "kind" not in section.nodes and "kind" not in given:
            at.refuse("kind is missing", f"Write kind: one of {', '.join(_OWN_KINDS)}.")
        elif "kind" in given and _NAME.read(name, at) is not None:
            rates[name] = Rate(name, **given)
    return rates


def _statements(
    node: Node, place: Place, rates: dict[str, Rate], used: dict[str, Rate], gpu: Kind[str]
) -> Iterator[PriceStatement]:
    is_sound = place.watch()
    if not isinstance(node, dict):
        what = f"must be a mapping (key: value), not {keys.type_name(node)}"
        place.refuse(what, "Write {gpu_model: …, usd_per_gpu_hour: …}.")
        return
    section = keys.mapping(node, place, keys.names_of(_STATEMENT), _HINTS)
    scopes = keys.pick_given(section, _SCOPES)
    if len(scopes) != 1:
        what = f"a price is for {'nothing' if not scopes else ' and '.join(scopes)}"
        place.refuse(what, f"Write one of {', '.join(_SCOPES)}; a list of several is allowed.")
        return
    amounts = keys.pick_given(section, _AMOUNTS)
    if len(amounts) != 1:
        what = "no amount is given" if not amounts else f"{' and '.join(amounts)} are given"
        fix = "Write usd_per_gpu_hour: 2.49, or instance: {usd_per_hour: 55.04, gpus: 8}, or purchase: {…}."
        place.refuse(what, fix)
    given = keys.read_keys(_STATEMENT, section, place, gpu)
    name = given.get("rate", RateKind.ON_DEMAND.value)
    rate = rates.get(name) or (Rate(name, RateKind(name)) if name in set(RateKind) else None)
    if rate is None:
        near = nearest(name, (*rates, *RateKind))
        fix = f"Did you mean {near}?" if near else f"Write rates: {{{name}: {{kind: reserved}}}}."
        place.key("rate").refuse(f"there is no rate {shown(name)}", fix)
    if rate is None or not is_sound():
        return
    used.setdefault(rate.name, rate)
    for priced in given[scopes[0]]:
        yield PriceStatement(_SCOPES[scopes[0]], priced, given[amounts[0]], rate.name, given.get("since"))


def purchase_usd_per_gpu_hour(usd: float, gpus: int, years: float, overhead_ratio: float) -> float:
    """A purchase as a rate: price x (1 + overhead) / (years x 8760 h), of one of its GPUs (design section 8)."""
    return usd * (1 + overhead_ratio) / (years * 8760.0) / gpus
