"""The sections `pools` and `nodes` of the price file: what is committed at a cloud, and where nodes stand (docs/prices.md)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

from llm_serving_exporter.config.identity import INSTANCE_TYPE, PROVIDER_ID, REGION, ZONE
from llm_serving_exporter.config.target_kinds import NODE
from llm_serving_exporter.model.pools import NodePlace, Pool, PoolKind, PoolUse, SpendRate
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.schema import kinds
from llm_serving_exporter.schema.keys import Key, Keys, names_of, read_complete, read_keys, table
from llm_serving_exporter.schema.kinds import Kind
from llm_serving_exporter.schema.problems import InvalidValueError, Place, listed, shown
from llm_serving_exporter.schema.reading import elements, is_empty, mapping, type_name, value
from llm_serving_exporter.schema.tree import Node

MOST_POOLS, MOST_NODES = 1_000, 10_000
GPUS = kinds.integer(1, 1_000_000)
_NAME = kinds.text("name", 253)

# (node, place) -> the name of a kind of GPU as series have it; None where nobody knows it, which is then reported
FindGpu = Callable[[Node, Place], "str | None"]


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
    found = read_complete(_INSTANCE, node, place, "Write {usd_per_hour: 55.04, gpus: 8}.")
    return None if found is None else found["usd_per_hour"] / found["gpus"]


def _read_instances(node: Node, place: Place, context: object) -> float | None:
    """The GPUs of all of them."""
    found = read_complete(_INSTANCES, node, place, "Write {count: 2, gpus: 8}: 2 machines of 8 GPUs each.")
    return None if found is None else float(found["count"] * found["gpus"])


def _read_gpu_model(node: Node, place: Place, find_gpu: FindGpu) -> str | None:
    return find_gpu(node, place)


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
_RATE = {**_FOR, **_WHERE, **_PRICES}
_FLEXIBLE = table(size_flexible=Key(reads=kinds.BOOLEAN))


def _read_rates(node: Node, place: Place, find_gpu: FindGpu) -> list[SpendRate]:
    """What a GPU-hour of each kind takes from the commitment. A mistake makes the list shorter, and is reported."""
    found = (_read_rate(one, at, find_gpu) for one, at in elements(node, place, "rates"))
    return [rate for rate in found if rate is not None]


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
_HINTS = {
    "committed_gpus": "Write gpus; committed_gpus is of a rate.",
    "valid_from": "Write from: 2026-01-31, or 2026-01-31T08:00:00Z.",
    "to": "Write until: 2026-01-31, or 2026-01-31T08:00:00Z.",
    "rate": "Remove it: GPUs of pools are metered at the rate pool.",
}


def read_pools(node: Node | None, place: Place, find_gpu: FindGpu) -> tuple[Pool, ...]:
    """The pools of the section, in its order. Mistakes are reported at their places; a pool with one is left out."""
    found: dict[str, Pool] = {}
    for one, at in elements(node, place, "pools"):
        pool = _read_pool(one, at, find_gpu)
        if pool is not None and found.setdefault(pool.name, pool) is not pool:
            at.key("name").refuse(f"there are two pools {shown(pool.name)}", "Give each a name of its own.")
    if len(found) > MOST_POOLS:
        place.refuse(f"more than {MOST_POOLS} pools", "Add up those that are for the same machines at the same price.")
    return tuple(found.values())


def _read_pool(node: Node, place: Place, find_gpu: FindGpu) -> Pool | None:
    before = len(place.problems)
    kind = _find_kind(node, place)
    if kind is None:
        return None
    keys = {**_COMMON, **_OF_KIND[kind]}
    section = mapping(node, place, names_of(keys), {**_HINTS, **_hint_other_kinds(kind)})
    given = read_keys(keys, section, place, find_gpu)
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
    own, having = set(names_of(_OF_KIND[kind])), dict[str, list[str]]()
    for other, keys in _OF_KIND.items():
        for name in names_of(keys):
            having.setdefault(name, []).append(other.value)
    return {
        name: f"A {listed(others)} has it; this pool is a {kind.value}. {_EXAMPLES[kind]}"
        for name, others in having.items()
        if name not in own
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


def _read_rate(node: Node, place: Place, find_gpu: FindGpu) -> SpendRate | None:
    before = len(place.problems)
    section = mapping(node, place, names_of(_RATE), _HINTS)
    given = read_keys(_RATE, section, place, find_gpu)
    if len(place.problems) == before:
        _refuse_not_one(_FOR, section, place, "what it is for")
        _refuse_not_one(_PRICES, section, place, "what each GPU costs")
    return SpendRate(_make_use(given), _find_price(given)) if len(place.problems) == before else None


def _refuse_not_one(keys: Keys, section: dict[str, Node], place: Place, what: str) -> None:
    """Reports a choice of keys of which not exactly one is given."""
    given = [name for name in names_of(keys) if not is_empty(section.get(name))]
    if len(given) != 1:
        said = f"{listed(given, 'and')} are given" if given else "nothing says"
        place.refuse(f"{said}{'' if given else ' ' + what}", f"Write one of {', '.join(names_of(keys))}.")


def _refuse_absent(keys: Keys, section: dict[str, Node], place: Place, example: str) -> None:
    absent = [one.name for one in keys.values() if one.required and is_empty(section.get(one.name))]
    if absent:
        place.refuse(f"{listed(absent, 'and')} {'is' if len(absent) == 1 else 'are'} missing", example)


_NODE = table(
    region=Key(reads=REGION), zone=Key(reads=ZONE), instance_type=Key(reads=INSTANCE_TYPE),
    provider_id=Key(reads=PROVIDER_ID),
)  # fmt: skip
_NODE_EXAMPLE = "Write {node: gpu-17, region: us-east-1, zone: us-east-1a, instance_type: p5.48xlarge}."


def read_nodes(node: Node | None, place: Place) -> tuple[tuple[str, NodePlace], ...]:
    """The nodes of the section with where they stand. Mistakes are reported at their places."""
    found: dict[str, NodePlace] = {}
    for one, at in elements(node, place, "nodes"):
        for name, stated in _read_node(one, at):
            if found.setdefault(name, stated) is not stated:
                at.refuse(f"the node {shown(name)} is described twice", "Keep one of them.")
    if len(found) > MOST_NODES:
        place.refuse(f"more than {MOST_NODES} nodes", "Let Kubernetes say where they stand: node_data of its section.")
    return tuple(found.items())


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
    for one, at in several:
        name = value(one, at, NODE)
        if name is not None:
            yield name, stated
